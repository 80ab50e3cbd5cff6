"""Both encoders write the same bytes, which are those of the records in the columns."""

from __future__ import annotations

import importlib
import importlib.util
import random
from array import array
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model import encode_reference, encoding, packing
from goqueue.model.batch import (
    HEADER_BYTES,
    Record,
    check_batch,
    decode_batch,
    encode_batch,
    encode_records,
)
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidRecord
from goqueue.model.key_hash import partition_of_key
from goqueue.model.packing import PackedRecords
from tests.unit.compiling import can_compile
from tests.unit.model.encoder_cases import (
    BYTES_MAX,
    column,
    columns,
    hostile_columns,
    numbers,
    outcomes,
)

IS_BUILT = importlib.util.find_spec("goqueue.model._encode") is not None
COMPILED = importlib.import_module("goqueue.model._encode") if IS_BUILT else encode_reference
needs_compiled = pytest.mark.skipif(not IS_BUILT, reason="there is no compiled encoder")

CONTENT = st.none() | st.binary(max_size=80)
RECORDS = st.lists(
    st.builds(
        Record,
        CONTENT,
        CONTENT,
        st.lists(st.tuples(st.text(max_size=8), CONTENT), max_size=3).map(tuple),
        st.integers(-(1 << 61), 1 << 61) | st.integers(1000, 1100),
    ),
    max_size=8,
)


