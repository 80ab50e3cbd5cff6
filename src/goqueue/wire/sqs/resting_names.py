"""Names of queues that were deleted a moment ago: AWS does not let them be used for a minute."""

from __future__ import annotations

from goqueue.wire.sqs.errors import QueueDeletedRecently

REST_MS = 60_000
NAMES_MAX = 10_000  # the oldest go first, and can be used again sooner


class RestingNames:
    """The names of the last minute, in the order in which their queues were deleted."""

    def __init__(self) -> None:
        self._deleted_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._deleted_ms)

    def add(self, name: str, now_ms: int) -> None:
        self._deleted_ms.pop(name, None)
        self._forget(now_ms)
        if len(self._deleted_ms) >= NAMES_MAX:
            del self._deleted_ms[next(iter(self._deleted_ms))]
        self._deleted_ms[name] = now_ms

    def check(self, name: str, now_ms: int) -> None:
        """Raise if a queue of this name was deleted a moment ago."""
        self._forget(now_ms)
        if name in self._deleted_ms:
            raise QueueDeletedRecently

    def _forget(self, now_ms: int) -> None:
        rested = []
        for name, deleted_ms in self._deleted_ms.items():
            if now_ms - deleted_ms < REST_MS:
                break
            rested.append(name)
        for name in rested:
            del self._deleted_ms[name]
