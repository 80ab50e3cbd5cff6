"""Leases and acknowledgements of members, on the node that owns their group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from goqueue.broker.queues.acquiring import Acquired, Acquirer
from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.queues.host import HostedGroup, HostedQueue
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.queues.positions import QueuePositions
from goqueue.broker.topics.topics import Topics
from goqueue.delivery import Lease, Settled, acquired_ranges
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    InternalTopic,
    InvalidRecordState,
    UnknownPartition,
)
from goqueue.model.names import TopicPartition
from goqueue.model.share_groups import (
    PartitionOutcome,
    ShareAcks,
    ShareExchange,
    ShareFetch,
    ShareLeased,
    ShareUnsent,
    ShareWanted,
)


@dataclass(slots=True)
class _Wanted:
    """The partitions of one topic that a member reads, with the offsets to lease up to."""

    hosted: HostedQueue
    aligned_ends: dict[int, int] = field(default_factory=dict)


class ShareLeases:
    """Leases records to members, and settles them."""

    def __init__(
        self, topics: Topics, hosts: QueueHosts, groups: QueueGroups, positions: QueuePositions
    ) -> None:
        self._topics = topics
        self._hosts = hosts
        self._groups = groups
        self._positions = positions

    def now_ms(self) -> int:
        """Return the time by the clock that leases are measured with."""
        return self._hosts.clock.now_ms()

    async def exchange(
        self, call: ShareFetch, aligned_ends: Sequence[int], cancellation: Cancellation
    ) -> ShareExchange:
        """Apply acknowledgements, then lease records, now or when there are some."""
        arrived_ms = self.now_ms()
        group = self._owned(call.group_id)
        self._hosts.sources.lanes.catch_up()
        acking = self._acknowledge(group, call.member_id, call.acks)
        if call.is_new_session:
            # A copy of this call that comes later must not return what the first one has leased.
            is_older = partial(_is_of_another_session, call.session_id)
            self._return(group, call.member_id, call.wanted, is_older, is_counted=True)
        by_topic, errors = await self._begun(group, call.wanted, aligned_ends)
        # The acknowledgements are written together with the leases.
        leasing = _Leasing(call, group, cancellation)
        leases = await leasing.leases(list(by_topic.values())) if by_topic else []
        return ShareExchange(
            group.settings.visibility_ms,
            min((lease.granted_ms for _, lease in leases), default=arrived_ms) - arrived_ms,
            tuple(_leased(hosted, lease, call.batch_records) for hosted, lease in leases),
            tuple(await acking),
            errors,
        )

    async def acknowledge(
        self, group_name: str, member: str, acks: Sequence[ShareAcks]
    ) -> list[PartitionOutcome]:
        """Apply acknowledgements; return the outcome of each partition when it is durable."""
        return await self._acknowledge(self._owned(group_name), member, acks)

    async def release(
        self,
        group_name: str,
        member: str,
        partitions: Sequence[ShareWanted],
        *,
        session_id: int,
        is_counted: bool,
    ) -> None:
        """Return what a session holds in partitions; counted as an attempt, or as not delivered.

        The member may have another session since, on this leader or on the next one.
        """
        group = self._owned(group_name)
        is_over = partial(_is_of_session, session_id)
        for hosted in self._return(group, member, partitions, is_over, is_counted=is_counted):
            await hosted.saved()

    async def give_back(self, group_name: str, member: str, unsent: Sequence[ShareUnsent]) -> None:
        """Return records that were leased to a member and not sent to it, as never delivered."""
        group = self._owned(group_name)
        for one in unsent:
            hosted = self._started(group, one.topic, one.partition)
            if hosted is not None:
                hosted.void_held(member, one.partition, one.ranges)

    # Settling

    def _owned(self, name: str) -> HostedGroup:
        """Return a group; raise unless this node owns it and can write what happens to it."""
        if not self._groups.is_known(name) and not self._hosts.leaders.is_alone:
            # The node that sent the call knows the group, so this one is catching up.
            raise CoordinatorNotAvailable(f"Group {name!r} is not known to its owner yet; retry.")
        group = self._groups.owned(name)
        if group.shard is not None:
            self._hosts.check_open(group)
            if group.queues:
                group.shard.check_writable()
        return group

    def _acknowledge(
        self, group: HostedGroup, member: str, acks: Sequence[ShareAcks]
    ) -> Promise[list[PartitionOutcome]]:
        """Settle now; the promise resolves when that is durable."""
        errors: list[GoQueueError | None] = [None] * len(acks)
        by_queue: dict[HostedQueue, list[int]] = {}
        for place, one in enumerate(acks):
            hosted = self._started(group, one.topic, one.partition)
            if hosted is not None:
                by_queue.setdefault(hosted, []).append(place)
            else:
                errors[place] = InvalidRecordState(one.batches[0].first if one.batches else 0)
        gathering = _Gathering(acks, errors, len(by_queue))
        for hosted, places in by_queue.items():
            settled = _settle(hosted, member, [acks[place] for place in places])
            hosted.answer(settled).then(partial(gathering.settled, places))
        return gathering.promise

    def _return(
        self,
        group: HostedGroup,
        member: str,
        partitions: Sequence[ShareWanted],
        is_over: Callable[[Lease], bool],
        *,
        is_counted: bool,
    ) -> list[HostedQueue]:
        """Return leases of a member that are over; return the queues that have changed."""
        changed: dict[HostedQueue, None] = {}
        for one in partitions:
            hosted = self._started(group, one.topic, one.partition)
            if hosted is not None and hosted.return_held(
                member, one.partition, is_over, is_counted=is_counted
            ):
                changed[hosted] = None
        return list(changed)

    def _started(self, group: HostedGroup, topic_name: str, number: int) -> HostedQueue | None:
        """Return the queue of a partition, if the group has ever read it."""
        hosted = group.queues.get(topic_name)
        if hosted is None or not 0 <= number < len(hosted.sources):
            return None
        return hosted

    # Leasing

    async def _begun(
        self, group: HostedGroup, wanted: Sequence[ShareWanted], aligned_ends: Sequence[int]
    ) -> tuple[dict[str, _Wanted], tuple[PartitionOutcome, ...]]:
        """Return the queues of the wanted partitions, started, and those that cannot be."""
        by_topic: dict[str, _Wanted] = {}
        errors: list[PartitionOutcome] = []
        for one, aligned_end in zip(wanted, aligned_ends, strict=True):
            try:
                of_topic = by_topic.get(one.topic)
                if of_topic is None:
                    of_topic = by_topic[one.topic] = _Wanted(await self._queue(group, one.topic))
                if not 0 <= one.partition < len(of_topic.hosted.sources):
                    raise UnknownPartition(TopicPartition(one.topic, one.partition))
                of_topic.aligned_ends[one.partition] = aligned_end
            except GoQueueError as error:
                errors.append(PartitionOutcome(one.topic, one.partition, error))
        return {name: one for name, one in by_topic.items() if one.aligned_ends}, tuple(errors)

    async def _queue(self, group: HostedGroup, topic_name: str) -> HostedQueue:
        topic = self._topics.get(topic_name)
        if topic.is_internal:
            raise InternalTopic(topic_name)
        hosted = group.queues.get(topic.name)
        return await self._positions.begun(group, topic) if hosted is None else hosted


class _Leasing:
    """One request for records of several topics, each of which has a queue of its own."""

    def __init__(self, call: ShareFetch, group: HostedGroup, cancellation: Cancellation) -> None:
        self._call = call
        self._group = group
        self._acquirers: list[Acquirer] = []
        self._cancellation = cancellation
        cancellation.on_cancel(self._cancel)

    async def leases(self, wanted: Sequence[_Wanted]) -> list[tuple[HostedQueue, Lease]]:
        """Lease what there is, or wait for the first records of any topic."""
        if self._cancellation.is_cancelled:
            return []
        if len(wanted) == 1:
            return await self._gather(wanted, [self._ask(wanted[0], self._call.wait_ms)])
        room, asked = self._call.records_max, []
        for one in wanted:
            asked.append(self._ask(one, 0, room))
            room -= asked[-1].leased_count
            if room <= 0:
                break
        if room < self._call.records_max or not self._call.wait_ms:
            return await self._gather(wanted, asked)
        for acquirer in asked:
            acquirer.cancel()  # It may wait for records that another node has to send.
        waiting = [self._ask(one, self._call.wait_ms) for one in wanted]
        return await self._gather(wanted, waiting)

    def _ask(self, wanted: _Wanted, wait_ms: int, room: int | None = None) -> Acquirer:
        call = self._call
        acquirer = Acquirer(
            call.member_id,
            call.records_max if room is None else room,
            self._group.settings.visibility_ms,
            aligned_ends=wanted.aligned_ends,
            session_id=call.session_id,
            on_lease=self._stop_others,
        )
        self._acquirers.append(acquirer)
        wanted.hosted.receive(acquirer, wait_ms)
        return acquirer

    def _stop_others(self, acquirer: Acquirer) -> None:
        """Stop waiting for other topics as soon as there are records of one."""
        for other in self._acquirers:
            if other is not acquirer and not other.leased_count:
                other.cancel()

    def _cancel(self) -> None:
        for acquirer in self._acquirers:
            acquirer.cancel()

    async def _gather(
        self, wanted: Sequence[_Wanted], asked: Sequence[Acquirer]
    ) -> list[tuple[HostedQueue, Lease]]:
        found: list[tuple[HostedQueue, Lease]] = []
        failure: GoQueueError | None = None
        for one, acquirer in zip(wanted, asked, strict=False):
            try:
                acquired: Acquired = await acquirer.promise
            except GoQueueError as error:
                failure = error
                continue
            found += [(one.hosted, lease) for lease in acquired.leases]
        if failure is not None and not found:
            raise failure
        return found


class _Gathering:
    """Gathers the outcomes of acknowledgements in several queues."""

    def __init__(
        self, acks: Sequence[ShareAcks], errors: list[GoQueueError | None], queue_count: int
    ) -> None:
        self.promise: Promise[list[PartitionOutcome]] = Promise()
        self._acks = acks
        self._errors = errors
        self._left = queue_count
        self._finish()

    def settled(
        self,
        places: Sequence[int],
        outcomes: list[GoQueueError | None] | None,
        failure: Exception | None,
    ) -> None:
        self._left -= 1
        if outcomes is None:
            # What happened to these is not known; only the client can tell what to do.
            assert isinstance(failure, GoQueueError)
            outcomes = [failure] * len(places)
        for place, error in zip(places, outcomes, strict=True):
            self._errors[place] = error
        self._finish()

    def _finish(self) -> None:
        if not self._left:
            pairs = zip(self._acks, self._errors, strict=True)
            self.promise.resolve(
                [PartitionOutcome(one.topic, one.partition, e) for one, e in pairs]
            )


def _is_of_session(session_id: int, lease: Lease) -> bool:
    """Whether a lease may be one of a session; that of some is not known."""
    return not session_id or lease.session_id in (0, session_id)


def _is_of_another_session(session_id: int, lease: Lease) -> bool:
    return not session_id or lease.session_id != session_id


def _settle(hosted: HostedQueue, member: str, acks: Sequence[ShareAcks]) -> list[Settled]:
    now_ms = hosted.see_time_pass()
    settle = hosted.queue.by_offset.settle
    return [settle(now_ms, member, one.partition, one.batches) for one in acks]


def _leased(hosted: HostedQueue, lease: Lease, batch_records: int) -> ShareLeased:
    partition = hosted.queue.partitions[lease.partition]
    return ShareLeased(
        hosted.topic.name,
        lease.partition,
        tuple(acquired_ranges(lease, batch_records=batch_records)),
        partition.next_offset,
    )
