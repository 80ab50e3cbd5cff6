"""Back-pressure for replicas that are not in sync, so that they do not slow down the others.

Producers wait for in-sync replicas, so these are answered at once and never throttled. A replica
that is behind, because it is new or its node was down, is answered after them, piece by piece, with
a bounded number of bytes in flight per node, and within its throttles.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from math import exp
from typing import Generic, TypeVar

PIECE_BYTES = 512 << 10  # per answer to a replica that is behind; reading it takes a moment
UNDERWAY_BYTES_MAX = 2 << 20  # in flight to one node; live traffic queues behind it
UNDERWAY_MS_MAX = 5_000  # then an answer counts as lost
SAVED_MS = 250  # of unused throttle that can be used later; several polls fit into it
METER_MS = 10_000  # after so long an event still counts for about a third

NO_THROTTLE = 0  # none except the node's common one
EXEMPT = -1  # from the common one too

QuestionT = TypeVar("QuestionT")
Place = Hashable  # the partition of a fetch


class TokenBucket:
    """A rate limit in bytes per second.

    A piece is not split for it. An overdraft must be earned back before the next piece.
    """

    __slots__ = ("_at_ms", "_balance", "_saved_max", "bytes_per_second")

    def __init__(self, bytes_per_second: int, *, now_ms: int) -> None:
        assert bytes_per_second > 0
        self.bytes_per_second = bytes_per_second
        self._saved_max = max(1.0, bytes_per_second * SAVED_MS / 1000)
        self._balance = self._saved_max
        self._at_ms = now_ms

    @property
    def piece_bytes(self) -> int:
        """Return how large pieces should be, so that a second's bytes do not come all at once."""
        return int(self._saved_max)

    def is_open(self, now_ms: int) -> bool:
        """Return whether a piece may pass now."""
        self._earn(now_ms)
        return self._balance > 0

    def is_full(self, now_ms: int) -> bool:
        """Return whether the bucket is full, as if nothing had ever passed."""
        self._earn(now_ms)
        return self._balance >= self._saved_max

    def take(self, count: int) -> None:
        self._balance -= count

    def _earn(self, now_ms: int) -> None:
        earned = self.bytes_per_second * max(0, now_ms - self._at_ms) / 1000
        self._balance = min(self._saved_max, self._balance + earned)
        self._at_ms = now_ms


class Meter:
    """An exponentially decaying average of bytes per second."""

    __slots__ = ("_at_ms", "_began_ms", "_per_second")

    def __init__(self, now_ms: int) -> None:
        self._began_ms = self._at_ms = now_ms
        self._per_second = 0.0

    def add(self, count: int, now_ms: int) -> None:
        self._per_second = self._faded(now_ms) + count * 1000 / METER_MS
        self._at_ms = now_ms

    def per_second(self, now_ms: int) -> int:
        # Correct for a short history: a new meter has not covered the whole window yet.
        age_ms = max(1_000, now_ms - self._began_ms)
        return int(self._faded(now_ms) / (1 - exp(-age_ms / METER_MS)))

    def _faded(self, now_ms: int) -> float:
        return self._per_second * exp(-max(0, now_ms - self._at_ms) / METER_MS)


@dataclass(frozen=True, slots=True)
class Turn(Generic[QuestionT]):
    """A fetch to answer now, and the approximate number of bytes."""

    node: int
    place: Place
    question: QuestionT
    throttle: int
    bytes_max: int


