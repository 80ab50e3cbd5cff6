"""What a history must satisfy: each rule takes operations and observations and finds violations.

Rules are pure functions. All times are those of the clients: an operation took effect, if it did,
at some moment between its start and its end. Whatever that leaves open counts as right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .operations import NEVER, Clocks, Fault, Kind, Operation, Outcome

OK, REFUSED, UNKNOWN = Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN
# Rounding to milliseconds on the way, by two nodes; no more than that is excused.
ROUNDING_SECONDS = 0.005

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    message: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}: {self.text}"


@dataclass(slots=True)
class Stale:
    """When an owner that was replaced may still act as one, because it cannot know better."""

    faults: Sequence[Fault] = ()
    seconds: float = 0.0  # how long after the repair
    excused: list[Operation] = field(default_factory=list)  # counted, but no violation

    def excuses(self, operation: Operation) -> bool:
        for fault in self.faults:
            if not fault.may_leave_stale_owner:
                continue
            if operation.start <= fault.end + self.seconds and operation.end >= fault.start:
                self.excused.append(operation)
                return True
        return False


# What is in a log


def lost(sends: Iterable[Operation], counts: Counts) -> list[Violation]:
    """What was acknowledged is there."""
    return [
        Violation("lost", one.message, f"acknowledged at {one.end:.3f} and not there")
        for one in sends
        if one.outcome is OK and not counts.get(one.message)
    ]


def doubled(sends: Iterable[Operation], counts: Counts) -> list[Violation]:
    """What was sent once is there at most once, whatever was answered."""
    return [
        Violation("doubled", one, f"there {counts[one]} times")
        for one in sorted({one.message for one in sends})
        if counts.get(one, 0) > 1
    ]


def refused_yet_there(sends: Iterable[Operation], counts: Counts) -> list[Violation]:
    """What was refused for certain in every attempt is not there."""
    outcomes: dict[str, set[Outcome]] = defaultdict(set)
    for one in sends:
        outcomes[one.message].add(one.outcome)
    return [
        Violation("refused yet there", message, "every attempt was refused")
        for message, found in outcomes.items()
        if found == {REFUSED} and counts.get(message)
    ]


def never_sent(sends: Iterable[Operation], counts: Counts) -> list[Violation]:
    """Nothing is there that nobody sent."""
    known = {one.message for one in sends}
    return [Violation("never sent", message, "nobody sent it") for message in counts.keys() - known]


def log_rules(sends: Sequence[Operation], counts: Counts) -> list[Violation]:
    """A log into which each message is written once."""
    return [
        *lost(sends, counts),
        *doubled(sends, counts),
        *refused_yet_there(sends, counts),
        *never_sent(sends, counts),
    ]


def disordered(sends: Iterable[Operation], log: Mapping[int, Sequence[str]]) -> list[Violation]:
    """In a partition, the messages of one producer stand in the order in which they were sent."""
    numbers = {one.message: (one.group, one.number) for one in sends if one.number >= 0}
    found = []
    for partition, messages in log.items():
        last: dict[str, int] = {}
        for message in messages:
            if message not in numbers:
                continue
            group, number = numbers[message]
            if number < last.get(group, -1):
                text = f"in partition {partition} behind number {last[group]} of {group}"
                found.append(Violation("disordered", message, text))
            last[group] = max(number, last.get(group, -1))
    return found


def changed(
    before: Mapping[tuple[str, int, int], str], after: Mapping[tuple[str, int, int], str]
) -> list[Violation]:
    """What was read at an offset is read there for ever."""
    return [
        Violation("changed", value, f"was at {place}; there is {after.get(place)!r} now")
        for place, value in before.items()
        if after.get(place) != value
    ]


# Delayed messages


def early(sends: Iterable[Operation], seen: Mapping[str, float], clocks: Clocks) -> list[Violation]:
    """Nobody sees a delayed message before its time; clocks that were set wrong are excused."""
    found = []
    for one in sends:
        at = seen.get(one.message)
        if one.seconds <= 0 or at is None:
            continue
        missing = one.start + one.seconds - at - clocks.spread(one.start, at) - ROUNDING_SECONDS
        if missing > 0:
            found.append(Violation("early", one.message, f"seen {missing:.3f} s before its time"))
    return found


def cancelled_yet_there(cancels: Iterable[Operation], counts: Counts) -> list[Violation]:
    """A message whose cancellation was answered never appears; one that was too late does."""
    found = []
    for one in cancels:
        count = counts.get(one.message, 0)
        if one.outcome is OK and count:
            found.append(Violation("cancelled yet there", one.message, f"cancelled {one.end:.3f}"))
        if one.outcome is REFUSED and not count:
            found.append(Violation("lost", one.message, "could not be cancelled and is not there"))
    return found


# Queues


def settled_again(operations: Sequence[Operation], stale: Stale) -> list[Violation]:
    """A message whose ack was answered is not in the answer to any later receive."""
    settled: dict[str, float] = {}
    for one in operations:
        if one.kind is Kind.ACK and one.outcome is OK:
            settled[one.message] = min(one.end, settled.get(one.message, NEVER))
    return [
        Violation("settled yet delivered", one.message, _late(one, settled[one.message]))
        for one in operations
        if one.kind is Kind.DELIVERY
        and one.start > settled.get(one.message, NEVER)
        and not stale.excuses(one)
    ]


def _late(delivery: Operation, settled: float) -> str:
    return f"ack answered at {settled:.3f}, received again from {delivery.start:.3f} on"


def two_leases(operations: Sequence[Operation], stale: Stale) -> list[Violation]:
    """While a consumer surely holds a message, nobody else is given it; no clock excuses that."""
    found = []
    by_message = _by_message(operations)
    for message, ours in by_message.items():
        deliveries = [one for one in ours if one.kind is Kind.DELIVERY]
        calls = Counter(one.call for one in deliveries)
        found += [
            Violation("two leases", message, f"{times} times in the answer to {call}")
            for call, times in calls.items()
            if times > 1
        ]
        for held in deliveries if len(deliveries) > 1 else ():
            until = _held_until(held, ours)
            for other in deliveries:
                if other is held or other.start < held.end:
                    continue
                if until - other.end > ROUNDING_SECONDS and not stale.excuses(other):
                    text = (
                        f"held by {held.process} from {held.end:.3f} to {until:.3f}, "
                        f"received by {other.process} at {other.end:.3f}"
                    )
                    found.append(Violation("two leases", message, text))
    return found


def _held_until(held: Operation, ours: Iterable[Operation]) -> float:
    """Until when a delivery surely is the only one: its lease may have begun with the call."""
    until = held.start + held.seconds
    changes = (one for one in ours if one.receipt == held.receipt and one.kind is not Kind.DELIVERY)
    for one in sorted(changes, key=lambda one: one.start):
        if one.kind is Kind.EXTEND and one.outcome is OK:
            until = one.start + one.seconds
        elif one.kind is Kind.EXTEND and one.outcome is UNKNOWN:
            until = min(until, one.start + one.seconds)
        elif one.kind is Kind.RELEASE and one.outcome is not REFUSED:
            until = min(until, one.start)
        elif one.kind is Kind.ACK and one.outcome is not REFUSED:
            until = min(until, one.start)  # from then on `settled_again` has the say
    return until


def refused_yet_done(operations: Sequence[Operation]) -> list[Violation]:
    """An ack that was refused, with all its retries, did nothing: the message comes again."""
    found = []
    for message, ours in _by_message(operations).items():
        acks = [one for one in ours if one.kind is Kind.ACK]
        if not acks or any(one.outcome is OK for one in acks):
            continue
        last = max(acks, key=lambda one: one.start)
        deliveries = [one.end for one in ours if one.kind is Kind.DELIVERY]
        if last.outcome is REFUSED and max(deliveries, default=0.0) < last.start:
            text = f"ack refused at {last.end:.3f} ({last.note}), never received again"
            found.append(Violation("refused yet done", message, text))
    return found


def unfinished(
    sends: Iterable[Operation], operations: Iterable[Operation], counts: Counts
) -> list[Violation]:
    """In the end every message that is in the queue's log has been delivered and settled."""
    deliveries = {one.message for one in operations if one.kind is Kind.DELIVERY}
    settled = {
        one.message for one in operations if one.kind is Kind.ACK and one.outcome is not REFUSED
    }
    found = []
    for message in sorted({one.message for one in sends}):
        if counts.get(message) and message not in deliveries:
            found.append(Violation("never delivered", message, "it is in the queue's log"))
        elif counts.get(message) and message not in settled:
            found.append(Violation("never settled", message, "it was delivered"))
    return found


