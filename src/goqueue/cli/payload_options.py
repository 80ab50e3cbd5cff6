"""Keys and values of registered schemas: the options of `goqueue produce` and `consume`."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue.cli.extras import need_schemas
from goqueue.client.http.requests.schemas import Kind, SchemaVersion
from goqueue.model.errors import InvalidRequest, SchemaRefused

if TYPE_CHECKING:
    from goqueue.client.http import Client

LATEST = "latest"
KINDS_BY_SUFFIX: dict[str, Kind] = {
    ".avsc": "AVRO",
    ".avro": "AVRO",
    ".json": "JSON",
    ".proto": "PROTOBUF",
}
_INLINE = ("{", "[", '"')  # how the text of an Avro schema begins
_ID = "id:"


class Part(enum.StrEnum):
    KEY = "key"
    VALUE = "value"
    BOTH = "both"


class OnMismatch(enum.StrEnum):
    STOP = "stop"
    SKIP = "skip"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """What the options say about the schema of the keys or of the values to produce."""

    part: Part
    schema: str
    subject: str | None = None
    message: str = ""

    def writer(self, client: Client, topic: str) -> Callable[[bytes], bytes]:
        """Look the schema up, or register it, and return what makes payloads of JSON."""
        need_schemas()
        subject = self.subject or f"{topic}-{self.part}"
        try:
            version = self._version(client, subject)
        except SchemaRefused as error:
            raise InvalidRequest(f"--{self.part}-schema {self.schema[:100]}: {error}") from error
        from goqueue.client.http.payloads import PayloadMismatch, Payloads

        write = Payloads(client.schemas).writer(version, message=self.message)

        def encode(text: bytes) -> bytes:
            try:
                return write(text)
            except PayloadMismatch as error:
                shown = text[:60].decode("utf-8", "replace")
                raise InvalidRequest(f"The {self.part} {shown!r} was not sent. {error}") from error

        return encode

    def _version(self, client: Client, subject: str) -> SchemaVersion:
        schema = self.schema
        if schema == LATEST or schema.isdecimal():
            return client.schemas.get(subject, schema)
        if schema.startswith(_ID):
            number = schema.removeprefix(_ID)
            if not number.isdecimal():
                raise InvalidRequest(f"--{self.part}-schema {schema}: an id is a number.")
            return client.schemas.get_by_id(int(number))
        if schema.lstrip().startswith(_INLINE):
            return client.schemas.register(subject, schema, kind="AVRO")
        file = Path(schema)
        kind = KINDS_BY_SUFFIX.get(file.suffix.lower())
        if kind is None:
            raise InvalidRequest(
                f"--{self.part}-schema {schema[:100]} is none of: {LATEST}, the number of a "
                f"version, {_ID}NUMBER, a file ending in .avsc, .json or .proto, the text of an "
                "Avro schema."
            )
        return client.schemas.register(subject, read_schema(schema), kind=kind)


def read_schema(file: str) -> str:
    """The text of a schema in a file, or on standard input."""
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The schema in {file} cannot be read: {error}.") from error


def written_part(
    part: Part, schema: str | None, subject: str | None, message: str
) -> WrittenPart | None:
    """What the options of a part say, or None if it is written as it is given."""
    if schema is not None:
        return WrittenPart(part, schema, subject, message)
    if subject is not None or message:
        raise InvalidRequest(f"--{part}-subject and --{part}-message need --{part}-schema.")
    return None
