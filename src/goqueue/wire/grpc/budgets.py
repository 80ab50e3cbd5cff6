"""Memory for requests that are being handled, and for responses that clients do not read."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from goqueue.wire.carrier.problems import HttpError


class SlowReader(HttpError):
    """The client reads less than the node has to send, and others need the memory."""

    code = "slow_reader"
    retryable = True
    status = 429

    def __init__(self) -> None:
        super().__init__(
            "The stream was ended because its client does not read, and too many responses are "
            "waiting to be read; read the stream, or ask for less."
        )


class Ending(Protocol):
    """A call that can be ended."""

    def end(self, error: SlowReader) -> None: ...


class Intake:
    """The bytes of requests that are being handled. Streams wait for room before they read on."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_total = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_full(self) -> bool:
        return self.bytes_total >= self.bytes_max

    def take(self, count: int) -> None:
        """Count a request that has been read."""
        self.bytes_total += count

    def give(self, count: int) -> None:
        """Note that requests have been answered; those that wait for room go on, in order."""
        self.bytes_total -= count
        while self._waiting and not self.is_full:
            self._waiting.popleft()()

    def when_room(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when there is room: at once, or later."""
        if self.is_full or self._waiting:
            self._waiting.append(go_on)
        else:
            go_on()


class Unread:
    """The bytes of responses that clients have not read, by stream.

    Beyond the limit the stream that has read nothing for the longest time is ended, so that clients
    that do not read do not affect the others.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_total = 0
        self._held: OrderedDict[Ending, int] = OrderedDict()  # the longest wait comes first

    def add(self, stream: Ending, count: int) -> None:
        """Count a response that is being sent; others may be ended to stay within the limit."""
        self._held[stream] = self._held.get(stream, 0) + count
        self.bytes_total += count
        while self.bytes_total > self.bytes_max:
            slowest = next((one for one in self._held if one is not stream), None)
            if slowest is None:
                return  # A single response has a limit of its own.
            self.forget(slowest)
            slowest.end(SlowReader())

    def sent(self, stream: Ending, count: int) -> None:
        """Note that the client has taken a response."""
        if stream not in self._held:
            return
        self.bytes_total -= count
        self._held[stream] -= count
        if self._held[stream] > 0:
            self._held.move_to_end(stream)
        else:
            del self._held[stream]

    def forget(self, stream: Ending) -> None:
        """Remove a stream that has ended."""
        self.bytes_total -= self._held.pop(stream, 0)
