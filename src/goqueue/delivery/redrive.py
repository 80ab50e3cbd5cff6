"""Redrives: jobs that move dead letters back to the topics they came from.

A job is a plain value that contains its own progress, so that a job read back after a restart
continues where it was. What it decides about a dead letter depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from goqueue.model.batch import Header, Record
from goqueue.model.dead_letters import REDRIVEN_HEADER, Origin, read_origin, without_origin
from goqueue.model.tenants import Sentence, Text, TopicName, name_beside, plain_name

LEDGER_GROUP = "__deadletters"  # whose ledgers say which letters were redriven
RATE_PER_S_MAX = 1_000_000
LETTERS_NAMED_MAX = 1000  # dead letters that one job may list individually
HISTORY_EVENTS_MAX = 100

State = Literal["running", "paused", "done", "cancelled", "failed"]
ENDED: frozenset[State] = frozenset({"done", "cancelled", "failed"})


class Letter(msgspec.Struct, frozen=True):
    """A dead letter: a record of the dead-letter topic, and its origin if recorded."""

    partition: int
    record: Record
    origin: Origin | None


class LetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of dead letters; every given condition must hold."""

    reason: Text | None = None
    group: Text | None = None
    key: bytes | None = None
    from_ms: int | None = None  # time of dead-lettering
    until_ms: int | None = None
    header: tuple[Text, bytes | None] | None = None  # its name, and its content or None for any

    def accepts(self, letter: Letter) -> bool:
        origin, record = letter.origin, letter.record
        died_ms = record.timestamp_ms if origin is None else origin.time_ms
        return (
            (self.reason is None or (origin is not None and origin.reason == self.reason))
            and (self.group is None or (origin is not None and origin.group == self.group))
            and (self.key is None or record.key == self.key)
            and (self.from_ms is None or died_ms >= self.from_ms)
            and (self.until_ms is None or died_ms < self.until_ms)
            and (self.header is None or self._has_header(record.headers, *self.header))
        )

    @staticmethod
    def _has_header(headers: Sequence[Header], name: str, content: bytes | None) -> bool:
        return any(one == name and content in (None, its) for one, its in headers)


class RedriveEvent(msgspec.Struct, frozen=True):
    """An entry of a job's history."""

    time_ms: int
    what: Sentence


class RedriveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The request: which dead letters to move back, and how."""

    filter: LetterFilter = LetterFilter()
    letters: list[tuple[int, int]] | None = None  # only these (partition, offset)
    count_max: int | None = None
    rate_per_s: int | None = None
    keep_copy: bool = False
    target_topic: TopicName | None = None  # default: the topic that each letter came from


class Shipment(msgspec.Struct, frozen=True, array_like=True):
    """Letters for one partition, as one batch of a producer."""

    topic_id: bytes
    partition: int
    producer_id: int
    sequence: int
    offsets: list[int]  # of the letters


class Step(msgspec.Struct, frozen=True, array_like=True):
    """What a job is about to move from one partition, and where it continues afterwards.

    A node that finds a job with such a step repeats it: the producers' sequence numbers let the
    target partitions recognise what they already have.
    """

    partition: int
    next_offset: int
    shipments: list[Shipment]


class Redrive(msgspec.Struct, kw_only=True):
    """One job."""

    id: Text
    topic: TopicName  # the topic of the dead letters
    dead_letter_topic: TopicName
    dead_letter_topic_id: bytes
    order: RedriveOrder
    # Per partition of the dead-letter topic: the next offset, and the offset where this job ends.
    positions: list[int]
    until_offsets: list[int]
    created_ms: int
    state: State = "running"
    ended_ms: int | None = None
    moved: int = 0
    passed_over: int = 0
    failed: int = 0
    problem: Sentence = ""
    history: list[RedriveEvent] = []
    # Letters at or after `positions` that recovery found already moved, and not yet counted.
    already_moved: list[tuple[int, int]] = []
    step: Step | None = None  # in a cluster: the step that another node may have to repeat
    started_by: bytes = b""  # the session, whose rights limit where letters go

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def is_through(self) -> bool:
        """Whether there is nothing left to examine."""
        order = self.order
        if order.count_max is not None and self.moved >= order.count_max:
            return True
        return all(
            position >= until
            for position, until in zip(self.positions, self.until_offsets, strict=True)
        )

    @property
    def next_partition(self) -> int:
        """The partition to continue with: the one with the most left."""
        left = [
            until - position
            for position, until in zip(self.positions, self.until_offsets, strict=True)
        ]
        return left.index(max(left))

    def go_on(self, partition: int, offset: int) -> None:
        """Note that everything before `offset` has been examined."""
        self.positions[partition] = offset
        passed = [one for one in self.already_moved if one[0] == partition and one[1] < offset]
        self.moved += len(passed)
        self.already_moved = [one for one in self.already_moved if one not in passed]

    def narrow(self) -> None:
        """Restrict the job to the range of the letters that the order lists individually."""
        named = self.order.letters
        if named is None:
            return
        for number in range(len(self.positions)):
            offsets = [offset for partition, offset in named if partition == number]
            first, last = min(offsets, default=0), max(offsets, default=-1)
            self.positions[number] = max(self.positions[number], first)
            self.until_offsets[number] = min(self.until_offsets[number], last + 1)

    def wants(self, letter: Letter) -> bool:
        """Whether a letter is to be moved."""
        named = self.order.letters
        if named is not None and (letter.partition, letter.record.offset) not in named:
            return False
        return self.order.filter.accepts(letter)

    def target_of(self, letter: Letter) -> str | None:
        """Return the topic that a letter goes to; None if it is not recorded."""
        if self.order.target_topic is not None:
            return self.order.target_topic
        if letter.origin is None:
            return None
        return name_beside(self.dead_letter_topic, letter.origin.topic)

    def change(self, state: State, *, now_ms: int, what: str) -> None:
        self.state = state
        if self.is_ended:
            self.ended_ms = now_ms
        self.note(now_ms, what)

    def note(self, now_ms: int, what: str) -> None:
        """Add an entry to the history; when it is full, entries in the middle are dropped."""
        history = self.history
        self.history = [*history, RedriveEvent(now_ms, what)]
        if len(self.history) > HISTORY_EVENTS_MAX:
            del self.history[HISTORY_EVENTS_MAX // 2]


def read_letter(partition: int, record: Record) -> Letter:
    return Letter(partition, record, read_origin(record.headers))


def revived(letter: Letter, dead_letter_topic: str, *, redrive_id: str, now_ms: int) -> Record:
    """Return the original message for its topic, with a header that names the dead letter."""
    record = letter.record
    source = f"{plain_name(dead_letter_topic)}/{letter.partition}/{record.offset}/{redrive_id}"
    headers = (*without_origin(record.headers), (REDRIVEN_HEADER, source.encode()))
    return Record(record.key, record.value, headers, now_ms)


class Source(NamedTuple):
    """The dead letter that a message was, and the job that moved it back."""

    dead_letter_topic: str
    partition: int
    offset: int
    redrive_id: str


def read_source(record: Record) -> Source | None:
    """Return the source that a redriven message carries; None for all others."""
    for name, content in reversed(record.headers):
        if name == REDRIVEN_HEADER and content is not None:
            parts = content.decode("utf-8", "replace").split("/")
            if len(parts) == 4 and parts[1].isdecimal() and parts[2].isdecimal():
                return Source(parts[0], int(parts[1]), int(parts[2]), parts[3])
    return None
