"""Named queues: names under which clients send to a topic and receive from it as a queue group.

Topics and queue groups are separate objects with their own names. A client of a pure queue protocol
creates both with one call here, and gives the pair attributes and tags, whose meaning is up to the
protocol. Receiving and settling uses the group (`Queues`); messages are sent to the topic, and to
an ordered queue at most once per deduplication id of the last minutes.

Every node has the metadata of every named queue. Those without deduplication accept messages on any
node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec

from goqueue.broker.named_queues.claims import producer_name
from goqueue.broker.named_queues.resting_names import RestingNames
from goqueue.broker.named_queues.sending import Posted, Posting, PostResult, QueueSender
from goqueue.broker.queues.queues import Queues
from goqueue.broker.topics.topics import Topics
from goqueue.cluster.facts import NamedQueueFact
from goqueue.cluster.topic_changes import IN_SYNC_SETTING
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised
from goqueue.model.errors import (
    InternalTopic,
    QueueExists,
    StalePartitionVersion,
    TopicExists,
    UnknownGroup,
    UnknownQueue,
    UnknownTopic,
)
from goqueue.model.names import DELIVERY_TOPIC
from goqueue.model.session import NOBODY, Session
from goqueue.model.tenants import NameKind, QueueName, Text, TopicName

# How often a change is repeated because another node has changed the queue in the meantime.
CHANGE_ATTEMPTS_MAX = 10
GROUP_SUFFIX = ".queue"

Changes = Mapping[Text, Text | None]  # None removes an entry
NamedQueue = NamedQueueFact
QueueValues = Annotated[Mapping[str, Any], NameKind.QUEUE_SETTINGS]


class NamedQueueSpec(NamedTuple):
    """A queue to create. Without a topic, one of the queue's name, created if it is missing."""

    name: QueueName
    topic: TopicName | None = None
    attributes: Mapping[Text, Text] = {}
    tags: Mapping[Text, Text] = {}
    queue_settings: Annotated[Mapping[str, Any], NameKind.QUEUE_SETTINGS] = {}
    topic_settings: Mapping[Text, Text] = {}
    is_ordered: bool = False
    # The attributes in which an existing queue must match this one; None for all.
    compared: Mapping[Text, Text] | None = None


