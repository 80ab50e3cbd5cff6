"""What it costs to check every message against its schema."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import fastavro

from bench.http_load import call
from bench.load import produce_payload
from bench.plan import PARTITIONS
from bench.report import MESSAGES, MICROSECONDS, Outcome
from bench.session import NONE, Session
from bench.topics import fresh_topic

ORDER = {
    "id": "0b1f7c0e-5c1b-4bd0-9f05-3f6a1f3a2f11",
    "customer": 4711,
    "country": "NO",
    "total": 1299.5,
    "lines": [
        {"article": "chair", "count": 2, "price": 399.75},
        {"article": "table", "count": 1, "price": 500.0},
    ],
}
_LINE = [("article", "string"), ("count", "int"), ("price", "double")]
_HEAD = [("id", "string"), ("customer", "long"), ("country", "string"), ("total", "double")]


@dataclass(frozen=True, slots=True)
class Language:
    """A schema of the order in one language, and the order as its serializers write it."""

    name: str
    kind: str
    schema: str
    payload: bytes


def measure(session: Session) -> None:
    """Each language, with and without checking, by librdkafka from Python."""
    section = session.section("Produce with schemas, acks=1, 6 partitions, fsync none")
    section.notes += [
        "An order of two lines; the payloads are the same with and without checking.",
        "Without checking the broker never looks into the batch.",
    ]
    for language in _languages():
        title = f"{language.name}, {len(language.payload)} B"
        cases: dict[str, Callable[[], Outcome]] = {
            "checked": partial(_run, session, language, "value"),
            "unchecked": partial(_run, session, language, "none"),
        }
        runs = session.in_turns(f"schemas: {title}", cases)
        checked, unchecked = runs["checked"], runs["unchecked"]
        section.add(title, checked, "messages_per_s", MESSAGES, reference=unchecked)
        row = f"{title}: broker CPU per message"
        section.add(row, checked, "broker_cpu_us", MICROSECONDS, reference=unchecked)


def _run(session: Session, language: Language, validation: str) -> Outcome:
    server = session.server(NONE)
    with fresh_topic(server, PARTITIONS, {"schema.validation": validation}) as topic:
        body = {"schema": language.schema, "schemaType": language.kind}
        path = f"/registry/subjects/{topic.name}-value/versions"
        made: dict[str, Any] = call(server, "POST", path, body)
        payload = b"\0" + made["id"].to_bytes(4, "big") + language.payload
        return produce_payload(server, topic, count=session.plan.schema_messages, payload=payload)


def _languages() -> list[Language]:
    return [_avro(), _json(), _protobuf()]


def _avro() -> Language:
    def record(name: str, fields: list[tuple[str, object]]) -> dict[str, object]:
        listed = [{"name": each, "type": kind} for each, kind in fields]
        return {"type": "record", "name": name, "fields": listed}

    line = record("Line", [*_LINE])
    order = record("Order", [*_HEAD, ("lines", {"type": "array", "items": line})])
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(order), ORDER)
    return Language("Avro", "AVRO", json.dumps(order), out.getvalue())


def _json() -> Language:
    names = {"string": "string", "int": "integer", "long": "integer", "double": "number"}

    def closed(fields: list[tuple[str, str]]) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {each: {"type": names[kind]} for each, kind in fields},
            "required": [each for each, _ in fields],
            "additionalProperties": False,
        }

    order = closed(_HEAD)
    order["properties"]["lines"] = {"type": "array", "items": closed(_LINE), "minItems": 1}
    return Language("JSON Schema", "JSON", json.dumps(order), json.dumps(ORDER).encode())


def _protobuf() -> Language:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = {"string": 9, "int": 5, "long": 3, "double": 1}
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order, line = file.message_type.add(name="Order"), file.message_type.add(name="Line")
    text = ['syntax = "proto3";', "package shop;"]
    for message, fields in ((order, _HEAD), (line, _LINE)):
        for number, (each, kind) in enumerate(fields, 1):
            message.field.add(name=each, number=number, type=kinds[kind], label=1)
    order.field.add(name="lines", number=5, type=11, label=3, type_name=".shop.Line")
    proto = {"string": "string", "int": "int32", "long": "int64", "double": "double"}
    for name, fields, more in (
        ("Order", _HEAD, "  repeated Line lines = 5;\n"),
        ("Line", _LINE, ""),
    ):
        listed = "".join(
            f"  {proto[kind]} {each} = {number};\n" for number, (each, kind) in enumerate(fields, 1)
        )
        text.append(f"message {name} {{\n{listed}{more}}}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    payload = b"\0" + made(**ORDER).SerializeToString()
    return Language("Protobuf", "PROTOBUF", "\n".join(text), payload)
