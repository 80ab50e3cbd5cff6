"""Kafka's message definitions: read from the jar and checked, otherwise as they are written."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

FIXED_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FIXED_BYTES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
VARIABLE_TYPES = {"string", "bytes", "records"}
VERSION_OPEN = 0x7FFF


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included; empty when `first > last`."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read `none`, `3`, `1-3` or `2+`."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_OPEN)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


NO_VERSIONS = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str  # a primitive or the name of a struct; without the [] of an array
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: str | None  # as written: "null", "0x7fffffff", "true"; None when not given
    is_ignorable: bool
    flexible: Versions | None  # None: as its message; otherwise the field has its own mind

    @property
    def python_name(self) -> str:
        return snake_case(self.name)

    @property
    def is_fixed(self) -> bool:
        return not self.is_array and self.type in FIXED_CODES

    @property
    def is_struct(self) -> bool:
        return self.type not in FIXED_CODES and self.type not in VARIABLE_TYPES


@dataclass(frozen=True, slots=True)
class StructDefinition:
    name: str
    fields: list[Field]


@dataclass(frozen=True, slots=True)
class Message:
    """A request, a response or a header, with the structs it uses by name, innermost first."""

    name: str
    kind: str
    api_key: int | None
    versions: Versions
    flexible: Versions
    is_latest_unstable: bool
    root: StructDefinition
    structs: dict[str, StructDefinition] = field(default_factory=dict)

    def with_versions(self, versions: Versions) -> Message:
        return replace(self, versions=versions)


def read_jar(jar: Path) -> tuple[str, dict[str, Message]]:
    """Return the version of Kafka and its messages by name."""
    messages = {}
    with zipfile.ZipFile(jar) as archive:
        properties = archive.read("kafka/kafka-version.properties").decode()
        for name in sorted(archive.namelist()):
            if re.fullmatch(r"common/message/\w+\.json", name):
                definition = json.loads(_without_comments(archive.read(name).decode()))
                if definition["type"] in ("request", "response", "header"):
                    messages[definition["name"]] = _parse_message(definition)
    version = re.search(r"^version=(\S+)$", properties, re.MULTILINE)
    if version is None:
        raise ValueError(f"{jar.name} does not say which version it is.")
    return version[1], messages


def snake_case(name: str) -> str:
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _without_comments(text: str) -> str:
    return re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)


def _parse_message(definition: dict[str, Any]) -> Message:
    structs: dict[str, StructDefinition] = {}
    commons = {common["name"]: common for common in definition.get("commonStructs", [])}
    root = _parse_struct(definition, structs, commons)
    del structs[root.name]
    return Message(
        name=definition["name"],
        kind=definition["type"],
        api_key=definition.get("apiKey"),
        versions=Versions.parse(definition["validVersions"]),
        flexible=Versions.parse(definition.get("flexibleVersions", "none")),
        is_latest_unstable=definition.get("latestVersionUnstable", False),
        root=root,
        structs=structs,
    )


def _parse_struct(
    definition: dict[str, Any],
    structs: dict[str, StructDefinition],
    commons: dict[str, dict[str, Any]],
) -> StructDefinition:
    fields = [_parse_field(item) for item in definition.get("fields", [])]
    for parsed, item in zip(fields, definition.get("fields", []), strict=True):
        if not parsed.is_struct or parsed.type in structs:
            continue
        nested = item if "fields" in item else commons[parsed.type]
        _parse_struct({**nested, "name": parsed.type}, structs, commons)
    parsed_struct = StructDefinition(definition["name"], fields)
    structs[parsed_struct.name] = parsed_struct
    return parsed_struct


def _parse_field(item: dict[str, Any]) -> Field:
    is_array = item["type"].startswith("[]")
    return Field(
        name=item["name"],
        type=item["type"].removeprefix("[]"),
        is_array=is_array,
        versions=Versions.parse(item["versions"]),
        nullable=Versions.parse(item.get("nullableVersions", "none")),
        tagged=Versions.parse(item.get("taggedVersions", "none")),
        tag=item.get("tag"),
        default=None if "default" not in item else _written(item["default"]),
        is_ignorable=item.get("ignorable", False),
        flexible=(Versions.parse(item["flexibleVersions"]) if "flexibleVersions" in item else None),
    )


def _written(default: object) -> str:
    # A few definitions give a JSON number or boolean where the others give its text.
    return str(default).lower() if isinstance(default, bool) else str(default)
