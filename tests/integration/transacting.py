"""Stock clients that write in transactions, and that read with a level of isolation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

SECONDS_MAX = 45.0
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
# What every reader reads up to: it is written last, so all that is to be seen has been seen.
SENTINEL = b"the end"


@dataclass(frozen=True, slots=True)
class Write:
    topic: str
    value: bytes
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction."""

    writes: tuple[Write, ...]
    is_commit: bool = True


def committed(*writes: Write) -> Step:
    return Step(writes, is_commit=True)


def aborted(*writes: Write) -> Step:
    return Step(writes, is_commit=False)


def transactional(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    """A confluent-kafka producer that has made itself known."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 30_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 2,
            # A fatal error is told by the call that meets it, and not in the midst of another.
            "error_cb": lambda error: None,
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def put(producer: Producer, writes: Iterable[Write]) -> None:
    """Write, and see that all is stored; the transaction stays open."""
    failures: list[object] = []
    for one in writes:
        producer.produce(
            one.topic,
            one.value,
            partition=one.partition,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not failures, failures[0]


def write_confluent(bootstrap: str, transactional_id: str, steps: Sequence[Step]) -> None:
    producer = transactional(bootstrap, transactional_id)
    for step in steps:
        producer.begin_transaction()
        put(producer, step.writes)
        if step.is_commit:
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.abort_transaction(SECONDS_MAX)


def write_aiokafka(bootstrap: str, transactional_id: str, steps: Sequence[Step]) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        await producer.start()
        try:
            for step in steps:
                await producer.begin_transaction()
                for one in step.writes:
                    await producer.send_and_wait(one.topic, one.value, partition=one.partition)
                if step.is_commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(write(), SECONDS_MAX))


def write_kafka_python(bootstrap: str, transactional_id: str, steps: Sequence[Step]) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    try:
        producer.init_transactions()
        for step in steps:
            producer.begin_transaction()
            sent = [
                producer.send(one.topic, one.value, partition=one.partition) for one in step.writes
            ]
            for each in sent:
                each.get(SECONDS_MAX)
            if step.is_commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    finally:
        producer.close()


def read_confluent(bootstrap: str, topic: str, partition: int, isolation: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[bytes] = []
    try:
        for _ in _until_late(lambda: f"{len(found)} messages of {topic}/{partition}"):
            for record in consumer.consume(500, timeout=0.2):
                assert record.error() is None, record.error()
                found.append(record.value())
            if SENTINEL in found:
                break
    finally:
        consumer.close()
    return found


def read_aiokafka(bootstrap: str, topic: str, partition: int, isolation: str) -> list[bytes]:
    async def read() -> list[bytes]:
        place = kafka_place(topic, partition)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            found: list[bytes] = []
            while SENTINEL not in found:
                batches = await consumer.getmany(timeout_ms=200)
                found += [each.value for batch in batches.values() for each in batch]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), SECONDS_MAX))


def read_kafka_python(bootstrap: str, topic: str, partition: int, isolation: str) -> list[bytes]:
    place = kafka.TopicPartition(topic, partition)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False
    )
    found: list[bytes] = []
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        for _ in _until_late(lambda: f"{len(found)} messages of {topic}/{partition}"):
            batches = consumer.poll(timeout_ms=200)
            found.extend(each.value for batch in batches.values() for each in batch)
            if SENTINEL in found:
                break
    finally:
        consumer.close()
    return found


def kafka_place(topic: str, partition: int) -> object:
    from aiokafka import TopicPartition as Place

    return Place(topic, partition)


def _until_late(progress: Callable[[], str]) -> Iterable[None]:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        assert time.monotonic() < deadline, f"only {progress()} in time"
        yield


Writer = Callable[[str, str, Sequence[Step]], None]
Reader = Callable[[str, str, int, str], list[bytes]]

WRITERS: dict[str, Writer] = {
    "confluent": write_confluent,
    "aiokafka": write_aiokafka,
    "kafka-python": write_kafka_python,
}
READERS: dict[str, Reader] = {
    "confluent": read_confluent,
    "aiokafka": read_aiokafka,
    "kafka-python": read_kafka_python,
}
