"""Typed columns: stock serializers write, a real Spark reads, and every row is compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

from tests.e2e import typed_topics
from tests.e2e.conftest import NewTopic, Table
from tests.integration.process import Broker

Typed = Callable[..., DataFrame]

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}
STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exact", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "total",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
        {"name": "trace", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "state", "type": STATE},
        {"name": "extra", "type": ["null", "string", "long", "Line"]},
    ],
}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "at": NOON + timedelta(milliseconds=number),
        "exact": NOON + timedelta(microseconds=number),
        "day": date(2026, 1, 1) + timedelta(days=number % 300),
        "total": Decimal(number - 100) / 100,
        "trace": f"{number:08x}-0000-4000-8000-000000000000",
        "note": None if number % 3 else f"note {number}",
        "lines": [{"sku": f"s{one}", "count": one} for one in range(number % 4)],
        "tags": {f"t{one}": one / 2 for one in range(number % 3)},
        "state": "NEW" if number % 2 else "PAID",
        "extra": [None, f"x{number}", number, ("shop.Line", {"sku": "e", "count": 9})][number % 4],
    }


def order_row(number: int) -> dict[str, Any]:
    """What Spark shows of an order: branches of a union are members of a struct."""
    value = order(number)
    extra = value["extra"]
    if extra is not None:
        members: list[Any] = [None, None, None]
        members[number % 4 - 1] = extra[1] if isinstance(extra, tuple) else extra
        value["extra"] = dict(zip(("member0", "member1", "member2"), members, strict=True))
    # Spark hands times out as local ones, and the tests run it in UTC.
    return {**value, "at": naive(value["at"]), "exact": naive(value["exact"])}


def naive(moment: datetime) -> datetime:
    return moment.astimezone().replace(tzinfo=None)


@pytest.fixture
def typed(table: Table, broker: Broker) -> Typed:
    def read(topic: str, **options: str) -> DataFrame:
        names = {name.replace("_", "."): value for name, value in options.items()}
        registry = {"schema.registry": broker.registry}
        return table(subscribe=topic, **registry, **names).load()

    return read


def rows_of(frame: DataFrame, column: str = "value") -> list[Any]:
    found = []
    for row in frame.orderBy("partition", "offset").collect():
        value = row[column]
        found.append(value.asDict(recursive=True) if hasattr(value, "asDict") else value)
    return found


def test_avro_records_are_structs(broker: Broker, new_topic: NewTopic, typed: Typed) -> None:
    topic = new_topic(2)
    for one in range(2):
        numbers = range(one * 200, one * 200 + 200)
        send = typed_topics.avro(broker, ORDER)
        typed_topics.send(broker, topic, map(order, numbers), send, partition=one)
    frame = typed(topic)
    assert frame.select("value.*").columns == [one["name"] for one in ORDER["fields"]]
    assert rows_of(frame) == [order_row(number) for number in range(400)]
    assert frame.where("value.state = 'NEW' and offset < 10").count() == 10


def test_an_older_and_a_newer_writer_have_one_reader(
    broker: Broker, new_topic: NewTopic, typed: Typed
) -> None:
    topic = new_topic()
    first = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}
    text = {"name": "name", "type": "string", "default": "nobody"}
    raw = {"name": "raw", "type": ["bytes", "null"], "default": "\u00ff"}
    second = {**first, "fields": [{"name": "id", "type": "long"}, text, raw]}
    typed_topics.send(broker, topic, [{"id": 1}], typed_topics.avro(broker, first))
    written = {"id": 1 << 40, "name": "Ada", "raw": b"x"}
    typed_topics.send(broker, topic, [written, None], typed_topics.avro(broker, second))
    frame = typed(topic)
    assert rows_of(frame) == [{"id": 1, "name": "nobody", "raw": b"\xff"}, written, None]
    # A pinned version reads what newer writers wrote, as far as it understands it.
    pinned = typed(topic, schema_version="1", schema_errors="null")
    assert rows_of(pinned)[0] == {"id": 1}
    assert pinned.select("value.id").schema[0].dataType.simpleString() == "int"
    # What was loaded stays as it is when the subject goes on.
    third = {**second, "fields": [*second["fields"], {**text, "name": "city"}]}
    later = {**written, "city": "London"}
    typed_topics.send(broker, topic, [later], typed_topics.avro(broker, third))
    assert rows_of(frame)[:2] == [{"id": 1, "name": "nobody", "raw": b"\xff"}, written]
    assert rows_of(typed(topic))[3] == later


PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "height": {"type": "number"},
        "name": {"type": ["string", "null"]},
        "is_here": {"type": "boolean"},
        "address": {"$ref": "#/definitions/address"},
        "phones": {"type": "array", "items": {"type": "string"}},
        "scores": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": {},
        "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "maybe": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
    },
    "definitions": {
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip-code": {"type": "string"}},
        }
    },
}


def person(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "height": number / 8,
        "name": None if number % 2 else f"näme {number}",
        "is_here": number % 3 == 0,
        "address": {"city": "Bern", "zip-code": str(number)},
        "phones": ["1"] * (number % 3),
        "scores": {"a": number},
        "anything": {"deep": [1, {}]},
        "either": number,
        "maybe": None if number % 5 else number,
    }


def test_json_documents_are_structs(broker: Broker, new_topic: NewTopic, typed: Typed) -> None:
    topic = new_topic()
    to_bytes = typed_topics.json_schema(broker, PERSON)
    typed_topics.send(broker, topic, map(person, range(100)), to_bytes)
    typed_topics.send(broker, topic, [{"id": 100}], to_bytes)
    found = rows_of(typed(topic))
    for number, row in enumerate(found[:100]):
        want = person(number)
        assert json.loads(row.pop("anything")) == {"deep": [1, {}]}
        assert row.pop("either") == str(number)
        assert row == {name: want[name] for name in row}
    assert found[100] == {**dict.fromkeys(PERSON["properties"]), "id": 100}


SHIPMENT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Before { int32 unused = 1; }
message Shipment {
  message Box { string label = 1; repeated int32 sizes = 2; }
  enum Kind { SLOW = 0; FAST = 1; }
  int64 id = 1;
  Kind kind = 2;
  google.protobuf.Timestamp at = 3;
  Box box = 4;
  map<string, Box> boxes = 5;
  oneof how { string road = 6; uint64 ship = 7; }
  optional int32 weight = 8;
  bytes seal = 9;
  google.protobuf.StringValue note = 10;
  repeated Kind kinds = 11;
  double price = 12;
}
"""


