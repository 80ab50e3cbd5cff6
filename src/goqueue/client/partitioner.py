"""Which partition a record goes to.

A key always goes to the same partition, and every Kafka client agrees on which: the hash is the
one of the Java client and of librdkafka's `murmur2_random`. Records without a key stay with one
partition until its batch is sent, then move to another, because few large batches are cheaper than
many small ones.
"""

from __future__ import annotations

import struct
from random import Random

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
    """The partition of a key in a topic of so many partitions."""
    return (murmur2(key) & _POSITIVE) % partition_count


class StickyPartitioner:
    """Keeps keyless records of a topic together until `move_on` is called."""

    def __init__(self, rng: Random) -> None:
        self._random = rng
        self._current: dict[str, tuple[int, int]] = {}  # partition, of how many

    def choose(self, topic: str, partition_count: int) -> int:
        """The partition for a keyless record now."""
        current, count = self._current.get(topic, (0, 0))
        if count != partition_count:
            current = self._random.randrange(partition_count)
            self._current[topic] = current, partition_count
        return current

    def move_on(self, topic: str, partition: int) -> None:
        """A batch of `partition` was sent: stay no longer, if that is where records go."""
        current, count = self._current.get(topic, (0, 0))
        if current == partition and count > 1:
            step = self._random.randrange(1, count)
            self._current[topic] = (partition + step) % count, count
