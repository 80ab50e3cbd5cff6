"""Chooses the partition of a record.

A key always maps to the same partition, and all Kafka clients agree on which: the hash is the one
of the Java client and of librdkafka's `murmur2_random`. Records without a key stay in one partition
until its batch is sent, then move to another, because few large batches are cheaper than many small
ones.
"""

from __future__ import annotations

from random import Random

from goqueue.model.key_hash import murmur2 as murmur2
from goqueue.model.key_hash import partition_of_key as partition_of_key


class StickyPartitioner:
    """Assigns records without a key to one partition per topic until `move_on` is called."""

    def __init__(self, rng: Random) -> None:
        self._random = rng
        self._current: dict[str, tuple[int, int]] = {}  # partition, number of partitions

    def choose(self, topic: str, partition_count: int) -> int:
        """The current partition for records without a key."""
        current, count = self._current.get(topic, (0, 0))
        if count != partition_count:
            current = self._random.randrange(partition_count)
            self._current[topic] = current, partition_count
        return current

    def move_on(self, topic: str, partition: int) -> None:
        """Leave `partition`, whose batch was sent, if it is the current one."""
        current, count = self._current.get(topic, (0, 0))
        if current == partition and count > 1:
            step = self._random.randrange(1, count)
            self._current[topic] = (partition + step) % count, count