def shipment_row(number: int) -> dict[str, Any]:
    box = {"label": f"b{number}", "sizes": [1, -number]}
    return {
        "id": -number,
        "kind": ("SLOW", "FAST")[number % 2],
        "at": naive(NOON + timedelta(microseconds=number)) if number % 3 else None,
        "box": box if number % 2 else None,
        "boxes": {"first": box} if number % 4 else {},
        "road": "A1" if number % 2 else None,
        "ship": None if number % 2 else Decimal((1 << 64) - 1 - number),
        "weight": number if number % 5 else None,
        "seal": bytes([number]),
        "note": "n" if number % 2 else None,
        "kinds": ["FAST", "SLOW"],
        "price": number / 4,
    }


def shipment(made: Any, number: int) -> Any:
    row = shipment_row(number)
    message = made(id=row["id"], kind=row["kind"], seal=row["seal"], price=row["price"])
    message.kinds.extend([1, 0])
    if row["at"] is not None:
        message.at.FromDatetime(NOON + timedelta(microseconds=number))
    if row["box"] is not None:
        message.box.MergeFrom(type(message.box)(**row["box"]))
    for name, box in row["boxes"].items():
        message.boxes[name].MergeFrom(type(message.box)(**box))
    for name in ("road", "weight"):
        if row[name] is not None:
            setattr(message, name, row[name])
    if row["ship"] is not None:
        message.ship = int(row["ship"])
    if row["note"] is not None:
        message.note.value = row["note"]
    return message


def test_protobuf_messages_are_structs(
    broker: Broker, new_topic: NewTopic, typed: Typed, tmp_path: Path
) -> None:
    topic = new_topic()
    classes = typed_topics.messages(tmp_path / "first", SHIPMENT)
    made = classes["shop.Shipment"]
    to_bytes = typed_topics.protobuf(broker, made)
    typed_topics.send(broker, topic, (shipment(made, number) for number in range(100)), to_bytes)
    frame = typed(topic, schema_message="shop.Shipment")
    assert rows_of(frame) == [shipment_row(number) for number in range(100)]
    # The first message of the file is not the one in the topic.
    with pytest.raises(PythonException, match=r"it holds shop\.Shipment, and shop\.Before is read"):
        typed(topic).collect()
    # A newer writer knows one more field and one more value of the enum.
    newer = SHIPMENT.replace("FAST = 1;", "FAST = 1; AIR = 2;").replace(
        "double price = 12;", "double price = 12; string city = 13;"
    )
    made = typed_topics.messages(tmp_path / "second", newer)["shop.Shipment"]
    message = made(id=7, kind=2, city="Bern")
    typed_topics.send(broker, topic, [message], typed_topics.protobuf(broker, made))
    old = rows_of(typed(topic, schema_message="Shipment", schema_version="1"))
    assert (len(old), old[100]["id"], old[100]["kind"]) == (101, 7, "2")
    new = rows_of(typed(topic, schema_message="Shipment"))
    assert (new[100]["kind"], new[100]["city"], new[99]["city"]) == ("AIR", "Bern", "")


