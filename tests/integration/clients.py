"""Stock Kafka clients behind one small face: write these messages, read that topic.

What only one client can do is tested in that client's own file, with its own calls.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar, Protocol

import confluent_kafka
import kafka
import kafka.codec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING

CODECS = ("gzip", "snappy", "lz4", "zstd")
READ_SECONDS_MAX = 45.0
KAFKA_PYTHON_SUPPORT = {
    "gzip": kafka.codec.has_gzip,
    "snappy": kafka.codec.has_snappy,
    "lz4": kafka.codec.has_lz4,
    "zstd": kafka.codec.has_zstd,
}

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Message:
    """What is written and what comes back. A reader also learns where and when."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None
    offset: int | None = None

    @property
    def content(self) -> Message:
        """The message without its place in the log."""
        return replace(self, partition=None, offset=None, timestamp=None)


class Client(Protocol):
    """A client library, bound to one broker address."""

    name: ClassVar[str]
    codecs: ClassVar[tuple[str, ...]]

    def __init__(self, bootstrap: str) -> None: ...

    def write(self, topic: str, messages: Iterable[Message], *, codec: str = "none") -> None:
        """Write in order and return when all are acknowledged."""

    def read(self, topic: str, count: int, *, group: str | None = None) -> list[Message]:
        """Read `count` messages from the beginning, or on from what `group` has committed.

        In a group, what was read is committed before this returns.
        """


class Confluent:
    """confluent-kafka, which is librdkafka."""

    name = "confluent"
    codecs = CODECS

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def write(self, topic: str, messages: Iterable[Message], *, codec: str = "none") -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "partitioner": "murmur2_random",
            }
        )
        failures: list[object] = []
        for message in messages:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                partition=-1 if message.partition is None else message.partition,
                timestamp=message.timestamp or 0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(READ_SECONDS_MAX) == 0
        assert not failures

    def read(self, topic: str, count: int, *, group: str | None = None) -> list[Message]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group or "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        if group:
            consumer.subscribe([topic])
        else:
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions]
            )
        try:
            found = take(consumer, count)
            if group:
                consumer.commit(asynchronous=False)
            return found
        finally:
            consumer.close()


def take(consumer: confluent_kafka.Consumer, count: int) -> list[Message]:
    """Poll a confluent-kafka consumer until it has given `count` messages."""
    found: list[Message] = []
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages in time"
        for record in consumer.consume(min(count - len(found), 10_000), timeout=0.5):
            assert record.error() is None, record.error()
            found.append(from_confluent(record))
    return found


def from_confluent(record: confluent_kafka.Message) -> Message:
    """A confluent-kafka message as ours."""
    return Message(
        value=record.value(),
        key=record.key(),
        headers=tuple(record.headers() or ()),
        partition=record.partition(),
        timestamp=record.timestamp()[1],
        offset=record.offset(),
    )


class AioKafka:
    """aiokafka, run to completion call by call."""

    name = "aiokafka"
    codecs = CODECS

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def write(self, topic: str, messages: Iterable[Message], *, codec: str = "none") -> None:
        asyncio.run(self._write(topic, messages, None if codec == "none" else codec))

    async def _write(self, topic: str, messages: Iterable[Message], codec: str | None) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, compression_type=codec, acks="all"
        ) as producer:
            sent = [
                await producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=message.partition,
                    timestamp_ms=message.timestamp,
                )
                for message in messages
            ]
            await asyncio.gather(*sent)

    def read(self, topic: str, count: int, *, group: str | None = None) -> list[Message]:
        return asyncio.run(asyncio.wait_for(self._read(topic, count, group), READ_SECONDS_MAX))

    async def _read(self, topic: str, count: int, group: str | None) -> list[Message]:
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            found = []
            while len(found) < count:
                batches = await consumer.getmany(timeout_ms=500, max_records=count - len(found))
                found += [from_record(each) for batch in batches.values() for each in batch]
            if group:
                await consumer.commit()
            return found


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    # Its snappy, lz4 and zstd need packages of their own; only what is installed is used.
    codecs = tuple(codec for codec in CODECS if KAFKA_PYTHON_SUPPORT[codec]())

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def write(self, topic: str, messages: Iterable[Message], *, codec: str = "none") -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap, compression_type=None if codec == "none" else codec
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=message.partition,
                    timestamp_ms=message.timestamp,
                )
                for message in messages
            ]
            for each in sent:
                each.get(READ_SECONDS_MAX)
        finally:
            producer.close()

    def read(self, topic: str, count: int, *, group: str | None = None) -> list[Message]:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            found: list[Message] = []
            deadline = time.monotonic() + READ_SECONDS_MAX
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} messages in time"
                batches = consumer.poll(timeout_ms=500, max_records=count - len(found))
                found += [from_record(each) for batch in batches.values() for each in batch]
            if group:
                consumer.commit()
            return found
        finally:
            consumer.close()


def from_record(record: object) -> Message:
    """A record of aiokafka or kafka-python as ours."""
    return Message(
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        partition=record.partition,
        timestamp=record.timestamp,
        offset=record.offset,
    )


class Kcat:
    """kcat, the command. It writes text lines, so keys and values hold no tab and no newline."""

    name = "kcat"
    codecs = CODECS

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def write(self, topic: str, messages: Iterable[Message], *, codec: str = "none") -> None:
        runs = groupby(messages, key=lambda message: (message.headers, message.partition))
        for (headers, partition), run in runs:
            command = ["-P", "-t", topic, "-K", "\t", "-Z", "-X", "partitioner=murmur2_random"]
            command += ["-z", codec] if codec != "none" else []
            command += ["-p", str(partition)] if partition is not None else []
            for name, value in headers:
                command += ["-H", f"{name}={(value or b'').decode()}"]
            lines = [(each.key or b"") + b"\t" + (each.value or b"") + b"\n" for each in run]
            self.run(*command, stdin=b"".join(lines))

    def read(self, topic: str, count: int, *, group: str | None = None) -> list[Message]:
        how = ("-J", "-q", "-c", str(count))
        if group:
            # With automatic commits, kcat commits what it printed when it leaves.
            return _parse(self.run("-G", group, *how, "-X", "auto.offset.reset=earliest", topic))
        return _parse(self.run("-C", "-t", topic, "-o", "beginning", *how))

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run kcat to its end and return what it printed."""
        done = subprocess.run(
            ["kcat", "-b", self.bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=READ_SECONDS_MAX,
        )
        assert done.returncode == 0, f"kcat {' '.join(arguments)}: {done.stderr.decode()}"
        return done.stdout


def _parse(printed: bytes) -> list[Message]:
    return [_from_json(json.loads(line)) for line in printed.splitlines()]


def _from_json(record: dict[str, object]) -> Message:
    headers = record.get("headers") or []
    assert isinstance(headers, list)
    pairs = zip(headers[::2], headers[1::2], strict=True)
    return Message(
        value=_bytes(record["payload"]),
        key=_bytes(record["key"]),
        headers=tuple((name, _bytes(value)) for name, value in pairs),
        partition=record["partition"],
        timestamp=record["ts"],
        offset=record["offset"],
    )


def _bytes(text: object) -> bytes | None:
    return None if text is None else str(text).encode()


CLIENTS: Sequence[type[Client]] = (Confluent, AioKafka, KafkaPython, Kcat)
