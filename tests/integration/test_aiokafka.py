"""aiokafka: its own consumer groups, seeking and administration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import OffsetOutOfRangeError, TopicAlreadyExistsError

from .clients import AioKafka, Message
from .topics import FOREVER
from .waiting import DEADLINE_SECONDS

NewTopicName = Callable[..., str]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 2 * DEADLINE_SECONDS))


async def soon(condition: Callable[[], Awaitable[bool]]) -> None:
    """Like `eventually`, for a condition that must itself be awaited."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await condition():  # noqa: ASYNC110 (a broker has no event to wait for)
            await asyncio.sleep(0.02)


def member(bootstrap: str, group: str, topic: str, **settings: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        **settings,
    )


def test_an_idempotent_producer_writes_each_message_once(bootstrap: str, topic: str) -> None:
    async def story() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, acks="all"
        ) as producer:
            sent = [await producer.send(topic, b"%d" % number) for number in range(1_000)]
            reports = await asyncio.gather(*sent)
            assert [report.offset for report in reports] == list(range(1_000))

    run(story())
    found = AioKafka(bootstrap).read(topic, 1_000)
    assert [message.value for message in found] == [b"%d" % number for number in range(1_000)]


@pytest.mark.parametrize(
    "assignor",
    [RoundRobinPartitionAssignor, StickyPartitionAssignor],
    ids=lambda each: each.name,
)
def test_two_members_share_and_one_takes_over(
    assignor: Any, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    AioKafka(bootstrap).write(topic, [Message(b"%d" % n, partition=n % 4) for n in range(40)])

    async def story() -> None:
        async with AsyncExitStack() as stack:
            how = {"partition_assignment_strategy": (assignor,)}
            first = await stack.enter_async_context(member(bootstrap, group, topic, **how))
            second = member(bootstrap, group, topic, **how)
            await second.start()

            async def is_shared() -> bool:
                await first.getmany(timeout_ms=10)
                await second.getmany(timeout_ms=10)
                return len(first.assignment()) == len(second.assignment()) == 2

            async def is_alone() -> bool:
                await first.getmany(timeout_ms=10)
                return len(first.assignment()) == 4

            await soon(is_shared)
            assert not first.assignment() & second.assignment()
            await second.stop()
            await soon(is_alone)

    run(story())


def test_seeking_by_time_and_to_both_ends(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(**FOREVER)
    times = [10_000, 20_000, 30_000]
    AioKafka(bootstrap).write(topic, [Message(b"%d" % time, timestamp=time) for time in times])
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            consumer.assign([partition])
            found = await consumer.offsets_for_times({partition: 15_000})
            assert found[partition].offset == 1
            assert found[partition].timestamp == 20_000
            assert (await consumer.offsets_for_times({partition: 99_000}))[partition] is None
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 3}
            await consumer.seek_to_beginning(partition)
            assert (await consumer.getone()).offset == 0
            consumer.seek(partition, 2)
            assert (await consumer.getone()).offset == 2
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 3

    run(story())


def test_an_offset_out_of_range_is_an_error_without_a_reset_policy(
    bootstrap: str, topic: str
) -> None:
    AioKafka(bootstrap).write(topic, [Message(b"only")])
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="none"
        ) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 1_000)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone()

    run(story())


def test_commits_carry_metadata_and_are_read_back(bootstrap: str, topic: str, group: str) -> None:
    AioKafka(bootstrap).write(topic, [Message(b"%d" % number) for number in range(5)])
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with member(bootstrap, group, topic, enable_auto_commit=False) as consumer:
            assert await consumer.committed(partition) is None
            await consumer.getone()
            await consumer.commit({partition: (3, "half way")})
            assert await consumer.committed(partition) == 3

    run(story())


def test_administration(bootstrap: str, unique: str) -> None:
    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            wanted = [NewTopic(unique, num_partitions=2, replication_factor=1)]
            await admin.create_topics(wanted)
            await soon(lambda: has_partitions(admin, 2))
            answer = await admin.create_topics(wanted)
            assert answer.topic_errors[0][1] == TopicAlreadyExistsError.errno
            await admin.create_partitions({unique: NewPartitions(total_count=3)})
            await soon(lambda: has_partitions(admin, 3))
            assert (await admin.describe_cluster())["brokers"]
            await admin.delete_topics([unique])
            await soon(lambda: is_gone(admin))
        finally:
            await admin.close()

    async def has_partitions(admin: AIOKafkaAdminClient, count: int) -> bool:
        (described,) = await admin.describe_topics([unique])
        return len(described["partitions"]) == count

    async def is_gone(admin: AIOKafkaAdminClient) -> bool:
        return unique not in await admin.list_topics()

    run(story())
