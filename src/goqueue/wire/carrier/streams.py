"""Responses without an end."""

from __future__ import annotations

from goqueue.loop.promise import Promise


class Stream:
    """A response that continues for as long as the client is connected.

    The type of every response is checked against this class, so it is not an abstract one, for
    which that check costs ten times as much.
    """

    is_over = False

    def opening(self) -> bytes:
        """The bytes sent at once, so that the client sees that it is connected."""
        raise NotImplementedError

    def next(self) -> Promise[bytes]:
        """A promise of the next bytes to send."""
        raise NotImplementedError

    def close(self) -> None:
        """End the stream, because the client has disconnected."""
        raise NotImplementedError
