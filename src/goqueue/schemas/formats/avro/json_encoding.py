"""Avro values as JSON, by the JSON encoding of the Avro specification, and as bytes.

Bytes and fixed are strings of one character per byte, a value of a union is `{"its type": value}`
unless it is null, and logical types are shown as the type that they annotate. When JSON is read, a
value of a union may also be written without its type, and a field that has a default may be left
out. Nothing here is a hot path: it serves people, at a command line or a page.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator

from goqueue.schemas.formats.avro.types import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    NO_DEFAULT,
    AvroType,
)
from goqueue.schemas.formats.avro.validation import (
    VALUE_DEPTH_MAX,
    Fault,
    is_without_bytes,
    read_bytes,
    read_number,
    validator,
)
from goqueue.schemas.formats.interface import Decode, Encode
from goqueue.schemas.formats.json_text import read_value

EMPTY_ITEMS_MAX = 100_000  # items of an array that have no bytes, so that few bytes announce many

_Write = Callable[[object, bytearray, int], None]  # value, output, depth
_Read = Callable[[bytes, int], tuple[object, int]]  # data, position; the value, and where it ends

_FLOATS = {"NaN", "Infinity", "-Infinity"}  # as Avro writes what JSON has no number for


def encoder(root: AvroType) -> Encode:
    """A function from JSON to the bytes of a value; `SchemaViolation` names what does not fit."""
    write = _Writers(is_default=False).of(root)

    def encode(text: bytes) -> bytes:
        out = bytearray()
        try:
            write(read_value(text), out, 0)
        except Fault as fault:
            raise fault.violation() from None
        return bytes(out)

    return encode


def decoder(root: AvroType) -> Decode:
    """A function from the bytes of a value to JSON; `SchemaViolation` if they are no value."""
    check = validator(root)
    read = _Readers().of(root)

    def decode(payload: bytes | memoryview) -> bytes:
        check(payload)  # so that reading cannot fail, or recurse too deeply
        try:
            value, _ = read(bytes(payload), 0)
        except Fault as fault:
            raise fault.violation() from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    return decode


def _tag(branch: AvroType) -> str:
    return branch.title


class _Writers:
    """Makes a function for each type; a record may contain itself.

    A default is written without the types of unions, unlike a value.
    """

    def __init__(self, *, is_default: bool) -> None:
        self._is_default = is_default
        self._records: dict[int, _Write] = {}

    def of(self, given: AvroType) -> _Write:
        match given.kind:
            case "record":
                return self._records.get(id(given)) or self._record(given)
            case "union":
                return self._union(given)
            case "array":
                return self._array(self.of(given.item))
            case "map":
                return self._map(self.of(given.item))
            case "enum":
                return _enum_writer(given)
            case "fixed":
                return _fixed_writer(given)
            case _:
                return _WRITE_PLAIN[given.kind]

    def _record(self, given: AvroType) -> _Write:
        fields: list[tuple[str, _Write, bytes | None]] = []
        names = {each.name for each in given.fields}

        def write(value: object, out: bytearray, depth: int) -> None:
            members = _object(value, given.title, depth)
            for name in members:
                if name not in names:
                    raise Fault(f"the record {given.title} has no field {name[:100]!r}")
            for name, each, default in fields:
                if name in members:
                    _within(f".{name}", each, members[name], out, depth + 1)
                elif default is None:
                    raise Fault(f"the field {name!r} is missing, and has no default")
                else:
                    out += default

        self._records[id(given)] = write  # before its fields, which may contain it
        for each in given.fields:
            default = None
            if each.default is not NO_DEFAULT:
                default = bytearray()
                _Writers(is_default=True).of(each.type)(each.default, default, 0)
            fields.append(
                (each.name, self.of(each.type), None if default is None else bytes(default))
            )
        return write

    def _union(self, given: AvroType) -> _Write:
        branches = [self.of(one) for one in given.branches]
        tags = {_tag(one): index for index, one in enumerate(given.branches)}

        def write_branch(index: int, value: object, out: bytearray, depth: int) -> None:
            out += _number(index)
            branches[index](value, out, depth)

        def write(value: object, out: bytearray, depth: int) -> None:
            if value is None and "null" in tags:
                out += _number(tags["null"])
                return
            if isinstance(value, dict) and len(value) == 1 and not self._is_default:
                ((tag, inner),) = value.items()
                if tag in tags:
                    write_branch(tags[tag], inner, out, depth)
                    return
            faults = []
            for index, branch in enumerate(given.branches):
                tried = bytearray()
                try:
                    write_branch(index, value, tried, depth)
                except Fault as fault:
                    if branch.kind != "null":
                        faults.append(fault)
                    continue
                out += tried
                return
            if len(faults) == 1:
                raise faults[0]
            shown = ", ".join(list(tags)[:10])
            raise Fault(
                f"{_shown(value)} is of no type of the union ({shown}); write "
                '{"the type": value} to see what does not fit'
            )

        return write

    @staticmethod
    def _array(item: _Write) -> _Write:
        def write(value: object, out: bytearray, depth: int) -> None:
            if not isinstance(value, list):
                raise Fault(f"{_shown(value)} is no array")
            if value:
                out += _number(len(value))
                for index, one in enumerate(value):
                    _within(f"[{index}]", item, one, out, depth)
            out += b"\0"

        return write

    @staticmethod
    def _map(item: _Write) -> _Write:
        def write(value: object, out: bytearray, depth: int) -> None:
            members = _object(value, "map", depth)
            if members:
                out += _number(len(members))
                for name, one in members.items():
                    _write_string(name, out, depth)
                    _within(f"[{name[:100]!r}]", item, one, out, depth)
            out += b"\0"

        return write


def _within(step: str, write: _Write, value: object, out: bytearray, depth: int) -> None:
    try:
        write(value, out, depth)
    except Fault as fault:
        fault.steps.append(step)
        raise


def _object(value: object, what: str, depth: int) -> dict[str, object]:
    if depth > VALUE_DEPTH_MAX:
        raise Fault(f"records are nested more than {VALUE_DEPTH_MAX} levels deep")
    if not isinstance(value, dict):
        raise Fault(f"{_shown(value)} is no object, as a {what} is")
    return value


def _enum_writer(given: AvroType) -> _Write:
    symbols = {name: _number(index) for index, name in enumerate(given.symbols)}

    def write(value: object, out: bytearray, depth: int) -> None:
        if not isinstance(value, str) or value not in symbols:
            shown = ", ".join(given.symbols[:10])
            raise Fault(f"{_shown(value)} is no symbol of the enum {given.title} ({shown})")
        out += symbols[value]

    return write


def _fixed_writer(given: AvroType) -> _Write:
    def write(value: object, out: bytearray, depth: int) -> None:
        data = _latin(value)
        if len(data) != given.size:
            raise Fault(f"{len(data)} bytes, but {given.title} has {given.size}")
        out += data

    return write


def _write_null(value: object, out: bytearray, depth: int) -> None:
    if value is not None:
        raise Fault(f"{_shown(value)} is not null")


def _write_boolean(value: object, out: bytearray, depth: int) -> None:
    if not isinstance(value, bool):
        raise Fault(f"{_shown(value)} is no boolean")
    out += b"\1" if value else b"\0"


def _integer_writer(kind: str, low: int, high: int) -> _Write:
    def write(value: object, out: bytearray, depth: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Fault(f"{_shown(value)} is no {kind}")
        if not low <= value <= high:
            raise Fault(f"{_shown(value)} does not fit into the type {kind}")
        out += _number(value)

    return write


def _float_writer(kind: str, form: struct.Struct) -> _Write:
    def write(value: object, out: bytearray, depth: int) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number and not (isinstance(value, str) and value in _FLOATS):
            raise Fault(f"{_shown(value)} is no {kind}")
        try:
            out += form.pack(float(value))  # type: ignore[arg-type]
        except OverflowError:
            raise Fault(f"{_shown(value)} does not fit into the type {kind}") from None

    return write


def _write_bytes(value: object, out: bytearray, depth: int) -> None:
    data = _latin(value)
    out += _number(len(data))
    out += data


def _write_string(value: object, out: bytearray, depth: int) -> None:
    if not isinstance(value, str):
        raise Fault(f"{_shown(value)} is no string")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise Fault("a string has half of a surrogate pair") from None
    out += _number(len(data))
    out += data


def _latin(value: object) -> bytes:
    if not isinstance(value, str):
        raise Fault(f"{_shown(value)} is no string, as which bytes are written")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise Fault(
            "bytes are written as a string of one character per byte, from \\u0000 to \\u00ff"
        ) from None


def _number(value: int) -> bytes:
    """A zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


