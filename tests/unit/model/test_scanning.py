"""Scans for keys and trace ids: the compiled functions and the plain ones say the same."""

from __future__ import annotations

import random
import struct
from types import ModuleType

import pytest

from goqueue.model import scanning
from goqueue.model.batch import Record, encode_batch, encode_records, stamp
from goqueue.model.compression import Compression
from goqueue.model.errors import CorruptBatch
from goqueue.model.scanning import (
    AT_COMPRESSED,
    AT_DAMAGE,
    AT_END,
    KEY_SEED,
    TRACE_SEED,
    hash_of,
    probes,
    reference,
)
from tests.unit.compiling import can_compile
from tests.unit.model.scan_cases import (
    FIRST_OFFSET,
    PARENT,
    ROOT,
    TRACE,
    hostile_log,
    log_of,
    outcomes,
)

MODULES: list[ModuleType] = [reference]
if scanning.IS_COMPILED:
    from goqueue.model.scanning import _scan

    MODULES.append(_scan)

each_module = pytest.mark.parametrize("module", MODULES, ids=lambda one: one.__name__)


def batch(*records: Record, offset: int = 0, codec: Compression = Compression.NONE) -> bytes:
    one = encode_batch(records, codec=codec)
    stamp(one, base_offset=offset, leader_epoch=0)
    return bytes(one)


def numbers(hashed: bytes) -> list[int]:
    return list(struct.unpack(f"={len(hashed) // 8}Q", hashed))


def test_the_compiled_scans_are_built_where_there_is_a_compiler() -> None:
    if not can_compile():
        pytest.skip("There is no compiler here.")
    assert scanning.IS_COMPILED


@pytest.mark.parametrize("seed", range(300))
def test_both_say_the_same_about_hostile_logs(seed: int) -> None:
    data = hostile_log(random.Random(seed))
    first, *others = [outcomes(module, data) for module in MODULES]
    assert all(other == first for other in others)


@each_module
def test_keys_and_trace_ids_are_hashed(module: ModuleType) -> None:
    data = batch(
        Record(b"one", b"value"),
        Record(None, None, (("traceparent", PARENT),)),
        Record(b"two", b"", (("AWSTraceHeader", ROOT), ("other", b"x"))),
    )
    hashed, at, offset, stop, last = module.hashes(data, 0, 0)
    assert (at, offset, stop, last) == (len(data), 3, AT_END, 0)
    trace = hash_of(TRACE, TRACE_SEED)
    assert numbers(hashed) == [hash_of(b"one", KEY_SEED), trace, hash_of(b"two", KEY_SEED), trace]


@each_module
@pytest.mark.parametrize(
    "content",
    [PARENT.upper(), PARENT[:-1], PARENT.replace(b"-", b"+"), ROOT.replace(b"Root", b"Rot"), None],
)
def test_what_is_no_trace_id_is_not_hashed(module: ModuleType, content: bytes | None) -> None:
    record = Record(None, b"", (("traceparent", content), ("AWSTraceHeader", content)))
    assert module.hashes(batch(record), 0, 0)[0] == b""


@each_module
def test_a_scan_stops_at_a_compressed_batch(module: ModuleType) -> None:
    plain = batch(Record(b"k", b"v"))
    packed = batch(Record(b"k", b"v" * 100), offset=1, codec=Compression.ZSTD)
    assert module.hashes(plain + packed, 0, 0)[1:] == (len(plain), 1, AT_COMPRESSED, 0)
    found, *stopped = module.find(plain + packed, 0, 0, b"k", None, None, None, None)
    assert (found, stopped) == ([0], [len(plain), 1, AT_COMPRESSED, 0])


@each_module
def test_a_scan_stops_where_another_batch_would_have_to_follow(module: ModuleType) -> None:
    first, third = batch(Record(b"k", b"v")), batch(Record(b"k", b"v"), offset=2)
    assert module.hashes(first + third, 0, 0)[1:] == (len(first), 1, AT_DAMAGE, 0)


