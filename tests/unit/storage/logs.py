"""Logs for tests: made of small batches that know their own offset, and read back whole."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.model.batch import Record, encode_batch, read_header, stamp
from goqueue.model.compression import Compression
from goqueue.model.errors import CorruptBatch
from goqueue.storage.disk import Disk
from goqueue.storage.log import Log, LogSettings

FOLDER = "logs/topic/0"
NOW_MS = 1_700_000_000_000
SMALL = LogSettings(segment_bytes=4000, index_interval_bytes=256)


def open_log(disk: Disk, settings: LogSettings = SMALL, *, now_ms: int = NOW_MS) -> Log:
    return recover(disk, settings, now_ms=now_ms)[0]


def recover(
    disk: Disk, settings: LogSettings = SMALL, *, now_ms: int = NOW_MS
) -> tuple[Log, list[str]]:
    return Log.recover(disk, FOLDER, settings, now_ms=now_ms)


def append(
    log: Log,
    records: Iterable[Record],
    *,
    now_ms: int = NOW_MS,
    codec: Compression = Compression.NONE,
    leader_epoch: int = 0,
    **fields: int,
) -> bytes:
    """Append one batch; the bytes as they are in the log."""
    batch = encode_batch(list(records), codec=codec, **fields)
    stamp(batch, base_offset=log.end_offset, leader_epoch=leader_epoch)
    log.append(memoryview(batch), read_header(batch), now_ms=now_ms)
    return bytes(batch)


def append_numbered(
    log: Log, count: int, *, records: int = 1, value_bytes: int = 20, now_ms: int = NOW_MS
) -> list[bytes]:
    """Append batches whose records tell their offset; the batches as they are in the log."""
    batches = []
    for _ in range(count):
        start = log.end_offset
        batches.append(
            append(
                log,
                [
                    Record(b"k%d" % offset, (b"%d " % offset).ljust(value_bytes, b"."), (), now_ms)
                    for offset in range(start, start + records)
                ],
                now_ms=now_ms,
            )
        )
    return batches


def sync(log: Log) -> None:
    point = log.sync_point()
    point.sync()
    log.synced(point)


def read_all(log: Log, *, bytes_max: int = 1 << 20) -> list[bytes]:
    """Every batch of a log that must not be damaged."""
    batches, damages = read_readable(log, bytes_max=bytes_max)
    assert damages == []
    return batches


def read_readable(log: Log, *, bytes_max: int = 1 << 20) -> tuple[list[bytes], list[str]]:
    """Every batch that can be read, as a consumer would who steps over damage; and the damage."""
    batches, damages = [], []
    offset = log.start_offset
    while offset < log.end_offset:
        damage = None
        try:
            part = log.read(offset, bytes_max=bytes_max, until_offset=log.end_offset)
            assert part is not None
            data = part.read()
        except CorruptBatch as error:
            damage, data = error, b""
        if damage is not None:
            damages.append(str(damage))
            assert damage.next_offset is not None
            assert damage.next_offset > offset
            offset = damage.next_offset
        at = 0
        while at < len(data):
            header = read_header(data, at)
            batches.append(data[at : at + header.size])
            at += header.size
            offset = header.next_offset
    return batches, damages
