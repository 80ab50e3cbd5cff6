"""Bytes for decoders, sound and hostile, and everything that a decoder says about them.

Used by the unit tests and by the run with the sanitizers, which has no test runner.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from goqueue.model.batch import RawRecord, Record, encode_records
from goqueue.model.errors import CorruptBatch, InvalidTimestamp

# Lengths and counts at which something begins to be wrong.
_NUMBERS = (
    b"\x00",
    b"\x01",
    b"\x0c",
    b"\x7f",
    b"\x80\x01",
    b"\xfe\xff\xff\xff\x0f",  # the largest 32-bit number
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # the largest 64-bit number
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # the smallest
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",  # one bit too many
    b"\x80" * 11,
)


def outcomes(decoder: ModuleType, payload: bytes, count: int, **base: int | None) -> list[Any]:
    """What each function says of the bytes, or that it refuses them."""
    offset, timestamp = base.get("base_offset", 0), base.get("base_timestamp", 0)
    append_time = base.get("append_time")
    place = (offset, timestamp, append_time)
    return [
        _outcome(lambda: _columns(decoder.index(payload, count, *place))),
        _outcome(lambda: decoder.records(payload, 0, count, *place, Record)),
        _outcome(lambda: _all_records(decoder, payload, count, place)),
        _outcome(lambda: decoder.raw_records(payload, 0, count, RawRecord)),
        _outcome(lambda: decoder.headers(payload, 0, len(payload))),
        _outcome(lambda: _fields(decoder, payload, count)),
        _outcome(lambda: _tables(decoder, payload, count, place)),
        _outcome(lambda: _checksums(decoder, payload, count)),
        *[_checked(decoder, payload, count, timestamp or 0, has_gaps) for has_gaps in (0, 1)],
    ]


def hostile_payload(chance: random.Random) -> tuple[bytes, int]:
    """Sound records with some damage, cut short or lengthened; and how many there should be."""
    records = [_record(chance) for _ in range(chance.randint(0, 6))]
    numbered = [(chance.choice((place, place + 3)), one) for place, one in enumerate(records)]
    payload = bytearray(encode_records(numbered, base_timestamp=1000))
    for _ in range(chance.randint(0, 3)):
        at = chance.randint(0, len(payload))
        kind = chance.randrange(4)
        if kind == 0 and at < len(payload):
            payload[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 1:
            payload[at : at + chance.randint(0, 3)] = chance.choice(_NUMBERS)
        elif kind == 2:
            del payload[at:]
        else:
            payload += chance.randbytes(chance.randint(0, 9))
    return bytes(payload), max(0, len(records) + chance.choice((-1, 0, 0, 0, 1, 1 << 30)))


def _record(chance: random.Random) -> Record:
    def content() -> bytes | None:
        size = chance.choice((None, 0, 1, 20, 63, 64, 200))
        return None if size is None else chance.randbytes(size)

    headers = tuple(
        (chance.choice(("", "a", "trace", "\u00e9\u20ac\U0001f600")), content())
        for _ in range(chance.choice((0, 0, 1, 3)))
    )
    return Record(content(), content(), headers, chance.choice((1000, 1001, 0, 1 << 41)))


def _outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except CorruptBatch:
        return "refused"
    except ValueError:
        return "not text"


def _checked(decoder: ModuleType, payload: bytes, count: int, timestamp: int, has_gaps: int) -> Any:
    """What the check says, or its reason."""
    try:
        behind = b"before" + payload
        return decoder.check_records(memoryview(behind), 6, count, timestamp, bool(has_gaps))
    except (CorruptBatch, InvalidTimestamp) as error:
        return type(error), str(error)


def _columns(index: tuple[memoryview | None, ...]) -> list[list[int] | None]:
    return [None if column is None else column.tolist() for column in index]


def _tables(
    decoder: ModuleType, payload: bytes, count: int, place: tuple[int | None, ...]
) -> list[Any]:
    """The same batch twice, and a sound one between: all of it and some, all columns and few."""
    records = [(4, Record(b"k", None, (("n", b"v"),))), (5, Record(b"", b"v"))]
    sound = encode_records(records, base_timestamp=0)
    batches = [
        (payload, count, *place),
        (memoryview(bytearray(sound)), 2, 1, -1, None),
        (payload, count, *place),
    ]
    first = min(place[0] or 0, (1 << 62))  # an offset has 64 bits
    everything = (-(1 << 63), (1 << 63) - 1)
    asked = [(*everything, 7), (first + 1, first + 3, 2), (5, 6, 7), (*everything, 0)]
    return [decoder.columns(batches, *one) for one in asked]


def _checksums(decoder: ModuleType, payload: bytes, count: int) -> list[bytes]:
    """Of pieces of the bytes, cut anywhere, and of the records if they are sound."""
    size = len(payload)
    cuts = [
        array("i", sorted((place * 7919) % (size + 1) for place in range(rows))) for rows in (1, 5)
    ]
    sums = [decoder.checksums(payload, memoryview(cut)) for cut in cuts]
    ends = decoder.index(payload, count, 0, 0, None)[2]
    return [*sums, decoder.checksums(bytearray(payload), ends)]


def _all_records(
    decoder: ModuleType, payload: bytes, count: int, place: tuple[int | None, ...]
) -> list[Record]:
    records: list[Record] = []
    position = 0
    while len(records) < count:
        some, position = decoder.records(payload, position, 2, *place, Record)
        records += some
    return records


def _fields(decoder: ModuleType, payload: bytes, count: int) -> list[Any]:
    _, _, ends, *fields, header_starts = decoder.index(payload, count, 0, 0, None)
    key_starts, key_ends, value_starts, value_ends = fields
    places = list(range(count))[::-1]
    found = [
        decoder.slices(payload, key_starts, key_ends, places),
        decoder.slices(payload, value_starts, value_ends, range(count)),
        _outcome(lambda: decoder.texts(payload, value_starts, value_ends, places)),
        _outcome(
            lambda: decoder.json_rows(
                (b"<", b"|", b"|", b">"),
                (
                    (payload, key_starts, key_ends, places),
                    places,
                    (payload, value_starts, value_ends, range(count)),
                ),
                count,
            )
        ),
    ]
    for place, start in enumerate(header_starts or []):
        if start >= 0:
            found.append(decoder.headers(payload, start, ends[place + 1]))
    return found
