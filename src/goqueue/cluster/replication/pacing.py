"""How fast copies that are not in sync are fed, so that those who wait for others do not notice.

Writers wait for the copies in sync, so these are answered at once and never slowed down. A copy
that is behind, because it is new or its node was away, is answered after them, piece by piece, with
few bytes on the way to each node, and no faster than its throttles allow.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from math import exp
from typing import Generic, TypeVar

PIECE_BYTES = 512 << 10  # of one answer to a copy that is behind; reading it takes a moment
UNDERWAY_BYTES_MAX = 2 << 20  # on the way to one node; what is live has to queue up behind it
UNDERWAY_MS_MAX = 5_000  # then an answer counts as lost
SAVED_MS = 250  # of a throttle's bytes that can be used later; several looks fit into it
METER_MS = 10_000  # a third of what happened so long ago still counts

NO_THROTTLE = 0  # but that which is for all of this node
EXEMPT = -1  # from that one too

QuestionT = TypeVar("QuestionT")
Place = Hashable  # the partition that a question is about


class TokenBucket:
    """Lets so many bytes pass in a second.

    A piece is not cut up for it. What it takes too much must come in again before the next.
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
        """How large pieces should be, so that the bytes of a second do not come all at once."""
        return int(self._saved_max)

    def is_open(self, now_ms: int) -> bool:
        """Whether something may pass now."""
        self._earn(now_ms)
        return self._balance > 0

    def is_full(self, now_ms: int) -> bool:
        """Whether it is as if nothing had ever passed."""
        self._earn(now_ms)
        return self._balance >= self._saved_max

    def take(self, count: int) -> None:
        self._balance -= count

    def _earn(self, now_ms: int) -> None:
        earned = self.bytes_per_second * max(0, now_ms - self._at_ms) / 1000
        self._balance = min(self._saved_max, self._balance + earned)
        self._at_ms = now_ms


class Meter:
    """How many bytes per second there were lately, without remembering when each of them was."""

    __slots__ = ("_at_ms", "_began_ms", "_per_second")

    def __init__(self, now_ms: int) -> None:
        self._began_ms = self._at_ms = now_ms
        self._per_second = 0.0

    def add(self, count: int, now_ms: int) -> None:
        self._per_second = self._faded(now_ms) + count * 1000 / METER_MS
        self._at_ms = now_ms

    def per_second(self, now_ms: int) -> int:
        # What began a moment ago has not had the time that the sum stands for.
        age_ms = max(1_000, now_ms - self._began_ms)
        return int(self._faded(now_ms) / (1 - exp(-age_ms / METER_MS)))

    def _faded(self, now_ms: int) -> float:
        return self._per_second * exp(-max(0, now_ms - self._at_ms) / METER_MS)


@dataclass(frozen=True, slots=True)
class Turn(Generic[QuestionT]):
    """A question that is to be answered now, with about so many bytes."""

    node: int
    place: Place
    question: QuestionT
    throttle: int
    bytes_max: int


class Stragglers(Generic[QuestionT]):
    """The questions of copies that are behind, until each has its turn.

    Questions with one throttle share it, whichever nodes they are of. A copy has one question at a
    time: a later one takes the place of the one before.
    """

    def __init__(self, bytes_per_second: int, *, now_ms: int) -> None:
        """`bytes_per_second` is for all copies together; nothing at all means no limit."""
        self._common: TokenBucket | None = None
        self.limit(bytes_per_second, now_ms=now_ms)
        self._buckets: dict[int, TokenBucket] = {}
        self._lines: dict[tuple[int, int], dict[Place, QuestionT]] = {}  # by node and throttle
        self._throttles: dict[tuple[int, Place], int] = {}  # of those who wait
        self._underway: dict[tuple[int, Place], tuple[int, int]] = {}  # bytes, and since when
        self._underway_bytes: dict[int, int] = {}

    def limit(self, bytes_per_second: int, *, now_ms: int) -> None:
        """Let all copies together have so much from now on; nothing at all means no limit."""
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
        """A copy asks again, so what was on the way to it has come or is lost."""
        count, _ = self._underway.pop((node, place), (0, 0))
        if count:
            left = self._underway_bytes[node] - count
            if left:
                self._underway_bytes[node] = left
            else:
                del self._underway_bytes[node]

    def withdraw(self, node: int, place: Place) -> QuestionT | None:
        """The question of a copy, which waits here no longer; None if it has none."""
        throttle = self._throttles.pop((node, place), None)
        if throttle is None:
            return None
        line = self._lines[node, throttle]
        question = line.pop(place)
        if not line:
            del self._lines[node, throttle]
        return question

    def forget(self, place: Place, nodes: Iterable[int]) -> None:
        """The copies on these nodes get no more answers from here."""
        for node in nodes:
            self.withdraw(node, place)
            self.heard(node, place)

    def take(self, now_ms: int) -> Turn[QuestionT] | None:
        """The question whose turn it is; None when none can be answered now."""
        for node, throttle in self._lines:
            if self._underway_bytes.get(node, 0) >= UNDERWAY_BYTES_MAX:
                continue
            buckets = list(self._buckets_of(throttle, now_ms))
            if all(bucket.is_open(now_ms) for bucket in buckets):
                return self._next(node, throttle, buckets)
        return None

    def sent(self, turn: Turn[QuestionT], count: int, now_ms: int) -> None:
        """A question was answered with so many bytes."""
        if not count:
            return
        for bucket in self._buckets_of(turn.throttle, now_ms):
            bucket.take(count)
        self.heard(turn.node, turn.place)
        self._underway[turn.node, turn.place] = count, now_ms
        self._underway_bytes[turn.node] = self._underway_bytes.get(turn.node, 0) + count

    def tick(self, now_ms: int) -> None:
        """Count on no more news of answers that went out long ago; forget throttles not in use."""
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
            # Others who wait have their turn first.
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
