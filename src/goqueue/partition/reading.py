"""What is read of a copy: committed records, decided ones, all of them for other copies."""

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
    """A copy that tells what is in it, as far as whoever asks may know it."""

    __slots__ = ()

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch; -1 when there has never been one."""
        return self.epochs.latest

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where no transaction that is not decided can change what a reader sees."""
        unstable, end = self.transactions.first_unstable, self.high_watermark
        if unstable is None or unstable >= end:
            return end
        return min(end, max(unstable, self.log.start_offset))

    def check_leading(self) -> None:
        """Refuse whoever may only be served by the leader, unless that is here."""
        if self.is_following and self._refusal is not None:
            raise self._refusal

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows an older leader, or a newer one, than this."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"Epoch {epoch} of {self.name} is over; {self.leader_epoch} is current."
            )
        raise UnknownLeaderEpoch(f"Epoch {epoch} of {self.name} is not known here yet; retry.")

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The newest epoch not after `epoch` and where it ended; for clients that lost a leader."""
        return self.epochs.end_offset(epoch, log_end=self.log.end_offset)

    # Batches and records

    def read(self, offset: int, *, bytes_max: int, is_committed_only: bool = False) -> Slice | None:
        """Batches that are safe from `offset` on; None when there are none yet.

        With `is_committed_only` these are decided too, but not all of them need be committed:
        `aborted` tells which are not.
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
        """Batches from `offset` to the end, for replicas alone; None at the end."""
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
        """The offset after the last record below the high watermark.

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
        """The aborted transactions with records from `first_offset` up to `until_offset`."""
        try:
            return find_aborted(self.log, first_offset, until_offset)
        except OSError as error:
            raise self.unreadable(error) from error

    def aborted_in(self, batches: Slice) -> Sequence[AbortedTransaction]:
        """The aborted transactions that have a part in these batches."""
        try:
            if not has_aborted(self.log, batches.offset):
                return ()
            return find_aborted(self.log, batches.offset, batches.end_offset)
        except OSError as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: OSError) -> GoQueueError:
        """What to tell a reader whom the disk has failed."""
        return StorageFailed(f"Reading from {self.name} failed: {error.strerror}; retry.")

    # Damage

    def damaged(self, error: GoQueueError) -> GoQueueError:
        """The error for a reader that met a damaged batch: another replica may have it whole."""
        return NotLeader(self.name, NO_LEADER) if self.is_following else error

    @property
    def whole_until(self) -> tuple[int, int]:
        """The offset before which nothing is known to be damaged, after its epoch."""
        damaged, end = self.first_damage, self.log.end_offset
        offset = end if damaged is None else min(damaged, end)
        return self.epochs.epoch_of(offset - 1), offset

    @property
    def first_damage(self) -> int | None:
        """The first offset that somebody has tried to read and could not; None when there is none.

        A replica has to have what begins there again from others.
        """
        known = (self.log.damaged_from, self.damaged_from)
        offsets = [one for one in known if one is not None and one >= self.log.start_offset]
        return min(offsets, default=None)

    def note_damage(self, offset: int) -> None:
        """The disk says of itself that it cannot read what begins here."""
        known = self.first_damage
        self.damaged_from = offset if known is None else min(known, offset)
