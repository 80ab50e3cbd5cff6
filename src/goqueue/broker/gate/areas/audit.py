"""Operations on the audit log: read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from goqueue.broker.gate.operation import Area, operation, own_cluster
from goqueue.broker.reading.positions import EARLIEST, At, Position, offset_at, times_of
from goqueue.broker.reading.records import Place
from goqueue.loop.promise import Cancellation
from goqueue.model.access import Action
from goqueue.model.batch import Record
from goqueue.model.names import AUDIT_TOPIC
from goqueue.model.session import Session
from goqueue.partition import Partition
from goqueue.tenancy.audit.reading import ANYTHING, AuditFilter, matches

__all__ = ["EARLIEST", "At", "AuditArea", "AuditEvent", "AuditFilter", "AuditPage", "Position"]

SCANNED_MAX = 10_000  # events that one call looks at
SCANNED_AT_ONCE = 500
PAGE_BYTES_MAX = 4 << 20

_PARTITION = 0


class AuditEvent(NamedTuple):
    """One event of the log: where it is, when it was stored, and its text."""

    offset: int
    stored_ms: int
    text: bytes


class AuditPage(NamedTuple):
    """Events in the order of the log, and where to read on."""

    events: Sequence[AuditEvent]
    next_offset: int
    is_end: bool  # nothing after it was stored so far


class AuditArea(Area):
    """The audit log: who did what. A tenant sees what its own users did."""

    @operation(Action.DESCRIBE, own_cluster, is_reading=True)
    async def read(
        self,
        session: Session,
        *,
        begin: Position = EARLIEST,
        until: Position | None = None,
        limit: int,
        wanted: AuditFilter = ANYTHING,
        wait_ms: int = 0,
        cancellation: Cancellation,
    ) -> AuditPage:
        """Return events from a position on that pass a filter, waiting if there is none yet.

        A page may be empty before the end, because a call looks at a limited number of events.
        """
        partition, start, end = await self._span(begin, until)
        wanted = self._own(session, wanted)
        found: list[AuditEvent] = []
        offset, scanned, size = start, 0, 0
        while scanned < SCANNED_MAX and len(found) < limit and size < PAGE_BYTES_MAX:
            records, next_offset = await self._records(
                Place(partition, offset, end), 0 if scanned else wait_ms, cancellation
            )
            if next_offset == offset:
                return AuditPage(found, offset, True)
            offset = next_offset
            for record in records:
                scanned += 1
                if len(found) == limit:
                    return AuditPage(found, record.offset, False)
                if matches(record.value or b"", wanted):
                    found.append(_event(record))
                    size += len(record.value or b"")
        return AuditPage(found, offset, False)

    @operation(Action.DESCRIBE, own_cluster, is_reading=True)
    async def newest(
        self,
        session: Session,
        *,
        limit: int,
        wanted: AuditFilter = ANYTHING,
        cancellation: Cancellation,
    ) -> AuditPage:
        """Return the newest events that pass a filter, the oldest of them first."""
        if not self._broker.settings.is_audited and self._broker.topics.find(AUDIT_TOPIC) is None:
            return AuditPage([], 0, True)  # nothing was ever audited
        partition, start, end = await self._span(EARLIEST, Position(At.LATEST))
        assert end is not None
        wanted, below = self._own(session, wanted), end
        found: list[AuditEvent] = []
        while below > max(start, end - SCANNED_MAX) and len(found) < limit:
            above, below = below, max(start, below - SCANNED_AT_ONCE)
            found = await self._matching(partition, below, above, wanted, cancellation) + found
        return AuditPage(found[-limit:], end, True)

    def _own(self, session: Session, wanted: AuditFilter) -> AuditFilter:
        """Return a filter that shows a tenant nothing of others; operators see everything."""
        namespaces = self._dispatcher.namespaces
        if not session.tenant and (not namespaces.is_used or namespaces.is_operator(session)):
            return wanted
        return wanted._replace(tenant=session.tenant, hides_others=True)

    async def _matching(
        self,
        partition: Partition,
        below: int,
        above: int,
        wanted: AuditFilter,
        cancellation: Cancellation,
    ) -> list[AuditEvent]:
        """Return the events between two offsets that pass a filter."""
        found, offset = [], below
        while offset < above:
            place = Place(partition, offset, above)
            records, next_offset = await self._records(place, 0, cancellation)
            found += [_event(one) for one in records if matches(one.value or b"", wanted)]
            if next_offset == offset:
                break
            offset = next_offset
        return found

    async def _span(
        self, begin: Position, until: Position | None
    ) -> tuple[Partition, int, int | None]:
        """Return the partition of the log, and the offsets to read from and up to."""
        topics = self._broker.topics
        if self._broker.settings.is_audited:
            # The first events create the topic, a moment after the node has begun to serve.
            await topics.internal.until(lambda: topics.find(AUDIT_TOPIC) is not None)
        topic = topics.get(AUDIT_TOPIC)
        [bounds] = await self._broker.reads.look(
            topic, [_PARTITION], times_ms=times_of([begin, until])
        )
        # What was deleted by retention is skipped.
        start = max(bounds.start_offset, offset_at(bounds, begin))
        end = None if until is None else offset_at(bounds, until)
        return topic.partition(_PARTITION), min(start, bounds.high_watermark), end

    async def _records(
        self, place: Place, wait_ms: int, cancellation: Cancellation
    ) -> tuple[list[Record], int]:
        """Return some records of a place, and where to continue."""
        reading = self._broker.reads.read(
            [place], records_max=SCANNED_AT_ONCE, bytes_max=PAGE_BYTES_MAX, wait_ms=wait_ms
        )
        cancellation.on_cancel(reading.cancel)
        page = await reading.promise
        return [record for _, record in page.records], page.places[0].offset


def _event(record: Record) -> AuditEvent:
    return AuditEvent(record.offset, record.timestamp_ms, record.value or b"")
