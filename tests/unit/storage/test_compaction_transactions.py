"""Compaction among transactions: it takes what was aborted, and changes nothing that is seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.batch import BatchHeader, decode_batch, read_header
from goqueue.partition import AbortedSpans, PartitionSettings
from goqueue.storage.aborted import find_aborted
from goqueue.storage.compaction import Compaction, plan_compaction
from goqueue.storage.log import LogSettings
from tests.simulation.disk import PowerLost
from tests.unit.partition.simulated_partition import FOLDER
from tests.unit.partition.till import Till, next_sequence, truth

RETENTION_MS = 1000
SETTINGS = PartitionSettings(
    log=LogSettings(
        segment_bytes=900,
        index_interval_bytes=200,
        is_compacting=True,
        is_deleting=False,
        tombstone_retention_ms=RETENTION_MS,
    )
)


class Shop(Till):
    """A compacted partition with transactions."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(SETTINGS, **fields)

    def put(self, key: str, value: str, producer: int = 0) -> None:
        """Write a record, in the producer's transaction if it is one's."""
        if not producer:
            self.append(value, key=key.encode())
            return
        epoch = self.epochs.setdefault(producer, 0)
        self.append(
            value,
            key=key.encode(),
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=next_sequence(self.partition, producer, epoch),
            is_transactional=True,
        )

    def roll(self) -> None:
        if self.partition.log.active.size:
            self.partition.log.roll(now_ms=self.now_ms)
        self.sync()

    def compact(self, *, forgets_producers: bool = False) -> None:
        """Close what is open and run a whole pass."""
        self.roll()
        partition = self.partition
        plan = plan_compaction(
            partition.log,
            now_ms=self.now_ms,
            until_offset=partition.last_stable_offset,
            is_forced=True,
        )
        if plan is None:
            return
        producers = partition.producers
        work = Compaction(
            self.disk,
            plan,
            last_offsets={} if forgets_producers else producers.last_offsets(),
            marker_offsets={} if forgets_producers else producers.marker_offsets(),
            step_bytes=300,
        )
        while not work.is_done:
            work.step()
            assert work.apply(partition.log)

    def headers(self) -> list[BatchHeader]:
        return [one for one in self.partition.log.headers(0) if one.record_count]

    def markers(self) -> list[int]:
        return [one.base_offset for one in self.headers() if one.is_control]

    def seen(self) -> dict[str, str]:
        """The last value of each key, for whoever wants only what is committed."""
        return self._read(is_committed_only=True)

    def _read(self, *, is_committed_only: bool) -> dict[str, str]:
        found: dict[str, str] = {}
        partition = self.partition
        offset = partition.start_offset
        while True:
            part = partition.read(offset, bytes_max=200, is_committed_only=is_committed_only)
            if part is None:
                return found
            aborted = AbortedSpans(partition.aborted_in(part))
            data, at = part.read(), 0
            while at < len(data):
                header = read_header(data, at)
                if not header.is_control and not aborted.cover(header):
                    for record in decode_batch(data[at : at + header.size]):
                        assert record.key is not None
                        assert record.value is not None
                        found[record.key.decode()] = record.value.decode()
                at += header.size
            offset = header.next_offset


def test_what_an_aborted_transaction_wrote_goes_and_counts_for_no_key() -> None:
    shop = Shop()
    shop.put("k", "old")
    shop.put("k", "never", producer=1)
    shop.put("other", "never", producer=1)
    shop.abort(1)
    shop.compact()
    assert shop.seen() == {"k": "old"}
    assert [one.base_offset for one in shop.headers()] == [0, 3], "a record, and the marker"
    empty = [one for one in shop.partition.log.headers(0) if not one.record_count]
    assert 2 in [one.last_offset for one in empty], "its sequence numbers are still needed"


def test_a_committed_transaction_is_compacted_like_everything_else() -> None:
    shop = Shop()
    shop.put("k", "old")
    shop.put("k", "new", producer=1)
    shop.put("j", "kept", producer=1)
    shop.commit(1)
    shop.put("j", "newest")
    shop.compact()
    assert shop.seen() == {"k": "new", "j": "newest"}
    assert [one.base_offset for one in shop.headers()] == [1, 3, 4]


def test_nothing_from_the_first_undecided_record_on_is_touched() -> None:
    shop = Shop()
    shop.put("k", "1")
    shop.put("k", "2")
    shop.roll()
    shop.put("k", "3", producer=1)
    shop.roll()
    shop.put("k", "4")
    shop.put("k", "5")
    shop.compact()
    assert [one.base_offset for one in shop.headers()] == [1, 2, 3, 4]
    shop.commit(1)
    shop.compact()
    assert [one.base_offset for one in shop.headers() if not one.is_control] == [4]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_goes_when_the_records_are_gone_and_its_time_is_over(is_commit: bool) -> None:
    shop = Shop()
    shop.put("k", "1", producer=1)
    shop.end(1, is_commit=is_commit)
    shop.put("k", "2")
    shop.compact(forgets_producers=True)
    assert shop.markers() == [1], "the pass has met records of the transaction"
    shop.put("k", "3")
    shop.compact(forgets_producers=True)
    assert shop.markers() == [1], "whoever reads the records in another place must learn of it"
    (marker,) = [one for one in shop.headers() if one.is_control]
    assert marker.has_delete_horizon
    assert marker.base_timestamp == shop.now_ms + RETENTION_MS
    shop.now_ms += RETENTION_MS - 1
    shop.put("k", "4")
    shop.compact(forgets_producers=True)
    assert shop.markers() == [1]
    shop.now_ms += 1
    shop.put("k", "5")
    shop.compact(forgets_producers=True)
    assert shop.markers() == []
    assert find_aborted(shop.partition.log, 0, shop.partition.end_offset) == [], (
        "the entry goes with it"
    )
    assert not [one for one in shop.disk.list(FOLDER) if one.endswith(".txnindex")]
    shop.crash()
    assert shop.seen() == {"k": "5"}
    assert list(shop.partition.transactions) == []


