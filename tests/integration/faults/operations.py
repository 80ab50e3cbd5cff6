"""The history of a campaign: what every client asked for, when, and what it was answered."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

NEVER = float("inf")


class Outcome(StrEnum):
    """What the client knows about an operation when it ends."""

    OK = "ok"  # answered: done
    REFUSED = "refused"  # answered: not done
    UNKNOWN = "unknown"  # no answer, or one that leaves it open


class Kind(StrEnum):
    SEND = "send"
    CANCEL = "cancel"  # of a delayed message
    DELIVERY = "delivery"  # one message in the answer to one receive
    ACK = "ack"  # also SQS DeleteMessage
    RELEASE = "release"  # nack, or a visibility timeout of 0
    EXTEND = "extend"
    TRANSACTION = "transaction"
    COMMIT = "commit"  # of an offset
    FETCH = "fetch"  # of a committed offset


@dataclass(slots=True, kw_only=True)
class Operation:
    """One operation of one client; times are seconds since the campaign began."""

    workload: str
    process: str
    kind: Kind
    message: str
    start: float
    end: float = NEVER
    outcome: Outcome = Outcome.UNKNOWN
    group: str = ""  # message group, producer, or partition: whatever `number` counts within
    number: int = -1
    receipt: str = ""
    call: str = ""  # deliveries with the same one came in the same answer
    seconds: float = 0.0  # delay of a send; lease of a delivery; new lease of an extension
    values: tuple[str, ...] = ()  # what a transaction wrote
    is_settled: bool = False  # the consumer already knew that the message was settled
    note: str = ""


@dataclass(slots=True, kw_only=True)
class Fault:
    """Something that was broken, until it was repaired."""

    name: str
    text: str
    start: float
    end: float = NEVER
    may_leave_stale_owner: bool = False  # a node may run on without knowing of its successor


# A clock is set a moment before that is recorded, or after.
CLOCK_SET_SECONDS = 1.0
# What shows that a queue is being worked off.
PROGRESS = (Kind.SEND, Kind.ACK, Kind.TRANSACTION)


@dataclass(slots=True)
class Clocks:
    """How far the clocks of the nodes were off, and since when."""

    changes: list[tuple[float, dict[int, float]]] = field(default_factory=list)

    def change(self, at: float, offsets: dict[int, float]) -> None:
        self.changes.append((at, dict(offsets)))

    def spread(self, start: float, end: float) -> float:
        """The most that two readings of node clocks within a time can differ by too much."""
        offsets = [0.0] if not self.changes or self.changes[0][0] > start else []
        for number, (at, values) in enumerate(self.changes):
            until = self.changes[number + 1][0] if number + 1 < len(self.changes) else NEVER
            if at - CLOCK_SET_SECONDS <= end and until + CLOCK_SET_SECONDS >= start:
                offsets += values.values()
        return max(offsets) - min(offsets) if offsets else 0.0


class History:
    """Everything that clients did, in the order in which it ended."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.operations: list[Operation] = []
        self.faults: list[Fault] = []
        self.clocks = Clocks()
        self.progress_at = 0.0  # when an operation last succeeded that brings a queue forward

    def now(self) -> float:
        return time.monotonic() - self._began

    def end(self, operation: Operation, outcome: Outcome, note: str = "") -> None:
        """Record an operation with its outcome."""
        operation.end = self.now()
        operation.outcome = outcome
        operation.note = note or operation.note
        self.add(operation)

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)
            if operation.kind in PROGRESS and operation.outcome is Outcome.OK:
                self.progress_at = self.now()

    def of(self, workload: str, *kinds: Kind) -> list[Operation]:
        with self._lock:
            found = list(self.operations)
        return [one for one in found if one.workload == workload and one.kind in kinds]

    def counts(self) -> dict[str, Counter[str]]:
        """How many operations of each workload had which outcome."""
        found: dict[str, Counter[str]] = {}
        with self._lock:
            for one in self.operations:
                found.setdefault(one.workload, Counter())[f"{one.kind} {one.outcome}"] += 1
        return found

    def save(self, path: Path) -> None:
        """Write everything as JSON, one operation per line."""
        with path.open("w") as lines:
            for fault in self.faults:
                lines.write(json.dumps({"fault": asdict(fault)}) + "\n")
            for at, offsets in self.clocks.changes:
                lines.write(json.dumps({"clocks": offsets, "at": at}) + "\n")
            for operation in self.operations:
                lines.write(json.dumps(_shown(operation)) + "\n")

    def about(self, messages: Iterable[str]) -> list[str]:
        """The operations on some messages, for people to read."""
        wanted = set(messages)
        return [
            json.dumps(_shown(one))
            for one in sorted(self.operations, key=lambda one: one.start)
            if one.message in wanted or wanted.intersection(one.values)
        ]


def _shown(operation: Operation) -> dict[str, object]:
    """Only what is set."""
    plain = asdict(operation)
    rounded = {name: round(plain[name], 4) for name in ("start", "end")}
    return {name: value for name, value in (plain | rounded).items() if value not in ("", (), -1)}
