"""Members of stream groups, against a real broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from goqueue import AsyncClient, Client, Message, Outgoing
from goqueue.client.http import Rebalance, StreamConsumer

from .conftest import StartBroker
from .process import Broker
from .waiting import eventually


@pytest.fixture
def api(broker: Broker) -> Iterator[Client]:
    with Client(broker.http) as client:
        yield client


@pytest.fixture
def topic(api: Client, unique: str) -> Iterator[str]:
    api.topics.create(unique, partitions=4)
    yield unique
    api.topics.delete(unique)


def publish(client: Client, topic: str, *, first: int = 0, count: int) -> None:
    client.publish_many(
        topic,
        [Outgoing(str(number), partition=number % 4) for number in range(first, first + count)],
    )


def read(consumer: StreamConsumer, count: int) -> list[Message]:
    messages: list[Message] = []

    def has_all() -> bool:
        messages.extend(consumer.poll(wait=0.5))
        return len(messages) >= count

    eventually(has_all, because=f"{count} messages were read")
    return messages


def test_a_group_goes_on_behind_what_was_committed(api: Client, topic: str, group: str) -> None:
    publish(api, topic, count=20)
    with api.stream_consumer(topic, group=group, auto_commit=False, limit=8) as first:
        some = first.poll(wait=5)
        assert len(some) == 8
        first.commit()
        first.poll(wait=5)  # not committed, so it comes again
    with api.stream_consumer(topic, group=group, auto_commit=False) as second:
        rest = read(second, 12)
        second.commit(rest)
    assert sorted(int(one.text) for one in [*some, *rest]) == list(range(20))
    assert api.groups.lag(group).lag == 0


def test_what_was_handed_out_is_committed_by_leaving_in_peace(
    api: Client, topic: str, group: str
) -> None:
    publish(api, topic, count=20)
    with api.stream_consumer(topic, group=group) as first:
        read(first, 20)
    assert api.groups.lag(group).lag == 0
    publish(api, topic, first=20, count=4)

    def fail() -> None:
        with api.stream_consumer(topic, group=group) as second:
            read(second, 4)
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        fail()
    assert api.groups.lag(group).lag == 4
    with api.stream_consumer(topic, group=group) as third:
        assert sorted(int(one.text) for one in read(third, 4)) == [20, 21, 22, 23]


def test_two_members_share_the_partitions_and_one_takes_over(
    api: Client, topic: str, group: str
) -> None:
    told: list[Rebalance] = []
    seen: Counter[str] = Counter()
    stop = threading.Event()
    with api.stream_consumer(
        topic, group=group, auto_commit=False, on_rebalance=told.append
    ) as stays:

        def work() -> None:
            while not stop.is_set():
                messages = stays.poll(wait=0.2)
                seen.update(one.text for one in messages)
                if messages:
                    stays.commit(messages)

        thread = threading.Thread(target=work)
        thread.start()
        eventually(lambda: len(stays.assignment) == 4, because="one member has everything")
        with api.stream_consumer(topic, group=group, auto_commit=False) as goes:

            def shared() -> bool:
                messages = goes.poll(wait=0.2)
                seen.update(one.text for one in messages)
                if messages:
                    goes.commit(messages)
                return len(stays.assignment) == 2 and len(goes.assignment) == 2

            eventually(shared, because="both have two partitions")
            publish(api, topic, count=40)

            def have_all() -> bool:
                shared()
                return len(seen) == 40

            eventually(have_all, because="both together read everything")
        eventually(lambda: len(stays.assignment) == 4, because="the other one took over")
        publish(api, topic, first=40, count=4)
        eventually(lambda: len(seen) == 44, because="it reads on alone")
        stop.set()
        thread.join(30)
    assert set(seen.values()) == {1}
    assert any(one.revoked for one in told)
    assert not any(one.lost for one in told)
    assert api.groups.lag(group).lag == 0


def test_a_member_outlives_a_broker_that_is_killed(start_broker: StartBroker) -> None:
    broker = start_broker()
    seen: set[str] = set()
    with Client(broker.http) as client:
        client.topics.create("orders", partitions=4)
        publish(client, "orders", count=40)
        with client.stream_consumer("orders", group="g", limit=10) as consumer:
            seen |= {one.text for one in consumer.poll(wait=5)}
            broker.kill()
            broker.start()
            publish(client, "orders", first=40, count=4)

            def have_all() -> bool:
                seen.update(one.text for one in consumer.poll(wait=0.5))
                return len(seen) == 44

            eventually(have_all, because="nothing was passed over")
        assert client.groups.lag("g").lag == 0


HASTY = {"groups.consumer_session_ms": 1_500, "groups.consumer_heartbeat_ms": 300}


def test_a_member_that_works_for_longer_than_a_session_keeps_its_partitions(
    start_broker: StartBroker,
) -> None:
    session_ms = 4_000  # which a busy machine does not fill without a heartbeat
    broker = start_broker(HASTY | {"groups.consumer_session_ms": session_ms})
    told: list[Rebalance] = []
    with Client(broker.http) as client:
        client.topics.create("orders", partitions=4)
        publish(client, "orders", count=20)
        with client.stream_consumer(
            "orders", group="g", limit=10, on_rebalance=told.append
        ) as consumer:
            found = list(consumer.poll(wait=5))
            time.sleep(1.2 * session_ms / 1000)  # the work on these messages
            found += read(consumer, 10)
        assert len(found) == len({one.id for one in found}) == 20
    assert len(told) == 1


def test_a_member_that_never_polls_again_gives_way_to_others(start_broker: StartBroker) -> None:
    broker = start_broker(HASTY)
    with Client(broker.http) as client:
        client.topics.create("orders", partitions=4)
        with (
            client.stream_consumer("orders", group="g", poll_interval_max=0.5) as stuck,
            client.stream_consumer("orders", group="g") as other,
        ):
            stuck.poll(wait=0)

            def has_all() -> bool:
                other.poll(wait=0.2)
                return len(other.assignment) == 4

            eventually(has_all, because="the other member has everything")

            def has_some_again() -> bool:
                other.poll(wait=0.1)
                stuck.poll(wait=0.1)
                return bool(stuck.assignment)

            eventually(has_some_again, because="a member that polls again is back")


def test_coroutines_that_never_poll_again_give_way_to_others(start_broker: StartBroker) -> None:
    broker = start_broker(HASTY)

    async def consume() -> None:
        async with (
            AsyncClient(broker.http) as client,
            client.stream_consumer("orders", group="g", poll_interval_max=0.5) as stuck,
            client.stream_consumer("orders", group="g") as other,
        ):
            await stuck.poll(wait=0)
            async with asyncio.timeout(60):
                while len(other.assignment) < 4:
                    await other.poll(wait=0.2)
                while not stuck.assignment:
                    await stuck.poll(wait=0.1)
                    await other.poll(wait=0.1)

    with Client(broker.http) as client:
        client.topics.create("orders", partitions=4)
    asyncio.run(consume())


def test_coroutines_read_the_same_way(broker: Broker, api: Client, topic: str, group: str) -> None:
    publish(api, topic, count=20)
    told: list[Rebalance] = []

    async def note(rebalance: Rebalance) -> None:
        told.append(rebalance)

    async def consume() -> list[int]:
        async with AsyncClient(broker.http) as client:
            found = []
            async with client.stream_consumer(topic, group=group, on_rebalance=note) as consumer:
                async for message in consumer:
                    found.append(int(message.text))
                    if len(found) == 20:
                        break
            assert (await client.groups.lag(group)).lag == 0
            return found

    assert sorted(asyncio.run(consume())) == list(range(20))
    assert len(told) == 1
