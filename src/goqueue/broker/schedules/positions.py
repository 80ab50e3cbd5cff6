"""The position of each scheduled message in its log, so that it can be read by itself when due.

Messages become due in a different order than they arrived, so each is in a different batch. Reading
and scanning that batch would cost far more than the message. The position of a record is noted when
it is written. After a restart or a compaction it is found when the first message of its batch is
read, and cached for the others. It takes four bytes per message, and only the newest pages are
kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from goqueue.delivery.schedules import number_key
from goqueue.model.batch import (
    HEADER_BYTES,
    BatchHeader,
    is_intact,
    read_header,
    unpack_payload,
    varint,
)
from goqueue.model.compression import Compression
from goqueue.model.decode_fields import read_varint
from goqueue.model.errors import CorruptBatch
from goqueue.partition import Partition
from goqueue.storage.disk import File
from goqueue.storage.log import Slice
from goqueue.storage.segment import Segment

PAGE_BITS = 14
PAGE_NUMBERS = 1 << PAGE_BITS
PAGES_MAX = 256  # the positions of four million messages, in 16 MB

_MASK = PAGE_NUMBERS - 1
_UNKNOWN = 0  # a header comes before every record
_POSITION_MAX = (1 << 32) - 1
_RECORD_BYTES = 512  # read for one message; most are smaller
_RUN_BYTES = 16 << 10  # read when requested messages are close together
_NEAR_BYTES = 2048
_LENGTH_BYTES_MAX = 5
_LONG = 0x80  # flag: more bytes of the varint follow
_BATCH_BYTES = 32 << 10
_LOG_BYTES_MAX = 1 << 60
_KEY_LENGTH = varint(len(number_key(0)))

_Read = Callable[[int, int], bytes]


class _Misplaced(Exception):
    """Another record, or none, is at the expected position."""


class OnDisk(Exception):
    """A message is not in memory; `Places.fetch` loads it."""


class Places:
    """Finds the messages of one log by number; fast for ascending numbers."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._pages: dict[int, array[int]] = {}
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self.search_count = 0  # how often a whole batch had to be scanned
        self._window: tuple[Segment | None, int, bytes] = (None, 0, b"")

    def note_written(self, first: int, batch_bytes: int, starts: list[int]) -> None:
        """Note the newest batch of the log: messages from `first` on, one at each start."""
        position = self._partition.log.active.size - batch_bytes
        if position + batch_bytes > _POSITION_MAX:
            return
        places = array("I", [position + start for start in starts])
        done = 0
        while done < len(places):
            at = (first + done) & _MASK
            count = min(len(places) - done, PAGE_NUMBERS - at)
            self._page(first + done)[at : at + count] = places[done : done + count]
            done += count

    def find(self, number: int, *, is_waiting: bool = True) -> bytes | None:
        """The value of the record with this number; None if there is none.

        Without `is_waiting`, raise `OnDisk` instead of reading the disk, if the position is known.
        """
        segment, position = self._place(number)
        try:
            if position != _UNKNOWN:
                try:
                    return self._read_record(segment, position, number, is_waiting=is_waiting)
                except (_Misplaced, IndexError, CorruptBatch):
                    pass  # The batch has a checksum, by which the scan detects damage.
            return self._search(number)
        except OSError as error:
            raise self._partition.unreadable(error) from error

    def fetch(self, numbers: list[int]) -> Callable[[], None]:
        """A function that reads messages into memory; it blocks, and may run outside the event
        loop.
        """
        places = [self._place(number) for number in numbers]
        return partial(_fetch, [(one.file, at, one.size - at) for one, at in places])

    def _place(self, number: int) -> tuple[Segment, int]:
        """The segment that holds a record, and its position there, if known."""
        log = self._partition.log
        if log.segments != self._segments:
            self._follow(log.segments)
        page = self._pages.get(number >> PAGE_BITS)
        position = page[number & _MASK] if page is not None else _UNKNOWN
        return self._segments[bisect_right(self._bases, number) - 1], position

    def _page(self, number: int) -> array[int]:
        page = self._pages.get(number >> PAGE_BITS)
        if page is None:
            page = self._pages[number >> PAGE_BITS] = array("I", bytes(4 * PAGE_NUMBERS))
            if len(self._pages) > PAGES_MAX:
                del self._pages[next(iter(self._pages))]
        return page

    def _follow(self, segments: list[Segment]) -> None:
        """Drop the positions in segments that compaction has replaced."""
        kept = set(segments)
        for segment in self._segments:
            if segment not in kept:
                first = segment.base_offset >> PAGE_BITS
                last = segment.end_offset >> PAGE_BITS
                for page in [one for one in self._pages if first <= one <= last]:
                    del self._pages[page]
        self._window = (None, 0, b"")
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        assert all(one < other for one, other in pairwise(self._bases))

    def _read_record(
        self, segment: Segment, position: int, number: int, *, is_waiting: bool
    ) -> bytes | None:
        read = segment.file.read if is_waiting else _at_once(segment.file)
        known, start, data = self._window
        at = position - start
        is_near = known is segment and 0 <= at < len(data) + _NEAR_BYTES
        if not is_near or not _holds_record(data, at):
            # Other requested messages may be near, but this caller must not wait for them.
            size = _RUN_BYTES if is_near and not is_waiting else _RECORD_BYTES
            data = read(position, min(size, segment.size - position))
            self._window = (segment, position, data)
            at = 0
        length, body = read_varint(data, at)
        if body + length > len(data):
            data = read(position, body + length)
        return _value(data, body, number)

    def _search(self, number: int) -> bytes | None:
        """Scan the batch of a message, and note the positions of all its records."""
        log = self._partition.log
        part = log.read(number, bytes_max=_LOG_BYTES_MAX, until_offset=self._partition.end_offset)
        if part is None:
            return None
        self.search_count += 1
        header, data = _read_batch(part)
        payload = bytes(unpack_payload(data, header))
        position = part.position + HEADER_BYTES
        is_kept = header.codec is Compression.NONE and part.position + header.size <= _POSITION_MAX
        found = None
        try:
            for delta, start, body in _records(payload, header.record_count):
                here = header.base_offset + delta
                if is_kept:
                    self._page(here)[here & _MASK] = position + start
                if here == number:
                    found = body
            return None if found is None else _value(payload, found, number)
        except (_Misplaced, IndexError) as error:
            raise CorruptBatch(f"The record {number} is not a scheduled message.") from error


