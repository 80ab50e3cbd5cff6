"""Consumers whose broker misbehaves: they wait, they end, but they never hang."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

import httpx
import msgspec
import pytest

from goqueue.client.http.consumers import consumer as with_threads
from goqueue.client.http.consumers.async_consumer import AsyncConsumer
from goqueue.client.http.consumers.consumer import Consumer
from goqueue.client.http.consumers.workload import ConsumerSettings, Tally
from goqueue.client.http.messages import ReceivedMessage
from goqueue.client.http.requests.queues import QueueRequests
from goqueue.client.http.settings import HttpSettings, RetrySettings
from goqueue.client.http.transport import AsyncTransport, Transport
from goqueue.model.errors import StorageFull, UnknownGroup
from goqueue.wire.carrier.problems import problem_of

SETTINGS = HttpSettings(retry=RetrySettings(retries_max=0))
Stop = Callable[[], None]
Handle = Callable[[str, Stop], None]


class FakeQueue:
    """A queue of a few messages; `answers` take the place of its own, by verb, while there are."""

    def __init__(self, count: int) -> None:
        self.ready = [str(number) for number in range(count)]
        self.settled: dict[str, str] = {}
        self.answers: dict[str, list[httpx.Response]] = {}
        self.lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        verb = request.url.path.rsplit("/", 1)[1]
        body = json.loads(request.content)
        with self.lock:
            if self.answers.get(verb):
                return self.answers[verb].pop(0)
            if verb == "receive":
                taken = self.ready[: body["max_messages"]]
                del self.ready[: body["max_messages"]]
                return _json({"messages": [_message(text) for text in taken]})
            for receipt in body["receipts"]:
                if verb != "extend":
                    self.settled[receipt] = verb
            return _json({"results": [{"receipt": one} for one in body["receipts"]], "failed": 0})


def _json(tree: object) -> httpx.Response:
    return httpx.Response(200, content=msgspec.json.encode(tree))


def _message(text: str) -> dict[str, object]:
    stored = {"topic": "t", "partition": 0, "offset": int(text), "timestamp": 0, "headers": []}
    content = {"key": None, "key_encoding": "utf8", "value": text, "value_encoding": "utf8"}
    lease = {"receipt": f"r{text}", "priority": "normal", "attempt": 1, "leased_until": 0}
    return {"id": f"t:0:{text}", **stored, **content, **lease}


def refusal(error: StorageFull | UnknownGroup) -> httpx.Response:
    problem = problem_of(error)
    return httpx.Response(problem.status, content=msgspec.json.encode(problem))


def run_threads(queue: FakeQueue, handle: Handle) -> Tally:
    transport = Transport("h:1", SETTINGS, network=httpx.MockTransport(queue))
    consumer = Consumer(
        transport, QueueRequests("t", "g", "me"), ConsumerSettings(concurrency=2, wait_ms=0)
    )

    @consumer.handler
    def handler(message: ReceivedMessage) -> None:
        handle(message.text, consumer.stop)

    try:
        return consumer.run()
    finally:
        transport.close()


def run_coroutines(queue: FakeQueue, handle: Handle) -> Tally:
    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)  # as a network does, let others go on
        return queue(request)

    async def run() -> Tally:
        transport = AsyncTransport("h:1", SETTINGS, network=httpx.MockTransport(answer))
        consumer = AsyncConsumer(
            transport, QueueRequests("t", "g", "me"), ConsumerSettings(concurrency=2, wait_ms=0)
        )

        @consumer.handler
        async def handler(message: ReceivedMessage) -> None:
            handle(message.text, consumer.stop)

        try:
            return await consumer.run()
        finally:
            await transport.close()

    return asyncio.run(run())


Run = Callable[[FakeQueue, Handle], Tally]
both = pytest.mark.parametrize("run", [run_threads, run_coroutines])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_threads, "BACKOFF_MS_MIN", 1)
    monkeypatch.setattr("goqueue.client.http.consumers.async_consumer.BACKOFF_MS_MIN", 1)


@both
def test_a_broker_that_cannot_serve_is_waited_for(run: Run) -> None:
    queue = FakeQueue(3)
    queue.answers["receive"] = [refusal(StorageFull("full")) for _ in range(5)]

    def handle(text: str, stop: Stop) -> None:
        if text == "2":
            stop()

    assert run(queue, handle).acked == 3
    assert queue.settled == {"r0": "ack", "r1": "ack", "r2": "ack"}


@both
def test_a_refusal_for_good_ends_the_consumer_after_its_work_is_settled(
    run: Run,
) -> None:
    queue = FakeQueue(2)
    handled: list[str] = []

    def handle(text: str, stop: Stop) -> None:
        queue.answers["receive"] = [refusal(UnknownGroup("g"))] * 10
        handled.append(text)

    with pytest.raises(UnknownGroup):
        run(queue, handle)
    assert queue.settled == {f"r{text}": "ack" for text in handled} | {
        f"r{text}": "nack" for text in ("0", "1") if text not in handled
    }


@both
def test_an_ack_that_cannot_be_sent_is_counted_and_holds_nobody_up(
    run: Run,
) -> None:
    queue = FakeQueue(1)
    queue.answers["ack"] = [refusal(StorageFull("full"))]
    tally = run(queue, lambda text, stop: stop())
    assert (tally.unsettled, tally.acked) == (1, 0)


@both
def test_a_fault_of_our_own_ends_the_consumer_instead_of_leaving_it_half_alive(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(with_threads, "settle_request", broken)
    monkeypatch.setattr("goqueue.client.http.consumers.async_consumer.settle_request", broken)
    with pytest.raises(ZeroDivisionError):
        run(FakeQueue(1), lambda text, stop: None)
