"""Keys and values of registered schemas, decoded for `goqueue consume`."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from goqueue.cli.payload_options import OnMismatch, Part
from goqueue.client import ReadRecord
from goqueue.client.http import Client
from goqueue.client.http.payloads import PayloadMismatch, Payloads, Read


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record whose key or value is JSON; a schema is absent where the part is shown as it is."""

    record: ReadRecord
    key_schema: int | str | None = None
    value_schema: int | str | None = None


class Decoding:
    """Decodes keys, values or both of the records that are printed."""

    def __init__(self, client: Client, part: Part, on_mismatch: OnMismatch) -> None:
        self._payloads = Payloads(client.schemas)
        self._has_key = part is not Part.VALUE
        self._has_value = part is not Part.KEY
        self._on_mismatch = on_mismatch

    def decode(self, record: ReadRecord) -> DecodedRecord | None:
        """The record with JSON, or None if it is skipped."""
        try:
            key = self._read(Part.KEY, record.key, record) if self._has_key else None
            value = self._read(Part.VALUE, record.value, record) if self._has_value else None
        except PayloadMismatch as error:
            place = f"{record.topic}/{record.partition} at offset {record.offset}"
            if self._on_mismatch is OnMismatch.STOP:
                raise PayloadMismatch(
                    f"Message {place}: {error} Use --on-mismatch skip or raw to go on."
                ) from error
            typer.echo(f"Message {place}: {error}", err=True)
            return None if self._on_mismatch is OnMismatch.SKIP else DecodedRecord(record)
        shown = record._replace(
            key=record.key if key is None else key.text,
            value=record.value if value is None else value.text,
        )
        return DecodedRecord(
            shown,
            None if key is None else key.schema,
            None if value is None else value.schema,
        )

    def _read(self, part: Part, payload: bytes | None, record: ReadRecord) -> Read | None:
        if payload is None:
            return None
        return self._payloads.read(part, payload, record.headers)
