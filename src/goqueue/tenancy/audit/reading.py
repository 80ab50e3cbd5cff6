"""What readers of the audit log look for: events of a user, an operation or a resource."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from goqueue.model.tenants import Text, prefix_of


class AuditFilter(NamedTuple):
    """What an event must have; None is anything."""

    user: Text | None = None
    operation: Text | None = None  # or the area of operations, such as `topics`
    outcome: Text | None = None
    resource: Text | None = None  # the name of any of its resources, as the client named it
    tenant: Text | None = None
    hides_others: bool = False  # leave out events about what belongs to other tenants


ANYTHING = AuditFilter()


class _Named(msgspec.Struct):
    name: str = ""


class _Actor(msgspec.Struct):
    user: _Named = msgspec.field(default_factory=_Named)


class _Api(msgspec.Struct):
    operation: str = ""


class _Metadata(msgspec.Struct):
    tenant_uid: str = ""


class _Unmapped(msgspec.Struct):
    outcome: str = ""


class _Event(msgspec.Struct):
    """The attributes of an event that a filter compares."""

    class_name: str = ""
    actor: _Actor = msgspec.field(default_factory=_Actor)
    api: _Api = msgspec.field(default_factory=_Api)
    resources: list[_Named] = []
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    unmapped: _Unmapped = msgspec.field(default_factory=_Unmapped)
    status: str = ""


_decode = msgspec.json.Decoder(_Event).decode


def matches(text: bytes, wanted: AuditFilter) -> bool:
    """Whether the text of an event is one that a reader looks for."""
    try:
        event = _decode(text)
    except msgspec.DecodeError:
        return False
    return (
        wanted.user in (None, event.actor.user.name)
        and wanted.tenant in (None, event.metadata.tenant_uid)
        and wanted.outcome in (None, event.unmapped.outcome)
        and _is_operation(event, wanted.operation)
        and (wanted.resource is None or any(one.name == wanted.resource for one in event.resources))
        and not (wanted.hides_others and any(prefix_of(one.name) for one in event.resources))
    )


def _is_operation(event: _Event, wanted: str | None) -> bool:
    """Compare the operation; that of a login is `logon`, and an area stands for all of its own."""
    if wanted is None:
        return True
    name = event.api.operation or ("logon" if event.class_name == "Authentication" else "node")
    return name == wanted or name.partition(".")[0] == wanted
