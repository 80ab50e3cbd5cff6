"""`goqueue produce` and `consume` with schemas, with the stock serializers on the other side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, duration_pb2

from .conftest import NewTopicName
from .process import Broker

Run = Callable[..., str]
RUN_SECONDS_MAX = 60


def record(*fields: dict[str, Any], name: str = "shop.User") -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields})


NAME = {"name": "name", "type": "string"}
AGE = {"name": "age", "type": ["null", "int"], "default": None}
EMAIL = {"name": "email", "type": "string", "default": "none"}
PERSON = json.dumps(
    {
        "title": "Person",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "number"}},
        "required": ["name"],
    }
)


@pytest.fixture
def registry(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.registry}) as client:
        yield client


@pytest.fixture
def goqueue(broker: Broker, tmp_path: Path) -> Run:
    """Run a command to its end; what it printed, or with another code what it complained about."""
    environment = os.environ | {
        "GOQUEUE_BOOTSTRAP": broker.bootstrap,
        "GOQUEUE_CLI_CONFIG": str(tmp_path / "contexts.yaml"),
    }

    def run(*words: str, code: int = 0, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "goqueue", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return run


@pytest.fixture
def topic(new_topic: NewTopicName) -> str:
    return new_topic(**{"schema.validation": "value"})


def produced(bootstrap: str, topic: str, *messages: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    failed: list[object] = []
    for message in messages:
        producer.produce(topic, on_delivery=lambda error, _: failed.append(error), **message)
    assert producer.flush(30) == 0
    assert not any(failed)


def consumed(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), timeout=30)
    consumer.close()
    assert not any(one.error() for one in found)
    return found


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_avro_goes_both_ways_with_the_stock_serializers(
    goqueue: Run, registry: SchemaRegistryClient, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "user.avsc"
    file.write_text(record(NAME, AGE))
    goqueue("produce", topic, "--value-schema", str(file), "-m", '{"name": "Ada", "age": 36}')
    untagged_and_tagged = '{"name": "Bo"}\n{"name": "Cy", "age": {"int": 7}}\n'
    goqueue("produce", topic, "--value-schema", "latest", stdin=untagged_and_tagged)
    read = AvroDeserializer(registry)
    assert [read(one.value(), value_of(topic)) for one in consumed(bootstrap, topic, 3)] == [
        {"name": "Ada", "age": 36},
        {"name": "Bo", "age": None},
        {"name": "Cy", "age": 7},
    ]
    write = AvroSerializer(registry, record(NAME, AGE))
    produced(bootstrap, topic, {"value": write({"name": "Di", "age": 1}, value_of(topic))})
    printed = goqueue("consume", topic, "--decode", "value")
    assert lines(printed)[2:] == [
        {"name": "Cy", "age": {"int": 7}},
        {"name": "Di", "age": {"int": 1}},
    ]
    goqueue("produce", topic, "--value-schema", "1", stdin=printed)
    again = goqueue("consume", topic, "--decode", "value")
    assert lines(again) == lines(printed) * 2, "what is printed can be produced again"


def test_messages_of_all_versions_are_read_each_with_its_own_schema(
    goqueue: Run, registry: SchemaRegistryClient, bootstrap: str, topic: str
) -> None:
    write = AvroSerializer(registry, record(NAME))
    produced(bootstrap, topic, {"value": write({"name": "old"}, value_of(topic)), "key": b"k"})
    newer = record(NAME, EMAIL)
    goqueue("produce", topic, "--value-schema", newer, "-m", '{"name": "new", "email": "a@b"}')
    found = lines(goqueue("consume", topic, "--decode", "value", "--format", "json"))
    assert [one["value"] for one in found] == [{"name": "old"}, {"name": "new", "email": "a@b"}]
    assert found[0]["value_schema"] != found[1]["value_schema"]
    assert [one["key"] for one in found] == ["k", None]
    read = AvroDeserializer(registry, newer)
    assert [read(one.value(), value_of(topic)) for one in consumed(bootstrap, topic, 2)] == [
        {"name": "old", "email": "none"},
        {"name": "new", "email": "a@b"},
    ]
    refused = goqueue(
        "produce", topic, "--value-schema", record({"name": "x", "type": "int"}), "-m", "{}", code=1
    )
    assert "compatib" in refused


def test_a_schema_that_refers_to_another_is_resolved(
    goqueue: Run, registry: SchemaRegistryClient, bootstrap: str, topic: str
) -> None:
    user = f"{topic}-user"
    registry.register_schema(user, Schema(record(NAME), "AVRO"))
    order = record({"name": "by", "type": "shop.User"}, name="shop.Order")
    reference = SchemaReference("shop.User", user, 1)
    registry.register_schema(f"{topic}-value", Schema(order, "AVRO", [reference]))
    goqueue("produce", topic, "--value-schema", "latest", "-m", '{"by": {"name": "Ada"}}')
    read = AvroDeserializer(registry)
    (message,) = consumed(bootstrap, topic, 1)
    assert read(message.value(), value_of(topic)) == {"by": {"name": "Ada"}}
    assert lines(goqueue("consume", topic, "--decode", "value")) == [{"by": {"name": "Ada"}}]


def test_json_schema_goes_both_ways(
    goqueue: Run, registry: SchemaRegistryClient, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "person.json"
    file.write_text(PERSON)
    goqueue("produce", topic, "--value-schema", str(file), "-m", '{"name": "Ada",  "age": 1.50}')
    write = JSONSerializer(PERSON, registry)
    produced(bootstrap, topic, {"value": write({"name": "Bo"}, value_of(topic))})
    read = JSONDeserializer(PERSON)
    assert [read(one.value(), value_of(topic)) for one in consumed(bootstrap, topic, 2)] == [
        {"name": "Ada", "age": 1.5},
        {"name": "Bo"},
    ]
    printed = goqueue("consume", topic, "--decode", "value")
    assert printed == '{"name":"Ada","age":1.50}\n{"name":"Bo"}\n', "numbers are as written"
    refused = goqueue("produce", topic, "--value-schema", "latest", "-m", '{"age": 3}', code=1)
    assert "does not fit schema" in refused
    assert "name" in refused


def test_protobuf_goes_both_ways_with_nested_messages_and_imports(
    goqueue: Run, registry: SchemaRegistryClient, bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    plain = {"use.deprecated.format": False}
    write = ProtobufSerializer(duration_pb2.Duration, registry, plain)
    produced(bootstrap, topic, {"value": write(duration_pb2.Duration(seconds=3), value_of(topic))})
    assert lines(goqueue("consume", topic, "--decode", "value")) == ["3s"]
    goqueue("produce", topic, "--value-schema", "latest", "-m", '"1.5s"')
    read = ProtobufDeserializer(duration_pb2.Duration, plain)
    _, second = consumed(bootstrap, topic, 2)
    assert read(second.value(), value_of(topic)).nanos == 500_000_000

    inner = new_topic()
    nested = descriptor_pb2.DescriptorProto.ExtensionRange
    write = ProtobufSerializer(nested, registry, plain)
    message = nested(start=5, end=9)
    produced(bootstrap, inner, {"value": write(message, value_of(inner))})
    assert lines(goqueue("consume", inner, "--decode", "value")) == [{"start": 5, "end": 9}]
    name = "google.protobuf.DescriptorProto.ExtensionRange"
    goqueue("produce", inner, "--value-schema", "latest", "--value-message", name,
            "-m", '{"start": 6}')  # fmt: skip
    read = ProtobufDeserializer(nested, plain)
    _, second = consumed(bootstrap, inner, 2)
    assert read(second.value(), value_of(inner)).start == 6
    refused = goqueue("produce", inner, "--value-schema", "latest", "--value-message", "Other",
                      "-m", "{}", code=1)  # fmt: skip
    assert "no message 'Other'" in refused


def test_a_proto_file_is_registered_and_its_imports_are_found(
    goqueue: Run, registry: SchemaRegistryClient, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "order.proto"
    file.write_text(
        'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";'
        "message Line { int64 item_count = 1; }"
        "message Order { google.protobuf.Timestamp at = 1; repeated Line lines = 2; }"
    )
    text = '{"at": "2026-01-31T12:00:00Z", "lines": [{"item_count": "5"}, {}]}'
    options = ("--value-schema", str(file), "--value-message", "Order")
    goqueue("produce", topic, *options, "-m", text)
    assert lines(goqueue("consume", topic, "--decode", "value")) == [
        {"at": "2026-01-31T12:00:00Z", "lines": [{"itemCount": "5"}, {"itemCount": "0"}]}
    ]
    refused = goqueue("produce", topic, *options, "-m", '{"lines": [{"count": 1}]}', code=1)
    assert "count" in refused


def test_keys_have_schemas_of_their_own(
    goqueue: Run, registry: SchemaRegistryClient, bootstrap: str, topic: str
) -> None:
    goqueue("produce", topic, "--key-schema", '"long"', "--value-schema", record(NAME),
            "--key-separator", "|", stdin='5|{"name": "Ada"}\n')  # fmt: skip
    read = AvroDeserializer(registry)
    (message,) = consumed(bootstrap, topic, 1)
    assert read(message.key(), SerializationContext(topic, MessageField.KEY)) == 5
    goqueue("produce", topic, "--key-schema", "latest", "--key", "5", "--tombstone")
    assert goqueue("consume", topic, "--decode", "both", "--template", r"%k=%s\n").splitlines() == [
        '5={"name":"Ada"}',
        "5=",
    ]


def test_a_schema_that_is_named_in_a_header_is_found(
    goqueue: Run, registry: SchemaRegistryClient, bootstrap: str, topic: str
) -> None:
    options = {"schema.id.serializer": header_schema_id_serializer}
    write = AvroSerializer(registry, record(NAME), conf=options)
    context = SerializationContext(topic, MessageField.VALUE, headers=[])
    payload = write({"name": "Ada"}, context)
    assert payload[0] != 0
    produced(bootstrap, topic, {"value": payload, "headers": context.headers})
    assert lines(goqueue("consume", topic, "--decode", "value")) == [{"name": "Ada"}]


def test_a_message_that_cannot_be_decoded_stops_or_is_skipped_or_shown(
    goqueue: Run, registry: SchemaRegistryClient, bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic(partitions=1)
    write = AvroSerializer(registry, record(NAME))
    good = write({"name": "Ada"}, value_of(topic))
    unknown = b"\0" + (2**31 - 1).to_bytes(4, "big") + b"x"
    cut = good[:-1]
    values = (good, b"plain", unknown, cut, None, good)
    produced(bootstrap, topic, *({"value": one} for one in values))
    complaint = goqueue("consume", topic, "--decode", "value", code=1)
    assert f"{topic}/0 at offset 1: The value names no schema" in complaint
    skipped = goqueue("consume", topic, "--decode", "value", "--on-mismatch", "skip")
    assert skipped.splitlines() == ['{"name":"Ada"}', "", '{"name":"Ada"}']
    raw = goqueue("consume", topic, "--decode", "value", "--on-mismatch", "raw")
    assert raw.splitlines()[1] == "plain"


def test_what_cannot_be_written_is_refused_before_or_at_its_line(
    goqueue: Run, topic: str, tmp_path: Path
) -> None:
    for words, complaint in (
        (("--value-schema", "latest"), f"{topic}-value"),
        (("--value-schema", "id:999999"), "--value-schema id:999999"),
        (("--value-schema", "users.txt"), "is none of: latest"),
        (("--value-schema", "gone.avsc"), "gone.avsc cannot be read"),
        (("--value-schema", "{"), "not JSON"),
        (("--value-message", "Order"), "--value-message need --value-schema"),
        (("--value-schema", '"int"', "--value-message", "Order"), "named only in Protobuf"),
        (("--value-schema", '"int"', "--count", "5"), "Random values fit no schema"),
        (("--value-schema", '"int"', "-m", '"one"'), "is no int"),
    ):
        assert complaint in goqueue("produce", topic, *words, code=1), words
    refused = goqueue("produce", topic, "--value-schema", '"int"', stdin="1\n2\nx\n4\n", code=1)
    assert "Line 3: " in refused
    assert "The 2 before it were sent." in refused
    assert goqueue("consume", topic, "--decode", "value").split() == ["1", "2"]
