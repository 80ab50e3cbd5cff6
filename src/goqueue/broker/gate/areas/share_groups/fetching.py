"""A fetch of a member: leases from the owner of its group, records from the logs of this node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from goqueue.broker.gate.views import FetchedBatches
from goqueue.broker.queues.queues import WAIT_MS_MAX
from goqueue.broker.share_groups.serving import ReadLease, ShareServing, not_sent
from goqueue.loop.promise import Cancellation
from goqueue.model.errors import GoQueueError
from goqueue.model.session import Session
from goqueue.model.share_groups import (
    AckBatch,
    AckType,
    AcquiredRange,
    PartitionOutcome,
    ShareAcknowledge,
    ShareAcks,
    ShareFetch,
    ShareLeased,
    ShareUnsent,
    ShareWanted,
)
from goqueue.model.tenants import TopicName

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.share_groups.area import ShareGroupsArea

_GAP = bytes((AckType.GAP,))


class SharePart(NamedTuple):
    """Records of one partition: whole batches, and the ranges in them that the member holds."""

    topic: TopicName
    partition: int
    batches: Sequence[FetchedBatches] = ()
    acquired: Sequence[AcquiredRange] = ()
    error: GoQueueError | None = None


class ShareFetched(NamedTuple):
    """The answer to a request for records; partitions without records or errors are left out."""

    lock_ms: int
    parts: Sequence[SharePart]
    acked: Sequence[PartitionOutcome]  # one for each partition acknowledged, in order


_Read = tuple[ShareLeased, ReadLease]


class ShareFetching:
    """One request for records, with acknowledgements of earlier ones."""

    def __init__(
        self,
        owners: ShareGroupsArea,
        serving: ShareServing,
        session: Session,
        call: ShareFetch,
        *,
        now_ms: Callable[[], int],
        check_again: Callable[[str], None],
    ) -> None:
        """`owners` sends operations to the owner of the group.

        `check_again` raises if the right to read a topic has ended since it was checked first.
        """
        self._now_ms = now_ms
        self._check_again = check_again
        self._owners = owners
        self._serving = serving
        self._session = session
        self._call = call
        self._wanted: list[ShareWanted] = []
        self._aligned_ends: list[int] = []
        self._parts: list[SharePart] = []

    def want(self, wanted: ShareWanted) -> None:
        """Read a partition; raise unless this node leads it."""
        topic, partition = self._serving.led(wanted.topic, wanted.partition)
        call, aligned_end = self._call, 0
        if not call.is_record_limited:
            aligned_end = self._serving.aligned_end(
                call.group_id,
                topic,
                partition,
                records=call.records_max,
                bytes_max=call.bytes_max,
            )
        self._wanted.append(wanted)
        self._aligned_ends.append(aligned_end)

    def refuse(self, wanted: ShareWanted, error: GoQueueError) -> None:
        """Report why a partition is not read. The others are answered without a wait."""
        self._parts.append(SharePart(wanted.topic, wanted.partition, error=error))

    async def fetch(self, cancellation: Cancellation) -> ShareFetched:
        call = self._call
        wait_ms = 0 if self._parts else min(call.wait_ms, WAIT_MS_MAX)
        asked_ms = self._now_ms()
        exchanged = await self._owners.exchange(
            self._session,
            call=msgspec.structs.replace(call, wanted=tuple(self._wanted), wait_ms=wait_ms),
            aligned_ends=tuple(self._aligned_ends),
            wait_ms=wait_ms,
            cancellation=cancellation,
        )
        for one in exchanged.failed:
            self._parts.append(SharePart(one.topic, one.partition, error=one.error))
        # No two clocks are compared. A lease begins no earlier than the request was sent plus the
        # time that it waited at the owner; an answer that comes too late is worth nothing.
        lock_end_ms = asked_ms + exchanged.waited_ms + exchanged.lock_ms
        is_in_time = self._now_ms() < lock_end_ms
        reads = self._read(exchanged.leased if is_in_time else ())
        self._parts += [
            SharePart(leased.topic, leased.partition, read.batches, read.acquired, read.error)
            for leased, read in reads
        ]
        await self._give_back(reads)
        return ShareFetched(exchanged.lock_ms, self._parts, exchanged.acked)

    def _read(self, leased: Iterable[ShareLeased]) -> list[_Read]:
        call, reads = self._call, []
        room, is_first = call.bytes_max, True
        for one in leased:
            try:
                self._check_again(one.topic)
            except GoQueueError as error:
                reads.append((one, not_sent(one, error)))
                continue
            read = self._serving.read(call.group_id, one, bytes_max=room, is_first=is_first)
            room, is_first = room - read.size, is_first and not read.batches
            reads.append((one, read))
        return reads

    async def _give_back(self, reads: Sequence[_Read]) -> None:
        """Give back what was leased and is not sent, and finish what does not exist any more."""
        group, member = self._call.group_id, self._call.member_id
        unsent = tuple(
            ShareUnsent(one.topic, one.partition, tuple(read.unsent))
            for one, read in reads
            if read.unsent
        )
        if unsent:
            await self._owners.give_back(
                self._session, group=group, member_id=member, unsent=unsent
            )
        gone = tuple(
            ShareAcks(
                one.topic,
                one.partition,
                tuple(AckBatch(first, last, _GAP) for first, last in read.gone),
            )
            for one, read in reads
            if read.gone
        )
        if gone:
            await self._owners.acknowledge(
                self._session, call=ShareAcknowledge(group, member, gone)
            )
