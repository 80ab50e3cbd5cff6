"""Looking into topics and queues: how messages are spread over time, who reads them, who has them.

Settling by hand is for administrators of a group: it takes messages from consumers that hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from goqueue.broker.gate.areas.overviews.figures import (
    QUEUE_STATE,
    GroupFigures,
    GroupKind,
    serving_nodes,
)
from goqueue.broker.gate.forwarding import owner_of_group
from goqueue.broker.gate.operation import (
    Area,
    Arguments,
    also,
    group,
    operation,
    topic,
)
from goqueue.delivery import LANE_NAMES, Lease, MessageState, peek
from goqueue.loop.turns import turn
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import GoQueueError, InvalidRequest, StaleReceipt
from goqueue.model.session import Session
from goqueue.model.tenants import GroupName, Text, TopicName

if TYPE_CHECKING:
    from goqueue.broker.queues.host import HostedQueue
    from goqueue.groups.group import Group

__all__ = [
    "BUCKETS_MAX",
    "PLACES_MAX",
    "Deliveries",
    "Delivery",
    "HandAction",
    "Histogram",
    "InFlight",
    "InFlightPage",
    "InspectionArea",
    "Place",
    "TopicReader",
    "TopicReaders",
]

BUCKETS_MAX = 500
LOOKED_UP_PER_SLICE = 20  # times in a log: about a millisecond
LEASED_PER_SLICE = 2_000
DELIVERIES_MAX = 1_000  # groups in one answer
PLACES_MAX = 1_000
_GROUPS_PER_SLICE = 500

HandAction = Literal["release", "extend", "ack", "reject"]


class Place(NamedTuple):
    """A message of a topic."""

    partition: int
    offset: int


class Histogram(NamedTuple):
    """How many messages each interval has."""

    nodes: list[int]  # that have answered
    counts: list[int]
    partitions: int  # that are counted


class InFlight(NamedTuple):
    """A message that a consumer has."""

    partition: int
    offset: int
    consumer: Text
    attempt: int
    leased_ms: int
    until_ms: int
    lane: Text


class InFlightPage(NamedTuple):
    """Messages in flight, by partition and offset, and how many each consumer has."""

    messages: list[InFlight]
    total: int
    is_last: bool
    consumers: dict[Text, int]


class Delivery(NamedTuple):
    """How a message stands in one group."""

    group: GroupName
    kind: GroupKind
    state: Text
    attempts: int = 0
    consumer: Text | None = None
    until_ms: int | None = None
    due_ms: int | None = None


class Deliveries(NamedTuple):
    """How a message stands in the groups of some nodes."""

    nodes: list[int]
    groups: list[Delivery]


class TopicReader(NamedTuple):
    """A group that reads a topic, and how far it is behind there."""

    figures: GroupFigures
    kind: GroupKind
    state: Text


class TopicReaders(NamedTuple):
    """The groups of some nodes that read a topic."""

    nodes: list[int]
    groups: list[TopicReader]


def _add_up(_: Arguments, answers: Sequence[Histogram]) -> Histogram:
    return Histogram(
        [node for one in answers for node in one.nodes],
        [sum(counts) for counts in zip(*(one.counts for one in answers), strict=True)],
        sum(one.partitions for one in answers),
    )


def _join(_: Arguments, answers: Sequence[Deliveries]) -> Deliveries:
    """Every group is coordinated or owned by one node."""
    groups = sorted(one for answer in answers for one in answer.groups)
    return Deliveries([node for one in answers for node in one.nodes], groups[:DELIVERIES_MAX])


def _join_readers(_: Arguments, answers: Sequence[TopicReaders]) -> TopicReaders:
    groups = [one for answer in answers for one in answer.groups]
    groups.sort(key=lambda one: one.figures.name)
    return TopicReaders([node for one in answers for node in one.nodes], groups[:DELIVERIES_MAX])


class InspectionArea(Area):
    """Histograms, messages in flight, and how single messages stand."""

    @operation(Action.DESCRIBE, topic(), merge=_add_up, is_reading=True, is_partial=True)
    async def histogram(
        self,
        session: Session,
        *,
        topic: TopicName,
        partition: int | None,
        times_ms: Sequence[int],
    ) -> Histogram:
        """Count the messages between times, to a batch, in partitions that can be reached."""
        found = self._broker.topics.get(topic)
        if not 2 <= len(times_ms) <= BUCKETS_MAX + 1:
            raise InvalidRequest(f"A histogram has 1 to {BUCKETS_MAX} intervals.")
        chosen = found.partitions if partition is None else [found.partition(partition)]
        counts, counted, looked_up = [0] * (len(times_ms) - 1), 0, 0
        for one in list(chosen):
            number = one.name.partition
            if one.is_following or not self._broker.leaders.is_here(found, number):
                continue
            counted += 1
            if one.start_offset >= one.high_watermark:
                continue
            before: int | None = None
            for place, time_ms in enumerate(times_ms):
                looked_up += 1
                if looked_up % LOOKED_UP_PER_SLICE == 0:
                    await turn(self._broker.clock)
                offset = max(one.offset_at_time(time_ms), before or 0)
                if before is not None:
                    counts[place - 1] += offset - before
                before = offset
        return Histogram([self._broker.node_id], counts, counted)

    # Messages in flight

    @operation(Action.DESCRIBE, group(), topic(), owner=owner_of_group, is_reading=True)
    async def in_flight(
        self,
        session: Session,
        *,
        group: GroupName,
        topic: TopicName,
        partition: int | None,
        consumer: Text | None,
        after: Place | None,
        limit: int,
    ) -> InFlightPage:
        """Return the messages that consumers of a queue group have."""
        hosted = self._broker.queues.groups.queue_of(group, topic)
        now_ms, wall_ms = self._broker.clock.monotonic_ms(), self._broker.clock.wall_ms()
        consumers: dict[str, int] = {}
        places: list[tuple[Place, Lease, int]] = []
        for number, (lease, index) in enumerate(_leased(hosted)):
            if number % LEASED_PER_SLICE == LEASED_PER_SLICE - 1:
                await turn(self._broker.clock)
            consumers[lease.consumer] = consumers.get(lease.consumer, 0) + 1
            if partition in (None, lease.partition) and consumer in (None, lease.consumer):
                places.append((Place(lease.partition, lease.offsets[index]), lease, index))
        places.sort(key=lambda one: one[0])
        page = [one for one in places if after is None or one[0] > after]
        shown = [
            InFlight(
                *place,
                lease.consumer,
                lease.attempts[index],
                wall_ms - (now_ms - lease.granted_ms),
                wall_ms + (lease.until_of(index) - now_ms),
                LANE_NAMES[lease.lanes[index]],
            )
            for place, lease, index in page[:limit]
        ]
        largest = sorted(consumers.items(), key=lambda one: (-one[1], one[0]))[:PLACES_MAX]
        return InFlightPage(shown, len(places), len(page) <= limit, dict(largest))

    @operation(
        Action.ALTER_CONFIGS,
        group(),
        also(Action.READ, topic()),
        owner=owner_of_group,
        is_change=True,
    )
    async def settle(
        self,
        session: Session,
        *,
        group: GroupName,
        topic: TopicName,
        action: HandAction,
        places: Sequence[Place],
        delay_ms: int | None = None,
        visibility_ms: int | None = None,
        reason: Text = "",
    ) -> list[GoQueueError | None]:
        """Settle messages that consumers have, or extend their leases, on their behalf."""
        queues = self._broker.queues
        hosted = queues.groups.queue_of(group, topic)
        wanted = dict.fromkeys(places)
        receipts: dict[Place, str] = {}
        for lease, index in _leased(hosted):
            place = Place(lease.partition, lease.offsets[index])
            if place in wanted:
                receipts[place] = lease.head + lease.tails[index]
        outcomes: dict[Place, GoQueueError | None] = {one: StaleReceipt() for one in wanted}
        if receipts:
            given = list(receipts.values())
            if action == "ack":
                settled = queues.ack(group, given)
            elif action == "release":
                settled = queues.nack(group, given, delay_ms=delay_ms or 0)
            elif action == "reject":
                settled = queues.reject(group, given, reason=reason or "rejected")
            else:
                settled = queues.extend(group, given, visibility_ms=visibility_ms)
            outcomes.update(zip(receipts, await settled, strict=True))
        return [outcomes[one] for one in places]

    # Single messages

    @operation(Action.READ, topic(), is_reading=True)
    async def deliveries(
        self, session: Session, *, topic: TopicName, partition: int, offset: int
    ) -> tuple[list[Delivery], list[int]]:
        """Return how a message stands in every group that reads it, and the missing nodes."""
        self._broker.topics.get(topic).partition(partition)
        serving = serving_nodes(self._broker)
        found = await self.deliveries_here(session, topic=topic, partition=partition, offset=offset)
        return found.groups, sorted(serving.difference(found.nodes))

    @operation(Action.READ, topic(), merge=_join, is_reading=True, is_partial=True)
    async def deliveries_here(
        self, session: Session, *, topic: TopicName, partition: int, offset: int
    ) -> Deliveries:
        """Return how a message stands in the groups of a node: a part of `deliveries`."""
        found: list[Delivery] = []
        for number, one in enumerate(list(self._streams())):
            if number % _GROUPS_PER_SLICE == _GROUPS_PER_SLICE - 1:
                await turn(self._broker.clock)
            committed = one.offsets.of_topic(topic).get(partition)
            if committed is not None and self._sees_group(session, one.group_id):
                state = "consumed" if committed.offset > offset else "pending"
                found.append(Delivery(one.group_id, "stream", state))
        for hosted in self._queues_of(session, topic):
            if partition < len(hosted.queue.partitions):
                [state_of] = peek(hosted.queue, partition, [offset])
                found.append(self._standing(hosted.group, state_of))
            await turn(self._broker.clock)
        return Deliveries([self._broker.node_id], found[:DELIVERIES_MAX])

    def _standing(self, name: str, state: MessageState) -> Delivery:
        clock = self._broker.clock
        shift_ms = clock.wall_ms() - clock.monotonic_ms()
        return Delivery(
            name,
            "queue",
            state.state,
            state.attempts,
            state.consumer,
            None if state.until_ms is None else state.until_ms + shift_ms,
            None if state.due_ms is None else state.due_ms + shift_ms,
        )

    # Groups of a topic

    @operation(Action.DESCRIBE, topic(), is_reading=True)
    async def readers(
        self, session: Session, *, topic: TopicName
    ) -> tuple[list[TopicReader], list[int]]:
        """Return the groups that read a topic, with their lag there, and the missing nodes."""
        self._broker.topics.get(topic)
        serving = serving_nodes(self._broker)
        found = await self.readers_here(session, topic=topic)
        return found.groups, sorted(serving.difference(found.nodes))

    @operation(Action.DESCRIBE, topic(), merge=_join_readers, is_reading=True, is_partial=True)
    async def readers_here(self, session: Session, *, topic: TopicName) -> TopicReaders:
        """Return the groups of a node that read a topic: a part of `readers`."""
        streams: dict[str, Group] = {}
        for number, one in enumerate(list(self._streams())):
            if number % _GROUPS_PER_SLICE == _GROUPS_PER_SLICE - 1:
                await turn(self._broker.clock)
            if one.offsets.of_topic(topic) and self._sees_group(session, one.group_id):
                streams[one.group_id] = one
                if len(streams) >= DELIVERIES_MAX:
                    break
        queues = list(self._queues_of(session, topic))[:DELIVERIES_MAX]
        figures = await self._broker.measuring.history.figures.of(
            [*streams, *(one.group for one in queues)], topic=topic
        )
        found = []
        for name, one_of in figures.items():
            if name in streams:
                found.append(TopicReader(one_of, "stream", str(streams[name].membership.state)))
            else:
                found.append(TopicReader(one_of, "queue", QUEUE_STATE))
        return TopicReaders([self._broker.node_id], found)

    def _streams(self) -> Iterator[Group]:
        return self._broker.measuring.history.figures.stream_groups()

    def _queues_of(self, session: Session, topic: str) -> Iterable[HostedQueue]:
        for one in self._broker.queues.groups.hosted_here():
            if one.topic.name == topic and self._sees_group(session, one.group):
                yield one

    def _sees_group(self, session: Session, name: str) -> bool:
        return self._may(session, Action.DESCRIBE, Resource(ResourceKind.GROUP, name))


def _leased(hosted: HostedQueue) -> Iterator[tuple[Lease, int]]:
    """Yield the messages in flight, each as its lease and its index there."""
    for lease in hosted.queue.leases:
        for index in lease.outstanding():
            yield lease, index
