"""Queue consumers with handlers, against a real broker: nothing is lost, whatever happens."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from goqueue import AsyncClient, Client, Outgoing, ReceivedMessage, Reject, Retry
from goqueue.model.errors import (
    GroupKindMismatch,
    InternalTopic,
    InvalidRequest,
    UnknownTopic,
)

from .conftest import StartBroker
from .process import END_WITH_US, Broker
from .waiting import eventually


@pytest.fixture
def api(broker: Broker) -> Iterator[Client]:
    with Client(broker.http) as client:
        yield client


@pytest.fixture
def topic(api: Client, unique: str) -> Iterator[str]:
    api.topics.create(unique, partitions=3)
    yield unique
    api.topics.delete(unique)


def numbers(count: int) -> list[Outgoing]:
    return [Outgoing(str(number), key=str(number)) for number in range(count)]


def test_every_message_is_handled_and_acknowledged(api: Client, topic: str, group: str) -> None:
    api.publish_many(topic, numbers(500))
    consumer = api.consumer(topic, group=group, concurrency=4)
    handled: Counter[str] = Counter()
    attempts: Counter[str] = Counter()
    lock = threading.Lock()

    @consumer.handler
    def handle(message: ReceivedMessage) -> None:
        with lock:
            attempts[message.text] += 1
        if message.text == "7" and message.attempt == 1:
            raise Retry(after=0.05)
        if message.text == "8" and message.attempt == 1:
            raise ValueError("try me again")
        if message.text == "9":
            raise Reject("never")
        with lock:
            handled[message.text] += 1
            if len(handled) == 499:
                consumer.stop()

    tally = consumer.run()
    assert set(handled.values()) == {1}
    assert (attempts["7"], attempts["8"], attempts["9"]) == (2, 2, 1)
    assert (tally.acked, tally.nacked, tally.rejected, tally.stale) == (499, 2, 1, 0)
    totals = api.queue(topic, group=group).stats().totals
    assert (totals.acked, totals.rejected, totals.leases_expired) == (499, 1, 0)


def test_a_lease_lasts_as_long_as_its_handler(api: Client, topic: str, group: str) -> None:
    api.publish_many(topic, numbers(2))
    consumer = api.consumer(topic, group=group, concurrency=1, visibility=2)
    seen: list[str] = []

    @consumer.handler
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.text)
        # Longer than a lease, while the other message waits for its turn.
        assert api.queue(topic, group=group).receive(10, wait=2.5) == []
        if len(seen) == 2:
            consumer.stop()

    tally = consumer.run()
    assert sorted(seen) == ["0", "1"]
    assert (tally.acked, tally.stale) == (2, 0)


def test_a_stop_gives_back_what_was_not_begun(api: Client, topic: str, group: str) -> None:
    api.publish_many(topic, numbers(10))
    consumer = api.consumer(topic, group=group, concurrency=2, prefetch=8)
    begun: list[str] = []

    @consumer.handler
    def handle(message: ReceivedMessage) -> None:
        begun.append(message.text)
        if len(begun) == 2:
            consumer.stop()
        eventually(lambda: consumer.tally.given_back, because="the rest was given back")

    tally = consumer.run()
    # How many had come by then depends on how far the copies of the partitions were.
    assert (tally.acked, 0 < tally.given_back <= 8) == (2, True)
    queue = api.queue(topic, group=group)
    left: list[ReceivedMessage] = []

    def has_all() -> bool:
        left.extend(queue.receive(10, wait=1))
        return len(left) == 8

    eventually(has_all, because="what was given back can be received at once", within=10)
    assert {one.text for one in left}.isdisjoint(begun)


def test_a_handler_that_does_not_end_does_not_hold_up_the_stop(
    api: Client, topic: str, group: str
) -> None:
    api.publish(topic, "stuck")
    consumer = api.consumer(topic, group=group, concurrency=1, shutdown=0.2)
    release = threading.Event()

    @consumer.handler
    def handle(message: ReceivedMessage) -> None:
        consumer.stop()
        release.wait(60)

    tally = consumer.run()
    release.set()
    assert (tally.abandoned, tally.acked) == (1, 0)


def test_what_makes_no_sense_ends_the_consumer_with_its_error(
    api: Client, topic: str, group: str
) -> None:
    with pytest.raises(InvalidRequest, match="no handler"):
        api.consumer(topic, group=group).run()
    lost = api.consumer("__delivery", group=group)
    lost.handler(lambda message: None)
    with pytest.raises((InternalTopic, UnknownTopic)):
        lost.run()


def test_a_consumer_of_a_stream_group_ends_with_an_error(
    api: Client, topic: str, group: str
) -> None:
    api.groups.put_stream(f"stream-{group}", [topic])
    stranger = api.consumer(topic, group=f"stream-{group}")
    stranger.handler(lambda message: None)
    with pytest.raises(GroupKindMismatch):
        stranger.run()


def test_consumers_outlive_a_broker_that_is_killed(start_broker: StartBroker) -> None:
    broker = start_broker()
    handled: defaultdict[str, list[int]] = defaultdict(list)  # the attempts of each message
    lock = threading.Lock()
    with Client(broker.http) as client:
        client.topics.create("orders", partitions=3)
        client.publish_many("orders", numbers(600))
        consumers = [client.consumer("orders", group="g", visibility=2) for _ in range(2)]

        def handle(message: ReceivedMessage) -> None:
            with lock:
                handled[message.text].append(message.attempt)
            time.sleep(0.002)

        for consumer in consumers:
            consumer.handler(handle)
        threads = [threading.Thread(target=consumer.run) for consumer in consumers]
        for thread in threads:
            thread.start()
        eventually(lambda: len(handled) > 150, because="work has begun")
        broker.kill()
        broker.start()
        eventually(lambda: len(handled) == 600, because="every message was handled")
        eventually(
            lambda: client.groups.lag("g").lag == 0, because="every message was acknowledged"
        )
        for consumer in consumers:
            consumer.stop()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    # At least once: a message comes again only when its lease has expired, as another attempt.
    repeated = {text: tries for text, tries in handled.items() if len(tries) > len(set(tries))}
    assert repeated == {}


WORKER = """
import sys, time
from goqueue import Client
with Client(sys.argv[1]) as client:
    consumer = client.consumer(sys.argv[2], group=sys.argv[3], concurrency=2, prefetch=4)

    @consumer.handler
    def handle(message):
        sys.stdout.write(f"begun {message.text}\\n")
        sys.stdout.flush()
        time.sleep(1)
        sys.stdout.write(f"finished {message.text}\\n")

    print(consumer.run())
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_handlers_finish_and_their_acks_arrive(
    broker: Broker, api: Client, topic: str, group: str, how: signal.Signals
) -> None:
    api.publish_many(topic, numbers(6))
    worker = subprocess.Popen(
        [*END_WITH_US, sys.executable, "-c", WORKER, broker.http, topic, group],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("begun")
    worker.send_signal(how)
    out, _ = worker.communicate(timeout=30)
    assert worker.returncode == 0
    finished = out.count("finished")
    assert 1 <= finished < 6
    assert f"acked={finished}" in out
    assert "abandoned=0" in out
    stats = api.queue(topic, group=group).stats()
    assert stats.in_flight == 0
    assert stats.totals.acked == finished
    assert stats.ready + stats.retrying == 6 - finished


def test_coroutines_consume_the_same_way(broker: Broker, topic: str, group: str) -> None:
    async def consume() -> None:
        async with AsyncClient(broker.http) as client:
            await client.publish_many(topic, numbers(300))
            consumer = client.consumer(topic, group=group, concurrency=16, visibility=0.9)
            attempts: Counter[str] = Counter()
            done: set[str] = set()

            @consumer.handler
            async def handle(message: ReceivedMessage) -> None:
                attempts[message.text] += 1
                if message.text == "7" and message.attempt == 1:
                    raise Retry(after=0.05)
                if message.text == "9":
                    raise Reject("never")
                if message.text == "11":
                    await asyncio.sleep(1.5)  # longer than a lease
                done.add(message.text)
                if len(done) == 299:
                    consumer.stop()

            tally = await consumer.run()
            assert (attempts["7"], attempts["9"], attempts["11"]) == (2, 1, 1)
            assert (tally.acked, tally.nacked, tally.rejected) == (299, 1, 1)
            assert (tally.stale, tally.abandoned) == (0, 0)
            totals = (await client.queue(topic, group=group).stats()).totals
            assert (totals.acked, totals.leases_expired) == (299, 0)

    asyncio.run(consume())


def test_coroutines_that_do_not_end_are_cancelled_and_given_back(
    broker: Broker, topic: str, group: str
) -> None:
    async def consume() -> None:
        async with AsyncClient(broker.http) as client:
            await client.publish_many(topic, numbers(5))
            consumer = client.consumer(topic, group=group, concurrency=1, prefetch=4, shutdown=0.2)

            @consumer.handler
            async def handle(message: ReceivedMessage) -> None:
                consumer.stop()
                await asyncio.sleep(60)

            tally = await consumer.run()
            assert (tally.abandoned, tally.acked, tally.stale) == (1, 0, 0)
            assert tally.nacked == tally.received
            queue = client.queue(topic, group=group)
            stats = await queue.stats()
            assert (stats.in_flight, stats.ready + stats.retrying) == (0, 5)

    asyncio.run(consume())
