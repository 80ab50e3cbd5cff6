"""Limits on how much of the backlog a micro-batch takes.

Partitions share a limit in proportion to their backlog, so that all of them reach their ends
together and none falls behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.model.names import TopicPartition

Counts = Mapping[TopicPartition, int]


def share(waiting: Counts, limit: int) -> dict[TopicPartition, int]:
    """Take at most `limit` waiting records; all of them when there are fewer."""
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {one: count * limit // total for one, count in waiting.items()}
    # Rounding leftovers go to the partitions that lost most by rounding.
    left = limit - sum(shares.values())
    by_loss = sorted(waiting, key=lambda one: (-(waiting[one] * limit % total), one))
    for one in by_loss[:left]:
        shares[one] += 1
    return shares


def share_bytes(
    waiting: Counts, sizes: Mapping[TopicPartition, float], limit_bytes: int
) -> dict[TopicPartition, int]:
    """Take about `limit_bytes` of waiting records, by their mean size; at least one record."""
    total = sum(count * sizes.get(one, 0.0) for one, count in waiting.items())
    if total <= limit_bytes:
        return dict(waiting)
    return share(waiting, max(1, int(sum(waiting.values()) * limit_bytes / total)))


@dataclass(slots=True)
class MinimumWait:
    """Delays a micro-batch until enough records are waiting or the maximum delay has passed."""

    records_min: int
    delay_ms_max: int
    _last_ms: float | None = None  # None: no batch in this run yet

    def is_over(self, waiting: int, now_ms: float) -> bool:
        """Return whether a batch of this many records starts now; the first batch never waits."""
        is_late = self._last_ms is None or now_ms - self._last_ms >= self.delay_ms_max
        if not is_late and waiting < self.records_min:
            return False
        self._last_ms = now_ms
        return True
