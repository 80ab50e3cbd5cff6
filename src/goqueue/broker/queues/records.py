"""Reads the records that a queue chose, and returns them to receivers with their leases.

Records come from the log or from a cache of decoded batches. The log may be a replica on this node
or one that another node leads; then the records may have to be fetched first, which the result
reports. A receiver gets them as columns of their batches.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from goqueue.broker.queues.remote_partitions import Awaited, RemoteCopy
from goqueue.delivery import TAILS, Delivery, Lease
from goqueue.delivery.grants import Granted
from goqueue.model.attributes import TTL_HEADER, parse_attributes
from goqueue.model.batch import NO_TIMESTAMP, BatchHeader, Record, read_header, unpack_payload
from goqueue.model.columns import Columns, PackedColumns, decode_columns, unpack_columns
from goqueue.model.dead_letters import PREFIX as DEAD_PREFIX
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    CorruptBatch,
    GoQueueError,
    InvalidAttribute,
    OffsetOutOfRange,
    StorageFailed,
)
from goqueue.model.tenants import NameKind, Text
from goqueue.partition import AbortedSpans, AbortedTransaction, Partition

READ_BYTES = 256 << 10
UNPACKED_BYTES_MAX = 32 << 20  # batches that one call decodes; the next call continues there
NEAR_OFFSETS = 100  # offsets further apart are not read together
# Approximate memory of a batch's columns besides its bytes: fixed, and per record.
_BATCH_COST = 2500
_RECORD_COST = 40

_log = logging.getLogger(__name__)

Source = Partition | RemoteCopy


class Part(NamedTuple):
    """Records of one batch: their positions in its columns."""

    columns: Columns
    places: Sequence[int]


@dataclass(slots=True)
class Found:
    """The result of reading offsets of one partition."""

    parts: list[Part] = field(default_factory=list)  # in log order
    gone: list[int] = field(default_factory=list)  # missing or unreadable records
    error: GoQueueError | None = None  # why the rest was not read
    awaited: int | None = None  # the offset that must be fetched before the rest can be read
    unread: int | None = None  # the first offset beyond the size limit
    size: int = 0  # of the batches read, approximately

    def add(self, other: Found) -> None:
        """Append the result of reading later offsets."""
        self.parts += other.parts
        self.gone += other.gone
        self.error = other.error
        self.size += other.size

    @property
    def records(self) -> dict[int, Record]:
        return {
            columns.offsets[place]: columns.record(place)
            for columns, places in self.parts
            for place in places
        }

    def in_order(self, offsets: Sequence[int]) -> list[Part]:
        """Return the records in the order of these offsets."""
        known = {
            columns.offsets[place]: (columns, place)
            for columns, places in self.parts
            for place in places
        }
        ordered: list[Part] = []
        places: list[int] = []
        for offset in offsets:
            if offset in known:
                columns, place = known[offset]
                if not ordered or ordered[-1].columns is not columns:
                    places = []
                    ordered.append(Part(columns, places))
                places.append(place)
        return ordered


@dataclass(slots=True)
class _Decoded:
    base_offset: int  # including the gap before it that compaction left
    last_offset: int
    size: int  # in memory, approximately
    columns: Columns


class RecordReader:
    """Reads single records, and caches their batches for the next call."""

    def __init__(
        self, cache_bytes_max: int, *, is_curable: Callable[[Source], bool] = lambda _: False
    ) -> None:
        """`is_curable` returns whether damaged data can be restored from another replica."""
        self._cache_bytes_max = cache_bytes_max
        self._is_curable = is_curable
        self._cache_bytes = 0
        self._cache: OrderedDict[tuple[Source, int], _Decoded] = OrderedDict()
        self._bases: dict[Source, list[int]] = {}
        self.batches_decoded = 0

    def read(
        self, source: Source, offsets: Sequence[int], *, bytes_max: int = UNPACKED_BYTES_MAX
    ) -> Found:
        """Read these offsets, sorted or not. Records of open transactions are not returned.

        Stops before the batches read exceed `bytes_max`, but reads at least one.
        """
        wanted = offsets if isinstance(offsets, range) else sorted(set(offsets))
        decided = wanted[: bisect_left(wanted, source.last_stable_offset)]
        found = self._read(source, decided, bytes_max)
        if len(decided) < len(wanted) and found.error is None and found.awaited is None:
            # The queues have seen more than this replica, which lost its tail and catches up.
            found.error = CoordinatorNotAvailable(f"{source.name} is catching up here; retry.")
        return found

    def _read(self, source: Source, wanted: Sequence[int], bytes_max: int) -> Found:
        found = Found()
        at = 0
        while at < len(wanted):
            offset = wanted[at]
            if found.size >= bytes_max:
                found.unread = offset
                return found
            if offset < source.start_offset:
                found.gone.append(offset)
                at += 1
                continue
            batch = self._cached(source, offset)
            if batch is None:
                try:
                    batch = self._load(source, wanted, at, bytes_max - found.size)
                except Awaited:
                    found.awaited = offset
                    return found
                except CorruptBatch as error:
                    at = self._step_over(source, error, wanted, at, found)
                    if found.error is not None:
                        return found
                    continue
                except OffsetOutOfRange:
                    found.gone.append(offset)
                    at += 1
                    continue
                except GoQueueError as error:
                    found.error = error
                    return found
            if found.parts and found.size + batch.size > bytes_max:
                found.unread = offset
                return found
            at = _take(batch, wanted, at, found)
            found.size += batch.size
            if len(batch.columns) == 1 and (source, batch.base_offset) in self._cache:
                # It is used up, and keeping thousands of them would burden the garbage collector.
                self._let_go(source, batch.base_offset)
        return found

    def _load(self, source: Source, wanted: Sequence[int], at: int, room: int) -> _Decoded:
        """Decode the batch that holds an offset, and following ones that are needed too."""
        offset = wanted[at]
        is_next_near = at + 1 < len(wanted) and wanted[at + 1] - offset <= NEAR_OFFSETS
        bytes_max = READ_BYTES if is_next_near else 1
        data, aborted, end_offset = _batches(source, offset, bytes_max)
        view, position = memoryview(data), 0
        first: _Decoded | None = None
        while position < len(data) and room > 0:
            header = read_header(data, position)
            batch = view[position : position + header.size]
            position += header.size
            following = bisect_right(wanted, header.base_offset - 1, at)
            if first is None:
                first = self._decode(source, header, batch, aborted, gap_from=offset)
                room -= first.size
            elif following < len(wanted) and wanted[following] <= header.last_offset:
                try:
                    decoded = self._decode(
                        source, header, batch, aborted, gap_from=header.base_offset
                    )
                except CorruptBatch:
                    break  # A later call decodes it as its first batch.
                room -= decoded.size
            elif following >= len(wanted):
                break
        if first is None:
            # Compaction left nothing between the offset and `end_offset`.
            return _Decoded(offset, end_offset - 1, 0, Columns())
        return first

    def _decode(
        self,
        source: Source,
        header: BatchHeader,
        batch: memoryview,
        aborted: AbortedSpans | None,
        *,
        gap_from: int,
    ) -> _Decoded:
        size = 0
        try:
            columns = Columns()
            if not header.is_control and (aborted is None or not aborted.cover(header)):
                payload = unpack_payload(batch, header)
                size = len(payload)
                columns = decode_columns(header, payload)
        except GoQueueError as error:
            damage = CorruptBatch(f"A batch of {source.name} cannot be decoded: {error}")
            damage.next_offset = header.next_offset
            damage.is_in_all_copies = True
            raise damage from error
        cost = size + _BATCH_COST + _RECORD_COST * len(columns)
        # Compaction leaves gaps before a batch; caching them with it saves another lookup.
        base_offset = min(gap_from, header.base_offset)
        decoded = _Decoded(base_offset, header.last_offset, cost, columns)
        self.batches_decoded += 1
        self._keep(source, decoded)
        return decoded

    def _step_over(
        self,
        source: Source,
        error: CorruptBatch,
        wanted: Sequence[int],
        at: int,
        found: Found,
    ) -> int:
        """Continue after damage; without a known next offset, the rest cannot be read.

        Messages that other replicas still have are not skipped: they will be restored.
        """
        if not error.is_in_all_copies and self._is_curable(source):
            found.error = StorageFailed(
                f"A part of {source.name} is damaged on one node and is being restored from "
                "another; retry."
            )
            return at
        if error.next_offset is None or error.next_offset <= wanted[at]:
            found.error = error
            return at
        end = bisect_right(wanted, error.next_offset - 1, at)
        _log.error(
            "%s: %d message(s) before offset %d are damaged and cannot be delivered: %s",
            source.name,
            end - at,
            error.next_offset,
            error,
        )
        found.gone += wanted[at:end]
        return end

    # The cache

    def _cached(self, source: Source, offset: int) -> _Decoded | None:
        bases = self._bases.get(source)
        if not bases:
            return None
        at = bisect_right(bases, offset) - 1
        if at < 0:
            return None
        key = (source, bases[at])
        batch = self._cache[key]
        if offset > batch.last_offset:
            return None
        self._cache.move_to_end(key)
        return batch

    def _keep(self, source: Source, batch: _Decoded) -> None:
        key = (source, batch.base_offset)
        if key in self._cache:
            return
        self._cache[key] = batch
        insort(self._bases.setdefault(source, []), batch.base_offset)
        self._cache_bytes += batch.size
        # A batch much larger than the whole cache is not kept, but decoded again each time.
        is_too_large = batch.size > 2 * self._cache_bytes_max
        while self._cache_bytes > self._cache_bytes_max and (is_too_large or len(self._cache) > 1):
            self._let_go(*next(iter(self._cache)))

    def _let_go(self, source: Source, base: int) -> None:
        self._cache_bytes -= self._cache.pop((source, base)).size
        bases = self._bases[source]
        del bases[bisect_left(bases, base)]
        if not bases:
            del self._bases[source]

    def drop(self, source: Source) -> None:
        """Drop the cached batches of a partition."""
        for base in self._bases.pop(source, []):
            self._cache_bytes -= self._cache.pop((source, base)).size


async def read_soon(
    reader: RecordReader,
    source_of: Callable[[], Source],
    offsets: Sequence[int],
    *,
    bytes_max: int | None = None,
) -> Found:
    """Read offsets, waiting for those that have to be fetched from another node.

    With `bytes_max`, it stops at that limit as `RecordReader.read` does.
    """
    whole, wanted = Found(), sorted(set(offsets))
    while True:
        source = source_of()
        room = UNPACKED_BYTES_MAX if bytes_max is None else max(0, bytes_max - whole.size)
        found = reader.read(source, wanted, bytes_max=room)
        whole.add(found)
        if found.unread is not None:
            if bytes_max is not None:
                whole.unread = found.unread
                return whole
            wanted = wanted[bisect_left(wanted, found.unread) :]
            continue
        if found.awaited is None:
            return whole
        assert isinstance(source, RemoteCopy), "a copy on this node is read at once"
        try:
            await source.arrival()
        except GoQueueError as error:
            whole.error = error
            return whole
        wanted = wanted[bisect_left(wanted, found.awaited) :]


def _batches(source: Source, offset: int, bytes_max: int) -> tuple[bytes, AbortedSpans | None, int]:
    """Return batches from an offset on, any aborted transactions, and the offset they cover."""
    if isinstance(source, RemoteCopy):
        piece = source.read(offset, bytes_max=bytes_max)
        return piece.data, _spans(piece.aborted), piece.end_offset
    part = source.read(offset, bytes_max=bytes_max, is_committed_only=True)
    if part is None:
        return b"", None, source.last_stable_offset
    aborted = _spans(source.aborted_in(part))
    return part.read_checked(), aborted, source.last_stable_offset


def _spans(aborted: Sequence[AbortedTransaction]) -> AbortedSpans | None:
    return AbortedSpans(aborted) if aborted else None


def _take(batch: _Decoded, wanted: Sequence[int], at: int, found: Found) -> int:
    end = bisect_right(wanted, batch.last_offset, at)
    here = wanted[at:end]
    columns = batch.columns
    places = columns.places(here)
    if places:
        found.parts.append(Part(columns, places))
    if len(places) < len(here):
        known = {columns.offsets[place] for place in places}
        found.gone += [offset for offset in here if offset not in known]
    return end


def expiry_of(columns: Columns, place: int, ttl_ms: int | None) -> int | None:
    """Return when a message expires: by its own header, or by the `ttl_ms` of its topic."""
    headers, timestamp_ms = columns.headers(place), columns.timestamps[place]
    for name, _ in headers:
        if name.startswith(DEAD_PREFIX):
            return None  # A dead letter does not expire; it waits for an operator.
        if name == TTL_HEADER:
            try:
                ttl_ms = parse_attributes(headers).ttl_ms
            except InvalidAttribute:
                pass  # It was stored while the topic did not check such headers.
    return None if ttl_ms is None or timestamp_ms == NO_TIMESTAMP else timestamp_ms + ttl_ms


# The result of a receive call


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

    head: Text
    tails: list[Text] | None  # None for the standard ones, which only contain the position
    consumer: Text
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

    topic: Text
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
    def leases(self) -> Collection[Lease]:
        return {run.lease: None for run in self.runs}

    @property
    def size(self) -> int:
        """The bytes of the messages."""
        return sum(columns.bytes_at(places) for columns, places, _, _ in self.runs)

    @property
    def receipts(self) -> list[str]:
        return [
            lease.head + tail
            for _, places, lease, first in self.runs
            for tail in lease.tails[first : first + len(places)]
        ]

    def renamed(self, rename: Callable[[NameKind, str], str]) -> Received:
        """Return the same messages with another name of their topic."""
        other = Received(rename(NameKind.TOPIC, self.topic))
        other.runs, other.count = self.runs, self.count
        return other

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
