"""The observer that writes the audit log.

It is called within the turn of what it observes, and only counts and queues. Written is what
follows from the settings: denials, failed authentication, changes and used-up quotas always;
reads, and writing and reading of messages, as a sample. Repeated events are merged
(`tenancy/audit/merging.py`).

If the process is killed, events are lost that were not written yet: those of the last moments, or
all that wait if a destination is away (a bounded queue), and the counts of repeated events in the
current interval, whose first ones are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from goqueue.broker.audit.outlets import Destination, Outlet
from goqueue.config import SecuritySettings
from goqueue.loop.clock import Clock, Handle
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import AccessDenied
from goqueue.model.observer import ObservedOperation, Observer
from goqueue.model.session import Session
from goqueue.model.support import release
from goqueue.tenancy.audit import events
from goqueue.tenancy.audit.events import Event, Group
from goqueue.tenancy.audit.merging import Limits, Merged, Merger
from goqueue.tenancy.audit.ocsf import Reporter, encode

STOP_MS_MAX = 2_000  # how long a stop waits until all events are written

LIMITS = {
    Group.DENIED: Limits(events_max=2_000, events_per_source_max=200),
    Group.CHANGE: Limits(events_max=5_000, events_per_source_max=1_000),
    Group.TRAFFIC: Limits(events_max=2_000, events_per_source_max=200),
    Group.NODE: Limits(events_max=100, events_per_source_max=100),
}
PARTITIONS = {Action.READ: "partitions.read", Action.WRITE: "partitions.write"}


class Auditor(Observer):
    """Writes what calls do to the audit log."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        settings: SecuritySettings,
        *,
        node_id: int,
        cluster_id: Callable[[], str],
    ) -> None:
        self._clock = clock
        self._random = random
        self._reads = settings.audit_reads
        self.observes_traffic = settings.audit_reads > 0
        self._excluded_principals = frozenset(settings.audit_excluded_principals)
        self._excluded_topics = frozenset(settings.audit_excluded_topics)
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._mergers = {
            group: Merger(limits, settings.audit_interval_ms) for group, limits in LIMITS.items()
        }
        self._outlets: list[Outlet] = []
        self._timer: Handle | None = None
        self._serial = 0
        self.events = 0  # given to all destinations
        self._run = clock.wall_ms()
        self._version = release()

    def write_to(self, destination: Destination) -> None:
        """Write all events from now on to a destination, among others."""
        self._outlets.append(Outlet(self._clock, destination, report_lost=self._lost))

    @property
    def lost(self) -> int:
        """How many events could not be written, because too many waited."""
        return sum(one.lost for one in self._outlets)

    @property
    def waiting(self) -> int:
        """How many events the slowest destination has still to write."""
        return max((one.waiting for one in self._outlets), default=0)

    def close(self, done: Callable[[], None]) -> None:
        """Write everything, as far as that is possible in a short time; then call `done`."""
        if self._timer is not None:
            self._timer.cancel()
        for merger in self._mergers.values():
            for merged in merger.take():
                self._write(merged)
        left = len(self._outlets)
        is_done = False

        def finish() -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                timer.cancel()
                done()

        def emptied() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                finish()

        timer = self._clock.call_later(STOP_MS_MAX, finish)
        for outlet in self._outlets:
            outlet.when_empty(emptied)
        if not self._outlets:
            finish()

    # Events

    def called(
        self,
        session: Session,
        operation: ObservedOperation,
        arguments: Mapping[str, Any],
        error: Exception | None,
        duration_ms: int,
    ) -> None:
        if isinstance(error, AccessDenied):
            return  # It was reported by the node that denied it.
        is_change = operation.is_change and not events.is_trial(arguments)
        if not is_change and not self._is_sampled():
            return
        resources = [*events.pairs(operation.accesses(arguments))]
        if not is_change:
            self._note(events.traffic(session, operation.name, operation.action, resources, error))
            return
        resources += events.named_by(operation.name, arguments)
        serial = self._next_serial()
        self._note(
            events.changed(session, operation.name, operation.action, resources, error, serial)
        )

    def queried(
        self, session: Session, operation: ObservedOperation, arguments: Mapping[str, Any]
    ) -> None:
        if session.listener and self._is_sampled():
            resources = events.pairs(operation.accesses(arguments))
            self._note(events.traffic(session, operation.name, operation.action, resources))

    def opened(self, session: Session, action: Action, resource: Resource) -> None:
        if self._is_sampled():
            resources = [(resource.kind.lower(), resource.name)]
            self._note(events.traffic(session, PARTITIONS[action], action, resources))

    def created(self, session: Session, resource: Resource, error: Exception | None) -> None:
        resources = [(resource.kind.lower(), resource.name)]
        serial = self._next_serial()
        self._note(
            events.changed(session, "topics.create", Action.CREATE, resources, error, serial)
        )

    def denied(
        self, session: Session, action: Action, resource: Resource, *, operation: str
    ) -> None:
        self._note(events.denied(session, action, resource, operation=operation))

    def authenticated(
        self, session: Session, user: str, *, mechanism: str, error: Exception | None
    ) -> None:
        self._note(events.authenticated(session, user, mechanism, error))

    def throttled(self, session: Session, limit: str, wait_ms: int) -> None:
        # Not a sample: waiting limits how many there are, and those of an interval are merged.
        self._note(events.throttled(session, limit))

    def started(self, node: int) -> None:
        self._note(events.of_node(events.START, serial=self._next_serial()))

    def stopping(self, node: int) -> None:
        self._note(events.of_node(events.STOP, serial=self._next_serial()))

    # Writing

    def _is_sampled(self) -> bool:
        return self._reads > 0 and (self._reads >= 1 or self._random.random() < self._reads)

    def _is_excluded(self, event: Event) -> bool:
        """Whether settings exclude an event; denials never are."""
        if event.group is Group.DENIED or event.group is Group.NODE:
            return False
        if event.who.principal in self._excluded_principals:
            return True
        topic = ResourceKind.TOPIC.lower()
        return bool(event.resources and self._excluded_topics) and all(
            kind == topic and name in self._excluded_topics for kind, name in event.resources
        )

    def _note(self, event: Event) -> None:
        if self._is_excluded(event):
            return
        now_ms = self._clock.now_ms()
        merger = self._mergers[event.group]
        merged = merger.add(event, now_ms=now_ms, wall_ms=self._clock.wall_ms())
        if merged is not None:
            self._write(merged)
        if self._timer is None:
            assert merger.due_ms is not None
            self._timer = self._clock.call_later(merger.due_ms - now_ms, self._write_merged)

    def _write_merged(self) -> None:
        """Write what was merged in intervals that have ended."""
        now_ms = self._clock.now_ms()
        self._timer = None
        for merger in self._mergers.values():
            for merged in merger.take_due(now_ms):
                self._write(merged)
        due = [one.due_ms for one in self._mergers.values() if one.due_ms is not None]
        if due:
            wait_ms = max(1, min(due) - now_ms)
            self._timer = self._clock.call_later(wait_ms, self._write_merged)

    def _write(self, merged: Merged) -> None:
        if not self._outlets:
            return
        text = self._encode(merged)
        self.events += 1
        for outlet in self._outlets:
            outlet.add(merged.event.severity, text, count=merged.times)

    def _lost(self, count: int) -> bytes:
        event = events.of_node(
            events.LOST, f"{count} events could not be written", serial=self._next_serial()
        )
        now_ms = self._clock.wall_ms()
        return self._encode(Merged(event, count, now_ms, now_ms))

    def _encode(self, merged: Merged) -> bytes:
        # The cluster's id is not known when the node starts.
        reporter = Reporter(self._node_id, self._cluster_id(), self._version)
        return encode(merged, reporter, f"{self._node_id}-{self._run:x}-{self._next_serial():x}")

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial
