"""Derives events from the logs that they follow from, with what these still know.

The records of a producer have no session in the log, deliveries no difference between a refusal and
an expired lease, and releases no target. So these events are marked as recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from goqueue.broker.journeys.listening import Listener
from goqueue.broker.queues.observation import Observation
from goqueue.delivery import (
    DeadLetterIntent,
    Done,
    LedgerKey,
    Prepared,
    decode_events,
    decode_key,
)
from goqueue.delivery import Event as DeliveryEvent
from goqueue.delivery.grants import Extended, Granted, Voided
from goqueue.delivery.ledger import DeadLettered, Retried, Return, Snapshot, stored_letters
from goqueue.delivery.ranges import Range, RangeSet, ranges_of
from goqueue.delivery.redrive import LEDGER_GROUP
from goqueue.delivery.schedules import ScheduledMessage, read_key, read_message
from goqueue.delivery.schedules.records import RELEASED_HEADER
from goqueue.model.batch import BatchHeader, Record, decode_batch, decode_marker
from goqueue.model.errors import CorruptBatch, CorruptDeliveryState
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Outcome, Target
from goqueue.model.tenants import TopicName
from goqueue.partition import Partition
from goqueue.tracing.events import Details, Event, Kind

BATCHES_PER_STEP = 200
# Of a partition, events of at most so many of the newest messages are derived. Of those before
# them the journal says only that there were some.
MESSAGES_MAX = 1_000_000
GRANTS_MAX = 10_000  # remembered, of one partition and group

COMPACTED = "delivery state was compacted"
MOVED_BACK = "redriven"  # what exactly, and where to, may be lost
TOO_MANY = "too many to derive their details"
REMOVED = "no longer in the log"

_NOWHERE = Target(TopicPartition(TopicName(""), -1), -1)


class Derived(NamedTuple):
    """An event, and the offset in its source's log that it follows from."""

    position: int
    name: TopicPartition
    event: Event


# What follows from the log up to an offset.
Steps = Iterator[tuple[int, list[Derived]]]


class Deriving(Protocol):
    """Reads a log batch by batch, and collects the events that follow from it."""

    def apply(self, header: BatchHeader, batch: bytes) -> None: ...

    def take(self) -> list[Derived]:
        """Return the events since the last call."""


def in_steps(deriving: Deriving, batches: Iterable[tuple[BatchHeader, bytes]], until: int) -> Steps:
    """Apply batches, and yield the events up to an offset a few batches at a time."""
    for place, (header, batch) in enumerate(batches, 1):
        deriving.apply(header, batch)
        if not place % BATCHES_PER_STEP and header.next_offset < until:
            yield header.next_offset, deriving.take()
    yield until, deriving.take()


def derive_records(
    partition: Partition, *, first: int, until: int, now_ms: int, node: int
) -> Steps:
    """Derive what producers have stored in a partition from `first` on."""
    start = max(partition.log.start_offset, until - MESSAGES_MAX, first)
    if start > first:
        reason = TOO_MANY if start > partition.log.start_offset else REMOVED
        details = Details(Kind.RECOVERED, node, reason=reason, is_recovered=True)
        # Records may have been removed beyond where live recording begins.
        end = min(start, until)
        yield end, [Derived(first, partition.name, Event(details, first, end, now_ms, now_ms))]
    if start >= until:
        return
    received = Details(Kind.RECEIVED, node, is_recovered=True)
    stored = Details(Kind.STORED, node, is_recovered=True)
    found: list[Derived] = []
    for header in partition.log.headers(start):
        if header.base_offset >= until:
            break
        if not header.is_control and header.record_count:
            offsets = max(header.base_offset, start), header.next_offset
            time_ms = min(max(0, header.max_timestamp), now_ms)
            for details, size in ((received, header.size), (stored, 0)):
                event = Event(details, *offsets, time_ms, time_ms, size)
                found.append(Derived(offsets[0], partition.name, event))
        if len(found) >= 2 * BATCHES_PER_STEP:
            yield header.next_offset, found
            found = []
    yield until, found


