"""A checkpoint: what the log says up to an offset, so that a start need not read it again.

It is written when the log is durable up to that offset and the buckets are synced. It names every
bucket file with its size; after a crash files are cut to that size, files that it does not name go,
and the log is read from the offset on. Without a usable checkpoint the whole log is read.
"""

from __future__ import annotations

import sys

import msgspec

from goqueue.delivery.schedules.buckets import BucketState
from goqueue.delivery.schedules.intents import Intent
from goqueue.delivery.schedules.origins import OriginState
from goqueue.delivery.schedules.pending import PendingState
from goqueue.delivery.schedules.waiting import PAGE_NUMBERS, WaitingState
from goqueue.model.compression import Compression, compress, decompress
from goqueue.model.errors import CorruptBatch
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed

_FILE = "checkpoint"
_MAGIC = b"GQSC"
_VERSION = 2
_PAGE_BYTES_MAX = 4 * PAGE_NUMBERS


class Target(msgspec.Struct, array_like=True):
    """A topic that messages wait for."""

    topic: str
    topic_id: bytes
    count: int = 0


class Checkpoint(msgspec.Struct, array_like=True):
    """Everything that a partition of the internal topic says before `offset`."""

    topic_id: bytes
    offset: int
    serial_next: int
    buckets: list[BucketState]
    waiting: WaitingState
    released: dict[int, bytes]
    targets: dict[int, Target]
    moved: dict[int, int]
    origins: list[OriginState]
    released_count: int
    cancelled_count: int
    clean_epoch: int = -1  # after a clean stop, the epoch of the producer that released last
    byte_order: str = sys.byteorder
    pending: PendingState = []
    leader_epoch: int = -1  # in which the record before `offset` was written
    intents: list[Intent] = []
    leader_epochs: list[tuple[bytes, int, int]] = []  # of topic id and partition


def write_checkpoint(disk: Disk, folder: str, checkpoint: Checkpoint) -> None:
    """Put a checkpoint in the place of the last one, durably. Blocks."""
    packed = [
        (page, _pack(positions), _pack(topics)) for page, positions, topics in checkpoint.waiting
    ]
    body = msgspec.structs.replace(checkpoint, waiting=packed)
    write_framed(disk, f"{folder}/{_FILE}", magic=_MAGIC, version=_VERSION, body=body)


def read_checkpoint(disk: Disk, folder: str, *, topic_id: bytes) -> Checkpoint | None:
    """The last checkpoint of this topic, unless it is missing or cannot be used."""
    found = read_framed(disk, f"{folder}/{_FILE}", magic=_MAGIC, version=_VERSION, body=Checkpoint)
    if found is None or found.topic_id != topic_id or found.byte_order != sys.byteorder:
        return None
    try:
        found.waiting = [
            (page, _unpack(positions), _unpack(topics)) for page, positions, topics in found.waiting
        ]
    except CorruptBatch:
        return None
    return found


def _pack(data: bytes) -> bytes:
    return compress(Compression.ZSTD, data) if data else b""


def _unpack(data: bytes) -> bytes:
    if not data:
        return b""
    return bytes(decompress(Compression.ZSTD, data, bytes_max=_PAGE_BYTES_MAX))
