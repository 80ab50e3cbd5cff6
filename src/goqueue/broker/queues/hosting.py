"""The queue groups and queues of a node, and how they follow changes of groups and topics.

The node that leads a partition of the delivery journal owns the groups in it and their queues. A
single node leads all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from random import Random

from goqueue.broker.queues.dead_lettering import DeadLetterWriter, LetterSource
from goqueue.broker.queues.host import HostedGroup, HostedQueue, ReceiveLimits
from goqueue.broker.queues.journal import DeliveryJournal, DeliveryShard, not_here
from goqueue.broker.queues.lanes import QueueSources
from goqueue.broker.queues.records import Source
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.settings import lane_settings
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import (
    QUEUE_GROUP_PREFIX,
    Decision,
    Forget,
    PartitionFact,
    QueueGroupFact,
    WholeState,
)
from goqueue.config import DeliverySettings
from goqueue.delivery import (
    Ledger,
    LedgerKey,
    Moved,
    PartitionLog,
    Queue,
    Unacked,
    queue_tag,
    stored_queue_settings,
)
from goqueue.loop.clock import Clock, Handle, MonotonicClock
from goqueue.loop.promise import Promise, start
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, UnknownGroup, UnknownTopic
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Observer
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

# How often queues are notified of messages that retention has removed.
START_CHECK_MS = 1000
RETRY_MS = 1000
# The end of a log that may be longer on another node than here.
_NO_END = 1 << 62
# Ledgers of the broker itself, which belong to no queue.
_KEEPER_PREFIX = "__"
# A queue with an initial delay is opened with arrival times of this many steps; messages of one
# step count as arriving at its end.
ARRIVAL_STEPS = 16

_log = logging.getLogger(__name__)


class QueueHosts:
    """The groups by name, their queues, and what all queues share."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        topics: Topics,
        settings: DeliverySettings,
        random: Random,
        leaders: Leaders,
    ) -> None:
        self.clock = clock = MonotonicClock(clock)
        self.groups: dict[str, HostedGroup] = {}
        self.by_id: dict[str, HostedGroup] = {}
        self.leaders = leaders
        self.journal = DeliveryJournal(clock, topics, settings, is_alone=leaders.is_alone)
        self.sources = QueueSources(
            clock, disk, topics, settings, leaders, is_awaited=self._is_awaited
        )
        self.by_topic = self.sources.by_topic
        self._topics = topics
        self._random = random
        self._letter_writers: dict[int, DeadLetterWriter] = {}  # by partition of the journal
        self._limits = ReceiveLimits(settings.waiting_max, settings.receive_bytes_max)
        self._timer: Handle | None = None
        topics.on_change(self._topics_changed)
        topics.facts.log.on_applied(self._apply)

    @property
    def observer(self) -> Observer | None:
        return self._topics.observer

    def open(self) -> None:
        """Load the groups. Queues are opened with the journal partitions that `lead` gets."""
        for fact in self._topics.facts.queue_groups().values():
            self._add_group(fact)
        self._check_starts()

    # Ownership

    def lead(self, partition: Partition) -> None:
        """Own the queues of a journal partition, which this node leads now."""
        number = partition.name.partition
        shard = self.journal.lead(partition)
        self._letter_writers[number] = DeadLetterWriter(
            self.clock,
            self._topics,
            self.leaders,
            self.sources.reader,
            source_of=self.sources.source_of,
        )
        for group_id, topic_id in list(shard.ledgers):
            group, topic = self.by_id.get(group_id), self._topics.find_by_id(topic_id)
            if group is None or topic is None:
                self._forget_gone(shard, group_id, topic_id)
            elif any(one.letter_intents for one in shard.ledgers[group_id, topic_id].values()):
                shard.opening.add((group_id, topic_id))
                start(self._finish(shard, group, topic), _raise)
            else:
                self._host(group, topic, shard)

    def _forget_gone(self, shard: DeliveryShard, group_id: str, topic_id: bytes) -> None:
        """Drop the ledgers of a deleted group or topic; the broker's own have no group."""
        is_topic_gone = self._topics.find_by_id(topic_id) is None
        if is_topic_gone or not group_id.startswith(_KEEPER_PREFIX):
            shard.forget(group_id, topic_id)

    def resign(self, partition: Partition) -> None:
        """Close the queues of a journal partition that this node no longer leads."""
        number = partition.name.partition
        letter_writer = self._letter_writers.pop(number, None)
        if letter_writer is not None:
            letter_writer.close()
        shard = self.journal.find(number)
        for group_id in dict.fromkeys(one for one, _ in shard.ledgers) if shard else ():
            group = self.by_id.get(group_id)
            if group is not None:
                group.unacked = Unacked()
                self._close_all(group, not_here())
        self.journal.resign(number)

    async def _finish(self, shard: DeliveryShard, group: HostedGroup, topic: Topic) -> None:
        """Complete the dead-letter intents of an earlier owner, then host the queue."""
        letter_writer = self._letter_writers[shard.partition.name.partition]
        place = (group.id, topic.id)
        try:
            # Intents that are not committed may never have been sent, and must not be yet.
            await shard.settled()
            for number, ledger in list(shard.ledgers[place].items()):
                has_errors = group.settings.error_headers
                source = LetterSource(group.fact.name, group.id, topic, number, has_errors)
                for intent in list(ledger.letter_intents.values()):
                    event = await letter_writer.finish(source, intent)
                    ledger.apply(event)
                    name = TopicPartition(topic.name, number)
                    shard.note(LedgerKey(*place, number), event, group.fact.name, name)
        except GoQueueError as error:
            if not shard.is_closed:
                _log.error("cannot open %s of group %s: %s", topic.name, group.fact.name, error)
                again = partial(self._finish_again, shard, group, topic)
                self.clock.call_later(RETRY_MS, again)
            return
        if shard.is_closed:
            return
        shard.opening.discard(place)
        found = self._topics.find_by_id(topic.id)
        if self.groups.get(group.fact.name) is group and found is not None:
            self._host(group, found, shard)
        else:
            shard.forget(*place)
        self._topics.internal.look()

    def _finish_again(self, shard: DeliveryShard, group: HostedGroup, topic: Topic) -> None:
        if not shard.is_closed:
            start(self._finish(shard, group, topic), _raise)

    def check_served(self, group: HostedGroup, topic: Topic) -> None:
        """Raise if this node cannot serve a topic for a group, now or at all."""
        group.check_owned()
        if self.is_opening(group, topic):
            raise _opening(group)

    @staticmethod
    def is_opening(group: HostedGroup, topic: Topic) -> bool:
        """Whether a queue waits for the dead letters of an earlier owner."""
        return group.shard is not None and (group.id, topic.id) in group.shard.opening

    def check_open(self, group: HostedGroup) -> None:
        """Raise while a queue of the group that may have issued receipts is not open."""
        shard = group.shard
        if shard is not None and any(group_id == group.id for group_id, _ in shard.opening):
            raise _opening(group)

    def _is_awaited(self, topic_id: bytes) -> bool:
        """Whether messages of a topic must be read before its queue is open."""
        return any(one == topic_id for shard in self.journal for _, one in shard.opening)

    # Committed changes of groups

    def _apply(self, decision: Decision) -> None:
        moved: dict[bytes, None] = {}
        if isinstance(decision, WholeState):
            known = self._topics.facts.queue_groups()
            for name in [one for one in self.groups if one not in known]:
                self._drop_group(name)
        for change in decision:
            if isinstance(change, QueueGroupFact):
                self._put_group(change)
            elif isinstance(change, Forget) and change.key.startswith(QUEUE_GROUP_PREFIX):
                self._drop_group(change.key.removeprefix(QUEUE_GROUP_PREFIX).decode())
            elif isinstance(change, PartitionFact) and self._is_read(change.topic_id):
                moved[change.topic_id] = None
        if moved:
            # Replicas are added and removed after this, in the same loop iteration.
            self.clock.call_soon(partial(self.sources.copies_changed, moved))

    def _put_group(self, fact: QueueGroupFact) -> None:
        known = self.groups.get(fact.name)
        if known is not None and known.fact.id != fact.id:
            self._drop_group(fact.name)
            known = None
        if known is None:
            self._add_group(fact)
            return
        known.settings = stored_queue_settings(fact.name, fact.settings)
        known.fact = fact
        for hosted in known.queues.values():
            self.configure(known, hosted)

    def _add_group(self, fact: QueueGroupFact) -> None:
        group = self.groups[fact.name] = HostedGroup(fact, self.journal)
        self.by_id[group.id] = group

    def _drop_group(self, name: str) -> None:
        group = self.groups.pop(name, None)
        if group is None:
            return
        del self.by_id[group.id]
        queues = list(group.queues.values())
        self._close_all(group, UnknownGroup(name))
        for hosted in queues:
            hosted.shard.forget(group.id, hosted.topic_id)

    def _close_all(self, group: HostedGroup, error: GoQueueError) -> None:
        for hosted in group.queues.values():
            self.by_topic[hosted.topic_id].remove(hosted)
            hosted.close(error)
        group.queues = {}

    def _is_read(self, topic_id: bytes) -> bool:
        return topic_id in self.by_topic or self._is_awaited(topic_id)

    def stop(self) -> None:
        """Respond to waiting receivers, and journal everything."""
        if self._timer is not None:
            self._timer.cancel()
        for hosted in self._all():
            hosted.close(None)
        for letter_writer in self._letter_writers.values():
            letter_writer.close()
        self.sources.stop()
        self.journal.flush()

    def close(self) -> None:
        """Save the lane indexes for the next start; everything is durable."""
        self.sources.lanes.save_all()

    # Hosting

    def start_queue(self, group: HostedGroup, topic: Topic, starts: Sequence[int]) -> HostedQueue:
        """Start the queue of a group for a topic at these offsets, or at its beginning."""
        settings = group.settings
        letter_topic = settings.dead_letter_topic_of(topic.name)
        # Without a delivery limit the topic may never be needed, and its name may be taken.
        is_needed = bool(settings.deliveries_max or settings.dead_letter_topic)
        if is_needed and self._topics.find(letter_topic) is None:
            self._topics.check_new(letter_topic, partition_count=len(topic.partitions), settings={})
        self.journal.ensure_topic()
        group.check_owned()
        assert group.shard is not None
        hosted = self._host(group, topic, group.shard)
        if group.settings.start == "latest":
            hosted.queue.purge(starts)
        elif starts:
            for number, offset in enumerate(starts):
                hosted.queue.rewind(number, offset, self.clock.now_ms())
        else:
            hosted.queue.partitions[0].record(Moved(0))  # so that the journal has the queue
        return hosted

    def _host(self, group: HostedGroup, topic: Topic, shard: DeliveryShard) -> HostedQueue:
        queue = Queue(
            queue_tag(topic.id),
            group.settings,
            lane_settings(self.values(topic)),
            random=self._random,
            unacked=group.unacked,
        )
        hosted = HostedQueue(
            group,
            topic,
            queue,
            shard,
            self._letter_writers[shard.partition.name.partition],
            clock=self.clock,
            reader=self.sources.reader,
            limits=self._limits,
        )
        group.queues[topic.name] = hosted
        self.by_topic.setdefault(topic.id, []).append(hosted)
        self.configure(group, hosted)
        hosted.settle()
        return hosted

    def configure(self, group: HostedGroup, hosted: HostedQueue) -> None:
        """Apply the current settings and partitions of the topic to a queue."""
        values = self.values(hosted.topic)
        hosted.ttl_ms = int(values["message_ttl_ms"])
        queue = hosted.queue
        queue.configure(group.settings, lane_settings(values))
        queue.end_initial_delays(self.clock.now_ms())
        ledgers = hosted.shard.ledgers.setdefault((group.id, hosted.topic_id), {})
        for number in range(len(queue.partitions), len(hosted.topic.partitions)):
            lanes = self.sources.of(hosted.topic, number)
            log_end = hosted.topic.partitions[number].end_offset
            hosted.read_from(lanes.source, is_known=lanes.is_known)
            queue.add_partition(
                ledgers.setdefault(number, Ledger()),
                PartitionLog(
                    lanes.index,
                    lanes.arrivals,
                    start=lanes.source.start_offset,
                    # A replica may end before offsets in the journal, and still has to catch up.
                    end=log_end if self.leaders.is_alone else _NO_END,
                    high_watermark=lanes.stable_end,
                ),
                now_ms=self.clock.now_ms(),
                arrived=_arrived_in(self.clock, lanes.source, group.settings.delay_ms),
            )
        hosted.wake()

    def values(self, topic: Topic) -> dict[str, str]:
        return {**self._topics.defaults.values, **topic.fact.settings}

    def _topics_changed(self) -> None:
        for topic_id, queues in list(self.by_topic.items()):
            topic = self._topics.find_by_id(topic_id)
            for hosted in list(queues):
                group = self.groups[hosted.group]
                if topic is None:
                    self._close_queue(group, hosted)
                else:
                    hosted.topic = topic
                    self.configure(group, hosted)
            if topic is None:
                del self.by_topic[topic_id]

    def end_queue(self, group: HostedGroup, hosted: HostedQueue) -> Promise[None]:
        """Drop a queue with all its state; resolves when that is committed."""
        self.by_topic[hosted.topic_id].remove(hosted)
        self._close_queue(group, hosted)
        return hosted.shard.prove()

    def _close_queue(self, group: HostedGroup, hosted: HostedQueue) -> None:
        """Close a queue whose topic was deleted, or which is dropped."""
        del group.queues[hosted.topic.name]
        hosted.close(UnknownTopic(hosted.topic.name))
        hosted.shard.forget(group.id, hosted.topic_id)
        self.sources.drop(hosted)

    def _check_starts(self) -> None:
        self._timer = self.clock.call_later(START_CHECK_MS, self._check_starts)
        self.sources.check_starts()

    def _all(self) -> list[HostedQueue]:
        return [hosted for group in self.groups.values() for hosted in group.queues.values()]


def _opening(group: HostedGroup) -> CoordinatorNotAvailable:
    return CoordinatorNotAvailable(
        f"Queue group {group.fact.name!r} is being taken over by this node; retry."
    )


def _arrived_in(clock: Clock, source: Source, delay_ms: int) -> list[tuple[int, int]]:
    """Return times of the last `delay_ms`, each with the offset before which all had arrived.

    They come from the timestamps of a replica on this node. Without one, or if it cannot be read,
    the result is empty: existing messages then count as arriving now, and are delayed again.
    """
    if not delay_ms or not isinstance(source, Partition):
        return []
    now_ms, ahead_ms = clock.now_ms(), clock.now_ms() - clock.wall_ms()
    arrived: list[tuple[int, int]] = []
    try:
        for step in range(ARRIVAL_STEPS + 1):
            time_ms = now_ms - delay_ms + step * delay_ms // ARRIVAL_STEPS
            found = source.find_timestamp(time_ms - ahead_ms + 1, is_committed_only=True)
            end = source.last_stable_offset if found is None else found.offset
            arrived.append((time_ms, end))
    except GoQueueError:
        return []
    return arrived


def _raise(_: object, error: Exception | None) -> None:
    if error is not None:
        raise error
