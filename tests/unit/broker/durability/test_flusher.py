"""Group commit: who is answered when, and what a sync costs the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goqueue.broker.durability.flusher import (
    BACKGROUND_INTERVAL_MS,
    GATHER_TURNS,
    ROUND_BYTES_MAX,
    THREADS_MAX,
    Flusher,
    FsyncMode,
)
from goqueue.metrics import Histogram
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import GoQueueError, StorageFailed, UnknownTopic
from goqueue.model.names import TopicPartition
from goqueue.partition import Partition, PartitionSettings, recover_partition
from goqueue.partition import durability as durability_module
from goqueue.partition.history import saved_producers
from goqueue.storage.commit_journal import CommitJournal
from tests.simulation.clock import VirtualClock
from tests.simulation.disk import SimulatedDisk


class Threads(VirtualClock):
    """A clock whose threads do nothing until they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Callable[[], Any], Callable[..., None]]] = []

    def run_blocking(self, work: Any, done: Any, **_: Any) -> Any:
        self.waiting.append((work, done))

    def finish(self, number: int = 0) -> None:
        work, done = self.waiting.pop(number)
        result, error = None, None
        try:
            result = work()
        except OSError as failure:
            error = failure
        done(result, error)

    def finish_round(self) -> None:
        for _ in range(len(self.waiting)):
            self.finish()

    def turn(self) -> None:
        """End this turn of the event loop."""
        self.run_for(0)


class Room:
    """Partitions that share a flusher."""

    def __init__(
        self,
        mode: FsyncMode = "every",
        *,
        interval_ms: int = 1_000,
        journal_bytes: int | None = None,
    ) -> None:
        self.disk = SimulatedDisk()
        self.clock = Threads()
        self.journal = journal_bytes and CommitJournal(self.disk, file_bytes=journal_bytes)
        self.flusher = Flusher(
            self.clock, mode=mode, interval_ms=interval_ms, journal=self.journal or None
        )
        self.mode = mode
        self.partitions: dict[str, Partition] = {}

    def write(self, name: str) -> list[GoQueueError | None]:
        """Write a record; the outcome that its producer waits for."""
        partition = self.partitions.get(name) or self._open(name)
        batch = memoryview(encode_batch([Record(b"key", b"value", timestamp_ms=1)]))
        appended = partition.append(batch, now_ms=self.clock.now_ms())
        outcome: list[GoQueueError | None] = []
        partition.when_committed(appended.last_offset, outcome.append)
        return outcome

    def round(self, *names: str) -> list[list[GoQueueError | None]]:
        """Write to partitions and let one round come and go."""
        outcomes = [self.write(name) for name in names]
        self.clock.turn()
        self.clock.finish_round()
        return outcomes

    def fill_journal(self, *names: str) -> None:
        """Write rounds until the journal has turned to its other file; its settling waits."""
        self.round(*names)
        while True:
            for name in names:
                self.write(name)
            self.clock.turn()
            is_turned = len(self.clock.waiting) > 1
            self.clock.finish(len(self.clock.waiting) - 1)
            if is_turned:
                return

    def _open(self, name: str) -> Partition:
        partition, _ = recover_partition(
            TopicPartition(name, 0),
            self.disk,
            f"logs/{name}/0",
            PartitionSettings(),
            key=name.encode().ljust(20),
            leader_epoch=0,
            waits_for_sync=self.mode == "every",
            mark_dirty=self.flusher.mark,
            now_ms=self.clock.now_ms(),
        )
        self.partitions[name] = partition
        return partition


def test_one_round_serves_all_that_was_written_in_a_turn() -> None:
    room = Room()
    outcomes = [room.write("a"), room.write("a"), room.write("b")]
    assert room.clock.waiting == [], "the rest of the turn may bring more"
    room.clock.turn()
    assert outcomes == [[], [], []]
    room.clock.finish_round()
    assert outcomes == [[None], [None], [None]]
    assert (room.flusher.rounds, room.flusher.files_synced) == (1, 2)


def test_a_round_is_measured_from_its_begin_until_all_of_it_is_durable() -> None:
    room, durations = Room(), Histogram()
    room.flusher.measure(durations, lambda: room.clock.now_ms() / 1_000)
    room.write("a"), room.write("b")
    room.clock.turn()
    room.clock.run_for(40)
    room.clock.finish()
    assert durations.count == 0
    room.clock.run_for(60)
    room.clock.finish()
    assert (durations.count, durations.sum) == (1, pytest.approx(0.1))


