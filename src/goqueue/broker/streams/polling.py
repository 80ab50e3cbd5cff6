"""Members of stream groups that poll: the broker reads for them and tracks their positions.

Such a member has no position of its own. Each poll is a heartbeat, continues reading the partitions
assigned to the member, and may commit what the previous poll returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from goqueue.broker.reading.records import Page, Place, Reading
from goqueue.broker.reading.remote import Bounds
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.streams.member_positions import MemberPositions, Positions
from goqueue.broker.streams.progress import Look, Start
from goqueue.broker.streams.rebalance_watch import Watch
from goqueue.broker.topics.topics import Topics
from goqueue.groups import (
    CommitOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    OffsetToCommit,
    Partitions,
    nest,
)
from goqueue.groups import Partition as GroupPartition
from goqueue.groups.limits import HEARTBEAT_MS_MIN
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.batch import Record
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    StaleMemberEpoch,
    UnknownMember,
)
from goqueue.model.tenants import GroupName, Sentence, Text, TopicName
from goqueue.partition import Partition

MEMBERS_MAX = 10_000  # whose positions are held
PENDING_WAIT_MS = 100  # for a transaction to end, before the partitions it holds back are left out
PARTITIONS_PER_POLL_MAX = 1000  # the remaining partitions are read by the next poll

MayRead = Callable[[str], bool]  # raises if a member may see a topic, but not read it


class Read(Protocol):
    """Reads records of partitions, whichever node leads them."""

    def __call__(
        self, places: Sequence[Place], *, records_max: int, bytes_max: int, wait_ms: int
    ) -> Reading: ...


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a poll.

    `after` is the sequence number of the last response that the member received. `start` is where
    to begin in partitions without a committed offset.
    """

    group_id: GroupName
    member_id: Text
    member_epoch: int
    records_max: int
    bytes_max: int
    is_committing: bool = False  # commit what earlier polls returned; release revoked partitions
    start: Start = "earliest"
    after: int | None = None


class PolledRecord(NamedTuple):
    topic: TopicName
    partition: int
    record: Record


class PositionReset(NamedTuple):
    """Retention removed the next records to be read; reading continued at another offset."""

    topic: TopicName
    partition: int
    offset_before: int
    offset: int


class UnreadableRange(NamedTuple):
    """Offsets that can no longer be read, and the reason."""

    topic: TopicName
    partition: int
    offset: int
    next_offset: int
    detail: Sentence


class Polled(NamedTuple):
    """The response to a poll; it has the assignment only if that has changed."""

    number: int
    records: list[PolledRecord]
    member_epoch: int
    assignment: Partitions | None
    resets: list[PositionReset]
    damaged: list[UnreadableRange]


