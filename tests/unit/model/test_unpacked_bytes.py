"""What compressed data may unpack to: refused before that, or when the bound is reached."""

from __future__ import annotations

import random

import cramjam
import pytest

from goqueue.model.compression import (
    Compression,
    announced_bytes,
    compress,
    decompress,
    meter,
)
from goqueue.model.errors import CorruptBatch, UnpacksTooLarge


def _streamed_zstd(data: bytes) -> bytes:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(data)
    return bytes(compressor.finish())


@pytest.mark.parametrize("size", [0, 1, 200, 300, 70_000, 1 << 20])
def test_what_data_announces_is_what_it_unpacks_to(size: int) -> None:
    data = bytes(size)
    packed = [
        (Compression.GZIP, bytes(cramjam.gzip.compress(data))),
        (Compression.ZSTD, bytes(cramjam.zstd.compress(data))),
        (Compression.ZSTD, _streamed_zstd(data)),
        (Compression.LZ4, compress(Compression.LZ4, data)),
    ]
    for codec, one in packed:
        assert announced_bytes(codec, one) in (None, size)
    assert announced_bytes(*packed[0]) == size


def test_what_announces_too_much_is_hardly_unpacked() -> None:
    packed = bytes(cramjam.zstd.compress(bytes(2_000_000)))
    before = meter.bytes_total
    with pytest.raises(UnpacksTooLarge, match="unpacked_bytes_max"):
        decompress(Compression.ZSTD, packed, bytes_max=1_999_999)
    assert meter.bytes_total - before <= 64 << 10
    assert len(decompress(Compression.ZSTD, packed, bytes_max=2_000_000)) == 2_000_000


@pytest.mark.parametrize("parts", [1, 3])
def test_gzip_is_unpacked_up_to_the_bound(parts: int) -> None:
    packed = bytes(cramjam.gzip.compress(bytes(2_000_000))) * parts
    before = meter.bytes_total
    with pytest.raises(UnpacksTooLarge, match="unpacked_bytes_max"):
        decompress(Compression.GZIP, packed, bytes_max=1_999_999)
    assert meter.bytes_total - before <= 2_000_000 + (64 << 10)


_RECORDS = random.Random(5).randbytes(100_000)
_HEADS = {
    Compression.GZIP: b"\x1f\x8b\x08\0",
    Compression.LZ4: b"\x04\x22\x4d\x18\x68\x40",  # with a size
    Compression.ZSTD: b"\x28\xb5\x2f\xfd\xe0",  # with a size of eight bytes
    Compression.SNAPPY: b"\x82SNAPPY\0\0\0\0\1\0\0\0\1",
}


@pytest.mark.parametrize("codec", _HEADS)
@pytest.mark.parametrize("bytes_max", [1000, 50_000, 32 << 20])
@pytest.mark.parametrize("garbage", [b"garbage" * 20, b"\xff" * 100_000], ids=["short", "long"])
def test_garbage_is_damaged_and_not_too_large(
    codec: Compression, garbage: bytes, bytes_max: int
) -> None:
    for data in (garbage, _HEADS[codec] + garbage):
        with pytest.raises(CorruptBatch) as found:
            decompress(codec, data, bytes_max=bytes_max)
        assert not isinstance(found.value, UnpacksTooLarge)


@pytest.mark.parametrize("codec", _HEADS)
@pytest.mark.parametrize("cut", [1, 4, 9, 1000, 50_000])
def test_data_cut_short_is_damaged_and_not_too_large(codec: Compression, cut: int) -> None:
    packed = compress(codec, _RECORDS)[:-cut]
    if codec is Compression.GZIP:
        packed = packed[:-1] + b"\x03"  # It claims some 50 MB.
    with pytest.raises(CorruptBatch) as found:
        decompress(codec, packed, bytes_max=32 << 20)
    assert not isinstance(found.value, UnpacksTooLarge)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_what_does_not_say_or_lies_is_stopped_at_the_bound(codec: Compression) -> None:
    data = bytes(50_000)
    packed = _streamed_zstd(data) if codec is Compression.ZSTD else compress(codec, data)
    if codec is Compression.GZIP:
        packed = packed[:-4] + bytes(4)  # It says that it unpacks to nothing.
    with pytest.raises(CorruptBatch):
        decompress(codec, packed, bytes_max=49_999)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_headers_that_are_cut_short_do_no_harm(codec: Compression) -> None:
    packed = compress(codec, bytes(1000))
    for length in range(len(packed)):
        announced_bytes(codec, packed[:length])
