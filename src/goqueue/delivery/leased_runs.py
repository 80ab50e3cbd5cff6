"""The values that receive and settle calls take and return."""

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
    """Chosen messages of one partition that have been read, in delivery order."""

    partition: int
    offsets: Sequence[int]
    keys: Sequence[bytes | None] | None = None  # given where the group's settings need them
    expires_ms: Sequence[int | None] | None = None  # given if any message has an expiry time


class LeasedRun(NamedTuple):
    """The messages of one run that were leased, contiguous in the lease."""

    run: int  # the index of the run
    places: Sequence[int]  # positions in that run of the leased messages
    lease: Lease
    first: int  # the index of the first of them in the lease

    def deliveries(self) -> list[Delivery]:
        return [
            self.lease.delivery(index) for index in range(self.first, self.first + len(self.places))
        ]


class Settled(NamedTuple):
    """The result for one receipt: an error, plain success, or a pending dead letter."""

    error: GoQueueError | None = None
    dead_letter: DeadLetter | None = None


SETTLED = Settled()


class Preparation(NamedTuple):
    """What a transaction may acknowledge: write the events first, then pass it to `prepare`."""

    settled: list[Settled]
    taken: dict[Lease, list[int]]
    events: list[tuple[int, Prepared]]  # for each partition concerned


class Draft:
    """The decisions of a receive call about the chosen messages of one partition."""

    __slots__ = ("_chosen", "_kept", "_kept_count", "_passed", "finished", "tenants")

    def __init__(self) -> None:
        self.finished: dict[Finish, list[int]] = {}
        self.tenants: list[Tenant | None] = []  # of the leased messages, with fair shares
        self._chosen: list[Sequence[int]] = []
        self._kept: list[Sequence[int]] = []
        self._kept_count = 0
        self._passed: list[int] = []

    def choose(self, offsets: Sequence[int]) -> None:
        self._chosen.append(offsets)

    def keep(self, offsets: Sequence[int]) -> int:
        """Lease these; return the index of the first in the lease."""
        first = self._kept_count
        self._kept.append(offsets)
        self._kept_count += len(offsets)
        return first

    def finish(self, offset: int, why: Finish) -> None:
        self.finished.setdefault(why, []).append(offset)

    def pass_over(self, offset: int) -> None:
        """Leave out a message that is now parked or set aside elsewhere in the queue."""
        self._passed.append(offset)

    def kept(self) -> Sequence[int]:
        """Return the leased offsets, as a range where they are contiguous."""
        if len(self._kept) == 1:
            return self._kept[0]
        are_stretches = bool(self._kept) and all(isinstance(one, range) for one in self._kept)
        if are_stretches and all(one[-1] + 1 == two[0] for one, two in pairwise(self._kept)):
            return range(self._kept[0][0], self._kept[-1][-1] + 1)
        return list(chain.from_iterable(self._kept))

    def left(self) -> list[int]:
        """Return the chosen offsets that no decision mentions, sorted."""
        chosen_count = sum(map(len, self._chosen))
        handled = self._kept_count + len(self._passed) + sum(map(len, self.finished.values()))
        assert handled <= chosen_count, "a message was read that was not chosen"
        if handled == chosen_count:
            return []
        left = set(chain.from_iterable(self._chosen))
        left.difference_update(self._passed, *self._kept, *self.finished.values())
        return sorted(left)
