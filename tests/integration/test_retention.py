"""Old messages leave a topic by age, by size and by key, and the rest keep their offsets."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from .clients import Confluent, Message, from_confluent
from .topics import watermarks
from .waiting import eventually

MiB = 1 << 20
SEGMENT = {"segment.bytes": str(MiB)}
COMPACTED = SEGMENT | {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
    "delete.retention.ms": "0",
}

NewTopicName = Callable[..., str]


def fill(bootstrap: str, topic: str, *, count: int) -> None:
    """Write messages of ten kilobytes, in batches far smaller than a segment."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 100_000})
    for number in range(count):
        producer.produce(topic, b"%06d" % number + b"." * 10_000)
        producer.poll(0)
    assert producer.flush(45) == 0


def contents(bootstrap: str, topic: str) -> list[Message]:
    """What the topic holds now: a compacted one has fewer messages than offsets."""
    low, high = watermarks(bootstrap, topic)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, low)])
    found: list[Message] = []
    try:
        while True:
            record = eventually(lambda: consumer.poll(1))
            if record.error():  # the end, the only one to be met here
                assert record.offset() >= high
                return found
            found.append(from_confluent(record))
    finally:
        consumer.close()


def test_a_topic_keeps_about_as_many_bytes_as_it_may(
    bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic(**SEGMENT, **{"retention.bytes": str(2 * MiB)})
    fill(bootstrap, topic, count=800)
    low = eventually(
        lambda: watermarks(bootstrap, topic)[0] > 400 and watermarks(bootstrap, topic)[0],
        because="all but two or three segments are gone",
    )
    kept = Confluent(bootstrap).read(topic, 800 - low)
    assert [message.offset for message in kept] == list(range(low, 800))
    assert sum(len(message.value or b"") for message in kept) >= 2 * MiB
    assert all(
        (message.value or b"").startswith(b"%06d" % (message.offset or 0)) for message in kept
    )


def test_messages_older_than_their_time_are_removed(
    bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic(**{"retention.ms": "600000"})
    hour_ago = int(time.time() * 1000) - 3_600_000
    Confluent(bootstrap).write(topic, [Message(b"old", timestamp=hour_ago) for _ in range(10)])
    eventually(lambda: watermarks(bootstrap, topic) == (10, 10), because="the old ones are gone")
    Confluent(bootstrap).write(topic, [Message(b"new")])
    assert [message.offset for message in contents(bootstrap, topic)] == [10]


def test_compaction_keeps_the_last_value_of_each_key_at_its_offset(
    bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic(**COMPACTED)
    client = Confluent(bootstrap)
    rounds = [
        Message(b"%d" % (10 * each + key), key=b"key-%d" % key)
        for each in range(50)
        for key in range(10)
    ]
    client.write(topic, rounds)

    def compacted() -> list[Message]:
        # The newest segment is never compacted; writing lets it grow old and be replaced.
        client.write(topic, [Message(b"tick", key=b"tick")])
        found = [each for each in contents(bootstrap, topic) if each.key != b"tick"]
        return found if len(found) == 10 else []

    found = eventually(compacted, because="each key is there once")
    assert {each.key: each.value for each in found} == {
        b"key-%d" % key: b"%d" % (490 + key) for key in range(10)
    }
    assert [each.offset for each in found] == list(range(490, 500))


def test_a_tombstone_removes_its_key_and_then_itself(
    bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic(**COMPACTED)
    client = Confluent(bootstrap)
    client.write(topic, [Message(b"keep", key=b"a"), Message(b"drop", key=b"b")])
    client.write(topic, [Message(None, key=b"b")])

    def is_gone() -> bool:
        client.write(topic, [Message(b"tick", key=b"tick")])
        return {each.key for each in contents(bootstrap, topic)} == {b"a", b"tick"}

    eventually(is_gone, because="neither the value nor its tombstone is left")
    assert contents(bootstrap, topic)[0].offset == 0
