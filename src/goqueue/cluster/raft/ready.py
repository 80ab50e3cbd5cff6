"""Input and output of the core: the stored state, and the work to be done."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from goqueue.cluster.raft.messages import Counter, Entry, Members, Message, NodeNumber, Position

START = Position(0, 0)
NOBODY = Members(())


class HardState(msgspec.Struct, frozen=True, array_like=True):
    """What a node must not lose, or it could vote twice in one term."""

    term: Counter
    vote: NodeNumber | None


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state machine after the entry at `last`, and the members at that point."""

    last: Position
    members: Members
    data: bytes


@dataclass(slots=True)
class RaftState:
    """The state loaded from storage. `entries` follow `base`, which is not after the snapshot."""

    hard: HardState
    snapshot: Snapshot
    base: Position
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def new(cls, members: Members = NOBODY) -> RaftState:
        """Return the state of a new node: an initial voter, or not a member until it is added."""
        return cls(HardState(0, None), Snapshot(START, members, b""), START)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Committed when the entry at `index` is committed with this `term`; lost if with another."""

    index: int
    term: int


@dataclass(frozen=True, slots=True)
class NotLeader:
    leader_id: int | None  # the presumed leader


@dataclass(frozen=True, slots=True)
class Refused:
    """The leader cannot do this now; the text gives the reason and what to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReadDone:
    """A node that has applied everything up to `index` may answer the read."""

    context: int
    index: int


@dataclass(slots=True)
class Ready:
    """Work to be done, in this order for each part:

    1. Send `messages_now`.
    2. Save the Readies in the order of their tokens, several at once if possible; then send their
       `messages` and call `saved` with the last token. Skip a Ready whose `needs_saving` is False.
    3. Replace the state machine by `restored` if there is one, apply `committed`, then answer
       `reads`. This need not wait for 2.
    """

    token: int = 0
    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    base: Position | None = None  # with a snapshot: the log becomes this and `entries` only
    truncate_from: int | None = None
    entries: list[Entry] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    messages_now: list[Message] = field(default_factory=list)
    restored: Snapshot | None = None
    committed: list[Entry] = field(default_factory=list)
    reads: list[ReadDone] = field(default_factory=list)
    reads_lost: list[int] = field(default_factory=list)  # contexts; ask the new leader

    @property
    def has_writes(self) -> bool:
        return bool(self.hard_state is not None or self.snapshot is not None or self.entries)

    @property
    def needs_saving(self) -> bool:
        """Return whether it must pass through storage, if only to keep `messages` in order."""
        return self.has_writes or bool(self.messages)

    @property
    def is_empty(self) -> bool:
        return not (
            self.needs_saving
            or self.messages_now
            or self.restored
            or self.committed
            or self.reads
            or self.reads_lost
        )


class Outbox:
    """Messages that make a promise wait until it is on disk; the others are sent at once."""

    def __init__(self) -> None:
        self._now: list[Message] = []
        self._after_saving: list[Message] = []

    def send_now(self, message: Message) -> None:
        self._now.append(message)

    def send_after_saving(self, message: Message) -> None:
        self._after_saving.append(message)

    def take(self) -> tuple[list[Message], list[Message]]:
        """Return the messages to send now, and those to send after saving."""
        taken = self._now, self._after_saving
        self._now, self._after_saving = [], []
        return taken