@pytest.fixture(
    params=[
        pytest.param(encode_reference, id="plain"),
        pytest.param(COMPILED, id="compiled", marks=needs_compiled),
    ]
)
def encoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Each of the encoders is the one that this process uses."""
    module: ModuleType = request.param
    monkeypatch.setattr(packing, "encoder", module)
    return module


def test_the_compiled_encoder_is_used_where_it_is_built() -> None:
    assert IS_BUILT == encoding.IS_COMPILED
    expected = "goqueue.model._encode" if IS_BUILT else "goqueue.model.encode_reference"
    assert {encoding.encoder.__name__, packing.encoder.__name__} == {expected}


def test_it_is_built_where_there_is_a_compiler() -> None:
    if not can_compile():
        pytest.skip("there is nothing to build it with")
    assert IS_BUILT, "There is a compiler and no compiled encoder; run `make setup`."


@settings(max_examples=300)
@given(RECORDS, st.integers(0, 9), st.booleans(), st.randoms())
def test_columns_become_the_bytes_of_their_records(
    records: list[Record], bit: int, is_wide: bool, chance: random.Random
) -> None:
    places = list(range(len(records)))
    chance.shuffle(places)
    given_columns = columns(records, bit=bit, is_wide=is_wide)
    expected = encode_records(
        enumerate([records[place] for place in places], start=3), base_timestamp=1000
    )
    for module in (encode_reference, COMPILED):
        batch = bytearray(b"before")
        added, newest = module.append(
            batch, 3, 1000, given_columns, numbers(places), 0, BYTES_MAX, 100
        )
        assert bytes(batch) == b"before" + expected
        assert added == len(records)
        assert newest == max((one.timestamp_ms for one in records), default=1000)


@needs_compiled
@settings(max_examples=500)
@given(st.integers(0, 1 << 60), st.sampled_from((0, 1000, (1 << 63) - 1)))
def test_they_agree_about_columns_that_make_no_sense(seed: int, base_timestamp: int) -> None:
    given_columns, places = hostile_columns(random.Random(seed))
    found = outcomes(COMPILED, given_columns, places, base_timestamp=base_timestamp)
    assert found == outcomes(encode_reference, given_columns, places, base_timestamp=base_timestamp)


@settings(max_examples=300)
@given(st.lists(CONTENT, max_size=20), st.integers(0, 9), st.integers(1, (1 << 31) - 1))
def test_keys_go_where_every_client_sends_them(
    keys: list[bytes | None], bit: int, partition_count: int
) -> None:
    expected = [-1 if key is None else partition_of_key(key, partition_count) for key in keys]
    for module in (encode_reference, COMPILED):
        found = module.partitions(column(keys, bit=bit), partition_count)
        assert found.tolist() == expected
    assert COMPILED.partitions(None, 3).tolist() == []


def test_headers_with_a_column_of_their_own_come_last(encoder: ModuleType) -> None:
    records = [Record(None, b"v", (("a", None),), 5), Record(None, b"w", (), 5)]
    found = columns(records, bit=3, extras=[("x", [None, b"1"]), ("y", [b"2", b""])])
    packed = PackedRecords()
    assert packed.add(found, numbers([0, 1]), 0, bytes_max=BYTES_MAX, records_max=10) == 2
    first, second = decode_batch(packed.encode())
    assert first.headers == (("a", None), ("y", b"2"))
    assert second.headers == (("x", b"1"), ("y", b""))


def test_a_batch_takes_what_fits_and_at_least_one(encoder: ModuleType) -> None:
    records = [Record(None, b"x" * 100, (), 1000 + number) for number in range(10)]
    given_columns, places = columns(records), numbers(range(10))
    size = len(encode_records([(0, records[0])], base_timestamp=1000))
    packed = PackedRecords()
    limits = {"bytes_max": HEADER_BYTES + 3 * size, "records_max": 100}
    assert packed.add(given_columns, places, 0, **limits) == 3
    assert packed.add(given_columns, places, 3, **limits) == 0
    assert packed.size == HEADER_BYTES + 3 * size
    assert packed.max_timestamp == 1002
    assert PackedRecords().add(given_columns, places, 9, bytes_max=1, records_max=100) == 1
    few = PackedRecords()
    assert few.add(given_columns, places, 2, bytes_max=BYTES_MAX, records_max=4) == 4
    assert few.add(given_columns, places, 6, bytes_max=BYTES_MAX, records_max=4) == 0
    assert few.add(given_columns, places, 10, bytes_max=BYTES_MAX, records_max=10) == 0
    assert [one.timestamp_ms for one in decode_batch(few.encode())] == [1002, 1003, 1004, 1005]


@pytest.mark.parametrize("codec", Compression)
def test_a_packed_batch_is_the_batch_of_its_records(
    encoder: ModuleType, codec: Compression
) -> None:
    records = [
        Record(b"key", b"value %d" % number, (("trace", b"1"),), 1000 + number % 3)
        for number in range(50)
    ]
    packed = PackedRecords()
    for start in (0, 20):  # It is filled from several arrays.
        some = records[start : start + 20] if start == 0 else records[start:]
        packed.add(columns(some), numbers(range(len(some))), 0, bytes_max=1 << 20, records_max=99)
    for identity in ((7, 2, 40), (8, 0, 0)):  # It may be sent again under another name.
        producer_id, producer_epoch, base_sequence = identity
        fields = {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "base_sequence": base_sequence,
        }
        found = packed.encode(codec=codec, is_transactional=True, **fields)
        assert found == encode_batch(records, codec=codec, is_transactional=True, **fields)
        check_batch(found)
    with pytest.raises(InvalidRecord):
        PackedRecords().encode()


@needs_compiled
def test_the_compiled_one_never_looks_outside_its_buffers() -> None:
    sound = columns([Record(b"k", b"v", (("a", b"b"),), 0)])
    short = (b"abc", numbers([0, 3, 3]), b"", 0)  # there are no bits for two values
    wrong = [
        (0, short),
        (0, (b"abc", numbers([0, 3]), b"\x01", -1)),
        (0, (b"abc", numbers([0, 3]), b"\x01", 1 << 62)),
        (0, (b"abc", memoryview(b"\x00" * 8), None, 0)),
        (0, (b"abc", memoryview(bytes(13))[1:].cast("i"), None, 0)),  # not aligned
        (0, b"abc"),
        (2, (numbers([0, 1]), b"", 0, sound[0], sound[1])),
        (2, (numbers([0, 2]), None, 0, sound[0], sound[1])),
        (3, ((b"a", short),)),
        (3, tuple((b"a", sound[0]) for _ in range(9))),
        (3, (("text", sound[0]),)),
        (4, numbers([0])),
        (4, memoryview(array("d", (0.0,)))),
    ]
    for place, value in wrong:
        given_columns = (*sound[:place], value, *sound[place + 1 :])
        batch = bytearray()
        with pytest.raises((ValueError, TypeError)):
            COMPILED.append(batch, 0, 0, given_columns, numbers([0]), 0, 1000, 10)
        assert batch == b""
    for count, first in ((-1, 0), (0, -1), (0, 2), (11, 0)):
        with pytest.raises(ValueError, match="outside"):
            COMPILED.append(bytearray(), count, 0, sound, numbers([0]), first, 1000, 10)
    with pytest.raises(TypeError):
        COMPILED.append(b"", 0, 0, sound, numbers([0]), 0, 1000, 10)
    shown = bytearray(b"abc")
    with memoryview(shown), pytest.raises(BufferError):  # somebody looks at the bytes
        COMPILED.append(shown, 0, 0, sound, numbers([0]), 0, 1000, 10)
    with pytest.raises(ValueError, match="at least one"):
        COMPILED.partitions(sound[0], 0)
