"""How often, why and for how long a group rebalances."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum

import msgspec


class Reason(StrEnum):
    MEMBER_JOINED = "member_joined"
    MEMBER_LEFT = "member_left"
    SESSION_EXPIRED = "session_expired"
    SUBSCRIPTION_CHANGED = "subscription_changed"
    TOPICS_CHANGED = "topics_changed"
    ASSIGNOR_CHANGED = "assignor_changed"
    LEADER_REJOINED = "leader_rejoined"
    INSTANCE_REPLACED = "instance_replaced"
    JOIN_TIMEOUT = "join_timeout"
    SYNC_TIMEOUT = "sync_timeout"
    REVOCATION_TIMEOUT = "revocation_timeout"
    UPGRADED = "upgraded"
    DOWNGRADED = "downgraded"


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    started_at_ms: int
    duration_ms: int
    reason: Reason  # the first; further reasons are counted but not listed
    partitions_moved: int


class RebalanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The rebalances of a group, as returned to clients."""

    is_under_way: bool
    count: int
    timeouts: int
    partitions_moved: int
    duration_ms_last: int
    duration_ms_max: int
    duration_ms_total: int
    reasons: dict[Reason, int]
    history: list[Rebalance]


class RebalanceLog:
    """Counters of one group, and its last rebalances."""

    def __init__(
        self, history_max: int, *, finished: Callable[[Rebalance], None] | None = None
    ) -> None:
        """`finished` is called with every rebalance that ends."""
        self._finished = finished
        self.count = 0
        self.reasons: Counter[Reason] = Counter()
        self.timeouts = 0
        self.partitions_moved = 0
        self.duration_ms_last = 0
        self.duration_ms_max = 0
        self.duration_ms_total = 0
        self.history: deque[Rebalance] = deque(maxlen=history_max)
        self.begun = 0  # how often members got, or were asked for, a new assignment
        self._started: tuple[int, Reason] | None = None
        self._moved = 0

    @property
    def is_under_way(self) -> bool:
        return self._started is not None

    def report(self) -> RebalanceReport:
        return RebalanceReport(
            is_under_way=self.is_under_way,
            count=self.count,
            timeouts=self.timeouts,
            partitions_moved=self.partitions_moved,
            duration_ms_last=self.duration_ms_last,
            duration_ms_max=self.duration_ms_max,
            duration_ms_total=self.duration_ms_total,
            reasons=dict(self.reasons),
            history=list(self.history),
        )

    def begin(self, reason: Reason, now_ms: int, *, is_postponed: bool = False) -> None:
        """Start a rebalance; a further reason for one in progress is only counted.

        A postponed rebalance counts as begun when `resume` is called.
        """
        self.reasons[reason] += 1
        self.begun += not is_postponed
        if self._started is None:
            self._started = (now_ms, reason)
            self._moved = 0

    def resume(self) -> None:
        """Begin a postponed rebalance."""
        self.begun += 1

    def move(self, partition_count: int) -> None:
        self._moved += partition_count

    def finish(self, now_ms: int) -> None:
        if self._started is None:
            return
        started_at_ms, reason = self._started
        duration_ms = max(now_ms - started_at_ms, 0)
        self._started = None
        self.count += 1
        self.partitions_moved += self._moved
        self.duration_ms_last = duration_ms
        self.duration_ms_max = max(self.duration_ms_max, duration_ms)
        self.duration_ms_total += duration_ms
        rebalance = Rebalance(
            started_at_ms=started_at_ms,
            duration_ms=duration_ms,
            reason=reason,
            partitions_moved=self._moved,
        )
        self.history.append(rebalance)
        if self._finished is not None:
            self._finished(rebalance)
