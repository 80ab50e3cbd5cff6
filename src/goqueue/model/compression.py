"""The four compression codecs a record batch may use, with a bound on what they unpack.

A few bytes can unpack to gigabytes. Whoever unpacks therefore names the most it will hold, and
memory is spent step by step towards that bound, never on the word of the compressed data.
"""

from __future__ import annotations

import enum
import struct
from typing import TypeAlias

import cramjam

from goqueue.model.errors import CorruptBatch, UnsupportedCompression

Buffer: TypeAlias = bytes | bytearray | memoryview

UNPACKED_BYTES_MAX = 256 << 20

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_LENGTH = struct.Struct(">i")


class Compression(enum.IntEnum):
    """The codec number in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Compression)  # by number; asking the enum itself is much slower
_INTO = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


def codec_of(attributes: int) -> Compression:
    """The codec named by a batch's attributes."""
    number = attributes & 0x07
    if number < len(_CODECS):
        return _CODECS[number]
    raise UnsupportedCompression(
        f"Compression codec {number} is unknown; use none, gzip, snappy, lz4 or zstd."
    )


def compress(codec: Compression, data: Buffer) -> bytes:
    """Pack `data` the way stock clients of this format expect it."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec is Compression.LZ4:
        # Java clients refuse frames whose blocks refer to one another.
        compressor = cramjam.lz4.Compressor(block_linked=False, content_checksum=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    if codec is Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3))
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress(codec: Compression, data: Buffer, *, bytes_max: int = UNPACKED_BYTES_MAX) -> Buffer:
    """Unpack `data`; `CorruptBatch` when it is damaged or unpacks to more than `bytes_max`."""
    if codec is Compression.NONE:
        return data
    try:
        if codec is Compression.SNAPPY:
            return _decompress_snappy(memoryview(data), bytes_max)
        return _decompress_growing(codec, data, bytes_max)
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        raise CorruptBatch(
            f"The {codec.name.lower()} data of a batch is damaged: {error}."
        ) from error


def _decompress_growing(codec: Compression, data: Buffer, bytes_max: int) -> Buffer:
    room = min(max(4096, 4 * len(data)), bytes_max)
    while True:
        unpacked = bytearray(room)
        try:
            length = _INTO[codec](data, unpacked)
            return memoryview(unpacked)[:length]
        except cramjam.DecompressionError as error:
            # The library has no error class of its own for an output that is too small.
            if "failed to write whole buffer" not in str(error):
                raise
        if room == bytes_max:
            raise CorruptBatch(f"A batch unpacks to more than {bytes_max} bytes.")
        room = min(4 * room, bytes_max)


def _decompress_snappy(data: memoryview, bytes_max: int) -> Buffer:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, bytes_max)
    parts: list[Buffer] = []
    position, room = len(_XERIAL_HEADER), bytes_max
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise CorruptBatch("A snappy block claims more bytes than there are.")
        block = _snappy_block(data[position : position + length], room)
        parts.append(block)
        room -= len(block)
        position += length
    return b"".join(parts)


def _snappy_block(block: memoryview, bytes_max: int) -> Buffer:
    length = cramjam.snappy.decompress_raw_len(block)
    # Snappy cannot pack tighter than about 1:21, so a larger claim is damage, not data.
    if length > bytes_max or length > 64 * max(len(block), 64):
        raise CorruptBatch(f"A snappy block claims to unpack to {length} bytes.")
    return bytes(cramjam.snappy.decompress_raw(block))
