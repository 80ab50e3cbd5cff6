"""Leases as replayed from the delivery journal, until a queue takes them over.

An open queue tracks its leases itself. The journal holds one event per receive call and partition,
whatever its number of messages, and events for changes of leases that are not changes of messages:
extended, or voided. Which messages of a lease are still in flight follows from the ledger: they are
not done, no transaction has acknowledged them, and their attempt count shows that they have not
been returned since.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from goqueue.delivery.ranges import Range

_PRUNE_MIN = 256  # leases, before replay looks for ended ones


@dataclass(frozen=True, slots=True)
class Granted:
    """A receive call was given these messages, in the order of their positions in the lease."""

    serial: int
    consumer: str
    granted_ms: int
    until_ms: int
    offsets: Sequence[int]
    attempts: Sequence[int]  # the delivery attempt of each message
    keys: Sequence[int] | None = None  # with key order


@dataclass(frozen=True, slots=True)
class Extended:
    """These positions of a lease, or all if none are given, have a new expiry time."""

    serial: int
    until_ms: int
    positions: list[Range]


@dataclass(frozen=True, slots=True)
class Voided:
    """These positions of a lease are not in flight, though their messages got no new state."""

    serial: int
    positions: list[Range]
    offsets: tuple[int, ...] = field(default=(), compare=False)  # for observers; not journaled


@dataclass(frozen=True, slots=True)
class Shifted:
    """All leases are extended by this time: while the queue had no owner, leases do not run."""

    shift_ms: int


LeaseEvent = Granted | Extended | Voided | Shifted
IsOut = Callable[[int, int], bool]


class Grant:
    """One lease, as described by its events."""

    __slots__ = ("event", "granted_ms", "out", "until_ms", "untils")

    def __init__(self, event: Granted) -> None:
        self.event = event
        self.granted_ms = event.granted_ms
        self.until_ms = event.until_ms
        self.untils: array[int] | None = None
        self.out = bytearray(b"\x01") * len(event.offsets)

    def extend(self, event: Extended) -> None:
        if not event.positions:
            self.until_ms, self.untils = event.until_ms, None
            return
        if self.untils is None:
            self.untils = array("q", (self.until_ms,)) * len(self.out)
        for position in _positions(event.positions, len(self.out)):
            self.untils[position] = event.until_ms
            self.out[position] = 1

    def shift(self, shift_ms: int) -> None:
        self.granted_ms += shift_ms
        self.until_ms += shift_ms
        if self.untils is not None:
            self.untils = array("q", (one + shift_ms for one in self.untils))

    def keep(self, is_out: IsOut) -> bool:
        """Clear what is no longer in flight; return whether anything is left."""
        event = self.event
        for position, offset in enumerate(event.offsets):
            if self.out[position] and not is_out(offset, event.attempts[position]):
                self.out[position] = 0
        return any(self.out)


class Grants:
    """The leases of one ledger that may still be live."""

    __slots__ = ("_by_serial", "_prune_at", "last_serial")

    def __init__(self) -> None:
        self.last_serial = 0
        self._by_serial: dict[int, Grant] = {}
        self._prune_at = _PRUNE_MIN

    def __bool__(self) -> bool:
        return bool(self._by_serial)

    def offsets(self) -> list[int]:
        """Return every offset of these leases, in flight or not."""
        return [one for grant in self._by_serial.values() for one in grant.event.offsets]

    def apply(self, event: LeaseEvent, is_out: IsOut) -> None:
        if isinstance(event, Granted):
            self.last_serial = max(self.last_serial, event.serial)
            self._by_serial.setdefault(event.serial, Grant(event))
            if len(self._by_serial) >= self._prune_at:
                self.keep(is_out)
                self._prune_at = max(_PRUNE_MIN, 2 * len(self._by_serial))
        elif isinstance(event, Shifted):
            for grant in self._by_serial.values():
                grant.shift(event.shift_ms)
        elif (known := self._by_serial.get(event.serial)) is None:
            pass  # It had ended when leases were last pruned.
        elif isinstance(event, Extended):
            known.extend(event)
        else:
            for position in _positions(event.positions, len(known.out)):
                known.out[position] = 0

    def keep(self, is_out: IsOut) -> None:
        """Drop the leases that have nothing in flight any more."""
        self._by_serial = {
            serial: grant for serial, grant in self._by_serial.items() if grant.keep(is_out)
        }

    def void_from(self, offset: int) -> None:
        """Void messages from an offset on, because they are delivered again."""
        for grant in self._by_serial.values():
            for position, one in enumerate(grant.event.offsets):
                if one >= offset:
                    grant.out[position] = 0

    def clear(self) -> None:
        self._by_serial = {}

    def take(self, is_out: IsOut) -> list[Grant]:
        """Hand over the live leases to the queue that tracks them from now on."""
        self.keep(is_out)
        taken, self._by_serial = list(self._by_serial.values()), {}
        return taken

    def events(self) -> list[LeaseEvent]:
        """Return the leases as journal events."""
        return [
            event
            for one in self._by_serial.values()
            for event in lease_events(one.event, one.granted_ms, one.out, one.until_ms, one.untils)
        ]


def lease_events(
    granted: Granted,
    granted_ms: int,
    out: bytearray,
    until_ms: int,
    untils: Sequence[int] | None,
) -> list[LeaseEvent]:
    """Return the events that describe the whole state of one lease."""
    events: list[LeaseEvent] = [
        Granted(
            granted.serial,
            granted.consumer,
            granted_ms,
            until_ms,
            granted.offsets,
            granted.attempts,
            granted.keys,
        )
    ]
    if not all(out):
        events.append(Voided(granted.serial, _runs_of(out, 0)))
    if untils is not None:
        by_time: dict[int, list[int]] = {}
        for position, until in enumerate(untils):
            if out[position]:
                by_time.setdefault(until, []).append(position)
        events += [
            Extended(granted.serial, until, _ranges(positions))
            for until, positions in by_time.items()
        ]
    return events


def _positions(ranges: Iterable[Range], count: int) -> Iterable[int]:
    for first, end in ranges:
        yield from range(max(0, first), min(end, count))


def _runs_of(out: bytearray, value: int) -> list[Range]:
    return _ranges([position for position, one in enumerate(out) if one == value])


def _ranges(positions: list[int]) -> list[Range]:
    ranges: list[Range] = []
    for position in positions:
        if ranges and ranges[-1][1] == position:
            ranges[-1] = (ranges[-1][0], position + 1)
        else:
            ranges.append((position, position + 1))
    return ranges
