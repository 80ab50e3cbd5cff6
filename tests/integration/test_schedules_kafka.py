"""Delayed messages from stock Kafka clients: hidden until they are due, then there once."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import pytest

from .clients import CLIENTS, Client, Confluent, KafkaPython, Kcat, Message
from .conftest import StartBroker
from .topics import create_topic

DELAY_MS = 3_000
WITH_HEADERS = [each for each in CLIENTS if each is not Kcat]

NewTopic = Callable[..., str]


def _delayed(value: bytes, delay_ms: int = DELAY_MS) -> Message:
    return Message(value, headers=(("goqueue-delay-ms", b"%d" % delay_ms), ("kept", b"yes")))


@pytest.mark.parametrize("writer", WITH_HEADERS, ids=lambda writer: writer.name)
def test_a_delayed_message_comes_when_it_is_due(
    writer: type[Client], bootstrap: str, topic: str
) -> None:
    begin_ms = time.time_ns() // 1_000_000
    writer(bootstrap).write(topic, [Message(b"now"), _delayed(b"later"), Message(b"now too")])
    found = Confluent(bootstrap).read(topic, 3)
    assert [message.value for message in found] == [b"now", b"now too", b"later"]
    late = found[-1]
    assert [name for name, _ in late.headers] == ["kept", "goqueue-schedule-id"]
    assert late.timestamp is not None
    assert late.timestamp >= begin_ms + DELAY_MS


@pytest.mark.parametrize("reader", CLIENTS, ids=lambda reader: reader.name)
def test_every_client_reads_past_batches_that_were_delayed_as_a_whole(
    reader: type[Client], bootstrap: str, topic: str
) -> None:
    writer = Confluent(bootstrap)
    writer.write(topic, [Message(b"first")])
    writer.write(topic, [_delayed(b"a"), _delayed(b"b")])
    writer.write(topic, [Message(b"second")])
    found = reader(bootstrap).read(topic, 4)
    assert [message.value for message in found] == [b"first", b"second", b"a", b"b"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_batch_is_split_too(codec: str, bootstrap: str, topic: str) -> None:
    messages = [
        _delayed(b"later") if number == 7 else Message(b"%d" % number) for number in range(20)
    ]
    Confluent(bootstrap).write(topic, messages, codec=codec)
    found = [message.value for message in Confluent(bootstrap).read(topic, 20)]
    assert found == [b"%d" % number for number in range(20) if number != 7] + [b"later"]


@pytest.mark.on_cluster
def test_a_time_in_rfc_3339_is_understood(bootstrap: str, topic: str) -> None:
    due_s = time.time() + 2
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due_s))
    Confluent(bootstrap).write(
        topic, [Message(b"v", headers=(("goqueue-deliver-at", text.encode()),))]
    )
    (found,) = Confluent(bootstrap).read(topic, 1)
    assert found.timestamp is not None
    assert found.timestamp >= int(due_s) * 1000


def test_a_header_that_makes_no_sense_is_refused_with_its_name(bootstrap: str, topic: str) -> None:
    errors: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    producer.produce(
        topic,
        b"v",
        headers=[("goqueue-delay-ms", b"soon")],
        on_delivery=lambda error, _: errors.append(error),
    )
    assert producer.flush(30) == 0
    (error,) = errors
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError.INVALID_RECORD


def test_a_topic_may_have_its_headers_left_alone(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(**{"goqueue.attributes.enable": "false"})
    Confluent(bootstrap).write(topic, [_delayed(b"v", 3_600_000)])
    (found,) = Confluent(bootstrap).read(topic, 1)
    assert [name for name, _ in found.headers] == ["goqueue-delay-ms", "kept"]


def test_an_idempotent_producer_goes_on_after_split_batches(bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 3,
            "log_level": 2,
        }
    )
    failures: list[object] = []
    for number in range(300):
        headers = [("goqueue-delay-ms", b"300")] if number % 3 == 0 else []
        producer.produce(
            topic,
            b"%d" % number,
            headers=headers,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failures == []
    found = [message.value for message in KafkaPython(bootstrap).read(topic, 300)]
    assert sorted(found, key=lambda value: int(value or b"")) == [b"%d" % n for n in range(300)]


def test_what_was_scheduled_survives_a_killed_process(start_broker: StartBroker) -> None:
    node = start_broker()
    client = Confluent(node.bootstrap)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": node.bootstrap})
    create_topic(admin, "orders", partitions=1)
    client.write("orders", [_delayed(b"%d" % number, 2_000) for number in range(100)])
    client.write("orders", [_delayed(b"short %d" % number, 1) for number in range(100)])
    node.kill()
    node.start()
    found = [message.value for message in Confluent(node.bootstrap).read("orders", 200)]
    assert len(set(found)) == 200
    node.kill()
    node.start()
    client = Confluent(node.bootstrap)
    client.write("orders", [Message(b"end")])
    assert len(client.read("orders", 201)) == 201
    assert client.read("orders", 201)[-1].value == b"end"