_FLOAT_END = 3.4028235e38  # what rounds to more has no float
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_WRITE_PLAIN: dict[str, _Write] = {
    "null": _write_null,
    "boolean": _write_boolean,
    "int": _integer_writer("int", INT_MIN, INT_MAX),
    "long": _integer_writer("long", LONG_MIN, LONG_MAX),
    "float": _float_writer("float", _FLOAT),
    "double": _float_writer("double", _DOUBLE),
    "bytes": _write_bytes,
    "string": _write_string,
}


class _Readers:
    """Makes a function for each type; they are given bytes that were checked."""

    def __init__(self) -> None:
        self._records: dict[int, _Read] = {}

    def of(self, given: AvroType) -> _Read:
        match given.kind:
            case "record":
                return self._records.get(id(given)) or self._record(given)
            case "union":
                return self._union(given)
            case "array":
                return _array_reader(self.of(given.item), is_without_bytes(given.item, set()))
            case "map":
                return _map_reader(self.of(given.item))
            case "enum":
                return _enum_reader(given.symbols)
            case "fixed":
                return _fixed_reader(given.size)
            case _:
                return _READ_PLAIN[given.kind]

    def _record(self, given: AvroType) -> _Read:
        fields: list[tuple[str, _Read]] = []

        def read(data: bytes, at: int) -> tuple[object, int]:
            members = {}
            for name, each in fields:
                members[name], at = each(data, at)
            return members, at

        self._records[id(given)] = read  # before its fields, which may contain it
        fields += [(each.name, self.of(each.type)) for each in given.fields]
        return read

    def _union(self, given: AvroType) -> _Read:
        branches = [(_tag(one), self.of(one)) for one in given.branches]

        def read(data: bytes, at: int) -> tuple[object, int]:
            index, at = read_number(data, at)
            tag, each = branches[index]
            value, at = each(data, at)
            return (None if tag == "null" else {tag: value}), at

        return read


