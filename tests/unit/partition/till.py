"""A shelf on which producers write in transactions, and what the log alone says of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from goqueue.model.batch import (
    BatchHeader,
    add_sequence,
    decode_batch,
    decode_marker,
    read_header,
)
from goqueue.partition import AbortedSpans, AbortedTransaction, Appended, Partition
from goqueue.partition.rules import PartitionSettings
from goqueue.storage.aborted import find_aborted
from goqueue.storage.log import LogSettings
from tests.unit.partition.simulated_partition import SimulatedPartition

SMALL = PartitionSettings(log=LogSettings(segment_bytes=700, index_interval_bytes=150))


class Till(SimulatedPartition):
    """Producers 1, 2, 3, … each with an epoch and the sequence number that comes next."""

    def __init__(self, settings: PartitionSettings | None = None, **fields: Any) -> None:
        super().__init__(settings, **fields)
        self.epochs: dict[int, int] = {}

    def write(self, producer: int, *values: str, is_transactional: bool = True) -> Appended:
        epoch = self.epochs.setdefault(producer, 0)
        return self.append(
            *values,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=next_sequence(self.partition, producer, epoch),
            is_transactional=is_transactional,
        )

    def end(self, producer: int, *, is_commit: bool, coordinator_epoch: int = 0) -> Appended:
        return self.partition.append_marker(
            producer_id=producer,
            producer_epoch=self.epochs.setdefault(producer, 0),
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self.now_ms,
        )

    def commit(self, producer: int) -> Appended:
        return self.end(producer, is_commit=True)

    def abort(self, producer: int) -> Appended:
        return self.end(producer, is_commit=False)

    def committed(self) -> list[str]:
        """What somebody reads from the start who wants only what is committed."""
        return committed(self.partition)


def next_sequence(partition: Partition, producer: int, epoch: int) -> int:
    state = partition.producers.get(producer)
    if state is None or state.epoch != epoch or not state.batches:
        return 0
    return add_sequence(state.last_sequence, 1)


def committed(partition: Partition) -> list[str]:
    offset, values = partition.start_offset, []
    while True:
        part = partition.read(offset, bytes_max=300, is_committed_only=True)
        if part is None:
            return values
        aborted = AbortedSpans(partition.aborted_in(part))
        data, at = part.read(), 0
        while at < len(data):
            header = read_header(data, at)
            if not header.is_control and not aborted.cover(header):
                for record in decode_batch(data[at : at + header.size]):
                    if record.offset >= offset:
                        values.append((record.value or b"").decode())
            at += header.size
        offset = header.next_offset


class Truth(NamedTuple):
    """What follows from the batches of a log, worked out in the simplest way."""

    still_open: dict[int, tuple[int, int]]  # by producer, the offsets of first and last record
    aborted: list[AbortedTransaction]
    last_stable_offset: int
    committed: list[str]


def truth(partition: Partition) -> Truth:
    still_open: dict[int, tuple[int, int]] = {}
    aborted: list[AbortedTransaction] = []
    undecided: list[int] = []
    batches: list[tuple[BatchHeader, bytes]] = list(
        partition.log.batches(partition.start_offset, until_offset=partition.end_offset)
    )
    for header, batch in batches:
        producer = header.producer_id
        if header.is_control:
            first, _ = still_open.pop(producer, (None, None))
            if first is None:
                continue
            if header.base_offset >= partition.high_watermark:
                undecided.append(first)
            if not decode_marker(batch).is_commit:
                others = [one for one, _ in still_open.values()]
                stable = min(others, default=header.next_offset)
                aborted.append(AbortedTransaction(producer, first, header.base_offset, stable))
        elif header.is_transactional and header.record_count:
            first = still_open.get(producer, (header.base_offset, 0))[0]
            still_open[producer] = (first, header.last_offset)
    undecided += [first for first, _ in still_open.values()]
    stable = min([partition.high_watermark, *undecided])
    values = []
    for header, batch in batches:
        is_undone = any(
            one.producer_id == header.producer_id
            and one.first_offset <= header.base_offset <= one.last_offset
            for one in aborted
        )
        is_seen = header.base_offset < stable and not header.is_control
        if is_seen and not (header.is_transactional and is_undone):
            values += [(record.value or b"").decode() for record in decode_batch(batch)]
    return Truth(still_open, aborted, stable, values)


def known(partition: Partition) -> Truth:
    """The same as the partition itself says it."""
    return Truth(
        {one.producer_id: (one.first_offset, one.last_offset) for one in partition.transactions},
        find_aborted(partition.log, partition.start_offset, partition.end_offset),
        partition.last_stable_offset,
        committed(partition),
    )