class StreamPolling:
    """Joins, heartbeats, polls and leaves of members that poll."""

    def __init__(
        self,
        clock: Clock,
        groups: Groups,
        topics: Topics,
        look: Look,
        read: Read,
        *,
        heartbeat_ms: int,
    ) -> None:
        """`heartbeat_ms` is the longest that a poll waits while no rebalance is in progress."""
        self._clock = clock
        self.positions = MemberPositions(MEMBERS_MAX)
        self._groups = groups
        self._topics = topics
        self._look = look
        self._read = read
        self._heartbeat_ms = heartbeat_ms

    def resign(self, partition: Partition) -> None:
        """Forget members of groups that another node now coordinates.

        Positions held here would be stale by the time this node coordinates those groups again.
        """
        groups, number = self._groups, partition.name.partition
        self.positions.forget_groups(lambda group: groups.partition_of(group) == number)

    async def join(self, call: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        await self._groups.ensure_topic()
        result = await self._groups.consumer_heartbeat(call)
        self.positions.forget(call.group_id, result.member_id)
        return self._remember(call.group_id, result)

    async def heartbeat(self, call: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """Send a heartbeat, and store the assignment that it returns."""
        try:
            result = await self._groups.consumer_heartbeat(call)
        except CoordinatorNotAvailable:
            raise UnknownMember(call.group_id, call.member_id) from None
        except (UnknownMember, FencedMemberEpoch):
            self.positions.forget(call.group_id, call.member_id)
            raise
        return self._remember(call.group_id, result)

    async def leave(self, call: ConsumerHeartbeat) -> None:
        try:
            await self._groups.consumer_heartbeat(call)
        except CoordinatorNotAvailable:
            raise UnknownMember(call.group_id, call.member_id) from None
        self.positions.forget(call.group_id, call.member_id)

    def _remember(self, group: str, result: ConsumerHeartbeatResult) -> ConsumerHeartbeatResult:
        if result.assignment is not None:
            self.positions.of(group, result.member_id).assign(result.assignment)
        return result

    # Polling

    async def poll(
        self,
        call: Poll,
        *,
        wait_ms: int,
        cancellation: Cancellation,
        may_read: MayRead | None = None,
    ) -> Polled:
        """Continue reading for a member, in the topics that it may read."""
        if call.after is not None:
            self._positions_of(call).check_answered(call.after)
        if call.is_committing:
            await self._commit_handed_out(call)
        watches = self._groups.rebalance_watch
        watch = watches.add(call.group_id)
        try:
            return await self._poll(call, wait_ms, cancellation, may_read, watch)
        finally:
            watches.remove(call.group_id, watch)

    async def _poll(
        self,
        call: Poll,
        wait_ms: int,
        cancellation: Cancellation,
        may_read: MayRead | None,
        watch: Watch,
    ) -> Polled:
        """Poll; a rebalance that begins meanwhile ends the wait and returns its assignment."""
        beat = await self._beat(call, call.member_epoch)
        positions = self._positions_of(call)
        if positions.assigned is None:
            positions.assign(self._assigned(call))
        turn = _turn(positions)
        if may_read is not None:
            readable = {topic for topic in nest(turn) if may_read(topic)}
            turn = [one for one in turn if one[0] in readable]
        resets: list[PositionReset] = []
        places = await self._places(call, positions, turn, resets, wait_ms=wait_ms)
        left_ms = 0 if watch.is_rung else min(wait_ms, self._wait_ms_max(beat))
        # Without partitions there is nothing that a read could wait for.
        reading = (
            self._read(
                places, records_max=call.records_max, bytes_max=call.bytes_max, wait_ms=left_ms
            )
            if turn
            else _Idling(self._clock, left_ms)
        )

        def give_up() -> None:
            reading.cancel()
            # Nobody awaits the result, so abandon this coroutine, which then removes its watch.
            reading.promise.abandon()

        cancellation.on_cancel(give_up)
        watch.ring = reading.finish
        page = await reading.promise
        if may_read is not None and not all(map(may_read, _topics_of(page))):
            page = Page()  # Access has ended during the wait; the next poll omits these topics.
        _hand_out(positions, page)
        assignment = beat.assignment
        if watch.is_rung and page.is_empty:
            beat = await self._beat(call, beat.member_epoch)
            assignment = assignment if beat.assignment is None else beat.assignment
        return _polled(positions.poll, page, beat.member_epoch, assignment, resets)

    def _positions_of(self, call: Poll) -> Positions:
        return self.positions.of(call.group_id, call.member_id)

    def _wait_ms_max(self, beat: ConsumerHeartbeatResult) -> int:
        """The longest wait after which the member is still alive and learns of a rebalance in time.

        A small group has frequent heartbeats, so that its members learn early of a rebalance. That
        alone is not worth a request each; but a member waiting for partitions that others must
        release should poll again soon.
        """
        is_rebalancing = beat.heartbeat_interval_ms < HEARTBEAT_MS_MIN
        return beat.heartbeat_interval_ms if is_rebalancing else self._heartbeat_ms

    async def _commit_handed_out(self, call: Poll) -> None:
        """Commit what the last poll returned: a member that polls again has processed it."""
        positions = self._positions_of(call)
        if not positions.handed_out:
            return
        offsets = [
            OffsetToCommit(topic=topic, partition=number, offset=offset)
            for (topic, number), offset in positions.handed_out.items()
        ]
        try:
            await self._groups.commit_offsets(
                CommitOffsets(
                    group_id=call.group_id,
                    member_id=call.member_id,
                    generation=call.member_epoch,
                    offsets=offsets,
                )
            )
        except StaleMemberEpoch:
            # The response that raised the epoch was lost. The heartbeat returns it again, and the
            # next poll commits.
            return
        for one in offsets:
            if positions.handed_out.get((one.topic, one.partition)) == one.offset:
                del positions.handed_out[one.topic, one.partition]

    async def _beat(self, call: Poll, member_epoch: int) -> ConsumerHeartbeatResult:
        """Send a heartbeat; with automatic commits it also confirms that revoked partitions are
        free.
        """
        return await self.heartbeat(
            ConsumerHeartbeat(
                group_id=call.group_id,
                member_id=call.member_id,
                member_epoch=member_epoch,
                owned=self._positions_of(call).assigned if call.is_committing else None,
            )
        )

    def _assigned(self, call: Poll) -> Partitions:
        """The assignment of a member that joined before this node started."""
        for member in self._groups.describe(call.group_id).members:
            if member.member_id == call.member_id:
                return member.assigned
        raise UnknownMember(call.group_id, call.member_id)

    async def _places(
        self,
        call: Poll,
        positions: Positions,
        assigned: Sequence[GroupPartition],
        resets: list[PositionReset],
        *,
        wait_ms: int,
    ) -> list[Place]:
        """Where the member continues: after what it received, else at its group's committed
        offset.

        A partition where that offset is pending in a transaction is left to a later poll.
        """
        wanted = [one for one in assigned if one not in positions.next]
        pending = await self._pending(call.group_id, wanted, wait_ms=wait_ms)
        assigned = [one for one in assigned if one not in pending]
        committed = self._groups.fetch_offsets(call.group_id, nest(wanted))
        bounds = await self._bounds(assigned)
        places = []
        for topic, number in assigned:
            one = bounds.get((topic, number))
            if one is None:
                continue  # The topic was deleted; the next heartbeat unassigns it.
            begin = one.start_offset if call.start == "earliest" else one.last_stable_offset
            offset = positions.next.get((topic, number))
            if offset is None:
                found = committed.get(topic, {}).get(number)
                offset = begin if found is None else found.offset
            if not one.start_offset <= offset <= one.high_watermark:
                resets.append(PositionReset(topic, number, offset, begin))
                offset = begin
            positions.next[topic, number] = offset
            places.append(Place(self._topics.get(topic).partition(number), offset))
        return places

    async def _pending(
        self, group: str, wanted: Sequence[GroupPartition], *, wait_ms: int
    ) -> Partitions:
        """The partitions with an offset pending in a transaction, which may end in a moment."""
        if not wanted:
            return frozenset()
        await self._groups.confirm(group)
        pending = self._groups.unstable_offsets(group, nest(wanted))
        if pending and wait_ms > 0:
            waited: Promise[None] = Promise()
            pause_ms = min(wait_ms, PENDING_WAIT_MS)
            self._clock.call_later(pause_ms, lambda: waited.resolve(None))
            await waited
            await self._groups.confirm(group)
            pending = self._groups.unstable_offsets(group, nest(wanted))
        return pending

    async def _bounds(self, assigned: Sequence[GroupPartition]) -> dict[GroupPartition, Bounds]:
        """The first and end offsets of the partitions that exist."""
        found: dict[GroupPartition, Bounds] = {}
        for name, numbers in nest(assigned).items():
            topic = self._topics.find(name)
            if topic is not None:
                there = [number for number in numbers if number < len(topic.partitions)]
                for bounds in await self._look(topic, there):
                    found[name, bounds.name.partition] = bounds
        return found


class _Idling:
    """The wait of a member that has no partitions: over when a reading of them would be."""

    def __init__(self, clock: Clock, wait_ms: int) -> None:
        self.promise: Promise[Page] = Promise()
        self._timer = clock.call_later(wait_ms, self.finish)

    def cancel(self) -> None:
        self._timer.cancel()

    def finish(self) -> None:
        self.cancel()
        if not self.promise.is_done:
            self.promise.resolve(Page())


def _turn(positions: Positions) -> list[GroupPartition]:
    """The partitions that a poll reads; if there are too many, polls rotate through them."""
    assigned = sorted(positions.assigned or ())
    if len(assigned) > PARTITIONS_PER_POLL_MAX:
        first = positions.turn % len(assigned)
        positions.turn = first + PARTITIONS_PER_POLL_MAX
        assigned = (assigned[first:] + assigned[:first])[:PARTITIONS_PER_POLL_MAX]
    return assigned


def _topics_of(page: Page) -> set[str]:
    partitions = (*(one for one, _ in page.records), *(one.partition for one in page.damaged))
    return {one.name.topic for one in partitions}


def _hand_out(positions: Positions, page: Page) -> None:
    positions.begin_poll()
    for place in page.places:
        positions.next[_key(place.partition)] = place.offset
    for partition, record in page.records:
        positions.hand_out(_key(partition), record.offset + 1)


def _polled(
    number: int,
    page: Page,
    member_epoch: int,
    assignment: Partitions | None,
    resets: list[PositionReset],
) -> Polled:
    return Polled(
        number,
        [PolledRecord(*_key(partition), record) for partition, record in page.records],
        member_epoch,
        assignment,
        resets,
        [
            UnreadableRange(*_key(one.partition), one.offset, one.next_offset, str(one.error))
            for one in page.damaged
        ],
    )


def _key(partition: Partition) -> GroupPartition:
    return partition.name.topic, partition.name.partition
