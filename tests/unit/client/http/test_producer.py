"""Publishing in the background: order, futures, patience and failures."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx
import msgspec
import pytest

from goqueue.client.http.batching import ProducerSettings
from goqueue.client.http.messages import Outgoing
from goqueue.client.http.producer import AsyncProducer, PartlyPublished, Producer, publish_all
from goqueue.client.http.settings import HttpSettings, RetrySettings
from goqueue.client.http.steps import run_steps
from goqueue.client.http.transport import AsyncTransport, Transport
from goqueue.model.errors import InvalidRecord, InvalidRequest, UnknownTopic
from goqueue.wire.carrier.problems import problem_of

SETTINGS = HttpSettings(retry=RetrySettings(retries_max=0))


class FakeBroker:
    """Stores what is published; a value "bad" is refused, a topic "none" is unknown."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.gate.wait(10)
        if "/none/" in request.url.path:
            problem = problem_of(UnknownTopic("none"))
            return httpx.Response(404, content=msgspec.json.encode(problem))
        messages = json.loads(request.content)["messages"]
        self.batches.append(len(messages))
        results = [self._store(one["value"]) for one in messages]
        return httpx.Response(200, content=msgspec.json.encode({"results": results, "failed": 0}))

    def _store(self, value: str) -> dict[str, Any]:
        if value == "bad":
            return {"problem": problem_of(InvalidRecord("This value is bad."))}
        self.stored.append(value)
        place = {"topic": "t", "partition": 0, "offset": len(self.stored) - 1, "timestamp": 1}
        return {"published": {"id": "x", **place}}


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def transport(broker: FakeBroker) -> Transport:
    return Transport("h:1", SETTINGS, network=httpx.MockTransport(broker))


def test_messages_go_in_batches_and_in_order(broker: FakeBroker, transport: Transport) -> None:
    settings = ProducerSettings(batch_messages_max=100, linger_ms=10_000)
    with Producer(transport, settings, "all") as producer:
        futures = [producer.send("t", str(number)) for number in range(250)]
    assert broker.stored == [str(number) for number in range(250)]
    assert broker.batches == [100, 100, 50]
    assert [future.result().offset for future in futures] == list(range(250))


def test_a_refused_message_fails_alone_and_is_not_overlooked(
    broker: FakeBroker, transport: Transport
) -> None:
    producer = Producer(transport, ProducerSettings(), "all")
    futures = [producer.send("t", value) for value in ("a", "bad", "b")]
    with pytest.raises(InvalidRecord, match="This value is bad"):
        producer.flush()
    producer.close()  # it was told once
    assert [future.exception() is None for future in futures] == [True, False, True]
    assert broker.stored == ["a", "b"]


def test_a_batch_that_fails_as_a_whole_fails_each_of_its_messages(transport: Transport) -> None:
    producer = Producer(transport, ProducerSettings(), "all")
    futures = [producer.send("none", "a"), producer.send("none", "b")]
    with pytest.raises(UnknownTopic):
        producer.close()
    assert all(isinstance(future.exception(), UnknownTopic) for future in futures)


def test_a_fast_publisher_waits_for_a_slow_broker(broker: FakeBroker, transport: Transport) -> None:
    broker.gate.clear()
    settings = ProducerSettings(buffer_messages_max=2, linger_ms=0)
    producer = Producer(transport, settings, "all")
    producer.send("t", "1")
    producer.send("t", "2")
    third = threading.Thread(target=producer.send, args=("t", "3"))
    third.start()
    third.join(0.05)
    assert third.is_alive()
    broker.gate.set()
    third.join(10)
    producer.close()
    assert broker.stored == ["1", "2", "3"]


def test_a_closed_producer_takes_nothing(transport: Transport) -> None:
    producer = Producer(transport, ProducerSettings(), "all")
    producer.close()
    with pytest.raises(InvalidRequest, match="closed"):
        producer.send("t", "late")


def test_a_whole_message_has_all_it_needs(transport: Transport) -> None:
    with Producer(transport, ProducerSettings(), "all") as producer:
        assert producer.send("t", Outgoing("a", priority="high")).result(10).offset == 0
        with pytest.raises(InvalidRequest):
            producer.send("t", Outgoing("a"), key="k")


def test_coroutines_publish_the_same_way(broker: FakeBroker) -> None:
    async def publish() -> list[int | None]:
        transport = AsyncTransport("h:1", SETTINGS, network=httpx.MockTransport(broker))
        settings = ProducerSettings(batch_messages_max=100, buffer_messages_max=150, linger_ms=1)
        async with AsyncProducer(transport, settings, "all") as producer:
            futures = [await producer.send("t", str(number)) for number in range(250)]
        with pytest.raises(InvalidRequest, match="closed"):
            await producer.send("t", "late")
        bad = AsyncProducer(transport, settings, "all")
        refused = await bad.send("t", "bad")
        with pytest.raises(InvalidRecord):
            await bad.close()
        assert isinstance(refused.exception(), InvalidRecord)
        await transport.close()
        return [(await future).offset for future in futures]

    assert asyncio.run(publish()) == list(range(250))
    assert broker.stored == [str(number) for number in range(250)]


def test_a_list_is_published_whole_or_says_what_was_not(transport: Transport) -> None:
    published = run_steps(publish_all("t", ["a", b"b"], "all"), transport)
    assert [one.offset for one in published] == [0, 1]
    with pytest.raises(PartlyPublished, match="1 of 2 messages were not published") as caught:
        run_steps(publish_all("t", ["c", "bad"], "all"), transport)
    assert [isinstance(one, InvalidRecord) for one in caught.value.outcomes] == [False, True]
    with pytest.raises(InvalidRecord):
        run_steps(publish_all("t", ["bad"], "all"), transport)
    with pytest.raises(UnknownTopic):
        run_steps(publish_all("none", ["a", "b"], "all"), transport)
    assert run_steps(publish_all("t", [], "all"), transport) == []
