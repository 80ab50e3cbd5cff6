"""All decoders say the same of all bytes, and refuse the same ones."""

from __future__ import annotations

import importlib
import importlib.util
import random
from array import array
from itertools import accumulate, pairwise
from types import ModuleType

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model import batch, columns, decode_reference, decoding
from goqueue.model.batch import RawRecord, Record, encode_records
from goqueue.model.errors import CorruptBatch
from goqueue.wire.http.handlers import receiving
from tests.unit.compiling import can_compile
from tests.unit.model.decoder_cases import hostile_payload, outcomes

BASES = st.fixed_dictionaries(
    {
        "base_offset": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 100),
        "base_timestamp": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 100),
        "append_time": st.none() | st.integers(-1, 1 << 62),
    }
)


IS_BUILT = importlib.util.find_spec("goqueue.model._decode") is not None
COMPILED = importlib.import_module("goqueue.model._decode") if IS_BUILT else decode_reference
needs_compiled = pytest.mark.skipif(not IS_BUILT, reason="there is no compiled decoder")


def test_the_compiled_decoder_is_used_where_it_is_built() -> None:
    assert IS_BUILT == decoding.IS_COMPILED
    stand_in = "decode_vectors" if importlib.util.find_spec("numpy") else "decode_reference"
    expected = f"goqueue.model.{'_decode' if IS_BUILT else stand_in}"
    assert {one.decoder.__name__ for one in (decoding, batch, columns, receiving)} == {expected}


def test_it_is_built_where_there_is_a_compiler() -> None:
    if not can_compile():
        pytest.skip("there is nothing to build it with")
    assert IS_BUILT, "There is a compiler and no compiled decoder; run `make setup`."


@settings(max_examples=500)
@given(st.integers(0, 1 << 60), BASES)
def test_they_agree_about_damaged_records(
    decoder: ModuleType, seed: int, base: dict[str, int | None]
) -> None:
    payload, count = hostile_payload(random.Random(seed))
    assert outcomes(decoder, payload, count, **base) == outcomes(
        decode_reference, payload, count, **base
    )


@settings(max_examples=500)
@given(st.binary(max_size=120), st.integers(0, 12), BASES)
def test_they_agree_about_random_bytes(
    decoder: ModuleType, payload: bytes, count: int, base: dict[str, int | None]
) -> None:
    assert outcomes(decoder, payload, count, **base) == outcomes(
        decode_reference, payload, count, **base
    )


@given(st.lists(st.binary(max_size=40) | st.text(max_size=40).map(str.encode), max_size=5))
def test_they_agree_about_text(decoder: ModuleType, contents: list[bytes]) -> None:
    records = [Record(None, one, (), 0) for one in contents]
    payload = encode_records(enumerate(records), base_timestamp=0)
    assert outcomes(decoder, payload, len(records)) == outcomes(
        decode_reference, payload, len(records)
    )


def test_every_sign_is_written_as_json_writes_it(decoder: ModuleType) -> None:
    text = "".join(
        map(chr, [*range(0x180), 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF])
    )
    for shift in range(9):  # a machine word is looked at as a whole
        data = (text[shift:] + "\u20ac" * shift + "plain").encode()
        column = (data, _numbers(0), _numbers(len(data)), [0])
        rows = decoder.json_rows((b"[", b"]"), (column,), 1)
        assert rows == b"[%s]" % msgspec.json.encode(data.decode())


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\xc0\xaf",
        b"\xc1\xbf",
        b"\xc3",
        b"\xc3(",
        b"\xe0\x9f\xbf",
        b"\xe2\x82",
        b"\xe2(\xac",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf0\x9f\x98",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xff",
    ],
)
def test_what_is_not_utf_8_is_no_text_and_no_name(decoder: ModuleType, data: bytes) -> None:
    for content in (data, b"before " + data, data + b" after"):
        column = (content, _numbers(0), _numbers(len(content)), [0])
        with pytest.raises(ValueError, match=r"."):
            decoder.json_rows((b"", b""), (column,), 1)
        with pytest.raises(UnicodeDecodeError):
            decoder.texts(*column)
        name = bytes((2 * len(content),)) + content
        with pytest.raises(CorruptBatch, match="UTF-8"):
            decoder.headers(b"\x02" + name + b"\x01", 0, len(name) + 2)


