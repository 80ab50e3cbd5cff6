"""Which batches of idempotent producers have been scheduled, so that a retry is not a second copy.

A producer's batch may be split: some records are scheduled, the others go to the log of their
partition, which knows the producer's sequence numbers. This is the same knowledge for the first
part. Each part looks for itself whether it has been done, so it does not matter which of the two
a crash has taken away.
"""

from __future__ import annotations

from goqueue.delivery.schedules.payload import Origin, ScheduledMessage

BATCHES_REMEMBERED = 5  # clients keep at most five requests in flight
PRODUCERS_MAX = 10_000  # the longest silent is forgotten first

OriginsState = list[tuple[bytes, int, int, int, list[tuple[int, int]]]]

_Key = tuple[bytes, int, int]  # topic id, partition, producer id


class Origins:
    """For each producer and partition, the newest batches that were scheduled here."""

    __slots__ = ("_producers",)

    def __init__(self, state: OriginsState | None = None) -> None:
        self._producers: dict[_Key, tuple[int, list[tuple[int, int]]]] = {
            (topic_id, partition, producer_id): (epoch, [(one, last) for one, last in batches])
            for topic_id, partition, producer_id, epoch, batches in state or ()
        }

    def find(self, topic_id: bytes, partition: int, origin: Origin) -> int | None:
        """The number of the last message of this batch, when it was scheduled before."""
        epoch, batches = self._producers.get((topic_id, partition, origin.producer_id), (-1, []))
        if epoch == origin.epoch:
            for base_sequence, last_number in batches:
                if base_sequence == origin.base_sequence:
                    return last_number
        return None

    def note(self, message: ScheduledMessage, number: int) -> None:
        """Remember a message that came in a producer's batch."""
        origin = message.origin
        if origin is None:
            return
        key = (message.topic_id, message.partition, origin.producer_id)
        epoch, batches = self._producers.pop(key, (origin.epoch, []))
        if epoch != origin.epoch:
            batches = []
        if batches and batches[-1][0] == origin.base_sequence:
            batches[-1] = (origin.base_sequence, number)
        else:
            batches.append((origin.base_sequence, number))
            del batches[:-BATCHES_REMEMBERED]
        self._producers[key] = (origin.epoch, batches)
        if len(self._producers) > PRODUCERS_MAX:
            del self._producers[next(iter(self._producers))]

    def state(self) -> OriginsState:
        return [(*key, epoch, list(batches)) for key, (epoch, batches) in self._producers.items()]
