"""The audit log."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.fields import WAIT_MS_MAX, Moment

AuditOutcome = Literal["allowed", "denied", "failed"]
_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class ReadAudit(Body, kw_only=True):
    """A selection of events; without `from` and `cursor`, the newest ones."""

    from_: Annotated[Moment | None, Meta(description="Stored at this time or later.")] = field(
        name="from", default=None
    )
    until: Annotated[Moment | None, Meta(description="Stored before this time.")] = None
    cursor: Annotated[
        str, Meta(max_length=20, pattern="^[0-9]*$", description="`cursor` of the last response.")
    ] = ""
    user: Annotated[_Name | None, Meta(description="Name of the user.")] = None
    operation: Annotated[
        _Name | None,
        Meta(description="Such as `topics.create`, or `topics` for all of them; or `logon`."),
    ] = None
    outcome: AuditOutcome | None = None
    resource: Annotated[_Name | None, Meta(description="Name of a resource.")] = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="Most events to return.")] = 100
    wait_ms: Annotated[
        int, Meta(ge=0, le=WAIT_MS_MAX, description="How long to wait if there is no event.")
    ] = 0


class AuditLog(Answer, kw_only=True):
    """Events in the Open Cybersecurity Schema Framework, oldest first.

    A page may be empty before the end of the log: a request looks at a limited number of events.
    """

    events: list[dict[str, Any]]
    cursor: Annotated[str, Meta(description="Where the next page begins.")]
    end: Annotated[bool, Meta(description="Whether this was the end of the log.")]
