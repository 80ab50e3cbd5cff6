"""Answers that have no end."""

from __future__ import annotations

from goqueue.loop.promise import Promise


class Stream:
    """What a handler answers with that goes on for as long as the client listens.

    Every answer is compared with this class, so it is a plain one: asking an abstract one costs
    ten times as much.
    """

    is_over = False

    def opening(self) -> bytes:
        """Sent at once, so that the client sees that it is connected."""
        raise NotImplementedError

    def next(self) -> Promise[bytes]:
        """What to send next, when there is something."""
        raise NotImplementedError

    def close(self) -> None:
        """Nobody listens any more."""
        raise NotImplementedError
