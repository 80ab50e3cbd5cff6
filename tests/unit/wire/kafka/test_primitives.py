"""The wire types: what they look like in bytes, and what they refuse to be read from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import MalformedRequest
from goqueue.wire.kafka import primitives
from goqueue.wire.kafka.primitives import (
    READ_ERRORS,
    Buffer,
    TaggedFields,
    Write,
    read_array,
    read_compact_array,
    read_compact_integers,
    read_compact_nullable_array,
    read_compact_string,
    read_integers,
    read_nullable_array,
    read_nullable_struct,
    read_string,
    read_tag,
    read_tag_count,
    read_uuid,
    read_uvarint,
    read_varint,
    read_varlong,
    skip_tagged_fields,
    uvarint,
    varint,
    varlong,
    write_array,
    write_compact_array,
    write_compact_integers,
    write_compact_nullable_array,
    write_compact_string,
    write_integers,
    write_nullable_array,
    write_nullable_struct,
    write_string,
)

quickly = settings(max_examples=100, derandomize=True, deadline=None, database=None)


def written(writer: Callable[..., None], *arguments: Any) -> bytes:
    chunks: list[Buffer] = []
    writer(chunks.append, *arguments)
    return b"".join(chunks)


# Variable-length integers


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_varints_have_seven_bits_a_byte(value: int, data: str) -> None:
    assert uvarint(value) == bytes.fromhex(data)
    assert read_uvarint(bytes.fromhex(data), 0) == (value, len(data) // 2)


@pytest.mark.parametrize(("value", "data"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f")])
def test_signed_varints_alternate_between_signs(value: int, data: str) -> None:
    assert varint(value) == varlong(value) == bytes.fromhex(data)
    assert read_varint(bytes.fromhex(data), 0) == (value, 1)
    assert read_varlong(bytes.fromhex(data), 0) == (value, 1)


@quickly
@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_round_trip(value: int) -> None:
    assert read_uvarint(b"." + uvarint(value), 1) == (value, 1 + len(uvarint(value)))


@quickly
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_signed_varints_round_trip(short: int, long: int) -> None:
    assert read_varint(varint(short), 0) == (short, len(varint(short)))
    assert read_varlong(varlong(long), 0) == (long, len(varlong(long)))


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_uvarint, b"\x80\x80\x80\x80\x80\x01"),
        (read_uvarint, b"\xff\xff\xff\xff\x7f"),
        (read_varint, b"\xff\xff\xff\xff\xff\x00"),
        (read_varlong, b"\x80" * 10 + b"\x01"),
        (read_varlong, b"\xff" * 9 + b"\x7f"),
    ],
)
def test_varints_that_are_too_long_are_malformed(
    read: Callable[[Buffer, int], object], data: bytes
) -> None:
    with pytest.raises(MalformedRequest):
        read(data, 0)


# Strings, bytes and records

KINDS = ["", "nullable_", "compact_", "compact_nullable_"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", "a", "漢字", "x" * 126, "x" * 127, "x" * 32767])
def test_strings_round_trip(kind: str, text: str) -> None:
    data = written(getattr(primitives, f"write_{kind}string"), text)
    assert getattr(primitives, f"read_{kind}string")(b".." + data, 2) == (text, 2 + len(data))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [b"", b"a", b"x" * 127, b"x" * 20_000])
def test_bytes_and_records_round_trip(kind: str, value: bytes) -> None:
    for source in (value, bytearray(value), memoryview(value)):
        data = written(getattr(primitives, f"write_{kind}bytes"), source)
        for buffer in (data, bytearray(data), memoryview(data)):
            copied, end = getattr(primitives, f"read_{kind}bytes")(buffer, 0)
            viewed, end_of_view = getattr(primitives, f"read_{kind}records")(buffer, 0)
            assert type(copied) is bytes
            assert copied == viewed == value
            assert end == end_of_view == len(data)
            assert viewed.obj is (buffer.obj if isinstance(buffer, memoryview) else buffer)


def test_the_length_of_a_view_is_its_size_in_bytes() -> None:
    numbers = memoryview(bytes(8)).cast("i")
    assert written(primitives.write_bytes, numbers) == b"\x00\x00\x00\x08" + bytes(8)


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("nullable_string", b"\xff\xff"),
        ("compact_nullable_string", b"\x00"),
        ("nullable_bytes", b"\xff\xff\xff\xff"),
        ("compact_nullable_bytes", b"\x00"),
    ],
)
def test_null_has_the_length_before_zero(what: str, data: bytes) -> None:
    assert written(getattr(primitives, f"write_{what}"), None) == data
    assert getattr(primitives, f"read_{what}")(data, 0) == (None, len(data))
    with pytest.raises(MalformedRequest, match="may not be null"):
        getattr(primitives, f"read_{what}".replace("nullable_", ""))(data, 0)


@pytest.mark.parametrize("what", ["string", "bytes", "records"])
@pytest.mark.parametrize("nullable", ["", "nullable_"])
@pytest.mark.parametrize("length", [3, 1000, 0x7FFF, -2])
def test_lengths_beyond_the_input_are_malformed(what: str, nullable: str, length: int) -> None:
    plain = length.to_bytes(2 if what == "string" else 4, "big", signed=True) + b"ab"
    with pytest.raises(MalformedRequest):
        getattr(primitives, f"read_{nullable}{what}")(plain, 0)
    compact = uvarint(abs(length) + 2) + b"ab"
    with pytest.raises(MalformedRequest):
        getattr(primitives, f"read_compact_{nullable}{what}")(compact, 0)


def test_text_that_is_not_utf8_is_a_read_error() -> None:
    with pytest.raises(READ_ERRORS):
        read_string(b"\x00\x02\xc3\x28", 0)


# Arrays

ARRAYS: list[tuple[Callable[..., None], Callable[..., tuple[Any, int]]]] = [
    (write_array, read_array),
    (write_nullable_array, read_nullable_array),
    (write_compact_array, read_compact_array),
    (write_compact_nullable_array, read_compact_nullable_array),
]


@pytest.mark.parametrize(("write", "read"), ARRAYS)
@pytest.mark.parametrize("count", [0, 1, 126, 127, 1000])
def test_arrays_round_trip(
    write: Callable[..., None], read: Callable[..., tuple[Any, int]], count: int
) -> None:
    items = [f"item {number}" for number in range(count)]
    data = written(write, items, write_string)
    assert read(data, 0, 2, read_string) == (items, len(data))


@pytest.mark.parametrize("code", ["b", "h", "i", "q"])
@pytest.mark.parametrize("count", [0, 1, 126, 127, 1000])
def test_arrays_of_integers_round_trip(code: str, count: int) -> None:
    size = {"b": 1, "h": 2, "i": 4, "q": 8}[code]
    values = [number % 100 - 50 for number in range(count)]
    plain, compact = (
        written(write_integers, values, code),
        written(write_compact_integers, values, code),
    )
    assert read_integers(plain, 0, size, code) == (values, len(plain))
    assert read_compact_integers(compact, 0, size, code) == (values, len(compact))


@pytest.mark.parametrize("count", ["7fffffff", "00000002", "fffffffe"])
def test_an_array_cannot_be_longer_than_its_input(count: str) -> None:
    data = bytes.fromhex(count) + b"\x00\x00\x00"
    with pytest.raises(MalformedRequest):
        read_array(data, 0, 2, read_string)
    with pytest.raises(MalformedRequest):
        read_integers(data, 0, 4, "i")
    compact = uvarint(int(count, 16)) + b"\x00\x00"
    with pytest.raises(MalformedRequest):
        read_compact_array(compact, 0, 4, read_compact_string)
    with pytest.raises(MalformedRequest):
        read_compact_integers(compact, 0, 4, "i")


def test_items_are_not_read_when_their_number_is_impossible() -> None:
    def read_nothing(data: Buffer, pos: int) -> tuple[None, int]:
        raise AssertionError("an item was read")

    with pytest.raises(MalformedRequest):
        read_array(b"\x00\x00\x00\x05" + bytes(4), 0, 1, read_nothing)


def test_a_uuid_has_sixteen_bytes() -> None:
    assert read_uuid(bytes(range(17)), 1) == (bytes(range(1, 17)), 17)
    with pytest.raises(MalformedRequest):
        read_uuid(bytes(15), 0)


# Structs that may be null, and tagged fields


def test_a_struct_that_may_be_null_is_preceded_by_a_marker() -> None:
    assert written(write_nullable_struct, None, write_string) == b"\xff"
    assert written(write_nullable_struct, "a", write_string) == b"\x01\x00\x01a"
    assert read_nullable_struct(b"\xff", 0, read_string) == (None, 1)
    assert read_nullable_struct(b"\x01\x00\x01a", 0, read_string) == ("a", 4)


def test_tagged_fields_are_skipped_by_their_sizes() -> None:
    def write(write: Write) -> None:
        tagged = TaggedFields()
        write_compact_string(tagged.add(0), "known")
        tagged.add(300)(b"x" * 200)
        tagged.write_to(write)

    data = written(write)
    assert skip_tagged_fields(data, 0) == len(data)
    count, pos = read_tag_count(data, 0)
    tag, pos, end = read_tag(data, pos)
    assert (count, tag) == (2, 0)
    assert read_compact_string(data, pos) == ("known", end)
    assert read_tag(data, end)[0] == 300


@pytest.mark.parametrize("data", [b"\x02\x00\x00", b"\x01\x00\x05", b"\xff\xff\xff\xff\x0f"])
def test_tagged_fields_beyond_the_input_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        skip_tagged_fields(data, 0)


@quickly
@given(st.binary(max_size=30))
def test_random_bytes_raise_nothing_but_read_errors(data: bytes) -> None:
    readers = [
        getattr(primitives, f"read_{kind}{what}")
        for kind in KINDS
        for what in ("string", "bytes", "records")
    ]
    readers += [read_uvarint, read_varint, read_varlong, skip_tagged_fields, read_uuid]
    for read in readers:
        try:
            read(data, 0)
        except (MalformedRequest, *READ_ERRORS):
            pass
