"""Fetches schemas from a registry: those that columns are read with and those of the writers.

An id always refers to the same schema, so a process caches what it has fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

import msgspec

from goqueue.client import Unreachable
from goqueue.client.http.request import Request, reading
from goqueue.client.http.requests.schemas import Kind, SchemaReference, SchemaVersion
from goqueue.client.http.settings import RetrySettings
from goqueue.client.http.transport import Transport
from goqueue.model.errors import GoQueueError, SchemaRefused
from goqueue.spark.access import OPEN, Access
from goqueue.spark.connecting import http_settings

REFERENCES_MAX = 1000  # schemas referenced by one schema, directly or indirectly
SCHEMAS_KEPT_MAX = 1000  # per process; a topic has a few
_SERIALIZED = {"format": "serialized"}  # Protobuf as descriptors, which need no parser here


class RegistryUnusable(GoQueueError):
    """A registry does not return the required schema."""

    code = "registry_unusable"


class UnknownSchema(GoQueueError):
    """The registry responds, but has no such schema."""

    code = "unknown_schema"


@dataclass(frozen=True, slots=True)
class ReferenceText:
    """A schema that another one references by this name."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema and everything it references, each after its own references.

    For Protobuf the texts are serialized descriptors in base64.
    """

    kind: Kind
    id: int
    text: str
    references: tuple[ReferenceText, ...] = ()
    subject: str = ""
    version: int = 0

    def __str__(self) -> str:
        if self.subject:
            return f"version {self.version} of {self.subject} (schema {self.id})"
        return f"schema {self.id}"


@dataclass(frozen=True, slots=True)
class Registry:
    """A schema registry at a URL, in the form that Confluent's clients take."""

    url: str
    retries_max: int = 2  # a driver fails soon if the registry does not respond
    access: Access = OPEN

    def version(self, subject: str, version: int | None) -> SchemaText:
        """Return a version of a subject, or the latest."""
        path = _path("subjects", subject, "versions", "latest" if version is None else version)
        with _Asking(self) as asking:
            return asking.whole(asking.schema(path), path)

    def by_id(self, schema_id: int) -> SchemaText:
        """Return the schema of an id; raises `UnknownSchema` if there is none."""
        return _by_id(self, schema_id)


@lru_cache(SCHEMAS_KEPT_MAX)
def _by_id(registry: Registry, schema_id: int) -> SchemaText:
    path = _path("schemas", "ids", schema_id)
    with _Asking(registry) as asking:
        return asking.whole(asking.schema(path, schema_id), path)


class _Asking:
    """One connection, for a schema and its references."""

    def __init__(self, registry: Registry) -> None:
        self._url = registry.url
        retry = RetrySettings(retries_max=registry.retries_max)
        self._transport = Transport(registry.url, http_settings(registry.access, retry))
        self._found: dict[str, ReferenceText] = {}

    def __enter__(self) -> _Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def schema(
        self, path: str, schema_id: int = 0, query: dict[str, str] | None = None
    ) -> SchemaVersion:
        try:
            tree = self._transport.send(Request("GET", path, _read_tree, query or {}))
        except SchemaRefused as error:
            raise UnknownSchema(f"The registry at {self._url} says: {error}") from error
        except Unreachable as error:
            raise RegistryUnusable(
                f"No schema registry answers at {self._url}; start it, or name another with the "
                f"option schema.registry. ({error})"
            ) from error
        except GoQueueError as error:
            raise RegistryUnusable(
                f"{self._url}{path} does not answer as a schema registry does; is the option "
                f"schema.registry right? ({error})"
            ) from error
        return _read_version({"id": schema_id, **tree})

    def whole(self, found: SchemaVersion, path: str) -> SchemaText:
        """Return a schema with the texts of all its references."""
        text = found.text
        if found.kind == "PROTOBUF":
            text = self.schema(path, found.id, _SERIALIZED).text
        self._follow(found.references)
        return SchemaText(
            found.kind,
            found.id,
            text,
            tuple(self._found.values()),
            found.subject,
            found.version,
        )

    def _follow(self, references: tuple[SchemaReference, ...]) -> None:
        for one in references:
            if one.name in self._found:
                continue
            if len(self._found) >= REFERENCES_MAX:
                raise RegistryUnusable(f"A schema refers to more than {REFERENCES_MAX} others.")
            path = _path("subjects", one.subject, "versions", one.version)
            # Its entry is created before it is filled, so that cycles end.
            self._found[one.name] = ReferenceText(one.name, "")
            # A deleted version has not changed, so references to it are still resolved.
            found = self.schema(path, query={"deleted": "true"})
            text = found.text
            if found.kind == "PROTOBUF":
                text = self.schema(path, query={"deleted": "true", **_SERIALIZED}).text
            self._follow(found.references)
            del self._found[one.name]
            self._found[one.name] = ReferenceText(one.name, text)


_read_tree = reading(dict[str, object])


def _read_version(tree: dict[str, object]) -> SchemaVersion:
    return msgspec.convert(tree, SchemaVersion)


def _path(*names: object) -> str:
    return "/" + "/".join(quote(str(name), safe="") for name in names)
