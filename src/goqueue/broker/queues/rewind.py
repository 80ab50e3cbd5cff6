"""Moving queues: to offsets, to a time, or past everything stored."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.reading.remote import Bounds
from goqueue.broker.topics.topics import Topic
from goqueue.loop.promise import Promise


class Look(Protocol):
    """Requests the start and end of partitions from their leaders."""

    def __call__(
        self, topic: Topic, numbers: Sequence[int], *, times_ms: Sequence[int] = ()
    ) -> Coroutine[Promise[Any], None, Sequence[Bounds]]: ...


async def rewind_to(
    look: Look, hosted: HostedQueue, offsets: Mapping[int, int], *, now_ms: Callable[[], int]
) -> dict[int, int]:
    """Deliver again from these offsets on; return where each partition continues."""
    bounds = await look(hosted.topic, list(offsets))
    targets = {
        number: max(one.start_offset, min(offsets[number], one.last_stable_offset))
        for number, one in zip(offsets, bounds, strict=True)
    }
    return await _go(hosted, targets, now_ms())


async def rewind_to_time(
    look: Look, hosted: HostedQueue, time_ms: int, *, now_ms: Callable[[], int]
) -> dict[int, int]:
    """Deliver again from the first message at or after a time, in all partitions."""
    numbers = range(len(hosted.topic.partitions))
    targets: dict[int, int] = {}
    for number, one in enumerate(await look(hosted.topic, numbers, times_ms=[time_ms])):
        found = one.find_timestamp(time_ms, is_committed_only=True)
        end = one.last_stable_offset
        offset = end if found is None else found.offset
        targets[number] = max(one.start_offset, min(offset, end))
    return await _go(hosted, targets, now_ms())


async def purge(look: Look, hosted: HostedQueue) -> dict[int, int]:
    """Finish everything stored so far; return where each partition continues."""
    bounds = await look(hosted.topic, range(len(hosted.queue.partitions)))
    hosted.check_open()
    known = hosted.queue.partitions
    ends = [
        max(one.last_stable_offset, mine.high_watermark)
        for one, mine in zip(bounds, known, strict=False)
    ]
    # Partitions added in the meantime keep their messages.
    ends += [mine.ledger.floor for mine in known[len(ends) :]]
    hosted.queue.purge(ends)
    return await _saved(hosted, dict(enumerate(ends)))


async def _go(hosted: HostedQueue, targets: dict[int, int], now_ms: int) -> dict[int, int]:
    hosted.check_open()
    for number, offset in targets.items():
        hosted.queue.rewind(number, offset, now_ms)
    return await _saved(hosted, targets)


async def _saved(hosted: HostedQueue, targets: dict[int, int]) -> dict[int, int]:
    saved = hosted.saved()
    hosted.settle()
    hosted.wake()
    await saved
    return targets
