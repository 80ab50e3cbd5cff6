"""Reads partitions from given offsets: whole batches, or single records.

No group is involved: the caller gives the start and, optionally, the end. The checksum of every
batch is verified. Control batches, which only mark the ends of transactions, are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from goqueue.client.aborted import AbortedTransaction, AbortedTransactions
from goqueue.client.cluster import Cluster
from goqueue.client.errors import ErrorContext, check
from goqueue.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, READER, Offsets
from goqueue.client.positions import Position
from goqueue.client.settings import ReaderSettings
from goqueue.model.batch import (
    HEADER_BYTES,
    BatchHeader,
    Header,
    check_header,
    decode_records,
    read_header,
    unpack_payload,
)
from goqueue.model.compression import READER_UNPACKED_BYTES_MAX
from goqueue.model.errors import (
    CorruptBatch,
    GoQueueError,
    OffsetOutOfRange,
    RecordTooLarge,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.messages import fetch


class RawBatch(NamedTuple):
    """One batch as stored; `data` is valid while a reference to it is held."""

    topic: str
    partition: int
    header: BatchHeader
    data: memoryview


class ReadRecord(NamedTuple):
    """One record and its position."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Reader:
    """Reads partitions, each from its own offset. It belongs to one thread.

    >>> reader = client.reader(["orders"], Position.earliest(), until=Position.latest())
    >>> [record.value for record in reader.records()]
    [b'hello', b'world']
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        settings: ReaderSettings | None = None,
    ) -> None:
        self.settings = settings or ReaderSettings()
        self.positions = dict(positions)  # the next offset of each partition
        self._cluster = cluster
        self._ends = dict(ends or {})
        self._turn = 0

    @property
    def is_at_end(self) -> bool:
        """Whether every partition has been read to its end; never without ends."""
        return not self._open_partitions()

    def records(self) -> Iterator[ReadRecord]:
        """Yield every record up to the ends; without ends, wait for more indefinitely."""
        while not self.is_at_end:
            yield from self.poll()

    def fetch_batches(self) -> Iterator[RawBatch]:
        """Yield every batch up to the ends; the first and last may have records beyond them."""
        while not self.is_at_end:
            for batch, _ in self._poll_batches():
                yield batch

    def poll(self, *, wait_ms: int | None = None) -> Iterator[ReadRecord]:
        """Return the records of one round of fetches; none if nothing arrived within the wait."""
        for batch, start in self._poll_batches(wait_ms):
            yield from self._records_of(batch, start)

    def poll_batches(self, *, wait_ms: int | None = None) -> list[RawBatch]:
        """Return the batches of one round of fetches; none if nothing arrived within the wait."""
        return [batch for batch, _ in self._poll_batches(wait_ms)]

    # One round of fetches

    def _poll_batches(self, wait_ms: int | None = None) -> Iterator[tuple[RawBatch, int]]:
        """Yield batches and the offset requested in each; each advances its partition."""
        answers = self._cluster.retrying(
            lambda: self._fetch(self.settings.wait_ms if wait_ms is None else wait_ms),
            final=(UnknownTopic, UnknownPartition),
        )
        for partition, answer in answers:
            aborted = AbortedTransactions(
                AbortedTransaction(each.first_offset, each.producer_id)
                for each in answer.aborted_transactions or ()
            )
            for header, data in self._batches(partition, answer.records):
                wanted = self.positions[partition]
                self.positions[partition] = max(wanted, header.next_offset)
                is_hidden = aborted.covers(header, data) or header.is_control
                if not is_hidden and header.next_offset > wanted:
                    yield RawBatch(partition.topic, partition.partition, header, data), wanted

    def _fetch(self, wait_ms: int) -> list[tuple[TopicPartition, fetch.PartitionData]]:
        by_leader = self._cluster.by_leader(self._in_turn())
        # Empty partitions of one broker must not delay records of another.
        share_ms = wait_ms // len(by_leader) if by_leader else wait_ms
        requests = {node: self._request(topics, share_ms) for node, topics in by_leader.items()}
        answers = []
        for response in self._cluster.call_leaders(fetch, requests, extra_ms=share_ms):
            check(response.error_code)
            for topic in response.responses:
                for each in topic.partitions:
                    partition = TopicPartition(topic.topic, each.partition_index)
                    if self._is_usable(partition, each):
                        answers.append((partition, each))
        return answers

    def _request(self, topics: Mapping[str, list[int]], wait_ms: int) -> fetch.FetchRequest:
        settings = self.settings
        return fetch.FetchRequest(
            replica_id=READER,
            max_wait_ms=wait_ms,
            min_bytes=settings.bytes_min,
            max_bytes=settings.bytes_max,
            isolation_level=READ_COMMITTED if settings.is_committed_only else READ_UNCOMMITTED,
            topics=[
                fetch.FetchTopic(
                    name,
                    partitions=[
                        fetch.FetchPartition(
                            index,
                            fetch_offset=self.positions[TopicPartition(name, index)],
                            partition_max_bytes=settings.partition_bytes_max,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in topics.items()
            ],
        )

    def _is_usable(self, partition: TopicPartition, answer: fetch.PartitionData) -> bool:
        try:
            check(answer.error_code, None, ErrorContext(partition.topic, partition.partition))
        except OffsetOutOfRange as error:
            self._reset_position(partition, error)
            return False
        return True

    def _reset_position(self, partition: TopicPartition, error: GoQueueError) -> None:
        """Move a position that is out of range, as the settings say."""
        kept = Offsets(self._cluster).ranges([partition])[partition]
        if self.settings.out_of_range == "fail":
            raise OffsetOutOfRange(
                partition, self.positions[partition], start=kept.start, end=kept.end
            ) from error
        is_earliest = self.settings.out_of_range == "earliest"
        self.positions[partition] = kept.start if is_earliest else kept.end

    def _batches(
        self, partition: TopicPartition, records: bytes | bytearray | memoryview | None
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The complete batches of a response; the broker may truncate the last one."""
        data = memoryview(records or b"")
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = read_header(data, position)
            end = position + header.size
            if header.size < HEADER_BYTES:
                raise self._corrupt(partition)
            if end > len(data):
                break
            batch = data[position:end]
            try:
                check_header(header, batch)
            except CorruptBatch as error:
                raise self._corrupt(partition) from error
            yield header, batch
            position = end
        if position == 0 and len(data) > 0:
            raise RecordTooLarge(
                f"A batch of {partition} is larger than a fetch of "
                f"{self.settings.partition_bytes_max} bytes; raise partition_bytes_max."
            )

    def _records_of(self, batch: RawBatch, start: int) -> Iterator[ReadRecord]:
        header = batch.header
        end = self._ends.get(TopicPartition(batch.topic, batch.partition))
        payload = unpack_payload(batch.data, header, bytes_max=READER_UNPACKED_BYTES_MAX)
        for record in decode_records(header, payload):
            if record.offset < start:
                continue
            if end is not None and record.offset >= end:
                break
            yield ReadRecord(
                batch.topic,
                batch.partition,
                record.offset,
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
            )

    def _in_turn(self) -> list[TopicPartition]:
        """Return the partitions still to read, rotated by one each time.

        A broker fills a response from the front, so a busy first partition would starve the others.
        """
        partitions = self._open_partitions()
        self._turn += 1
        start = self._turn % len(partitions) if partitions else 0
        return partitions[start:] + partitions[:start]

    def _open_partitions(self) -> list[TopicPartition]:
        return [
            partition
            for partition, position in self.positions.items()
            if partition not in self._ends or position < self._ends[partition]
        ]

    def _corrupt(self, partition: TopicPartition) -> CorruptBatch:
        return CorruptBatch(
            f"The batch at offset {self.positions[partition]} of {partition} is damaged; "
            "continue from a later offset, or check the broker's disk."
        )


def start_reading(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    start: Position | Mapping[TopicPartition, int],
    *,
    until: Position | None = None,
    settings: ReaderSettings | None = None,
) -> Reader:
    """Create a reader from a position, or from offsets, to another position as it is now."""
    chosen = settings or ReaderSettings()
    wanted = list(partitions)
    offsets = Offsets(cluster)
    positions = offsets.resolve(wanted, start) if isinstance(start, Position) else dict(start)
    ends = None
    if until is not None:
        ends = offsets.resolve(wanted, until, is_committed_only=chosen.is_committed_only)
    return Reader(cluster, positions, ends=ends, settings=chosen)