def _at_once(file: File) -> _Read:
    def read(position: int, length: int) -> bytes:
        data = file.read_at_once(position, length)
        if data is None:
            raise OnDisk
        return data

    return read


def _fetch(places: list[tuple[File, int, int]]) -> None:
    """Read the records at these positions into the page cache, each up to a given size."""
    for file, position, bytes_max in places:
        file.pin()
        try:
            data = file.read(position, min(_RECORD_BYTES, bytes_max))
            length, body = read_varint(data, 0)
            if body + length > len(data):
                file.read(position, min(body + length, bytes_max))
        except (IndexError, CorruptBatch):
            pass  # The next reader of this position reports the error.
        finally:
            file.unpin()


def _read_batch(part: Slice) -> tuple[BatchHeader, bytes]:
    """The first batch of a slice; raise `CorruptBatch` if it is damaged."""
    data = part.segment.file.read(part.position, _BATCH_BYTES)
    header = read_header(data)
    if header.size > len(data):
        data = part.segment.file.read(part.position, header.size)
    if not part.is_trusted and not is_intact(memoryview(data), header):
        part._replace(length=header.size).read()  # It raises the specific error.
    return header, data


def _records(payload: bytes, count: int) -> Iterator[tuple[int, int, int]]:
    """For each record: its offset in the batch, its start, and the start of its fields."""
    start = 0
    for _ in range(count):
        length, body = read_varint(payload, start)
        if length <= 0 or body + length > len(payload):
            raise CorruptBatch("A record claims more bytes than its batch has.")
        at = body + 2 if payload[body + 1] < _LONG else read_varint(payload, body + 1)[1]
        yield read_varint(payload, at)[0], start, body
        start = body + length


def _holds_record(data: bytes, at: int) -> bool:
    """Whether the record that begins at a position is complete."""
    if at + _LENGTH_BYTES_MAX > len(data):
        return False
    length, body = read_varint(data, at)
    return body + length <= len(data)


def _value(data: bytes, body: int, number: int) -> bytes | None:
    """The value of the record whose fields begin at `body`, if it has that number."""
    # Most have the timestamp of their batch and are near its start: one-byte varints.
    at = body + 2 if data[body + 1] < _LONG else read_varint(data, body + 1)[1]
    at = at + 1 if data[at] < _LONG else read_varint(data, at)[1]
    key = _KEY_LENGTH + number_key(number)
    if data[at : at + len(key)] != key:
        raise _Misplaced
    length, at = read_varint(data, at + len(key))
    return data[at : at + length] if length >= 0 else None
