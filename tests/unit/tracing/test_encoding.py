"""Records of journeys written and read back; damage is an error and never nonsense."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import CorruptJourney, UnsupportedVersion
from goqueue.tracing.encoding import (
    decode_cursors,
    decode_events,
    decode_key,
    decode_span,
    encode_cursors,
    encode_events,
    is_cursors,
    is_events,
)
from goqueue.tracing.events import Cursor, Details, Event, Kind, Link, Place, Source, Span

TEXTS = st.text(max_size=20)
TOPIC_IDS = st.binary(min_size=16, max_size=16)
PARTITIONS = st.integers(0, (1 << 31) - 1)
OFFSETS = st.integers(0, 1 << 60)
TIMES = st.integers(0, 1 << 44)
SMALL = st.integers(0, 1 << 20)
DETAILS = st.builds(
    Details,
    st.sampled_from(Kind),
    st.integers(-1, 1 << 31),
    *([TEXTS] * 6),
    SMALL,
    SMALL,
    st.booleans(),
)
LINKS = st.none() | st.builds(Link, TEXTS, st.integers(-1, 1 << 20), st.integers(-1, 1 << 60))
EVENTS = st.lists(
    st.builds(
        lambda details, first, count, time_ms, length_ms, *rest: Event(
            details, first, first + count, time_ms, time_ms + length_ms, *rest
        ),
        st.shared(st.lists(DETAILS, min_size=1, max_size=3)).flatmap(st.sampled_from),
        OFFSETS,
        st.integers(1, 1 << 40),
        TIMES,
        SMALL,
        SMALL,
        st.just(0) | TIMES,
        LINKS,
    ),
    min_size=1,
)
PLACES = st.builds(Place, TEXTS, TOPIC_IDS, PARTITIONS)
SOURCES = st.builds(Source, TOPIC_IDS, PARTITIONS)
EPOCHS = st.integers(-1, (1 << 31) - 1)
SPANS = st.builds(
    lambda source, epoch, first, count, is_reset: Span(
        source, epoch, first, first + count, is_reset
    ),
    SOURCES,
    EPOCHS,
    OFFSETS,
    SMALL,
    st.booleans(),
)
CURSORS = st.lists(st.builds(Cursor, SOURCES, EPOCHS, OFFSETS))

PLACE = Place("orders", b"t" * 16, 3)
OWN_SPAN = Span(Source(PLACE.topic_id, PLACE.partition), 5, 100, 200)


@given(PLACES, SPANS, st.booleans(), EVENTS)
def test_events_are_read_as_they_were_written(
    place: Place, span: Span, is_own: bool, events: list[Event]
) -> None:
    if is_own:
        span = span._replace(source=Source(place.topic_id, place.partition))
    key, value = encode_events(place, span, events)
    first, end = min(one.first for one in events), max(one.end for one in events)
    assert decode_key(key) == (place, first, end)
    assert decode_events(place, value) == (span, events)
    assert decode_span(place, value) == span
    assert is_events(key)
    assert not is_cursors(key)


@given(CURSORS, st.booleans())
def test_cursors_are_read_as_they_were_written(cursors: list[Cursor], is_snapshot: bool) -> None:
    key, value = encode_cursors(cursors, is_snapshot=is_snapshot)
    assert decode_cursors(value) == (is_snapshot, cursors)
    assert is_cursors(key)
    assert not is_events(key)


@given(st.binary())
def test_random_bytes_are_a_clear_error(data: bytes) -> None:
    for decode in (decode_key, decode_cursors, lambda value: decode_events(PLACE, value)):
        with contextlib.suppress(CorruptJourney, UnsupportedVersion):
            decode(data)
        with contextlib.suppress(CorruptJourney, UnsupportedVersion):
            decode(b"J\x01" + data)
        with contextlib.suppress(CorruptJourney, UnsupportedVersion):
            decode(b"\x01\x01" + data)


@given(EVENTS, st.data())
def test_a_changed_byte_is_an_error_or_other_valid_events(
    events: list[Event], data: st.DataObject
) -> None:
    _, value = encode_events(PLACE, OWN_SPAN, events)
    position = data.draw(st.integers(0, len(value) - 1))
    changed = bytearray(value)
    changed[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(CorruptJourney, UnsupportedVersion):
        span, others = decode_events(PLACE, bytes(changed))
        assert all(0 <= one.first < one.end for one in others)
        assert 0 <= span.first <= span.end
    for end in range(len(value)):
        with pytest.raises(CorruptJourney):
            decode_events(PLACE, value[:end])


def test_damage_is_named() -> None:
    key, value = encode_events(PLACE, OWN_SPAN, [Event(Details(Kind.ACKED), 1, 2, 3, 3)])
    with pytest.raises(CorruptJourney, match="bytes after its end"):
        decode_events(PLACE, value + b"\x00")
    with pytest.raises(CorruptJourney, match="begins with b'K"):
        decode_events(PLACE, b"K" + value[1:])
    with pytest.raises(CorruptJourney, match="unknown flags 8"):
        decode_events(PLACE, value[:2] + b"\x08" + value[3:])
    with pytest.raises(CorruptJourney, match="begins with"):
        decode_key(b"\x07" + key[1:])


def test_common_events_are_small() -> None:
    received = Details(Kind.RECEIVED, 1, principal="User:ada", client_id="app", listener="kafka")
    stored = Details(Kind.STORED, 1, replicas=3)
    events = []
    for number in range(100):
        time_ms, first = 1_800_000_000_000 + 10 * number, 1_000_000 + 500 * number
        events.append(Event(received, first, first + 500, time_ms, time_ms, size=50_000))
        events.append(Event(stored, first, first + 500, time_ms + 2, time_ms + 2))
    key, value = encode_events(PLACE, OWN_SPAN, events)
    assert len(key) + len(value) < 2_000  # for 50,000 messages


def test_the_time_and_the_link_of_one_message_of_a_range() -> None:
    details = Details(Kind.RELEASED)
    event = Event(details, 10, 15, 1000, 1008, link=Link("orders", 0, 70))
    assert [event.time_of(offset) for offset in range(10, 15)] == [1000, 1002, 1004, 1006, 1008]
    assert event.link_of(12) == Link("orders", 0, 72)
    assert event._replace(link=Link("orders", 0, -1)).link_of(12) == Link("orders", 0, -1)
    assert Event(details, 10, 11, 1000, 1000).time_of(10) == 1000
