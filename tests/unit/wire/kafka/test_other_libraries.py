"""Our bytes in the hands of `kio` and `kafka-python`, which know nothing of our generator.

A message we encode must decode there to the same values, and what they encode from it must be our
bytes again. With the round trips of `test_messages`, that also makes their bytes readable to us.
"""

from __future__ import annotations

import enum
import importlib
import io
import pkgutil
from dataclasses import fields as dataclass_fields
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_reader, entity_writer

from goqueue.wire.kafka.primitives import UUID_ZERO
from tests.unit.wire.kafka.reference import MESSAGES, Field, Message, holds

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated")  # kafka-python's resources

SEEDS = range(8)

# kafka-python reads any answer to ApiVersions that holds an error as one of version 0.
NOT_FOR_KAFKA_PYTHON = {"ApiVersionsResponse"}


@pytest.mark.parametrize("name", MESSAGES)
def test_kio_reads_and_writes_the_same_bytes(name: str) -> None:
    message = Message(name)
    for version in message.versions:
        theirs = _kio_class(message, version)
        if theirs is None:
            continue
        for seed in SEEDS:
            ours = message.random(version, Random(seed), is_modest=True)
            data = message.encode(ours, version)
            decoded, size = entity_reader(theirs)(data, 0)
            assert size == len(data)
            assert _kio_values(decoded) == _our_values(message.fields, ours, version)
            written = io.BytesIO()
            entity_writer(theirs)(written, decoded)
            assert written.getvalue() == data


@pytest.mark.parametrize("name", MESSAGES)
def test_kafka_python_reads_and_writes_the_same_bytes(name: str) -> None:
    message = Message(name)
    theirs = _kafka_python_classes().get(name)
    if theirs is None or name in NOT_FOR_KAFKA_PYTHON:
        pytest.skip("kafka-python does not have this message")
    for version in message.versions:
        if version > theirs.max_version:
            continue
        for seed in SEEDS:
            ours = message.random(version, Random(seed), is_modest=True)
            data = message.encode(ours, version)
            decoded = theirs.decode(data, version=version)
            assert _kafka_python_values(decoded, version) == _our_values(
                message.fields, ours, version
            )
            is_flexible = theirs.flexible_version_q(version)
            written = theirs._struct.encode(
                decoded, version=version, compact=is_flexible, tagged=is_flexible
            )
            assert written == data


def test_both_libraries_know_most_messages() -> None:
    known_to_kio = {
        name
        for name in MESSAGES
        if any(_kio_class(Message(name), version) for version in Message(name).versions)
    }
    assert len(known_to_kio) >= 100
    assert len(_kafka_python_classes().keys() & set(MESSAGES)) >= 80


# Values as plain lists in the order of the definitions: the libraries rename fields.


def _our_values(fields: list[Field], value: Any, version: int) -> list[Any]:
    values: list[Any] = []
    for field in fields:
        if not holds(field["versions"], version):
            continue
        item = getattr(value, field["name"])
        if "fields" in field and isinstance(item, list):
            item = [_our_values(field["fields"], part, version) for part in item]
        elif "fields" in field and item is not None:
            item = _our_values(field["fields"], item, version)
        values.append(item)
    return values


def _kio_class(message: Message, version: int) -> Any:
    module = f"kio.schema.{message.api.module}.v{version}.{message.side}"
    try:
        return getattr(importlib.import_module(module), message.name)
    except ModuleNotFoundError:
        return None


def _kio_values(entity: Any) -> list[Any]:
    return [
        _plain(getattr(entity, field.name), field.metadata.get("kafka_type"))
        for field in dataclass_fields(entity)
    ]


def _plain(value: Any, kafka_type: str | None) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item, kafka_type) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, UUID):
        return value.bytes
    if value is None and kafka_type == "uuid":
        return UUID_ZERO
    if hasattr(value, "__dataclass_fields__"):
        return _kio_values(value)
    return value


@cache
def _kafka_python_classes() -> dict[str, Any]:
    # Imported here, where the mark above silences what the import warns of.
    package = importlib.import_module("kafka.protocol")
    for module in pkgutil.walk_packages(package.__path__, "kafka.protocol."):
        if ".old" not in module.name and ".schemas" not in module.name:
            importlib.import_module(module.name)
    found: dict[str, Any] = {}
    pending = [importlib.import_module("kafka.protocol.api_message").ApiMessage]
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        found.setdefault(cls.__name__, cls)
    return found


def _kafka_python_values(value: Any, version: int) -> Any:
    if isinstance(value, list | tuple):
        return [_kafka_python_values(item, version) for item in value]
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, set):  # a bit field of permitted operations
        return sum(1 << bit for bit in value)
    if not hasattr(value, "_struct"):
        return value
    return [
        _kafka_python_values(getattr(value, field.name), version)
        for field in value._struct._fields
        if field.for_version_q(version)
    ]
