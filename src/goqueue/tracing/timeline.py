"""One journey: the events of a message and of the messages linked to it, in order.

A message may come from another log, where it was scheduled or was a dead letter, and may go to
another one. Clocks of nodes differ, so causes come first: within a message what the journal has in
order, and an event that moved a message before everything that happened where it went. Among what
has no such order, time decides.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from goqueue.tracing.events import Event, Kind, Link
from goqueue.tracing.outcomes import Outcome

# What happened to a message before anything else, and after that.
_BEGINNINGS = frozenset({Kind.RECEIVED, Kind.ARRIVED, Kind.SCHEDULED})
_COMMITS = frozenset({Kind.STORED})
# Events whose link says where the message went, and the one whose link says where it came from.
FORWARD = frozenset({Kind.RELEASED, Kind.DEAD_LETTERED, Kind.REDRIVEN})
BACKWARD = frozenset({Kind.ARRIVED})


class Message(NamedTuple):
    """A message, as the broker names it."""

    topic: str
    partition: int
    offset: int


class Entry(NamedTuple):
    """An event of a journey: which message it happened to, and how long after the one before."""

    message: Message
    event: Event
    time_ms: int
    after_ms: int  # 0 for the first; clocks may differ by more than the time between two events


_OF_GROUPS = {
    Kind.DELIVERED: Outcome.IN_FLIGHT,
    Kind.ACKED: Outcome.ACKED,
    Kind.NACKED: Outcome.WAITING,
    Kind.LEASE_EXPIRED: Outcome.WAITING,
    Kind.RETURNED: Outcome.WAITING,
    Kind.REJECTED: Outcome.DEAD,
    Kind.DEAD_LETTERED: Outcome.DEAD,
    Kind.EXPIRED: Outcome.EXPIRED,
    Kind.SKIPPED: Outcome.SKIPPED,
    Kind.CONSUMED: Outcome.CONSUMED,
}
_OF_MESSAGES = {
    Kind.RECEIVED: Outcome.STORED,
    Kind.STORED: Outcome.STORED,
    Kind.ARRIVED: Outcome.STORED,
    Kind.SCHEDULED: Outcome.SCHEDULED,
    Kind.RELEASED: Outcome.RELEASED,
    Kind.CANCELLED: Outcome.CANCELLED,
    Kind.REDRIVEN: Outcome.REDRIVEN,
    Kind.RETIRED: Outcome.RETIRED,
}
_FINAL = frozenset({Outcome.ACKED, Outcome.EXPIRED, Outcome.SKIPPED, Outcome.CONSUMED})


class Standing(NamedTuple):
    """How a message stands in a group; without a group, by itself."""

    message: Message
    group: str
    outcome: Outcome
    time_ms: int
    attempts: int = 0  # deliveries
    consumer: str = ""  # the last one
    reason: str = ""


class Journey(NamedTuple):
    """A message and those linked to it, from the first to the last; what happened; how it stands.

    A group stands as it does with the last of the messages that it knows.
    """

    message: Message
    messages: Sequence[Message]
    entries: Sequence[Entry]
    standings: Sequence[Standing]

    @property
    def is_incomplete(self) -> bool:
        """Whether some of it was lost in a crash."""
        return any(one.event.kind is Kind.RECOVERED for one in self.entries)


def links_of(events: Iterable[Event], message: Message) -> list[tuple[Kind, Link]]:
    """Return where a message came from and went to, as far as its events say."""
    found: dict[tuple[Kind, Link], None] = {}
    for event in events:
        if event.kind in FORWARD or event.kind in BACKWARD:
            link = event.link_of(message.offset)
            if link is not None:
                found[event.kind, link] = None
    return list(found)


def linked_message(link: Link) -> Message | None:
    """Return the message at the other end of a link; None if its offset is not known."""
    if link.offset < 0 or link.partition < 0:
        return None
    return Message(link.topic, link.partition, link.offset)


def build_journey(message: Message, events: Mapping[Message, Sequence[Event]]) -> Journey:
    """Build the journey of a message from its events and those of linked messages.

    The events of each message are in the order of the journal.
    """
    entries = _ordered(events)
    messages = list(dict.fromkeys(one.message for one in entries)) or [message]
    return Journey(message, messages, entries, standings_of(entries))


def standings_of(entries: Sequence[Entry]) -> list[Standing]:
    """Return how messages stand after these events: in each group, and the last one by itself."""
    groups: dict[str, Standing] = {}
    own: Standing | None = None
    for entry in entries:
        details = entry.event.details
        outcome = _OF_GROUPS.get(details.kind)
        if details.group and outcome is not None:
            groups[details.group] = _after(groups.get(details.group), entry, outcome)
        elif (itself := _OF_MESSAGES.get(details.kind)) is not None:
            own = Standing(entry.message, "", itself, entry.time_ms, reason=details.reason)
    if own is not None and groups and own.outcome is Outcome.STORED:
        return list(groups.values())
    return [*groups.values(), *([own] if own is not None else [])]


def _after(before: Standing | None, entry: Entry, outcome: Outcome) -> Standing:
    details = entry.event.details
    if before is None or before.message != entry.message:
        before = Standing(entry.message, details.group, outcome, entry.time_ms)
    elif before.outcome in _FINAL and outcome is Outcome.CONSUMED:
        return before  # Commits of an offset repeat what is known.
    is_delivery = details.kind is Kind.DELIVERED
    return before._replace(
        outcome=outcome,
        time_ms=entry.time_ms,
        attempts=max(before.attempts, details.attempt, before.attempts + is_delivery),
        consumer=details.consumer or before.consumer,
        reason=details.reason or before.reason,
    )


# Order


class _Node:
    """An event, and how many must come before it."""

    __slots__ = ("after", "before", "event", "message", "time_ms")

    def __init__(self, message: Message, event: Event) -> None:
        self.message = message
        self.event = event
        self.time_ms = event.time_of(message.offset)
        self.before = 0
        self.after: list[int] = []


def _ordered(events: Mapping[Message, Sequence[Event]]) -> list[Entry]:
    """Return the events with causes first, and otherwise by time."""
    nodes = [
        _Node(message, event) for message, its in events.items() for event in _without_copies(its)
    ]
    _date_moves(nodes, events)
    for before, after in _constraints(nodes):
        nodes[before].after.append(after)
        nodes[after].before += 1
    ready = [(one.time_ms, number) for number, one in enumerate(nodes) if not one.before]
    heapq.heapify(ready)
    entries: list[Entry] = []
    while ready:
        _, number = heapq.heappop(ready)
        node = nodes[number]
        elapsed_ms = node.time_ms - entries[-1].time_ms if entries else 0
        entries.append(Entry(node.message, node.event, node.time_ms, max(0, elapsed_ms)))
        for following in node.after:
            nodes[following].before -= 1
            if not nodes[following].before:
                heapq.heappush(ready, (nodes[following].time_ms, following))
    return entries


def _without_copies(events: Sequence[Event]) -> list[Event]:
    """Leave out that a message was received if it was moved there: that is the same event."""
    if all(one.kind not in BACKWARD for one in events):
        return list(events)
    return [one for one in events if one.kind is not Kind.RECEIVED or has_sender(one)]


def has_sender(event: Event) -> bool:
    """Whether a client is known that messages were received from."""
    details = event.details
    return bool(details.principal or details.client_id or details.listener)


def _date_moves(nodes: Sequence[_Node], events: Mapping[Message, Sequence[Event]]) -> None:
    """Give a move the time at which the message was where it went, if that is earlier.

    A move is recorded when it is complete, and by then the message may have been delivered.
    """
    received = {
        message: min(one.time_of(message.offset) for one in its if one.kind in _BEGINNINGS)
        for message, its in events.items()
        if any(one.kind in _BEGINNINGS for one in its)
    }
    for node in nodes:
        target: Message | None = node.message if node.event.kind in BACKWARD else None
        if node.event.kind in FORWARD:
            link = node.event.link_of(node.message.offset)
            target = None if link is None else linked_message(link)
        if target is not None:
            node.time_ms = min(node.time_ms, received.get(target, node.time_ms))


def _constraints(nodes: Sequence[_Node]) -> Iterable[tuple[int, int]]:
    """Yield pairs of events of which the first must come first. They contain no cycle."""
    by_message: dict[Message, list[int]] = {}
    for number, node in enumerate(nodes):
        by_message.setdefault(node.message, []).append(number)
    levels = {message: _leveled(nodes, its) for message, its in by_message.items()}
    for first, *rest in levels.values():
        for level in rest:
            if level:
                yield from ((before, after) for before in first for after in level)
                first = level
    for its in by_message.values():
        yield from _of_groups(nodes, its)
    ranks = _ranks(nodes, by_message)
    for number, node in enumerate(nodes):
        link = node.event.link_of(node.message.offset) if node.event.kind in FORWARD else None
        target = None if link is None else linked_message(link)
        # A link against the direction of the journey cannot be followed without a cycle.
        if target in by_message and ranks[node.message] < ranks[target]:
            yield from ((number, after) for after in by_message[target])


def _leveled(nodes: Sequence[_Node], numbers: Sequence[int]) -> list[list[int]]:
    """Divide the events of a message into its beginning, its commit, and what followed."""
    beginnings = [one for one in numbers if nodes[one].event.kind in _BEGINNINGS]
    commits = [one for one in numbers if nodes[one].event.kind in _COMMITS]
    known = {*beginnings, *commits}
    return [beginnings, commits, [one for one in numbers if one not in known]]


def _of_groups(nodes: Sequence[_Node], numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Yield the neighbours among the events of each group, whose order the journal has."""
    last: dict[str, int] = {}
    for number in numbers:
        group = nodes[number].event.details.group
        if group:
            if group in last:
                yield last[group], number
            last[group] = number


def _ranks(nodes: Sequence[_Node], messages: Iterable[Message]) -> dict[Message, int]:
    """Number the messages of a journey from its beginning on."""
    sources: dict[Message, set[Message]] = {message: set() for message in messages}
    for node in nodes:
        link = node.event.link_of(node.message.offset)
        other = None if link is None else linked_message(link)
        if other is None or other not in sources or other == node.message:
            continue
        if node.event.kind in FORWARD:
            sources[other].add(node.message)
        elif node.event.kind in BACKWARD:
            sources[node.message].add(other)
    first = {one.message: one.time_ms for one in sorted(nodes, key=lambda one: -one.time_ms)}
    ranks: dict[Message, int] = {}
    left = sorted(sources, key=lambda one: (first.get(one, 0), one))
    while left:
        # If links contradict each other, the oldest message comes first.
        chosen = next((one for one in left if sources[one] <= ranks.keys()), left[0])
        left.remove(chosen)
        ranks[chosen] = len(ranks)
    return ranks
