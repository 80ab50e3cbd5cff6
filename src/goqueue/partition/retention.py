"""Removal of old records from a partition: by retention, or because a client deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.model.errors import OffsetOutOfRange
from goqueue.partition.durability import write_error
from goqueue.storage.retention import take_expired
from goqueue.storage.segment import Segment

if TYPE_CHECKING:
    from goqueue.partition.partition import Partition


class Retention:
    """Advances the start of a partition's log, such that no crash brings records back."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def take_expired(self, *, now_ms: int) -> list[Segment]:
        """Take out expired segments; the caller removes their files.

        The leader decides what expires; a follower's log starts where the leader's does.
        """
        partition, log = self._partition, self._partition.log
        start_before = log.start_offset
        if not partition.is_following:
            expired = take_expired(log, now_ms=now_ms, until_offset=partition.high_watermark)
        else:
            ends = [segment.end_offset for segment in log.segments[:-1]]
            expired = log.take_segments(sum(end <= log.start_offset for end in ends))
        if expired:
            # A crash may bring back some of the files and not others, so the start offset must be
            # stored independently of them. `advance_start` stores it.
            start, log.start_offset = log.start_offset, start_before
            try:
                self.advance_start(start)
            finally:
                log.start_offset = start
            self._report(start_before, start, "retention")
        return expired

    def delete_before(self, offset: int) -> int:
        """Make records before `offset` unreadable (-1: all committed); return the new start."""
        partition = self._partition
        partition.check_leading()
        end = partition.high_watermark
        target = end if offset == -1 else offset
        if target > end or target < 0:
            raise OffsetOutOfRange(
                partition.name, target, start=partition.log.start_offset, end=end
            )
        start_before = partition.log.start_offset
        self.advance_start(target)
        self._report(start_before, partition.log.start_offset, "records deleted")
        return partition.log.start_offset

    def report_deleted(self) -> None:
        """Report that all messages are removed, because their topic is deleted."""
        partition = self._partition
        self._report(partition.log.start_offset, partition.high_watermark, "topic deleted")

    def _report(self, first: int, end: int, reason: str) -> None:
        partition = self._partition
        if partition.observer is not None and not partition.is_following and end > first:
            partition.observer.retired(partition.name, (first, end), reason=reason)

    def advance_start(self, offset: int) -> None:
        """Delete everything before `offset`, durably, with the state that depends on it."""
        partition = self._partition
        try:
            partition.log.advance_start(offset)
        except OSError as error:
            raise write_error(partition.name, error) from error
        if partition.history.start_advanced():
            partition.notify_watchers()
