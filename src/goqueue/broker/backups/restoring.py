"""Writes the data folder of a new node from the metadata and the logs of a backup.

The folder is that of a single node whose process was killed: its next start recovers the logs and
replays its state machines, and with peers it becomes the first node of a cluster. Offsets, topic
ids and group ids stay. What would collide with the lost cluster is moved ahead: leader epochs,
producer ids, the epochs of transactional ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple

from msgspec.structs import replace

from goqueue.broker.backups.fencing import fencing_records
from goqueue.broker.controller.identity import write_identity
from goqueue.broker.controller.metadata import METADATA_FOLDER
from goqueue.broker.topics.partition_files import partition_folder, write_topic_id
from goqueue.cluster.facts import (
    ClusterFact,
    Fact,
    NextProducerId,
    NodeFact,
    PartitionFact,
    TopicFact,
    decode_decision,
)
from goqueue.cluster.metadata import change_record
from goqueue.model.batch import (
    HEADER_BYTES,
    Record,
    build_batch,
    encode_batch,
    read_header,
)
from goqueue.model.errors import CorruptBatch
from goqueue.model.names import TRANSACTION_TOPIC
from goqueue.storage.disk import Disk
from goqueue.storage.log import write_start_offset
from goqueue.storage.segment import LOG_SUFFIX, segment_name

# Followers, clients and coordinators of the lost cluster may know epochs and ids that were assigned
# after the backup. These distances are more than a cluster assigns between two backups.
EPOCHS_AHEAD = 1_000
PRODUCER_IDS_AHEAD = 1 << 40
_FENCING_IDS_AHEAD = 1 << 39
_RECORDS_PER_BATCH = 500
_EMPTY_OFFSETS_MAX = 1 << 30


class Object(NamedTuple):
    """Successive batches of a partition in one piece, small enough for the memory."""

    base: int  # the offsets that it covers
    end: int
    last_end: int  # after the last record that is in it; what follows was removed by compaction
    data: Iterable[bytes]


class Log(NamedTuple):
    """A partition of a backup."""

    number: int
    start: int
    end: int
    objects: Iterable[Object]


class Topic(NamedTuple):
    """A topic of a backup: the greatest leader epoch in it, and its partitions."""

    name: str
    epoch: int
    logs: Sequence[Log]


def write_node(
    disk: Disk,
    metadata: bytes,
    topics: Sequence[Topic],
    *,
    now_ms: int,
    node_id: int = 0,
    cluster_id: str = "",
) -> None:
    """Write everything into an empty folder, durably; with a cluster id, under that identity."""
    facts = decode_decision(metadata)
    named = {one.name: one for one in facts if isinstance(one, TopicFact)}
    first_id = max((one.value for one in facts if isinstance(one, NextProducerId)), default=0)
    fencing_ids = count(first_id + _FENCING_IDS_AHEAD)
    epochs = _epochs(facts, topics)
    for topic in topics:
        fact = named[topic.name]
        write_topic_id(disk, fact.name, fact.id)
        for log in topic.logs:
            writer = _LogWriter(disk, partition_folder(fact.name, log.number), log)
            writer.write()
            if topic.name == TRANSACTION_TOPIC:
                records = fencing_records(writer.batches(), fencing_ids, now_ms=now_ms)
                writer.append(records, epoch=epochs[fact.id])
    _write_metadata(disk, restored_facts(facts, epochs, first_id=first_id), now_ms=now_ms)
    if cluster_id:
        write_identity(disk, node_id=node_id, cluster_id=cluster_id)


def restored_facts(
    facts: Sequence[object], epochs: dict[bytes, int], *, first_id: int
) -> Iterator[Fact]:
    """Return the entries for a new single node: without nodes, with later epochs and ids."""
    yield NextProducerId(first_id + PRODUCER_IDS_AHEAD)
    for fact in facts:
        if isinstance(fact, TopicFact):
            yield replace(fact, leader_epoch=epochs[fact.id])
        elif not isinstance(fact, ClusterFact | NodeFact | PartitionFact | NextProducerId):
            yield fact  # type: ignore[misc]


def _epochs(facts: Sequence[object], topics: Sequence[Topic]) -> dict[bytes, int]:
    """Return for each topic an epoch that no leader of it has had."""
    in_logs = {topic.name: topic.epoch for topic in topics}
    epochs = {
        one.id: max(one.leader_epoch, in_logs.get(one.name, 0))
        for one in facts
        if isinstance(one, TopicFact)
    }
    for one in facts:
        if isinstance(one, PartitionFact):
            epochs[one.topic_id] = max(epochs.get(one.topic_id, 0), one.leader_epoch)
    return {topic_id: epoch + EPOCHS_AHEAD for topic_id, epoch in epochs.items()}


def _write_metadata(disk: Disk, facts: Iterable[Fact], *, now_ms: int) -> None:
    file = disk.create(f"{METADATA_FOLDER}/{segment_name(0)}{LOG_SUFFIX}")
    offset, waiting = 0, [change_record(one, now_ms=now_ms) for one in facts]
    for first in range(0, len(waiting), _RECORDS_PER_BATCH):
        some = waiting[first : first + _RECORDS_PER_BATCH]
        file.append(encode_batch(some, base_offset=offset, leader_epoch=0))
        offset += len(some)
    file.sync()
    file.close()
    _sync_folders(disk, METADATA_FOLDER)


class _LogWriter:
    """Writes the segments of one partition, one for each object."""

    def __init__(self, disk: Disk, folder: str, log: Log) -> None:
        self._disk = disk
        self._folder = folder
        self._log = log
        self._paths: list[str] = []
        self._end = log.start
        self._epoch = 0  # of the last batch

    def write(self) -> None:
        if self._log.start:
            write_start_offset(self._disk, self._folder, self._log.start)
        for one in self._log.objects:
            if not self._paths:
                self._end = one.base  # The start of the log may be in the middle of a batch.
            self._write_segment(self._filled(one.data))
        if self._end < self._log.end:
            self._write_segment(self._empty_until(self._log.end, self._epoch))
        if self._log.start or self._paths:
            _sync_folders(self._disk, self._folder)

    def _filled(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield batches, with empty ones where compaction has removed some.

        Recovery takes a gap for damage, and what follows a gap at the end of a segment for lost.
        """
        for data in _whole_batches(parts):
            at = begin = 0
            while at < len(data):
                header = read_header(data, at)
                if header.base_offset > self._end:
                    yield data[begin:at]
                    yield from self._empty_until(header.base_offset, header.leader_epoch)
                    begin = at
                at += header.size
                self._end, self._epoch = header.next_offset, header.leader_epoch
            yield data[begin:]

    def _empty_until(self, end: int, epoch: int) -> Iterator[bytes]:
        """Yield batches without records for offsets whose records were removed."""
        while self._end < end:
            count = min(end - self._end, _EMPTY_OFFSETS_MAX)
            batch = build_batch(
                b"",
                record_count=0,
                base_offset=self._end,
                last_offset_delta=count - 1,
                leader_epoch=epoch,
            )
            self._end += count
            yield bytes(batch)

    def append(self, records: Sequence[Record], *, epoch: int) -> None:
        """Append records of the restore itself, in a segment of their own."""
        if not records:
            return
        parts, offset = [], self._end
        for first in range(0, len(records), _RECORDS_PER_BATCH):
            some = records[first : first + _RECORDS_PER_BATCH]
            parts.append(bytes(encode_batch(some, base_offset=offset, leader_epoch=epoch)))
            offset += len(some)
        self._write_segment(parts)
        self._end = offset
        _sync_folders(self._disk, self._folder)

    def batches(self) -> Iterator[bytes]:
        """Yield the batches that were written, from the disk."""
        return chain.from_iterable(_batches(self._disk, path) for path in self._paths)

    def _write_segment(self, data: Iterable[bytes]) -> None:
        path = f"{self._folder}/{segment_name(self._end)}{LOG_SUFFIX}"
        file = self._disk.create(path)
        for some in data:
            file.append(some)
        file.sync()
        file.close()
        self._paths.append(path)


def _whole_batches(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Regroup bytes, so that each part consists of whole batches."""
    waiting = b""
    for part in parts:
        waiting += part
        at = 0
        while at + HEADER_BYTES <= len(waiting):
            size = read_header(waiting, at).size
            if size < HEADER_BYTES:
                raise CorruptBatch("An object of the backup is damaged: it has no whole batch.")
            if at + size > len(waiting):
                break
            at += size
        if at:
            yield waiting[:at]
            waiting = waiting[at:]
    if waiting:
        raise CorruptBatch("An object of the backup is damaged: it ends within a batch.")


def _batches(disk: Disk, path: str) -> Iterator[bytes]:
    file = disk.open(path)
    data = file.read(0, file.size())
    file.close()
    at = 0
    while at < len(data):
        header = read_header(data, at)
        if header.record_count:
            yield data[at : at + header.size]
        at += header.size


def _sync_folders(disk: Disk, folder: str) -> None:
    """Make the names of a folder durable, and its own in those above it."""
    while True:
        disk.sync_folder(folder)
        if not folder:
            return
        folder = folder.rpartition("/")[0]
