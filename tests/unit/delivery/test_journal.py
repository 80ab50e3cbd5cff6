"""Events written down and read back; damage is an error and never nonsense."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery.journal import (
    LedgerKey,
    decode_events,
    decode_key,
    encode_events,
    encode_key,
)
from goqueue.delivery.ledger import (
    SNAPSHOT_ENTRIES_MAX,
    DeadLettered,
    DeadLetterIntent,
    Done,
    Event,
    Finish,
    Forgotten,
    Ledger,
    Moved,
    PendingLetter,
    Retried,
    Retry,
    Rewound,
    Snapshot,
)
from goqueue.model.errors import CorruptDeliveryState, UnsupportedVersion

OFFSETS = st.integers(0, 1 << 40)
RANGES = st.lists(st.tuples(OFFSETS, st.integers(1, 1000)).map(lambda one: (one[0], sum(one))))
RETRIES = st.lists(
    st.tuples(
        OFFSETS,
        st.builds(
            Retry,
            st.integers(0, 1000),
            st.integers(0, 1 << 42),
            st.integers(0, 2**64 - 1),
            st.sampled_from([0, 1 << 41]),
        ),
    )
)
TOPIC_IDS = st.binary(min_size=16, max_size=16)
GRAVES = st.lists(st.tuples(TOPIC_IDS, OFFSETS), max_size=3)
EVENTS = st.lists(
    st.one_of(
        st.builds(Done, st.sampled_from(Finish), RANGES),
        st.builds(Retried, RETRIES),
        st.builds(Moved, OFFSETS),
        st.builds(Rewound, OFFSETS, RANGES),
        st.builds(DeadLettered, RANGES, TOPIC_IDS, OFFSETS),
        st.builds(
            DeadLetterIntent,
            st.lists(st.builds(PendingLetter, OFFSETS, OFFSETS, st.text(max_size=9))),
            TOPIC_IDS,
            OFFSETS,
            OFFSETS,
            OFFSETS,
        ),
        st.builds(Snapshot, st.integers(0, 9), st.integers(1, 9), OFFSETS, RANGES, RETRIES, GRAVES),
        st.just(Forgotten()),
    ),
    max_size=5,
)


@given(EVENTS)
def test_events_come_back_as_they_were(events: list[Event]) -> None:
    assert decode_events(encode_events(events)) == events


@given(EVENTS, st.data())
def test_a_cut_value_is_refused_or_ends_between_events(
    events: list[Event], data: st.DataObject
) -> None:
    value = encode_events(events)
    cut = data.draw(st.integers(0, len(value)))
    try:
        found = decode_events(value[:cut])
    except CorruptDeliveryState:
        return
    assert found == events[: len(found)]


@given(st.binary(max_size=60))
def test_random_bytes_raise_only_the_error_that_says_so(data: bytes) -> None:
    with contextlib.suppress(CorruptDeliveryState, UnsupportedVersion):
        decode_events(b"\x01" + data)
    with contextlib.suppress(CorruptDeliveryState, UnsupportedVersion):
        decode_key(data)


@given(st.text(max_size=50), st.binary(min_size=16, max_size=16), st.integers(0, 10_000))
def test_keys_come_back_as_they_were(group: str, topic_id: bytes, partition: int) -> None:
    key = LedgerKey(group, topic_id, partition)
    assert decode_key(encode_key(key)) == key


def test_other_versions_are_named() -> None:
    with pytest.raises(UnsupportedVersion, match=r"version 9.*upgrade this node"):
        decode_events(b"\x09")
    with pytest.raises(UnsupportedVersion, match=r"version 9.*upgrade this node"):
        decode_key(b"\x09\x00\x00" + bytes(20))
    with pytest.raises(UnsupportedVersion, match=r"kind 99.*upgrade this node"):
        decode_events(b"\x01\x63")
    for damaged in (b"", b"\x00"):
        with pytest.raises(CorruptDeliveryState):
            decode_events(damaged)


def test_a_thousand_consecutive_acks_take_a_few_bytes() -> None:
    assert len(encode_events([Done(Finish.ACKED, [(1_000_000, 1_001_000)])])) < 10


def test_a_large_snapshot_has_parts_and_replaces_all_only_when_it_is_whole() -> None:
    ledger = Ledger()
    wide = SNAPSHOT_ENTRIES_MAX * 2 + 10
    ledger.apply(Done(Finish.ACKED, [(first * 2 + 1, first * 2 + 2) for first in range(wide)]))
    ledger.apply(Retried([(0, Retry(1, 50))]))
    parts = ledger.snapshot()
    assert len(parts) == 3
    other = Ledger()
    other.apply(Done(Finish.ACKED, [(0, 7)]))
    for part in parts[:2]:
        other.apply(decode_events(encode_events([part]))[0])
    assert other.floor == 7, "half a snapshot has taken effect"
    other.apply(parts[2])
    assert other == ledger
    other.apply(parts[0])
    other.apply(parts[2])
    assert other == ledger, "a snapshot with a hole has taken effect"
