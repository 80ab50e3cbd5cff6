"""Other nodes, as the broker sees them; real sockets in `runtime`, a faulty network in tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from goqueue.broker.promise import Promise
from goqueue.model.compression import Buffer


class PeerKind(IntEnum):
    """What one node says to another."""

    QUORUM = 1  # a notice: what the voters tell each other
    COMMAND = 2  # a call to the controller
    FOLLOWER = 3  # a notice: what a follower asks and tells the leader of partitions
    LEADER = 4  # a notice: the leader's answers, with batches


class Answer(NamedTuple):
    """What a call is answered with."""

    head: bytes = b""
    body: Sequence[Buffer] = ()


class Answered(NamedTuple):
    """An answer. The body is a view that lasts until whoever gets it returns."""

    head: bytes
    body: memoryview


# A handler gets the caller's node id, the head and a view of the body that lasts until it returns.
Handler = Callable[[int, bytes, memoryview], Promise[Answer]]
NoticeHandler = Callable[[int, bytes, memoryview], None]


class Peers(Protocol):
    """Calls and notices between nodes."""

    def locate(self, node: int, address: str) -> None:
        """From now on a node is to be found here."""

    def call(
        self,
        node: int,
        kind: PeerKind,
        head: bytes,
        body: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
    ) -> Promise[Answered]:
        """Ask for something. When no answer comes, nobody knows whether it was done."""

    def notify(self, node: int, kind: PeerKind, head: bytes, body: Sequence[Buffer] = ()) -> None:
        """Say something that may be lost on the way."""

    def serve(self, kind: PeerKind, handler: Handler) -> None:
        """Have calls of a kind answered by `handler`."""

    def listen(self, kind: PeerKind, handler: NoticeHandler) -> None:
        """Have notices of a kind handed to `handler`."""
