"""Reading the audit log: by time, by filters, page by page, and only what a tenant may see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goqueue.broker.gate.areas import audit
from goqueue.broker.gate.areas.audit import At, AuditFilter, AuditPage, Position
from goqueue.loop.promise import Cancellation
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import AccessDenied, UnknownTopic
from goqueue.model.names import AUDIT_TOPIC
from goqueue.model.session import Session
from tests.unit.broker.gate.test_gate import ALICE, error_of
from tests.unit.broker.node import Node
from tests.unit.broker.tenants import put_tenant

ADMIN = Session("test", principal="User:admin")
COUNT = 30


@pytest.fixture
def node() -> Node:
    node = Node(security__audit="on")
    node.wait(put_tenant(node.broker, "acme"))
    for number in range(COUNT):
        user = Session("test", principal=f"User:user-{number % 3}", tenant=("", "acme")[number % 2])
        node.wait(node.broker.gate.topics.create(user, name=f"topic-{number}"))
        node.run_for(100)
    return node


def test_the_first_events_are_waited_for() -> None:
    """A reader may come before the first event has created the topic."""
    node = Node(security__audit="on")
    waiting = node.broker.gate.audit.read(ADMIN, limit=10, cancellation=Cancellation())
    assert not node.broker.topics.find(AUDIT_TOPIC)
    node.wait(node.broker.gate.topics.create(ADMIN, name="orders"))
    assert node.wait(waiting).next_offset >= 0
    node.run_for(1000)
    assert names(read(node)) == ["orders"]


class OnlyFor:
    """A policy that allows one principal everything, and others nothing."""

    def __init__(self, principal: str) -> None:
        self._principal = principal

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return session.principal == self._principal


def read(node: Node, session: Session = ADMIN, **arguments: Any) -> AuditPage:
    call = node.broker.gate.audit.read(
        session, **{"limit": 1000, "cancellation": Cancellation(), **arguments}
    )
    return node.wait(call)


def newest(node: Node, session: Session = ADMIN, **arguments: Any) -> AuditPage:
    call = node.broker.gate.audit.newest(
        session, **{"limit": 1000, "cancellation": Cancellation(), **arguments}
    )
    return node.wait(call)


def names(page: AuditPage) -> list[str]:
    events = [json.loads(one.text) for one in page.events]
    return [one["resources"][0]["name"] for one in events if "resources" in one]


def test_pages_contain_every_event_once(node: Node) -> None:
    found, begin = [], Position(At.EARLIEST)
    while True:
        page = read(node, limit=7, begin=begin)
        found += names(page)
        assert len(page.events) <= 7
        if page.is_end:
            break
        begin = Position(At.OFFSET, page.next_offset)
    assert found == [f"topic-{number}" for number in range(COUNT)]


def test_the_newest_come_in_order(node: Node) -> None:
    page = newest(node, limit=3)
    assert names(page) == ["topic-27", "topic-28", "topic-29"]
    assert page.is_end
    assert read(node, begin=Position(At.OFFSET, page.next_offset)).events == []
    assert len(newest(node).events) == COUNT + 1


def test_times_select(node: Node) -> None:
    events = read(node).events
    middle = events[10].stored_ms
    later = read(node, begin=Position(At.TIME, middle)).events
    earlier = read(node, until=Position(At.TIME, middle)).events
    assert [*earlier, *later] == events
    assert later[0].stored_ms == middle


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AuditFilter(user="user-1"), 10),
        (AuditFilter(operation="topics.create"), COUNT),
        (AuditFilter(operation="topics"), COUNT),
        (AuditFilter(operation="top"), 0),
        (AuditFilter(operation="node"), 1),
        (AuditFilter(outcome="denied"), 0),
        (AuditFilter(resource="topic-3"), 1),
        (AuditFilter(user="user-0", resource="topic-3"), 1),
        (AuditFilter(user="user-1", resource="topic-3"), 0),
        (AuditFilter(tenant="acme"), 15),
    ],
)
def test_filters_select(node: Node, wanted: AuditFilter, expected: int) -> None:
    assert len(read(node, wanted=wanted).events) == expected
    assert len(newest(node, wanted=wanted).events) == expected


def test_a_tenant_sees_its_own_events(node: Node) -> None:
    tenant = Session("test", principal="User:boss", tenant="acme")
    for wanted in (AuditFilter(), AuditFilter(tenant="other")):
        assert names(read(node, tenant, wanted=wanted)) == [
            f"topic-{number}" for number in range(1, COUNT, 2)
        ]
        assert len(newest(node, tenant, wanted=wanted).events) == COUNT // 2


def test_a_call_looks_at_a_limited_number(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "SCANNED_MAX", 10)
    monkeypatch.setattr(audit, "SCANNED_AT_ONCE", 5)
    wanted = AuditFilter(resource="topic-29")
    page = read(node, wanted=wanted)
    assert (page.events, page.next_offset, page.is_end) == ([], 10, False)
    assert names(newest(node, wanted=wanted)) == ["topic-29"]
    assert newest(node, wanted=AuditFilter(resource="topic-0")).events == []


def test_a_reader_waits_for_the_next_event(node: Node) -> None:
    end = Position(At.OFFSET, newest(node).next_offset)
    waiting = node.broker.gate.audit.read(
        ADMIN, begin=end, limit=10, wait_ms=10_000, cancellation=Cancellation()
    )
    node.run_for(1_000)
    assert not waiting.is_done
    node.wait(node.broker.gate.topics.create(ADMIN, name="awaited"))
    assert names(node.wait(waiting)) == ["awaited"]


def test_what_retention_has_deleted_is_skipped(node: Node) -> None:
    partition = node.broker.topics.get("__audit").partitions[0]
    partition.retention.delete_before(5)
    assert len(read(node, begin=Position(At.OFFSET, 0)).events) == COUNT + 1 - 5


def test_only_who_may_describe_the_cluster_reads_it(node: Node) -> None:
    node.broker.gate.policy = OnlyFor("User:auditor")
    area = node.broker.gate.audit
    for call in (
        area.read(ALICE, limit=1, cancellation=Cancellation()),
        area.newest(ALICE, limit=1, cancellation=Cancellation()),
    ):
        assert isinstance(error_of(call), AccessDenied)


def test_who_is_no_operator_sees_nothing_of_tenants(node: Node) -> None:
    acme = Resource(ResourceKind.TOPIC, "~acme~orders")
    assert node.broker.audit is not None
    node.broker.audit.created(ADMIN, acme, None)
    node.run_for(100)
    assert "~acme~orders" in names(read(node))
    node.broker.gate.policy = OnlyFor("User:auditor")
    auditor = Session("test", principal="User:auditor")
    found = read(node, auditor).events
    assert len(names(read(node, auditor))) == COUNT // 2
    assert not any(b"acme" in one.text for one in found)


def test_without_a_log_there_is_nothing_to_read() -> None:
    """Listing events is no error, which would tell people to create an internal topic."""
    node = Node()
    page = node.wait(node.broker.gate.audit.newest(ADMIN, limit=1, cancellation=Cancellation()))
    assert (page.events, page.is_end) == ([], True)
    call = node.broker.gate.audit.read(ADMIN, limit=1, cancellation=Cancellation())
    assert isinstance(error_of(call), UnknownTopic)
