"""The four compression codecs a record batch may use, with a bound on the decompressed size.

A few bytes can decompress to gigabytes. Data that declares a size above the bound is refused after
a small part of it has been decompressed: if that fails, the data is damaged and the declared size
means nothing. Data that declares no size, or a false one, is refused when it reaches the bound.
"""

from __future__ import annotations

import enum
import struct
import zlib
from typing import NoReturn, TypeAlias

import cramjam

from goqueue.model.errors import CorruptBatch, UnpacksTooLarge, UnsupportedCompression

Buffer: TypeAlias = bytes | bytearray | memoryview

UNPACKED_BYTES_MAX = 32 << 20  # of one batch, unless the node sets another bound
READER_UNPACKED_BYTES_MAX = 256 << 20  # in a client, which must read whatever a cluster has stored

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_LENGTH = struct.Struct(">i")
_ZSTD_MAGIC, _LZ4_MAGIC = b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
_LZ4_HAS_SIZE = 0x08
# The library has no error class of its own for an output that is too small.
_NO_ROOM = "failed to write whole buffer"
_TRIAL_BYTES = 64 << 10  # decompressed of data that declares too large a size
_GZIP_RATIO_MAX = 1032  # no gzip data has a higher ratio
_GZIP_WBITS = 31
_GZIP_STEP_BYTES = 64 << 10


class Meter:
    """How much this process has decompressed, to measure the cost of a step."""

    def __init__(self) -> None:
        self.bytes_total = 0
        self.bytes_max = UNPACKED_BYTES_MAX  # of one batch; set once, when the process starts


meter = Meter()


class Compression(enum.IntEnum):
    """The codec number in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Compression)  # by number; a look-up in the enum itself is much slower
_INTO = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


def codec_of(attributes: int) -> Compression:
    """The codec given by a batch's attributes."""
    number = attributes & 0x07
    if number < len(_CODECS):
        return _CODECS[number]
    raise UnsupportedCompression(
        f"Compression codec {number} is unknown; use none, gzip, snappy, lz4 or zstd."
    )


def compress(codec: Compression, data: Buffer) -> bytes:
    """Compress `data` the way stock clients of this format expect it."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec is Compression.LZ4:
        # Java clients refuse frames with linked blocks.
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


def decompress(codec: Compression, data: Buffer, *, bytes_max: int | None = None) -> Buffer:
    """Decompress; raise `UnpacksTooLarge` beyond `bytes_max`, `CorruptBatch` for damaged data."""
    if codec is Compression.NONE:
        return data
    if bytes_max is None:
        bytes_max = meter.bytes_max
    try:
        if codec is Compression.SNAPPY:
            return _decompress_snappy(memoryview(data), bytes_max)
        return _decompress_growing(codec, data, bytes_max)
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        raise CorruptBatch(
            f"The {codec.name.lower()} data of a batch is damaged: {error}."
        ) from error


def announced_bytes(codec: Compression, data: Buffer) -> int | None:
    """The minimum decompressed size that `data` declares; None if it declares none."""
    if codec is Compression.GZIP:
        # The length of the last member, modulo 2^32. If that is false, the data is damaged.
        return int.from_bytes(data[-4:], "little") if len(data) >= 18 else None
    if codec is Compression.LZ4:
        if len(data) < 14 or bytes(data[:4]) != _LZ4_MAGIC or not data[4] & _LZ4_HAS_SIZE:
            return None
        return int.from_bytes(data[6:14], "little")
    return _zstd_announced(data) if codec is Compression.ZSTD else None


def _zstd_announced(data: Buffer) -> int | None:
    """The content size in the header of the first frame."""
    if len(data) < 18 or bytes(data[:4]) != _ZSTD_MAGIC:
        return None
    descriptor = data[4]
    is_single_segment = bool(descriptor & 0x20)
    at = 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    if not size:
        return None
    content = int.from_bytes(data[at : at + size], "little")
    return content + 256 if size == 2 else content


def _decompress_growing(codec: Compression, data: Buffer, bytes_max: int) -> Buffer:
    announced = announced_bytes(codec, data)
    if announced is not None and announced > bytes_max:
        if codec is Compression.GZIP:
            _refuse_gzip(data, announced, bytes_max)
        _try(codec, data)
        raise UnpacksTooLarge(bytes_max)
    room = min(max(4096, announced or 4 * len(data)), bytes_max)
    while True:
        unpacked = bytearray(room)
        try:
            length = _INTO[codec](data, unpacked)
            meter.bytes_total += length
            return memoryview(unpacked)[:length]
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise
        meter.bytes_total += room
        if room == bytes_max:
            raise UnpacksTooLarge(bytes_max)
        room = min(4 * room, bytes_max)


def _try(codec: Compression, data: Buffer) -> None:
    """Raise if the beginning of `data` cannot be decompressed."""
    try:
        meter.bytes_total += _INTO[codec](data, bytearray(_TRIAL_BYTES))
    except cramjam.DecompressionError as error:
        if _NO_ROOM not in str(error):
            raise
        meter.bytes_total += _TRIAL_BYTES


def _refuse_gzip(data: Buffer, announced: int, bytes_max: int) -> NoReturn:
    """Distinguish gzip data that is too large from data whose trailer is damaged.

    The length is at its end, where damaged data may have any bytes, so the data is decompressed, up
    to the bound and without keeping the result.
    """
    if announced > _GZIP_RATIO_MAX * len(data):
        raise CorruptBatch(f"Its end claims that it unpacks to {announced} bytes.")
    unpacker, total, view = zlib.decompressobj(_GZIP_WBITS), 0, memoryview(data)
    for start in range(0, len(view), _GZIP_STEP_BYTES):
        rest: Buffer = view[start : start + _GZIP_STEP_BYTES]
        while rest:
            try:
                length = len(unpacker.decompress(rest, _GZIP_STEP_BYTES))
            except zlib.error as error:
                raise CorruptBatch(f"The gzip data of a batch is damaged: {error}.") from error
            total += length
            meter.bytes_total += length
            if total > bytes_max:
                raise UnpacksTooLarge(bytes_max)
            rest = unpacker.unconsumed_tail
            if unpacker.eof:  # more gzip members may follow
                rest, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP_WBITS)
    raise CorruptBatch("The gzip data of a batch is truncated.")


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
    # Snappy has a ratio of at most about 21:1, so a larger claim means damage.
    if length > 64 * max(len(block), 64):
        raise CorruptBatch(f"A snappy block claims to unpack to {length} bytes.")
    if length > bytes_max:
        raise UnpacksTooLarge(bytes_max)
    meter.bytes_total += length
    return bytes(cramjam.snappy.decompress_raw(block))
