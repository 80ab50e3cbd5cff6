"""Other nodes, as the broker sees them; real sockets in `runtime`, a faulty network in tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from goqueue.loop.promise import Promise
from goqueue.model.compression import Buffer


class PeerKind(IntEnum):
    """What one node says to another."""

    QUORUM = 1  # a notice: what the voters tell each other
    COMMAND = 2  # a call to the controller
    FOLLOWER = 3  # a notice: what a follower asks and tells the leader of partitions
    LEADER = 4  # a notice: the leader's answers, with batches
    APPEND = 5  # a call to the leader of a partition
    MARKER = 6  # a call to the leader of a partition that took part in a transaction
    TRANSACTIONS = 7  # a call to the coordinator of a transactional id
    GROUPS = 8  # a call to the coordinator of a stream group
    QUEUES = 9  # a call to the owner of a queue group's state
    SCHEDULES = 10  # a call to the owner of delayed messages
    SCHEMAS = 11  # a call to the owner of the schemas
    JOIN = 13  # a call: what a node that starts must know of its cluster
    READ = 14  # a call to the leader of partitions, for records
    LOOK = 15  # a call to the leader of partitions, for where they begin and end
    LANES = 16  # a call to the leader of partitions, for the lanes of what has come there
    BATCHES = 17  # a call to the leader of a partition, for committed batches
    QUORUM_STATE = 18  # a call to the controller, for how far the voters are
    OPERATION = 19  # a call of an operation to the node that owns what it is about


class Contact(Enum):
    """What this node's own connection to another tells of it. It is a hint and no more."""

    OPEN = "open"  # or nothing is known that speaks against it
    BROKEN = "broken"  # it has just ended, and it is being tried whether another can be made
    GONE = "gone"  # nobody listens where the node was: its process has ended


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

    def contact(self, node: int) -> Contact:
        """Whether the node seems to be there, so that nobody need be sent where nobody is."""

    def on_gone(self, heard: Callable[[int], None]) -> None:
        """Have `heard` called when a node to which there was a connection is found to be gone."""
