"""The text of an audit event: one JSON object of the Open Cybersecurity Schema Framework.

Three of its classes are used: Authentication (3002), API Activity (6003) and Application Lifecycle
(6002). Attributes that OCSF has no place for are in `unmapped`.
"""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple

import msgspec

from goqueue.model.access import Action
from goqueue.model.session import ANONYMOUS, USER_PREFIX
from goqueue.tenancy.audit.events import (
    LOGON,
    LOST,
    START,
    STOP,
    Event,
    Group,
    Outcome,
    is_creating,
    is_deleting,
)
from goqueue.tenancy.audit.merging import Merged

SCHEMA_VERSION = "1.3.0"
PRODUCT = "GoQueue"

AUTHENTICATION = 3002
APPLICATION_LIFECYCLE = 6002
API_ACTIVITY = 6003

_CLASS_NAMES = {
    AUTHENTICATION: "Authentication",
    APPLICATION_LIFECYCLE: "Application Lifecycle",
    API_ACTIVITY: "API Activity",
}
_CATEGORY_NAMES = {3: "Identity & Access Management", 6: "Application Activity"}
_LOGON_ID = 1
_START_ID, _STOP_ID = 3, 4
_CREATE_ID, _READ_ID, _UPDATE_ID, _DELETE_ID = 1, 2, 3, 4
_OTHER_ID = 99
_API_NAMES = {_CREATE_ID: "Create", _READ_ID: "Read", _UPDATE_ID: "Update", _DELETE_ID: "Delete"}
_READING = (Action.READ.value, Action.DESCRIBE.value, Action.DESCRIBE_CONFIGS.value)
_SUCCESS, _FAILURE = (1, "Success"), (2, "Failure")
_USER_TYPE, _UNKNOWN_TYPE, _SYSTEM_TYPE = (1, "User"), (0, "Unknown"), (3, "System")

_encode = msgspec.json.Encoder().encode


class Reporter(NamedTuple):
    """The node that reports events."""

    node: int
    cluster_id: str
    version: str


def encode(merged: Merged, reporter: Reporter, uid: str) -> bytes:
    """Return the text of an event, or of several that were merged."""
    return _encode(describe(merged, reporter, uid))


def describe(merged: Merged, reporter: Reporter, uid: str) -> dict[str, Any]:
    """Return an event as an object of OCSF."""
    event = merged.event
    described = {**_classified(event), **_base(merged, reporter, uid)}
    if event.group is Group.NODE:
        described["app"] = {**_product(reporter), "uid": str(reporter.node)}
        if event.operation == LOST:
            described["count"] = merged.times
        return described
    described["actor"] = _actor(event)
    described["src_endpoint"] = _endpoint(event.who.host)
    described["dst_endpoint"] = {"name": f"node {reporter.node}", "svc_name": event.who.listener}
    if event.operation == LOGON:
        described["user"] = described["actor"]["user"]
        described["auth_protocol_id"] = _OTHER_ID
        described["auth_protocol"] = event.who.mechanism
        described["is_remote"] = True
    else:
        described["api"] = {
            "operation": event.operation,
            "service": {"name": event.who.listener},
        }
        described["resources"] = [{"type": kind, "name": name} for kind, name in event.resources]
    described["unmapped"] = {"action": event.action, "outcome": event.outcome.value}
    return described


def _classified(event: Event) -> dict[str, Any]:
    """Return the attributes that say what kind of event it is."""
    class_uid, (activity_id, activity_name) = _activity(event)
    category_uid = class_uid // 1000
    return {
        "class_uid": class_uid,
        "class_name": _CLASS_NAMES[class_uid],
        "category_uid": category_uid,
        "category_name": _CATEGORY_NAMES[category_uid],
        "activity_id": activity_id,
        "activity_name": activity_name,
        "type_uid": class_uid * 100 + activity_id,
        "type_name": f"{_CLASS_NAMES[class_uid]}: {activity_name}",
        "severity_id": event.severity.value,
        "severity": event.severity.name.capitalize(),
    }


def _activity(event: Event) -> tuple[int, tuple[int, str]]:
    if event.operation == LOGON:
        return AUTHENTICATION, (_LOGON_ID, "Logon")
    if event.group is not Group.NODE:
        number = _api_activity(event)
        return API_ACTIVITY, (number, _API_NAMES[number])
    if event.operation == START:
        return APPLICATION_LIFECYCLE, (_START_ID, "Start")
    if event.operation == STOP:
        return APPLICATION_LIFECYCLE, (_STOP_ID, "Stop")
    return APPLICATION_LIFECYCLE, (_OTHER_ID, "Audit events lost")


def _api_activity(event: Event) -> int:
    if event.action == Action.DELETE or is_deleting(event.operation):
        return _DELETE_ID
    if event.action == Action.CREATE or is_creating(event.operation):
        return _CREATE_ID
    return _READ_ID if event.action in _READING else _UPDATE_ID


def _base(merged: Merged, reporter: Reporter, uid: str) -> dict[str, Any]:
    """Return the attributes that every event has."""
    event = merged.event
    status_id, status = _SUCCESS if event.outcome is Outcome.ALLOWED else _FAILURE
    described: dict[str, Any] = {
        "time": merged.last_ms,
        "metadata": {
            "version": SCHEMA_VERSION,
            "uid": uid,
            "product": {**_product(reporter), "uid": reporter.cluster_id},
            "log_name": "audit",
            "tenant_uid": event.who.tenant,
        },
        "status_id": status_id,
        "status": status,
    }
    if event.code:
        described["status_code"] = event.code
    if event.detail:
        described["status_detail"] = event.detail
    if merged.times > 1:
        described |= {
            "count": merged.times,
            "start_time": merged.first_ms,
            "end_time": merged.last_ms,
        }
    return described


def _product(reporter: Reporter) -> dict[str, Any]:
    return {"name": PRODUCT, "vendor_name": PRODUCT, "version": reporter.version}


def _actor(event: Event) -> dict[str, Any]:
    client = event.who
    type_id, kind = _UNKNOWN_TYPE if client.principal == ANONYMOUS else _USER_TYPE
    if not client.listener:
        type_id, kind = _SYSTEM_TYPE
    user = {
        "name": client.principal.removeprefix(USER_PREFIX),
        "uid": client.principal,
        "type_id": type_id,
        "type": kind,
    }
    actor: dict[str, Any] = {"user": user}
    if event.client_id:
        actor["app_name"] = event.client_id
    if event.operation != LOGON:
        is_denied = event.outcome is Outcome.DENIED
        actor["authorizations"] = [{"decision": "denied" if is_denied else "allowed"}]
    return actor


def _endpoint(host: str) -> dict[str, str]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return {"hostname": host or "unknown"}
    return {"ip": host}
