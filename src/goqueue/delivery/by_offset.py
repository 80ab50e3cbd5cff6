"""Settling messages that consumers name by offset, as members of share groups do.

A consumer may settle what it holds, and nothing else: its name takes the place of a receipt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from goqueue.delivery.leases import Lease, Leases
from goqueue.delivery.ledger import Finish, Ledger
from goqueue.delivery.partition_queue import PartitionQueue
from goqueue.delivery.settings import LEASE_MESSAGES_MAX
from goqueue.delivery.settling import SETTLED, Settled, Settling
from goqueue.model.errors import GoQueueError, InvalidRecordState, InvalidRequest
from goqueue.model.share_groups import AckBatch, AckType, AcquiredRange

REJECTED = "rejected"
# Leases of contiguous messages that are searched one by one; more are looked up by offset.
RUNS_MAX = 16
_TYPES = frozenset(AckType)


class _Part(NamedTuple):
    """Messages that are contiguous in one lease, and their outcome."""

    type: int
    lease: Lease
    positions: range


class SettlingByOffset:
    """Acknowledgements of ranges of offsets, checked as a whole before any of them is applied."""

    def __init__(
        self, partitions: Sequence[PartitionQueue], leases: Leases, settling: Settling
    ) -> None:
        self._partitions = partitions
        self._leases = leases
        self._settling = settling

    def settle(
        self, now_ms: int, consumer: str, number: int, batches: Sequence[AckBatch]
    ) -> Settled:
        """Apply a consumer's acknowledgements in one partition, all of them or none.

        Accepting what is done already succeeds, as the retry of a lost answer does. The caller
        has taken back expired leases.
        """
        try:
            check_batches(batches)
            parts = list(self._find(consumer, number, batches))
        except GoQueueError as error:
            return Settled(error)
        for part in parts:
            self._apply(part, now_ms)
        return SETTLED

    def held(self, consumer: str, number: int) -> list[Lease]:
        """Return the live leases of a consumer in one partition."""
        return self._leases.held(consumer, number)

    def find(
        self, consumer: str, number: int, first: int, last: int
    ) -> Iterator[tuple[Lease, range]]:
        """Yield where the records that a consumer holds of a range are in its leases."""
        held = _Held(self._leases.held(consumer, number))
        while first <= last:
            found = held.find(first, last)
            if found is not None:
                yield found
            first += 1 if found is None else len(found[1])

    def fail(self, lease: Lease, now_ms: int) -> None:
        """Return everything that a consumer holds under a lease, as a failed delivery."""
        for position in list(lease.outstanding()):
            self._settling.release(lease, position, now_ms)

    def _find(self, consumer: str, number: int, batches: Sequence[AckBatch]) -> Iterator[_Part]:
        held = _Held(self._leases.held(consumer, number))
        repeated = _Repeated(self._partitions[number].ledger)
        for batch in batches:
            for type_, first, last in _by_type(batch):
                if type_ == AckType.RENEW and not self._settling.settings.lease_renewal:
                    raise InvalidRequest("This group does not let its members renew leases.")
                yield from self._parts(held, repeated, type_, first, last)

    def _parts(
        self, held: _Held, repeated: _Repeated, type_: int, first: int, last: int
    ) -> Iterator[_Part]:
        while first <= last:
            found = held.find(first, last)
            if found is not None:
                yield _Part(type_, *found)
                first += len(found[1])
            elif type_ == AckType.ACCEPT and repeated.may_be(first):
                first += 1
            else:
                raise InvalidRecordState(first)

    def _apply(self, part: _Part, now_ms: int) -> None:
        type_, lease, positions = part
        if type_ == AckType.ACCEPT:
            self._settling.end(lease, positions, Finish.ACKED, now_ms)
        elif type_ == AckType.GAP:
            self._settling.end(lease, positions, Finish.SKIPPED, now_ms)
        elif type_ == AckType.RENEW:
            until_ms = now_ms + self._settling.settings.visibility_ms
            self._settling.renew(lease, positions, until_ms)
        else:
            for position in positions:
                if type_ == AckType.RELEASE:
                    self._settling.release(lease, position, now_ms)
                else:
                    self._settling.refuse(lease, position, REJECTED)


class _Repeated:
    """Acceptances that may have been applied before: of one request whose answer was lost."""

    __slots__ = ("_ledger", "_left")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # A range may have any length, and each offset takes time, so that there is a limit.
        self._left = LEASE_MESSAGES_MAX

    def may_be(self, offset: int) -> bool:
        self._left -= 1
        return self._left >= 0 and self._ledger.is_done(offset) and offset not in self._ledger.dead


class _Held:
    """What a consumer holds in a partition, by offset."""

    __slots__ = ("_runs", "_scattered")

    def __init__(self, leases: Sequence[Lease]) -> None:
        is_searched = len(leases) <= RUNS_MAX
        self._runs = [one for one in leases if is_searched and isinstance(one.offsets, range)]
        self._scattered = {
            lease.offsets[position]: (lease, position)
            for lease in leases
            if not (is_searched and isinstance(lease.offsets, range))
            for position in lease.outstanding()
        }

    def find(self, first: int, last: int) -> tuple[Lease, range] | None:
        """Return messages that are held from `first` on, contiguous in one lease."""
        for lease in self._runs:
            if first not in lease.offsets:
                continue
            start = first - lease.offsets[0]
            end = min(start + last - first + 1, len(lease.offsets))
            back = lease.out.find(0, start, end)
            if back != start:
                return lease, range(start, end if back < 0 else back)
        scattered = self._scattered.get(first)
        if scattered is None:
            return None
        lease, start = scattered
        end = start + 1
        for offset in range(first + 1, last + 1):
            if self._scattered.get(offset) != (lease, end):
                break
            end += 1
        return lease, range(start, end)


def check_batches(batches: Sequence[AckBatch]) -> None:
    """Raise unless the batches are well formed, in order, and do not overlap."""
    before = -1
    for first, last, types in ((one.first, one.last, one.types) for one in batches):
        if not before < first <= last:
            raise InvalidRequest("Acknowledge ranges of offsets in ascending order.")
        if len(types) not in (1, last - first + 1):
            raise InvalidRequest("Give one type of acknowledgement, or one for each offset.")
        if not _TYPES.issuperset(types):
            raise InvalidRequest("An acknowledgement has a type that is not known.")
        before = last


def _by_type(batch: AckBatch) -> Iterator[tuple[int, int, int]]:
    """Yield (type, first, last) for each stretch of one type."""
    types, first = batch.types, batch.first
    if types.count(types[0]) == len(types):
        yield types[0], first, batch.last
        return
    for type_, same in groupby(types):
        count = sum(1 for _ in same)
        yield type_, first, first + count - 1
        first += count


def acquired_ranges(lease: Lease, *, batch_records: int = 0) -> list[AcquiredRange]:
    """Return a new lease as ranges of equal delivery counts, of at most so many records each."""
    offsets, attempts = lease.offsets, lease.attempts
    if isinstance(offsets, range) and attempts.count(attempts[0]) == len(attempts):
        whole = [AcquiredRange(offsets[0], offsets[-1], attempts[0])]
    else:
        whole = list(_stretches(offsets, attempts))
    if not batch_records:
        return whole
    return [
        AcquiredRange(first, min(first + batch_records - 1, one.last), one.delivery_count)
        for one in whole
        for first in range(one.first, one.last + 1, batch_records)
    ]


def _stretches(offsets: Sequence[int], attempts: Sequence[int]) -> Iterator[AcquiredRange]:
    first, count = offsets[0], attempts[0]
    last = first
    for offset, attempt in zip(offsets[1:], attempts[1:], strict=True):
        if offset != last + 1 or attempt != count:
            yield AcquiredRange(first, last, count)
            first, count = offset, attempt
        last = offset
    yield AcquiredRange(first, last, count)
