"""Checks that bytes are one Avro value of a type, and reports which field is invalid.

Each type becomes a small function that walks over its bytes without creating values. The C reader
of fastavro is no faster for records of usual size, accepts union branches that do not exist, and
crashes the process on a deeply nested list; a producer must not be able to do that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from goqueue.schemas.formats.avro.types import INT_MAX, INT_MIN, AvroType
from goqueue.schemas.formats.interface import SchemaViolation, Validate

VALUE_DEPTH_MAX = 100  # records inside records of the same type, as in linked lists and trees

_Walk = Callable[[bytes, int, int], int]  # data, position, depth; returns the position after it


class Fault(Exception):
    """What is wrong; each level that it propagates through adds its step to the path."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.steps: list[str] = []
        super().__init__(reason)

    def violation(self) -> SchemaViolation:
        return SchemaViolation("$" + "".join(reversed(self.steps)), self.reason)


def validator(root: AvroType) -> Validate:
    """A function that raises `SchemaViolation` unless it is given one value of the type."""
    walk = _walk_of(root, {})

    def validate(payload: bytes | memoryview) -> None:
        data = bytes(payload)
        try:
            end = walk(data, 0, 0)
        except Fault as fault:
            raise fault.violation() from None
        if end != len(data):
            raise SchemaViolation("$", f"{len(data) - end} bytes follow after the value")

    return validate


def _walk_of(given: AvroType, made: dict[int, _Walk]) -> _Walk:
    match given.kind:
        case "record":
            return made.get(id(given)) or _record_walk(given, made)
        case "union":
            return _union_walk([_walk_of(branch, made) for branch in given.branches])
        case "array":
            return _block_walk(_walk_of(given.item, made), given.item)
        case "map":
            return _block_walk(_map_item(_walk_of(given.item, made)), None)
        case "enum":
            return _enum_walk(len(given.symbols))
        case "fixed":
            return _fixed_walk(given.size)
        case _:
            return _PLAIN[given.kind]


def _record_walk(given: AvroType, made: dict[int, _Walk]) -> _Walk:
    fields: list[tuple[str, _Walk]] = []

    def walk(data: bytes, at: int, depth: int) -> int:
        if depth > VALUE_DEPTH_MAX:
            raise Fault(f"records are nested more than {VALUE_DEPTH_MAX} levels deep")
        depth += 1
        step = ""
        try:
            for step, each in fields:  # noqa: B007, the handler reads it
                at = each(data, at, depth)
        except Fault as fault:
            fault.steps.append(step)
            raise
        return at

    made[id(given)] = walk  # before its fields, which may contain it
    fields += [(f".{each.name}", _walk_of(each.type, made)) for each in given.fields]
    return walk


def _union_walk(branches: list[_Walk]) -> _Walk:
    count = len(branches)

    def walk(data: bytes, at: int, depth: int) -> int:
        branch, at = read_number(data, at)
        if not 0 <= branch < count:
            raise Fault(f"branch {branch} of a union that has {count}")
        return branches[branch](data, at, depth)

    return walk


def _map_item(value: _Walk) -> _Walk:
    def walk(data: bytes, at: int, depth: int) -> int:
        start = at
        at = _string(data, at, depth)
        try:
            return value(data, at, depth)
        except Fault as fault:
            size, begin = read_number(data, start)
            key = data[begin : begin + size].decode()
            fault.steps.append(f"[{key[:100]!r}]")
            raise

    return walk


def _block_walk(item: _Walk, item_type: AvroType | None) -> _Walk:
    """Arrays and maps: blocks of items, each after its count, until a count of zero."""
    # Items without bytes are all alike, so their count needs no loop.
    is_empty = item_type is not None and is_without_bytes(item_type, set())

    def walk(data: bytes, at: int, depth: int) -> int:
        index = 0
        while True:
            count, at = read_number(data, at)
            if count == 0:
                return at
            end = -1
            if count < 0:  # then the size of the block follows, for readers that skip it
                count = -count
                size, at = read_number(data, at)
                end = at + size
            if is_empty:
                continue
            if count > len(data) - at:
                raise Fault(f"{count} items are announced, but {len(data) - at} bytes follow")
            try:
                for _ in range(count):
                    at = item(data, at, depth)
                    index += 1
            except Fault as fault:
                if item_type is not None:
                    fault.steps.append(f"[{index}]")
                raise
            if end not in (-1, at):
                raise Fault("a block has another size than it announces")

    return walk


def is_without_bytes(given: AvroType, inside: set[int]) -> bool:
    if given.kind == "record" and id(given) not in inside:
        inside.add(id(given))
        return all(is_without_bytes(each.type, inside) for each in given.fields)
    return given.kind == "null" or (given.kind == "fixed" and given.size == 0)


def _enum_walk(count: int) -> _Walk:
    def walk(data: bytes, at: int, depth: int) -> int:
        symbol, at = read_number(data, at)
        if not 0 <= symbol < count:
            raise Fault(f"symbol {symbol} of an enum that has {count}")
        return at

    return walk


def _fixed_walk(size: int) -> _Walk:
    def walk(data: bytes, at: int, depth: int) -> int:
        if at + size > len(data):
            _ends_early()
        return at + size

    return walk


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position after it."""
    try:
        byte = data[at]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
        value = byte & 0x7F
        for shift in range(7, 70, 7):
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1), at + 1
    except IndexError:
        _ends_early()
    raise Fault("a number has more than 64 bits")


def _null(data: bytes, at: int, depth: int) -> int:
    return at


def _boolean(data: bytes, at: int, depth: int) -> int:
    if at >= len(data):
        _ends_early()
    if data[at] > 1:
        raise Fault(f"a boolean is one byte, 0 or 1, not {data[at]}")
    return at + 1


def _int(data: bytes, at: int, depth: int) -> int:
    value, at = read_number(data, at)
    if not INT_MIN <= value <= INT_MAX:
        raise Fault(f"{value} does not fit into an int")
    return at


def _long(data: bytes, at: int, depth: int) -> int:
    return read_number(data, at)[1]


def read_bytes(data: bytes, at: int, depth: int) -> int:
    size, at = read_number(data, at)
    end = at + size
    if size < 0:
        raise Fault(f"a length of {size}")
    if end > len(data):
        _ends_early()
    return end


def _string(data: bytes, at: int, depth: int) -> int:
    size, at = read_number(data, at)
    end = at + size
    if size < 0:
        raise Fault(f"a length of {size}")
    if end > len(data):
        _ends_early()
    text = data[at:end]
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            raise Fault("a string that is not UTF-8") from None
    return end


def _ends_early() -> NoReturn:
    raise Fault("the bytes end inside this value")


_PLAIN: dict[str, _Walk] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _fixed_walk(4),
    "double": _fixed_walk(8),
    "bytes": read_bytes,
    "string": _string,
}
