"""When queues were last purged: SQS lets a queue be purged once a minute."""

from __future__ import annotations

from goqueue.wire.sqs.errors import PurgeQueueInProgress

PAUSE_MS = 60_000
QUEUES_MAX = 10_000


class Purges:
    """The purges of the last minute."""

    def __init__(self) -> None:
        self._last_ms: dict[bytes, int] = {}

    def begin(self, queue_id: bytes, name: str, now_ms: int) -> None:
        """Note a purge, or raise because the last one was a moment ago."""
        last_ms = self._last_ms.get(queue_id)
        if last_ms is not None and now_ms - last_ms < PAUSE_MS:
            raise PurgeQueueInProgress(name)
        if len(self._last_ms) >= QUEUES_MAX:
            self._last_ms = {
                one: at_ms for one, at_ms in self._last_ms.items() if now_ms - at_ms < PAUSE_MS
            }
        if len(self._last_ms) < QUEUES_MAX:
            self._last_ms[queue_id] = now_ms

    def undo(self, queue_id: bytes) -> None:
        """It came to nothing, and may be tried again."""
        self._last_ms.pop(queue_id, None)
