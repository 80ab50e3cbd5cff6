"""Packs Arrow batches into record batches: which rows go where, and when they are sent.

Python works on whole batches here: it computes the partitions of all rows at once, sorts the rows
by partition, and has the encoder append them to the open batch of each partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from goqueue.client import Producer
from goqueue.client.batching import Batch
from goqueue.model.encode_reference import Column, Columns
from goqueue.model.encoding import encoder
from goqueue.model.errors import InvalidRequest, UnknownPartition
from goqueue.model.names import TopicPartition
from goqueue.model.packing import PackedRecords
from goqueue.spark.sink.rows import columns_of

BATCH_BYTES_MAX = 1 << 20
BATCH_RECORDS_MAX = 10_000
OPEN_BYTES_MAX = 64 << 20  # of all open batches; beyond that they are sent as they are

Numbers = np.ndarray[Any, np.dtype[np.int32]]
_SMALL = 1 << 16


class RowWriter:
    """Writes rows with a producer, from one Arrow batch after another."""

    def __init__(self, producer: Producer, topic: str | None) -> None:
        self._producer = producer
        self._topic = topic
        self._open: dict[TopicPartition, PackedRecords] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows. A given topic takes precedence over a column, as in Spark's Kafka sink."""
        if rows.num_rows:
            self.write_columns(rows, columns_of(rows))

    def write_columns(self, rows: pa.RecordBatch, columns: Columns) -> list[Batch]:
        """Write rows already converted to columns; return the batches that were sent."""
        closed: list[tuple[TopicPartition, PackedRecords]] = []
        for topic, row_indexes in _by_topic(rows, self._topic):
            numbers = self._numbers(topic, rows, columns[0], row_indexes)
            for number, chosen in grouped(numbers, row_indexes):
                closed += self._pack(TopicPartition(topic, number), columns, chosen)
        if sum(one.size for one in self._open.values()) > OPEN_BYTES_MAX:
            closed += self._take_open()
        return self._producer.send_packed(closed)

    def push(self) -> list[Batch]:
        """Send every open batch without waiting for the responses."""
        return self._producer.send_packed(self._take_open())

    def _numbers(
        self, topic: str, rows: pa.RecordBatch, keys: Column, row_indexes: Numbers
    ) -> Numbers:
        """Return the partition of each row: the given one, or that of its key, or any."""
        count = self._producer.partition_count(topic)
        numbers = np.full(len(row_indexes), -1, np.int32)
        if keys is not None:
            numbers = np.frombuffer(encoder.partitions(keys, count), np.int32)[row_indexes]
        named = _named_partitions(rows)
        if named is not None:
            _check_partitions(topic, named[row_indexes], count)
            chosen = named[row_indexes]
            numbers = np.where(chosen == _UNNAMED, numbers, chosen).astype(np.int32)
        is_free = numbers < 0
        if is_free.any():
            any_number = self._producer.choose_partition(topic, None, None)
            numbers = np.where(is_free, np.int32(any_number), numbers)
        return numbers

    def _pack(
        self, partition: TopicPartition, columns: Columns, row_indexes: Numbers
    ) -> Iterator[tuple[TopicPartition, PackedRecords]]:
        """Add rows to the open batch of a partition; yield the batches that are full."""
        first, view = 0, row_indexes.data
        while first < len(row_indexes):
            packed = self._open.get(partition)
            if packed is None:
                packed = self._open[partition] = PackedRecords()
            first += packed.add(
                columns,
                view,
                first,
                bytes_max=BATCH_BYTES_MAX,
                records_max=BATCH_RECORDS_MAX,
            )
            if first < len(row_indexes):
                yield partition, self._open.pop(partition)

    def _take_open(self) -> list[tuple[TopicPartition, PackedRecords]]:
        batches = list(self._open.items())
        self._open.clear()
        return batches


def grouped(numbers: Numbers, row_indexes: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield the row indexes of each number, in order."""
    if not len(numbers):
        return
    # 16-bit numbers are sorted in one pass; few topics have more partitions than that.
    short = numbers.astype(np.uint16) if numbers.max() < _SMALL else numbers
    order = np.argsort(short, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    for some in np.split(order, cuts):
        yield int(numbers[some[0]]), np.ascontiguousarray(row_indexes[some], np.int32)


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Numbers]]:
    row_indexes = np.arange(rows.num_rows, dtype=np.int32)
    if topic is not None:
        yield topic, row_indexes
        return
    names = rows.column("topic").dictionary_encode()
    known = names.dictionary.to_pylist()
    if names.null_count or not all(known):
        raise InvalidRequest("A row has no topic: column 'topic' must not be null or empty.")
    indexes = names.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    for number, some in grouped(indexes, row_indexes):
        yield known[number], some


_UNNAMED = -(1 << 62)


def _named_partitions(rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Return the column of partitions, `_UNNAMED` where it is null."""
    if "partition" not in rows.schema.names:
        return None
    column = rows.column("partition").cast(pa.int64()).fill_null(_UNNAMED)
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _check_partitions(topic: str, named: np.ndarray[Any, np.dtype[np.int64]], count: int) -> None:
    wrong = named[(named != _UNNAMED) & ((named < 0) | (named >= count))]
    if len(wrong):
        raise UnknownPartition(TopicPartition(topic, int(wrong[0])))
