"""A registry and somebody who asks it for things, one after the other."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from goqueue.model.batch import Record
from goqueue.model.errors import SchemaRefusal, SchemaRefused
from goqueue.schemas import removal
from goqueue.schemas.catalog import Version
from goqueue.schemas.drafts import Request
from goqueue.schemas.facts import Change, read_record, to_record
from goqueue.schemas.formats import Reference, SchemaKind
from goqueue.schemas.names import Subject, read_subject
from goqueue.schemas.registry import LATEST, Registry
from goqueue.schemas.scopes import Config, Level, Mode


def record(name: str = "User", **fields: str) -> str:
    """An Avro record; a field with a question mark has a default."""
    listed = []
    for field_name, kind in fields.items():
        one: dict[str, object] = {"name": field_name, "type": kind.rstrip("?")}
        if kind.endswith("?"):
            one["default"] = {"string": "", "int": 0}[kind.rstrip("?")]
        listed.append(one)
    return json.dumps({"type": "record", "name": name, "fields": listed})


@dataclass
class Desk:
    """Writes every fact down, as the broker does, and can begin again from what was written."""

    registry: Registry = field(default_factory=Registry)
    log: list[Record] = field(default_factory=list)
    now_ms: int = 1_000

    def register(
        self,
        subject: str,
        text: str,
        *references: tuple[str, str, int],
        kind: SchemaKind = SchemaKind.AVRO,
        normalize: bool = False,
        **more: object,
    ) -> Version:
        listed = tuple(Reference(*one) for one in references)
        request = Request(text=text, kind=kind, references=listed, **more)  # type: ignore[arg-type]
        name = read_subject(subject)
        parsed = self.registry.draft_of_register(name, request, normalize=normalize).parse()
        known = self.registry.find_registered(parsed)
        if known is not None:
            return known
        if self.registry.needs_check(name):
            messages = self.registry.check(parsed).run()
            if messages:
                raise SchemaRefused(SchemaRefusal.INCOMPATIBLE, "; ".join(messages))
        fact, changes = self.registry.register(parsed, now_ms=self.now_ms)
        self.write(changes)
        return self.version(subject, fact.version)

    def version(self, subject: str, number: int = LATEST, *, with_deleted: bool = True) -> Version:
        return self.registry.find(read_subject(subject), number, with_deleted=with_deleted)

    def numbers(self, subject: str) -> list[int]:
        """Versions, those that are deleted as negative numbers."""
        versions = self.registry.catalog.versions(read_subject(subject))
        return [-one.number if one.is_deleted else one.number for one in versions]

    def delete(self, subject: str, number: int | None = None, *, permanent: bool = False) -> None:
        name = read_subject(subject)
        if number is None:
            _, changes = removal.delete_subject(self.registry, name, permanent=permanent)
        else:
            _, changes = removal.delete_version(self.registry, name, number, permanent=permanent)
        self.write(changes)

    def configure(self, subject: str = "", level: Level | None = None, **more: object) -> None:
        config = Config(level, **more)  # type: ignore[arg-type]
        self.write(removal.set_config(self.registry, read_subject(subject), config))

    def set_mode(self, mode: Mode, subject: str = "", *, force: bool = False) -> None:
        self.write(removal.set_mode(self.registry, read_subject(subject), mode, force=force))

    def write(self, changes: list[Change]) -> None:
        for change in changes:
            record = to_record(change, now_ms=self.now_ms)
            self.log.append(record)
            _replay(self.registry, record)

    def compacted(self) -> list[Record]:
        """The last record of each key, in the order of the log."""
        last = {record.key: index for index, record in enumerate(self.log)}
        return [record for index, record in enumerate(self.log) if last[record.key] == index]

    def restart(self) -> None:
        self.log = self.compacted()
        self.registry = Registry()
        for one in self.log:
            _replay(self.registry, one)


def _replay(registry: Registry, record: Record) -> None:
    fact = read_record(record.key or b"", record.value)
    assert fact is not None
    registry.apply(fact)


def subject(text: str) -> Subject:
    return read_subject(text)
