"""Notes on the disk of the messages of which duplicates were refused, until the journal has it.

No log says that a duplicate was refused, so a process that is killed before it has written this to
the journal would lose it without a trace. Hence it makes a note before the duplicate is answered;
the next process marks the messages of all notes. The operating system keeps the notes of a killed
process. A power failure may take them, as they are not synced.

There is one file, to whose end notes are appended. It is emptied whenever the journal has
everything. If it becomes too large, because the journal is away, it is written anew with one note
for each partition.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from goqueue.delivery.ranges import RangeSet
from goqueue.model.bounds import Offset, PartitionNumber, TopicId
from goqueue.model.observer import Range
from goqueue.storage.disk import Disk, File
from goqueue.tracing.events import Place

PATH = "meta/refused-duplicates"
SIZE_MAX = 1 << 20

_HEADER = struct.pack(">4sH", b"GQUJ", 1)  # magic and version
_FRAME = struct.Struct(">IH")  # checksum and length of a note

_log = logging.getLogger(__name__)


class _Note(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    topic_id: TopicId
    partition: PartitionNumber
    first: Offset
    end: Offset


class Notes:
    """Of which messages duplicates were refused that may be missing in the journal."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: File | None = None
        self._size = 0
        self._size_max = SIZE_MAX
        self._noted: dict[Place, RangeSet] = {}
        self._is_damaged = False

    def load(self) -> list[tuple[Place, Range]]:
        """Return the notes of the process before this one; they remain until `clear`."""
        try:
            data = self._disk.read_whole(PATH)
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.error("%s cannot be read; journeys may lack duplicates: %s", PATH, error)
            self._is_damaged = True
            return []
        self._size = len(data)
        read = len(_HEADER)
        for note, end in _decode(data):
            self._remember(Place(note.topic, note.topic_id, note.partition), note.first, note.end)
            read = end
        if read < len(data):
            _log.warning("%s is damaged after %d bytes; journeys may lack duplicates", PATH, read)
            self._is_damaged = True
        return [(place, one) for place, ranges in self._noted.items() for one in ranges]

    def add(self, place: Place, first: int, end: int) -> None:
        """Note that a duplicate of these messages was refused, unless that is noted already."""
        if not self._remember(place, first, end):
            return
        note = _encode(place, first, end)
        try:
            if self._is_damaged or self._size + len(note) > self._size_max:
                self._write_anew()
            else:
                self._append(note)
        except OSError as error:
            # It must not fail what is observed.
            _log.error("refused duplicates cannot be noted in %s: %s", PATH, error)
            self._is_damaged = True

    def clear(self) -> None:
        """Forget everything: the journal has it."""
        if not self._noted:
            return
        self._noted = {}
        try:
            self._open().truncate(0)
            self._size, self._size_max, self._is_damaged = 0, SIZE_MAX, False
        except OSError as error:
            _log.error("%s cannot be emptied: %s", PATH, error)
            self._is_damaged = True

    def _remember(self, place: Place, first: int, end: int) -> bool:
        """Return whether any of the messages was not noted yet."""
        known = self._noted.get(place)
        if known is None:
            known = self._noted[place] = RangeSet()
        if known.first_missing_from(first) >= end:
            return False
        known.add(first, end)
        return True

    def _append(self, note: bytes) -> None:
        data = note if self._size else _HEADER + note
        self._open().append(data)
        self._size += len(data)

    def _open(self) -> File:
        if self._file is None:
            is_there = self._disk.exists(PATH)
            self._file = self._disk.open(PATH) if is_there else self._disk.create(PATH)
        return self._file

    def _write_anew(self) -> None:
        """Replace all notes by one for each partition."""
        parts = [_HEADER]
        for place, ranges in self._noted.items():
            all_ranges = list(ranges)
            first, end = all_ranges[0][0], all_ranges[-1][1]
            ranges.add(first, end)
            parts.append(_encode(place, first, end))
        data = b"".join(parts)
        if self._file is not None:
            self._file.close()
            self._file = None
        self._disk.replace_whole(PATH, data, is_durable=False)
        self._size, self._size_max = len(data), max(SIZE_MAX, 2 * len(data))
        self._is_damaged = False


def _encode(place: Place, first: int, end: int) -> bytes:
    body = msgspec.msgpack.encode(_Note(*place, first, end))
    return _FRAME.pack(crc32c(body), len(body)) + body


def _decode(data: bytes) -> Iterator[tuple[_Note, int]]:
    """Yield the notes before the first damaged one, each with where it ends."""
    position = len(_HEADER)
    if data[:position] != _HEADER:
        return
    while position + _FRAME.size <= len(data):
        checksum, length = _FRAME.unpack_from(data, position)
        start = position + _FRAME.size
        position = start + length
        body = data[start:position]
        if len(body) < length or crc32c(body) != checksum:
            return
        try:
            note = _decode_note(body)
        except msgspec.DecodeError:
            return
        yield note, position


_decode_note = msgspec.msgpack.Decoder(_Note).decode
