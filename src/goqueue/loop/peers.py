"""Other nodes as the broker uses them; real sockets in `runtime`, a faulty network in tests."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from goqueue.loop.promise import Promise
from goqueue.model.compression import Buffer
from goqueue.model.errors import GoQueueError, RequestTimedOut
from goqueue.model.support import Support


class PeerKind(IntEnum):
    """The kinds of messages between nodes."""

    QUORUM = 1  # a notice between the voters
    COMMAND = 2  # a call to the controller
    FOLLOWER = 3  # a notice from a follower to the leader of partitions
    LEADER = 4  # a notice: the leader's response, with batches
    APPEND = 5  # a call to the leader of a partition
    MARKER = 6  # a call to the leader of a partition that took part in a transaction
    TRANSACTIONS = 7  # a call to the coordinator of a transactional id
    # 8, 9 and 12 are reserved: earlier versions sent them.
    SCHEDULES = 10  # a call to the owner of delayed messages
    SCHEMAS = 11  # a call to the owner of the schemas
    JOIN = 13  # a call: what a starting node needs of its cluster's metadata
    READ = 14  # a call to the leader of partitions, for records
    LOOK = 15  # a call to the leader of partitions, for their bounds
    LANES = 16  # a call to the leader of partitions, for the lanes of arrived messages
    BATCHES = 17  # a call to the leader of a partition, for committed batches
    QUORUM_STATE = 18  # a call to the controller, for the progress of the voters
    OPERATION = 19  # a call of an operation to the node that owns its resource
    QUOTAS = 20  # a call to the controller: use of quotas, answered with shares
    JOURNEYS = 21  # a call to the owner of a part of the journeys
    LAG = 22  # a call to the leader of partitions: how far groups are behind


class Contact(Enum):
    """The state of this node's own connection to another; only a hint."""

    OPEN = "open"  # or there is no evidence against it
    BROKEN = "broken"  # it has just ended, and a reconnect is being tried
    GONE = "gone"  # the connection is refused: the process has ended


class Answer(NamedTuple):
    """The response to a call."""

    head: bytes = b""
    body: Sequence[Buffer] = ()


class Answered(NamedTuple):
    """A received response. The body is a view that is valid until the receiver returns."""

    head: bytes
    body: memoryview


T = TypeVar("T")

# What decoders raise: of types, and of values that refer to others which are not there.
_UNREADABLE = (
    GoQueueError,
    msgspec.MsgspecError,
    ValueError,
    LookupError,
    RecursionError,
    struct.error,
)


def _unknown_outcome(reason: str) -> GoQueueError:
    """Return the error of a call that was answered, but in a form that this node cannot read."""
    return RequestTimedOut(
        f"A node has answered as another release does: {reason}. The call may have been carried "
        "out; run the same release on all nodes."
    )


def read_answer(
    called: Promise[Answered],
    read: Callable[[Answered], T],
    *,
    unreadable: Callable[[str], GoQueueError] = _unknown_outcome,
) -> Promise[T]:
    """Return what `read` makes of the response to a call; it raises if it cannot decode it.

    Whoever waits for a call must not wait for ever, whatever the other node has sent.
    """
    result: Promise[T] = Promise()

    def answered(answer: Answered | None, error: Exception | None) -> None:
        if answer is None:
            result.settle(None, error)
            return
        try:
            value = read(answer)
        except _UNREADABLE as problem:
            result.reject(unreadable(str(problem)))
        else:
            result.resolve(value)

    called.then(answered)
    return result


# A handler gets the caller's node id, the head and a view of the body, valid until it returns.
Handler = Callable[[int, bytes, memoryview], Promise[Answer]]
NoticeHandler = Callable[[int, bytes, memoryview], None]


class Peers(Protocol):
    """Calls and notices between nodes."""

    @property
    def support(self) -> Support:
        """What the release of this node supports."""

    def support_of(self, node: int) -> Support | None:
        """What the release of another node supports; None while it is not connected."""

    def locate(self, node: int, address: str) -> None:
        """Set the address of a node."""

    def call(
        self,
        node: int,
        kind: PeerKind,
        head: bytes,
        body: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
    ) -> Promise[Answered]:
        """Send a call. If no response arrives, it may or may not have been carried out."""

    def notify(self, node: int, kind: PeerKind, head: bytes, body: Sequence[Buffer] = ()) -> None:
        """Send a notice, which may be lost."""

    def serve(self, kind: PeerKind, handler: Handler) -> None:
        """Handle calls of a kind with `handler`."""

    def listen(self, kind: PeerKind, handler: NoticeHandler) -> None:
        """Handle notices of a kind with `handler`."""

    def contact(self, node: int) -> Contact:
        """Whether the node seems reachable, so that clients are not sent to one that is not."""

    def on_gone(self, heard: Callable[[int], None]) -> None:
        """Call `heard` when the process of a connected node is found to have ended."""
