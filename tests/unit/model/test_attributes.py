"""Attributes: what the headers of a record ask for, and how a batch that has some is noticed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from goqueue.model.attributes import (
    DELAY_MS_MAX,
    NO_ATTRIBUTES,
    Attributes,
    has_attributes,
    parse_attributes,
    parse_moment,
)
from goqueue.model.batch import Record, encode_batch, read_header
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidAttribute

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_with_attributes_is_noticed_whatever_its_compression(codec: Compression) -> None:
    plain = [Record(b"k", b"v" * 100, (("trace", b"x"),))] * 20
    marked = [*plain, Record(b"k", b"v", (("goqueue-delay-ms", b"5"),))]
    for records, expected in ((plain, False), (marked, True)):
        batch = encode_batch(records, codec=codec)
        header = read_header(batch)
        assert has_attributes(batch, header) is expected
        assert has_attributes(bytes(batch), header) is expected
        assert has_attributes(memoryview(b"goqueue-" + batch)[8:], header) is expected


def test_no_headers_ask_for_nothing() -> None:
    assert parse_attributes(()) == NO_ATTRIBUTES == Attributes(2, None, None, None)
    assert parse_attributes([("trace", None), ("goqueue-flavour", b"?")]) == NO_ATTRIBUTES


@pytest.mark.parametrize(
    ("content", "priority"),
    [(b"critical", 0), (b"HIGH", 1), (b"normal", 2), (b"low", 3), (b"background", 4), (b"3", 3)],
)
def test_a_priority_goes_by_name_or_digit(content: bytes, priority: int) -> None:
    assert parse_attributes([("goqueue-priority", content)]).priority == priority


def test_of_a_header_given_twice_the_last_counts() -> None:
    headers = [("goqueue-ttl-ms", b"5"), ("goqueue-ttl-ms", b"7")]
    assert parse_attributes(headers).ttl_ms == 7


@pytest.mark.parametrize(
    ("content", "expected_ms"),
    [
        (b"1700000000000", NOW_MS),
        (b"2023-11-14T22:13:20Z", NOW_MS),
        (b"2023-11-14t22:13:20.000z", NOW_MS),
        (b"2023-11-14 23:13:20.25+01:00", NOW_MS + 250),
        (b"2023-11-14T22:13:20.000000001Z", NOW_MS + 1),
        (b"2023-11-14T22:13:20.999999999Z", NOW_MS + 1000),
    ],
)
def test_a_moment_is_a_number_or_rfc_3339(content: bytes, expected_ms: int) -> None:
    assert parse_moment(content) == expected_ms


@given(some.integers(0, 250_000_000_000_000_000))
def test_any_time_that_is_written_down_is_read_back_and_never_early(exact_us: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=exact_us)
    assert 0 <= 1000 * parse_moment(moment.isoformat().encode()) - exact_us < 1000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("goqueue-priority", b"urgent"),
        ("goqueue-priority", b"5"),
        ("goqueue-priority", None),
        ("goqueue-delay-ms", b"-1"),
        ("goqueue-delay-ms", b"1.5"),
        ("goqueue-delay-ms", b""),
        ("goqueue-delay-ms", None),
        ("goqueue-delay-ms", b"%d" % (DELAY_MS_MAX + 1)),
        ("goqueue-delay-ms", b"9" * 400),
        ("goqueue-ttl-ms", b"soon"),
        ("goqueue-deliver-at", b"tomorrow"),
        ("goqueue-deliver-at", b"2030-02-30T00:00:00Z"),
        ("goqueue-deliver-at", b"2030-01-01T00:00:60Z"),
        ("goqueue-deliver-at", b"2030-01-01T00:00:00"),
        ("goqueue-deliver-at", b"1969-12-31T23:59:59Z"),
        ("goqueue-deliver-at", b"0001-01-01T00:00:00+23:59"),
        ("goqueue-deliver-at", b"\xff\xfe"),
        ("goqueue-deliver-at", None),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_header(name: str, content: bytes) -> None:
    with pytest.raises(InvalidAttribute, match=name) as refusal:
        parse_attributes([(name, content)])
    assert not refusal.value.retryable
    assert len(str(refusal.value)) < 300


def test_a_delay_and_a_moment_together_are_refused() -> None:
    with pytest.raises(InvalidAttribute, match="one of them"):
        parse_attributes([("goqueue-delay-ms", b"1"), ("goqueue-deliver-at", b"1")])


def test_what_is_due_now_or_earlier_is_not_scheduled() -> None:
    assert NO_ATTRIBUTES.due_ms(NOW_MS) is None
    assert Attributes(delay_ms=0).due_ms(NOW_MS) is None
    assert Attributes(deliver_at_ms=NOW_MS).due_ms(NOW_MS) is None
    assert Attributes(delay_ms=1).due_ms(NOW_MS) == NOW_MS + 1
    assert Attributes(deliver_at_ms=NOW_MS + 9).due_ms(NOW_MS) == NOW_MS + 9
    assert Attributes(delay_ms=DELAY_MS_MAX).due_ms(NOW_MS) == NOW_MS + DELAY_MS_MAX
    with pytest.raises(InvalidAttribute, match="hundred years"):
        Attributes(deliver_at_ms=NOW_MS + DELAY_MS_MAX + 1).due_ms(NOW_MS)


@given(some.lists(some.tuples(some.text(max_size=20), some.none() | some.binary(max_size=30))))
def test_any_headers_are_read_or_refused(headers: list[tuple[str, bytes | None]]) -> None:
    prefixed = [(f"goqueue-{name}", content) for name, content in headers]
    for given_headers in (headers, prefixed):
        try:
            parse_attributes(given_headers)
        except InvalidAttribute:
            pass
