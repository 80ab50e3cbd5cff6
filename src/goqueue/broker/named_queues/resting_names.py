"""Names of recently deleted queues, which cannot be reused for a while."""

from __future__ import annotations

from goqueue.model.errors import QueueDeletedRecently

NAMES_MAX = 10_000  # beyond it the oldest are dropped, and can be reused earlier


class RestingNames:
    """The blocked names, in the order in which their queues were deleted."""

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._until_ms)

    def add(self, name: str, now_ms: int, rest_ms: int) -> None:
        self._until_ms.pop(name, None)
        self._forget(now_ms)
        if len(self._until_ms) >= NAMES_MAX:
            del self._until_ms[next(iter(self._until_ms))]
        self._until_ms[name] = now_ms + rest_ms

    def check(self, name: str, now_ms: int) -> None:
        """Raise if a queue of this name was deleted recently."""
        self._forget(now_ms)
        if name in self._until_ms:
            raise QueueDeletedRecently(name)

    def _forget(self, now_ms: int) -> None:
        rested = []
        for name, until_ms in self._until_ms.items():
            if now_ms < until_ms:
                break
            rested.append(name)
        for name in rested:
            del self._until_ms[name]
