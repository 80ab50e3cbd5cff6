"""Reports of jobs: list and read them. A job publishes one like any message."""

from __future__ import annotations

from goqueue.client.http.messages import Outgoing
from goqueue.client.http.request import Request, path_of, query_of, reading
from goqueue.model.errors import InvalidRequest
from goqueue.wire.http.bodies import reports as bodies
from goqueue.wire.http.bodies.reports import (
    NAME_LENGTH_MAX,
    REPORT_BYTES_MAX,
    REPORTS_TOPIC,
    Figure,
    Report,
    ReportEntry,
    ReportTable,
    Section,
)

__all__ = ["REPORTS_TOPIC", "Figure", "Report", "ReportEntry", "ReportTable", "Section"]

_read_reports = reading(bodies.Reports)
_read_report = reading(Report)


class ReportRequests:
    def list_all(
        self, *, match: str = "", limit: int = 100, cursor: str = ""
    ) -> Request[list[ReportEntry]]:
        """Return the newest report of each name, without its sections; the newest first."""
        query = query_of(bodies.ListReports(match=match, limit=limit, cursor=cursor))
        return Request("GET", path_of("reports"), lambda data: _read_reports(data).reports, query)

    def get(self, name: str) -> Request[Report]:
        """Return the newest report of a name."""
        return Request("GET", path_of("reports", name), _read_report)


def message_of(report: Report) -> Outgoing:
    """Return the message that publishes a report; raise if the broker would not show it."""
    if not 1 <= len(report.name) <= NAME_LENGTH_MAX:
        raise InvalidRequest(f"The name of a report has 1 to {NAME_LENGTH_MAX} characters.")
    data = bodies.encode_report(report)
    if len(data) > REPORT_BYTES_MAX:
        raise InvalidRequest(
            f"The summary of the report has {len(data):,} bytes, and {REPORT_BYTES_MAX:,} are "
            "allowed; report on fewer archives."
        )
    return Outgoing(data, key=report.name)