def test_numbers_and_json_stand_between_the_fragments(decoder: ModuleType) -> None:
    numbers = [0, -1, 10, (1 << 63) - 1, -(1 << 63)]
    cells = [b"null", b'"a"', b"[]", b"{}", b"true"]
    rows = decoder.json_rows((b"(", b" ", b")"), (numbers, cells), 5)
    expected = [b"(%d %b)" % pair for pair in zip(numbers, cells, strict=True)]
    assert rows == b",".join(expected)
    assert decoder.json_rows((b"{}",), (), 2) == b"{},{}"
    assert decoder.json_rows((b"{}",), (), 0) == b""
    for column in (numbers[:4], range(6), (b"", _numbers(), _numbers(), [])):
        with pytest.raises(ValueError, match="rows"):
            decoder.json_rows((b"", b""), (column,), 5)
    with pytest.raises(ValueError, match="fragment"):
        decoder.json_rows((b"",), (numbers,), 5)


def test_damage_is_met_after_the_records_before_it(decoder: ModuleType) -> None:
    payload = encode_records([(0, Record(b"a", b"b")), (1, Record(b"c", None))], base_timestamp=0)
    torn = payload + b"\x7f"
    records, position = decoder.records(torn, 0, 10, 5, 7, None, Record)
    assert ([one.offset for one in records], position) == ([5, 6], len(payload))
    raw, position = decoder.raw_records(torn, 0, 10, RawRecord)
    assert ([one.is_tombstone for one in raw], position) == ([False, True], len(payload))
    for read in (
        lambda: decoder.records(torn, position, 10, 5, 7, None, Record),
        lambda: decoder.raw_records(torn, position, 10, RawRecord),
        lambda: decoder.index(torn, 3, 5, 7, None),
    ):
        with pytest.raises(CorruptBatch):
            read()


def test_a_number_is_refused_when_it_needs_more_than_64_bits(decoder: ModuleType) -> None:
    largest = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    for number, is_sound in ((largest, True), (largest[:-1] + b"\x03", False)):
        body = b"\x00" + number + b"\x00\x01\x01\x00"
        payload = bytes((2 * len(body),)) + body
        if is_sound:
            (record,), _ = decoder.records(payload, 0, 1, 0, 0, None, Record)
            assert record.timestamp_ms == (1 << 63) - 1
            with pytest.raises(CorruptBatch, match="64 bits"):  # together with the base
                decoder.index(payload, 1, 0, 1, None)
        else:
            with pytest.raises(CorruptBatch, match="64 bits"):
                decoder.records(payload, 0, 1, 0, 0, None, Record)


def test_checksums_are_those_of_batches(decoder: ModuleType) -> None:
    data = random.Random(3).randbytes(5003)
    for lengths in ([0], [1, 0, 7, 8, 9], [100, 99, 101, 64, 0, 2000], [1000] * 5):
        bounds = _numbers(*accumulate(lengths, initial=3))
        found = memoryview(decoder.checksums(data, bounds)).cast("I").tolist()
        assert found == [crc32c(data[start:end]) for start, end in pairwise(bounds.tolist())]
    assert decoder.checksums(b"", _numbers(0)) == b""
    for wrong in ((), (-1, 2), (0, 5004), (3, 2), (0, 9, 4)):
        with pytest.raises(ValueError, match="bounds"):
            decoder.checksums(data, _numbers(*wrong))


@needs_compiled
def test_the_compiled_one_never_looks_outside_its_buffers() -> None:
    one, two = _numbers(1), _numbers(2)
    compiled = COMPILED
    assert compiled.slices(b"abc", one, two, [0]) == [b"b"]
    assert compiled.slices(b"abc", _numbers(-1), _numbers(9), [0]) == [None]
    for starts, ends in ((one, _numbers(4)), (two, one), (_numbers(3), _numbers(1 << 30))):
        with pytest.raises(ValueError, match="outside"):
            compiled.slices(b"abc", starts, ends, [0])
    for place in (-1, 1, 1 << 70):
        with pytest.raises(IndexError):
            compiled.slices(b"abc", one, two, [place])
    for wrong in (memoryview(b"abcd"), memoryview(array("q", (1,))), memoryview(array("I", (1,)))):
        with pytest.raises(TypeError):
            compiled.slices(b"abc", one, wrong, [0])
    with pytest.raises(TypeError):
        compiled.slices(b"abc", memoryview(bytes(13))[1:].cast("i"), two, [0])  # not aligned
    for position in (-1, 4):
        with pytest.raises(ValueError, match="outside"):
            compiled.records(b"abc", position, 1, 0, 0, None, Record)
        with pytest.raises(ValueError, match="outside"):
            compiled.headers(b"abc", 0, position)
    with pytest.raises(TypeError):
        compiled.records(b"", 0, 1, 0, 0, None, dict)
    for batches in (5, [b"abc"], [(b"abc",)], [(b"abc", 0, 0, 0, b"")]):
        with pytest.raises(TypeError):
            compiled.columns(batches, 0, 9, 7)
    with pytest.raises(TypeError):
        compiled.checksums(b"abc", memoryview(b"abcd"))


def _numbers(*numbers: int) -> memoryview:
    return memoryview(array("i", numbers))