class Stragglers(Generic[QuestionT]):
    """Queued fetches of replicas that are behind.

    Fetches with the same throttle share it, across nodes. A replica has one fetch at a time: a
    later one replaces the one before.
    """

    def __init__(self, bytes_per_second: int, *, now_ms: int) -> None:
        """`bytes_per_second` is for all replicas together; 0 is unlimited."""
        self._common: TokenBucket | None = None
        self.limit(bytes_per_second, now_ms=now_ms)
        self._buckets: dict[int, TokenBucket] = {}
        self._lines: dict[tuple[int, int], dict[Place, QuestionT]] = {}  # by node and throttle
        self._throttles: dict[tuple[int, Place], int] = {}  # of the queued fetches
        self._underway: dict[tuple[int, Place], tuple[int, int]] = {}  # bytes, and since when
        self._underway_bytes: dict[int, int] = {}

    def limit(self, bytes_per_second: int, *, now_ms: int) -> None:
        """Set the limit for all replicas together; 0 is unlimited."""
        if bytes_per_second <= 0:
            self._common = None
        elif self._common is None or self._common.bytes_per_second != bytes_per_second:
            self._common = TokenBucket(bytes_per_second, now_ms=now_ms)

    @property
    def has_waiting(self) -> bool:
        return bool(self._lines)

    def ask(self, node: int, place: Place, question: QuestionT, *, throttle: int) -> None:
        self.heard(node, place)
        self.withdraw(node, place)
        self._lines.setdefault((node, throttle), {})[place] = question
        self._throttles[node, place] = throttle

    def heard(self, node: int, place: Place) -> None:
        """Note a new fetch of a replica, so the answer in flight to it has arrived or is lost."""
        count, _ = self._underway.pop((node, place), (0, 0))
        if count:
            left = self._underway_bytes[node] - count
            if left:
                self._underway_bytes[node] = left
            else:
                del self._underway_bytes[node]

    def withdraw(self, node: int, place: Place) -> QuestionT | None:
        """Remove and return the queued fetch of a replica; None if it has none."""
        throttle = self._throttles.pop((node, place), None)
        if throttle is None:
            return None
        line = self._lines[node, throttle]
        question = line.pop(place)
        if not line:
            del self._lines[node, throttle]
        return question

    def forget(self, place: Place, nodes: Iterable[int]) -> None:
        """Drop the state of the replicas on these nodes."""
        for node in nodes:
            self.withdraw(node, place)
            self.heard(node, place)

    def take(self, now_ms: int) -> Turn[QuestionT] | None:
        """Return the next fetch to answer; None if none can be answered now."""
        for node, throttle in self._lines:
            if self._underway_bytes.get(node, 0) >= UNDERWAY_BYTES_MAX:
                continue
            buckets = list(self._buckets_of(throttle, now_ms))
            if all(bucket.is_open(now_ms) for bucket in buckets):
                return self._next(node, throttle, buckets)
        return None

    def sent(self, turn: Turn[QuestionT], count: int, now_ms: int) -> None:
        """Account for an answer of so many bytes."""
        if not count:
            return
        for bucket in self._buckets_of(turn.throttle, now_ms):
            bucket.take(count)
        self.heard(turn.node, turn.place)
        self._underway[turn.node, turn.place] = count, now_ms
        self._underway_bytes[turn.node] = self._underway_bytes.get(turn.node, 0) + count

    def tick(self, now_ms: int) -> None:
        """Treat old unacknowledged answers as lost, and drop unused throttles."""
        old_ms = now_ms - UNDERWAY_MS_MAX
        for node, place in [one for one, (_, at_ms) in self._underway.items() if at_ms < old_ms]:
            self.heard(node, place)
        for throttle in [one for one, bucket in self._buckets.items() if bucket.is_full(now_ms)]:
            del self._buckets[throttle]

    def _next(self, node: int, throttle: int, buckets: list[TokenBucket]) -> Turn[QuestionT]:
        line = self._lines[node, throttle]
        place = next(iter(line))
        question = line[place]
        self.withdraw(node, place)
        if line:
            # Other waiting queues come first.
            self._lines[node, throttle] = self._lines.pop((node, throttle))
        bytes_max = min([PIECE_BYTES, *(bucket.piece_bytes for bucket in buckets)])
        return Turn(node, place, question, throttle, bytes_max)

    def _buckets_of(self, throttle: int, now_ms: int) -> Iterator[TokenBucket]:
        if throttle != EXEMPT and self._common is not None:
            yield self._common
        if throttle > 0:
            bucket = self._buckets.get(throttle)
            if bucket is None:
                bucket = self._buckets[throttle] = TokenBucket(throttle, now_ms=now_ms)
            yield bucket
