"""The durable delivery state of one partition for one group.

Every change is an event, and the journal stores the same events. So replaying the journal
reproduces the ledger exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from goqueue.delivery.grants import Extended, Granted, Grants, LeaseEvent, Shifted, Voided
from goqueue.delivery.ranges import Range, RangeSet, ranges_of

NO_KEY = 0
ATTEMPTS_MAX = (1 << 16) - 1  # the counter saturates here


class Return(IntEnum):
    """Why a delivery ended without an acknowledgement. For observers; not journaled."""

    NACKED = 1
    LEASE_EXPIRED = 2
    REJECTED = 3  # for good: the message becomes a dead letter


class Finish(IntEnum):
    """Why a message is done."""

    ACKED = 1
    EXPIRED = 3  # not delivered within its time to live
    SKIPPED = 4  # the record no longer exists, or cannot be read


class Retry(NamedTuple):
    """A message that was delivered `attempts` times and not acknowledged.

    `attempts` is 0 for a message in its first delivery that must precede others of its key.
    """

    attempts: int
    due_ms: int
    key: int = NO_KEY  # a number for its key, with key order
    first_ms: int = 0  # when it was first delivered, if recorded


@dataclass(frozen=True, slots=True)
class Done:
    """These messages are finished."""

    why: Finish
    ranges: list[Range]


class PendingLetter(NamedTuple):
    """A message on its way to a dead-letter topic."""

    offset: int
    attempts: int
    reason: str


class StoredLetter(NamedTuple):
    """A message that is in a partition of a dead-letter topic, at `position`; -1 if not known."""

    offset: int
    reason: str
    partition: int
    position: int


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """These messages are in a dead-letter topic, whose records before `end` are all accounted for.

    Recovery compares `end` with the topic: a dead letter at or after `end` was written just before
    the crash, and its message is then marked as done.
    """

    ranges: list[Range]
    topic_id: bytes
    end: int
    letters: Sequence[StoredLetter] = field(default=(), compare=False)  # not journaled


@dataclass(frozen=True, slots=True, eq=False)
class DeadLetter:
    """A message to be written to the dead-letter topic and then reported as dead-lettered."""

    partition: int
    offset: int
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetterIntent:
    """These messages are about to be written to a dead-letter topic, as one batch of a producer.

    An owner that replays this without a `DeadLettered` after it writes the batch again; the
    producer's sequence number lets the target partition recognise a duplicate.
    """

    letters: list[PendingLetter]
    topic_id: bytes
    partition: int
    producer_id: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Retried:
    """These messages will be delivered again."""

    retries: list[tuple[int, Retry]]
    # Those whose delivery has just ended, and why. For observers; not journaled.
    returned: list[tuple[int, Return]] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction has acknowledged these messages; its end decides whether they are done.

    Each comes with the retry that it becomes if the transaction is aborted.
    """

    producer_id: int
    retries: list[tuple[int, Retry]]


@dataclass(frozen=True, slots=True)
class Ended:
    """A producer's transaction has ended. Read from the marker in the log, not from a record."""

    producer_id: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """Everything before an offset is finished."""

    floor: int


