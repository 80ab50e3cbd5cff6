"""Reports of jobs: the newest record of each key of the topic `goqueue.reports`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from goqueue.broker.gate.areas.records import EARLIEST, At, Position, Span
from goqueue.model.errors import UnknownReport, UnknownTopic
from goqueue.wire.http.bodies import reports as bodies
from goqueue.wire.http.bodies.reports import REPORTS_TOPIC, Report, decode_report
from goqueue.wire.http.overviews.slices import slice_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

# A call reads at most this much of the topic. Compaction keeps it smaller, unless there are too
# many reports; then the rest is not shown, and the answer says so.
SCAN_BYTES_MAX = 32 << 20
_RECORDS_PER_READ = 200


class Newest(NamedTuple):
    """The newest value of each key, and whether the whole topic was read."""

    values: dict[bytes, bytes]
    is_complete: bool


async def list_all(front: FrontEnd, call: Call, query: bodies.ListReports) -> bodies.Reports:
    newest = await _newest(front, call)
    decoded = [_decoded(key, value) for key, value in newest.values.items()]
    found = [one for one in decoded if one is not None]
    match = query.match.lower()
    wanted = [one for one in found if match in one.name.lower()]
    wanted.sort(key=lambda one: (-one.written_at, one.name))
    page, place = slice_of(wanted, query.limit, query.cursor)
    return bodies.Reports(
        reports=[
            bodies.ReportEntry(name=one.name, written_at=one.written_at, figures=one.figures)
            for one in page
        ],
        cursor=place.cursor,
        total=place.total,
        unreadable=len(decoded) - len(found),
        is_complete=newest.is_complete,
    )


async def show(front: FrontEnd, call: Call, _: object) -> Report:
    name = call.text("report")
    key = name.encode()
    value = (await _newest(front, call)).values.get(key)
    found = None if value is None else _decoded(key, value)
    if found is None:
        raise UnknownReport(name)
    return found


def _decoded(key: bytes, value: bytes) -> Report | None:
    """Return a report; None for what is none, because anybody may have written it."""
    try:
        report = decode_report(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return report if report.name.encode() == key else None


async def _newest(front: FrontEnd, call: Call) -> Newest:
    try:
        topic = front.gate.topics.get(call.session, topic=REPORTS_TOPIC)
    except UnknownTopic:
        return Newest({}, is_complete=True)  # nothing was published yet
    values: dict[bytes, bytes] = {}
    scanned = 0
    for number in range(topic.partition_count):
        offset, is_read = 0, False
        while not is_read:
            if scanned >= SCAN_BYTES_MAX:
                return Newest(values, is_complete=False)
            page = await front.gate.records.read(
                call.session,
                topic=topic.name,
                spans=[Span(number, Position(At.OFFSET, offset) if offset else EARLIEST)],
                records_max=_RECORDS_PER_READ,
                bytes_max=front.limits.answer_bytes_max,
                cancellation=call.cancellation,
            )
            for _, record in page.records:
                scanned += len(record.value or b"")
                if record.value is None:
                    values.pop(record.key or b"", None)
                elif record.key is not None:
                    values[record.key] = record.value
            is_read = not page.records or page.places[0].offset <= offset
            offset = page.places[0].offset
    return Newest(values, is_complete=True)
