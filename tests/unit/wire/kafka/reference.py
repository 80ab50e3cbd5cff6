"""Kafka's definitions, read slowly: an encoder without a single shortcut, and random messages.

`definitions.json` is what Kafka's definitions say, field by field. The encoder here follows it at
run time, one field after another, so it shares no code and no idea with the generated codecs.
"""

from __future__ import annotations

import json
import struct
import types
import typing
from pathlib import Path
from random import Random
from typing import Any

from goqueue.wire.kafka.messages import API_BY_NAME

DEFINITIONS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("definitions.json").read_text()
)
MESSAGES = sorted(name for name in DEFINITIONS if not name.endswith("Header"))
FORMATS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q"}
UNKNOWN_TAG = 4_000

Field = dict[str, Any]


class Message:
    """One message of one API: its definition and the functions that carry it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.side = "request" if name.endswith("Request") else "response"
        self.api = API_BY_NAME[name.removesuffix("Request").removesuffix("Response")]
        self.definition = DEFINITIONS[name]
        self.fields: list[Field] = self.definition["fields"]
        self.cls = getattr(self.api.codec, self.side.capitalize())
        self.decode = getattr(self.api.codec, f"decode_{self.side}")
        self.encode = getattr(self.api.codec, f"encode_{self.side}")

    @property
    def versions(self) -> range:
        first, last = self.definition["versions"]
        return range(first, last + 1)

    def is_flexible(self, version: int) -> bool:
        return holds(self.definition["flexible"], version)

    def random(self, version: int, random: Random, **limits: Any) -> Any:
        """A message that uses every field of the version and no other."""
        return Values(random, version, **limits).struct(self.fields, self.cls)

    def reference(self, message: Any, version: int, *, unknown_tags: bool = False) -> bytes:
        encoder = Encoder(version, self.definition["flexible"], unknown_tags=unknown_tags)
        return encoder.struct(self.fields, message)


def holds(versions: list[int] | None, version: int) -> bool:
    return versions is not None and versions[0] <= version <= versions[1]


class Encoder:
    def __init__(self, version: int, flexible: list[int], *, unknown_tags: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._unknown_tags = unknown_tags

    def struct(self, fields: list[Field], value: Any) -> bytes:
        out = b""
        tagged = {}
        for field in fields:
            item = getattr(value, field["name"])
            if holds(field.get("tagged"), self._version):
                if item != getattr(type(value)(), field["name"]):
                    tagged[field["tag"]] = self.value(field, item)
            elif holds(field["versions"], self._version):
                out += self.value(field, item)
        if not holds(self._flexible, self._version):
            return out
        if self._unknown_tags:
            tagged[UNKNOWN_TAG] = b"from the future"
        out += unsigned(len(tagged))
        for tag, content in sorted(tagged.items()):
            out += unsigned(tag) + unsigned(len(content)) + content
        return out

    def value(self, field: Field, item: Any) -> bytes:
        kind = field["type"]
        is_compact = holds(field.get("flexible", self._flexible), self._version)
        if kind == "struct":
            if not holds(field.get("nullable"), self._version):
                return self.struct(field["fields"], item)
            return b"\xff" if item is None else b"\x01" + self.struct(field["fields"], item)
        if kind.startswith("[]"):
            if item is None:
                return self.length(None, ">i", is_compact)
            of_item = {**field, "type": kind[2:], "nullable": None}  # only the array may be null
            parts = [self.value(of_item, part) for part in item]
            return self.length(len(parts), ">i", is_compact) + b"".join(parts)
        if kind in ("string", "bytes", "records"):
            form = ">h" if kind == "string" else ">i"
            if item is None:
                return self.length(None, form, is_compact)
            raw = item.encode() if kind == "string" else bytes(item)
            return self.length(len(raw), form, is_compact) + raw
        if kind == "uuid":
            return bytes(item)
        if kind == "bool":
            return b"\x01" if item else b"\x00"
        return struct.pack(">d" if kind == "float64" else FORMATS[kind], item)

    def length(self, length: int | None, form: str, is_compact: bool) -> bytes:
        if is_compact:
            return unsigned(0 if length is None else length + 1)
        return struct.pack(form, -1 if length is None else length)


def unsigned(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


class Values:
    """Random values for the fields of one version."""

    def __init__(
        self, random: Random, version: int, *, items_max: int = 2, is_modest: bool = False
    ) -> None:
        self._random = random
        self._version = version
        self._items_max = items_max
        self._is_modest = is_modest  # keep to times and error codes that other libraries know

    def struct(self, fields: list[Field], cls: type[Any]) -> Any:
        hints = typing.get_type_hints(cls)
        present = [field for field in fields if holds(field["versions"], self._version)]
        return cls(**{field["name"]: self.value(field, hints[field["name"]]) for field in present})

    def value(self, field: Field, hint: Any) -> Any:
        if holds(field.get("nullable"), self._version) and self._random.random() < 0.25:
            return None
        kind = field["type"]
        if kind.startswith("[]"):
            count = self._random.randint(0, self._items_max)
            item = {"name": field["name"], "type": kind[2:], "fields": field.get("fields")}
            return [self.value(item, hint) for _ in range(count)]
        if kind == "struct":
            return self.struct(field["fields"], _struct_class(hint))
        return self.primitive(kind, field["name"])

    def primitive(self, kind: str, name: str) -> Any:
        random = self._random
        if kind == "string":
            letters = random.choice(["a", "é", "漢", "\U0001f40d"])
            return letters * random.choice([0, 1, 2, 5, 5, 5, 130])
        if kind in ("bytes", "records"):
            return random.randbytes(random.choice([0, 1, 7, 7, 150]))
        if kind == "uuid":
            return random.randbytes(16)
        if kind == "bool":
            return random.random() < 0.5
        if kind == "float64":
            return random.uniform(-1e9, 1e9)
        return self.integer(kind, name)

    def integer(self, kind: str, name: str) -> int:
        if self._is_modest and "error" in name:
            return self._random.choice((0, 3, 25))
        if self._is_modest:
            return self._random.randint(0, 9)
        bits = 8 * struct.calcsize(FORMATS[kind])
        low = 0 if kind == "uint16" else -(1 << bits - 1)
        high = low + (1 << bits) - 1
        return self._random.choice((low, high, 0, 1, self._random.randint(low, high)))


def _struct_class(hint: Any) -> type[Any]:
    """The struct inside `X`, `X | None`, `list[X]` or `list[X] | None`."""
    if isinstance(hint, types.UnionType):
        return _struct_class(next(part for part in hint.__args__ if part is not type(None)))
    if typing.get_origin(hint) is list:
        return _struct_class(typing.get_args(hint)[0])
    assert isinstance(hint, type)
    return hint
