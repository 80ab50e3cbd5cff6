"""What queues read: the lane indexes of local replicas, and remote copies of other partitions.

An index is created when a topic gets its first queue. It follows the last stable offset, because
records of an open transaction are not messages yet. It advances in bounded steps, so that indexing
a long log does not block the event loop. It is saved from time to time next to the segments; after
a crash the rest is read from the log again.

A partition has one source at a time for all queues that read it, until a replica is added to this
node or removed from it. Its queues then switch to the other source as soon as that one has caught
up with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial as bound

from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.queues.records import RecordReader, Source
from goqueue.broker.queues.remote_partitions import RemoteCopies, RemoteCopy
from goqueue.broker.queues.supply import QueueSupply
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.config import DeliverySettings
from goqueue.delivery import NO_LANE, NORMAL, Arrivals, LaneIndex, LaneState
from goqueue.loop.clock import Clock
from goqueue.model.attributes import PRIORITY_HEADER, TTL_HEADER, contains_prefix, parse_priority
from goqueue.model.batch import (
    CODEC_MASK,
    BatchHeader,
    decode_records,
    read_header,
    unpack_payload,
)
from goqueue.model.columns import decode_columns
from goqueue.model.compression import Buffer, meter
from goqueue.model.decoding import decoder, searcher
from goqueue.model.errors import CorruptBatch, GoQueueError, InvalidAttribute
from goqueue.partition import AbortedSpans, Partition
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed

LANES_FILE = "lanes"
_MAGIC = b"GQLN"
_VERSION = 2  # 1: batches that cannot be read were in the normal lane
# Bytes read in one event-loop iteration, and from how many logs: about a millisecond, by which
# other work in that iteration is delayed.
STEP_BYTES = 1 << 20
STEP_UNPACKED_BYTES = 16 << 20  # a few bytes may decompress to many
STEP_PARTITIONS = 100
HEADERS_MAX = 100_000  # searched for priorities per batch
RETRY_MS = 1000
_has_priority = searcher(PRIORITY_HEADER.encode())
_has_ttl = searcher(TTL_HEADER.encode())

_log = logging.getLogger(__name__)


class PartitionLanes:
    """One partition's index and the arrival times of its messages."""

    is_known = True  # A local replica needs no report from a leader.

    def __init__(self, disk: Disk, partition: Partition, *, now_ms: int) -> None:
        self.partition = partition
        self._disk = disk
        self.index = self._load()
        self.arrivals = Arrivals(0, now_ms)
        self.saved_end = self.index.end

    @property
    def source(self) -> Partition:
        """The source from which records are read."""
        return self.partition

    @property
    def stable_end(self) -> int:
        """The offset up to which queues may see messages."""
        return min(self.index.end, self.partition.last_stable_offset)

    def _load(self) -> LaneIndex:
        saved = read_framed(self._disk, self._path, magic=_MAGIC, version=_VERSION, body=LaneState)
        index = None
        if saved is not None and saved.end <= self.partition.end_offset:
            index = LaneIndex.restore(saved)
        return index if index is not None else LaneIndex(self.partition.start_offset)

    @property
    def _path(self) -> str:
        return f"{self.partition.log.folder}/{LANES_FILE}"

    def follow(self, bytes_max: int, now_ms: int) -> tuple[int, bool]:
        """Index what was added since; return the number of bytes, and whether more is left.

        Reads about `bytes_max` at most, and at least one batch.
        """
        partition, index = self.partition, self.index
        size = 0
        if index.end < partition.start_offset:
            index.forget_before(partition.start_offset)
        first = index.end
        while index.end < partition.last_stable_offset and size < bytes_max:
            try:
                part = partition.read(index.end, bytes_max=bytes_max - size, is_committed_only=True)
                data = b"" if part is None else part.read_checked()
                aborted = AbortedSpans(() if part is None else partition.aborted_in(part))
            except CorruptBatch as error:
                # They cannot be read, so their lane does not matter.
                end = error.next_offset or partition.last_stable_offset
                index.note(index.end, max(end, index.end + 1) - 1, NORMAL)
                continue
            if not data:
                break
            size += len(data) if self._note(data, aborted) else bytes_max
        if index.end > first:
            self.arrivals.note(first, now_ms)
        return size, index.end < partition.last_stable_offset and size >= bytes_max

    def _note(self, data: bytes, aborted: AbortedSpans) -> bool:
        """Index batches; return False if that was too much for one step."""
        index, at = self.index, 0
        unpacked_max = meter.bytes_total + STEP_UNPACKED_BYTES
        may_have = self.partition.settings.has_attributes
        is_named = may_have and _has_priority(data, 0)
        if may_have and not index.may_expire:
            index.may_expire = _has_ttl(data, 0)
        view = memoryview(data)
        while at < len(data):
            if meter.bytes_total > unpacked_max:
                return False
            header = read_header(data, at)
            batch = view[at : at + header.size]
            at += header.size
            lane = NO_LANE
            is_dropped = header.is_control or (aborted and aborted.cover(header))
            payload = None if is_dropped else self._readable(header, batch)
            if payload is not None:
                lane = NORMAL
                is_packed = header.attributes & CODEC_MASK
                if (is_named or (may_have and is_packed)) and contains_prefix(payload, 0):
                    index.may_expire = index.may_expire or _has_ttl(payload, 0)
                    self._note_records(header, payload)
            if header.last_offset >= index.end:
                index.note(max(index.end, header.base_offset), header.last_offset, lane)
        return True

    def _readable(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """Return the decompressed records of a batch; None, and log it, if they are not valid.

        Earlier versions stored such batches. They hold no readable message, and may announce
        billions of records: queues must not look for them one by one.
        """
        try:
            payload = unpack_payload(batch, header)
            if not _is_sound(header, payload):
                decode_columns(
                    header, payload
                )  # Only what the readers of queues refuse is left out.
            return payload
        except GoQueueError as error:
            _log.error(
                "%s: the records of the batch at offset %d cannot be read; queue groups pass over "
                "offsets %d to %d: %s",
                self.partition.name,
                header.base_offset,
                header.base_offset,
                header.last_offset,
                error,
            )
            return None

    def _note_records(self, header: BatchHeader, payload: Buffer) -> None:
        index = self.index
        header_count = 0
        for record in decode_records(header, payload):
            header_count += len(record.headers)
            if header_count > HEADERS_MAX:
                return  # Producers are not allowed that many; the rest has no priority.
            if index.end <= record.offset <= header.last_offset:
                index.note(record.offset, record.offset, _lane_of(record.headers))

    def save(self) -> Callable[[], None] | None:
        """Return a function that saves the index, on any thread; None if nothing has changed."""
        if self.saved_end == self.index.end or self.partition.is_gone:
            return None
        self.saved_end = self.index.end
        return bound(
            write_framed,
            self._disk,
            self._path,
            magic=_MAGIC,
            version=_VERSION,
            body=self.index.state(),
            is_durable=False,
        )


class Lanes:
    """The indexes of all partitions that have queues; notifies when they advance."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        *,
        save_ms: int,
        grown: Callable[[Partition, int], None],
        begins: Callable[[Partition, int], None],
    ) -> None:
        """`grown` is called with a partition and the offset up to which it is indexed.

        `begins` is called with a later log start, before the index drops what was removed.
        """
        self._disk = disk
        self._clock = clock
        self._save_ms = save_ms
        self._grown = grown
        self._begins = begins
        self._lanes: dict[Partition, PartitionLanes] = {}
        self.behind: dict[Partition, None] = {}  # with records that are not indexed yet
        self._is_following = False
        self._is_saving = False

    def of(self, partition: Partition) -> PartitionLanes:
        """Return the lanes of a partition, and follow its log from now on."""
        lanes = self._lanes.get(partition)
        if lanes is None:
            now_ms = self._clock.now_ms()
            lanes = PartitionLanes(self._disk, partition, now_ms=now_ms)
            self._lanes[partition] = lanes
            partition.watchers[self] = None
            if lanes.index.end < partition.last_stable_offset:
                self.behind[partition] = None
                self._follow_soon()
            self._save_later()
        return lanes

    def partition_advanced(self, partition: Partition) -> None:
        """Schedule indexing at the end of this loop iteration, together with other partitions."""
        if partition.is_gone:
            self.drop(partition)
            return
        self.behind[partition] = None
        self._follow_soon()

    def drop(self, partition: Partition) -> None:
        self._lanes.pop(partition, None)
        self.behind.pop(partition, None)
        partition.watchers.pop(self, None)

    def save_all(self) -> None:
        """Save all indexes now; for a clean stop."""
        for lanes in self._lanes.values():
            self._write(lanes.save())

    def _follow_soon(self) -> None:
        if not self._is_following:
            self._is_following = True
            self._clock.call_soon(self._follow)

    def catch_up(self) -> None:
        """Index new records now: a client may request a message as soon as its write returned."""
        if self.behind:
            self._follow()

    def _follow(self) -> None:
        """Index one step's worth of new records; the rest waits for the next iteration."""
        self._is_following = False
        room = STEP_BYTES
        for partition in list(self.behind)[:STEP_PARTITIONS]:
            del self.behind[partition]
            lanes = self._lanes.get(partition)
            if lanes is None or partition.is_gone:
                continue
            room -= self._follow_one(lanes, room)
            self._grown(partition, lanes.index.end)
            if room <= 0:
                break
        if self.behind:
            self._follow_soon()

    def _follow_one(self, lanes: PartitionLanes, bytes_max: int) -> int:
        start = lanes.partition.start_offset
        if lanes.index.end < start:
            self._begins(lanes.partition, start)
        try:
            size, has_more = lanes.follow(bytes_max, self._clock.now_ms())
        except GoQueueError as error:
            _log.error("cannot index the lanes of %s yet: %s", lanes.partition.name, error)
            again = bound(self.partition_advanced, lanes.partition)
            self._clock.call_later(RETRY_MS, again)
            return 0
        if has_more:
            self.behind[lanes.partition] = None
        return size

    def _save_later(self) -> None:
        if not self._is_saving:
            self._is_saving = True
            self._clock.call_later(self._save_ms, self._save_some)

    def _save_some(self) -> None:
        writes = [write for one in self._lanes.values() if (write := one.save()) is not None]
        self._is_saving = False
        if self._lanes:
            self._save_later()
        if writes:
            self._clock.run_blocking(bound(_write_all, self._write, writes), _raise)

    @staticmethod
    def _write(write: Callable[[], None] | None) -> None:
        try:
            if write is not None:
                write()
        except OSError as error:
            _log.warning("cannot save a lane index; it will be rebuilt from the log: %s", error)


class QueueSources:
    """The lanes and records of all partitions that have queues, and the queues that read them."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        topics: Topics,
        settings: DeliverySettings,
        leaders: Leaders,
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
        if self._topics.keeps(partition):
            return self.lanes.of(partition)
        return self._remote.of(topic, number)

    def source_of(self, topic: Topic, number: int) -> Source:
        """Return the source from which the records of a partition are read."""
        return self.of(topic, number).source

    def _is_curable(self, source: Source) -> bool:
        topic = self._topics.find(source.name.topic)
        return topic is not None and self._leaders.is_curable(topic.id, source.name.partition)

    def stop(self) -> None:
        self._remote.stop()

    # Following the log

    def _grown(self, partition: Partition, _: int) -> None:
        """Notify that a replica on this node is indexed further."""
        if partition in self._supply.watched:
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


def _write_all(
    write: Callable[[Callable[[], None]], None], writes: list[Callable[[], None]]
) -> None:
    for one in writes:
        write(one)


def _raise(_: object, error: Exception | None) -> None:
    if error is not None:
        raise error


def _is_sound(header: BatchHeader, payload: Buffer) -> bool:
    """Whether the records pass the check of a producer's batch, except for gaps by compaction."""
    try:
        decoder.check_records(payload, 0, header.record_count, header.base_timestamp, True)
    except GoQueueError:
        return False
    return True


def _lane_of(headers: tuple[tuple[str, bytes | None], ...]) -> int:
    lane = NORMAL
    for name, content in headers:
        if name == PRIORITY_HEADER:
            try:
                lane = parse_priority(content)
            except InvalidAttribute:
                lane = NORMAL  # It was stored while the topic did not check such headers.
    return lane
