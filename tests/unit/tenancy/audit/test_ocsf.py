"""The text of audit events: every attribute that its OCSF class requires, whatever happened."""

from __future__ import annotations

import ipaddress
import json
from typing import Any, NamedTuple

import pytest

from goqueue.model.access import CLUSTER, Acl, Action, PatternKind, Permission, Resource
from goqueue.model.access import ResourceKind as Kind
from goqueue.model.errors import AuthenticationFailed, TopicExists
from goqueue.model.session import Session
from goqueue.tenancy.audit import events
from goqueue.tenancy.audit.events import (
    RESOURCES_MAX,
    TEXT_LENGTH_MAX,
    Event,
    Group,
    all_others,
    others,
)
from goqueue.tenancy.audit.merging import Merged
from goqueue.tenancy.audit.ocsf import Reporter, encode

REPORTER = Reporter(7, "cluster", "1.0")
ALICE = Session("kafka", "User:alice", "acme", "app-1", "10.0.0.7", mechanism="SCRAM-SHA-256")
NOBODY = Session("http", client_host="::1")


class Change(NamedTuple):
    name: str
    value: str


ORDERS = Resource(Kind.TOPIC, "orders")

# The required attributes of OCSF 1.3, by class; those of the base event are required of all.
REQUIRED = {
    3002: ("user",),
    6002: ("app",),
    6003: ("actor", "api", "src_endpoint"),
}
BASE = ("activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid")
ACTIVITIES = {3002: {1}, 6002: {3, 4, 99}, 6003: {1, 2, 3, 4}}


def check(event: dict[str, Any]) -> None:
    """Raise unless an object has what OCSF requires of its class."""
    class_uid = event["class_uid"]
    for name in (*BASE, *REQUIRED[class_uid]):
        assert name in event, name
    assert event["category_uid"] == class_uid // 1000
    assert event["activity_id"] in ACTIVITIES[class_uid]
    assert event["type_uid"] == class_uid * 100 + event["activity_id"]
    assert event["severity_id"] in range(1, 6)
    assert event["status_id"] in (1, 2)
    assert event["time"] > 1_600_000_000_000
    _check_objects(event)


def _check_objects(event: dict[str, Any]) -> None:
    metadata = event["metadata"]
    assert metadata["version"].count(".") == 2
    assert metadata["product"]["name"]
    assert metadata["product"]["vendor_name"]
    if "api" in event:
        assert event["api"]["operation"]
        assert event["api"]["service"].keys() == {"name"}
        assert all(one["type"] and one["name"] for one in event["resources"])
    if "actor" in event:
        assert event["actor"]["user"]["uid"]
        assert "type_id" in event["actor"]["user"]
    for endpoint in ("src_endpoint", "dst_endpoint"):
        if endpoint in event:
            assert event[endpoint].keys() & {"ip", "hostname", "name"}
    if "ip" in event.get("src_endpoint", {}):
        ipaddress.ip_address(event["src_endpoint"]["ip"])
    if event["class_uid"] == 3002:
        assert "dst_endpoint" in event or "service" in event
        assert event["user"]["uid"]
    if event["activity_id"] == 99:
        assert event["activity_name"]


def text_of(event: Event, *, times: int = 1) -> dict[str, Any]:
    merged = Merged(event, times, 1_700_000_000_000, 1_700_000_005_000)
    described: dict[str, Any] = json.loads(encode(merged, REPORTER, "7-1"))
    check(described)
    return described


def a_change(name: str, action: Action, error: Exception | None = None) -> Event:
    return events.changed(ALICE, name, action, [("topic", "orders")], error, 1)


EVERY = [
    events.denied(ALICE, Action.READ, ORDERS, operation="partitions"),
    events.denied(NOBODY, Action.ALTER, CLUSTER, operation="users.create"),
    events.authenticated(NOBODY, "bob", "password", AuthenticationFailed()),
    events.authenticated(NOBODY, "", "bearer", AuthenticationFailed()),
    events.authenticated(NOBODY, "bob", "bearer", None),
    a_change("topics.create", Action.CREATE),
    a_change("topics.create", Action.CREATE, TopicExists("orders")),
    events.traffic(ALICE, "records.read", Action.READ, [("topic", "orders")]),
    events.of_node(events.START, serial=1),
    events.of_node(events.STOP, serial=1),
    events.of_node(events.LOST, "3 events", serial=1),
]


