"""Which queue groups and queues there are, and how they come, change and go with their topics."""

from __future__ import annotations

from random import Random

from goqueue.broker.queue_burial import Burial
from goqueue.broker.queue_host import HostedQueue, WaitingRoom
from goqueue.broker.queue_journal import DeliveryJournal
from goqueue.broker.queue_lanes import Lanes
from goqueue.broker.queue_records import RecordReader
from goqueue.broker.scheduler import Handle, Scheduler
from goqueue.broker.topic_settings import lane_settings
from goqueue.broker.topics import Topic, Topics
from goqueue.cluster.metadata import QueueGroupFact
from goqueue.config import DeliverySettings
from goqueue.delivery import (
    Ledger,
    LedgerKey,
    Moved,
    Queue,
    Unacked,
    check_queue_settings,
)
from goqueue.model.errors import UnknownTopic
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

# How often queues learn that retention has removed what they had still to deliver.
START_CHECK_MS = 1000
# Ledgers of the broker's own, which belong to no queue.
_KEEPER_PREFIX = "__"


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
        scheduler: Scheduler,
        disk: Disk,
        topics: Topics,
        settings: DeliverySettings,
        random: Random,
    ) -> None:
        self.groups: dict[str, HostedGroup] = {}
        self.by_topic: dict[bytes, list[HostedQueue]] = {}
        self.journal = DeliveryJournal(scheduler, topics, settings)
        self.reader = RecordReader(settings.batch_cache_bytes)
        self.lanes = Lanes(disk, scheduler, save_ms=settings.lanes_save_ms, grown=self._grown)
        self._scheduler = scheduler
        self._topics = topics
        self._settings = settings
        self._random = random
        self._burial = Burial(scheduler, topics, self.reader)
        self._room = WaitingRoom(settings.waiting_max)
        self._last_number = 0
        self._timer: Handle | None = None
        topics.on_change(self._topics_changed)

    def open(self) -> None:
        """Load what the journal knows; nothing is delivered before that."""
        for fact in self._topics.facts.queue_groups().values():
            self.groups[fact.name] = HostedGroup(fact)
        self.journal.open()
        by_id = {group.id: group for group in self.groups.values()}

        def ledger_of(key: LedgerKey) -> Ledger | None:
            if key.group not in by_id or self._topics.find_by_id(key.topic_id) is None:
                return None
            ledgers = self.journal.ledgers.setdefault((key.group, key.topic_id), {})
            return ledgers.setdefault(key.partition, Ledger())

        events = self._burial.recover(ledger_of)
        if events:
            self.journal.ensure_topic()
            self.journal.note(events)
        for group_id, topic_id in list(self.journal.ledgers):
            group, topic = by_id.get(group_id), self._topics.find_by_id(topic_id)
            if group is not None and topic is not None:
                self._host(group, topic)
            elif topic is None or not group_id.startswith(_KEEPER_PREFIX):
                self.journal.forget(group_id, topic_id)
        self._check_starts()

    def stop(self) -> None:
        """Answer those who wait, and write down what is known."""
        if self._timer is not None:
            self._timer.cancel()
        for hosted in self._all():
            hosted.close(None)
        self.journal.flush()

    def close(self) -> None:
        """Everything is durable; leave the lane indexes for the next start."""
        self.lanes.save_all()

    # Hosting

    def start_queue(self, group: HostedGroup, topic: Topic) -> HostedQueue:
        """The group reads this topic for the first time."""
        grave = group.settings.dead_letter_topic_of(topic.name)
        if self._topics.find(grave) is None:
            self._topics.check_new(grave, partition_count=len(topic.partitions), settings={})
        self.journal.ensure_topic()
        hosted = self._host(group, topic)
        if group.settings.start == "latest":
            hosted.queue.purge([one.last_stable_offset for one in topic.partitions])
        else:
            hosted.queue.partitions[0].record(Moved(0))  # so that the journal knows the queue
            hosted.queue.mark_changed(0)
        return hosted

    def _host(self, group: HostedGroup, topic: Topic) -> HostedQueue:
        self._last_number += 1
        queue = Queue(
            self._last_number,
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
            scheduler=self._scheduler,
            journal=self.journal,
            reader=self.reader,
            burial=self._burial,
            room=self._room,
            receive_bytes_max=self._settings.receive_bytes_max,
        )
        group.queues[topic.id] = hosted
        self.by_topic.setdefault(topic.id, []).append(hosted)
        self.configure(group, hosted)
        hosted.settle()
        return hosted

    def configure(self, group: HostedGroup, hosted: HostedQueue) -> None:
        """Let settings and partitions of the topic be what they are now."""
        values = self.values(hosted.topic)
        hosted.ttl_ms = int(values["message_ttl_ms"])
        queue = hosted.queue
        queue.configure(group.settings, lane_settings(values))
        ledgers = self.journal.ledgers.setdefault((group.id, hosted.topic.id), {})
        for number in range(len(queue.partitions), len(hosted.topic.partitions)):
            partition = hosted.topic.partitions[number]
            lanes = self.lanes.of(partition)
            queue.add_partition(
                ledgers.setdefault(number, Ledger()),
                lanes.index,
                lanes.arrivals,
                log_start=partition.start_offset,
                log_end=partition.end_offset,
                high_watermark=min(partition.last_stable_offset, lanes.index.end),
                now_ms=self._scheduler.now_ms(),
            )
        hosted.wake()

    def values(self, topic: Topic) -> dict[str, str]:
        return {**self._topics.defaults.values, **topic.fact.settings}

    def _grown(self, partition: Partition, end: int) -> None:
        """The lanes of a partition are known up to `end` now."""
        topic = self._topics.find(partition.name.topic)
        for hosted in self.by_topic.get(topic.id, ()) if topic is not None else ():
            number = partition.name.partition
            if number < len(hosted.queue.partitions):
                stable_end = min(end, partition.last_stable_offset)
                hosted.queue.advance(number, stable_end, self._scheduler.now_ms())
                hosted.wake()

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
        """The topic of a queue was deleted."""
        del group.queues[hosted.topic.id]
        hosted.close(UnknownTopic(hosted.topic.name))
        self.journal.forget(group.id, hosted.topic.id)
        for partition in hosted.topic.partitions:
            self.lanes.drop(partition)
            self.reader.drop(partition)

    def _check_starts(self) -> None:
        """Tell queues what retention has removed, and then the lane indexes."""
        self._timer = self._scheduler.call_later(START_CHECK_MS, self._check_starts)
        now_ms = self._scheduler.now_ms()
        for topic_id, queues in self.by_topic.items():
            topic = self._topics.find_by_id(topic_id)
            for number, partition in enumerate(topic.partitions if topic is not None else ()):
                start = partition.start_offset
                if queues and queues[0].queue.partitions[number].log_start < start:
                    for hosted in queues:
                        hosted.queue.start_moved(number, start, now_ms)
                        hosted.wake()
                    lanes = self.lanes.of(partition)
                    lanes.index.forget_before(start)
                    lanes.arrivals.forget_before(start)

    def _all(self) -> list[HostedQueue]:
        return [hosted for group in self.groups.values() for hosted in group.queues.values()]
