"""The schema registry: subjects, versions, compatibility."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar
from urllib.parse import quote

import msgspec

from goqueue.client.http.request import Repeat, Request, body_of, body_with, reading
from goqueue.wire.http.bodies import registry as bodies

T = TypeVar("T")

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
Level = Literal[
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
]
LATEST = "latest"
# Without it the registry responds as to clients that know neither guids nor versions.
_NEW_FIELDS = {"confluent-accept-unknown-properties": "true"}


class SchemaReference(msgspec.Struct, frozen=True):
    """A reference to another schema: its name in the text, its subject and its version."""

    name: str
    subject: str
    version: int


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a subject."""

    subject: str = ""
    version: int = 0
    id: int
    kind: Kind = msgspec.field(name="schemaType", default="AVRO")
    text: str = msgspec.field(name="schema", default="")
    references: tuple[SchemaReference, ...] = ()
    guid: str = ""
    is_deleted: bool = msgspec.field(name="deleted", default=False)


class SchemaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a subject or of the whole registry; None means not set there."""

    level: Level | None = None
    normalize: bool | None = None


class _Config(msgspec.Struct):
    compatibilityLevel: Level | None = None
    compatibility: Level | None = None
    normalize: bool | None = None


class _Compared(msgspec.Struct):
    is_compatible: bool
    messages: list[str] = []


_read_version = reading(SchemaVersion)
_read_versions = reading(list[SchemaVersion])
_read_names = reading(list[str])
_read_numbers = reading(list[int])
_read_number = reading(int)
_read_config = reading(_Config)
_read_compared = reading(_Compared)


class SchemaRequests:
    def register(
        self,
        subject: str,
        text: str,
        *,
        kind: Kind = "AVRO",
        references: Sequence[SchemaReference] = (),
        normalize: bool = False,
    ) -> Request[SchemaVersion]:
        """Register a schema as a version of a subject, unless it is one already."""
        return Request(
            "POST",
            _path("subjects", subject, "versions"),
            lambda data: msgspec.structs.replace(_read_version(data), subject=subject, text=text),
            _flags(normalize=normalize),
            body_of(_schema(text, kind, references)),
            headers=_NEW_FIELDS,
        )

    def get(
        self, subject: str, version: int | str = LATEST, *, deleted: bool = False
    ) -> Request[SchemaVersion]:
        """Return a version of a subject."""
        path = _path("subjects", subject, "versions", version)
        return Request("GET", path, _read_version, _flags(deleted=deleted), headers=_NEW_FIELDS)

    def get_by_id(self, schema_id: int) -> Request[SchemaVersion]:
        """Return the schema of an id, without subjects."""

        def read(data: bytes) -> SchemaVersion:
            tree = reading(dict[str, object])(data)
            return _read_version(msgspec.json.encode({"id": schema_id, **tree}))

        return Request("GET", _path("schemas", "ids", schema_id), read, headers=_NEW_FIELDS)

    def get_by_guid(self, guid: str) -> Request[SchemaVersion]:
        """Return the schema of a guid, without id and subjects."""

        def read(data: bytes) -> SchemaVersion:
            tree = reading(dict[str, object])(data)
            return _read_version(msgspec.json.encode({"id": 0, **tree}))

        return Request("GET", _path("schemas", "guids", guid), read, headers=_NEW_FIELDS)

    def subjects(self, *, prefix: str = "", deleted: bool = False) -> Request[list[str]]:
        """Return the names of the subjects that have a version."""
        query = _flags(deleted=deleted)
        query |= {"subjectPrefix": prefix} if prefix else {}
        return Request("GET", _path("subjects"), _read_names, query)

    def list_page(
        self,
        *,
        prefix: str = "",
        latest_only: bool = False,
        deleted: bool = False,
        offset: int = 0,
        limit: int = 1000,
    ) -> Request[list[SchemaVersion]]:
        """Return versions of all subjects with a name prefix."""
        query = _flags(latestOnly=latest_only, deleted=deleted)
        query |= {"subjectPrefix": prefix, "offset": str(offset), "limit": str(limit)}
        return Request("GET", _path("schemas"), _read_versions, query)

    def check(
        self,
        subject: str,
        text: str,
        *,
        kind: Kind = "AVRO",
        references: Sequence[SchemaReference] = (),
        version: int | str | None = None,
    ) -> Request[list[str]]:
        """Return why a schema is incompatible with a subject or one version, if it is."""
        path = ("compatibility", "subjects", subject, "versions")
        return Request(
            "POST",
            _path(*path) if version is None else _path(*path, version),
            lambda data: _read_compared(data).messages,
            {"verbose": "true"},
            body_of(_schema(text, kind, references)),
        )

    def config(self, subject: str | None = None, *, own: bool = False) -> Request[SchemaConfig]:
        """Return the settings in effect for a subject, or only its own, or the global ones."""
        query = {} if own else {"defaultToGlobal": "true"}
        return Request("GET", _config_path(subject), _config, query)

    def configure(
        self,
        subject: str | None = None,
        *,
        level: Level | None = None,
        normalize: bool | None = None,
    ) -> Request[SchemaConfig]:
        """Change settings of a subject, or of the whole registry."""
        body = body_with(compatibility=level, normalize=normalize)
        return Request("PUT", _config_path(subject), _config, body=body)

    def unset_config(self, subject: str | None = None) -> Request[SchemaConfig]:
        """Remove settings; return what they were."""
        return Request("DELETE", _config_path(subject), _config, repeat=Repeat.AMBIGUOUS)

    def delete(self, subject: str, *, permanent: bool = False) -> Request[list[int]]:
        """Delete all versions of a subject; the second time, with `permanent`, for good."""
        return _deletion(_path("subjects", subject), _read_numbers, permanent=permanent)

    def delete_version(
        self, subject: str, version: int | str, *, permanent: bool = False
    ) -> Request[int]:
        """Delete one version, in the same way."""
        path = _path("subjects", subject, "versions", version)
        return _deletion(path, _read_number, permanent=permanent)


def _path(*names: object) -> str:
    return "/registry/" + "/".join(quote(str(name), safe="") for name in names)


def _config_path(subject: str | None) -> str:
    return _path("config") if subject is None else _path("config", subject)


def _flags(**flags: bool) -> dict[str, str]:
    return {name: "true" for name, is_set in flags.items() if is_set}


def _deletion(path: str, read: Callable[[bytes], T], *, permanent: bool) -> Request[T]:
    return Request("DELETE", path, read, _flags(permanent=permanent), repeat=Repeat.AMBIGUOUS)


def _schema(text: str, kind: Kind, references: Sequence[SchemaReference]) -> bodies.SchemaBody:
    listed = [
        bodies.ReferenceBody(name=one.name, subject=one.subject, version=one.version)
        for one in references
    ]
    return bodies.SchemaBody(schema=text, schemaType=kind, references=listed)


def _config(data: bytes) -> SchemaConfig:
    config = _read_config(data)
    return SchemaConfig(
        level=config.compatibilityLevel or config.compatibility, normalize=config.normalize
    )