def _array_reader(item: _Read, is_empty: bool) -> _Read:
    def read(data: bytes, at: int) -> tuple[object, int]:
        values: list[object] = []
        while True:
            count, at = _block(data, at)
            if count == 0:
                return values, at
            if is_empty and len(values) + count > EMPTY_ITEMS_MAX:
                raise Fault(f"an array of more than {EMPTY_ITEMS_MAX} items without content")
            for _ in range(count):
                value, at = item(data, at)
                values.append(value)

    return read


def _map_reader(item: _Read) -> _Read:
    def read(data: bytes, at: int) -> tuple[object, int]:
        members: dict[str, object] = {}
        while True:
            count, at = _block(data, at)
            if count == 0:
                return members, at
            for _ in range(count):
                name, at = _read_string(data, at)
                members[str(name)], at = item(data, at)

    return read


def _block(data: bytes, at: int) -> tuple[int, int]:
    count, at = read_number(data, at)
    if count < 0:
        _, at = read_number(data, at)
    return abs(count), at


def _enum_reader(symbols: tuple[str, ...]) -> _Read:
    def read(data: bytes, at: int) -> tuple[object, int]:
        index, at = read_number(data, at)
        return symbols[index], at

    return read


def _fixed_reader(size: int) -> _Read:
    return lambda data, at: (data[at : at + size].decode("latin-1"), at + size)


def _read_bytes(data: bytes, at: int) -> tuple[object, int]:
    end = read_bytes(data, at, 0)
    _, at = read_number(data, at)
    return data[at:end].decode("latin-1"), end


def _read_string(data: bytes, at: int) -> tuple[object, int]:
    end = read_bytes(data, at, 0)
    _, at = read_number(data, at)
    return data[at:end].decode(), end


def _read_float(data: bytes, at: int) -> tuple[object, int]:
    raw = data[at : at + 4]
    (value,) = _FLOAT.unpack(raw)
    if not math.isfinite(value):
        return _named(value), at + 4
    return next(short for short in _shorter(value) if _FLOAT.pack(short) == raw), at + 4


def _shorter(value: float) -> Iterator[float]:
    """Numbers of fewer digits, which may round to the same float."""
    yield from (
        short for digits in range(6, 10) if abs(short := float(f"{value:.{digits}g}")) <= _FLOAT_END
    )
    yield value


def _read_double(data: bytes, at: int) -> tuple[object, int]:
    (value,) = _DOUBLE.unpack_from(data, at)
    return (value if math.isfinite(value) else _named(value)), at + 8


def _named(value: float) -> str:
    """What JSON has no number for."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_READ_PLAIN: dict[str, _Read] = {
    "null": lambda data, at: (None, at),
    "boolean": lambda data, at: (data[at] == 1, at + 1),
    "int": read_number,
    "long": read_number,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}
