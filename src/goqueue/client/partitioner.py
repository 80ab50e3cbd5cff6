"""Which partition a record goes to.

A key always goes to the same partition, and every Kafka client agrees on which: the hash is the
one of the Java client and of librdkafka's `murmur2_random`. Records without a key stay with one
partition until its batch is sent, then move to another, because few large batches are cheaper than
many small ones.
"""

from __future__ import annotations

from random import Random

from goqueue.model.key_hash import murmur2 as murmur2
from goqueue.model.key_hash import partition_of_key as partition_of_key


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
