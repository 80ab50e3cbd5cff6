"""Arrival times of stored messages, for a queue with an initial delay that is being opened."""

from __future__ import annotations

from goqueue.broker.queues.records import Source
from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition

STEPS = 16  # the delay in steps; messages of one step count as arriving at its end


def arrived_in(clock: Clock, source: Source, delay_ms: int) -> list[tuple[int, int]]:
    """Return times of the last `delay_ms`, each with the offset before which all had arrived.

    They come from the timestamps of a replica on this node. Without one, or if it cannot be read,
    the result is empty: existing messages then count as arriving now, and are delayed again.
    """
    if not delay_ms or not isinstance(source, Partition):
        return []
    now_ms, ahead_ms = clock.now_ms(), clock.now_ms() - clock.wall_ms()
    arrived: list[tuple[int, int]] = []
    try:
        for step in range(STEPS + 1):
            time_ms = now_ms - delay_ms + step * delay_ms // STEPS
            found = source.find_timestamp(time_ms - ahead_ms + 1, is_committed_only=True)
            end = source.last_stable_offset if found is None else found.offset
            arrived.append((time_ms, end))
    except GoQueueError:
        return []
    return arrived
