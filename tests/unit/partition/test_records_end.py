"""Where the records of a partition end: markers and aborted records do not count."""

from __future__ import annotations

from random import Random

import pytest

from goqueue.model.batch import Record
from goqueue.partition import AbortedSpans, Partition
from goqueue.partition.records_end import SEARCH_BATCHES_MAX, NoRecords, search_back
from tests.simulation.disk import SimulatedDisk
from tests.unit.partition.till import SMALL, Till, truth
from tests.unit.storage.logs import NOW_MS, append, open_log
from tests.unit.storage.test_compaction import (
    RETENTION_MS,
    SETTINGS,
    close_active,
    compact,
    contents,
)


def test_without_transactions_it_is_the_high_watermark() -> None:
    till = Till()
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 0
    till.append("a")
    till.append("b")
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 0, (
        "nobody may read them yet"
    )
    till.sync()
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 2


def test_markers_at_the_end_do_not_count() -> None:
    till = Till()
    till.append("plain")
    till.write(1, "a", "b")
    till.commit(1)
    till.sync()
    assert (
        till.partition.high_watermark,
        till.partition.records_end(batches_max=SEARCH_BATCHES_MAX),
    ) == (4, 3)
    till.write(2, "c")
    till.sync()
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 5, (
        "a transaction that is open may yet be committed"
    )
    till.commit(2)
    till.sync()
    assert (
        till.partition.high_watermark,
        till.partition.records_end(batches_max=SEARCH_BATCHES_MAX),
    ) == (6, 5)


def test_aborted_records_at_the_end_do_not_count() -> None:
    till = Till()
    till.append("plain")
    till.write(1, "a")
    till.write(2, "b")
    till.abort(1)
    till.sync()
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 3, (
        "the second is not decided"
    )
    till.abort(2)
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 3, (
        "its marker is not committed"
    )
    till.sync()
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 1
    till.append("later")
    till.sync()
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 6


def test_only_markers_are_no_records() -> None:
    till = Till()
    for producer in range(1, 20):
        till.write(producer, "gone")
        till.abort(producer)
    till.sync()
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 0


def test_it_is_found_across_segments_and_after_a_restart() -> None:
    till = Till(settings=SMALL)
    till.append("plain")
    for producer in range(1, 60):
        till.write(producer, "x" * 50)
        till.abort(producer)
    till.sync()
    assert len(till.partition.log.segments) > 2
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 1
    till.crash()
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 1


def test_deleted_records_do_not_count() -> None:
    till = Till(settings=SMALL)
    for number in range(40):
        till.append(str(number) * 40)
    till.write(1, "a")
    till.commit(1)
    till.sync()
    till.partition.retention.delete_before(42)
    assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == 42


def test_records_that_compaction_removed_do_not_count() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    append(log, [Record(b"a", b"1", (), NOW_MS), Record(b"b", None, (), NOW_MS)])
    append(log, [Record(b"c", None, (), NOW_MS)])
    close_active(log)
    assert search_back(log, log.end_offset, NoRecords(0, 0))[:2] == (3, 3)
    compact(disk, log, is_forced=True)
    append(log, [Record(b"d", b"1", (), NOW_MS)])
    close_active(log)
    compact(disk, log, now_ms=NOW_MS + 10 * RETENTION_MS, is_forced=True)
    assert [record.key for record in contents(log)] == [b"a", b"d"]
    assert search_back(log, 3, NoRecords(0, 0))[:2] == (1, 3)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_the_log_says(seed: int) -> None:
    random = Random(seed)
    till = Till(settings=SMALL)
    for _ in range(120):
        producer = random.randint(1, 4)
        step = random.random()
        if step < 0.3:
            till.write(producer, *"x" * random.randint(1, 5))
        elif step < 0.4:
            till.append("plain")
        elif step < 0.8:
            till.end(producer, is_commit=random.random() < 0.3)
        elif step < 0.95:
            till.sync()
        else:
            till.sync()
            till.crash()
        assert till.partition.records_end(batches_max=SEARCH_BATCHES_MAX) == records_end_of_log(
            till.partition
        )


def records_end_of_log(partition: Partition) -> int:
    """The same from all batches of the log."""
    mark, end = partition.high_watermark, partition.start_offset
    undone = AbortedSpans(one for one in truth(partition).aborted if one.last_offset < mark)
    for header in partition.log.headers(partition.start_offset):
        if header.base_offset < mark and not header.is_control and not undone.cover(header):
            end = header.next_offset
    return end


def test_one_search_is_bounded_and_the_next_goes_on() -> None:
    till = Till()
    till.append("plain")
    for producer in range(1, 400):
        till.write(producer, "gone")
        till.abort(producer)
    till.sync()
    ends = [till.partition.records_end(batches_max=10)]
    while ends[-1] > 1:
        assert not till.partition.without_records.is_whole
        ends.append(till.partition.records_end(batches_max=10))
        assert ends[-1] < ends[-2], "every search gets further"
    assert len(ends) > 2
    assert till.partition.without_records.is_end_of(till.partition.high_watermark)
    assert ends[-1] == 1
    till.write(1000, "new")
    till.commit(1000)
    till.sync()
    assert (
        till.partition.records_end(batches_max=SEARCH_BATCHES_MAX)
        == till.partition.high_watermark - 1
    )
