"""The audit log of one node: what is written, what is not, and what happens when it cannot be."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from goqueue.broker.audit.auditor import Auditor
from goqueue.broker.audit.outlets import RETRY_MS, Outlet
from goqueue.broker.gate.areas.configs import Change
from goqueue.broker.gate.operation import OPERATIONS, cluster, named_by_owner, own_cluster
from goqueue.broker.reading.records import Place, read_page
from goqueue.config import SecuritySettings
from goqueue.loop.promise import Promise, promised
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.batch import Record
from goqueue.model.errors import AuthenticationFailed, InternalTopic, QuotaReached, StorageFull
from goqueue.model.names import AUDIT_TOPIC
from goqueue.model.observer import MESSAGE_EVENTS, overrides
from goqueue.model.session import Session
from goqueue.tenancy.audit import events
from goqueue.tenancy.audit.events import Severity
from goqueue.tenancy.audit.queue import QueueLimits
from tests.unit.broker.gate.test_gate import ALICE, OnlyTopics, error_of
from tests.unit.broker.node import Node
from tests.unit.tenancy.audit.test_ocsf import check

MERGED_MS = 11_000


def audited(**settings: str) -> Node:
    return Node(**{"security__audit": "on", "journeys__enabled": "false", **settings})


def events_of(node: Node) -> list[dict[str, Any]]:
    """Everything in the audit log, valid and in order."""
    node.run_for(100)
    topic = node.broker.topics.find(AUDIT_TOPIC)
    if topic is None:
        return []
    page = read_page([Place(topic.partitions[0], 0)], records_max=100_000, bytes_max=1 << 30)
    found = [json.loads(record.value or b"") for _, record in page.records]
    for event in found:
        check(event)
    assert len({event["metadata"]["uid"] for event in found}) == len(found)
    return found


def seen(node: Node) -> list[tuple[str, str, int]]:
    """The operations, outcomes and counts of the log, without the start of the node."""
    return [
        (
            event["api"]["operation"] if "api" in event else event["class_name"],
            event["unmapped"]["outcome"],
            event.get("count", 1),
        )
        for event in events_of(node)
        if event["class_uid"] != 6002
    ]


def test_by_default_there_is_none() -> None:
    node = Node()
    assert node.broker.audit is None
    node.wait(node.broker.gate.topics.create(ALICE, name="orders"))
    assert events_of(node) == []


def test_changes_and_denials_are_written_and_traffic_is_not() -> None:
    node = audited()
    gate = node.broker.gate
    node.wait(gate.topics.create(ALICE, name="orders"))
    node.wait(gate.records.publish(ALICE, topic="orders", records=[Record(None, b"v")]))
    gate.policy = OnlyTopics("orders")
    gate.topics.get(ALICE, topic="orders")
    for _ in range(100):
        error_of(gate.topics.describe(ALICE, topic="secrets"))
    node.wait(gate.topics.delete(ALICE, topic="orders"))
    expected = [
        ("topics.create", "allowed", 1),
        ("topics.describe", "denied", 1),
        ("topics.delete", "allowed", 1),
    ]
    assert seen(node) == expected
    node.run_for(MERGED_MS)
    assert seen(node) == [*expected, ("topics.describe", "denied", 99)]
    assert node.broker.audit is not None
    assert not overrides(node.broker.audit, MESSAGE_EVENTS)


def test_traffic_is_written_if_settings_say_so() -> None:
    node = audited(security__audit_reads="1")
    gate = node.broker.gate
    node.create("orders")
    for _ in range(10):
        node.wait(gate.records.publish(ALICE, topic="orders", records=[Record(None, b"v")]))
        gate.topics.get(ALICE, topic="orders")
        gate.grants(ALICE).reader("orders", 0)
    node.run_for(MERGED_MS)
    assert [one for one in seen(node) if one[0] != "node.identity"] == [
        ("records.publish", "allowed", 1),
        ("topics.get", "allowed", 1),
        ("partitions.read", "allowed", 1),
        ("records.publish", "allowed", 9),
        ("topics.get", "allowed", 9),
        ("partitions.read", "allowed", 9),
    ]


def test_a_trial_is_no_change() -> None:
    node = audited()
    node.wait(node.broker.gate.topics.create(ALICE, name="orders", dry_run=True))
    assert seen(node) == []


def test_every_change_says_what_it_changes() -> None:
    """Each operation that is a change has a resource, or an argument that says more."""
    silent = []
    for name, one in OPERATIONS.items():
        names = set(inspect.signature(one.perform).parameters)
        has_resources = one.resources not in (named_by_owner, cluster, own_cluster)
        is_named = names & {*events._NAMED_BY, events._NAME, *events._CHANGED_BY}
        if one.is_change and not has_resources and not is_named:
            silent.append(name)
    assert silent == []


def test_a_sample_is_a_part_of_the_traffic() -> None:
    node = audited(security__audit_reads="0.2")
    node.create("orders")
    for _ in range(1_000):
        node.broker.gate.topics.get(ALICE, topic="orders")
    node.run_for(MERGED_MS)
    assert 130 < sum(times for name, _, times in seen(node) if name == "topics.get") < 270


def test_exclusions_are_of_what_is_allowed() -> None:
    node = audited(
        security__audit_excluded_principals="User:alice", security__audit_excluded_topics="tmp"
    )
    gate = node.broker.gate
    bob = Session("test", principal="User:bob")
    for session, name in ((ALICE, "orders"), (bob, "tmp"), (bob, "kept")):
        node.wait(gate.topics.create(session, name=name))
    gate.policy = OnlyTopics()
    error_of(gate.topics.describe(ALICE, topic="tmp"))
    assert [one["resources"][0]["name"] for one in events_of(node)[1:]] == ["kept", "tmp"]


def test_authentication_is_written() -> None:
    node = audited()
    authentication = node.broker.gate.authentication
    session = Session("kafka", client_host="10.1.1.1")
    for password in ("wrong-1", "wrong-2"):
        with pytest.raises(AuthenticationFailed):
            node.wait(authentication.password(session, "bob", password))
    with pytest.raises(AuthenticationFailed):
        authentication.api_key(session, "gqk_no_key")
    login = authentication.login(session, "SCRAM-SHA-256")
    node.wait(promised(login.answer(b"n,,n=carol,r=abc")))
    with pytest.raises(AuthenticationFailed):
        node.wait(promised(login.answer(b"c=biws,r=abc,p=AAAA")))
    logins = [one for one in events_of(node) if one["class_uid"] == 3002]
    assert [(one["user"]["name"], one["auth_protocol"]) for one in logins] == [
        ("bob", "password"),
        ("", "bearer"),
        ("carol", "SCRAM-SHA-256"),
    ]
    assert not any("wrong" in json.dumps(one) for one in logins)


def limit(node: Node, names: dict[str, str], **limits: float) -> None:
    node.wait(node.broker.gate.quotas.alter(ALICE, names=names, limits=limits))


def test_used_up_quotas_are_written_once_per_interval() -> None:
    """Without a sample of the traffic, and the rate once for all connections that share it."""
    node = audited()
    node.create("orders")
    limit(node, {"user": "alice"}, producer_message_rate=1)
    for number in range(40):
        session = msgspec.structs.replace(ALICE, client_host=f"10.0.0.{number}", client_id="app")
        meter = node.broker.gate.client_limits.meter(session)
        assert meter is not None
        meter.produced(10, 1)
    throttled = ("quotas.throttled", "failed")
    assert seen(node)[1:] == [(*throttled, 1)]
    node.run_for(MERGED_MS)
    assert seen(node)[1:] == [(*throttled, 1), (*throttled, 38)]  # the first was in the burst
    event = events_of(node)[-1]
    assert event["actor"]["user"]["name"] == "alice"
    assert event["resources"] == [{"type": "quota", "name": "producer_message_rate"}]
    assert event["src_endpoint"] == {"hostname": "unknown"}
    assert event["status_code"] == "quota_exceeded"


def test_quotas_of_client_ids_are_written_for_each() -> None:
    node = audited()
    limit(node, {"client-id": ""}, producer_message_rate=1)
    for name in ("one", "two"):
        meter = node.broker.gate.client_limits.meter(
            Session("kafka", client_id=name, client_host="10.0.0.7")
        )
        assert meter is not None
        meter.produced(10, 5)
    found = [one["resources"][1] for one in events_of(node) if "resources" in one][1:]
    assert found == [{"type": "client-id", "name": name} for name in ("one", "two")]


def test_a_refused_connection_is_written_with_its_address() -> None:
    node = audited()
    limit(node, {"user": "alice"}, connections=0)
    session = msgspec.structs.replace(ALICE, client_host="10.0.0.7")
    with pytest.raises(QuotaReached):
        node.broker.gate.seat().take(session)
    event = events_of(node)[-1]
    assert event["resources"] == [{"type": "quota", "name": "connections"}]
    assert event["src_endpoint"] == {"ip": "10.0.0.7"}


def test_start_and_stop_are_written() -> None:
    node = audited()
    node.run_for(100)
    node.stop()
    node.start()
    lifecycle = [one["activity_name"] for one in events_of(node) if one["class_uid"] == 6002]
    assert lifecycle == ["Start", "Stop", "Start"]


def test_a_stop_writes_what_was_merged() -> None:
    node = audited()
    node.broker.gate.policy = OnlyTopics()
    for _ in range(50):
        error_of(node.broker.gate.topics.describe(ALICE, topic="secrets"))
    node.stop()
    node.start()
    denied = [one.get("count", 1) for one in events_of(node) if one["class_uid"] == 6003]
    assert sum(denied) == 50


def test_what_a_kill_loses_are_the_last_moments_and_counts() -> None:
    node = audited()
    gate = node.broker.gate
    gate.policy = OnlyTopics()
    for number in range(20):
        for _ in range(3):
            error_of(gate.topics.describe(ALICE, topic=f"secret-{number}"))
    node.run_for(100)
    error_of(gate.topics.describe(ALICE, topic="too-late"))
    node.kill()
    node.start()
    names = [one["resources"][0]["name"] for one in events_of(node) if "resources" in one]
    assert names == [f"secret-{number}" for number in range(20)]


def test_clients_can_neither_write_nor_shorten_the_log() -> None:
    node = audited()
    node.run_for(100)
    gate = node.broker.gate
    forged = [Record(None, b"{}")]
    shorter = [Change("retention_ms", "1")]
    for attempt in (
        gate.records.publish(ALICE, topic=AUDIT_TOPIC, records=forged),
        gate.records.delete(ALICE, topic=AUDIT_TOPIC, partition=0, before_offset=-1),
        gate.topics.delete(ALICE, topic=AUDIT_TOPIC),
        gate.configs.change_topic(ALICE, topic=AUDIT_TOPIC, changes=shorter, may_be_internal=True),
    ):
        assert isinstance(error_of(attempt), InternalTopic)


def test_the_log_has_the_retention_of_the_settings() -> None:
    node = audited(security__audit_retention_ms="1h", security__audit_retention_bytes="20MiB")
    node.run_for(100)
    node.stop()
    settings = {"security__audit_retention_ms": "2h", "security__audit": "on"}
    other = Node(**settings)
    node.settings = other.settings
    node.start()
    node.run_for(100)
    own = node.broker.topics.get(AUDIT_TOPIC).own_settings
    assert own["retention_ms"] == str(2 * 3_600_000)


# A destination that is away


class Flaky:
    """A destination that can be away."""

    name = "flaky"

    def __init__(self) -> None:
        self.is_away = False
        self.texts: list[bytes] = []

    def write(self, texts: Sequence[bytes]) -> Promise[None]:
        written: Promise[None] = Promise()
        if self.is_away:
            written.reject(StorageFull("away"))
        else:
            self.texts += texts
            written.resolve(None)
        return written


def test_events_wait_for_a_destination_and_the_lost_ones_are_reported() -> None:
    node = Node()
    flaky = Flaky()
    outlet = Outlet(
        node.clock,
        flaky,
        report_lost=lambda lost: b"lost %d" % lost,
        limits=QueueLimits(events_max=10),
    )
    flaky.is_away = True
    for number in range(25):
        outlet.add(Severity.LOW, b"%d" % number, count=2)
    outlet.add(Severity.HIGH, b"high", count=1)
    node.run_for(RETRY_MS * 3)
    assert flaky.texts == []
    flaky.is_away = False
    node.run_for(RETRY_MS * 3)
    assert flaky.texts == [b"lost 32", *(b"%d" % one for one in range(16, 25)), b"high"]
    assert outlet.waiting == 0


def test_a_full_disk_delays_events() -> None:
    node = audited()
    gate = node.broker.gate
    gate.policy = OnlyTopics()
    node.run_for(100)
    node.broker.leaders.is_full = lambda: True
    error_of(gate.topics.describe(ALICE, topic="secrets"))
    node.run_for(20_000)
    assert seen(node) == []
    node.broker.leaders.is_full = lambda: False
    node.run_for(2_000)
    assert seen(node) == [("topics.describe", "denied", 1)]


def test_observing_never_raises_and_is_bounded() -> None:
    node = Node()
    auditor = Auditor(
        node.clock, node.random, SecuritySettings(), node_id=1, cluster_id=lambda: "c"
    )
    flaky = Flaky()
    flaky.is_away = True
    auditor.write_to(flaky)
    for number in range(100_000):
        session = Session("kafka", f"User:{number % 5_000}", client_host=f"h{number % 7}")
        resource = Resource(ResourceKind.TOPIC, f"topic-{number}")
        auditor.denied(session, Action.READ, resource, operation="partitions")
    node.run_for(MERGED_MS)
    assert auditor._outlets[0].waiting < 5_000
    flaky.is_away = False
    node.run_for(5_000)
    counts = [json.loads(text).get("count", 1) for text in flaky.texts]
    assert sum(counts) == 100_000
