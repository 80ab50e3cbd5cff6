"""The entries that make up the registry, and the records of `__schemas` that hold them.

An entry is the complete state of one thing under a key. A later one under the same key replaces it,
and a key without a value deletes it, so the topic can be compacted and stays about as large as the
state. The highest id of a context is an entry of its own: its schema may be deleted and compacted
away, and the id must still never be assigned to another.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import msgspec

from goqueue.model.batch import Record
from goqueue.model.errors import UnsupportedVersion
from goqueue.schemas.formats import Reference, SchemaKind

FACT_VERSION = b"\x01"

_VERSION_PREFIX = b"version/"
_CONFIG_PREFIX = b"config/"
_MODE_PREFIX = b"mode/"
_IDS_PREFIX = b"ids/"


class CorruptSchemaState(Exception):
    """An invalid record of the registry's topic; it is skipped and reported."""


class VersionFact(msgspec.Struct, frozen=True, kw_only=True, tag="version", omit_defaults=True):
    """A version of a subject, with its content."""

    subject: str
    version: int
    id: int
    kind: SchemaKind
    text: str
    guid: str
    registered_at_ms: int
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    is_deleted: bool = False

    @property
    def key(self) -> bytes:
        return version_key(self.subject, self.version)


class ConfigFact(msgspec.Struct, frozen=True, kw_only=True, tag="config", omit_defaults=True):
    """The settings of a subject, a context or the whole registry."""

    subject: str
    level: str | None = None
    normalize: bool | None = None
    group: str | None = None
    alias: str | None = None
    default_metadata: dict[str, Any] | None = None
    override_metadata: dict[str, Any] | None = None
    default_rule_set: dict[str, Any] | None = None
    override_rule_set: dict[str, Any] | None = None

    @property
    def key(self) -> bytes:
        return config_key(self.subject)


class ModeFact(msgspec.Struct, frozen=True, kw_only=True, tag="mode"):
    """The mode of a subject, a context or the whole registry."""

    subject: str
    mode: str

    @property
    def key(self) -> bytes:
        return mode_key(self.subject)


class IdsFact(msgspec.Struct, frozen=True, kw_only=True, tag="ids"):
    """Ids of a context below this one have been assigned. A context exists once it has one."""

    context: str
    next_id: int

    @property
    def key(self) -> bytes:
        return _IDS_PREFIX + self.context.encode()


Fact = VersionFact | ConfigFact | ModeFact | IdsFact


class Change(NamedTuple):
    """One entry to store, or the key of one to delete."""

    key: bytes
    fact: Fact | None


class GoneVersion(NamedTuple):
    subject: str
    version: int


class GoneConfig(NamedTuple):
    subject: str


class GoneMode(NamedTuple):
    subject: str


Gone = GoneVersion | GoneConfig | GoneMode


def state(fact: Fact) -> Change:
    return Change(fact.key, fact)


def version_key(subject: str, version: int) -> bytes:
    return _VERSION_PREFIX + f"{version}/{subject}".encode()


def config_key(subject: str) -> bytes:
    return _CONFIG_PREFIX + subject.encode()


def mode_key(subject: str) -> bytes:
    return _MODE_PREFIX + subject.encode()


class _Kind(msgspec.Struct):
    """What every entry has."""

    type: str


_decoder: msgspec.msgpack.Decoder[Fact] = msgspec.msgpack.Decoder(Fact)
_kind_decoder = msgspec.msgpack.Decoder(_Kind)
_KINDS = frozenset(one.__struct_config__.tag for one in get_args(Fact))
_encoder = msgspec.msgpack.Encoder()


def to_record(change: Change, *, now_ms: int) -> Record:
    value = None if change.fact is None else FACT_VERSION + _encoder.encode(change.fact)
    return Record(change.key, value, timestamp_ms=now_ms)


def read_record(key: bytes, value: bytes | None) -> Fact | Gone | None:
    """Decode a record; None if it deletes what is not known here.

    Raise `UnsupportedVersion` for an entry of a later release: without it, ids could be assigned
    twice.
    """
    if value is None:
        return read_gone(key)
    what = f"The entry {key[:100]!r} of the schema registry"
    if value[:1] > FACT_VERSION:
        raise UnsupportedVersion.of_record(what, version=value[0], known=FACT_VERSION[0])
    try:
        if value[:1] == FACT_VERSION:
            return _decoder.decode(value[1:])
        problem = f"its version is {value[:1].hex()!r}"
    except msgspec.DecodeError as error:
        _check_kind(value, what)
        problem = str(error)
    raise CorruptSchemaState(f"{what} cannot be read: {problem}")


def _check_kind(value: bytes, what: str) -> None:
    """Raise if an entry that cannot be decoded is of a kind that only a later release has."""
    try:
        kind = _kind_decoder.decode(value[1:]).type
    except msgspec.DecodeError:
        return
    if kind not in _KINDS:
        raise UnsupportedVersion(f"{what} is of the unknown kind {kind[:50]!r}; upgrade this node.")


def read_gone(key: bytes) -> Gone | None:
    """What a key without a value deletes."""
    prefix, _, rest = key.partition(b"/")
    try:
        name = rest.decode()
        if prefix == b"version":
            number, _, subject = name.partition("/")
            return GoneVersion(subject, int(number))
    except ValueError:
        raise CorruptSchemaState(f"The key {key[:100]!r} cannot be read.") from None
    if prefix == b"config":
        return GoneConfig(name)
    return GoneMode(name) if prefix == b"mode" else None
