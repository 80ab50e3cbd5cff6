"""What the serializers of stock clients write is read by the console, and written by it again."""

from __future__ import annotations

import datetime
import decimal
import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import msgspec
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from playwright.sync_api import Locator, expect

from tests.e2e.console.browser import Api, Console
from tests.e2e.console.conftest import NewTopic
from tests.e2e.console.scenes import produce
from tests.integration.process import Broker

AT = datetime.datetime(2026, 11, 19, 15, 0, 0, 123456, tzinfo=datetime.UTC)
TRACE = uuid.UUID("0af76519-16cd-43dd-8448-eb211c80319c")


@pytest.fixture
def registry(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.registry}) as client:
        yield client


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def shown(console: Console, topic: str, decoder: str, offset: int = 0) -> Any:
    """Open a message; return what it is decoded to."""
    console.visit(f"topics/{topic}?order=oldest&open=0:{offset}", topic)
    opened = console.dialog(re.compile(f"offset {offset}$"))
    expect(opened.locator(".badge").get_by_text(decoder, exact=True)).to_be_visible()
    return json.loads(opened.locator("pre").first.inner_text())


def produced_again(console: Console, broker: Broker, topic: str, change: tuple[str, str]) -> Any:
    """Produce from the open message, with a change of its JSON; return the bytes of the value."""
    page = console.page
    page.get_by_role("button", name="Produce from this").click()
    dialog = console.dialog("Produce from a message")
    expect(dialog.get_by_label("Value as")).to_have_value("same")
    value = dialog.get_by_role("textbox", name="Value", exact=True).first
    text = value.input_value()
    assert change[0] in text
    value.fill(text.replace(*change))
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog).to_have_count(0)
    return newest(broker, topic)


