"""How much of what is waiting a micro-batch takes.

Partitions share a limit in proportion to what each has waiting, so that all of them reach their
ends together and none is left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.model.names import TopicPartition

Counts = Mapping[TopicPartition, int]


def share(waiting: Counts, limit: int) -> dict[TopicPartition, int]:
    """At most `limit` records of those that wait; all of them when they are fewer."""
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {one: count * limit // total for one, count in waiting.items()}
    # What rounding has left goes to those that it has cost most.
    left = limit - sum(shares.values())
    by_loss = sorted(waiting, key=lambda one: (-(waiting[one] * limit % total), one))
    for one in by_loss[:left]:
        shares[one] += 1
    return shares


def share_bytes(
    waiting: Counts, sizes: Mapping[TopicPartition, float], limit_bytes: int
) -> dict[TopicPartition, int]:
    """About `limit_bytes` of what waits, by the mean size of records; one record at least."""
    total = sum(count * sizes.get(one, 0.0) for one, count in waiting.items())
    if total <= limit_bytes:
        return dict(waiting)
    return share(waiting, max(1, int(sum(waiting.values()) * limit_bytes / total)))


@dataclass(slots=True)
class MinimumWait:
    """Holds a micro-batch back until enough is waiting, or it has waited long enough."""

    records_min: int
    delay_ms_max: int
    _last_ms: float | None = None  # None: there was no batch in this run

    def is_over(self, waiting: int, now_ms: float) -> bool:
        """Whether a batch of so many records goes now; what is read first waits for nothing."""
        is_late = self._last_ms is None or now_ms - self._last_ms >= self.delay_ms_max
        if not is_late and waiting < self.records_min:
            return False
        self._last_ms = now_ms
        return True
