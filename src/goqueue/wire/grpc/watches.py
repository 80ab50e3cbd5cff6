"""Streams that watch whether the node can take calls: they are woken by changes, and counted.

Health needs no credentials, so strangers may open such streams. What they hold is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from goqueue.model.session import Session
from goqueue.wire.carrier.problems import HttpError

# Clients watch one or a few services on each connection.
CONNECTION_WATCHES_MAX = 8
WATCHES_MAX = 1_000


class TooManyWatches(HttpError):
    """More health streams without credentials than a connection, or a node, holds."""

    code = "too_many_watches"
    retryable = True
    status = 429

    def __init__(self) -> None:
        super().__init__(
            f"Without credentials, a connection may have {CONNECTION_WATCHES_MAX} health streams, "
            f"and a node {WATCHES_MAX}; end others, send credentials, or use Check."
        )


class Peer(Protocol):
    """The connection of a watch."""

    @property
    def host(self) -> str: ...


class Watching(Protocol):
    """A call that watches."""

    @property
    def session(self) -> Session: ...

    @property
    def connection(self) -> Peer: ...

    def end(self, error: TooManyWatches) -> None: ...


class Watches:
    """The streams that wait for the state of the node to change.

    Those of clients with credentials have no limit of their own. When there is no room for another
    one without, the address that has most of them loses its oldest.
    """

    def __init__(self) -> None:
        self._wakes: dict[Watching, Callable[[], None]] = {}
        self._strangers: dict[str, dict[Watching, None]] = {}  # by address, oldest first
        self._stranger_count = 0

    def enter(self, call: Watching, wake: Callable[[], None]) -> None:
        """Call `wake` at each change; raise if the client watches too much."""
        if not call.session.is_authenticated:
            self._admit(call)
        self._wakes[call] = wake

    def leave(self, call: Watching) -> None:
        """Forget a watch that has ended."""
        self._wakes.pop(call, None)
        self._forget(call)

    def changed(self) -> None:
        """Wake all watches, because the state of the node has changed."""
        for wake in list(self._wakes.values()):
            wake()

    def _admit(self, call: Watching) -> None:
        host = call.connection.host
        held = self._strangers.get(host, {})
        if sum(one.connection is call.connection for one in held) >= CONNECTION_WATCHES_MAX:
            raise TooManyWatches
        if self._stranger_count >= WATCHES_MAX:
            most = max(self._strangers.values(), key=len)
            if most is held:
                raise TooManyWatches
            oldest = next(iter(most))
            self._forget(oldest)
            oldest.end(TooManyWatches())
        self._strangers.setdefault(host, {})[call] = None
        self._stranger_count += 1

    def _forget(self, call: Watching) -> None:
        host = call.connection.host
        held = self._strangers.get(host, {})
        if call in held:
            del held[call]
            self._stranger_count -= 1
            if not held:
                del self._strangers[host]