def test_nobody_is_answered_before_all_of_the_round_is_durable() -> None:
    room = Room()
    outcomes = [room.write("a"), room.write("b")]
    room.clock.turn()
    assert len(room.clock.waiting) == 2
    room.clock.finish(1)
    assert outcomes == [[], []]
    room.clock.finish()
    assert outcomes == [[None], [None]]


def test_what_comes_during_a_round_is_served_by_the_next() -> None:
    room = Room()
    early = room.write("a")
    room.clock.turn()
    late = [room.write("a"), room.write("b")]
    room.clock.turn()
    assert len(room.clock.waiting) == 1, "rounds do not overlap"
    room.clock.finish_round()
    assert (early, late) == ([None], [[], []])
    room.clock.turn()
    assert len(room.clock.waiting) == 2, "the next round begins at once"
    room.clock.finish_round()
    assert late == [[None], [None]]
    assert room.flusher.rounds == 2


def test_a_quiet_node_syncs_nothing() -> None:
    room = Room()
    room.write("a")
    room.clock.turn()
    room.clock.finish_round()
    room.clock.run_for(600_000)
    assert (room.clock.waiting, room.flusher.rounds) == ([], 1)


def test_a_round_uses_a_few_threads_for_any_number_of_partitions() -> None:
    room = Room()
    outcomes = [room.write(f"p{number}") for number in range(25)]
    room.clock.turn()
    assert len(room.clock.waiting) == THREADS_MAX
    room.clock.finish_round()
    assert outcomes == [[None]] * 25


def test_a_partition_that_cannot_be_synced_is_not_acknowledged_and_the_others_are() -> None:
    room = Room()
    outcomes = {name: room.write(name) for name in "abc"}
    room.clock.turn()
    room.disk.fail_syncs(1)
    room.clock.finish_round()
    failed = [name for name, outcome in outcomes.items() if outcome != [None]]
    assert failed == ["a"]
    assert isinstance(outcomes["a"][0], StorageFailed)
    with pytest.raises(StorageFailed):
        room.write("a")
    again = room.write("b")
    room.clock.turn()
    room.clock.finish_round()
    assert again == [None]


def test_a_partition_that_is_deleted_during_its_sync_stays_deleted_whatever_the_sync_says() -> None:
    room = Room()
    outcomes = [room.write("a"), room.write("b")]
    room.clock.turn()
    gone = UnknownTopic("a")
    room.partitions["a"].retire(gone)
    room.disk.fail_syncs(1)
    room.clock.finish_round()
    assert outcomes == [[gone], [None]]
    with pytest.raises(UnknownTopic):
        room.partitions["a"].read(0, bytes_max=100)


def test_a_deleted_partition_is_not_synced() -> None:
    room = Room()
    room.write("a")
    room.partitions["a"].retire(UnknownTopic("a"))
    room.clock.turn()
    assert room.clock.waiting == []


# Other promises than the safest


def test_by_interval_writers_do_not_wait_and_one_sync_serves_the_interval() -> None:
    room = Room("interval", interval_ms=1_000)
    assert room.write("a") == [None]
    room.clock.run_for(900)
    assert room.write("a") == [None]
    assert room.clock.waiting == []
    room.clock.run_for(100)
    assert len(room.clock.waiting) == 1
    room.clock.finish_round()
    assert not room.partitions["a"].durability.is_dirty
    room.clock.run_for(10_000)
    assert room.clock.waiting == [], "an interval begins with a write"
    room.write("a")
    room.clock.run_for(1_000)
    assert len(room.clock.waiting) == 1


def test_without_syncs_the_log_is_still_synced_now_and_then() -> None:
    room = Room("none", interval_ms=1)
    assert room.write("a") == [None]
    room.clock.run_for(BACKGROUND_INTERVAL_MS - 1)
    assert room.clock.waiting == []
    room.clock.run_for(1)
    assert len(room.clock.waiting) == 1


def test_an_interval_that_ends_during_a_round_is_served_after_it() -> None:
    room = Room("interval", interval_ms=100)
    room.write("a")
    room.clock.run_for(100)
    room.write("b")
    room.clock.run_for(100)
    assert len(room.clock.waiting) == 1
    room.clock.finish_round()
    room.clock.turn()
    assert len(room.clock.waiting) == 1
    room.clock.finish_round()
    assert not room.partitions["b"].durability.is_dirty


