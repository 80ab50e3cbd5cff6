"""Checkpoints: the state of the log up to an offset, so that a restart need not replay it.

A checkpoint is written when the log is durable up to that offset and the buckets are synced. It
lists every bucket file with its size; after a crash, files are truncated to that size, unlisted
files are removed, and the log is replayed from the offset. Without a usable checkpoint, the whole
log is replayed.
"""

from __future__ import annotations

import sys

import msgspec

from goqueue.delivery.schedules.records import PendingState, ProducerState
from goqueue.delivery.schedules.releases import Intent
from goqueue.delivery.schedules.timetable import BucketState
from goqueue.model.compression import Compression, compress, decompress
from goqueue.model.errors import CorruptBatch
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed

PAGE_BITS = 16
PAGE_NUMBERS = 1 << PAGE_BITS  # in one page of the table of waiting messages

_FILE = "checkpoint"
_MAGIC = b"GQSC"
_VERSION = 2
_PAGE_BYTES_MAX = 4 * PAGE_NUMBERS

WaitingState = list[tuple[int, bytes, bytes]]  # page, positions (none if dense), topics


class Target(msgspec.Struct, array_like=True):
    """A target topic of waiting messages."""

    topic: str
    topic_id: bytes
    count: int = 0
    size: int = 0  # bytes of the messages; those that an earlier version has stored count as none


class Checkpoint(msgspec.Struct, array_like=True):
    """The state of a partition of the internal topic before `offset`."""

    topic_id: bytes
    offset: int
    serial_next: int
    buckets: list[BucketState]
    waiting: WaitingState
    released: dict[int, bytes]
    targets: dict[int, Target]
    moved: dict[int, int]
    producers: list[ProducerState]
    released_count: int
    cancelled_count: int
    clean_epoch: int = -1  # after a clean stop, the epoch of the producer that released last
    byte_order: str = sys.byteorder
    pending: PendingState = []
    leader_epoch: int = -1  # of the record before `offset`
    intents: list[Intent] = []
    leader_epochs: list[tuple[bytes, int, int]] = []  # (topic id, partition, epoch)


def write_checkpoint(disk: Disk, folder: str, checkpoint: Checkpoint) -> None:
    """Replace the last checkpoint, durably. Blocks."""
    packed = [
        (page, _pack(positions), _pack(topics)) for page, positions, topics in checkpoint.waiting
    ]
    body = msgspec.structs.replace(checkpoint, waiting=packed)
    write_framed(disk, f"{folder}/{_FILE}", magic=_MAGIC, version=_VERSION, body=body)


def read_checkpoint(disk: Disk, folder: str, *, topic_id: bytes) -> Checkpoint | None:
    """Return the last checkpoint of this topic, or None if it is missing or not usable."""
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
