"""Fetches for stream consumers: returns the requested amount, now or when it has arrived."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from goqueue.loop.clock import Clock, Handle
from goqueue.model.errors import GoQueueError
from goqueue.partition import AbortedTransaction, Partition
from goqueue.storage.log import Slice

# Each fetch creates one of each per partition: a struct is created faster than a tuple.


class Wanted(msgspec.Struct, frozen=True):
    """A position to read from. `partition` is an error if the partition is not available."""

    partition: Partition | GoQueueError
    offset: int
    bytes_max: int
    leader_epoch: int = -1
    is_committed_only: bool = False  # nothing of an undecided transaction
    from_follower: bool = False  # this node need not lead


class Fetched(msgspec.Struct, frozen=True):
    """The result: committed batches, or nothing yet, or an error.

    For readers of committed records only, `aborted` lists the transactions whose batches to skip.
    """

    partition: Partition | None
    batches: Slice | None
    error: GoQueueError | None
    aborted: Sequence[AbortedTransaction] = ()


FetchDone = Callable[[list[Fetched]], None]


class Fetch:
    """One long poll over any number of partitions."""

    __slots__ = (
        "_available",
        "_bytes_max",
        "_bytes_min",
        "_clock",
        "_done",
        "_from_follower",
        "_is_committed_only",
        "_is_finishing",
        "_timer",
        "_wanted",
    )

    def __init__(
        self,
        clock: Clock,
        wanted: Sequence[Wanted],
        *,
        bytes_min: int,
        bytes_max: int,
        done: FetchDone,
    ) -> None:
        self._clock = clock
        self._wanted = wanted
        self._bytes_min = bytes_min
        self._bytes_max = bytes_max
        self._done = done
        self._available: dict[Partition, int] = {}
        self._timer: Handle | None = None
        self._is_finishing = False
        self._is_committed_only = any(one.is_committed_only for one in wanted)
        self._from_follower = any(one.from_follower for one in wanted)

    def start(self, wait_ms: int) -> None:
        """Respond at once if there is enough or nothing to wait for, else when there is."""
        results = self._collect()
        found = sum(one.batches.length for one in results if one.batches is not None)
        is_final = any(one.error is not None for one in results)
        if is_final or found >= self._bytes_min or wait_ms <= 0 or not self._wanted:
            self._done(results)
            return
        for result in results:
            if result.partition is not None:
                size = result.batches.length if result.batches is not None else 0
                self._available[result.partition] = size
                result.partition.watchers[self] = None
        self._timer = self._clock.call_later(wait_ms, self._finish)

    def partition_advanced(self, partition: Partition) -> None:
        """Check whether there is enough, now that one of the partitions has advanced."""
        if self._is_finishing:
            return
        is_over = partition.is_gone or (partition.is_following and not self._from_follower)
        if not is_over and not self._has_enough(partition):
            return
        # One sync advances several partitions: let the response include them all.
        self._is_finishing = True
        self._clock.call_soon(self._finish)

    def _has_enough(self, partition: Partition) -> bool:
        """Whether the requested amount is there, after an advance of this partition."""
        mine = (one for one in self._wanted if one.partition is partition)
        if self._bytes_min <= 1:
            # Undecided records of a transaction do not count for readers of committed records.
            return not self._is_committed_only or any(
                one.offset < partition.last_stable_offset or not one.is_committed_only
                for one in mine
            )
        for wanted in mine:
            result = self._read(wanted, wanted.bytes_max)
            size = result.batches.length if result.batches is not None else 0
            self._available[partition] = size
        return sum(self._available.values()) >= self._bytes_min

    def cancel(self) -> None:
        """Cancel: nobody waits for the response any more."""
        self._is_finishing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._available:
            partition.watchers.pop(self, None)
        self._available = {}

    def _finish(self) -> None:
        if self._timer is None:
            return
        self.cancel()
        self._done(self._collect())

    def _collect(self) -> list[Fetched]:
        room = self._bytes_max
        results: list[Fetched] = []
        is_first = True
        for wanted in self._wanted:
            # Return the first batch however large it is, or a consumer could never get past it.
            if room <= 0 and not is_first:
                error = wanted.partition if isinstance(wanted.partition, GoQueueError) else None
                partition = None if isinstance(wanted.partition, GoQueueError) else wanted.partition
                results.append(Fetched(partition, None, error))
                continue
            result = self._read(wanted, min(wanted.bytes_max, room))
            batches = result.batches
            if batches is not None and batches.length > room and not is_first:
                result = Fetched(result.partition, None, None)
            elif batches is not None:
                room -= batches.length
                is_first = False
            results.append(result)
        return results

    @staticmethod
    def _read(wanted: Wanted, bytes_max: int) -> Fetched:
        partition = wanted.partition
        if isinstance(partition, GoQueueError):
            return Fetched(None, None, partition)
        try:
            if partition.is_following and not wanted.from_follower:
                partition.check_leading()
            if wanted.leader_epoch >= 0:
                partition.check_epoch(wanted.leader_epoch)
            if not wanted.is_committed_only:
                batches = partition.read(wanted.offset, bytes_max=bytes_max)
                return Fetched(partition, batches, None)
            batches = partition.read(wanted.offset, bytes_max=bytes_max, is_committed_only=True)
            aborted = () if batches is None else partition.aborted_in(batches)
        except GoQueueError as error:
            return Fetched(partition, None, error)
        return Fetched(partition, batches, None, aborted)