def batches(partition: Partition, until: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the intact batches of a log before an offset."""
    offset = partition.log.start_offset
    while offset < until:
        try:
            for header, batch in partition.log.batches(offset, until_offset=until):
                yield header, batch
                offset = header.next_offset
            return
        except CorruptBatch as error:
            if error.next_offset is None or error.next_offset <= offset:
                return
            offset = error.next_offset


def derive_removal(
    partition: Partition, *, first: int, until: int, now_ms: int, node: int
) -> Steps:
    """Derive that the records before the start of a log were removed."""
    details = Details(Kind.RETIRED, node, reason=REMOVED, is_recovered=True)
    event = Event(details, first, until, now_ms, now_ms)
    yield until, [Derived(first, partition.name, event)]


class Names(NamedTuple):
    """Names by ids; empty for what no longer exists."""

    of_group: Callable[[str], str]
    of_topic: Callable[[bytes], str]


def derive_deliveries(
    partition: Partition, *, first: int, until: int, node: int, names: Names
) -> Steps:
    """Derive what a partition of the delivery journal says up to an offset, from its beginning.

    If events from `first` on are no longer in it, a later snapshot may have replaced them.
    """
    end = partition.high_watermark if first < partition.log.start_offset else until
    deriving = _Deliveries(partition, node, names, until)
    return in_steps(deriving, batches(partition, end), until)


class _InFlight(NamedTuple):
    attempt: int
    until_ms: int


class _Ledger:
    """What is needed of one partition and group to understand the events of deliveries."""

    def __init__(self) -> None:
        self.grants: dict[int, Granted] = {}  # by serial number
        self.out: dict[int, _InFlight] = {}
        self.intents: dict[bytes, DeadLetterIntent] = {}

    def enriched(self, event: DeliveryEvent, now_ms: int) -> DeliveryEvent:
        """Apply an event; return it with what its observers need, as far as that is known."""
        if isinstance(event, Granted):
            self._grant(event)
        elif isinstance(event, Extended):
            self._extend(event)
        elif isinstance(event, Done):
            self._settle(event.ranges)
        elif isinstance(event, Retried):
            return Retried(event.retries, self._returned(event, now_ms))
        elif isinstance(event, Voided):
            return self._voided(event)
        elif isinstance(event, DeadLetterIntent):
            self.intents[event.topic_id] = event
        elif isinstance(event, DeadLettered):
            return self._dead_lettered(event)
        return event

    def _grant(self, event: Granted) -> None:
        self.grants[event.serial] = event
        if len(self.grants) > GRANTS_MAX:
            del self.grants[next(iter(self.grants))]
        for offset, attempt in zip(event.offsets, event.attempts, strict=True):
            self.out[offset] = _InFlight(attempt, event.until_ms)

    def _positions(self, serial: int, positions: list[Range]) -> list[int]:
        """Return the offsets at these positions of a lease that are in flight; of all, if none."""
        granted = self.grants.get(serial)
        if granted is None:
            return []
        offsets = list(granted.offsets)
        if positions:
            offsets = [one for first, end in positions for one in offsets[first:end]]
        return [one for one in offsets if one in self.out]

    def _extend(self, event: Extended) -> None:
        for offset in self._positions(event.serial, event.positions):
            self.out[offset] = self.out[offset]._replace(until_ms=event.until_ms)

    def _settle(self, ranges: list[Range]) -> None:
        for first, end in ranges:
            if end - first < len(self.out):
                for offset in range(first, end):
                    self.out.pop(offset, None)
            else:
                for offset in [one for one in self.out if first <= one < end]:
                    del self.out[offset]

    def _returned(self, event: Retried, now_ms: int) -> list[tuple[int, Return]]:
        returned: list[tuple[int, Return]] = []
        for offset, retry in event.retries:
            out = self.out.get(offset)
            if out is not None and out.attempt == retry.attempts:
                del self.out[offset]
                is_late = now_ms >= out.until_ms
                returned.append((offset, Return.LEASE_EXPIRED if is_late else Return.NACKED))
        return returned

    def _voided(self, event: Voided) -> Voided:
        offsets = self._positions(event.serial, event.positions)
        for offset in offsets:
            del self.out[offset]
        return Voided(event.serial, event.positions, tuple(offsets))

    def _dead_lettered(self, event: DeadLettered) -> DeadLettered:
        self._settle(event.ranges)
        intent = self.intents.pop(event.topic_id, None)
        if intent is None:
            return event
        done = RangeSet(event.ranges)
        letters = [
            one
            for one in stored_letters(intent.letters, intent.partition, event.end)
            if one.offset in done
        ]
        return DeadLettered(event.ranges, event.topic_id, event.end, letters)


class _Deliveries:
    """Reads a partition of the delivery journal."""

    def __init__(self, partition: Partition, node: int, names: Names, until: int) -> None:
        self._names = names
        self._until = until
        self._start = partition.log.start_offset
        self._time_ms = 0
        self._listener = Listener(node, lambda: self._time_ms, is_recovered=True)
        self._observation = Observation(self._listener, int, names.of_topic)
        self._ledgers: dict[LedgerKey, _Ledger] = {}
        # What open transactions have acknowledged, by producer.
        self._open: dict[int, list[tuple[LedgerKey, list[int]]]] = {}
        self._found: list[Derived] = []
        self._gap = Details(Kind.RECOVERED, node, reason=COMPACTED, is_recovered=True)

    def take(self) -> list[Derived]:
        found, self._found = self._found, []
        return found

    def apply(self, header: BatchHeader, batch: bytes) -> None:
        self._time_ms = max(self._time_ms, header.max_timestamp)
        is_live = header.base_offset >= self._until
        if header.is_control:
            if not is_live:
                self._end(header, is_commit=decode_marker(batch).is_commit)
            return
        snapshots: set[LedgerKey] = set()
        for record in decode_batch(batch):
            try:
                key, events = decode_key(record.key or b""), decode_events(record.value or b"")
            except CorruptDeliveryState:
                continue  # It was logged when the partition was replayed.
            for event in events:
                if isinstance(event, Snapshot):
                    snapshots.add(key)
                elif isinstance(event, Prepared) and not is_live:
                    offsets = [offset for offset, _ in event.retries]
                    self._open.setdefault(header.producer_id, []).append((key, offsets))
                if key in snapshots:
                    self._note_gap(key, event)
                if not is_live:
                    self._apply(key, event, record, is_state=key in snapshots)

    def _apply(
        self, key: LedgerKey, event: DeliveryEvent, record: Record, *, is_state: bool
    ) -> None:
        """Apply an event, and report it unless it is part of a snapshot."""
        ledger = self._ledgers.setdefault(key, _Ledger())
        event = ledger.enriched(event, record.timestamp_ms)
        if key.group == LEDGER_GROUP and isinstance(event, Done) and not is_state:
            self._note_redrive(key, event, record)
            return
        group, name = self._names.of_group(key.group), self._name(key)
        if group and name is not None and not is_state:
            self._observation.report(group, name, [event])
            self._collect(record.offset)

    def _end(self, header: BatchHeader, *, is_commit: bool) -> None:
        outcome = Outcome.ACKED if is_commit else Outcome.ABORTED
        for key, offsets in self._open.pop(header.producer_id, ()):
            group, name = self._names.of_group(key.group), self._name(key)
            if group and name is not None and offsets:
                ranges = ranges_of(sorted(offsets))
                self._listener.settled(group, name, ranges, outcome=outcome)
        self._collect(header.base_offset)

    def _note_gap(self, key: LedgerKey, state: DeliveryEvent) -> None:
        """Mark what a snapshot knows, for journals that miss events before this log."""
        ranges: list[Range] = []
        if isinstance(state, Snapshot):
            ranges = [*state.ranges, *((one, one + 1) for one, _ in state.retries)]
            if state.floor and not state.part:
                ranges.append((0, state.floor))
        elif isinstance(state, Granted):
            ranges = ranges_of(sorted(state.offsets))
        group, name = self._names.of_group(key.group), self._name(key)
        if name is not None and (group or key.group == LEDGER_GROUP):
            details = self._gap._replace(group=group)
            for first, end in ranges:
                event = Event(details, first, end, self._time_ms, self._time_ms)
                self._found.append(Derived(self._start - 1, name, event))

    def _note_redrive(self, key: LedgerKey, done: Done, record: Record) -> None:
        """Mark letters that were redriven: what was recorded of that follows from no log."""
        name = self._name(key)
        for first, end in done.ranges if name is not None else ():
            assert name is not None
            details = self._gap._replace(reason=MOVED_BACK)
            event = Event(details, first, end, record.timestamp_ms, record.timestamp_ms)
            self._found.append(Derived(record.offset, name, event))

    def _name(self, key: LedgerKey) -> TopicPartition | None:
        topic = self._names.of_topic(key.topic_id)
        return TopicPartition(TopicName(topic), key.partition) if topic else None

    def _collect(self, position: int) -> None:
        self._found += [Derived(position, *one) for one in self._listener.take()]


def derive_schedules(partition: Partition, *, until: int, node: int) -> Steps:
    """Derive what a partition of the schedule log says, from its beginning."""
    return in_steps(_Schedules(partition.name, node), batches(partition, until), until)


class _Schedules:
    """Reads a partition of the schedule log."""

    def __init__(self, log: TopicPartition, node: int) -> None:
        self._log = log
        self._time_ms = 0
        self._listener = Listener(node, lambda: self._time_ms, is_recovered=True)
        self._open: dict[int, list[tuple[int, ScheduledMessage]]] = {}  # by producer
        self._found: list[Derived] = []

    def take(self) -> list[Derived]:
        found, self._found = self._found, []
        return found

    def apply(self, header: BatchHeader, batch: bytes) -> None:
        if header.is_control:
            self._time_ms = header.max_timestamp
            messages = self._open.pop(header.producer_id, [])
            if decode_marker(batch).is_commit:
                for number, message in messages:
                    self._scheduled(number, message)
            self._collect(header.base_offset)
            return
        for record in decode_batch(batch):
            self._time_ms = record.timestamp_ms
            try:
                self._apply(header, record)
            except CorruptBatch:
                continue  # It was logged when the partition was replayed.
            self._collect(record.offset)

    def _apply(self, header: BatchHeader, record: Record) -> None:
        key = read_key(record.key)
        if key is None or key[1]:
            return
        number = key[0]
        if record.value is None:
            if any(name == RELEASED_HEADER for name, _ in record.headers):
                self._listener.released(self._log, [(number, number + 1)], target=_NOWHERE)
            else:
                self._listener.cancelled(self._log, [(number, number + 1)])
        elif number == record.offset:
            message = read_message(record.value)
            if header.is_transactional:
                self._open.setdefault(header.producer_id, []).append((number, message))
            else:
                self._scheduled(number, message)

    def _scheduled(self, number: int, message: ScheduledMessage) -> None:
        target = Target(TopicPartition(TopicName(message.topic), message.partition), -1)
        self._listener.scheduled(
            self._log, (number, number + 1), due_ms=message.due_ms, target=target
        )

    def _collect(self, position: int) -> None:
        self._found += [Derived(position, *one) for one in self._listener.take()]
