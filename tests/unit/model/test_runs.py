"""Runs of small batches: the compiled functions and the plain ones say the same."""

from __future__ import annotations

import shutil
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model import run_reference, runs
from goqueue.model.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    Record,
    build_batch,
    decode_batch,
    encode_batch,
    encode_records,
)
from goqueue.model.compression import Compression
from goqueue.model.run_reference import Span

MODULES: list[ModuleType] = [run_reference]
if runs.IS_COMPILED:
    from goqueue.model import _runs

    MODULES.append(_runs)

NOW_MS = 1_000_000
TIMES = (NOW_MS - 1000, NOW_MS + 1000)
BYTES_MAX = 5000


def _batch(*, count: int = 1, size: int = 10, timestamp_ms: int = NOW_MS) -> bytes:
    record = Record(b"key", b"v" * size, (), timestamp_ms)
    return bytes(encode_batch([record] * count))


def _built(*, count: int = 1, **fields: int) -> bytes:
    payload = encode_records([(0, Record(b"k", b"v"))], base_timestamp=NOW_MS)
    times = {"base_timestamp": NOW_MS, "max_timestamp": NOW_MS}
    return bytes(build_batch(payload, record_count=count, **(times | fields)))


def _laid_out(batches: list[bytes], gap: bytes = b"..") -> tuple[bytes, list[Span]]:
    """Batches with other bytes between them, and where they are."""
    data, spans = b"", []
    for batch in batches:
        data += gap
        spans.append((len(data), len(data) + len(batch)))
        data += batch
    return data, spans


def _check(data: bytes, spans: list[Span]) -> tuple[int, int] | None:
    """What all of the implementations say."""
    answers = [module.check_run(data, spans, BYTES_MAX, *TIMES) for module in MODULES]
    assert len(set(answers)) == 1, answers
    found: tuple[int, int] | None = answers[0]
    return found


def test_the_compiled_functions_are_built_where_there_is_a_compiler() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no compiler")
    assert runs.IS_COMPILED, "There is a compiler and no compiled module; run `make setup`."


def test_plain_batches_are_counted() -> None:
    batches = [_batch(), _batch(count=3, size=700), _batch(timestamp_ms=-1)]
    data, spans = _laid_out(batches)
    assert _check(data, spans) == (5, sum(map(len, batches)))
    assert _check(data, []) == (0, 0)


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(_batch()[: HEADER_BYTES - 1], id="short"),
        pytest.param(_batch() + b"x", id="longer than it says"),
        pytest.param(_batch()[:-1], id="shorter than it says"),
        pytest.param(_batch(size=BYTES_MAX), id="over the limit"),
        pytest.param(_batch(timestamp_ms=TIMES[0] - 1), id="too old"),
        pytest.param(_batch(timestamp_ms=TIMES[1] + 1), id="too new"),
        pytest.param(_batch()[:16] + b"\x01" + _batch()[17:], id="of another format"),
        pytest.param(_batch()[:-1] + b"x", id="damaged"),
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
def test_whatever_needs_a_closer_look_is_not_plain(batch: bytes) -> None:
    assert _check(*_laid_out([batch])) is None
    assert _check(*_laid_out([_batch(), batch, _batch()])) is None


@given(st.integers(0, len(_batch()) - 1), st.integers(0, 255))
def test_a_changed_byte_is_judged_alike(place: int, byte: int) -> None:
    batch = bytearray(_batch())
    batch[place] = byte
    _check(*_laid_out([bytes(batch), _batch()]))


@given(st.lists(st.integers(1, 4), max_size=5), st.integers(0, 1 << 62), st.integers(0, 1 << 30))
def test_batches_are_gathered_with_offsets_in_a_row(
    counts: list[int], base_offset: int, epoch: int
) -> None:
    data, spans = _laid_out([_batch(count=count) for count in counts])
    gathered = [
        module.gather_run(memoryview(data), spans, base_offset, epoch, BatchHeader)
        for module in MODULES
    ]
    run, headers = gathered[0]
    assert all(one == gathered[0] for one in gathered)
    offset, position = base_offset, 0
    for header, count in zip(headers, counts, strict=True):
        assert (header.base_offset, header.leader_epoch) == (offset, epoch)
        batch = run[position : position + header.size]
        assert [record.offset for record in decode_batch(batch)] == list(
            range(offset, offset + count)
        )
        offset, position = offset + count, position + header.size
    assert position == len(run)
    assert all(isinstance(header, BatchHeader) for one in gathered for header in one[1])


@pytest.mark.skipif(not runs.IS_COMPILED, reason="there is no compiled module")
@pytest.mark.parametrize("span", [(-1, 70), (0, 1 << 40), (80, 70), (0, 1), "ab", (1,), None])
def test_the_compiled_one_never_looks_outside_its_buffer(span: object) -> None:
    data = _batch()
    if span != (0, 1):
        with pytest.raises((ValueError, TypeError)):
            _runs.check_run(data, [span], BYTES_MAX, *TIMES)  # type: ignore[list-item]
    with pytest.raises((ValueError, TypeError)):
        _runs.gather_run(data, [span], 0, 0, BatchHeader)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        _runs.gather_run(data, [(0, len(data))], 0, 0, dict)  # type: ignore[arg-type]
