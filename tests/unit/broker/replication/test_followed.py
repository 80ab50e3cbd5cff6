"""A leader's and a follower's partition side by side: what one has, the other gets."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from goqueue.broker.replication.followed import FollowedPartition
from goqueue.broker.replication.led import LedPartition
from goqueue.cluster.facts import PartitionFact
from goqueue.cluster.replication import (
    FetchStatus,
    Following,
    ProposeInSync,
    ReplicaFetched,
    ReplicaReport,
    ReplicaSet,
)
from goqueue.config import ReplicationSettings
from goqueue.model.batch import build_batch, read_header
from goqueue.model.errors import GoQueueError, NotEnoughReplicas, NotLeader
from goqueue.partition import Partition, PartitionSettings, recover_partition, reopen_partition
from goqueue.storage.log import LogSettings
from tests.unit.partition.simulated_partition import FOLDER, NAME, NOW_MS, SimulatedPartition
from tests.unit.partition.till import known

LEADER, FOLLOWER = 1, 2
ALIVE = {LEADER: b"l", FOLLOWER: b"f"}
TOPIC_ID = b"t"
SETTINGS = ReplicationSettings(lag_ms=1000, retry_ms=100)
SMALL = PartitionSettings(log=LogSettings(segment_bytes=700, index_interval_bytes=150))


def fact_of(
    epoch: int,
    *,
    replicas: tuple[int, ...] = (LEADER, FOLLOWER),
    in_sync: tuple[int, ...] = (LEADER, FOLLOWER),
    version: int | None = None,
) -> PartitionFact:
    """What the controller has decided; the version is that of the election, unless it is given."""
    version = epoch if version is None else version
    return PartitionFact(TOPIC_ID, 0, replicas, in_sync, LEADER, epoch, version)


class Replica(SimulatedPartition):
    """A shelf that is opened as a replica."""

    def _recover(self) -> Partition:
        partition, _ = recover_partition(
            NAME,
            self.disk,
            FOLDER,
            self.settings,
            key=bytes(20),
            leader_epoch=self.leader_epoch,
            waits_for_sync=self.waits_for_sync,
            mark_dirty=self.dirty.append,
            now_ms=self.now_ms,
            is_replica=True,
        )
        return partition


class Pair:
    """Two replicas, one of which leads."""

    def __init__(self, settings: PartitionSettings | None = None, *, in_sync_min: int = 1) -> None:
        self.one, self.other = Replica(settings), Replica(settings)
        self.in_sync_min = in_sync_min
        self.proposals: list[ProposeInSync] = []
        self.reports: list[ReplicaReport] = []
        self.clearing: list[Callable[[bool], None]] = []
        self.requests = 0

    def lead(self, epoch: int, *, in_sync: tuple[int, ...] = (LEADER, FOLLOWER)) -> None:
        """`one` leads and `other` follows."""
        partition = self.one.partition
        partition.replica.become_leader(epoch)
        fact = fact_of(epoch, in_sync=in_sync)
        replicas = ReplicaSet(
            fact,
            partition.replica,
            SETTINGS,
            in_sync_min=self.in_sync_min,
            alive=ALIVE,
            now_ms=NOW_MS,
        )
        self.led = LedPartition(fact, partition, replicas, self.proposals.append)
        self.follow(epoch)

    def follow(self, epoch: int, *, is_in_sync: bool = False) -> None:
        partition = self.other.partition
        partition.replica.become_follower(epoch, leader=LEADER)
        self.requests += 1000
        self.followed = FollowedPartition(
            partition,
            Following(partition.replica, fact_of(epoch), SETTINGS, first_request=self.requests),
            is_in_sync=is_in_sync,
            clear_journal=self.clearing.append,
            tell=self.reports.append,
            resume=lambda: None,
        )
        self.followed.start(NOW_MS)

    def swap(self, epoch: int) -> None:
        """The follower leads from now on."""
        self.led.stop()
        self.followed.stop()
        self.one, self.other = self.other, self.one
        self.lead(epoch)

    def pull(self) -> ReplicaFetched:
        """One question and its answer."""
        fetch = self.followed.fetch(NOW_MS)
        assert fetch is not None
        answer, batches = self.led.serve(FOLLOWER, b"f", fetch, NOW_MS)
        self.followed.received(answer, batches, NOW_MS)
        return answer

    def clear(self, *, is_clear: bool = True) -> None:
        waiting, self.clearing = self.clearing, []
        for done in waiting:
            done(is_clear)

    def catch_up(self) -> None:
        """Pull until there is nothing left to pull and all is durable on both sides."""
        for _ in range(50):
            self.clear()
            self.one.sync()
            self.other.sync()
            is_same = self.other.partition.end_offset == self.one.partition.end_offset
            if self.pull().status is FetchStatus.OK and is_same:
                return
        raise AssertionError("the follower does not catch up")


def log_of(simulated: SimulatedPartition) -> list[bytes]:
    partition = simulated.partition
    found = partition.log.batches(partition.start_offset, until_offset=partition.end_offset)
    return [batch for _, batch in found]


def test_a_follower_gets_what_the_leader_has_byte_for_byte() -> None:
    pair = Pair(SMALL)
    pair.lead(1)
    for number in range(20):
        pair.one.send(number)
    pair.catch_up()
    assert log_of(pair.other) == log_of(pair.one)
    assert pair.other.partition.high_watermark == pair.one.partition.high_watermark == 20


def test_a_record_is_committed_when_the_follower_has_synced_it() -> None:
    pair = Pair()
    pair.lead(1)
    outcome = pair.one.ack(pair.one.append("one").last_offset)
    pair.one.sync()
    pair.pull()
    assert pair.followed.fetch(NOW_MS) is not None
    assert outcome == []
    pair.other.sync()
    (report,) = pair.reports
    pair.led.reported(FOLLOWER, b"f", report, NOW_MS)
    assert outcome == [None]


def test_who_is_content_with_the_leader_does_not_wait_for_the_follower() -> None:
    pair = Pair()
    pair.lead(1)
    outcome: list[GoQueueError | None] = []
    pair.one.partition.when_durable(pair.one.append("one").last_offset, outcome.append)
    assert outcome == []
    pair.one.sync()
    assert outcome == [None]


def test_a_deposed_leader_tells_its_writers_and_takes_no_more() -> None:
    pair = Pair()
    pair.lead(1)
    outcome = pair.one.ack(pair.one.append("one").last_offset)
    pair.one.partition.replica.become_follower(2, leader=FOLLOWER)
    assert [type(one) for one in outcome] == [NotLeader]
    for write in (
        lambda: pair.one.append("two"),
        lambda: pair.one.partition.retention.delete_before(0),
    ):
        with pytest.raises(NotLeader) as refusal:
            write()
        assert refusal.value.leader == FOLLOWER


def test_what_the_new_leader_lacks_is_cut_off_after_the_journal_is_cleared() -> None:
    pair = Pair(SMALL)
    pair.lead(1)
    pair.one.send(0)
    pair.catch_up()
    for number in range(1, 10):
        pair.one.send(number)
    pair.one.sync()
    pair.swap(2)
    pair.one.send(0, producer=8)
    assert pair.pull().status is FetchStatus.DIVERGING
    assert pair.other.partition.end_offset == 10, "the journal still holds what is to go"
    assert not pair.other.partition.durability.is_dirty, (
        "nothing of it may get into the journal again"
    )
    pair.catch_up()
    assert log_of(pair.other) == log_of(pair.one)
    assert pair.other.partition.epochs.entries == [(1, 0), (2, 1)]
    state = pair.other.partition.producers.get(7)
    assert state is not None
    assert state.last_sequence == 0


def test_a_crash_after_the_cut_brings_nothing_back() -> None:
    pair = Pair(SMALL)
    pair.other.disk.survival = 1.0
    pair.lead(1)
    for number in range(10):
        pair.one.send(number)
    pair.one.sync()
    pair.swap(2)
    assert pair.pull().status is FetchStatus.DIVERGING
    pair.clear()
    pair.other.crash()
    assert pair.other.partition.end_offset == 0
    assert pair.other.partition.epochs.entries == []


def test_a_flush_that_was_under_way_does_not_speak_for_what_came_after_the_cut() -> None:
    pair = Pair()
    pair.lead(1)
    pair.one.append("old 1")
    flush = pair.one.partition.durability.flush()
    pair.swap(2)
    pair.one.append("new 1")
    pair.pull()
    pair.clear()
    pair.pull()
    assert pair.other.partition.end_offset == 1
    flush.run()
    pair.other.partition.durability.flushed(flush)
    assert pair.other.partition.replica.durable_offset == 0
    pair.other.sync()
    assert pair.other.partition.replica.durable_offset == 1


def test_a_journal_that_cannot_be_cleared_ends_the_copy() -> None:
    pair = Pair()
    pair.lead(1)
    pair.one.append("old")
    pair.one.sync()
    pair.swap(2)
    pair.pull()
    pair.clear(is_clear=False)
    assert pair.other.partition.failure is not None
    assert pair.followed.fetch(NOW_MS + 10_000) is None


def test_a_follower_that_leads_before_the_journal_is_clear_keeps_its_log() -> None:
    pair = Pair()
    pair.lead(1)
    pair.one.append("old")
    pair.one.sync()
    pair.swap(2)
    pair.pull()
    waiting = list(pair.clearing)
    pair.swap(3)
    for done in waiting:
        done(True)
    assert pair.one.partition.end_offset == 1
    assert pair.one.partition.durability.is_dirty is False
    pair.one.append("new")
    assert pair.one.partition.durability.is_dirty


def test_a_follower_below_the_leaders_start_begins_in_the_middle_of_a_batch_if_need_be() -> None:
    pair = Pair(SMALL)
    pair.lead(1, in_sync=(LEADER,))
    for _ in range(4):
        pair.one.append("a", "b", "c", "d", "e")
    pair.one.sync()
    pair.one.partition.retention.delete_before(12)
    assert pair.pull().status is FetchStatus.BELOW_START
    pair.clear()
    assert pair.other.partition.start_offset == 10, "only whole batches can be copied"
    pair.catch_up()
    assert pair.other.partition.start_offset == 12
    assert pair.other.values() == pair.one.values()
    pair.other.crash()
    assert (pair.other.partition.start_offset, pair.other.partition.end_offset) == (12, 20)


def test_a_follower_in_the_middle_of_a_compacted_batch_has_it_again_as_a_whole() -> None:
    pair = Pair()
    pair.lead(1, in_sync=(LEADER,))
    for number in range(6):
        pair.one.append(f"{number}")
    pair.one.sync()
    pair.pull()
    partition = pair.other.partition
    partition.replica.begin_truncation()
    partition.replica.truncate(3, NotLeader(partition.name, LEADER), now_ms=NOW_MS)
    # Compaction has left one batch for the first five offsets.
    stretched = build_batch(b"", record_count=0, base_offset=0, last_offset_delta=4, leader_epoch=1)
    last = log_of(pair.one)[5]
    leader = pair.one.partition
    leader.log.truncate(0)
    for batch in (bytes(stretched), last):
        leader.store(memoryview(batch), read_header(batch), now_ms=NOW_MS)
    assert pair.pull().status is FetchStatus.DIVERGING
    pair.catch_up()
    assert log_of(pair.other) == log_of(pair.one)


def test_damage_on_the_leader_is_not_copied() -> None:
    pair = Pair()
    pair.lead(1)
    pair.one.append("good")
    pair.one.append("bad")
    pair.one.sync()
    segment = pair.one.partition.log.active
    pair.one.disk.flip_bit(segment.file.path, 8 * (segment.size - 1))
    segment.trusted_from = segment.size
    assert pair.pull().batches_bytes > 0
    assert pair.pull().status is FetchStatus.DAMAGED
    assert pair.other.partition.end_offset == 1
    assert pair.led.is_damaged


def test_a_follower_cuts_its_end_though_the_leaders_first_batch_is_damaged() -> None:
    pair = Pair()
    pair.lead(1)
    pair.one.append("first")
    pair.one.append("second")
    pair.catch_up()
    pair.one.append("not committed")
    pair.one.sync()
    pair.swap(2)
    pair.one.append("after the election")
    pair.one.sync()
    segment = pair.one.partition.log.active
    pair.one.disk.flip_bit(segment.file.path, 8 * 70)
    segment.trusted_from = segment.size
    assert pair.pull().status is FetchStatus.DIVERGING
    pair.catch_up()
    assert pair.other.partition.end_offset == pair.one.partition.end_offset
    assert b"after the election" in log_of(pair.other)[2]


def test_what_was_sent_unread_and_refused_is_verified_when_it_is_asked_for_again() -> None:
    pair = Pair()
    pair.lead(1)
    pair.one.append("good")
    pair.one.append("bad")
    pair.one.sync()
    segment = pair.one.partition.log.active
    pair.one.disk.flip_bit(segment.file.path, 8 * (segment.size - 1))
    assert pair.pull().status is FetchStatus.OK
    pair.followed.following.failed(NOW_MS - 1000)
    assert pair.other.partition.end_offset == 1  # The second one was not what it should be.
    assert pair.pull().status is FetchStatus.OK
    pair.followed.following.failed(NOW_MS - 1000)
    assert pair.one.partition.replica.first_damage is None
    assert pair.pull().status is FetchStatus.DAMAGED
    assert pair.one.partition.replica.first_damage == 1


def test_an_unreadable_disk_counts_as_damage() -> None:
    pair = Pair()
    pair.lead(1)
    pair.one.append("unreadable")
    pair.one.sync()

    def fail(position: int, length: int) -> bytes:
        raise OSError(errno.EIO, "unreadable")

    pair.one.partition.log.active.file.read = fail  # type: ignore[method-assign]
    assert pair.pull().status is FetchStatus.DAMAGED
    assert pair.one.partition.replica.first_damage == 0


def test_a_damaged_follower_drops_what_it_has_only_when_nobody_relies_on_it() -> None:
    pair = Pair()
    pair.lead(1)
    for value in ("a", "b", "c"):
        pair.one.append(value)
    pair.catch_up()
    partition = pair.other.partition
    partition.replica.note_damage(1)
    pair.follow(1, is_in_sync=True)
    pair.clear()
    assert partition.end_offset == 3
    pair.follow(1)
    pair.clear()
    assert partition.end_offset == 1
    pair.catch_up()
    assert log_of(pair.other) == log_of(pair.one)
    assert partition.replica.first_damage is None


def test_with_too_few_in_sync_writers_are_refused_and_records_are_committed_later() -> None:
    pair = Pair(in_sync_min=2)
    pair.lead(1)
    waiting = pair.one.ack(pair.one.append("one").last_offset)
    pair.led.changed(fact_of(1, in_sync=(LEADER,), version=2), now_ms=NOW_MS)
    assert [type(one) for one in waiting] == [NotEnoughReplicas]
    assert isinstance(pair.one.partition.shortage, NotEnoughReplicas)
    pair.one.sync()
    assert pair.one.partition.high_watermark == 0
    pair.led.changed(fact_of(1, version=3), now_ms=NOW_MS)
    pair.catch_up()
    assert pair.one.partition.shortage is None
    assert pair.one.partition.high_watermark == 1


def test_a_new_leader_goes_on_with_producers_and_transactions_of_the_old_one() -> None:
    pair = Pair(SMALL)
    pair.lead(1)
    transaction = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    pair.one.append("open", base_sequence=0, **transaction)
    pair.one.append(
        "ended", producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    pair.one.partition.append_marker(
        producer_id=8, producer_epoch=0, is_commit=False, coordinator_epoch=3, now_ms=NOW_MS
    )
    pair.catch_up()
    pair.swap(2)
    assert known(pair.one.partition) == known(pair.other.partition)
    assert pair.one.append("open", base_sequence=0, **transaction).base_offset == 0
    assert pair.one.append("more", base_sequence=1, **transaction).base_offset == 3


def test_until_a_marker_is_committed_its_transaction_is_not_decided_after_a_restart() -> None:
    pair = Pair()
    pair.lead(1)
    pair.one.append(
        "first", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    pair.catch_up()
    pair.one.partition.append_marker(
        producer_id=7, producer_epoch=0, is_commit=True, coordinator_epoch=0, now_ms=NOW_MS
    )
    state = pair.one.stop()
    assert state.producers.high_watermark == 1
    partition = reopen_partition(
        pair.one.partition.name,
        pair.one.disk,
        pair.one.partition.log.folder,
        pair.one.settings,
        state,
        key=bytes(20),
        leader_epoch=1,
        waits_for_sync=True,
        mark_dirty=pair.one.dirty.append,
        is_replica=True,
    )
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
