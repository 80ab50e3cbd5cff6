"""The audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from goqueue.broker.gate.areas.audit import At, AuditFilter, Position
from goqueue.wire.http.bodies import audit as bodies
from goqueue.wire.http.moments import EARLIEST, position_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def read(front: FrontEnd, call: Call, query: bodies.ReadAudit) -> bodies.AuditLog:
    wanted = AuditFilter(query.user, query.operation, query.outcome, query.resource)
    area, session = front.gate.audit, call.session
    if query.cursor or query.from_ or query.until:
        page = await area.read(
            session,
            begin=_begin(front, query),
            until=_until(front, query),
            limit=query.limit,
            wanted=wanted,
            wait_ms=query.wait_ms,
            cancellation=call.cancellation,
        )
    else:
        page = await area.newest(
            session, limit=query.limit, wanted=wanted, cancellation=call.cancellation
        )
    return bodies.AuditLog(
        events=[msgspec.json.decode(one.text) for one in page.events],
        cursor=str(page.next_offset),
        end=page.is_end,
    )


def _begin(front: FrontEnd, query: bodies.ReadAudit) -> Position:
    if query.cursor:
        return Position(At.OFFSET, int(query.cursor))
    return position_of(query.from_ or EARLIEST, now_ms=front.now_ms(), field="from")


def _until(front: FrontEnd, query: bodies.ReadAudit) -> Position | None:
    if query.until is None:
        return None
    return position_of(query.until, now_ms=front.now_ms(), field="until")
