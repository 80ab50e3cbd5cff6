"""Reading many requests at once: the compiled function and the plain one say the same."""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from goqueue.wire.kafka import produce_fast_path, request_reference
from goqueue.wire.kafka.request_reference import (
    VERSION_MAX,
    VERSION_MIN,
    Run,
    pack_numbers,
    split_key,
)
from tests.unit.compiling import can_compile
from tests.unit.wire.kafka.request_cases import (
    BATCH,
    CLIENT_ID,
    FRAME_BYTES_MAX,
    REQUESTS_MAX,
    frame,
    hostile_frames,
)

READERS: list[Callable[..., Run | None]] = [request_reference.read_run]
ANSWERERS = [request_reference.answer_run, produce_fast_path.answer_run]
IS_BUILT = produce_fast_path.read_run is not request_reference.read_run
if IS_BUILT:
    READERS.append(produce_fast_path.read_run)

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)


def _read(data: bytes, start: int = 0) -> Run | None:
    """What all of the implementations say."""
    runs = [
        read(memoryview(data), start, CLIENT_ID, FRAME_BYTES_MAX, REQUESTS_MAX) for read in READERS
    ]
    assert all(run == runs[0] for run in runs), runs
    return runs[0]


def _numbers(packed: bytes) -> list[int]:
    return memoryview(packed).cast("i").tolist()


def test_the_compiled_function_is_built_where_there_is_a_compiler() -> None:
    if not can_compile():
        pytest.skip("there is nothing to build it with")
    assert IS_BUILT, "There is a compiler and no compiled module; run `make setup`."


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_up_to_the_first_that_is_not_whole(version: int) -> None:
    frames = [
        frame(version, partitions=(number,), correlation_id=40 + number) for number in (0, 1, 2)
    ]
    data = b"before" + b"".join(frames)
    run = _read(data + frame(version)[:-1], start=6)
    assert run is not None
    stop, acks, count, shares = run
    assert (stop, acks, count) == (len(data), 1, 3)
    assert [split_key(key) for key, *_ in shares] == [(b"orders", n, version) for n in range(3)]
    spans = [_numbers(spans) for *_, spans in shares]
    assert [data[start:end] for start, end in spans] == [BATCH] * 3
    assert [_numbers(ids) for _, _, ids, _ in shares] == [[40], [41], [42]]
    assert [_numbers(places) for _, places, _, _ in shares] == [[0], [1], [2]]


@pytest.mark.parametrize("order", ["0101", "00112", "01200", "00000", "01234"])
def test_requests_are_divided_by_partition(order: str) -> None:
    data = b"".join(
        frame(partitions=(int(number),), correlation_id=place) for place, number in enumerate(order)
    )
    run = _read(data)
    assert run is not None
    found = {}
    for key, places, ids, spans in run[3]:
        assert places == ids
        assert len(spans) == 2 * len(places)
        found[split_key(key)[1]] = _numbers(places)
    wanted = {
        int(number): [at for at, one in enumerate(order) if one == number] for number in order
    }
    assert found == wanted
    assert list(found) == list(wanted)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "other",
    [
        {"partitions": ()},
        {"partitions": (1, 2)},
        {"acks": 0},
        {"transactional_id": "transactional"},
        {"batch": b""},
        {"batch": None},
        {"batch": bytes(FRAME_BYTES_MAX)},
        {"name": ""},
        {"name": "t" * 140},
    ],
)
def test_requests_of_another_form_end_a_run(version: int, other: dict[str, Any]) -> None:
    strange = frame(version, **other)
    is_read = other == {"name": "t" * 140} and version < request_reference.FLEXIBLE_FROM
    assert (_read(strange) is not None) == is_read
    run = _read(frame(version) + strange + frame(version))
    assert run is not None
    assert run[2] == (3 if is_read else 1)


