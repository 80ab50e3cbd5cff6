"""Purging named queues, including their delayed messages."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from goqueue.broker.named_queues.named_queues import NamedQueue, NamedQueues
from goqueue.broker.queues.queues import Queues
from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError, PurgeInProgress

DELAYED_PER_STEP = 1000
QUEUES_MAX = 10_000


class Purges:
    """When queues were last purged, for protocols that limit how often a queue may be purged."""

    def __init__(self) -> None:
        self._last_ms: dict[bytes, int] = {}

    def begin(self, queue: NamedQueue, now_ms: int, pause_ms: int) -> None:
        """Note a purge, or raise if the last one was too recent."""
        last_ms = self._last_ms.get(queue.id)
        if last_ms is not None and now_ms - last_ms < pause_ms:
            raise PurgeInProgress(queue.name)
        if len(self._last_ms) >= QUEUES_MAX:
            self._last_ms = {
                one: at_ms for one, at_ms in self._last_ms.items() if now_ms - at_ms < pause_ms
            }
        if len(self._last_ms) < QUEUES_MAX:
            self._last_ms[queue.id] = now_ms

    def undo(self, queue: NamedQueue) -> None:
        """Remove the note of a failed purge, so that it may be retried."""
        self._last_ms.pop(queue.id, None)


class Entry(Protocol):
    @property
    def id(self) -> str: ...


class Page(Protocol):
    @property
    def entries(self) -> Sequence[Entry]: ...


class Delayed(Protocol):
    """Delayed messages, on all nodes."""

    def list(self, *, topic: str | None = None, limit: int) -> Awaitable[Page]: ...

    def cancel_many(
        self, schedule_ids: Sequence[str]
    ) -> Awaitable[Sequence[GoQueueError | None]]: ...


class QueuePurging:
    """Finishes everything in a queue; called on its owner."""

    def __init__(
        self, clock: Clock, named_queues: NamedQueues, queues: Queues, delayed: Delayed
    ) -> None:
        self._clock = clock
        self._named_queues = named_queues
        self._queues = queues
        self._delayed = delayed
        self._purges = Purges()

    async def purge(self, queue: NamedQueue, *, pause_ms: int) -> None:
        """Finish everything stored so far; refused within `pause_ms` after the last purge."""
        self._purges.begin(queue, self._clock.wall_ms(), pause_ms)
        try:
            await self._queues.positions.begin(queue.group, queue.topic)
            await self._cancel_delayed(queue)
            ends = await self._queues.positions.purge(queue.group, queue.topic)
            await self._named_queues.forget_sent(queue.name, ends)
        except BaseException:
            self._purges.undo(queue)
            raise

    async def _cancel_delayed(self, queue: NamedQueue) -> None:
        """Cancel delayed messages, unless other queues read the topic too."""
        readers = [one.name for one in self._named_queues.all() if one.topic == queue.topic]
        if not queue.made_topic or readers != [queue.name]:
            return
        while True:
            page = await self._delayed.list(topic=queue.topic, limit=DELAYED_PER_STEP)
            if not page.entries:
                return
            outcomes = await self._delayed.cancel_many([one.id for one in page.entries])
            if all(outcomes):
                return  # They are being released, and are then purged as messages.
