"""Group commit: who is answered when, and what a sync costs the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goqueue.broker.flusher import BACKGROUND_INTERVAL_MS, THREADS_MAX, Flusher, FsyncMode
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import GoQueueError, StorageFailed, UnknownTopic
from goqueue.model.names import TopicPartition
from goqueue.partition import Partition, PartitionSettings
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
        done(work(), None)

    def finish_round(self) -> None:
        for _ in range(len(self.waiting)):
            self.finish()

    def turn(self) -> None:
        """End this turn of the event loop."""
        self.run_for(0)


class Room:
    """Partitions that share a flusher."""

    def __init__(self, mode: FsyncMode = "every", *, interval_ms: int = 1_000) -> None:
        self.disk = SimulatedDisk()
        self.clock = Threads()
        self.flusher = Flusher(self.clock, mode=mode, interval_ms=interval_ms)
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

    def _open(self, name: str) -> Partition:
        partition, _ = Partition.recover(
            TopicPartition(name, 0),
            self.disk,
            f"logs/{name}/0",
            PartitionSettings(),
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
    assert not room.partitions["a"].is_dirty
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
    assert len(room.clock.waiting) == 1
    room.clock.finish_round()
    assert not room.partitions["b"].is_dirty


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
    assert not any(partition.is_dirty for partition in room.partitions.values())
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
    assert not room.partitions["b"].is_dirty


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
