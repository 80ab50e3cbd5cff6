"""How many messages a group and its consumers may have in flight."""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.delivery.settings import QueueSettings


@dataclass(slots=True)
class Unacked:
    """The number of messages in flight, total and per consumer; shared by a group's queues."""

    total: int = 0
    by_consumer: dict[str, int] = field(default_factory=dict)

    def add(self, consumer: str, count: int) -> None:
        self.total += count
        left = self.by_consumer.get(consumer, 0) + count
        if left:
            self.by_consumer[consumer] = left
        else:
            self.by_consumer.pop(consumer, None)

    def of(self, consumer: str) -> int:
        return self.by_consumer.get(consumer, 0)


class Limits:
    """The limits of a queue, and what counts against them."""

    __slots__ = ("pending_letters", "retrying", "settings", "unacked")

    def __init__(self, settings: QueueSettings, unacked: Unacked) -> None:
        self.settings = settings
        self.unacked = unacked
        self.retrying = 0  # waiting messages that were delivered before
        self.pending_letters = 0  # messages on their way to the dead-letter topic

    def room_for(self, consumer: str) -> int:
        """How many more messages the consumer may hold."""
        settings, unacked = self.settings, self.unacked
        group_room = settings.unacked_max - unacked.total - self.pending_letters
        return max(0, min(group_room, settings.consumer_unacked_max - unacked.of(consumer)))
