"""The replication of a partition, on the side of this node's replica.

It has the roles of leader and follower, appends of the leader's batches, truncation to the leader's
log, and the integrity of the replica. A part of `Partition`, whose fields it changes.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING

from goqueue.model.batch import HEADER_BYTES, BatchHeader, check_batch, read_header
from goqueue.model.errors import CorruptBatch, FencedLeaderEpoch, GoQueueError, NotLeader
from goqueue.partition.history import (
    forget_history,
    forget_saved_producers,
    save_epochs,
    saved_producers,
    truncate_durably,
)
from goqueue.partition.records_end import NoRecords
from goqueue.storage.log import Slice

if TYPE_CHECKING:
    from goqueue.partition.partition import Partition

# The high watermark of a partition with a single replica depends only on the local disk.
NO_LIMIT = 1 << 63
NO_LEADER = -1


class Replica:
    """One of the replicas of a partition: the only one, the leader's or a follower's.

    A partition that is opened as a replica is a follower until its role is set.
    """

    __slots__ = ("_partition", "damaged_from", "epoch_start", "is_suspect")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        # The end of the log when the role was set.
        self.epoch_start = partition.log.end_offset
        # The first unreadable batch, as far as the log itself does not report it.
        self.damaged_from: int | None = None
        # Whether this replica may have lost records it had reported as durable. It is suspect until
        # there is a leader; by then it no longer counts as in sync.
        self.is_suspect = False

    @property
    def start_offset(self) -> int:
        return self._partition.log.start_offset

    @property
    def end_offset(self) -> int:
        return self._partition.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    @property
    def durable_offset(self) -> int:
        """Return the offset below which records are as durable as promised on this node."""
        return self._partition.durability.durable_offset

    @property
    def last_epoch(self) -> int:
        """Return the epoch of the last batch; -1 if there has never been one."""
        return self._partition.epochs.latest

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch not after `epoch` and its end, for logs after a fail-over."""
        partition = self._partition
        return partition.epochs.end_offset(epoch, log_end=partition.log.end_offset)

    # Roles

    def become_leader(self, leader_epoch: int) -> None:
        """Accept writes from now on, in an epoch that no other leader has written in.

        Nothing more is committed until `set_commit_limit` is called.
        """
        partition, latest = self._partition, self._partition.epochs.latest
        if leader_epoch <= latest:
            raise FencedLeaderEpoch(
                f"{partition.name} has records of epoch {latest}; a leader of epoch "
                f"{leader_epoch} cannot continue from there."
            )
        self._begin_epoch(leader_epoch)
        partition.is_following, partition.refusal = False, partition.failure
        self.is_suspect = False

    def become_follower(self, leader_epoch: int, *, leader: int) -> None:
        """Accept only batches of the leader. Waiters are failed with the new leader."""
        partition = self._partition
        if leader_epoch < partition.leader_epoch:
            raise FencedLeaderEpoch(
                f"{partition.name} has reached epoch {partition.leader_epoch}; a leader of epoch "
                f"{leader_epoch} is fenced."
            )
        self._begin_epoch(leader_epoch)
        refusal = partition.failure or NotLeader(partition.name, leader)
        partition.is_following, partition.refusal = True, refusal
        self.damaged_from = self.first_damage
        if leader != NO_LEADER:
            self.is_suspect = False
        partition.committing.fail(refusal)
        partition.keeping.fail(refusal)
        partition.notify_watchers()

    def _begin_epoch(self, leader_epoch: int) -> None:
        partition, log = self._partition, self._partition.log
        partition.leader_epoch = leader_epoch
        log.epoch_max = max(leader_epoch, partition.epochs.latest)
        self.epoch_start = log.end_offset
        partition.shortage = partition.on_durable = partition.on_written = None
        partition.without_records = NoRecords(0, 0)
        partition.commit_limit = partition.high_watermark
        partition.durability.resume()

    # The leader's part

    def set_commit_limit(self, offset: int) -> None:
        """Note that all in-sync replicas have what is before `offset`."""
        partition = self._partition
        partition.commit_limit = max(partition.commit_limit, offset)
        partition.advance(partition.durability.durable_offset)

    def set_shortage(self, shortage: GoQueueError | None) -> None:
        """Set or clear the error that too few replicas are in sync to commit.

        Waiters are failed; the records stay, and are committed when enough are in sync again.
        """
        self._partition.shortage = shortage
        if shortage is not None:
            self._partition.committing.fail(shortage)

    def read(self, offset: int, *, bytes_max: int) -> Slice | None:
        """Return batches from `offset` to the end, for followers only; None at the end."""
        log = self._partition.log
        try:
            return log.read(offset, bytes_max=bytes_max, until_offset=log.end_offset)
        except OSError as error:
            raise self._partition.unreadable(error, offset) from error

    # The follower's part

    def append(self, batches: memoryview, *, now_ms: int) -> None:
        """Append batches of the leader unchanged; raise if they do not fit the end of the log.

        Batches before the one that does not fit, or for which there is no space, stay.
        """
        partition = self._partition
        if partition.failure is not None:
            raise partition.failure
        assert partition.is_following, "a leader's log has no other source"
        assert not partition.durability.is_suspended, "where the log will end is not known yet"
        for header, batch in _checked_batches(
            batches,
            offset=partition.log.end_offset,
            epoch_min=partition.epochs.latest,
            epoch_max=partition.leader_epoch,
        ):
            partition.store(batch, header, now_ms=now_ms)

    def follow(self, *, high_watermark: int, start_offset: int) -> None:
        """Apply the leader's offsets; the log must be a prefix of the leader's."""
        partition, log = self._partition, self._partition.log
        mark = min(max(high_watermark, start_offset), log.end_offset)
        partition.commit_limit = max(partition.commit_limit, mark)
        partition.advance(mark)
        if log.start_offset < start_offset <= log.end_offset:
            partition.retention.advance_start(start_offset)

    def begin_truncation(self) -> None:
        """Exclude this partition from rounds of syncing until `truncate` or `restart`.

        What such a round writes to the commit journal would come back after a crash. So truncation
        starts with this, then the journal is cleared, and only then the log is truncated.
        """
        self._partition.durability.is_suspended = True

    def truncate(self, offset: int, error: GoQueueError, *, now_ms: int) -> None:
        """Drop everything from `offset` on, as if it had never been written. Blocks.

        Effects on producers and transactions are undone: a transaction whose marker is dropped is
        open again. Waiters for dropped records get `error`. All of it is durable before anything
        else is written there: otherwise a log mixed from both histories would look intact.
        """
        partition, log = self._partition, self._partition.log
        partition.durability.cancel()
        forget_saved_producers(log, after_offset=offset)
        truncate_durably(log, offset)
        partition.epochs.truncate(log.end_offset)
        self._history_changed(now_ms=now_ms)
        partition.committing.fail(error, since=log.end_offset)

    def restart(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and start again at `offset`, the start of the leader's log. Blocks."""
        partition, log = self._partition, self._partition.log
        assert partition.is_following, "only a copy can be had again from elsewhere"
        partition.durability.cancel()
        forget_history(log)
        log.restart(offset, now_ms=now_ms)
        log.active.file.sync()
        partition.epochs.truncate(0)
        partition.high_watermark = partition.durability.synced_offset = offset
        self._history_changed(now_ms=now_ms)

    def _history_changed(self, *, now_ms: int) -> None:
        """Save the epochs, and rebuild everything else from the remaining log."""
        partition, log = self._partition, self._partition.log
        if not partition.epochs.is_saved:
            entries = partition.epochs.entries
            save_epochs(log, entries)
            partition.epochs.set_saved(entries)
        end = log.end_offset
        partition.high_watermark = min(partition.high_watermark, end)
        partition.durability.truncated(end)
        self.epoch_start = min(self.epoch_start, end)
        if partition.commit_limit != NO_LIMIT:
            partition.commit_limit = partition.high_watermark
        partition.history.replay(saved_producers(log), now_ms=now_ms)
        partition.transactions.advance(partition.high_watermark)
        if self.damaged_from is not None and self.damaged_from >= end:
            self.damaged_from = None
        partition.durability.resume()

    # Integrity

    @property
    def whole_until(self) -> tuple[int, int]:
        """Return the epoch and the offset up to which no damage is known."""
        damaged, end = self.first_damage, self._partition.log.end_offset
        offset = end if damaged is None else min(damaged, end)
        return self._partition.epochs.epoch_of(offset - 1), offset

    @property
    def first_damage(self) -> int | None:
        """Return the first offset that a read found damaged; None if there is none.

        A replica must fetch everything from there on again.
        """
        log = self._partition.log
        known = (log.damaged_from, self.damaged_from)
        offsets = [one for one in known if one is not None and one >= log.start_offset]
        return min(offsets, default=None)

    def note_failed_read(self, error: OSError, offset: int) -> None:
        """Note as damage what the disk cannot read; other errors than EIO may be transient."""
        if error.errno == errno.EIO:
            self.note_damage(self._partition.log.safe_before(offset))

    def note_damage(self, offset: int) -> None:
        """Note that everything from this offset on must be fetched again."""
        known = self.first_damage
        self.damaged_from = offset if known is None else min(known, offset)


def _checked_batches(
    data: memoryview, *, offset: int, epoch_min: int, epoch_max: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches in `data`, the first of which must start at `offset`.

    They keep their offsets and epochs, so both are checked like a checksum: offsets have no gaps,
    and epochs neither decrease nor exceed that of the leader.
    """
    at = 0
    while at < len(data):
        if len(data) - at < HEADER_BYTES:
            raise CorruptBatch(f"The leader's answer ends with {len(data) - at} extra bytes.")
        size = read_header(data, at).size
        batch = data[at : at + size]
        try:
            header = check_batch(batch)
        except CorruptBatch:
            raise
        except GoQueueError as error:
            raise CorruptBatch(f"The leader sent an invalid batch: {error}") from error
        if header.base_offset != offset:
            raise CorruptBatch(
                f"The leader sent a batch at offset {header.base_offset}; {offset} is expected."
            )
        if not epoch_min <= header.leader_epoch <= epoch_max:
            raise CorruptBatch(
                f"A batch of epoch {header.leader_epoch} cannot follow one of epoch {epoch_min} "
                f"under a leader of epoch {epoch_max}."
            )
        yield header, batch
        at, offset, epoch_min = at + size, header.next_offset, header.leader_epoch
