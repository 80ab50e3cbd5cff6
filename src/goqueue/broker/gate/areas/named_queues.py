"""Operations on named queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from goqueue.broker.gate.areas.queues import Lease, Outcomes, Received
from goqueue.broker.gate.operation import Area, Arguments, named_by_owner, operation, query
from goqueue.broker.named_queues.counting import Counts
from goqueue.broker.named_queues.moves import TARGET_GONE, Move
from goqueue.broker.named_queues.named_queues import (
    Changes,
    NamedQueue,
    NamedQueueSpec,
    Posted,
    Posting,
    QueueValues,
)
from goqueue.broker.named_queues.receiving import ReceiveAttempt
from goqueue.broker.named_queues.sending import PostResult, Scope
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import GoQueueError, UnknownQueue
from goqueue.model.session import Session, pack_session
from goqueue.model.tenants import GroupName, QueueName, Text

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = [
    "TARGET_GONE",
    "Counts",
    "Lease",
    "Move",
    "NamedQueue",
    "NamedQueueSpec",
    "NamedQueuesArea",
    "Outcomes",
    "Posted",
    "Posting",
    "QueueMessages",
    "ReceiveAttempt",
    "Received",
    "Scope",
    "Sent",
]


class QueueMessages(NamedTuple):
    """The messages received from a queue, the id of its topic, and the note of the attempt."""

    topic_id: bytes
    received: Received
    note: bytes


class Sent:
    """The results of sent messages, in order."""

    PACKED: ClassVar[Any] = list[tuple[Posted | None, GoQueueError | None]]

    __slots__ = ("results",)

    def __init__(self, results: list[PostResult]) -> None:
        self.results = results

    def pack(self) -> list[tuple[Posted | None, GoQueueError | None]]:
        return [
            (None, one) if isinstance(one, GoQueueError) else (one, None) for one in self.results
        ]

    @classmethod
    def unpack(cls, packed: list[tuple[Posted | None, GoQueueError | None]]) -> Sent:
        results: list[PostResult] = []
        for posted, error in packed:
            one = posted or error
            assert one is not None
            results.append(one)
        return cls(results)


# Owners


def _owner(broker: Broker, arguments: Arguments) -> int:
    """Return the node that has the leases of a queue."""
    name = arguments["queue"].name
    queue = broker.named_queues.find(name)
    if queue is None:
        raise UnknownQueue(name)  # The caller had found it, so it has been deleted since.
    return broker.named_queues.owner_of(queue)


def _owner_if_ordered(broker: Broker, arguments: Arguments) -> int | None:
    """Any node can store messages; only the owner recognises duplicates."""
    return _owner(broker, arguments) if arguments["queue"].is_ordered else None


def _maker(broker: Broker, arguments: Arguments) -> int:
    """Return the node that creates queues of a name, because it has the stream groups of it."""
    return broker.groups.coordinator_of(arguments["spec"].name)


def _maker_if_resting(broker: Broker, arguments: Arguments) -> int | None:
    """Any node can delete a queue; to block its name, the node that creates queues must do it."""
    if not arguments["rest_ms"]:
        return None
    return broker.groups.coordinator_of(arguments["queue"].name)


# Resources


def _topic(queue: NamedQueue) -> Resource:
    return Resource(ResourceKind.TOPIC, queue.topic)


def _queue_topic(arguments: Arguments) -> Iterable[Resource]:
    return (_topic(arguments["queue"]),)


def _queue_group(arguments: Arguments) -> Iterable[Resource]:
    return (Resource(ResourceKind.GROUP, arguments["queue"].group),)


class NamedQueuesArea(Area):
    """Named queues: create, find, change, send, receive, settle, count, purge, move.

    A front end finds a queue first, and passes it to the other operations.
    """

    # Finding

    @query(Action.DESCRIBE, named_by_owner)
    def find(self, session: Session, *, name: QueueName) -> NamedQueue | None:
        """Return a queue, by the metadata on this node."""
        return self._visible(session, self._broker.named_queues.find(name))

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def find_latest(self, session: Session, *, name: QueueName) -> NamedQueue | None:
        """Return a queue, including one that another node has just created."""
        return self._visible(session, await self._broker.named_queues.find_surely(name))

    @query(Action.DESCRIBE, named_by_owner)
    def names_by_group(self, session: Session) -> dict[GroupName, QueueName]:
        """Return the names of queues by their groups."""
        queues = self._broker.named_queues.all()
        return {one.group: one.name for one in queues if self._visible(session, one)}

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def list(self, session: Session) -> Sequence[NamedQueue]:
        """Return all queues by name, including those that other nodes have just created."""
        queues = await self._broker.named_queues.all_surely()
        return [one for one in queues if self._visible(session, one)]

    def _visible(self, session: Session, queue: NamedQueue | None) -> NamedQueue | None:
        if queue is None or not self._may(session, Action.DESCRIBE, _topic(queue)):
            return None
        return queue

    # Creating, changing, deleting

    @operation(Action.CREATE, named_by_owner, owner=_maker)
    def create(self, session: Session, *, spec: NamedQueueSpec) -> Promise[NamedQueue]:
        """Create a queue, or return an existing one whose compared attributes are the same."""
        if not self._authoriser.is_open(session):
            self._check_new(session, spec)
        if self._broker.quotas.is_active and self._broker.named_queues.find(spec.name) is None:
            self._broker.quotas.mutate(session, self._broker.settings.topics.partitions)
        return self._broker.named_queues.create(spec)

    def _check_new(self, session: Session, spec: NamedQueueSpec) -> None:
        """Raise unless the session may create a queue, and its topic or have an existing one."""
        queues, name = self._broker.named_queues, spec.topic or spec.name
        if queues.find(spec.name) is not None or self._broker.topics.find(name) is None:
            self._check_create(session, name)
        else:
            self._check(session, Action.ALTER, Resource(ResourceKind.TOPIC, name))
            if self._broker.queues.groups.is_known(spec.name):
                group = Resource(ResourceKind.GROUP, spec.name)
                self._check(session, Action.ALTER_CONFIGS, group)
        self._check_dead_letters(session, spec.name, spec.queue_settings)

    def _check_dead_letters(
        self, session: Session, group: str, settings: Mapping[str, Any] | None
    ) -> None:
        """Raise unless the session may write to the topic that is to get dead letters."""
        if self._authoriser.is_open(session) or not settings:
            return
        topic, groups = settings.get("dead_letter_topic"), self._broker.queues.groups
        known = groups.describe(group).settings if groups.is_known(group) else None
        if topic and (known is None or known.dead_letter_topic != topic):
            self._check(session, Action.WRITE, Resource(ResourceKind.TOPIC, topic))

    @operation(Action.ALTER, _queue_topic)
    def change(
        self,
        session: Session,
        *,
        queue: NamedQueue,
        attributes: Changes | None = None,
        tags: Changes | None = None,
        queue_settings: QueueValues | None = None,
        topic_settings: Mapping[Text, Text] | None = None,
    ) -> Promise[NamedQueue]:
        """Change some attributes, tags or settings; None removes one."""
        self._check_dead_letters(session, queue.group, queue_settings)
        return self._broker.named_queues.change(
            queue.name,
            attributes=attributes,
            tags=tags,
            queue_settings=queue_settings,
            topic_settings=topic_settings,
        )

    @operation(Action.DELETE, _queue_topic, _queue_group, owner=_maker_if_resting)
    def delete(self, session: Session, *, queue: NamedQueue, rest_ms: int = 0) -> Promise[None]:
        """Delete a queue; its name cannot be used again for `rest_ms`."""
        return self._broker.named_queues.delete(queue.name, rest_ms=rest_ms)

    # Messages

    @operation(Action.WRITE, _queue_topic, owner=_owner_if_ordered)
    async def send(
        self, session: Session, *, queue: NamedQueue, postings: Sequence[Posting]
    ) -> Sent:
        """Store messages, or schedule delayed ones; duplicates are stored once."""
        if self._broker.quotas.is_active:
            try:
                self._broker.quotas.check_produce(session, [one.record for one in postings])
            except GoQueueError as error:
                return Sent([error] * len(postings))
        if queue.is_ordered:
            queue = await self._latest(queue)
        return Sent(await self._broker.named_queues.send(queue, postings, session))

    @operation(Action.READ, _queue_group, _queue_topic, owner=_owner)
    async def receive(
        self,
        session: Session,
        *,
        queue: NamedQueue,
        consumer: Text,
        messages_max: int,
        wait_ms: int,
        visibility_ms: int,
        attempt: ReceiveAttempt | None = None,
        cancellation: Cancellation,
    ) -> QueueMessages:
        """Lease messages; a repeated attempt of the same name gets the same ones again."""
        quotas = self._broker.quotas
        if quotas.is_active:
            quotas.check_consume(session)
            messages_max = quotas.lease_room(queue.group, messages_max)
        queue = await self._latest(queue)
        topic_id = self._broker.topics.get(queue.topic).id
        received, note = await self._broker.queue_receiving.receive(
            queue,
            consumer=consumer,
            messages_max=messages_max,
            wait_ms=wait_ms,
            visibility_ms=visibility_ms,
            attempt=attempt,
            cancellation=cancellation,
        )
        if quotas.is_active:
            quotas.received(session, queue.group, received, None)
        return QueueMessages(topic_id, received, note)

    @operation(Action.READ, _queue_group, _queue_topic, owner=_owner)
    def delete_messages(
        self, session: Session, *, queue: NamedQueue, receipts: Sequence[Text]
    ) -> Promise[Outcomes]:
        """Acknowledge messages."""
        return self._broker.queues.ack(queue.group, receipts)

    @operation(Action.READ, _queue_group, _queue_topic, owner=_owner)
    def change_visibility(
        self,
        session: Session,
        *,
        queue: NamedQueue,
        receipts: Sequence[Text],
        visibility_ms: int,
        total_ms_max: int,
    ) -> Promise[Outcomes]:
        """Extend leases from now, up to a total; 0 makes the messages available at once."""
        if visibility_ms == 0:
            return self._broker.queues.nack(queue.group, receipts, delay_ms=0)
        return self._broker.queues.extend(
            queue.group, receipts, visibility_ms=visibility_ms, total_ms_max=total_ms_max
        )

    @operation(Action.DESCRIBE, _queue_group, _queue_topic, owner=_owner, is_reading=True)
    async def count(self, session: Session, *, queue: NamedQueue) -> Counts:
        """Count the messages that are ready, in flight and delayed."""
        return await self._broker.queue_counting.count(await self._latest(queue))

    @operation(Action.READ, _queue_group, _queue_topic, owner=_owner, is_change=True)
    async def purge(self, session: Session, *, queue: NamedQueue, pause_ms: int) -> None:
        """Finish everything in a queue; refused within `pause_ms` after the last purge."""
        await self._broker.queue_purging.purge(await self._latest(queue), pause_ms=pause_ms)

    # Moves

    @operation(Action.READ, _queue_group, _queue_topic, owner=_owner, is_change=True)
    async def move(
        self, session: Session, *, queue: NamedQueue, target: QueueName, rate_per_s: int | None
    ) -> Move:
        """Start to move all messages to a queue, or back to where they came from."""
        named = self._broker.named_queues.find(target)
        if named is not None:
            self._check(session, Action.WRITE, _topic(named))
        return await self._broker.named_queue_moves.start(
            await self._latest(queue),
            target=target,
            rate_per_s=rate_per_s,
            started_by=pack_session(session),
        )

    @operation(Action.DESCRIBE, _queue_group, _queue_topic, owner=_owner, is_reading=True)
    async def moves(self, session: Session, *, queue: NamedQueue) -> Sequence[Move]:
        """Return the moves out of a queue, newest first."""
        moves = self._broker.named_queue_moves.jobs(await self._latest(queue))
        return [one for one in moves if not one.target or self.find(session, name=one.target)]

    @operation(Action.READ, _queue_group, _queue_topic, owner=_owner, is_change=True)
    async def cancel_move(self, session: Session, *, queue: NamedQueue, move_id: Text) -> Move:
        """End a move after the current step."""
        return await self._broker.named_queue_moves.cancel(await self._latest(queue), move_id)

    async def _latest(self, queue: NamedQueue) -> NamedQueue:
        """Return the queue by the owner's metadata, which may be newer or older than others'."""
        queues = self._broker.named_queues
        found = queues.find(queue.name) or await queues.find_surely(queue.name)
        if found is None:
            raise UnknownQueue(queue.name)
        return found
