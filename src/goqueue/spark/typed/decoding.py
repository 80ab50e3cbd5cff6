"""Decodes a column of framed bytes to a typed column, with a reason for each undecodable value.

Each value is decoded by the schema id in its first bytes. Values of the same schema are decoded
together, because their format may have a fast path for many values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goqueue.model.errors import InvalidRequest
from goqueue.spark.typed.framing import HEAD_BYTES, names_schema, schema_id_of
from goqueue.spark.typed.registry import SchemaText, UnknownSchema
from goqueue.spark.typed.shapes import Shape

WRITERS_MAX = 1000  # schemas cached by one task
UNKNOWN_MAX = 100  # unknown ids before the registry is no longer requested
REASON_LENGTH_MAX = 500

Decode = Callable[[bytes], Any]
DecodeColumn = Callable[[pa.Array], pa.Array | None]
Ints = np.ndarray[Any, np.dtype[np.int64]]


class Schemas(Protocol):
    """Where the writers' schemas are looked up."""

    def by_id(self, schema_id: int) -> SchemaText: ...


class Reader(Protocol):
    """A schema that values are read with."""

    @property
    def shape(self) -> Shape: ...

    def decoder(self, writer: SchemaText) -> Decode: ...

    def column_decoder(self, writer: SchemaText) -> DecodeColumn | None:
        """Return a decoder for many values of one writer; None if there is only one by one."""
        ...


def reader_of(schema: SchemaText, message: str | None = None) -> Reader:
    """Return the reader of a schema, of any format; loads the library of the format."""
    if message is not None and schema.kind != "PROTOBUF":
        raise InvalidRequest(f"{schema} is {schema.kind} and has no messages to choose from.")
    match schema.kind:
        case "AVRO":
            from goqueue.spark.typed.avro import AvroReader

            return AvroReader(schema)
        case "JSON":
            from goqueue.spark.typed.json_schema import JsonReader

            return JsonReader(schema)
        case "PROTOBUF":
            from goqueue.spark.typed.protobuf import ProtobufReader

            return ProtobufReader(schema, message)


@dataclass(slots=True)
class _Writer:
    """How values with one head are decoded: one by one, and if possible many at once."""

    decode: Decode
    decode_column: DecodeColumn | None = None


class ColumnDecoder:
    """Decodes the values of one column, whichever schemas they were written with."""

    def __init__(self, schema: SchemaText, registry: Schemas, message: str | None = None) -> None:
        self._schema = schema
        self._registry = registry
        self._reader = reader_of(schema, message)
        self._writers: dict[bytes, _Writer] = {}
        self._unknown = 0

    @property
    def shape(self) -> Shape:
        return self._reader.shape

    def decode(self, column: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the typed column, and the reasons of rows that became null."""
        parts: list[pa.Array] = []
        row_indexes: list[Ints] = []
        reasons: dict[int, str] = {}
        for head, rows in _by_head(column):
            part = column if len(rows) == len(column) else column.take(pa.array(rows))
            writer = self._writer(head)
            whole = writer.decode_column(part) if writer.decode_column is not None else None
            if whole is None:
                whole, found = self._decode_each(part, writer.decode)
                reasons |= {int(rows[row]): reason for row, reason in found.items()}
            parts.append(whole)
            row_indexes.append(rows)
        if len(parts) == 1 and len(parts[0]) == len(column):
            return parts[0], reasons
        return _joined(parts, row_indexes, len(column), self.shape.arrow), reasons

    def _decode_each(self, column: pa.Array, decode: Decode) -> tuple[pa.Array, dict[int, str]]:
        values: list[Any] = column.to_pylist()
        reasons: dict[int, str] = {}
        for row, data in enumerate(values):
            try:
                values[row] = decode(data)
            # The libraries raise arbitrary exceptions for malformed bytes.
            except Exception as error:
                values[row], reasons[row] = None, _reason(error)
        try:
            return self.shape.build(values), reasons
        except _UNFIT:
            return self._build_one_by_one(values, reasons), reasons

    def _build_one_by_one(self, values: list[Any], reasons: dict[int, str]) -> pa.Array:
        """Find the values that their columns cannot hold, such as times out of range."""
        for row, value in enumerate(values):
            try:
                self.shape.build([value])
            except _UNFIT as error:
                values[row], reasons[row] = None, _reason(error)
        return self.shape.build(values)

    def _writer(self, head: bytes) -> _Writer:
        """Return the decoder for values with this head. Errors are cached too, within a task."""
        found = self._writers.get(head)
        if found is not None:
            return found
        try:
            made = self._new_writer(head)
        except UnknownSchema as error:
            self._unknown += 1
            made = _Writer(_failing(str(error)))
        except InvalidRequest as error:
            made = _Writer(_failing(str(error)))
        if len(self._writers) >= WRITERS_MAX:
            self._writers.clear()
        self._writers[head] = made
        return made

    def _new_writer(self, head: bytes) -> _Writer:
        if not names_schema(head):
            return _Writer(
                _failing(
                    "it does not begin with a zero byte and the id of a schema, as serializers of "
                    "a registry write it"
                )
            )
        schema_id = schema_id_of(head)
        own = self._schema
        if schema_id != own.id and self._unknown >= UNKNOWN_MAX:
            raise InvalidRequest(
                f"it names schema {schema_id}; {UNKNOWN_MAX} schemas were asked for that are not "
                "known, so this one was not"
            )
        writer = own if schema_id == own.id else self._registry.by_id(schema_id)
        if writer.kind != own.kind:
            return _Writer(
                _failing(
                    f"it was written with {writer}, which is {writer.kind}; {own} is {own.kind}"
                )
            )
        return _Writer(self._reader.decoder(writer), self._reader.column_decoder(writer))


def _by_head(column: pa.Array) -> Iterator[tuple[bytes, Ints]]:
    """Yield the rows of the values with each head; null values are omitted.

    Values without a valid head are returned together.
    """
    heads = pc.binary_slice(column, 0, HEAD_BYTES).dictionary_encode()
    names = np.array([names_schema(head) for head in heads.dictionary.to_pylist()], np.bool_)
    numbers = heads.indices.fill_null(len(names)).to_numpy()
    is_named = np.append(names, True)[numbers]
    if not is_named.all():
        yield b"", np.flatnonzero(~is_named)
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(names) + 1)).tolist()
    for number in np.flatnonzero(names).tolist():
        yield heads.dictionary[number].as_py(), order[bounds[number] : bounds[number + 1]]


def _joined(
    parts: Sequence[pa.Array], row_indexes: Sequence[Ints], count: int, kind: pa.DataType
) -> pa.Array:
    """Place the parts at their rows of `count`, with null elsewhere."""
    if not parts:
        return pa.nulls(count, kind)
    numbers, absent = np.zeros(count, np.int64), np.ones(count, np.bool_)
    rows = np.concatenate(row_indexes)
    numbers[rows], absent[rows] = np.arange(len(rows)), False
    return pa.concat_arrays(parts).take(pa.array(numbers, mask=absent))


_UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError)


def _failing(reason: str) -> Decode:
    def fail(_: bytes) -> Any:
        raise ValueError(reason)

    return fail


def _reason(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    if isinstance(error, EOFError):
        text = "the bytes end before the value does"
    return text[:REASON_LENGTH_MAX]


def error_column(reasons: Mapping[int, str], rows: int) -> pa.Array:
    """Return the reasons as a column, null where a value was decoded."""
    texts: list[str | None] = [None] * rows
    for row, reason in reasons.items():
        texts[row] = reason
    return pa.array(texts, pa.string())
