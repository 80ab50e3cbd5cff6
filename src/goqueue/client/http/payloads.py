"""Payloads of registered schemas as JSON, in the framing that serializers of the registry use.

    payloads = Payloads(client.schemas)
    write = payloads.writer(client.schemas.get("users-value"))
    value = write(b'{"name": "Ada"}')
    payloads.read("value", value).text

Whoever reads needs no schema: each payload names its own, which is fetched once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeVar

from goqueue.client.http.messages import Header
from goqueue.client.http.requests.schemas import SchemaReference, SchemaVersion
from goqueue.client.http.schemas import Schemas
from goqueue.model.errors import GoQueueError, SchemaRefused
from goqueue.schemas.formats import (
    Decode,
    Encode,
    ResolvedReference,
    Schema,
    SchemaKind,
    SchemaViolation,
    decoder,
    encoder,
    parse,
    protobuf_message_indexes,
)
from goqueue.schemas.formats.framing import (
    FIRST_MESSAGE,
    FRAME_BYTES,
    frame_in_headers,
    frame_of,
    is_frame,
    message_frame,
    read_message_frame,
    schema_in,
)

SCHEMAS_MAX = 1000  # kept; a topic has a few
REFERENCES_MAX = 1000  # schemas that one schema refers to, directly or not

K = TypeVar("K")
T = TypeVar("T")


class PayloadMismatch(GoQueueError):
    """A key or a value that cannot be written with its schema, or read with it."""

    code: ClassVar[str] = "payload_mismatch"


class Read(NamedTuple):
    """A payload as JSON on one line, and the schema that it names: an id, or a guid."""

    schema: int | str
    text: bytes


class Payloads:
    """Writes and reads payloads with the schemas of a registry. It belongs to one thread."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._known: dict[int | str, Schema | PayloadMismatch] = {}
        self._decoders: dict[tuple[int | str, tuple[int, ...]], Decode] = {}

    def writer(self, version: SchemaVersion, *, message: str = "") -> Encode:
        """A function from JSON to payloads; `PayloadMismatch` says what does not fit the schema.

        A Protobuf schema may have several messages: name one, or the first is meant.
        """
        schema = self._parsed(version)
        indexes: tuple[int, ...] = FIRST_MESSAGE
        head = frame_of(version.id)
        if schema.kind is SchemaKind.PROTOBUF:
            if message:
                indexes = _read(lambda: protobuf_message_indexes(schema, message), "")
            head += message_frame(indexes)
        elif message:
            raise PayloadMismatch(
                f"A message is named only in Protobuf; schema {version.id} is {version.kind}."
            )
        encode = _read(lambda: encoder(schema, indexes), "")

        def write(text: bytes) -> bytes:
            return head + _read(lambda: encode(text), f"It does not fit schema {version.id}")

        return write

    def read(self, part: str, payload: bytes, headers: tuple[Header, ...] = ()) -> Read:
        """A payload as JSON; `part` is `key` or `value`."""
        frame, rest = frame_in_headers(part, headers), payload
        if frame is None:
            frame, rest = payload[:FRAME_BYTES], payload[FRAME_BYTES:]
            if not is_frame(frame):
                raise PayloadMismatch(
                    f"The {part} names no schema: it does not begin with a zero byte and the four "
                    "bytes of a schema's id."
                )
        named = schema_in(frame)
        schema = self._schema(named)
        fault = f"The {part} does not fit schema {named}, which it names"
        indexes: tuple[int, ...] = FIRST_MESSAGE
        if schema.kind is SchemaKind.PROTOBUF:
            indexes, start = _read(lambda: read_message_frame(rest), fault)
            rest = rest[start:]
        decode = self._decoders.get((named, indexes))
        if decode is None:
            decode = _read(lambda: decoder(schema, indexes), fault)
            _keep(self._decoders, (named, indexes), decode)
        return Read(named, _read(lambda: decode(rest), fault))

    def _schema(self, named: int | str) -> Schema:
        """The schema of an id or a guid; that there is none is kept as well."""
        found = self._known.get(named)
        if found is None:
            try:
                found = self._parsed(self._version(named))
            except SchemaRefused as error:
                found = PayloadMismatch(f"The registry has no schema {named}: {error}")
            _keep(self._known, named, found)
        if isinstance(found, PayloadMismatch):
            raise found
        return found

    def _version(self, named: int | str) -> SchemaVersion:
        if isinstance(named, int):
            return self._schemas.get_by_id(named)
        return self._schemas.get_by_guid(named)

    def _parsed(self, version: SchemaVersion) -> Schema:
        references = _References(self._schemas).resolve(version.references)
        return parse(SchemaKind(version.kind), version.text, references)


class _References:
    """Fetches what a schema refers to, each version once."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._found: dict[tuple[str, int], SchemaVersion] = {}

    def resolve(self, references: tuple[SchemaReference, ...]) -> tuple[ResolvedReference, ...]:
        return tuple(self._resolved(one) for one in references)

    def _resolved(self, one: SchemaReference) -> ResolvedReference:
        place = one.subject, one.version
        found = self._found.get(place)
        if found is None:
            if len(self._found) >= REFERENCES_MAX:
                raise PayloadMismatch(f"A schema refers to more than {REFERENCES_MAX} others.")
            # A version that was deleted has not changed, so references to it are still resolved.
            found = self._schemas.get(one.subject, one.version, deleted=True)
            self._found[place] = found
        return ResolvedReference(one.name, found.text, self.resolve(found.references))


def _read(act: Callable[[], T], fault: str) -> T:
    try:
        return act()
    except SchemaViolation as violation:
        where = f" at {violation.path}" if violation.path else ""
        text = f"{fault}{where}: {violation.reason}" if fault else violation.reason
        raise PayloadMismatch(f"{text[:1].upper()}{text[1:]}.") from None


def _keep(kept: dict[K, T], key: K, value: T) -> None:
    if len(kept) >= SCHEMAS_MAX:
        kept.clear()
    kept[key] = value
