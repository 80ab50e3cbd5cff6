"""The batches of a fetch as parts of a response: bytes, or ranges of files sent zero-copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from goqueue.broker.gate.views import FetchedBatches
from goqueue.wire.parts import FileRange

# Below this, one read and one send cost less than sendfile.
_SEND_FROM_FILE_BYTES_MIN = 32 << 10
# A response larger than this should be partly sent before all of it has been read.
_READ_AT_ONCE_BYTES_MAX = 1 << 20
_SEND_FROM_FILE_BYTES_MIN_OF_MUCH = 16 << 10
# Bytes of a response that are held in memory until the client takes them; beyond it, small pieces
# are sent from their files too.
_MEMORY_BYTES_MAX = 2 << 20


class RecordsWriter:
    """Decides for each piece of one response whether it is read or sent from its file."""

    __slots__ = ("_in_file_min", "_memory_bytes")

    def __init__(self, pieces: Iterable[FetchedBatches | None]) -> None:
        """`pieces` are all that the response will have."""
        size = sum([one.length for one in pieces if one is not None])
        is_much = size > _READ_AT_ONCE_BYTES_MAX
        self._in_file_min = (
            _SEND_FROM_FILE_BYTES_MIN_OF_MUCH if is_much else _SEND_FROM_FILE_BYTES_MIN
        )
        self._memory_bytes = 0

    def records(self, batches: FetchedBatches) -> bytes | FileRange:
        """Return the batches: small ones as bytes, large ones as a range of the file.

        Bytes that this process did not write are read first, to verify their checksums.
        """
        if batches.length >= _SEND_FROM_FILE_BYTES_MIN:
            _prefetch(batches)
        if batches.is_trusted and batches.length >= self._in_file_min:
            return FileRange(batches.file, batches.position, batches.length)
        data = batches.read()
        if len(data) >= min(_SEND_FROM_FILE_BYTES_MIN, 2 * self._in_file_min):
            return FileRange(batches.file, batches.position, len(data))
        return self._held(data)

    def joined(self, pieces: Sequence[FetchedBatches]) -> bytes | FileRange:
        """Return pieces of one partition, in order, as one."""
        if len(pieces) == 1:
            return self.records(pieces[0])
        first = pieces[0]
        length = sum([one.length for one in pieces])
        if length >= self._in_file_min and _are_contiguous(pieces):
            return FileRange(first.file, first.position, length)
        return self._held(b"".join([one.read() for one in pieces]))

    def _held(self, data: bytes) -> bytes:
        self._memory_bytes += len(data)
        if self._memory_bytes > _MEMORY_BYTES_MAX:
            self._in_file_min = 1
        return data


def _are_contiguous(pieces: Sequence[FetchedBatches]) -> bool:
    """Whether pieces can be sent as one range of one file, without reading them."""
    file, position = pieces[0].file, pieces[0].position
    for one in pieces:
        if one.file is not file or one.position != position or not one.is_trusted:
            return False
        position += one.length
    return True


def _prefetch(batches: FetchedBatches) -> None:
    """Read all parts of a response that are not in the page cache, concurrently.

    What follows them is read ahead while the client processes this: it will be fetched next.
    """
    file, position, length = batches.file, batches.position, batches.length
    if file.read_at_once(position + length - 1, 1) is None:
        file.prefetch(position, 2 * length)
