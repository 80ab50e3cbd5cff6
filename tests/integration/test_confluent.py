"""confluent-kafka (librdkafka): producing, seeking, time and offsets, limits and errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from .clients import Confluent, take
from .clients import Message as Written
from .topics import FOREVER, read_all, watermarks
from .waiting import eventually

MESSAGE_BYTES_MAX = 1_048_588  # Kafka's default limit of one batch, its headers included
BATCH_OVERHEAD = 61


@contextmanager
def consumer_of(
    bootstrap: str, *partitions: TopicPartition, **settings: object
) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    consumer.assign(list(partitions))
    try:
        yield consumer
    finally:
        consumer.close()


def produce(bootstrap: str, topic: str, *values: bytes, **settings: object) -> list[Message]:
    """Write values to partition 0 and return the delivery reports, errors included."""
    reports: list[Message] = []
    names = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap} | names)
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda _, report: reports.append(report)
        )
    assert producer.flush(45) == 0
    return reports


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement_stores_the_messages(
    acks: str, bootstrap: str, topic: str
) -> None:
    values = [b"%d" % number for number in range(100)]
    produce(bootstrap, topic, *values, acks=acks)
    assert [message.value for message in Confluent(bootstrap).read(topic, 100)] == values


def test_a_delivery_report_says_where_the_message_is(bootstrap: str, topic: str) -> None:
    reports = produce(bootstrap, topic, *(b"%d" % number for number in range(10)))
    assert [(report.partition(), report.offset()) for report in reports] == [
        (0, number) for number in range(10)
    ]


def test_empty_and_null_are_different(bootstrap: str, topic: str) -> None:
    written = [
        Written(b"", key=b"", headers=(("empty", b""), ("null", None))),
        Written(None, key=None),
        Written(b"", key=None),
        Written(None, key=b""),
    ]
    client = Confluent(bootstrap)
    client.write(topic, written)
    assert [message.content for message in client.read(topic, 4)] == written


def test_log_append_time_replaces_the_producers_timestamp(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    Confluent(bootstrap).write(topic, [Written(b"late", timestamp=1_000)])
    (message,) = Confluent(bootstrap).read(topic, 1)
    assert message.timestamp is not None
    # The broker runs on this machine, so its clock is ours.
    assert before <= message.timestamp <= int(time.time() * 1000)


def test_the_largest_allowed_batch_is_stored_and_one_byte_more_is_refused(
    bootstrap: str, topic: str
) -> None:
    # A record of this size has 6 bytes of lengths and flags ahead of it and 4 after the key.
    roomy = {"message_max_bytes": 4_000_000}
    overhead = BATCH_OVERHEAD + 3 + 1 + 1 + 1 + 1 + 3 + 1
    value = b"x" * (MESSAGE_BYTES_MAX - overhead)
    (stored,) = produce(bootstrap, topic, value, **roomy)
    assert stored.error() is None
    (refused,) = produce(bootstrap, topic, value + b"x", **roomy)
    assert refused.error().code() == KafkaError.MSG_SIZE_TOO_LARGE
    (found,) = Confluent(bootstrap).read(topic, 1)
    assert found.value == value


def test_a_topic_may_allow_larger_messages(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"max.message.bytes": "10000000"})
    value = bytes(range(256)) * 30_000
    (report,) = produce(bootstrap, topic, value, message_max_bytes=10_000_000)
    assert report.error() is None
    with consumer_of(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        (found,) = take(consumer, 1)
    assert found.value == value


def test_a_topic_may_allow_only_smaller_messages(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"max.message.bytes": "1000"})
    (report,) = produce(bootstrap, topic, b"x" * 1_000)
    assert report.error().code() == KafkaError.MSG_SIZE_TOO_LARGE
    (report,) = produce(bootstrap, topic, b"x" * 800)
    assert report.error() is None


def test_a_message_larger_than_the_fetch_size_is_still_delivered(
    bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, b"x" * 500_000, b"after")
    with consumer_of(
        bootstrap,
        TopicPartition(topic, 0, 0),
        fetch_message_max_bytes=1_000,
        fetch_max_bytes=2_000,
        message_max_bytes=1_000,
    ) as consumer:
        assert [len(message.value or b"") for message in take(consumer, 2)] == [500_000, 5]


def test_seeking_moves_to_any_offset(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, *(b"%d" % number for number in range(1_000)))
    with consumer_of(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        take(consumer, 1)
        for offset in (500, 3, 999, 0):
            consumer.seek(TopicPartition(topic, 0, offset))
            assert take(consumer, 1)[0].offset == offset


def test_a_consumer_at_the_end_sees_only_what_comes_after(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"before")
    with consumer_of(
        bootstrap, TopicPartition(topic, 0, OFFSET_END), enable_partition_eof=True
    ) as consumer:
        end = eventually(lambda: consumer.poll(1))
        assert end.error().code() == KafkaError._PARTITION_EOF
        assert end.offset() == 1
        produce(bootstrap, topic, b"after")
        assert take_first(consumer).value() == b"after"


def take_first(consumer: Consumer) -> Message:
    return eventually(lambda: consumer.poll(1))


def test_watermarks_are_the_first_and_the_next_offset(bootstrap: str, topic: str) -> None:
    assert watermarks(bootstrap, topic) == (0, 0)
    produce(bootstrap, topic, b"a", b"b", b"c")
    assert watermarks(bootstrap, topic) == (0, 3)


def test_offsets_are_found_by_time(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2, **FOREVER)
    times = [10_000, 20_000, 30_000, 40_000]
    Confluent(bootstrap).write(
        topic, [Written(b"at", partition=0, timestamp=each) for each in times]
    )

    def first_at(consumer: Consumer, partition: int, timestamp: int) -> int:
        wanted = [TopicPartition(topic, partition, timestamp)]
        return int(consumer.offsets_for_times(wanted, timeout=10)[0].offset)

    with consumer_of(bootstrap) as consumer:
        assert [first_at(consumer, 0, each) for each in (1, 10_000, 10_001, 40_000)] == [0, 0, 1, 3]
        assert first_at(consumer, 0, 40_001) == OFFSET_END
        assert first_at(consumer, 1, 10_000) == OFFSET_END


def test_time_search_takes_the_first_offset_even_when_times_go_back(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**FOREVER)
    times = [50_000, 10_000, 60_000, 20_000]
    Confluent(bootstrap).write(topic, [Written(b"at", timestamp=each) for each in times])
    with consumer_of(bootstrap) as consumer:
        found = [
            consumer.offsets_for_times([TopicPartition(topic, 0, each)], timeout=10)[0].offset
            for each in (5_000, 15_000, 55_000)
        ]
    assert found == [0, 0, 2]


def test_a_paused_partition_gives_nothing_until_it_is_resumed(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    Confluent(bootstrap).write(topic, [Written(b"%d" % n, partition=n % 2) for n in range(20)])
    both = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in (0, 1)]
    with consumer_of(bootstrap, *both) as consumer:
        consumer.pause([both[0]])
        assert {message.partition for message in take(consumer, 10)} == {1}
        consumer.resume([both[0]])
        assert {message.partition for message in take(consumer, 10)} == {0}


def test_an_offset_out_of_range_is_an_error_without_a_reset_policy(
    bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, b"only")
    with consumer_of(
        bootstrap, TopicPartition(topic, 0, 1_000), auto_offset_reset="error"
    ) as consumer:
        error = take_first(consumer).error()
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert "Offset out of range" in error.str()


def test_an_offset_out_of_range_starts_again_at_the_beginning_when_asked(
    bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, b"only")
    with consumer_of(
        bootstrap, TopicPartition(topic, 0, 1_000), auto_offset_reset="earliest"
    ) as consumer:
        assert take_first(consumer).offset() == 0


def test_a_partition_that_does_not_exist_is_refused(bootstrap: str, topic: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x", partition=7, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(45) == 0
    assert [error.code() for error in errors] == [KafkaError._UNKNOWN_PARTITION]


def test_an_idempotent_producer_writes_each_message_once_in_order(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1}
    )
    for number in range(20_000):
        producer.produce(topic, b"%06d" % number, partition=number % 3)
        producer.poll(0)
    assert producer.flush(45) == 0
    by_partition: dict[int | None, list[bytes | None]] = {0: [], 1: [], 2: []}
    for message in read_all(bootstrap, topic, partitions=3):
        by_partition[message.partition].append(message.value)
    assert by_partition == {
        partition: [b"%06d" % number for number in range(partition, 20_000, 3)]
        for partition in range(3)
    }


def test_many_producers_on_one_partition_do_not_mix_their_order(bootstrap: str, topic: str) -> None:
    producers = [
        Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}) for _ in range(8)
    ]
    for number in range(500):
        for who, producer in enumerate(producers):
            producer.produce(topic, b"%d" % number, key=b"%d" % who, partition=0)
    assert [producer.flush(45) for producer in producers] == [0] * 8
    seen: dict[bytes | None, list[int]] = {}
    for message in read_all(bootstrap, topic):
        seen.setdefault(message.key, []).append(int(message.value or b"-1"))
    assert seen == {b"%d" % who: list(range(500)) for who in range(8)}


def test_a_compacted_topic_refuses_messages_without_a_key(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    (report,) = produce(bootstrap, topic, b"keyless")
    assert report.error().code() == KafkaError.INVALID_RECORD
    Confluent(bootstrap).write(topic, [Written(b"keyed", key=b"k")])
    assert watermarks(bootstrap, topic) == (0, 1)


def test_reading_waits_for_a_message_still_to_come(bootstrap: str, topic: str) -> None:
    with consumer_of(
        bootstrap, TopicPartition(topic, 0, 0), enable_partition_eof=True, fetch_wait_max_ms=5_000
    ) as consumer:
        assert take_first(consumer).error().code() == KafkaError._PARTITION_EOF
        produce(bootstrap, topic, b"worth waiting for")
        assert take_first(consumer).value() == b"worth waiting for"


def test_a_topic_of_a_thousand_partitions_is_written_and_read(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=1_000)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 1_000
    written = [Written(b"%d" % partition, partition=partition) for partition in range(1_000)]
    Confluent(bootstrap).write(topic, written)
    found = Confluent(bootstrap).read(topic, 1_000)
    assert sorted(int(message.value or b"-1") for message in found) == list(range(1_000))
    assert all(message.value == b"%d" % (message.partition or 0) for message in found)
