"""The queue groups and queues of a node, and how they follow changes of groups and topics."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from random import Random

from goqueue.broker.queues.dead_lettering import DeadLetterWriter
from goqueue.broker.queues.dead_lettering_cluster import ClusterDeadLetterWriter
from goqueue.broker.queues.host import HostedQueue, WaitingRoom
from goqueue.broker.queues.initial_delay import arrived_in
from goqueue.broker.queues.journal import DeliveryJournal, not_here
from goqueue.broker.queues.lanes import QueueSources
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.settings import lane_settings
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import (
    QUEUE_GROUP_PREFIX,
    ClusterFact,
    Decision,
    Forget,
    PartitionFact,
    QueueGroupFact,
)
from goqueue.config import DeliverySettings
from goqueue.delivery import (
    DeadLettered,
    Ledger,
    LedgerKey,
    Moved,
    Queue,
    Unacked,
    check_queue_settings,
    queue_tag,
)
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import start
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, UnknownGroup, UnknownTopic
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

_log = logging.getLogger(__name__)


class HostedGroup:
    """A group and its queues by topic id."""

    def __init__(self, fact: QueueGroupFact) -> None:
        self.fact = fact
        self.settings = check_queue_settings(dict(fact.settings))
        self.unacked = Unacked()
        self.queues: dict[bytes, HostedQueue] = {}

    @property
    def id(self) -> str:
        return self.fact.id.hex()


class QueueHosts:
    """The groups by name, their queues, and what all queues share."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        topics: Topics,
        settings: DeliverySettings,
        random: Random,
        leaders: Leaders | None = None,
    ) -> None:
        """`leaders` finds the leaders of partitions in a cluster; None on a single node."""
        self.groups: dict[str, HostedGroup] = {}
        self.leaders = leaders
        self.journal = DeliveryJournal(clock, topics, settings, is_alone=leaders is None)
        self.sources = QueueSources(
            clock, disk, topics, settings, leaders, is_awaited=self._is_awaited
        )
        self.by_topic = self.sources.by_topic
        self._clock = clock
        self._topics = topics
        self._settings = settings
        self._random = random
        self._letter_writer = DeadLetterWriter(clock, topics, self.sources.reader)
        self._letter_writers: dict[int, ClusterDeadLetterWriter] = {}  # by partition of the journal
        # Queues (group id, topic id) that wait for the dead letters of a previous owner.
        self._unfinished: set[tuple[str, bytes]] = set()
        self._room = WaitingRoom(settings.waiting_max)
        self._timer: Handle | None = None
        topics.on_change(self._topics_changed)
        topics.facts.log.on_applied(self._apply)

    @property
    def observer(self) -> Observer | None:
        return self._topics.observer

    def open(self) -> None:
        """Replay the journal; nothing is delivered before that.

        In a cluster, only load the groups: queues are opened with the partitions that `lead` gets.
        """
        for fact in self._topics.facts.queue_groups().values():
            self.groups[fact.name] = HostedGroup(fact)
        if self.leaders is not None:
            self._check_starts()
            return
        self.journal.open()
        by_id = {group.id: group for group in self.groups.values()}

        def ledger_of(key: LedgerKey) -> Ledger | None:
            if key.group not in by_id or self._topics.find_by_id(key.topic_id) is None:
                return None
            ledgers = self.journal.ledgers.setdefault((key.group, key.topic_id), {})
            return ledgers.setdefault(key.partition, Ledger())

        events = self._letter_writer.recover(ledger_of)
        if events:
            self.journal.ensure_topic()
            self.journal.note(events)
        for group_id, topic_id in list(self.journal.ledgers):
            group, topic = by_id.get(group_id), self._topics.find_by_id(topic_id)
            if group is not None and topic is not None:
                self._host(group, topic)
            else:
                self._forget_gone(group_id, topic_id)
        self._check_starts()

    def _forget_gone(self, group_id: str, topic_id: bytes) -> None:
        """Drop the ledgers of a deleted group or topic; the broker's own have no group."""
        is_topic_gone = self._topics.find_by_id(topic_id) is None
        if is_topic_gone or not group_id.startswith(_KEEPER_PREFIX):
            self.journal.forget(group_id, topic_id)

    # Ownership, in a cluster

    def lead(self, partition: Partition) -> None:
        """Own the queues of a journal partition, which this node leads now."""
        assert self.leaders is not None
        number = partition.name.partition
        self.journal.lead(partition)
        self._letter_writers[number] = ClusterDeadLetterWriter(
            self._clock,
            self._topics,
            self.leaders,
            self.sources.reader,
            source_of=self.sources.source_of,
        )
        by_id = {group.id: group for group in self.groups.values()}
        for group_id, topic_id in self.journal.led_by(number):
            group, topic = by_id.get(group_id), self._topics.find_by_id(topic_id)
            if group is None or topic is None:
                self._forget_gone(group_id, topic_id)
            elif any(
                one.letter_intents for one in self.journal.ledgers[group_id, topic_id].values()
            ):
                self._unfinished.add((group_id, topic_id))
                start(self._finish(number, group, topic), _raise)
            else:
                self._host(group, topic)

    def resign(self, partition: Partition) -> None:
        """Close the queues of a journal partition that this node no longer leads."""
        number = partition.name.partition
        letter_writer = self._letter_writers.pop(number, None)
        if letter_writer is not None:
            letter_writer.close()
        for group in self.groups.values():
            if self.journal.number_of(group.id) == number:
                group.unacked = Unacked()
                self._close_all(group, not_here())
        self._unfinished = {
            one for one in self._unfinished if self.journal.number_of(one[0]) != number
        }
        self.journal.resign(number)

    async def _finish(self, number: int, group: HostedGroup, topic: Topic) -> None:
        """Complete the dead-letter intents of a previous owner, then host the queue."""
        letter_writer = self._letter_writers[number]
        place = (group.id, topic.id)
        try:
            # Intents that are not committed may never have been sent, and must not be yet.
            await self.journal.settled(number)
            events: dict[LedgerKey, DeadLettered] = {}
            for source, ledger in list(self.journal.ledgers[place].items()):
                for announced in list(ledger.letter_intents.values()):
                    event = await letter_writer.finish(group.fact, topic, source, announced)
                    key = LedgerKey(group.id, topic.id, source)
                    ledger.apply(event)
                    events[key] = event
                    self.journal.note({key: event})
        except GoQueueError as error:
            if self._letter_writers.get(number) is letter_writer:
                _log.error("cannot open %s of group %s: %s", topic.name, group.fact.name, error)
                again = partial(self._finish_again, letter_writer, number, group, topic)
                self._clock.call_later(RETRY_MS, again)
            return
        if self._letter_writers.get(number) is not letter_writer or place not in self._unfinished:
            return
        self._unfinished.discard(place)
        found = self._topics.find_by_id(topic.id)
        if self.groups.get(group.fact.name) is group and found is not None:
            self._host(group, found)
        else:
            self.journal.forget(*place)

    def _finish_again(
        self, letter_writer: ClusterDeadLetterWriter, number: int, group: HostedGroup, topic: Topic
    ) -> None:
        if self._letter_writers.get(number) is letter_writer:
            start(self._finish(number, group, topic), _raise)

    def check_served(self, group: HostedGroup, topic: Topic) -> None:
        """Raise if this node cannot serve a topic for a group, now or at all."""
        if self.leaders is None:
            return
        self.journal.check_here(group.id)
        if (group.id, topic.id) in self._unfinished:
            raise CoordinatorNotAvailable(
                f"Queue group {group.fact.name!r} is being taken over by this node; retry."
            )

    def check_settled(self, group: HostedGroup) -> None:
        """Raise while a queue of the group that may have issued the receipts is not open."""
        if any(group_id == group.id for group_id, _ in self._unfinished):
            raise CoordinatorNotAvailable(
                f"Queue group {group.fact.name!r} is being taken over by this node; retry."
            )

    def _is_awaited(self, topic_id: bytes) -> bool:
        """Whether messages of a topic must be read before its queue is open."""
        return any(one[1] == topic_id for one in self._unfinished)

    # Committed changes of groups

    def _apply(self, decision: Decision) -> None:
        moved: dict[bytes, None] = {}
        for change in decision:
            if isinstance(change, QueueGroupFact):
                self._put_group(change)
            elif isinstance(change, Forget) and change.key.startswith(QUEUE_GROUP_PREFIX):
                self._drop_group(change.key.removeprefix(QUEUE_GROUP_PREFIX).decode())
            elif isinstance(change, PartitionFact) and self._is_read(change.topic_id):
                moved[change.topic_id] = None
            elif isinstance(change, ClusterFact):
                # A snapshot of all metadata does not list the groups that were deleted.
                known = self._topics.facts.queue_groups()
                for name in [one for one in self.groups if one not in known]:
                    self._drop_group(name)
        if moved:
            # Replicas are added and removed after this, in the same loop iteration.
            self._clock.call_soon(partial(self.sources.copies_changed, moved))

    def _put_group(self, fact: QueueGroupFact) -> None:
        known = self.groups.get(fact.name)
        if known is not None and known.fact.id != fact.id:
            self._drop_group(fact.name)
            known = None
        if known is None:
            self.groups[fact.name] = HostedGroup(fact)
            return
        known.fact, known.settings = fact, check_queue_settings(dict(fact.settings))
        for hosted in known.queues.values():
            self.configure(known, hosted)

    def _drop_group(self, name: str) -> None:
        group = self.groups.pop(name, None)
        if group is None:
            return
        topic_ids = list(group.queues)
        self._close_all(group, UnknownGroup(name))
        for topic_id in topic_ids:
            self.journal.forget(group.id, topic_id)

    def _close_all(self, group: HostedGroup, error: GoQueueError) -> None:
        for topic_id, hosted in group.queues.items():
            self.by_topic[topic_id].remove(hosted)
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

    def start_queue(self, group: HostedGroup, topic: Topic, ends: Sequence[int]) -> HostedQueue:
        """Start the queue of a group for a topic whose partitions end at `ends`."""
        settings = group.settings
        letter_topic = settings.dead_letter_topic_of(topic.name)
        # Without a delivery limit the topic may never be needed, and its name may be taken.
        is_needed = bool(settings.deliveries_max or settings.dead_letter_topic)
        if is_needed and self._topics.find(letter_topic) is None:
            self._topics.check_new(letter_topic, partition_count=len(topic.partitions), settings={})
        self.journal.ensure_topic()
        hosted = self._host(group, topic)
        if group.settings.start == "latest":
            hosted.queue.purge(ends)
        else:
            hosted.queue.partitions[0].record(Moved(0))  # so that the journal has the queue
            hosted.queue.mark_changed(0)
        return hosted

    def _host(self, group: HostedGroup, topic: Topic) -> HostedQueue:
        queue = Queue(
            queue_tag(topic.id),
            group.settings,
            lane_settings(self.values(topic)),
            random=self._random,
            unacked=group.unacked,
        )
        hosted = HostedQueue(
            group.fact.name,
            group.id,
            topic,
            queue,
            clock=self._clock,
            journal=self.journal,
            reader=self.sources.reader,
            letter_writer=self._letter_writers.get(
                self.journal.number_of(group.id), self._letter_writer
            ),
            room=self._room,
            receive_bytes_max=self._settings.receive_bytes_max,
            is_alone=self.leaders is None,
        )
        group.queues[topic.id] = hosted
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
        queue.end_initial_delays(self._clock.now_ms())
        ledgers = self.journal.ledgers.setdefault((group.id, hosted.topic.id), {})
        for number in range(len(queue.partitions), len(hosted.topic.partitions)):
            lanes = self.sources.of(hosted.topic, number)
            log_end = hosted.topic.partitions[number].end_offset
            hosted.read_from(lanes.source, is_known=lanes.is_known)
            queue.add_partition(
                ledgers.setdefault(number, Ledger()),
                lanes.index,
                lanes.arrivals,
                log_start=lanes.source.start_offset,
                # A replica may end before offsets in the journal, and still has to catch up.
                log_end=log_end if self.leaders is None else _NO_END,
                high_watermark=lanes.stable_end,
                now_ms=self._clock.now_ms(),
                arrived=arrived_in(self._clock, lanes.source, group.settings.delay_ms),
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

    def _close_queue(self, group: HostedGroup, hosted: HostedQueue) -> None:
        """Close a queue whose topic was deleted."""
        del group.queues[hosted.topic.id]
        hosted.close(UnknownTopic(hosted.topic.name))
        self.journal.forget(group.id, hosted.topic.id)
        self.sources.drop(hosted)

    def _check_starts(self) -> None:
        self._timer = self._clock.call_later(START_CHECK_MS, self._check_starts)
        self.sources.check_starts()

    def _all(self) -> list[HostedQueue]:
        return [hosted for group in self.groups.values() for hosted in group.queues.values()]


def _raise(_: object, error: Exception | None) -> None:
    if error is not None:
        raise error
