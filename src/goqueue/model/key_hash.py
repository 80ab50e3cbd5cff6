"""The partition of a key. A key always maps to the same one, on which every client of the format
agrees: the hash is that of the Java client and of librdkafka's `murmur2_random`.
"""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFF_FFFF
_POSITIVE = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's default partitioner, as an unsigned number."""
    length = len(data)
    whole = length & ~3
    hashed = _SEED ^ length
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition of a key in a topic with this many partitions."""
    return (murmur2(key) & _POSITIVE) % partition_count
