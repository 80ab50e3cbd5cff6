"""The result of a receive call: messages as columns of their batches, with their leases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from goqueue.delivery import TAILS, Delivery, Lease
from goqueue.delivery.grants import Granted
from goqueue.model.batch import Record
from goqueue.model.columns import Columns, PackedColumns, unpack_columns


class ReceivedMessage(NamedTuple):
    """A message and its delivery."""

    topic: str
    record: Record
    delivery: Delivery


class ReceivedRun(NamedTuple):
    """Messages of one batch, contiguous in one lease."""

    columns: Columns
    places: Sequence[int]  # in the columns
    lease: Lease
    first: int  # the index of the first of them in the lease


class _PackedLease(NamedTuple):
    """The parts of a lease that a consumer sees."""

    head: str
    tails: list[str] | None  # None for the standard ones, which only contain the position
    consumer: str
    partition: int
    offsets: list[int]
    attempts: list[int]
    lanes: bytes
    until_ms: int
    granted_ms: int
    firsts_ms: list[int] | None


class _PackedRun(NamedTuple):
    columns: PackedColumns
    lease: int  # its index
    first: int


class PackedReceived(NamedTuple):
    """`Received` as plain data."""

    topic: str
    leases: list[_PackedLease]
    runs: list[_PackedRun]


class Received:
    """The messages of a receive call, as runs for encoders, or one by one."""

    PACKED: ClassVar[type] = PackedReceived

    __slots__ = ("count", "runs", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.runs: list[ReceivedRun] = []
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[ReceivedMessage]:
        for columns, places, lease, first in self.runs:
            for index, place in enumerate(places, first):
                yield ReceivedMessage(self.topic, columns.record(place), lease.delivery(index))

    def add(self, run: ReceivedRun) -> None:
        self.runs.append(run)
        self.count += len(run.places)

    @property
    def receipts(self) -> list[str]:
        return [
            lease.head + tail
            for _, places, lease, first in self.runs
            for tail in lease.tails[first : first + len(places)]
        ]

    def pack(self) -> PackedReceived:
        """Return it as plain data, without the other records of the batches."""
        numbers: dict[Lease, int] = {}
        for run in self.runs:
            numbers.setdefault(run.lease, len(numbers))
        return PackedReceived(
            self.topic,
            [_pack_lease(lease) for lease in numbers],
            [
                _PackedRun(columns.pack(places), numbers[lease], first)
                for columns, places, lease, first in self.runs
            ],
        )

    @classmethod
    def unpack(cls, packed: PackedReceived) -> Received:
        received = cls(packed.topic)
        leases = [_unpack_lease(one) for one in packed.leases]
        for columns, lease, first in packed.runs:
            received.add(
                ReceivedRun(
                    unpack_columns(columns), range(columns.record_count), leases[lease], first
                )
            )
        return received


def _pack_lease(lease: Lease) -> _PackedLease:
    return _PackedLease(
        lease.head,
        None if len(lease.tails[0]) == len(TAILS[0]) else list(lease.tails),
        lease.consumer,
        lease.partition,
        list(lease.offsets),
        list(lease.attempts),
        lease.lanes,
        lease.until_ms,
        lease.granted_ms,
        None if lease.firsts_ms is None else list(lease.firsts_ms),
    )


def _unpack_lease(packed: _PackedLease) -> Lease:
    """Return a lease for display, which cannot be used to settle messages."""
    granted = Granted(
        0,
        packed.consumer,
        packed.granted_ms,
        packed.until_ms,
        packed.offsets,
        packed.attempts,
    )
    return Lease(
        granted,
        packed.partition,
        packed.lanes,
        head=packed.head,
        tails=TAILS[: len(packed.offsets)] if packed.tails is None else packed.tails,
        firsts_ms=packed.firsts_ms,
    )