@each_module
def test_a_batch_that_is_not_whole_is_left_for_the_next_scan(module: ModuleType) -> None:
    first, second = batch(Record(b"k", b"v")), batch(Record(b"k", b"v"), offset=1)
    data = first + second[:-1]
    assert module.hashes(data, 0, 0)[1:] == (len(first), 1, AT_END, 0)


@each_module
def test_all_conditions_must_hold(module: ModuleType) -> None:
    data = batch(
        Record(b"k", b"red", (("tenant", b"a"), ("traceparent", PARENT))),
        Record(b"k", b"blue", (("tenant", b"b"),)),
        Record(b"other", b"blue", (("tenant", b"a"),)),
    )

    def find(*wanted: bytes | None) -> list[int]:
        found: list[int] = module.find(data, 0, 0, *wanted)[0]
        return found

    assert find(b"k", None, None, None, None) == [0, 1]
    assert find(b"k", None, None, None, b"blue") == [1]
    assert find(None, TRACE, None, None, None) == [0]
    assert find(None, TRACE, None, None, b"blue") == []
    assert find(None, None, b"tenant", b"a", None) == [0, 2]
    assert find(None, None, b"tenant", None, None) == [0, 1, 2]
    assert find(None, None, None, None, b"other") == [2]


@each_module
def test_records_of_a_log_are_found_wherever_they_are(module: ModuleType) -> None:
    for seed in range(50):
        data = log_of(random.Random(seed))
        found, at, _, stop, _ = module.find(data, 0, FIRST_OFFSET, b"k1", None, None, None, None)
        hashed = numbers(module.hashes(data, 0, FIRST_OFFSET)[0])
        assert (at, stop) == (len(data), AT_END)
        assert len(found) == hashed.count(hash_of(b"k1", KEY_SEED))


@each_module
def test_damaged_records_are_refused(module: ModuleType) -> None:
    payload = encode_records([(0, Record(b"k", b"v"))], base_timestamp=0)
    assert module.find_records(payload, 1, 7, b"k", None, None, None, None) == [7]
    for count, cut in ((2, 0), (1, 1)):
        with pytest.raises(CorruptBatch):
            module.find_records(payload[: len(payload) - cut], count, 7, b"k", *[None] * 4)
        with pytest.raises(CorruptBatch):
            module.record_hashes(payload[: len(payload) - cut], count)


@each_module
def test_wrong_arguments_are_refused(module: ModuleType) -> None:
    data = batch(Record(b"k", b"v"))
    with pytest.raises(ValueError, match="outside the bytes"):
        module.hashes(data, len(data) + 1, 0)
    with pytest.raises(ValueError, match="32 digits"):
        module.find(data, 0, 0, None, b"short", None, None, None)


@each_module
def test_a_filter_has_everything_that_was_added_and_little_else(module: ModuleType) -> None:
    added = [hash_of(b"key-%d" % number, KEY_SEED) for number in range(5000)]
    bits = module.bloom(struct.pack(f"={len(added)}Q", *added))
    assert len(bits) == 6250

    def has(value: int) -> bool:
        return all(bits[bit >> 3] >> (bit & 7) & 1 for bit in probes(value, len(bits)))

    assert all(map(has, added))
    others = sum(has(hash_of(b"other-%d" % number, KEY_SEED)) for number in range(10_000))
    assert others < 200  # a hundred are expected


@pytest.mark.parametrize(
    ("content", "seed", "expected"),
    [
        (b"", KEY_SEED, 0xDF442D24346930AF),
        (b"order-1", KEY_SEED, 0xCFC7D273478099CB),
        (b"a longer key than eight", KEY_SEED, 0xDE2F9D26DF4B4EE1),
        (TRACE, TRACE_SEED, 0x36F7B0ACF445CC51),
    ],
)
def test_hashes_stay_what_they_are_on_disk(content: bytes, seed: int, expected: int) -> None:
    assert hash_of(content, seed) == expected