class NamedQueues:
    """All named queues."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        queues: Queues,
        sender: QueueSender,
        *,
        partition_count: int,
        replication_factor: int,
        new_id: Callable[[], bytes],
        catch_up: Callable[[], Promise[None]] | None,
    ) -> None:
        """New topics have `partition_count` partitions and, in a cluster, so many replicas.

        `catch_up` brings the metadata up to date; None on a single node.
        """
        self._clock = clock
        self._topics = topics
        self._queues = queues
        self._sender = sender
        self._partition_count = partition_count
        self._replication_factor = replication_factor
        self._new_id = new_id
        self._catch_up = catch_up
        # Called with the topic and the number of messages that had been sent before.
        self.deduplicated: Callable[[str, int], None] | None = None
        self._resting_names = RestingNames()  # of queues that this node may create

    # Lookup

    def find(self, name: str) -> NamedQueue | None:
        return self._topics.facts.named_queues().get(name)

    def get(self, name: str) -> NamedQueue:
        found = self.find(name)
        if found is None:
            raise UnknownQueue(name)
        return found

    def all(self) -> list[NamedQueue]:
        """Return all of them, sorted by name."""
        known = self._topics.facts.named_queues()
        return [known[name] for name in sorted(known)]

    def find_surely(self, name: str) -> Promise[NamedQueue | None]:
        """Like `find`, but including what another node has just created."""
        return promised(self._find_surely(name))

    async def _find_surely(self, name: str) -> NamedQueue | None:
        found = self.find(name)
        if found is None and self._catch_up is not None:
            await self._catch_up()
            found = self.find(name)
        return found

    def all_surely(self) -> Promise[list[NamedQueue]]:
        """Like `all`, but including what other nodes have just created."""
        return promised(self._all_surely())

    async def _all_surely(self) -> list[NamedQueue]:
        if self._catch_up is not None:
            await self._catch_up()
        return self.all()

    def owner_of(self, queue: NamedQueue) -> int:
        """Return the node for receiving, settling, and for sending if the queue is ordered."""
        return self._queues.groups.owner_of(queue.group)

    # Creating, changing, deleting

    def create(self, spec: NamedQueueSpec) -> Promise[NamedQueue]:
        """Create a queue, or return an existing one whose compared attributes are the same.

        A call that was interrupted can be repeated, and completes what is missing.
        """
        return promised(self._create(spec))

    async def _create(self, spec: NamedQueueSpec) -> NamedQueue:
        found = await self._find_surely(spec.name)
        if found is not None:
            return await self._taken(found, spec)
        self._resting_names.check(spec.name, self._clock.wall_ms())
        self._check_new(spec)
        topic_name = spec.topic or spec.name
        now_ms = self._clock.wall_ms()
        fact = NamedQueueFact(
            self._new_id(),
            spec.name,
            topic_name,
            self._group_of(spec.name),
            now_ms,
            now_ms,
            dict(spec.attributes),
            dict(spec.tags),
            is_ordered=spec.is_ordered,
            made_topic=self._topics.find(topic_name) is None,
        )
        self._queues.groups.check_settings(fact.group, spec.queue_settings)
        # Store the name first: after an interruption, it shows what else has to be created.
        try:
            await self._topics.facts.record_named_queue(fact)
        except QueueExists:
            # Another node was faster, and this one may not have its metadata yet.
            found = await self._find_surely(spec.name)
            if found is None:
                raise
            return await self._taken(found, spec)
        await self._complete(fact, spec)
        # A group of that name may already have existed; it belongs to the queue from now on.
        await self._queues.groups.create(fact.group, spec.queue_settings)
        return fact

    def _group_of(self, name: str) -> str:
        """Return the group of a new queue: its name, unless a stream group has that name."""
        return name + GROUP_SUFFIX if self._queues.groups.is_stream_group(name) else name

    def _check_new(self, spec: NamedQueueSpec) -> None:
        self._topics.check_name(spec.name)
        topic = self._topics.find(spec.topic or spec.name)
        if topic is not None and topic.is_internal:
            raise InternalTopic(topic.name)
        if topic is None and spec.topic is not None:
            raise UnknownTopic(spec.topic)
        if topic is None:
            self._topics.check_new(
                spec.name,
                partition_count=self._partition_count,
                settings=spec.topic_settings,
            )

    async def _taken(self, known: NamedQueue, spec: NamedQueueSpec) -> NamedQueue:
        """Return an existing queue of that name if it matches; raise otherwise."""
        compared = spec.attributes if spec.compared is None else spec.compared
        differs = known.is_ordered != spec.is_ordered or any(
            known.attributes.get(name, "") != value for name, value in compared.items()
        )
        if differs or (spec.topic is not None and spec.topic != known.topic):
            raise QueueExists(spec.name)
        await self._complete(known, spec)
        return known

    async def _complete(self, queue: NamedQueue, spec: NamedQueueSpec) -> None:
        """Create the missing parts of a queue."""
        if self._topics.find(queue.topic) is None:
            await self._make_topic(queue.topic, spec.topic_settings)
        if not self._queues.groups.is_known(queue.group):
            await self._queues.groups.create(queue.group, spec.queue_settings)

    async def _make_topic(self, name: str, settings: Mapping[str, str]) -> None:
        try:
            await self._topics.create(
                name,
                partition_count=self._partition_count,
                settings={**self._in_sync_setting(), **settings},
            )
        except TopicExists:
            pass  # Another node was faster, and it belongs to the same queue.

    def _in_sync_setting(self) -> Mapping[str, str]:
        """Make messages as durable as the journal that records which of them are done."""
        journal = self._topics.find(DELIVERY_TOPIC)
        in_sync = None if journal is None else journal.fact.settings.get(IN_SYNC_SETTING)
        if in_sync is None or int(in_sync) > self._replication_factor:
            return {}
        return {IN_SYNC_SETTING: in_sync}

    def change(
        self,
        name: str,
        *,
        attributes: Changes | None = None,
        tags: Changes | None = None,
        queue_settings: Mapping[str, Any] | None = None,
        topic_settings: Mapping[str, str] | None = None,
    ) -> Promise[NamedQueue]:
        """Change some attributes, tags or settings of a queue.

        Topic settings are changed only if the topic was created with the queue.
        """
        return promised(
            self._change(name, attributes or {}, tags or {}, queue_settings, topic_settings or {})
        )

    async def _change(
        self,
        name: str,
        attributes: Changes,
        tags: Changes,
        queue_settings: Mapping[str, Any] | None,
        topic_settings: Mapping[str, str],
    ) -> NamedQueue:
        known = await self._find_surely(name)
        if known is None:
            raise UnknownQueue(name)
        topic = self._topics.get(known.topic)
        if queue_settings is not None:
            await self._queues.groups.create(known.group, queue_settings)
        settings = {**topic.fact.settings, **topic_settings}
        if known.made_topic and settings != topic.fact.settings:
            await self._topics.configure(known.topic, settings)
        return await self._rewrite(name, attributes, tags)

    async def _rewrite(self, name: str, attributes: Changes, tags: Changes) -> NamedQueue:
        def change(known: NamedQueue) -> NamedQueue:
            return msgspec.structs.replace(
                known,
                attributes=_changed(known.attributes, attributes),
                tags=_changed(known.tags, tags),
                # Tags do not affect the behaviour of the queue.
                modified_ms=self._clock.wall_ms() if attributes else known.modified_ms,
            )

        return await self._replace(name, change)

    async def _replace(self, name: str, change: Callable[[NamedQueue], NamedQueue]) -> NamedQueue:
        """Store a changed queue; repeat if another node has changed it in the meantime."""
        for _ in range(CHANGE_ATTEMPTS_MAX - 1):
            try:
                return await self._put(change(self.get(name)))
            except StalePartitionVersion:
                if self._catch_up is not None:
                    await self._catch_up()
        return await self._put(change(self.get(name)))

    async def _put(self, changed: NamedQueue) -> NamedQueue:
        fact = msgspec.structs.replace(changed, version=changed.version + 1)
        await self._topics.facts.record_named_queue(fact)
        return fact

    def forget_sent(self, name: str, ends: Mapping[int, int]) -> Promise[None]:
        """Allow deduplication ids of messages before these offsets to be used again."""
        return promised(self._forget_sent(name, ends))

    async def _forget_sent(self, name: str, ends: Mapping[int, int]) -> None:
        def change(known: NamedQueue) -> NamedQueue:
            return msgspec.structs.replace(known, ids_forgotten=tuple(sorted(dict(ends).items())))

        if not self.get(name).is_ordered:
            return
        fact = await self._replace(name, change)
        self._sender.forget_ids(fact.id)

    def delete(self, name: str, *, rest_ms: int = 0) -> Promise[None]:
        """Delete a queue and its group, and the topic if it was made for this queue only.

        The name is deleted last, so that an interrupted call can be repeated. This node does
        not create another queue of the name for `rest_ms`.
        """
        return promised(self._delete(name, rest_ms))

    async def _delete(self, name: str, rest_ms: int) -> None:
        known = await self._find_surely(name)
        if known is None:
            raise UnknownQueue(name)
        is_shared = any(one.topic == known.topic and one.name != name for one in self.all())
        if known.made_topic and not is_shared:
            await _though_gone(self._topics.delete, known.topic)
        now = self.find(name)
        if now is None or now.id != known.id:
            return  # Another call has deleted it; the group of its name may be that of a new queue.
        await _though_gone(self._queues.groups.delete, known.group)
        facts, producer = self._topics.facts, producer_name(known)
        if facts.producer_named(producer) is not None:
            await facts.forget_producer(producer)
        await facts.forget_named_queue(known)
        if rest_ms:
            self._resting_names.add(name, self._clock.wall_ms(), rest_ms)

    # Sending

    def send(
        self, queue: NamedQueue, postings: Sequence[Posting], session: Session = NOBODY
    ) -> Promise[list[PostResult]]:
        """Store messages, or schedule delayed ones; return a result for each, in order.

        Messages with a deduplication id can be sent only at the queue's owner.
        """
        sent = self._sender.send(queue, postings, session)
        if self.deduplicated is not None:
            sent.then(partial(self._count_duplicates, queue.topic))
        return sent

    def _count_duplicates(
        self, topic: str, results: list[PostResult] | None, _: Exception | None
    ) -> None:
        count = sum(isinstance(one, Posted) and one.is_duplicate for one in results or ())
        if count and self.deduplicated is not None:
            self.deduplicated(topic, count)


async def _though_gone(delete: Callable[[str], Promise[None]], name: str) -> None:
    try:
        await delete(name)
    except (UnknownTopic, UnknownGroup):
        pass  # An earlier call or another client has deleted it.


def _changed(known: Mapping[str, str], changes: Changes) -> dict[str, str]:
    after = {**known, **changes}
    return {name: value for name, value in after.items() if value is not None}


__all__ = [
    "NamedQueue",
    "NamedQueueSpec",
    "NamedQueues",
    "Posted",
    "Posting",
]
