"""When the messages came that a queue finds, which holds them back for a time after that."""

from __future__ import annotations

from goqueue.broker.queues.records import Source
from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition

STEPS = 16  # into which the time is divided; messages of one step count as coming at its end


def arrived_in(clock: Clock, source: Source, delay_ms: int) -> list[tuple[int, int]]:
    """Times of the last `delay_ms`, each with the offset before which all messages had come.

    They are told by the timestamps of a copy on this node. Where there is none, or it cannot be
    read, nothing is told: what is there then counts as having come now, and is held back anew.
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