def test_a_round_waits_a_few_turns_for_others_only_if_the_last_one_had_company() -> None:
    room = Room()
    turns: list[int] = []

    def has_begun() -> bool:
        turns[-1] += 1
        return bool(room.clock.waiting)

    for writers in (1, 1, 3, 1):
        for _ in range(writers):
            room.write("a")
        turns.append(-1)
        room.clock.run_until(has_begun)
        room.clock.finish_round()
    assert turns == [1, 1, 1, GATHER_TURNS]


# Now


@pytest.mark.parametrize("mode", ["every", "interval", "none"])
def test_flush_now_syncs_everything_whatever_the_mode(mode: FsyncMode) -> None:
    room = Room(mode)
    room.write("a")
    room.write("b")
    done: list[bool] = []
    room.flusher.flush_now(lambda: done.append(True))
    room.clock.finish_round()
    assert done == [True]
    assert not any(partition.durability.is_dirty for partition in room.partitions.values())
    room.clock.turn()
    assert done == [True]


def test_flush_now_waits_for_the_round_that_runs_and_for_what_came_meanwhile() -> None:
    room = Room("none")
    room.write("a")
    done: list[bool] = []
    room.flusher.flush_now(lambda: None)
    room.write("b")
    room.flusher.flush_now(lambda: done.append(True))
    room.clock.finish_round()
    assert done == []
    room.clock.finish_round()
    assert done == [True]
    assert not room.partitions["b"].durability.is_dirty


def test_flush_now_with_nothing_to_do_is_done_at_once() -> None:
    done: list[bool] = []
    Room().flusher.flush_now(lambda: done.append(True))
    assert done == [True]


def test_flush_now_is_done_though_a_partition_has_failed() -> None:
    room = Room()
    room.write("a")
    room.disk.fail_syncs(1)
    done: list[bool] = []
    room.flusher.flush_now(lambda: done.append(True))
    room.clock.finish_round()
    assert done == [True]


# With a commit journal


def test_small_writes_to_many_logs_are_one_write_to_the_journal() -> None:
    room = Room(journal_bytes=1 << 20)
    assert room.round("a", "b", "c") == [[None]] * 3
    assert room.flusher.files_synced == 3, "new logs are synced themselves"
    synced = [name for name in room.disk.operation_names if name.startswith("sync ")]
    outcomes = [room.write(name) for name in "abca"]
    room.clock.turn()
    assert len(room.clock.waiting) == 1
    assert outcomes == [[]] * 4
    room.clock.finish_round()
    assert outcomes == [[None]] * 4
    after = [name for name in room.disk.operation_names if name.startswith("sync ")]
    assert set(after[len(synced) :]) == {"sync meta/commit-journal-0"}


def test_a_large_round_is_synced_where_it_was_written() -> None:
    room = Room(journal_bytes=1 << 20)
    room.round("a")
    partition = room.partitions["a"]
    value = bytes(ROUND_BYTES_MAX)
    batch = memoryview(encode_batch([Record(b"key", value, timestamp_ms=1)]))
    partition.append(batch, now_ms=room.clock.now_ms())
    room.clock.turn()
    room.clock.finish_round()
    assert partition.high_watermark == 2
    assert room.flusher.rounds_journaled == 0


def test_a_full_journal_is_settled_while_the_other_file_takes_the_writes() -> None:
    room = Room(journal_bytes=9 << 10)  # room for a few frames behind the header
    room.fill_journal("a", "b")
    assert room.journal
    assert len(room.clock.waiting) == 2
    outcome = room.write("a")
    room.clock.turn()
    room.clock.finish(2)
    assert outcome == [None], "writers do not wait for the settling"
    assert not room.journal.is_empty(0)
    while room.clock.waiting:
        room.clock.finish_round()
    assert room.journal.is_empty(0)


