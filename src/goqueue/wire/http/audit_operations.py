"""The route of the audit log; part of the table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.carrier.routing import READING, ROUTED, Operation
from goqueue.wire.http.bodies import audit as bodies
from goqueue.wire.http.handlers import audit

AUDIT = (
    Operation(
        "readAudit",
        "GET",
        "/v1/audit",
        audit.read,
        "Read the audit log: who did what, allowed or denied.",
        area="audit",
        request=bodies.ReadAudit,
        answer=bodies.AuditLog,
        errors=(errors.UnknownTopic, errors.NotLeader, *ROUTED, *READING),
        is_waiting=True,
    ),
)