@dataclass(frozen=True, slots=True)
class Rewound:
    """Delivery continues at an offset: nothing from there on is done, and everything before it is,

    except the ranges in `still_open`, which are in flight or waiting.
    """

    offset: int
    still_open: list[Range]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One part of a complete ledger; the parts of a snapshot are contiguous in the journal."""

    part: int
    part_count: int
    floor: int
    ranges: list[Range]
    retries: list[tuple[int, Retry]]
    letter_ends: list[tuple[bytes, int]]


@dataclass(frozen=True, slots=True)
class Dead:
    """These messages are in a dead-letter topic; written next to a snapshot."""

    ranges: list[Range]


@dataclass(frozen=True, slots=True)
class Sealed:
    """The secret that authenticates the queue's receipts; in the ledger of its first partition."""

    secret: bytes


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The group, or its subscription to the topic, was removed."""


Event = (
    Done
    | DeadLetterIntent
    | DeadLettered
    | Retried
    | Prepared
    | Ended
    | Moved
    | Rewound
    | Snapshot
    | Dead
    | Sealed
    | Forgotten
    | LeaseEvent
)


def stored_letters(
    letters: Sequence[DeadLetter | PendingLetter], partition: int, end: int
) -> list[StoredLetter]:
    """Return where letters are that were stored as one batch before `end`, 0 if not known."""
    first = end - len(letters) if end else -1
    return [
        StoredLetter(one.offset, one.reason, partition, first + place if end else -1)
        for place, one in enumerate(letters)
    ]


SNAPSHOT_ENTRIES_MAX = 4096  # ranges and retries in one part
DEAD_RANGES_MAX = 4096  # of dead letters, to recognise attempts to settle them again
LETTER_ENDS_MAX = 8  # dead-letter topics of one ledger, all but one of them former ones


class Ledger:
    """Everything below `floor` is done, and so are the ranges in `done` above it.

    What open transactions have acknowledged is in `prepared`, by producer, until they end.
    Snapshots omit it: the journal keeps the records of open transactions themselves.
    `letter_intents`, by dead-letter topic, are written again next to a snapshot.

    During replay, leases are in `grants`. A queue that is opened takes them over, and
    `live_leases` then returns the current ones.
    """

    __slots__ = (
        "_parts",
        "dead",
        "done",
        "floor",
        "grants",
        "is_known",
        "letter_ends",
        "letter_intents",
        "live_leases",
        "prepared",
        "retries",
        "secret",
    )

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.done = RangeSet()
        self.dead = RangeSet()  # the done messages that were dead-lettered, up to a limit
        self.retries: dict[int, Retry] = {}
        self.prepared: dict[int, dict[int, Retry]] = {}
        self.letter_ends: dict[bytes, int] = {}
        self.letter_intents: dict[bytes, DeadLetterIntent] = {}
        self.grants = Grants()
        self.live_leases: Callable[[], list[LeaseEvent]] | None = None
        self.secret = b""
        self.is_known = False  # whether the journal holds events of it
        self._parts: list[Snapshot] = []

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        mine = (
            self.floor,
            self.done,
            self.retries,
            self.prepared,
            self.letter_ends,
            self.letter_intents,
        )
        its = (
            other.floor,
            other.done,
            other.retries,
            other.prepared,
            other.letter_ends,
            other.letter_intents,
        )
        return mine == its

    __hash__ = None  # type: ignore[assignment]

    def is_done(self, offset: int) -> bool:
        return offset < self.floor or offset in self.done

    def is_out(self, offset: int, attempt: int) -> bool:
        """Whether the delivery with this attempt number of a message is still in flight."""
        if self.is_done(offset) or any(offset in some for some in self.prepared.values()):
            return False
        retry = self.retries.get(offset)
        return attempt == 1 if retry is None else attempt == min(retry.attempts + 1, ATTEMPTS_MAX)

    @property
    def is_empty(self) -> bool:
        """Whether a snapshot can omit it."""
        return self == Ledger() and not self.leases()

    def leases(self) -> list[LeaseEvent]:
        """Return the events that describe the live leases."""
        return self.grants.events() if self.live_leases is None else self.live_leases()

    def written_out(self) -> list[Event]:
        """Return the complete state as events, for the journal's periodic snapshots."""
        beside: list[Event] = [Sealed(self.secret)] if self.secret else []
        if self.dead:
            beside.append(Dead(list(self.dead)))
        return [*self.snapshot(), *beside, *self.letter_intents.values(), *self.leases()]

    def apply(self, event: Event) -> None:
        if isinstance(event, Done):
            self._finish(event.ranges)
        elif isinstance(event, DeadLettered):
            self._finish(event.ranges)
            self._note_dead(event.ranges)
            self.letter_intents.pop(event.topic_id, None)
            self.letter_ends.pop(event.topic_id, None)
            self.letter_ends[event.topic_id] = event.end
            if len(self.letter_ends) > LETTER_ENDS_MAX:
                del self.letter_ends[next(iter(self.letter_ends))]
        elif isinstance(event, DeadLetterIntent):
            self.letter_intents.pop(event.topic_id, None)
            self.letter_intents[event.topic_id] = event
            if len(self.letter_intents) > LETTER_ENDS_MAX:
                del self.letter_intents[next(iter(self.letter_intents))]
        elif isinstance(event, Retried):
            for offset, retry in event.retries:
                if not self.is_done(offset):
                    self.retries[offset] = retry
        elif isinstance(event, Prepared):
            self._prepare(event)
        elif isinstance(event, Ended):
            self._end(event)
        elif isinstance(event, Moved):
            self._move(event.floor)
        elif isinstance(event, Rewound):
            self._rewind(event.offset, event.still_open)
        elif isinstance(event, Snapshot):
            self._take_part(event)
        elif isinstance(event, Dead):
            self._note_dead(event.ranges)
        elif isinstance(event, Sealed):
            self.secret = event.secret
        elif isinstance(event, Granted | Extended | Voided | Shifted):
            self.grants.apply(event, self.is_out)
        else:
            self.floor, self.done, self.retries, self.letter_ends = 0, RangeSet(), {}, {}
            self.prepared, self.letter_intents, self.secret = {}, {}, b""
            self.dead = RangeSet()
            self.grants.clear()
        self.is_known = not isinstance(event, Forgotten)

    def pass_over(self, first: int, end: int) -> None:
        """Skip offsets without a message. Not journaled: the partition's log implies it."""
        self.done.add(max(first, self.floor), end)
        self._settle()

    def snapshot(self) -> list[Snapshot]:
        """Return the complete state as events of bounded size."""
        ranges, retries = list(self.done), list(self.retries.items())
        step = SNAPSHOT_ENTRIES_MAX
        part_count = max(1, -(-max(len(ranges), len(retries)) // step))
        return [
            Snapshot(
                part,
                part_count,
                self.floor,
                ranges[part * step : (part + 1) * step],
                retries[part * step : (part + 1) * step],
                list(self.letter_ends.items()),
            )
            for part in range(part_count)
        ]

    def _finish(self, ranges: list[Range]) -> None:
        done, retries = self.done, self.retries
        for first, end in ranges:
            if first <= self.floor:
                self.floor = max(self.floor, end)  # the common case: the oldest message
            else:
                done.add(first, end)
            if retries:
                self._drop_retries(first, end)
        self._settle()

    def _note_dead(self, ranges: list[Range]) -> None:
        for first, end in ranges:
            self.dead.add(first, end)
        while len(self.dead) > DEAD_RANGES_MAX:
            _, end = next(iter(self.dead))
            self.dead.discard_before(end)

    def _drop_retries(self, first: int, end: int) -> None:
        retries = self.retries
        if end - first < len(retries):
            for offset in range(first, end):
                retries.pop(offset, None)
        else:
            for offset in [one for one in retries if first <= one < end]:
                del retries[offset]

    def _prepare(self, event: Prepared) -> None:
        kept = [(offset, retry) for offset, retry in event.retries if not self.is_done(offset)]
        if kept:
            self.prepared.setdefault(event.producer_id, {}).update(kept)
            for offset, _ in kept:
                self.retries.pop(offset, None)

    def _end(self, event: Ended) -> None:
        ended = self.prepared.pop(event.producer_id, {})
        if event.is_commit:
            self._finish(ranges_of(sorted(ended)))
        else:
            open_still = {one: retry for one, retry in ended.items() if not self.is_done(one)}
            self.retries.update(open_still)

    def _keep_prepared(self, is_kept: Callable[[int], bool]) -> None:
        """Remove messages from transactions that are done or open again, whatever they decide."""
        for producer_id, retries in list(self.prepared.items()):
            kept = {offset: retry for offset, retry in retries.items() if is_kept(offset)}
            if kept:
                self.prepared[producer_id] = kept
            else:
                del self.prepared[producer_id]

    def _move(self, floor: int) -> None:
        if floor > self.floor:
            self._keep_prepared(lambda offset: offset >= floor)
            self._drop_retries(self.floor, floor)
            self.floor = floor
            self._settle()

    def _rewind(self, offset: int, still_open: list[Range]) -> None:
        kept = RangeSet(still_open)
        # A recalled message is delivered again, whether or not its dead letter gets written.
        self.letter_intents = {
            topic_id: event
            for topic_id, event in self.letter_intents.items()
            if all(letter.offset < offset for letter in event.letters)
        }
        self._keep_prepared(lambda one: one < offset and one in kept)
        self.grants.void_from(offset)
        self.dead.discard_from(offset)
        self.done.discard_from(offset)
        self.retries = {
            one: retry for one, retry in self.retries.items() if one < offset and one in kept
        }
        if offset <= self.floor:
            self.floor = offset
        else:
            for first, end in kept.gaps(self.floor, offset):
                self.done.add(first, end)
        self._settle()

    def _settle(self) -> None:
        """Advance the floor through what is done."""
        if self.done:
            self.floor = self.done.first_missing_from(self.floor)
            self.done.discard_before(self.floor)

    def _take_part(self, part: Snapshot) -> None:
        """Collect until the last part: half a snapshot must not replace a complete ledger."""
        if part.part == 0:
            self._parts = []
        if part.part != len(self._parts):
            return
        self._parts.append(part)
        if len(self._parts) < part.part_count:
            return
        self.floor = part.floor
        self.done = RangeSet(one for each in self._parts for one in each.ranges)
        self.retries = {offset: one for each in self._parts for offset, one in each.retries}
        self.letter_ends = dict(part.letter_ends)
        self._parts = []
        self.dead = RangeSet()
        self.grants.clear()  # They are written again after it.
        # It omits transactions, which may have prepared messages that are done according to it.
        self._keep_prepared(lambda offset: not self.is_done(offset))
