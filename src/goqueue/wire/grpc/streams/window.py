"""How many requests of one stream are handled at a time."""

from __future__ import annotations

from collections.abc import Callable

REQUESTS_MAX = 64
BYTES_MAX = 8 << 20  # a single larger request is handled alone


class Window:
    """The requests of a stream whose responses have not been sent."""

    def __init__(self, requests_max: int = REQUESTS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.count = 0
        self.bytes = 0
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._go_on: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        return self.count >= self._requests_max or self.bytes >= self._bytes_max

    @property
    def is_empty(self) -> bool:
        return not self.count

    def enter(self, size: int) -> None:
        self.count += 1
        self.bytes += size

    def leave(self, size: int) -> None:
        """Note that a response was sent; whoever waits for that goes on."""
        self.count -= 1
        self.bytes -= size
        if self._go_on is not None:
            go_on, self._go_on = self._go_on, None
            go_on()

    def when_left(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when the next request leaves."""
        self._go_on = go_on