def test_requests_of_another_kind_or_client_end_a_run() -> None:
    one = frame(7)
    for other in (
        frame(7, acks=-1),
        one.replace(CLIENT_ID, CLIENT_ID[:-1] + b"?"),
        one[:5] + b"\x03" + one[6:],  # what asks for metadata, not to store something
    ):
        run = _read(one + other)
        assert run is not None
        assert run[0] == len(one)


def test_requests_of_another_version_end_a_run() -> None:
    run = _read(frame(5) + frame(9) + frame(5))
    assert run is not None
    assert run[:3] == (len(frame(5)), 1, 1)


def test_a_run_is_bounded() -> None:
    run = _read(frame() * (REQUESTS_MAX + 1))
    assert run is not None
    assert run[0] == REQUESTS_MAX * len(frame())


@pytest.mark.parametrize("first", range(0, 800, 200))
def test_changed_and_cut_bytes_are_read_alike(first: int) -> None:
    for seed in range(first, first + 200):
        _read(hostile_frames(random.Random(seed)))


TEMPLATE = bytes(range(40))


def _answer(places: list[int], ids: list[int], offsets: list[int], first: int) -> list[bytes]:
    """What all of the implementations put into five places."""
    said = []
    for answer_run in ANSWERERS:
        parts = [b""] * 5
        packed = array("q", offsets).tobytes()
        answer_run(parts, pack_numbers(places), pack_numbers(ids), TEMPLATE, 20, packed, first)
        said.append(parts)
    assert all(parts == said[0] for parts in said), said
    return said[0]


def test_answers_are_the_template_with_numbers_of_their_own() -> None:
    parts = _answer([3, 1], [-5, 1 << 30], [7, 1 << 60, 9], 1)
    assert [bool(part) for part in parts] == [False, True, False, True, False]
    for part, number, offset in ((parts[3], -5, 1 << 60), (parts[1], 1 << 30, 9)):
        assert struct.unpack_from(">i", part, 4) == (number,)
        assert struct.unpack_from(">q", part, 20) == (offset,)
        assert part[:4] + part[8:20] + part[28:] == TEMPLATE[:4] + TEMPLATE[8:20] + TEMPLATE[28:]


def test_answers_without_offsets_keep_what_the_template_says() -> None:
    parts = _answer([0], [6], [], 0)
    assert parts[0] == TEMPLATE[:4] + b"\0\0\0\x06" + TEMPLATE[8:]


@pytest.mark.skipif(not IS_BUILT, reason="there is no compiled module")
@pytest.mark.parametrize(
    "wrong",
    [
        {"places": pack_numbers([5])},
        {"places": pack_numbers([-6])},
        {"places": pack_numbers([0, 1])},
        {"template": b"short"},
        {"offset_at": 33},
        {"offset_at": -1},
        {"first": 1},
        {"first": -1},
        {"first": 1 << 62},
    ],
)
def test_the_compiled_one_never_writes_outside_an_answer(wrong: dict[str, Any]) -> None:
    given = {
        "places": pack_numbers([0]),
        "ids": pack_numbers([1]),
        "template": TEMPLATE,
        "offset_at": 32,
        "offsets": bytes(8),
        "first": 0,
    }
    produce_fast_path.answer_run([b""] * 5, *given.values())  # type: ignore[arg-type]
    with pytest.raises((ValueError, IndexError)):
        produce_fast_path.answer_run([b""] * 5, *(given | wrong).values())  # type: ignore[arg-type]


@pytest.mark.skipif(not IS_BUILT, reason="there is no compiled module")
@pytest.mark.parametrize("start", [-1, 10_000])
def test_the_compiled_one_never_looks_outside_its_buffer(start: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        produce_fast_path.read_run(memoryview(frame()), start, CLIENT_ID, 1000, 5)


@pytest.mark.skipif(not IS_BUILT, reason="there is no compiled module")
@pytest.mark.parametrize("count_max", [-1, 0, 1 << 20])
def test_the_compiled_one_has_a_bound(count_max: int) -> None:
    with pytest.raises(ValueError, match="many"):
        produce_fast_path.read_run(memoryview(frame()), 0, CLIENT_ID, 1000, count_max)
