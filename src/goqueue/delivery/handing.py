"""What goes into a receive call and comes out of it, and out of the calls that settle messages."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.delivery.choosing import Pick
from goqueue.delivery.ledger import Finish
from goqueue.delivery.partition_queue import DeadLetter
from goqueue.model.errors import GoQueueError


class Message(NamedTuple):
    """What the queue must know of a record that it chose."""

    partition: int
    offset: int
    key: bytes | None = None
    expires_ms: int | None = None


class Delivery(NamedTuple):
    """A message on its way to a consumer."""

    partition: int
    offset: int
    lane: int
    attempt: int
    receipt: str
    until_ms: int


class Settled(NamedTuple):
    """What became of one receipt: an error, or nothing to say, or a dead letter on its way."""

    error: GoQueueError | None = None
    dead_letter: DeadLetter | None = None


class Draft:
    """What a receive call does with the chosen messages of one partition."""

    __slots__ = ("finished", "left", "offsets")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.finished: dict[Finish, list[int]] = {}
        self.left: set[int] = set()

    def add(self, pick: Pick) -> None:
        self.left.update(pick.offsets)

    def keep(self, offset: int) -> int:
        self.left.remove(offset)
        self.offsets.append(offset)
        return len(self.offsets) - 1

    def finish(self, offset: int, why: Finish) -> None:
        self.left.remove(offset)
        self.finished.setdefault(why, []).append(offset)

    def pass_over(self, offset: int) -> None:
        self.left.remove(offset)