def newest(broker: Broker, topic: str) -> Any:
    """Return the value of the newest message of a topic with one partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    place = confluent_kafka.TopicPartition(topic, 0)
    place.offset = consumer.get_watermark_offsets(place, timeout=30)[1] - 1
    consumer.assign([place])
    [record] = consumer.consume(1, timeout=60)
    consumer.close()
    return record.value()


def write(broker: Broker, topic: str, *values: bytes | None) -> None:
    produce(broker, topic, [(None, value, [], 0, 0) for value in values])


AVRO = {
    "type": "record",
    "name": "shop.v1.Order",
    "fields": [
        {"name": "buyer", "type": "shop.v1.User"},
        {"name": "again", "type": ["null", "User"], "default": None},
        {"name": "id", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "trace", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 4}},
        {"name": "raw", "type": "bytes"},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string", "double"]}},
        {
            "name": "state",
            "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]},
        },
        {"name": "marks", "type": {"type": "array", "items": "Mark"}},
    ],
}


def test_avro_with_references_and_logical_types(
    console: Console, broker: Broker, registry: SchemaRegistryClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    user = {"type": "record", "name": "shop.v1.User", "fields": [{"name": "n", "type": "string"}]}
    registry.register_schema(f"{topic}-user", Schema(json.dumps(user), "AVRO"))
    reference = SchemaReference("shop.v1.User", f"{topic}-user", 1)
    order = {
        "buyer": {"n": "Ada"},
        "again": {"n": "Grace"},
        "id": 2**53 + 1,
        "day": AT.date(),
        "at": AT,
        "price": decimal.Decimal("-12.05"),
        "trace": TRACE,
        "mark": b"\x00\xff a",
        "raw": b"\x00\x80\xff",
        "tags": {"a": "b", "half": 0.5, "none": None},
        "state": "PAID",
        "marks": [b"abcd"],
    }
    serializer = AvroSerializer(registry, Schema(json.dumps(AVRO), "AVRO", [reference]))
    write(broker, topic, serializer(order, context(topic)))
    assert shown(console, topic, "avro") == {
        "buyer": {"n": "Ada"},
        "again": {"n": "Grace"},
        "id": 2**53 + 1,
        "day": "2026-11-19",
        "at": "2026-11-19T15:00:00.123456Z",
        "price": "-12.05",
        "trace": str(TRACE),
        "mark": "\u0000\u00ff a",
        "raw": "\u0000U+0080\u00ff",  # as it is shown, for people
        "tags": {"a": "b", "half": 0.5, "none": None},
        "state": "PAID",
        "marks": ["abcd"],
    }
    again = produced_again(console, broker, topic, ('"-12.05"', '"0.99"'))
    expected = order | {"price": decimal.Decimal("0.99")}
    assert AvroDeserializer(registry)(again, context(topic)) == expected


def order_class(topic: str) -> Any:
    """Return the class of a message with nested, repeated and imported messages, maps and oneof."""
    money = descriptor_pb2.FileDescriptorProto(
        name=f"{topic}-money.proto", package="shop.money", syntax="proto3"
    )
    amount = money.message_type.add(name="Amount")
    amount.field.add(name="cents", number=1, type=3, label=1)
    kind = money.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "CASH", "CARD")):
        kind.value.add(name=name, number=number)
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{topic}-order.proto",
        package="shop",
        syntax="proto3",
        dependency=[money.name, stamp.name],
    )
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="payment")
    text, long, message, enumeration = 9, 3, 11, 14
    order.field.add(name="id", number=1, type=long, label=1)
    order.field.add(name="card", number=2, type=text, label=1, oneof_index=0)
    order.field.add(
        name="cash",
        number=3,
        type=message,
        label=1,
        type_name=".shop.money.Amount",
        oneof_index=0,
    )
    order.field.add(name="lines", number=4, type=message, label=3, type_name=".shop.Order.Line")
    order.field.add(
        name="counts", number=5, type=message, label=3, type_name=".shop.Order.CountsEntry"
    )
    order.field.add(name="kind", number=6, type=enumeration, label=1, type_name=".shop.money.Kind")
    order.field.add(
        name="at", number=7, type=message, label=1, type_name=".google.protobuf.Timestamp"
    )
    order.field.add(name="raw", number=8, type=12, label=1)
    order.field.add(name="numbers", number=9, type=17, label=3)
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=text, label=1)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=text, label=1)
    entry.field.add(name="value", number=2, type=message, label=1, type_name=".shop.money.Amount")
    pool = descriptor_pool.DescriptorPool()
    for one in (stamp, money, file):
        pool.Add(one)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_with_references_maps_and_oneof(
    console: Console, broker: Broker, registry: SchemaRegistryClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    order_type = order_class(topic)
    options = {"use.deprecated.format": False}
    order = order_type(
        id=2**53 + 1,
        cash={"cents": -250},
        lines=[{"sku": "a"}, {"sku": "ü"}],
        counts={"x": {"cents": 1}},
        kind=2,
        at={"seconds": 1795000000, "nanos": 5},
        raw=b"\x00\xff",
        numbers=[-1, 2, 300],
    )
    serializer = ProtobufSerializer(order_type, registry, options)
    write(broker, topic, serializer(order, context(topic)))
    assert shown(console, topic, "protobuf") == {
        "id": 2**53 + 1,
        "cash": {"cents": -250},
        "lines": [{"sku": "a"}, {"sku": "ü"}],
        "counts": {"x": {"cents": 1}},
        "kind": "CARD",
        "at": {"seconds": 1795000000, "nanos": 5},
        "raw": "AP8=",
        "numbers": [-1, 2, 300],
    }
    again = produced_again(console, broker, topic, ('"CARD"', '"CASH"'))
    order.kind = 1
    deserializer = ProtobufDeserializer(order_type, options, registry)
    assert deserializer(again, context(topic)) == order


def test_protobuf_is_written_by_the_subject_and_the_name_of_a_message(
    console: Console, api: Api, broker: Broker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    schema = 'syntax = "proto3"; message First {} message Second { int32 n = 1; }'
    api.post(
        f"/registry/subjects/{topic}-value/versions", {"schema": schema, "schemaType": "PROTOBUF"}
    )
    dialog = new_message(console, topic)
    dialog.get_by_label("Message", exact=True).fill("Third")
    dialog.get_by_label("Value", exact=True).fill('{"n": 2147483648}')
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("alert")).to_contain_text("no message Third")
    dialog.get_by_label("Message", exact=True).fill("Second")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("alert")).to_contain_text("value.n must be int32")
    console.check_accessibility()
    dialog.get_by_label("Value", exact=True).fill('{"n": 150}')
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog).to_have_count(0)
    assert newest(broker, topic)[5:] == b"\x02\x02\x08\x96\x01"


def new_message(console: Console, topic: str) -> Locator:
    """Open the form of a message by the schema of the topic."""
    console.visit(f"topics/{topic}", topic)
    console.page.get_by_role("button", name="Produce").click()
    dialog = console.dialog("Produce")
    dialog.get_by_label("Value as").select_option("JSON, by a registered schema")
    dialog.get_by_label("Subject").fill(f"{topic}-value")
    return dialog


def test_json_schema_is_read_and_checked(
    console: Console, broker: Broker, registry: SchemaRegistryClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    address = {"$id": "https://shop.example/address.json", "required": ["city"]}
    registry.register_schema(f"{topic}-address", Schema(json.dumps(address), "JSON"))
    person = {
        "title": "Person",
        "type": "object",
        "properties": {"age": {"minimum": 0}, "home": {"$ref": address["$id"]}},
    }
    reference = SchemaReference(str(address["$id"]), f"{topic}-address", 1)
    serializer = JSONSerializer(Schema(json.dumps(person), "JSON", [reference]), registry)
    write(broker, topic, serializer({"age": 36, "home": {"city": "Köln"}}, context(topic)))
    assert shown(console, topic, "json schema") == {"age": 36, "home": {"city": "Köln"}}
    dialog = new_message(console, topic)
    for wrong, why in (
        ('{"age": -1}', "value.age must be 0"),
        ('{"home": {}}', "value.home.city is missing"),
        ("[", "The value is not JSON"),
    ):
        dialog.get_by_label("Value", exact=True).fill(wrong)
        dialog.get_by_role("button", name="Produce").click()
        expect(dialog.get_by_role("alert")).to_contain_text(why)
    dialog.get_by_label("Value", exact=True).fill('{"age": 1}')
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog).to_have_count(0)
    assert newest(broker, topic)[5:] == b'{"age": 1}'


def test_messagepack_and_cbor(console: Console, broker: Broker, new_topic: NewTopic) -> None:
    topic, page = new_topic(), console.page
    value = {"id": 2**64 - 1, "half": 0.5, "list": [None, True, -7], "nested": {"text": "grüße"}}
    cbor = bytes.fromhex("a26269641bffffffffffffffff646c69737483f6f526")
    write(broker, topic, msgspec.msgpack.encode(value), cbor)
    console.visit(f"topics/{topic}?order=oldest&open=0:0", topic)
    opened = console.dialog(re.compile("offset 0"))
    opened.get_by_label("Decode as").select_option("MessagePack")
    expect(opened.locator("pre").first).to_contain_text("18446744073709551615")
    assert json.loads(opened.locator("pre").first.inner_text()) == value
    page.goto(f"/console/topics/{topic}?order=oldest&open=0:1")
    opened = console.dialog(re.compile("offset 1"))
    opened.get_by_label("Decode as").select_option("CBOR")
    expect(opened.locator("pre").first).to_contain_text("18446744073709551615")
    assert json.loads(opened.locator("pre").first.inner_text()) == {
        "id": 2**64 - 1,
        "list": [None, True, -7],
    }
