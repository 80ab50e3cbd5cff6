"""Frames of the quorum's log, written so that a torn write can be distinguished from corruption.

A frame has a length, a sequence number and checksums. In the file, the last byte of each sector is
a mark. If a mark is missing, that sector was never written.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from goqueue.cluster.raft.messages import COUNTER_MAX, Entry, Position
from goqueue.cluster.raft.ready import HardState

_MAGIC = b"\xf1QRF"
_HEAD = struct.Struct(">4sIQII")  # magic, body length, sequence, two checksums
_HEAD_CHECKED = struct.Struct(">4sIQ")  # covered by the first checksum; the second covers the body
_END = b"\xf2"  # not zero, so that a frame whose end was never written is detected
_SECTOR_BYTES = 512  # the smallest unit that a disk writes atomically
SECTOR_END = b"\xf3"


class DamagedQuorumFile(Exception):
    """Stored data cannot be read back, so that promises may be lost."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: {what}. The node may have lost a vote or an entry, so it must not start "
            "with this folder. Restore the file, or empty the folder: the node then joins again "
            "as one that has lost its disk."
        )


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """What one save adds. An entry replaces all entries from its index on."""

    hard_state: HardState | None
    entries: list[Entry]
    base: Position | None = None  # in the first frame: the start of the log


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode_frame(frame: Frame | None, sequence: int) -> bytes:
    """Encode a frame; raise ValueError if it could not be read back."""
    if frame is not None:
        _check_readable(frame)
    body = b"" if frame is None else _encoder.encode(frame)
    head_checksum = crc32c(_HEAD_CHECKED.pack(_MAGIC, len(body), sequence))
    checksum = crc32c(body, head_checksum)
    head = _HEAD.pack(_MAGIC, len(body), sequence, head_checksum, checksum)
    return head + body + _END


def _check_readable(frame: Frame) -> None:
    counters = [] if frame.hard_state is None else [frame.hard_state.term]
    for place in (frame.base, *frame.entries):
        if place is not None:
            counters += [place.index, place.term]
    if counters and not 0 <= min(counters) <= max(counters) <= COUNTER_MAX:
        raise ValueError(f"A term or index is not from 0 to {COUNTER_MAX}: {max(counters)}.")


def decode_frame(path: str, body: bytes) -> Frame:
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DamagedQuorumFile(path, f"A frame cannot be decoded: {error}") from error


def frame_at(data: bytes, at: int) -> tuple[int, bytes, int] | None:
    """Return sequence, body and end of the frame that starts at `at`; None if it is incomplete."""
    head = _head_at(data, at)
    if head is None or head.end > len(data):
        return None
    body = data[head.body_start : head.end - len(_END)]
    is_good = crc32c(body, head.head_checksum) == head.checksum
    is_ended = data[head.end - len(_END) : head.end] == _END
    return (head.sequence, body, head.end) if is_good and is_ended else None


class _Head(NamedTuple):
    sequence: int
    body_start: int
    end: int
    checksum: int  # of the body, continued from that of the head
    head_checksum: int


def _head_at(data: bytes, at: int) -> _Head | None:
    """Return the head of a frame that may start at `at`, if it is intact."""
    if at + _HEAD.size > len(data):
        return None
    magic, length, sequence, head_checksum, checksum = _HEAD.unpack_from(data, at)
    body_start = at + _HEAD.size
    is_good = crc32c(data[at : at + _HEAD_CHECKED.size]) == head_checksum
    if magic != _MAGIC or not is_good:
        return None
    end = body_start + length + len(_END)
    return _Head(sequence, body_start, end, checksum, head_checksum)


# Marks


def marked(data: bytes, position: int) -> bytes:
    """Insert a mark at the end of each sector, for `data` at this position of a file."""
    parts, at = [], 0
    room = _SECTOR_BYTES - 1 - position % _SECTOR_BYTES
    while at < len(data):
        part = data[at : at + room]
        parts.append(part if len(part) < room else part + SECTOR_END)
        at, room = at + room, _SECTOR_BYTES - 1
    return b"".join(parts)


def unmarked(stored: bytes) -> bytes:
    """Return the content of a file without the marks."""
    step = _SECTOR_BYTES - 1
    return b"".join(stored[at : at + step] for at in range(0, len(stored), _SECTOR_BYTES))


def position_of(at: int) -> int:
    """Return the position in the file of the content byte `at`."""
    return at + at // (_SECTOR_BYTES - 1)


# Incomplete frames


def check_is_torn(path: str, data: bytes, at: int, stored: bytes | None) -> None:
    """Raise unless the bytes from `at` on can result from a write cut short by a power failure.

    `stored` is the file with its marks; None if it has none.
    """
    found = data.find(_MAGIC, at)
    while found >= 0:
        if frame_at(data, found) is not None:
            raise DamagedQuorumFile(
                path, f"It is damaged at byte {at}, before an intact later frame at {found}"
            )
        found = data.find(_MAGIC, found + 1)
    if not _looks_torn(data, at, stored):
        raise DamagedQuorumFile(path, f"It is damaged at byte {at}")


def _looks_torn(data: bytes, at: int, stored: bytes | None) -> bool:
    """Return whether the file ends within the frame at `at`, or a sector end was never written."""
    head = _head_at(data, at)
    end = len(data) if head is None else head.end
    if end > len(data) or at + _HEAD.size > len(data) or data[end - 1] == 0:
        return True
    if stored is None:
        first, until, stored = at, end, data
    else:
        first, until = position_of(at), position_of(end)
    sector_end = (first // _SECTOR_BYTES + 1) * _SECTOR_BYTES - 1
    return 0 in stored[sector_end:until:_SECTOR_BYTES]
