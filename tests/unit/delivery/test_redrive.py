"""Redrive jobs: which dead letters they want, where those go, and how a job keeps count."""

from __future__ import annotations

import msgspec
import pytest

from goqueue.delivery.redrive import (
    HISTORY_EVENTS_MAX,
    Letter,
    LetterFilter,
    Redrive,
    RedriveOrder,
    read_letter,
    read_source,
    revived,
)
from goqueue.model.batch import Header, Record
from goqueue.model.dead_letters import Origin, read_origin, write_origin

ORIGIN = Origin("orders", 2, 17, "billing", "deliveries_exhausted", 3, 5_000)


def letter(
    *,
    offset: int = 0,
    partition: int = 0,
    key: bytes | None = b"k",
    headers: tuple[Header, ...] = (),
) -> Letter:
    record = Record(key, b"value", (*headers, *write_origin(ORIGIN)), 9_000, offset)
    return read_letter(partition, record)


def job(order: RedriveOrder | None = None, **fields: object) -> Redrive:
    return Redrive(
        id="1f",
        topic="orders",
        dead_letter_topic="orders.dlq",
        dead_letter_topic_id=bytes(16),
        order=order or RedriveOrder(),
        created_ms=1,
        **{"positions": [0, 5], "until_offsets": [10, 8], **fields},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("filter", "is_accepted"),
    [
        (LetterFilter(), True),
        (LetterFilter(reason="deliveries_exhausted"), True),
        (LetterFilter(reason="poison"), False),
        (LetterFilter(group="billing"), True),
        (LetterFilter(group="audit"), False),
        (LetterFilter(key=b"k"), True),
        (LetterFilter(key=b"other"), False),
        (LetterFilter(from_ms=5_000), True),
        (LetterFilter(from_ms=5_001), False),
        (LetterFilter(until_ms=5_001), True),
        (LetterFilter(until_ms=5_000), False),
        (LetterFilter(header=("tenant", b"a")), True),
        (LetterFilter(header=("tenant", None)), True),
        (LetterFilter(header=("tenant", b"b")), False),
        (LetterFilter(header=("missing", None)), False),
        (LetterFilter(reason="deliveries_exhausted", key=b"other"), False),
    ],
)
def test_every_condition_of_a_filter_must_hold(filter: LetterFilter, is_accepted: bool) -> None:
    assert filter.accepts(letter(headers=(("tenant", b"a"),))) is is_accepted


def test_a_record_that_somebody_else_wrote_has_no_origin_and_dies_when_it_was_written() -> None:
    stranger = read_letter(0, Record(None, b"v", (), 9_000, 3))
    assert stranger.origin is None
    assert LetterFilter(from_ms=9_000).accepts(stranger)
    assert not LetterFilter(group="billing").accepts(stranger)
    assert job().target_of(stranger) is None
    assert job(RedriveOrder(target_topic="elsewhere")).target_of(stranger) == "elsewhere"


def test_what_an_origin_says_is_read_back_and_nonsense_is_unknown() -> None:
    assert read_origin(write_origin(ORIGIN)) == ORIGIN
    damaged = tuple(
        (name, b"x" if name.endswith(("partition", "attempts")) else content)
        for name, content in write_origin(ORIGIN)
    )
    assert read_origin(damaged) == ORIGIN._replace(partition=-1, attempts=-1)


def test_a_message_goes_back_as_it_was_and_says_where_it_has_been() -> None:
    dead = letter(offset=4, partition=1, headers=(("trace", b"t"), ("trace", b"u")))
    back = revived(dead, "orders.dlq", redrive_id="1f", now_ms=70)
    assert (back.key, back.value, back.timestamp_ms) == (b"k", b"value", 70)
    assert [one for one in back.headers if not one[0].startswith("goqueue-")] == [
        ("trace", b"t"),
        ("trace", b"u"),
    ]
    assert read_origin(back.headers) is None
    assert read_source(back) == ("orders.dlq", 1, 4, "1f")
    again = revived(read_letter(0, back._replace(offset=9)), "b.dlq", redrive_id="2", now_ms=80)
    assert read_source(again) == ("b.dlq", 0, 9, "2")
    assert len(again.headers) == len(back.headers)


@pytest.mark.parametrize("content", [b"", b"a/b/c/d", b"a/1/2", b"\xff/1/-2/x", None])
def test_a_header_that_only_looks_like_ours_names_no_source(content: bytes | None) -> None:
    assert read_source(Record(None, None, (("goqueue-redriven-from", content),))) is None


def test_a_job_that_names_letters_looks_only_where_they_are() -> None:
    named = job(RedriveOrder(letters=[(0, 7), (0, 3)]))
    named.narrow()
    assert (named.positions, named.until_offsets) == ([3, 5], [8, 0])
    assert [named.wants(letter(offset=offset)) for offset in (3, 4, 7)] == [True, False, True]
    assert named.next_partition == 0


def test_a_job_is_through_at_its_end_or_at_its_count() -> None:
    assert not job().is_through
    assert job(positions=[10, 8]).is_through
    assert job(RedriveOrder(count_max=2), moved=2).is_through


def test_what_a_restart_found_is_counted_once_when_the_job_passes_it() -> None:
    found = job(already_moved=[(0, 1), (0, 6), (1, 5)])
    found.go_on(0, 5)
    assert (found.moved, found.already_moved) == (1, [(0, 6), (1, 5)])
    found.go_on(0, 10)
    found.go_on(1, 8)
    assert (found.moved, found.already_moved) == (3, [])


def test_a_job_is_the_same_after_it_was_written_down() -> None:
    before = job(
        RedriveOrder(filter=LetterFilter(key=b"\xff", header=("a", None)), letters=[(0, 1)])
    )
    before.change("cancelled", now_ms=7, what="cancelled")
    data = msgspec.msgpack.encode(before)
    assert msgspec.msgpack.decode(data, type=Redrive) == before
    assert before.is_ended
    assert before.ended_ms == 7


def test_a_long_history_keeps_its_beginning_and_its_end() -> None:
    long = job()
    for number in range(3 * HISTORY_EVENTS_MAX):
        long.note(number, str(number))
    assert len(long.history) == HISTORY_EVENTS_MAX
    assert (long.history[0].what, long.history[-1].what) == ("0", str(3 * HISTORY_EVENTS_MAX - 1))
