"""Reading many requests at once: the compiled function and the plain one say the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.batch import Record, encode_batch
from goqueue.wire.kafka import produce_run, request_reference
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.metadata import MetadataRequest
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from goqueue.wire.kafka.request_reference import (
    VERSION_MAX,
    VERSION_MIN,
    Run,
    split_key,
)
from tests.simulation.world import World

READERS: list[Callable[..., Run | None]] = [request_reference.read_run]
IS_BUILT = produce_run.read_run is not request_reference.read_run
if IS_BUILT:
    READERS.append(produce_run.read_run)

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)
BATCH = bytes(encode_batch([Record(b"k", b"v" * 100, timestamp_ms=1)]))
FRAME_BYTES_MAX = 1000
REQUESTS_MAX = 5

_peer = World().peer()
# What the header of its requests says of the client, its length before it.
CLIENT_ID = _peer.frame(API_BY_NAME["Metadata"], 1, MetadataRequest(topics=None))[12:-4]


def _frame(version: int = 7, **other: object) -> bytes:
    fields = {"name": "orders", "partitions": (3,), "acks": 1, "batch": BATCH, "id": None} | other
    partitions = [
        PartitionProduceData(index=number, records=fields["batch"])  # type: ignore[arg-type]
        for number in fields["partitions"]  # type: ignore[attr-defined]
    ]
    request = ProduceRequest(
        transactional_id=fields["id"],  # type: ignore[arg-type]
        acks=fields["acks"],  # type: ignore[arg-type]
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=fields["name"], partition_data=partitions)],  # type: ignore[arg-type]
    )
    return _peer.frame(API_BY_NAME["Produce"], version, request)


def _read(data: bytes, start: int = 0) -> Run | None:
    """What all of the implementations say."""
    runs = [
        read(memoryview(data), start, CLIENT_ID, FRAME_BYTES_MAX, REQUESTS_MAX) for read in READERS
    ]
    assert all(run == runs[0] for run in runs), runs
    return runs[0]


def test_the_compiled_function_is_built_where_there_is_a_compiler() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no compiler")
    assert IS_BUILT, "There is a compiler and no compiled module; run `make setup`."


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_up_to_the_first_that_is_not_whole(version: int) -> None:
    frames = [_frame(version, partitions=(number,)) for number in (0, 1, 2)]
    data = b"before" + b"".join(frames)
    run = _read(data + _frame(version)[:-1], start=6)
    assert run is not None
    stop, of_version, acks, rows = run
    assert (stop, of_version, acks) == (len(data), version, 1)
    assert [split_key(key, version) for _, key, _ in rows] == [(b"orders", n) for n in range(3)]
    assert [data[start:end] for _, _, (start, end) in rows] == [BATCH] * 3
    first = int.from_bytes(frames[0][8:12], "big")
    assert [correlation_id for correlation_id, _, _ in rows] == [first, first + 1, first + 2]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "other",
    [
        {"partitions": ()},
        {"partitions": (1, 2)},
        {"acks": 0},
        {"id": "transactional"},
        {"batch": b""},
        {"batch": None},
        {"batch": bytes(FRAME_BYTES_MAX)},
        {"name": ""},
        {"name": "t" * 140},
    ],
)
def test_requests_of_another_form_end_a_run(version: int, other: dict[str, object]) -> None:
    strange = _frame(version, **other)
    is_read = other == {"name": "t" * 140} and version < request_reference.FLEXIBLE_FROM
    assert (_read(strange) is not None) == is_read
    run = _read(_frame(version) + strange + _frame(version))
    assert run is not None
    assert len(run[3]) == (3 if is_read else 1)


def test_requests_with_another_promise_or_client_end_a_run() -> None:
    one = _frame(7)
    for other in (
        _frame(8),
        _frame(9),
        _frame(7, acks=-1),
        one.replace(CLIENT_ID, CLIENT_ID[:-1] + b"?"),
        _peer.frame(API_BY_NAME["Metadata"], 1, MetadataRequest(topics=None)),
    ):
        run = _read(one + other)
        assert run is not None
        assert run[0] == len(one)


def test_a_run_is_bounded() -> None:
    run = _read(_frame() * (REQUESTS_MAX + 1))
    assert run is not None
    assert run[0] == REQUESTS_MAX * len(_frame())


@given(st.sampled_from(VERSIONS), st.data())
def test_changed_and_cut_bytes_are_read_alike(version: int, data: st.DataObject) -> None:
    frames = bytearray(_frame(version) + _frame(version))
    place = data.draw(st.integers(0, len(_frame(version)) - 1))
    frames[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(frames)))
    _read(bytes(frames))
    _read(bytes(frames[:end]))


@pytest.mark.skipif(not IS_BUILT, reason="there is no compiled module")
@pytest.mark.parametrize("start", [-1, 10_000])
def test_the_compiled_one_never_looks_outside_its_buffer(start: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        produce_run.read_run(memoryview(_frame()), start, CLIENT_ID, 1000, 5)
