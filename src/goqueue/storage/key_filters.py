"""Key filters: which keys and trace ids a part of a segment may have, in a file beside it.

The file has blocks, each a Bloom filter over the hashes of about a mebibyte of log. A look-up reads
only the parts of the log whose filters may contain what is looked for: about one in a hundred of
the others. Blocks follow each other from the start of the segment, as far as the file was built.

A filter is never authoritative. It is built from the log by a search that has to read it anyway, is
never synced, and is removed with its segment. A block has the position and checksum of its last
batch, by which a file is recognised that belongs to an earlier content of the segment: after a
truncation and new writes the last block does not fit. Such a file, or a damaged one, is ignored and
built again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from goqueue.model.batch import CRC_START
from goqueue.model.scanning import KEY_SEED, TRACE_SEED, Wanted, bloom, hash_of, probes
from goqueue.storage.damage import Place
from goqueue.storage.disk import Disk, File

BLOCK_BYTES = 1 << 20  # of log for each filter

_MAGIC = b"GQKF"
_VERSION = 1
_HEADER = struct.Struct(">4sHH")
# Position and relative offset of the start and of the end, position and checksum of the last batch,
# length of the filter, and the checksum of all this.
_BLOCK = struct.Struct(">IIIIIIII")
_CHECKSUM = struct.Struct(">I")
_CHECKSUM_AT = _BLOCK.size - _CHECKSUM.size
_BATCH_CHECKSUM_AT = CRC_START - _CHECKSUM.size


class Block(NamedTuple):
    """A part of a segment and its filter."""

    start: Place
    end: Place
    last_position: int  # of the last batch
    last_checksum: int
    filter: bytes

    def may_have(self, hashes: Sequence[int]) -> bool:
        """Return whether each of these hashes may be that of a key or trace id in the part."""
        bits, size = self.filter, len(self.filter)
        return all(
            bits[bit >> 3] >> (bit & 7) & 1 for value in hashes for bit in probes(value, size)
        )


class KeyFilters:
    """The filters of one segment, as its file has them. Reading blocks."""

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self._path = path
        self._base_offset = base_offset
        self.blocks: list[Block] = []
        self.file_bytes = 0  # up to where the file is valid

    def load(self, log: File, size: int) -> None:
        """Read the file, unless it does not belong to this content of the segment."""
        try:
            data = self._disk.read_whole(self._path)
        except FileNotFoundError:
            return
        if data[: _HEADER.size] != _HEADER.pack(_MAGIC, _VERSION, 0):
            return
        at = _HEADER.size
        while (found := self._block_at(data, at)) is not None:
            self.blocks.append(found)
            at += _BLOCK.size + len(found.filter)
        if self.blocks and not _is_current(self.blocks[-1], log, size):
            self.blocks.clear()
        self.file_bytes = at if self.blocks else 0

    @property
    def end(self) -> Place:
        """Return up to where there are filters."""
        return self.blocks[-1].end if self.blocks else Place(0, self._base_offset)

    def _block_at(self, data: bytes, at: int) -> Block | None:
        if at + _BLOCK.size > len(data):
            return None
        *fields, length, checksum = _BLOCK.unpack_from(data, at)
        start, start_offset, end, end_offset, last, last_checksum = fields
        content = data[at + _BLOCK.size : at + _BLOCK.size + length]
        place = Place(start, self._base_offset + start_offset)
        is_next = place == self.end and end > last >= start and length
        head = data[at : at + _CHECKSUM_AT]
        if not is_next or len(content) < length or crc32c(content, crc32c(head)) != checksum:
            return None
        return Block(
            place, Place(end, self._base_offset + end_offset), last, last_checksum, content
        )

    def append(self, blocks: Sequence[Block]) -> None:
        """Add blocks to the file, unless another search has changed it since it was read."""
        parts = [self._encode(block) for block in blocks]
        if self.file_bytes == 0:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
            parts.insert(0, _HEADER.pack(_MAGIC, _VERSION, 0))
            file = self._disk.create(self._path)
        else:
            file = self._disk.open(self._path)
            if file.size() < self.file_bytes:
                return
            file.truncate(self.file_bytes)
        try:
            file.append(b"".join(parts))
            self.file_bytes += sum(map(len, parts))
            self.blocks += blocks
        finally:
            file.close()

    def _encode(self, block: Block) -> bytes:
        head = _BLOCK.pack(
            block.start.position,
            block.start.offset - self._base_offset,
            block.end.position,
            block.end.offset - self._base_offset,
            block.last_position,
            block.last_checksum,
            len(block.filter),
            0,
        )[:_CHECKSUM_AT]
        return head + _CHECKSUM.pack(crc32c(block.filter, crc32c(head))) + block.filter


def build_block(start: Place, end: Place, last: int, data: bytes, hashes: bytes) -> Block:
    """Build the block of a part of the log; its last batch is at position `last` in `data`."""
    (checksum,) = _CHECKSUM.unpack_from(data, last + _BATCH_CHECKSUM_AT)
    return Block(start, end, start.position + last, checksum, bloom(hashes))


def hashes_of(wanted: Wanted) -> list[int]:
    """Return the hashes that a part must have to be worth a look; none if any part is."""
    key, trace, *_ = wanted
    found = [] if key is None else [hash_of(key, KEY_SEED)]
    return found if trace is None else [*found, hash_of(trace, TRACE_SEED)]


def _is_current(block: Block, log: File, size: int) -> bool:
    """Return whether the last batch of a block is still where it was."""
    if block.end.position > size:
        return False
    found = log.read(block.last_position + _BATCH_CHECKSUM_AT, _CHECKSUM.size)
    return found == _CHECKSUM.pack(block.last_checksum)
