"""kafka-python: its own consumer groups, seeking, errors and offsets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

from .clients import KafkaPython, Message
from .topics import FOREVER, committed
from .waiting import eventually

NewTopicName = Callable[..., str]


@contextmanager
def consumer_of(bootstrap: str, **settings: Any) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, **settings)
    try:
        yield consumer
    finally:
        consumer.close()


class PollingMember:
    """A group member polled by its own thread."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.assignment: set[TopicPartition] = set()
        self.values: list[bytes] = []
        self._is_running = True
        self._arguments = (bootstrap, group, topic)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        self._is_running = False
        if self._thread.is_alive():
            self._thread.join(30)

    def _run(self) -> None:
        bootstrap, group, topic = self._arguments
        with consumer_of(
            bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=200,
        ) as consumer:
            consumer.subscribe([topic])
            while self._is_running:
                for batch in consumer.poll(timeout_ms=500).values():
                    self.values += [record.value for record in batch]
                self.assignment = consumer.assignment()


def test_an_idempotent_producer_writes_each_message_once(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    sent = [producer.send(topic, b"%d" % number) for number in range(1_000)]
    assert [each.get(45).offset for each in sent] == list(range(1_000))
    producer.close()
    found = KafkaPython(bootstrap).read(topic, 1_000)
    assert [message.value for message in found] == [b"%d" % number for number in range(1_000)]


def test_two_members_share_and_one_takes_over(
    bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=4)
    with (
        PollingMember(bootstrap, group, topic) as first,
        PollingMember(bootstrap, group, topic) as second,
    ):
        first.start()
        eventually(lambda: len(first.assignment) == 4)
        second.start()
        eventually(lambda: len(first.assignment) == len(second.assignment) == 2)
        assert not first.assignment & second.assignment
        values = [b"%d" % number for number in range(40)]
        KafkaPython(bootstrap).write(topic, [Message(value, key=value) for value in values])
        eventually(lambda: {*first.values, *second.values} == {*values})
        second.leave()
        eventually(lambda: len(first.assignment) == 4)


def test_seeking_by_time_and_to_both_ends(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(**FOREVER)
    times = [10_000, 20_000, 30_000]
    KafkaPython(bootstrap).write(topic, [Message(b"%d" % time, timestamp=time) for time in times])
    partition = TopicPartition(topic, 0)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([partition])
        found = consumer.offsets_for_times({partition: 15_000})[partition]
        assert (found.offset, found.timestamp) == (1, 20_000)
        assert consumer.offsets_for_times({partition: 99_000}) == {partition: None}
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 3}
        consumer.seek(partition, 2)
        assert eventually(lambda: consumer.poll(500))[partition][0].offset == 2
        consumer.seek_to_beginning(partition)
        assert consumer.position(partition) == 0
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 3


def test_an_offset_out_of_range_is_an_error_without_a_reset_policy(
    bootstrap: str, topic: str
) -> None:
    KafkaPython(bootstrap).write(topic, [Message(b"only")])
    partition = TopicPartition(topic, 0)
    with consumer_of(bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1_000)
        with pytest.raises(OffsetOutOfRangeError):
            eventually(lambda: consumer.poll(500))


def test_a_message_above_the_limit_is_refused_by_the_broker(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, max_request_size=4_000_000)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, b"x" * 1_100_000).get(45)
    producer.close()


def test_commits_carry_metadata_and_are_read_back(bootstrap: str, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with consumer_of(bootstrap, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        assert consumer.committed(partition) is None
        wanted = OffsetAndMetadata(3, "half way", -1)
        consumer.commit({partition: wanted})
        found = consumer.committed(partition, metadata=True)
        assert (found.offset, found.metadata) == (3, "half way")
    assert committed(bootstrap, group, topic) == {0: 3}


def test_offsets_are_listed_by_kind(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(**FOREVER)
    times = [10_000, 50_000, 30_000]
    KafkaPython(bootstrap).write(topic, [Message(b"at", timestamp=time) for time in times])
    partition = TopicPartition(topic, 0)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        found = {
            kind: admin.list_partition_offsets({partition: kind})[partition].offset
            for kind in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP)
        }
    finally:
        admin.close()
    assert found == {OffsetSpec.EARLIEST: 0, OffsetSpec.LATEST: 3, OffsetSpec.MAX_TIMESTAMP: 1}