@pytest.mark.parametrize("event", EVERY, ids=lambda one: f"{one.operation}-{one.outcome}")
@pytest.mark.parametrize("times", [1, 1_000_000])
def test_every_event_has_what_its_class_requires(event: Event, times: int) -> None:
    described = text_of(event, times=times)
    assert described.get("count", 1) == times
    for one in (others(event), all_others(event.group)):
        if event.group is not Group.NODE:
            text_of(one, times=times)


def test_a_denial_says_who_what_and_from_where() -> None:
    described = text_of(EVERY[0], times=5)
    assert described["class_uid"] == 6003
    assert described["activity_name"] == "Read"
    assert described["actor"]["user"]["name"] == "alice"
    assert described["actor"]["app_name"] == "app-1"
    assert described["actor"]["authorizations"] == [{"decision": "denied"}]
    assert described["src_endpoint"] == {"ip": "10.0.0.7"}
    assert described["dst_endpoint"] == {"name": "node 7", "svc_name": "kafka"}
    assert described["api"] == {"operation": "partitions", "service": {"name": "kafka"}}
    assert described["resources"] == [{"type": "topic", "name": "orders"}]
    assert described["metadata"]["tenant_uid"] == "acme"
    assert (described["status"], described["status_code"]) == ("Failure", "access_denied")
    assert (described["count"], described["end_time"]) == (5, 1_700_000_005_000)


def test_a_login_names_the_user_that_the_client_claims_to_be() -> None:
    described = text_of(EVERY[2])
    assert described["class_uid"] == 3002
    assert described["user"]["name"] == "bob"
    assert described["status"] == "Failure"
    assert described["auth_protocol"] == "password"
    assert described["src_endpoint"] == {"ip": "::1"}


@pytest.mark.parametrize(
    ("operation", "action", "activity"),
    [
        ("topics.create", Action.CREATE, "Create"),
        ("users.create", Action.ALTER, "Create"),
        ("users.delete", Action.ALTER, "Delete"),
        ("queues.purge", Action.READ, "Delete"),
        ("configs.change_topic", Action.ALTER_CONFIGS, "Update"),
        ("queues.rewind", Action.READ, "Read"),
        ("records.publish", Action.WRITE, "Update"),
    ],
)
def test_activities(operation: str, action: Action, activity: str) -> None:
    assert text_of(a_change(operation, action))["activity_name"] == activity


def test_a_long_name_is_cut() -> None:
    session = Session("kafka", "User:" + "x" * 10_000, client_id="y" * 10_000, client_host="z")
    resource = Resource(Kind.TOPIC, "t" * 10_000)
    described = text_of(events.denied(session, Action.READ, resource, operation="o"))
    assert len(described["resources"][0]["name"]) == TEXT_LENGTH_MAX
    assert len(json.dumps(described)) < 4_000


def test_what_arguments_name_is_named_and_nothing_else() -> None:
    acl = Acl(Kind.TOPIC, PatternKind.LITERAL, "o", "User:bob", "*", Action.READ, Permission.ALLOW)
    arguments = {
        "name": "bob",
        "password": "secret-1",
        "secret": "secret-2",
        "is_new": True,
        "node": 3,
        "rules": [acl],
        "limits": {"producer_byte_rate": 10.0},
        "changes": [Change("retention_ms", "1h")],
        "group": None,
    }
    named = list(events.named_by("users.create", arguments))
    text = "ALLOW User:bob from * to READ LITERAL TOPIC o"
    assert named == [
        ("node", "3"),
        ("user", "bob"),
        ("setting", "retention_ms 1h"),
        ("limit", "producer_byte_rate=10.0"),
        ("rule", text),
    ]


def test_only_some_of_a_long_list_are_named() -> None:
    many = [Change(f"setting-{number}", "x" * 1_000) for number in range(1_000)]
    named = list(events.named_by("configs.change_topic", {"changes": many}))
    assert len(named) == RESOURCES_MAX
    assert all(len(name) <= TEXT_LENGTH_MAX for _, name in named)