def queue_rules(
    sends: Sequence[Operation],
    operations: Sequence[Operation],
    counts: Counts,
    stale: Stale,
) -> list[Violation]:
    return [
        *log_rules(sends, counts),
        *settled_again(operations, stale),
        *two_leases(operations, stale),
        *refused_yet_done(operations),
        *unfinished(sends, operations, counts),
    ]


def overtaken(
    sends: Iterable[Operation], operations: Sequence[Operation], stale: Stale
) -> list[Violation]:
    """In a FIFO queue nobody is given a message while an earlier one of its group is not done.

    An earlier one is done when a delete of it may have begun to count, or comes in the same answer,
    before it. `sends` has the messages of each group numbered in the order they were sent.
    """
    numbers = {one.message: (one.group, one.number) for one in sends}
    lines: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for message, (group, number) in numbers.items():
        lines[group].append((number, message))
    settling: dict[str, float] = {}
    for one in operations:
        if one.kind is Kind.ACK and one.outcome is not REFUSED:
            settling[one.message] = min(one.start, settling.get(one.message, NEVER))
    answers = _by_call(operations)
    delivered = {one.message for one in operations if one.kind is Kind.DELIVERY}
    found = []
    for one in operations:
        if one.kind is not Kind.DELIVERY or one.message not in numbers:
            continue
        group, number = numbers[one.message]
        before = answers[one.call][: answers[one.call].index(one.message)]
        for earlier, message in sorted(lines[group]):
            if earlier >= number:
                break
            is_done = settling.get(message, NEVER) < one.end or message in before
            # One that was never delivered was never stored, or is reported as such.
            if not is_done and message in delivered and not stale.excuses(one):
                text = f"received at {one.end:.3f} while {message} of {group} was not done"
                found.append(Violation("overtaken", one.message, text))
                break
    return found


