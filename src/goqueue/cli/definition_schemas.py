"""Schemas in definitions: the versions of each subject, and the steps that register them elsewhere.

Numbers of versions are assigned anew where they are registered, because versions that were deleted
leave gaps. So references are given the number that the version they mean has there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from goqueue.client.http import Client, SchemaReference
from goqueue.model.errors import InvalidRequest

_Key = tuple[str, int]  # a subject, and the number of a version in the document


class Schema(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    kind: Any
    text: str
    references: list[SchemaReference] = []
    version: int = 0  # what references call it; without one, its position


class Subject(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    versions: list[Schema]
    compatibility: Any = None


class SchemaStep(NamedTuple):
    subject: str
    change: str
    perform: Callable[[], object]


def export_subject(client: Client, name: str) -> Subject:
    """Return what there is of a subject, deleted versions excepted."""
    versions = [
        Schema(one.kind, one.text, list(one.references), one.version)
        for one in client.schemas.list_all(prefix=name)
        if one.subject == name
    ]
    return Subject(versions, client.schemas.config(name).level)


def plan_schemas(
    client: Client, wanted: Mapping[str, Subject], present: Mapping[str, Subject]
) -> Iterator[SchemaStep]:
    """Return the steps that are left: what schemas refer to is registered before them.

    The history of a subject need not be compatible by its level of today. So the level of a new
    subject is NONE until all its versions are registered.
    """
    versions = _Versions(client, wanted, present)
    missing = versions.missing()
    open_for_all = [
        name for name, one in wanted.items() if name not in present and len(one.versions) > 1
    ]
    for name in open_for_all:
        set_none = partial(client.schemas.configure, name, level="NONE")
        yield SchemaStep(name, "compatibility NONE, until it has all versions", set_none)
    for key in missing:
        yield SchemaStep(key[0], f"register version {key[1]}", partial(versions.register, key))
    levels = {name: one.compatibility for name, one in present.items()}
    levels |= dict.fromkeys(open_for_all, "NONE")
    for name, subject in wanted.items():
        level = subject.compatibility
        if level is None and name in open_for_all:
            unset = partial(client.schemas.unset_config, name)
            yield SchemaStep(name, "compatibility of the registry", unset)
        elif level not in (None, levels.get(name)):
            configure = partial(client.schemas.configure, name, level=level)
            yield SchemaStep(name, f"compatibility {level}", configure)


class _Versions:
    """The versions of a document, and which numbers they have in the registry."""

    def __init__(
        self, client: Client, wanted: Mapping[str, Subject], present: Mapping[str, Subject]
    ) -> None:
        self._client = client
        self._present = present
        self._schemas: dict[_Key, Schema] = {
            (name, schema.version or position): schema
            for name, subject in wanted.items()
            for position, schema in enumerate(subject.versions, start=1)
        }
        self._numbers: dict[_Key, int] = {}  # in the registry

    def missing(self) -> list[_Key]:
        """Return the versions to register, in an order in which that can be done."""
        missing: list[_Key] = []
        for key in self._in_order():
            number = self._find(key)
            if number is None:
                missing.append(key)
            else:
                self._numbers[key] = number
        return missing

    def register(self, key: _Key) -> None:
        schema = self._schemas[key]
        made = self._client.schemas.register(
            key[0], schema.text, kind=schema.kind, references=self._references(schema)
        )
        self._numbers[key] = made.version

    def _find(self, key: _Key) -> int | None:
        """Return the number of a version that is registered already."""
        schema = self._schemas[key]
        needed = [one for one in _keys(schema) if one in self._schemas]
        if any(one not in self._numbers for one in needed) or key[0] not in self._present:
            return None
        references = self._references(schema)
        for one in self._present[key[0]].versions:
            if (one.kind, one.text, one.references) == (schema.kind, schema.text, references):
                return one.version
        return None

    def _references(self, schema: Schema) -> list[SchemaReference]:
        return [
            msgspec.structs.replace(one, version=self._numbers.get(key, one.version))
            for one, key in zip(schema.references, _keys(schema), strict=True)
        ]

    def _in_order(self) -> list[_Key]:
        """Return all versions, each after those before it and those that it refers to."""
        before: dict[_Key, list[_Key]] = {}
        previous: _Key | None = None
        for key, schema in self._schemas.items():
            before[key] = [one for one in _keys(schema) if one in self._schemas]
            if previous is not None and previous[0] == key[0]:
                before[key].append(previous)
            previous = key
        order: dict[_Key, None] = {}
        begun: set[_Key] = set()
        pending = list(reversed(before))
        while pending:
            key = pending[-1]
            left = [one for one in before[key] if one not in order]
            if key in order or not left:
                order[key] = None
                pending.pop()
            elif key in begun:
                raise InvalidRequest(f"Version {key[1]} of {key[0]} refers to itself.")
            else:
                begun.add(key)
                pending += left
        return list(order)


def _keys(schema: Schema) -> list[_Key]:
    return [(one.subject, one.version) for one in schema.references]
