"""Runs of small batches: the compiled functions and the plain ones say the same."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model import run_reference, runs
from goqueue.model.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    Record,
    build_batch,
    decode_batch,
    encode_batch,
    encode_records,
    read_header,
)
from goqueue.model.compression import Compression
from tests.unit.compiling import can_compile
from tests.unit.model.run_cases import (
    BYTES_MAX,
    NOW_MS,
    TIMES,
    batch,
    hostile_run,
    laid_out,
    outcomes,
    packed,
)

MODULES: list[ModuleType] = [run_reference]
if runs.IS_COMPILED:
    from goqueue.model import _runs

    MODULES.append(_runs)


def _built(*, count: int = 1, **fields: int) -> bytes:
    payload = encode_records([(0, Record(b"k", b"v"))], base_timestamp=NOW_MS)
    times = {"base_timestamp": NOW_MS, "max_timestamp": NOW_MS}
    return bytes(build_batch(payload, record_count=count, **(times | fields)))


def _is_plain(one: bytes) -> bool:
    """What all of the implementations say."""
    data, [span] = laid_out([one])
    data += b"behind"
    answers = {module.are_plain(data, packed(span), BYTES_MAX, *TIMES) for module in MODULES}
    assert len(answers) == 1
    return answers.pop()


def test_the_compiled_functions_are_built_where_there_is_a_compiler() -> None:
    if not can_compile():
        pytest.skip("there is nothing to build it with")
    assert runs.IS_COMPILED, "There is a compiler and no compiled module; run `make setup`."


def test_plain_batches_are_taken() -> None:
    assert _is_plain(batch())
    assert _is_plain(batch(count=3, size=700))
    assert _is_plain(batch(timestamp_ms=-1))


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(batch()[: HEADER_BYTES - 1], id="short"),
        pytest.param(batch() + b"x", id="longer than it says"),
        pytest.param(batch()[:-1], id="shorter than it says"),
        pytest.param(batch(size=BYTES_MAX), id="over the limit"),
        pytest.param(batch(timestamp_ms=TIMES[0] - 1), id="too old"),
        pytest.param(batch(timestamp_ms=TIMES[1] + 1), id="too new"),
        pytest.param(batch()[:16] + b"\x01" + batch()[17:], id="of another format"),
        pytest.param(batch()[:-1] + b"x", id="damaged"),
        pytest.param(_built(count=0, last_offset_delta=0), id="no record"),
        pytest.param(_built(count=2, last_offset_delta=0), id="wrong last offset"),
        pytest.param(_built(count=-1, last_offset_delta=-2), id="fewer than none"),
        pytest.param(_built(attributes=CONTROL), id="control"),
        pytest.param(_built(attributes=LOG_APPEND_TIME), id="append time"),
        pytest.param(_built(producer_id=5, producer_epoch=0, base_sequence=0), id="idempotent"),
        pytest.param(
            bytes(encode_batch([Record(b"", b"v", (), NOW_MS)], codec=Compression.GZIP)),
            id="compressed",
        ),
        pytest.param(
            bytes(encode_batch([Record(b"", b"v", (("goqueue-priority", b"1"),), NOW_MS)])),
            id="with attributes",
        ),
    ],
)
def test_whatever_needs_a_closer_look_is_not_plain(strange: bytes) -> None:
    assert not _is_plain(strange)


@given(st.integers(0, len(batch()) - 1), st.integers(0, 255))
def test_a_changed_byte_is_judged_alike(place: int, byte: int) -> None:
    changed = bytearray(batch())
    changed[place] = byte
    _is_plain(bytes(changed))


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_hostile_runs_are_judged_alike(first: int) -> None:
    for seed in range(first, first + 100):
        data, spans = hostile_run(random.Random(seed))
        said = [outcomes(module, data, spans) for module in MODULES]
        assert all(one == said[0] for one in said), seed


@given(st.lists(st.integers(1, 4), max_size=5), st.integers(0, 1 << 62), st.integers(0, 1 << 30))
def test_batches_are_gathered_with_offsets_in_a_row(
    counts: list[int], base_offset: int, epoch: int
) -> None:
    data, spans = laid_out([batch(count=count) for count in counts])
    pieces = [(packed(*spans[:2]), 0), (packed(*spans[2:]), 0)]
    gathered = [
        module.gather_run(memoryview(data), pieces, base_offset, epoch) for module in MODULES
    ]
    run, offsets, next_offset = gathered[0]
    assert all(one == gathered[0] for one in gathered)
    assert next_offset == base_offset + sum(counts)
    offset, position = base_offset, 0
    for found, count in zip(memoryview(offsets).cast("q"), counts, strict=True):
        header = read_header(run[position:])
        assert found == header.base_offset == offset
        assert header.leader_epoch == epoch
        one = run[position : position + header.size]
        assert [record.offset for record in decode_batch(one)] == list(
            range(offset, offset + count)
        )
        offset, position = offset + count, position + header.size
    assert position == len(run)


@given(
    st.lists(st.integers(-1, 5), min_size=1, max_size=8),
    st.integers(0, 300),
    st.integers(0, 600),
    st.integers(0, 400),
)
def test_runs_are_marked_as_their_batches_would_be(
    times: list[int], position: int, due: int, interval: int
) -> None:
    data, spans = laid_out([batch(timestamp_ms=time, size=20 * time + 40) for time in times])
    run, _, _ = run_reference.gather_run(data, [(packed(*spans), 0)], 100, 0)
    marked = [module.mark_run(run, position, due, interval, 2, 50) for module in MODULES]
    assert all(one == marked[0] for one in marked)
    marks, newest, newest_offset = marked[0]
    assert newest == max(2, *times)
    assert newest_offset == (50 if newest == 2 else 100 + times.index(newest))
    at, expected = position, []
    for number, (start, end) in enumerate(spans):
        if at >= due:
            expected.append((100 + number, at, max(2, *times[: number + 1])))
            due = at + interval
        at += end - start
    assert [mark[:3] for mark in marks] == expected


@pytest.mark.skipif(not runs.IS_COMPILED, reason="there is no compiled module")
@pytest.mark.parametrize("span", [(-1, 70), (0, 1 << 30), (80, 70), (-70, -1)])
def test_the_compiled_one_never_looks_outside_its_buffer(span: tuple[int, int]) -> None:
    data = batch()
    with pytest.raises(ValueError, match="outside"):
        _runs.are_plain(data, packed(span), BYTES_MAX, *TIMES)
    with pytest.raises(ValueError, match="outside"):
        _runs.gather_run(data, [(packed(span), 0)], 0, 0)


@pytest.mark.skipif(not runs.IS_COMPILED, reason="there is no compiled module")
def test_the_compiled_one_refuses_what_is_no_run() -> None:
    data = batch()
    with pytest.raises(ValueError, match="shorter"):
        _runs.gather_run(data, [(packed((0, 1)), 0)], 0, 0)
    for piece in ("ab", (b"",), None, (b"", 1 << 40), ([1], 2)):
        with pytest.raises((ValueError, TypeError)):
            _runs.gather_run(data, [piece], 0, 0)  # type: ignore[list-item]
    for run in (data[:-1], data + b"x", data[:60], bytes(61)):
        with pytest.raises(ValueError, match="whole"):
            _runs.mark_run(run, 0, 0, 100, 0, 0)