# Transactions


def half_visible(
    transactions: Iterable[Operation], visible: Mapping[str, Counts]
) -> list[Violation]:
    """A transaction is there as a whole, in all topics, or not at all.

    `visible` counts what is read of each topic; the values of a transaction are written to all.
    """
    found = []
    for one in transactions:
        there = [
            (topic, v) for topic, counts in visible.items() for v in one.values if counts.get(v)
        ]
        whole = len(one.values) * len(visible)
        if one.outcome is OK and len(there) < whole:
            text = f"committed, {len(there)} of {whole} records are there"
            found.append(Violation("committed yet not there", one.message, text))
        elif one.outcome is REFUSED and there:
            text = f"aborted, {len(there)} of {whole} records are there"
            found.append(Violation("aborted yet there", one.message, text))
        elif 0 < len(there) < whole:
            text = f"{len(there)} of {whole} records are there"
            found.append(Violation("half visible", one.message, text))
    return found


def not_once(inputs: Iterable[str], outputs: Mapping[str, Counts]) -> list[Violation]:
    """Every input has exactly one output in each topic."""
    return [
        Violation("not once", message, f"{counts.get(message, 0)} outputs in {topic}")
        for message in inputs
        for topic, counts in outputs.items()
        if counts.get(message, 0) != 1
    ]


# Committed offsets


def stale_offsets(operations: Sequence[Operation]) -> list[Violation]:
    """A committed offset that is told is not older than one that was answered before the question.

    Each partition (`group`) has one committer, who counts up. A commit without an answer may count
    at any later time.
    """
    sure = _Committed(operations)
    possible: dict[str, dict[int, float]] = defaultdict(dict)
    open_ones: dict[str, set[int]] = defaultdict(set)
    for one in operations:
        if one.kind is Kind.COMMIT and one.outcome is not REFUSED:
            possible[one.group][one.number] = one.start
            if one.outcome is UNKNOWN:
                open_ones[one.group].add(one.number)
    found = []
    for fetch in operations:
        if fetch.kind is not Kind.FETCH or fetch.outcome is not OK:
            continue
        group, told = fetch.group, fetch.number
        least = sure.before(group, fetch.start)
        is_new = told > least and possible[group].get(told, NEVER) < fetch.end
        if told != least and not is_new and told not in open_ones[group]:
            text = f"{told} told at {fetch.start:.3f}, after {least} was committed"
            found.append(Violation("stale offset", group, text))
    return found


def read_again(operations: Sequence[Operation]) -> list[Violation]:
    """A stream group does not get again what it had committed before it asked."""
    sure = _Committed(operations)
    found = []
    for one in operations:
        if one.kind is not Kind.DELIVERY:
            continue
        least = sure.before(one.group, one.start)
        if one.number < least:
            text = f"offset {one.number} of {one.group} at {one.start:.3f}, behind {least}"
            found.append(Violation("read again", one.message, text))
    return found


class _Committed:
    """The highest offset of each partition whose commit was answered before a time."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._ends: dict[str, list[float]] = defaultdict(list)
        self._highest: dict[str, list[int]] = defaultdict(list)
        commits = (one for one in operations if one.kind is Kind.COMMIT and one.outcome is OK)
        for one in sorted(commits, key=lambda one: one.end):
            highest = self._highest[one.group]
            highest.append(max(one.number, highest[-1] if highest else -1))
            self._ends[one.group].append(one.end)

    def before(self, group: str, time: float) -> int:
        at = bisect_left(self._ends[group], time)
        return self._highest[group][at - 1] if at else -1


def _by_message(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for one in operations:
        found[one.message].append(one)
    return found


def _by_call(operations: Iterable[Operation]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for one in operations:
        if one.kind is Kind.DELIVERY:
            found[one.call].append(one.message)
    return found
