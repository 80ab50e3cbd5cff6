"""What compressed data may unpack to: refused before that, or when the bound is reached."""

from __future__ import annotations

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


@pytest.mark.parametrize("module", [cramjam.gzip, cramjam.zstd], ids=["gzip", "zstd"])
def test_what_announces_too_much_is_not_unpacked(module: object) -> None:
    codec = Compression.GZIP if module is cramjam.gzip else Compression.ZSTD
    packed = bytes(module.compress(bytes(2_000_000)))  # type: ignore[attr-defined]
    before = meter.bytes_total
    with pytest.raises(UnpacksTooLarge, match="unpacked_bytes_max"):
        decompress(codec, packed, bytes_max=1_999_999)
    assert meter.bytes_total == before
    assert len(decompress(codec, packed, bytes_max=2_000_000)) == 2_000_000


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