def test_the_newest_marker_of_a_known_producer_stays() -> None:
    shop = Shop()
    for value in ("1", "2"):
        shop.put("k", value, producer=1)
        shop.epochs[1] += 1
        shop.abort(1)
    for _ in range(3):
        shop.now_ms += 2 * RETENTION_MS
        shop.put("k", "later")
        shop.compact()
    assert shop.markers() == [3]
    shop.crash()
    (state,) = shop.partition.producers
    assert (state.epoch, state.marker_offset) == (2, 3)


def test_the_sequence_numbers_of_an_aborted_transaction_are_known_after_a_crash() -> None:
    shop = Shop()
    shop.put("k", "1", producer=1)
    shop.put("k", "2", producer=1)
    shop.abort(1)
    shop.put("k", "3")
    shop.compact()
    shop.crash()
    assert next_sequence(shop.partition, 1, 0) == 2
    assert list(shop.partition.transactions) == [], "an empty batch opens nothing"


def test_entries_of_aborted_transactions_move_with_their_markers() -> None:
    shop = Shop()
    for number in range(12):
        shop.put(f"k{number}", "never" * 20, producer=1 + number % 3)
        shop.put("k", f"{number}")
        shop.abort(1 + number % 3)
    shop.roll()
    before = find_aborted(shop.partition.log, 0, shop.partition.end_offset)
    segments = len(shop.partition.log.segments)
    shop.compact()
    assert find_aborted(shop.partition.log, 0, shop.partition.end_offset) == before
    shop.put("k", "last")
    shop.compact()
    assert len(shop.partition.log.segments) < segments, "neighbours have become one"
    assert find_aborted(shop.partition.log, 0, shop.partition.end_offset) == before
    shop.reopen(shop.stop())
    assert find_aborted(shop.partition.log, 0, shop.partition.end_offset) == before
    shop.crash()
    assert find_aborted(shop.partition.log, 0, shop.partition.end_offset) == [], (
        "nothing is left of them"
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcd"), st.integers(0, 3)),
        st.tuples(st.just("put"), st.sampled_from("abcd"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.just(""), st.integers(1, 3)),
        st.tuples(st.just("fence"), st.just(""), st.integers(1, 3)),
        st.tuples(st.just("compact"), st.just(""), st.sampled_from([0, RETENTION_MS, 5000])),
    ),
    min_size=10,
    max_size=80,
)


def play(shop: Shop, steps: list[tuple[str, str, int]]) -> None:
    for number, (step, key, argument) in enumerate(steps):
        if step == "put":
            shop.put(key, f"{number}", producer=argument)
        elif step == "compact":
            shop.sync()
            seen, stable = shop.seen(), shop.partition.last_stable_offset
            shop.now_ms += argument
            shop.compact()
            assert shop.seen() == seen
            assert shop.partition.last_stable_offset >= stable
        else:
            if step == "fence":
                shop.epochs[argument] = shop.epochs.get(argument, 0) + 1
            shop.end(argument, is_commit=step == "commit")


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_what_is_seen_of_each_key_does_not_change(steps: list[tuple[str, str, int]]) -> None:
    shop = Shop()
    play(shop, steps)
    shop.sync()
    seen = shop.seen()
    shop.compact()
    assert shop.seen() == seen
    expected = truth(shop.partition)
    assert shop.partition.last_stable_offset == expected.last_stable_offset
    assert shop.committed() == expected.committed
    producers = [
        (one.producer_id, one.epoch, one.last_sequence, one.coordinator_epoch)
        for one in shop.partition.producers
    ]
    shop.crash()
    assert shop.seen() == seen
    assert shop.partition.last_stable_offset == expected.last_stable_offset
    again = [
        (one.producer_id, one.epoch, one.last_sequence, one.coordinator_epoch)
        for one in shop.partition.producers
    ]
    assert sorted(again) == sorted(producers), "of producers nothing is forgotten either"


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 60))
def test_a_crash_at_any_step_of_a_pass_changes_nothing_that_is_seen(
    steps: list[tuple[str, str, int]], operations: int
) -> None:
    shop = Shop(survival=0.5)
    play(shop, [step for step in steps if step[0] != "compact"])
    shop.roll()
    seen, stable = shop.seen(), shop.partition.last_stable_offset
    shop.disk.crash_at(operations)
    try:
        shop.compact()
    except PowerLost:
        pass
    shop.disk.crash_at(None)
    shop.crash()
    assert shop.seen() == seen
    assert shop.partition.last_stable_offset == stable
    shop.now_ms += 2 * RETENTION_MS
    shop.put("z", "new")
    shop.compact()
    if shop.partition.last_stable_offset == shop.partition.end_offset:
        seen = {**seen, "z": "new"}
    assert shop.seen() == seen
