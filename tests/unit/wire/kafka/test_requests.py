"""Reading many requests at once: the compiled function and the plain one say the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from goqueue.wire.kafka import produce_gathering, request_reference
from goqueue.wire.kafka.request_reference import (
    VERSION_MAX,
    VERSION_MIN,
    Run,
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
IS_BUILT = produce_gathering.read_run is not request_reference.read_run
if IS_BUILT:
    READERS.append(produce_gathering.read_run)

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)


def _read(data: bytes, start: int = 0) -> Run | None:
    """What all of the implementations say."""
    runs = [
        read(memoryview(data), start, CLIENT_ID, FRAME_BYTES_MAX, REQUESTS_MAX) for read in READERS
    ]
    assert all(run == runs[0] for run in runs), runs
    return runs[0]


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
    stop, acks, rows = run
    assert (stop, acks) == (len(data), 1)
    assert [split_key(row[1]) for row in rows] == [(b"orders", n, version) for n in range(3)]
    assert [data[start:end] for _, _, start, end in rows] == [BATCH] * 3
    assert [correlation_id for correlation_id, *_ in rows] == [40, 41, 42]


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
    assert len(run[2]) == (3 if is_read else 1)


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


def test_a_run_may_have_requests_of_several_versions() -> None:
    run = _read(frame(5) + frame(9) + frame(8))
    assert run is not None
    assert [split_key(row[1])[2] for row in run[2]] == [5, 9, 8]


def test_a_run_is_bounded() -> None:
    run = _read(frame() * (REQUESTS_MAX + 1))
    assert run is not None
    assert run[0] == REQUESTS_MAX * len(frame())


@pytest.mark.parametrize("first", range(0, 800, 200))
def test_changed_and_cut_bytes_are_read_alike(first: int) -> None:
    for seed in range(first, first + 200):
        _read(hostile_frames(random.Random(seed)))


@pytest.mark.skipif(not IS_BUILT, reason="there is no compiled module")
@pytest.mark.parametrize("start", [-1, 10_000])
def test_the_compiled_one_never_looks_outside_its_buffer(start: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        produce_gathering.read_run(memoryview(frame()), start, CLIENT_ID, 1000, 5)
