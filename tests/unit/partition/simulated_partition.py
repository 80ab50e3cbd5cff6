"""A partition on a simulated disk, and the people around it: producers, readers, the power cut."""

from __future__ import annotations

from typing import Any

from goqueue.model.batch import Record, decode_batch, encode_batch, read_header
from goqueue.model.compression import Compression
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.partition import (
    Appended,
    Partition,
    PartitionSettings,
    PartitionState,
    recover_partition,
    reopen_partition,
)
from tests.simulation.disk import SimulatedDisk

NOW_MS = 1_700_000_000_000
NAME = TopicPartition("orders", 0)
FOLDER = "logs/orders/0"


class SimulatedPartition:
    def __init__(
        self,
        settings: PartitionSettings | None = None,
        *,
        waits_for_sync: bool = True,
        leader_epoch: int = 0,
        survival: float = 0.0,
    ) -> None:
        self.settings = settings or PartitionSettings()
        self.waits_for_sync = waits_for_sync
        self.leader_epoch = leader_epoch
        self.disk = SimulatedDisk(survival=survival)
        self.now_ms = NOW_MS
        self.dirty: list[Partition] = []
        self.partition = self._recover()

    # The broker's part

    def sync(self) -> None:
        flush = self.partition.durability.flush()
        flush.run()
        self.partition.durability.flushed(flush)

    def keep_snapshot(self) -> None:
        """Have the snapshot of the producers reach the disk, as it does by and by."""
        self.disk.sync_folder(FOLDER)
        self.disk.open(f"{FOLDER}/producers").sync()

    def crash(self) -> None:
        """Cut the power, and open what is left."""
        self.disk.crash()
        self.partition = self._recover()

    def stop(self) -> PartitionState:
        self.sync()
        state = self.partition.close()
        self.disk.life += 1
        return state

    def reopen(self, state: PartitionState) -> None:
        self.partition = reopen_partition(
            NAME,
            self.disk,
            FOLDER,
            self.settings,
            state,
            key=bytes(20),
            leader_epoch=self.leader_epoch,
            waits_for_sync=self.waits_for_sync,
            mark_dirty=self.dirty.append,
        )

    def _recover(self) -> Partition:
        partition, _ = recover_partition(
            NAME,
            self.disk,
            FOLDER,
            self.settings,
            key=bytes(20),
            leader_epoch=self.leader_epoch,
            waits_for_sync=self.waits_for_sync,
            mark_dirty=self.dirty.append,
            now_ms=self.now_ms,
        )
        return partition

    # The clients' part

    def append(self, *values: str, **fields: Any) -> Appended:
        return self.append_batch(batch_of(*values, **{"timestamp_ms": self.now_ms, **fields}))

    def append_batch(self, batch: bytearray) -> Appended:
        return self.partition.append(memoryview(batch), now_ms=self.now_ms)

    def send(self, first: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> Appended:
        """An idempotent producer sends a batch that begins with the sequence number `first`."""
        values = [f"{(first + number) & 0x7FFFFFFF}" for number in range(count)]
        return self.append(*values, producer_id=producer, producer_epoch=epoch, base_sequence=first)

    def ack(self, last_offset: int) -> list[GoQueueError | None]:
        """The outcome that a producer waits for; empty until there is one."""
        outcome: list[GoQueueError | None] = []
        self.partition.when_committed(last_offset, outcome.append)
        return outcome

    def records(self, from_offset: int | None = None) -> list[Record]:
        """What a consumer reads from the start, or from an offset, to the high watermark."""
        offset = self.partition.start_offset if from_offset is None else from_offset
        found: list[Record] = []
        while (part := self.partition.read(offset, bytes_max=1 << 20)) is not None:
            for record in _decode_all(part.read()):
                found.append(record)
                offset = record.offset + 1
        return found

    def values(self) -> list[str]:
        return [(record.value or b"").decode() for record in self.records()]


def batch_of(
    *values: str,
    timestamp_ms: int = NOW_MS,
    key: bytes | None = b"key",
    codec: Compression = Compression.NONE,
    **fields: int,
) -> bytearray:
    records = [Record(key, value.encode(), timestamp_ms=timestamp_ms) for value in values]
    return encode_batch(records, codec=codec, **fields)


def _decode_all(data: bytes) -> list[Record]:
    records: list[Record] = []
    at = 0
    while at < len(data):
        size = read_header(data, at).size
        records += decode_batch(data[at : at + size])
        at += size
    return records