def test_what_cannot_be_decoded_stops_a_query_or_is_shown(
    broker: Broker, new_topic: NewTopic, typed: Typed, table: Table
) -> None:
    topic = new_topic()
    to_bytes = typed_topics.avro(broker, ORDER)
    typed_topics.send(broker, topic, map(order, range(3)), to_bytes)
    bad = [b"plain text", b"", b"\0\x7f\xff\xff\xff?", b"\0\0\0"]
    typed_topics.send(broker, topic, bad, None)
    typed_topics.send(broker, topic, [None], None)
    typed_topics.send(broker, topic, [order(8)], to_bytes)
    with pytest.raises(PythonException, match=rf"value of {topic}/0 at offset 3 cannot.*errors="):
        typed(topic).collect()
    frame = typed(topic, schema_errors="null")
    wanted = [*map(order_row, range(3)), *[None] * 5, order_row(8)]
    assert rows_of(frame) == wanted
    reasons = rows_of(frame, "valueError")
    assert [reason is None for reason in reasons] == [True] * 3 + [False] * 4 + [True] * 2
    assert "zero byte" in reasons[3]
    assert "2147483647" in reasons[5]
    # Without the column nothing is decoded, and nothing can be wrong.
    plain = table(subscribe=topic, **{"schema.registry": broker.registry})
    assert plain.schema("offset long").load().count() == 9


def test_keys_are_typed_and_other_columns_stay(
    broker: Broker, new_topic: NewTopic, typed: Typed, table: Table
) -> None:
    topic = new_topic()
    typed_topics.send(
        broker,
        topic,
        [{"id": number} for number in range(50)],
        typed_topics.json_schema(broker, PERSON),
        keys=[f"k{number}" for number in range(50)],
        key_to_bytes=typed_topics.avro(broker, "string"),
    )
    frame = typed(topic, schema_key="true", includeHeaders="true")
    assert frame.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    rows = frame.selectExpr("key", "value.id", "offset", "topic").collect()
    assert sorted(tuple(row) for row in rows) == sorted(
        (f"k{number}", number, number, topic) for number in range(50)
    )
    only = {"schema.registry": broker.registry, "schema.key": "true", "schema.value": "false"}
    keys = table(subscribe=topic, **only).schema("key string, value binary").load()
    assert [row.value[:1] for row in keys.collect()] == [b"\0"] * 50


def test_a_stream_is_typed(
    spark: SparkSession, broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    to_bytes = typed_topics.avro(broker, ORDER)

    def run() -> None:
        stream = (
            spark.readStream.format("goqueue")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 60)
            .option("schema.registry", broker.registry)
            .load()
            .select("value.*", "offset")
        )
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    typed_topics.send(broker, topic, map(order, range(100)), to_bytes, partition=0)
    run()
    typed_topics.send(broker, topic, map(order, range(100, 150)), to_bytes, partition=1)
    run()
    found = spark.read.parquet(str(tmp_path / "out")).drop("offset").orderBy("id").collect()
    assert [row.asDict(recursive=True) for row in found] == [order_row(n) for n in range(150)]


def test_a_registry_that_does_not_help_is_said_so(
    broker: Broker, new_topic: NewTopic, typed: Typed, table: Table
) -> None:
    topic = new_topic()
    with pytest.raises(AnalysisException, match=r"schema of the value.*Name its subject"):
        typed(topic)
    with pytest.raises(AnalysisException, match=r"No schema registry answers at http"):
        table(subscribe=topic, **{"schema.registry": "http://127.0.0.1:9"}).load()
    with pytest.raises(AnalysisException, match=r"does not answer as a schema registry"):
        table(subscribe=topic, **{"schema.registry": f"{broker.http}/v1"}).load()
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}],
    }
    typed_topics.send(broker, topic, [{"next": None}], typed_topics.avro(broker, node))
    with pytest.raises(AnalysisException, match=r"recursive: at \$\.next it holds Node again"):
        typed(topic)