def test_writers_go_on_without_the_journal_while_both_files_are_full() -> None:
    room = Room(journal_bytes=9 << 10)
    room.fill_journal("a", "b")
    stuck, room.clock.waiting = room.clock.waiting, []
    for _ in range(20):
        assert room.round("a", "b") == [[None]] * 2
    synced = room.flusher.files_synced
    assert room.round("a", "b") == [[None]] * 2
    assert room.flusher.files_synced == synced + 2
    room.clock.waiting += stuck
    while room.clock.waiting:
        room.clock.finish_round()
    journaled = room.flusher.rounds_journaled
    room.round("a", "b")
    assert room.flusher.rounds_journaled == journaled + 1


@pytest.mark.parametrize("when", ["idle", "during a round", "during settling"])
def test_clearing_waits_until_the_logs_have_what_the_journal_held(when: str) -> None:
    room = Room(journal_bytes=9 << 10)
    room.round("a", "b")
    room.round("a", "b")
    if when == "during a round":
        room.write("a")
        room.clock.turn()
    if when == "during settling":
        room.fill_journal("a", "b")
    cleared: list[bool] = []
    room.flusher.clear_journal(cleared.append)
    assert cleared == []
    while room.clock.waiting:
        room.clock.finish_round()
    assert cleared == [True]
    assert room.journal
    assert room.journal.is_empty(0)
    assert room.journal.is_empty(1)


def test_an_empty_journal_is_clear_at_once() -> None:
    cleared: list[bool] = []
    Room(journal_bytes=9 << 10).flusher.clear_journal(cleared.append)
    Room().flusher.clear_journal(cleared.append)
    assert cleared == [True, True]


def test_a_journal_that_fails_is_given_up_and_the_logs_are_synced_instead() -> None:
    room = Room(journal_bytes=1 << 20)
    room.round("a", "b")
    outcomes = [room.write("a"), room.write("b")]
    room.clock.turn()
    room.disk.fail_syncs(1)
    room.clock.finish_round()
    assert outcomes == [[], []]
    room.clock.turn()
    room.clock.finish_round()
    assert outcomes == [[None], [None]]
    done: list[bool] = []
    room.write("a")
    room.flusher.flush_now(lambda: done.append(True))
    room.clock.turn()
    while room.clock.waiting:
        room.clock.finish_round()
    assert done == [True]


def test_a_log_that_cannot_be_settled_fails_and_the_journal_keeps_what_it_held() -> None:
    room = Room(journal_bytes=9 << 10)
    room.fill_journal("a", "b")
    room.disk.fail_syncs(1)
    room.clock.finish_round()
    assert room.journal
    assert not room.journal.is_empty(0)
    assert [one.failure is not None for one in room.partitions.values()] == [True, False]
    cleared: list[bool] = []
    room.flusher.clear_journal(cleared.append)
    assert cleared == [False]
    assert room.round("b") == [[None]]


def test_the_journal_keeps_what_a_log_had_there_when_its_own_sync_failed() -> None:
    """After a failed sync the disk says yes to the next one, and has not stored anything."""
    room = Room(journal_bytes=9 << 10)
    room.round("a", "b")
    assert room.round("a") == [[None]]
    assert room.flusher.rounds_journaled == 1
    partition = room.partitions["a"]
    partition.log.roll(now_ms=room.clock.now_ms())
    room.disk.fail_syncs(1)
    [outcome] = room.round("a")
    assert isinstance(outcome[0], StorageFailed)
    for _ in range(100):
        assert room.round("b") == [[None]]
    while room.clock.waiting:
        room.clock.finish_round()
    written = room.disk.read_whole(f"logs/a/0/{0:020d}.log")
    room.disk.survival = 0.0
    room.disk.crash()
    journal = CommitJournal(room.disk, file_bytes=9 << 10)
    journal.redo(partition.key, "logs/a/0")
    assert room.disk.read_whole(f"logs/a/0/{0:020d}.log") == written


def test_everything_is_in_the_logs_themselves_after_flushing_now() -> None:
    room = Room(journal_bytes=1 << 20)
    room.round("a", "b")
    room.round("a", "b")
    outcome = room.write("a")
    done: list[bool] = []
    room.flusher.flush_now(lambda: done.append(True))
    while room.clock.waiting:
        room.clock.finish_round()
    assert (done, outcome) == ([True], [None])
    room.disk.survival = 0.0
    room.disk.crash()
    for name in "ab":
        size = room.partitions[name].log.active.size
        assert len(room.disk.read_whole(f"logs/{name}/0/{0:020d}.log")) == size
    assert CommitJournal(room.disk, file_bytes=1 << 20).is_redone


