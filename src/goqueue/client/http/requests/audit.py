"""The audit log."""

from __future__ import annotations

from goqueue.client.http.moments import Duration, Moment, duration_ms, moment_ms
from goqueue.client.http.request import Request, path_of, query_of, reading
from goqueue.wire.http.bodies import audit as bodies
from goqueue.wire.http.bodies.audit import AuditLog, AuditOutcome

_read_log = reading(AuditLog)


class AuditRequests:
    def read(
        self,
        *,
        from_: Moment | None = None,
        until: Moment | None = None,
        cursor: str = "",
        user: str | None = None,
        operation: str | None = None,
        outcome: AuditOutcome | None = None,
        resource: str | None = None,
        limit: int = 100,
        wait: Duration = 0,
    ) -> Request[AuditLog]:
        """Return events from a time or a cursor on; without both, the newest."""
        query = bodies.ReadAudit(
            from_=_text(from_),
            until=_text(until),
            cursor=cursor,
            user=user,
            operation=operation,
            outcome=outcome,
            resource=resource,
            limit=limit,
            wait_ms=duration_ms(wait),
        )
        return Request("GET", path_of("audit"), _read_log, query_of(query), wait_ms=query.wait_ms)


def _text(moment: Moment | None) -> str | None:
    return None if moment is None else str(moment_ms(moment))
