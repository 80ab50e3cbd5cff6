"""Scans: every message once, in order, whatever the windows, the reads and the pages are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.broker.gate.areas.records import Range
from goqueue.model.batch import Record
from goqueue.wire.http.browsing.scans import (
    WINDOW_MIN,
    Ascending,
    Descending,
    Match,
    Read,
    Scan,
)

Log = Mapping[int, list[int]]  # the times of the records of each partition, by offset
Name = tuple[int, int]


def read(log: Log, ranges: list[Range], most: int, is_match: Callable[[int], bool]) -> Read:
    """Read as the broker does: the oldest record of all first, up to a number of records."""
    wanted = [
        (max(log[one.partition][: offset + 1]), one.partition, offset)
        for one in ranges
        for offset in range(one.begin, one.end)
    ]
    wanted.sort()
    taken, left = wanted[:most], wanted[most:]
    places: dict[int, int] = {}
    for _, number, offset in left:
        places[number] = min(places.get(number, offset), offset)
    records = [
        Match(number, Record(b"", b"", (), log[number][offset], offset), 0)
        for _, number, offset in taken
        if is_match(log[number][offset])
    ]
    return Read(records, places, 100 * len(taken))


def run(scan: Scan, log: Log, limit: int, most: int, is_match: Callable[[int], bool]) -> list[Name]:
    found: list[Name] = []
    for _ in range(10_000):
        ranges = scan.ranges()
        if not ranges or len(found) >= limit:
            return found
        assert all(one.begin < one.end for one in ranges)
        got = scan.put(read(log, ranges, most, is_match), limit - len(found))
        found += [(one.partition, one.record.offset) for one in got]
    raise AssertionError("the scan does not end")


def whole(log: Log) -> list[Range]:
    return [Range(number, 0, len(times)) for number, times in log.items()]


def pages(
    make: Callable[[list[Range]], Scan],
    log: Log,
    limit: int,
    most: int,
    is_match: Callable[[int], bool] = lambda _: True,
    *,
    is_descending: bool,
) -> list[Name]:
    """Read page by page, each continuing where the last one says."""
    found: list[Name] = []
    ranges = whole(log)
    for _ in range(1000):
        scan = make(ranges)
        found += run(scan, log, limit, most, is_match)
        places = scan.places
        if not places:
            return found
        ranges = [
            Range(number, 0, place) if is_descending else Range(number, place, len(log[number]))
            for number, place in places.items()
        ]
    raise AssertionError("the pages do not end")


TIMES = st.lists(st.integers(min_value=0, max_value=50), max_size=60)
LOGS = st.dictionaries(st.integers(0, 4), TIMES, min_size=1, max_size=4)
SORTED_LOGS = LOGS.map(lambda log: {number: sorted(times) for number, times in log.items()})


@settings(deadline=None)
@given(LOGS, st.integers(1, 20), st.integers(1, 30))
def test_oldest_first_is_everything_once(log: Log, limit: int, most: int) -> None:
    found = pages(Ascending, log, limit, most, is_descending=False)
    every = [
        (max(times[: offset + 1]), number, offset)
        for number, times in log.items()
        for offset in range(len(times))
    ]
    assert found == [(number, offset) for _, number, offset in sorted(every)]


@settings(deadline=None)
@given(SORTED_LOGS, st.integers(1, 40), st.integers(1, 30))
def test_newest_first_is_exact_over_partitions(log: Log, limit: int, most: int) -> None:
    def make(ranges: list[Range]) -> Scan:
        return Descending(ranges, wanted=limit, is_exact=True)

    found = pages(make, log, limit, most, is_descending=True)
    assert len(found) == len(set(found)) == sum(map(len, log.values()))
    times = [log[number][offset] for number, offset in found]
    assert times == sorted(times, reverse=True)


@settings(deadline=None)
@given(LOGS, st.integers(1, 20), st.integers(1, 30), st.booleans())
def test_newest_first_is_everything_once_with_any_times(
    log: Log, limit: int, most: int, is_exact: bool
) -> None:
    def make(ranges: list[Range]) -> Scan:
        return Descending(ranges, wanted=limit, is_exact=is_exact)

    found = pages(make, log, limit, most, is_descending=True)
    assert sorted(found) == sorted(
        (number, offset) for number, times in log.items() for offset in range(len(times))
    )
    for number in log:
        offsets = [offset for one, offset in found if one == number]
        assert offsets == sorted(offsets, reverse=True)


@settings(deadline=None)
@given(LOGS, st.integers(1, 20), st.integers(1, 30), st.integers(0, 50))
def test_conditions_leave_out_what_does_not_match(
    log: Log, limit: int, most: int, time: int
) -> None:
    def is_match(one: int) -> bool:
        return one % 7 == time % 7

    def make(ranges: list[Range]) -> Scan:
        return Descending(ranges, wanted=limit, is_exact=False)

    expected = sorted(
        (number, offset)
        for number, times in log.items()
        for offset, one in enumerate(times)
        if is_match(one)
    )
    assert sorted(pages(make, log, limit, most, is_match, is_descending=True)) == expected
    assert sorted(pages(Ascending, log, limit, most, is_match, is_descending=False)) == expected


def test_the_newest_few_of_a_large_topic_are_read_from_its_end() -> None:
    scan = Descending([Range(0, 0, 10**9), Range(1, 5, 5)], wanted=10, is_exact=True)
    [wanted] = scan.ranges()
    assert wanted == Range(0, 10**9 - max(WINDOW_MIN, 20), 10**9)


def test_windows_grow_while_nothing_is_found() -> None:
    scan = Descending([Range(0, 0, 10**6)], wanted=1, is_exact=False)
    sizes = []
    while ranges := scan.ranges():
        sizes.append(ranges[0].end - ranges[0].begin)
        scan.put(Read([], {}, 1000), 1)
    assert sum(sizes) == 10**6
    assert len(sizes) < 20
    assert scan.places == {}


@pytest.mark.parametrize("is_exact", [True, False])
def test_progress_is_the_share_of_offsets(is_exact: bool) -> None:
    scan = Descending([Range(0, 0, 64)], wanted=8, is_exact=is_exact)
    assert scan.share == 0
    scan.ranges()
    scan.put(Read([], {}, 1), 8)
    assert scan.share == pytest.approx(16 / 64)
    assert Descending([], wanted=8, is_exact=is_exact).share is None
    ascending = Ascending([Range(0, 10, 20)])
    ascending.put(Read([], {0: 15}, 1), 8)
    assert ascending.share == 0.5