# What is written beside a log

PRODUCERS = "logs/a/0/producers"


@pytest.fixture
def _is_always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", 1)


@pytest.mark.usefixtures("_is_always_due")
@pytest.mark.parametrize("journal_bytes", [None, 1 << 20])
def test_no_writer_waits_for_a_snapshot(journal_bytes: int | None) -> None:
    room = Room(journal_bytes=journal_bytes)
    room.round("a")
    assert len(room.clock.waiting) == 1, "a snapshot is to be saved"
    for _ in range(2):
        outcome = room.write("a")
        room.clock.turn()
        room.clock.finish(1)
        assert outcome == [None]
        assert not room.disk.exists(PRODUCERS)
    while room.clock.waiting:
        room.clock.finish_round()
    saved = saved_producers(room.partitions["a"].log)
    assert saved.offset == 3


@pytest.mark.usefixtures("_is_always_due")
def test_a_snapshot_speaks_only_of_what_is_synced_in_the_log_itself() -> None:
    room = Room(journal_bytes=1 << 20)
    room.round("a")
    room.round("a")
    assert room.flusher.rounds_journaled == 1
    room.clock.finish_round()
    room.disk.survival = 0.0
    size = room.partitions["a"].log.active.size
    room.disk.crash()
    assert len(room.disk.read_whole(f"logs/a/0/{0:020d}.log")) == size


@pytest.mark.usefixtures("_is_always_due")
def test_flush_now_waits_for_snapshots() -> None:
    room = Room(journal_bytes=1 << 20)
    room.round("a")
    done: list[bool] = []
    room.flusher.flush_now(lambda: done.append(True))
    assert done == []
    while room.clock.waiting:
        room.clock.finish_round()
    assert done == [True]


@pytest.mark.usefixtures("_is_always_due")
def test_a_log_whose_snapshot_finds_it_unsound_takes_no_writes_and_the_journal_is_kept() -> None:
    room = Room(journal_bytes=9 << 10)
    room.round("a", "b")
    while room.clock.waiting:
        room.clock.finish_round()
    room.disk.remove(PRODUCERS)
    assert room.round("a") == [[None]]
    assert room.flusher.rounds_journaled == 1
    room.disk.fail_syncs(1)
    room.clock.finish_round()
    assert isinstance(room.partitions["a"].failure, StorageFailed)
    assert room.partitions["b"].failure is None
    assert not room.disk.exists(PRODUCERS)
    while room.clock.waiting:
        room.clock.finish_round()
    for _ in range(100):
        assert room.round("b") == [[None]]
    assert room.journal
    assert not room.journal.is_empty(0), "only the journal is sure to have what the log had"


@pytest.mark.usefixtures("_is_always_due")
@pytest.mark.parametrize("is_deleted", [True, False])
def test_no_snapshot_is_saved_of_what_has_gone(is_deleted: bool) -> None:
    room = Room(journal_bytes=1 << 20)
    room.round("a")
    partition = room.partitions["a"]
    if is_deleted:
        partition.retire(UnknownTopic("a"))
    else:
        partition.replica.begin_truncation()
        partition.replica.truncate(0, UnknownTopic("a"), now_ms=room.clock.now_ms())
    room.clock.finish(0)
    assert not room.disk.exists(PRODUCERS)


def test_the_journal_grows_while_writers_go_on() -> None:
    room = Room(journal_bytes=4 << 20)
    room.round("a")
    value = bytes(ROUND_BYTES_MAX // 2)
    partition = room.partitions["a"]
    for number in range(1, 12):
        batch = memoryview(encode_batch([Record(b"key", value, timestamp_ms=1)]))
        partition.append(batch, now_ms=room.clock.now_ms())
        room.clock.turn()
        room.clock.finish(len(room.clock.waiting) - 1)
        assert partition.high_watermark == number + 1
    growing = [name for name in room.disk.operation_names if "append meta/commit" in name]
    assert len(growing) == 2, "one step for each file; the next waits in its thread"
    while room.clock.waiting:
        room.clock.finish_round()
    room.disk.survival = 0.0
    room.disk.crash()
    CommitJournal(room.disk, file_bytes=4 << 20).redo(partition.key, "logs/a/0")
    log = room.disk.read_whole(f"logs/a/0/{0:020d}.log")
    assert len(log) == partition.log.active.size
