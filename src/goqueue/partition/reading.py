"""Reads of a replica: committed records, decided ones, and everything for other replicas."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.model.batch import Record
from goqueue.model.errors import (
    FencedLeaderEpoch,
    GoQueueError,
    NotLeader,
    OffsetOutOfRange,
    StorageFailed,
    UnknownLeaderEpoch,
)
from goqueue.partition.copy import NO_LEADER, Copy
from goqueue.partition.records_end import search_back
from goqueue.partition.transactions import AbortedTransaction
from goqueue.storage.aborted import find_aborted, has_aborted
from goqueue.storage.log import Slice


class ReadableCopy(Copy):
    """A replica with reads of each isolation level."""

    __slots__ = ()

    @property
    def last_epoch(self) -> int:
        """Return the epoch of the last batch; -1 if there has never been one."""
        return self.epochs.latest

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which no open transaction can change what a reader sees."""
        unstable, end = self.transactions.first_unstable, self.high_watermark
        if unstable is None or unstable >= end:
            return end
        return min(end, max(unstable, self.log.start_offset))

    def check_leading(self) -> None:
        """Raise unless this replica leads."""
        if self.is_following and self._refusal is not None:
            raise self._refusal

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client whose metadata has an older or a newer leader epoch."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"Epoch {epoch} of {self.name} is over; {self.leader_epoch} is current."
            )
        raise UnknownLeaderEpoch(f"Epoch {epoch} of {self.name} is not yet known here; retry.")

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch not after `epoch` and its end, for clients after a fail-over."""
        return self.epochs.end_offset(epoch, log_end=self.log.end_offset)

    # Batches and records

    def read(self, offset: int, *, bytes_max: int, is_committed_only: bool = False) -> Slice | None:
        """Return committed batches from `offset` on; None if there are none yet.

        With `is_committed_only` their transactions are ended too, but maybe aborted: `aborted`
        returns which.
        """
        if self.is_gone and self.failure is not None:
            raise self.failure
        log, until = self.log, self.high_watermark
        if offset < log.start_offset or (offset > until and offset > log.end_offset):
            raise OffsetOutOfRange(self.name, offset, start=log.start_offset, end=until)
        if is_committed_only and self.transactions.first_unstable is not None:
            until = self.last_stable_offset
        if offset >= until:
            return None
        try:
            return log.read(offset, bytes_max=bytes_max, until_offset=until)
        except OSError as error:
            raise self.unreadable(error) from error

    def read_uncommitted(self, offset: int, *, bytes_max: int) -> Slice | None:
        """Return batches from `offset` to the end, for replicas only; None at the end."""
        try:
            return self.log.read(offset, bytes_max=bytes_max, until_offset=self.log.end_offset)
        except OSError as error:
            raise self.unreadable(error) from error

    def find_timestamp(self, timestamp: int, *, is_committed_only: bool = False) -> Record | None:
        until = self.last_stable_offset if is_committed_only else self.high_watermark
        try:
            return self.log.find_timestamp(timestamp, until_offset=until)
        except OSError as error:
            raise self.unreadable(error) from error

    def find_newest(self, *, is_committed_only: bool = False) -> Record | None:
        until = self.last_stable_offset if is_committed_only else self.high_watermark
        try:
            return self.log.find_newest(until_offset=until)
        except OSError as error:
            raise self.unreadable(error) from error

    def records_end(self) -> int:
        """Return the offset after the last record below the high watermark.

        Markers and records of aborted transactions do not count; those of open transactions do. A
        group that has committed this offset, or a later one, has nothing left to read.
        """
        try:
            found = search_back(self.log, self.high_watermark, self.without_records)
        except OSError as error:
            raise self.unreadable(error) from error
        self.without_records = found
        return found.since

    def aborted(self, first_offset: int, until_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from `first_offset` to `until_offset`."""
        try:
            return find_aborted(self.log, first_offset, until_offset)
        except OSError as error:
            raise self.unreadable(error) from error

    def aborted_in(self, batches: Slice) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions with records in these batches."""
        try:
            if not has_aborted(self.log, batches.offset):
                return ()
            return find_aborted(self.log, batches.offset, batches.end_offset)
        except OSError as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: OSError) -> GoQueueError:
        """Return the error for a read that failed on disk."""
        return StorageFailed(f"Reading from {self.name} failed: {error.strerror}; retry.")

    # Damage

    def damaged(self, error: GoQueueError) -> GoQueueError:
        """Return the error for a read of a damaged batch: another replica may have it intact."""
        return NotLeader(self.name, NO_LEADER) if self.is_following else error

    @property
    def whole_until(self) -> tuple[int, int]:
        """Return the epoch and the offset up to which no damage is known."""
        damaged, end = self.first_damage, self.log.end_offset
        offset = end if damaged is None else min(damaged, end)
        return self.epochs.epoch_of(offset - 1), offset

    @property
    def first_damage(self) -> int | None:
        """Return the first offset that a read found damaged; None if there is none.

        A replica must fetch everything from there on again.
        """
        known = (self.log.damaged_from, self.damaged_from)
        offsets = [one for one in known if one is not None and one >= self.log.start_offset]
        return min(offsets, default=None)

    def note_damage(self, offset: int) -> None:
        """Note a read error reported by the disk at this offset."""
        known = self.first_damage
        self.damaged_from = offset if known is None else min(known, offset)
