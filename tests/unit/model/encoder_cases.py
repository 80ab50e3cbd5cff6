"""Columns for encoders, sound and hostile, and everything that an encoder says about them.

Used by the unit tests and by the run with the sanitizers, which has no test runner.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from goqueue.model.batch import Record
from goqueue.model.encode_reference import Column, Columns

BYTES_MAX = 1 << 20
_BOUNDS = (-1, 0, 1, 7, 1 << 20, (1 << 31) - 1, -(1 << 31))
_TIMES = (0, 1000, 1001, -5, 1 << 41, (1 << 63) - 1, -(1 << 63))


def column(values: Sequence[bytes | None], *, bit: int = 0, is_wide: bool = False) -> Column:
    """Values as Arrow lays them out; what is not there has some bytes all the same."""
    bounds, data = [0], bytearray()
    bits = bytearray((bit + len(values) + 7) // 8)
    for place, value in enumerate(values):
        data += b"nothing" if value is None else value
        bounds.append(len(data))
        if value is not None:
            bits[(bit + place) >> 3] |= 1 << ((bit + place) & 7)
    is_whole = None not in values
    return bytes(data), numbers(bounds, is_wide=is_wide), None if is_whole else bytes(bits), bit


def columns(
    records: Sequence[Record],
    *,
    bit: int = 0,
    is_wide: bool = False,
    extras: Sequence[tuple[str, Sequence[bytes | None]]] = (),
) -> Columns:
    """The columns of records; `extras` are more headers."""
    flat = [header for record in records for header in record.headers]
    bounds = [0]
    for record in records:
        bounds.append(bounds[-1] + len(record.headers))
    lists = (
        numbers(bounds, is_wide=is_wide),
        None,
        0,
        column([name.encode() for name, _ in flat], bit=bit, is_wide=is_wide),
        column([content for _, content in flat], bit=bit, is_wide=is_wide),
    )
    return (
        column([record.key for record in records], bit=bit, is_wide=is_wide),
        column([record.value for record in records], bit=bit, is_wide=is_wide),
        lists if flat else None,
        tuple((name.encode(), column(some, bit=bit)) for name, some in extras),
        numbers([record.timestamp_ms for record in records], is_wide=True),
    )


def numbers(values: Sequence[int], *, is_wide: bool = False) -> memoryview:
    return memoryview(array("q" if is_wide else "i", values))


def outcomes(
    encoder: ModuleType, given: Columns, places: Sequence[int], *, base_timestamp: int = 1000
) -> list[Any]:
    """What each function says of the columns, or that it refuses them."""
    return [
        _appended(encoder, given, places, 0, BYTES_MAX, 100, base_timestamp),
        _appended(encoder, given, places, 1, 100, 100, base_timestamp),
        _appended(encoder, given, places, 0, BYTES_MAX, 2, base_timestamp),
        _partitions(encoder, given[0]),
        _partitions(encoder, given[1]),
    ]


def hostile_columns(chance: random.Random) -> tuple[Columns, list[int]]:
    """Columns with some damage, and places of which some are outside."""
    records = [_record(chance) for _ in range(chance.randint(0, 6))]
    bit, is_wide = chance.randrange(9), chance.random() < 0.5
    extras = [
        (name, [_content(chance) for _ in records])
        for name in ("goqueue-priority", "")[: chance.randrange(3)]
    ]
    given: list[Any] = list(columns(records, bit=bit, is_wide=is_wide, extras=extras))
    places = [chance.randrange(len(records)) for _ in range(chance.randint(0, 9)) if records]
    for _ in range(chance.randint(0, 2)):
        kind = chance.randrange(5)
        if kind == 0:
            places.insert(
                chance.randint(0, len(places)), chance.choice((-1, len(records), 1 << 30))
            )
        elif kind == 1 and given[2] is not None:
            bounds, *rest = given[2]
            given[2] = (_damaged(chance, bounds), *rest)
        elif kind == 2 and given[2] is not None:
            given[2] = (*given[2][:3], None, None)
        elif kind == 3:
            given[chance.randrange(2)] = None
        else:
            which = chance.randrange(2)
            if given[which] is not None:
                data, bounds, validity, start = given[which]
                given[which] = (data, _damaged(chance, bounds), validity, start)
    return tuple(given), places  # type: ignore[return-value]


def _damaged(chance: random.Random, bounds: memoryview) -> memoryview:
    found = array(bounds.format, bounds.tolist())
    if found:
        found[chance.randrange(len(found))] = chance.choice(_BOUNDS)
    return memoryview(found)


def _record(chance: random.Random) -> Record:
    names = ("", "a", "trace", "é€\U0001f600")
    headers = tuple(
        (chance.choice(names), _content(chance)) for _ in range(chance.choice((0, 0, 1, 3)))
    )
    return Record(_content(chance), _content(chance), headers, chance.choice(_TIMES))


def _content(chance: random.Random) -> bytes | None:
    size = chance.choice((None, 0, 1, 20, 63, 64, 200, 9000))
    return None if size is None else chance.randbytes(size)


def _appended(
    encoder: ModuleType,
    given: Columns,
    places: Sequence[int],
    first: int,
    bytes_max: int,
    records_max: int,
    base_timestamp: int,
) -> Any:
    batch = bytearray(b"before")
    try:
        answer = encoder.append(
            batch, first, base_timestamp, given, numbers(places), first, bytes_max, records_max
        )
    except ValueError as error:
        return str(error), bytes(batch)
    return answer, bytes(batch)


def _partitions(encoder: ModuleType, keys: Column) -> Any:
    try:
        return encoder.partitions(keys, 7).tolist()
    except ValueError as error:
        return str(error)
