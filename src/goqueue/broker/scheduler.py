"""Time and threads, as the broker sees them; real in `runtime`, virtual in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Handle(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    def now_ms(self) -> int:
        """Wall clock time, for timestamps and deadlines."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """After everything that is already due."""

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> Handle: ...

    def run_blocking(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        """Run `work` outside the event loop, then `done(result, error)` inside it."""
