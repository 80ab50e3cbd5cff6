"""The sources that queues read: replicas on this node, and leaders of partitions without one.

A partition has one source at a time for all queues that read it, until a replica is added to this
node or removed from it. Its queues then switch to the other source as soon as that one has caught
up with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.queues.lanes import Lanes, PartitionLanes
from goqueue.broker.queues.records import RecordReader, Source
from goqueue.broker.queues.remote_partitions import RemoteCopies, RemoteCopy
from goqueue.broker.queues.supply import QueueSupply
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.config import DeliverySettings
from goqueue.loop.clock import Clock
from goqueue.partition import Partition
from goqueue.storage.disk import Disk


class QueueSources:
    """The lanes and records of all partitions that have queues, and the queues that read them."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        topics: Topics,
        settings: DeliverySettings,
        leaders: Leaders | None,
        *,
        is_awaited: Callable[[bytes], bool],
    ) -> None:
        """`is_awaited` returns whether a topic is needed before its queue is open."""
        self.by_topic: dict[bytes, list[HostedQueue]] = {}
        self.reader = RecordReader(settings.batch_cache_bytes, is_curable=self._is_curable)
        self.lanes = Lanes(
            disk,
            clock,
            save_ms=settings.lanes_save_ms,
            grown=self._grown,
            begins=self._begins,
        )
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._is_awaited = is_awaited
        self._remote: RemoteCopies | None = None
        self._supply: QueueSupply | None = None
        if leaders is not None:
            self._supply = QueueSupply(clock, topics, leaders, self.lanes)
            self._remote = RemoteCopies(
                clock,
                topics,
                leaders,
                grown=lambda copy: self._advance(copy.topic, copy.number, copy),
                begins=self._copy_begins,
                arrived=self._arrived,
                is_used=self._is_used,
            )

    def of(self, topic: Topic, number: int) -> PartitionLanes | RemoteCopy:
        """Return the lanes of a partition, which are followed from now on."""
        partition = topic.partitions[number]
        if self._remote is None or self._topics.keeps(partition):
            return self.lanes.of(partition)
        return self._remote.of(topic, number)

    def source_of(self, topic: Topic, number: int) -> Source:
        """Return the source from which the records of a partition are read."""
        return self.of(topic, number).source

    def _is_curable(self, source: Source) -> bool:
        topic = self._topics.find(source.name.topic)
        if self._leaders is None or topic is None:
            return False
        return self._leaders.is_curable(topic.id, source.name.partition)

    def stop(self) -> None:
        if self._remote is not None:
            self._remote.stop()

    # Following the log

    def _grown(self, partition: Partition, _: int) -> None:
        """Notify that a replica on this node is indexed further."""
        if self._supply is not None:
            self._supply.grown(partition)
        topic = self._topics.find(partition.name.topic)
        if topic is not None and topic.id in self.by_topic:
            self._advance(topic, partition.name.partition, self.lanes.of(partition))

    def _advance(self, topic: Topic, number: int, lanes: PartitionLanes | RemoteCopy) -> None:
        """Advance the queues of a topic to the current end of a partition."""
        now_ms = self._clock.now_ms()
        for hosted in self.by_topic.get(topic.id, ()):
            if number >= len(hosted.queue.partitions):
                continue
            known = hosted.queue.partitions[number]
            if known.index is not lanes.index:
                # The source has changed. Until the new one has caught up, the queue would
                # consider the missing messages as passed.
                is_behind = lanes.stable_end < known.high_watermark
                if is_behind or not self._is_current(topic, number, lanes):
                    continue
                self._switch(hosted, number, lanes)
            hosted.queue.advance(number, lanes.stable_end, now_ms)
            hosted.wake()

    def _is_current(self, topic: Topic, number: int, lanes: PartitionLanes | RemoteCopy) -> bool:
        partition = topic.partitions[number]
        if self._topics.keeps(partition):
            return lanes.source is partition
        return isinstance(lanes, RemoteCopy)

    def _switch(self, hosted: HostedQueue, number: int, lanes: PartitionLanes | RemoteCopy) -> None:
        known, start = hosted.queue.partitions[number], lanes.source.start_offset
        if known.log_start < start:
            # Do this while the former index still covers the offsets that the new one lacks.
            known.start_moved(start, self._clock.now_ms())
        known.index, known.arrivals = lanes.index, lanes.arrivals
        former, hosted.sources[number] = hosted.sources[number], lanes.source
        self.reader.drop(former)
        hosted.arrived(former)  # Nothing waits for that one any more.

    def _begins(self, partition: Partition, start: int) -> None:
        """Notify of a later log start, before the lane index drops what was removed."""
        topic = self._topics.find(partition.name.topic)
        if topic is not None:
            self._tell_start(topic, self.lanes.of(partition), partition.name.partition, start)

    def _copy_begins(self, copy: RemoteCopy, start: int) -> None:
        self._tell_start(copy.topic, copy, copy.number, start)

    def _tell_start(
        self, topic: Topic, lanes: PartitionLanes | RemoteCopy, number: int, start: int
    ) -> bool:
        """Notify queues of what retention removed; return whether it was new to any."""
        is_news = False
        for hosted in self.by_topic.get(topic.id, ()):
            known = hosted.queue.partitions[number] if number < len(hosted.sources) else None
            if known is not None and known.index is lanes.index and known.log_start < start:
                known.start_moved(start, self._clock.now_ms())
                hosted.wake()
                is_news = True
        return is_news

    def check_starts(self) -> None:
        """Notify queues of what retention removed here, and then trim the lane indexes."""
        for topic_id in list(self.by_topic):
            topic = self._topics.find_by_id(topic_id)
            for number, partition in enumerate(topic.partitions if topic is not None else ()):
                if topic is None or not self._topics.keeps(partition):
                    continue  # Their leaders report it.
                lanes, start = self.lanes.of(partition), partition.start_offset
                if self._tell_start(topic, lanes, number, start):
                    lanes.index.forget_before(start)
                    lanes.arrivals.forget_before(start)

    # Replicas are added and removed

    def copies_changed(self, topic_ids: Iterable[bytes]) -> None:
        """Follow changes of the local replicas or of the leaders of these topics."""
        for topic_id in topic_ids:
            topic = self._topics.find_by_id(topic_id)
            if self._remote is not None:
                self._remote.leaders_changed(topic_id)
            if topic is None or not self.by_topic.get(topic_id):
                continue
            for number in range(len(topic.partitions)):
                self._advance(topic, number, self.of(topic, number))

    def drop(self, hosted: HostedQueue) -> None:
        """Drop the sources of a queue whose topic was deleted."""
        for source in hosted.sources:
            self.reader.drop(source)
            if isinstance(source, Partition):
                self.lanes.drop(source)

    def _is_used(self, copy: RemoteCopy) -> bool:
        """Whether a queue reads a remote partition, or will as soon as it can."""
        topic_id, number = copy.key
        topic = self._topics.find_by_id(topic_id)
        if topic is None:
            return False
        queues = self.by_topic.get(topic_id, ())
        if any(number < len(one.sources) and one.sources[number] is copy for one in queues):
            return True
        is_wanted = bool(queues) or self._is_awaited(topic_id)
        return is_wanted and not self._topics.keeps(topic.partitions[number])

    def _arrived(self, copy: RemoteCopy) -> None:
        for hosted in self.by_topic.get(copy.topic.id, ()):
            hosted.arrived(copy)
