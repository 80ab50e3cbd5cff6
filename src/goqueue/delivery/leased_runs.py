"""What goes into a receive call and comes out of it, and out of the calls that settle messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from goqueue.delivery.fairness import Tenant
from goqueue.delivery.leases import Delivery, Lease
from goqueue.delivery.ledger import Finish, Prepared
from goqueue.delivery.partition_queue import DeadLetter
from goqueue.model.errors import GoQueueError


class Run(NamedTuple):
    """Chosen messages of one partition that have been read, in the order of delivery."""

    partition: int
    offsets: Sequence[int]
    keys: Sequence[bytes | None] | None = None  # given where the group looks at them
    expires_ms: Sequence[int | None] | None = None  # given where any of them has a life


class LeasedRun(NamedTuple):
    """The messages of one run that are with the consumer now, one after the other in a lease."""

    run: int  # which of the runs it was
    places: Sequence[int]  # in that run, of those that were handed out
    lease: Lease
    first: int  # the index in the lease of the first of them

    def deliveries(self) -> list[Delivery]:
        return [
            self.lease.delivery(index) for index in range(self.first, self.first + len(self.places))
        ]


class Settled(NamedTuple):
    """What became of one receipt: an error, or nothing to say, or a dead letter on its way."""

    error: GoQueueError | None = None
    dead_letter: DeadLetter | None = None


SETTLED = Settled()


class Preparation(NamedTuple):
    """What a transaction may acknowledge: to be written first, and then given back as it is."""

    settled: list[Settled]
    taken: dict[Lease, list[int]]
    events: list[tuple[int, Prepared]]  # for each partition that has any


class Draft:
    """What a receive call does with the chosen messages of one partition."""

    __slots__ = ("_chosen", "_kept", "_kept_count", "_passed", "finished", "tenants")

    def __init__(self) -> None:
        self.finished: dict[Finish, list[int]] = {}
        self.tenants: list[Tenant | None] = []  # of what is handed out, where their shares count
        self._chosen: list[Sequence[int]] = []
        self._kept: list[Sequence[int]] = []
        self._kept_count = 0
        self._passed: list[int] = []

    def choose(self, offsets: Sequence[int]) -> None:
        self._chosen.append(offsets)

    def keep(self, offsets: Sequence[int]) -> int:
        """Hand these out; return the place of the first."""
        first = self._kept_count
        self._kept.append(offsets)
        self._kept_count += len(offsets)
        return first

    def finish(self, offset: int, why: Finish) -> None:
        self.finished.setdefault(why, []).append(offset)

    def pass_over(self, offset: int) -> None:
        """Another part of the queue has taken this message."""
        self._passed.append(offset)

    def kept(self) -> Sequence[int]:
        """What is handed out; a range where that is one stretch of the log."""
        if len(self._kept) == 1:
            return self._kept[0]
        are_stretches = bool(self._kept) and all(isinstance(one, range) for one in self._kept)
        if are_stretches and all(one[-1] + 1 == two[0] for one, two in pairwise(self._kept)):
            return range(self._kept[0][0], self._kept[-1][-1] + 1)
        return list(chain.from_iterable(self._kept))

    def left(self) -> list[int]:
        """What was chosen and not mentioned, sorted."""
        chosen_count = sum(map(len, self._chosen))
        handled = self._kept_count + len(self._passed) + sum(map(len, self.finished.values()))
        assert handled <= chosen_count, "a message was read that was not chosen"
        if handled == chosen_count:
            return []
        left = set(chain.from_iterable(self._chosen))
        left.difference_update(self._passed, *self._kept, *self.finished.values())
        return sorted(left)
