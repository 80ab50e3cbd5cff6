"""Quotas on one node: tenants are kept apart, memory is bounded, nothing costs anything unused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from goqueue.broker.quotas import quotas as module
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
from goqueue.model.errors import QuotaExceeded, QuotaReached, StorageQuotaReached
from goqueue.model.session import Session
from tests.unit.broker.node import Node

OPERATOR = Session("http", principal="User:root")
ACME = Session("http", principal="User:alice", tenant="acme")
OTHER = Session("http", principal="User:bob", tenant="other")


@pytest.fixture
def node() -> Node:
    node = Node()
    for tenant in ("acme", "other"):
        node.wait(node.broker.gate.tenants.create(OPERATOR, tenant=tenant))
    return node


def limit(node: Node, names: dict[str, str], **limits: float | None) -> None:
    node.wait(node.broker.gate.quotas.alter(OPERATOR, names=names, limits=limits))


def refused(node: Node, call: Promise[Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        node.wait(call)


def create(node: Node, session: Session, name: str, partitions: int = 1) -> Promise[Any]:
    gate = node.broker.gate
    return gate.topics.create(session, name=name, partition_count=partitions)


def publish(node: Node, session: Session, size: int) -> Promise[Any]:
    records = [Record(None, b"x" * size)]
    return node.broker.gate.records.publish(session, topic="orders", records=records)


def test_each_tenant_has_its_own_topics_and_partitions(node: Node) -> None:
    limit(node, {"tenant": "acme"}, topics=2, partitions=5)
    node.wait(create(node, ACME, "orders", 4))
    refused(node, create(node, ACME, "more", 2), QuotaReached)
    node.wait(create(node, ACME, "more", 1))
    refused(node, create(node, ACME, "third"), QuotaReached)
    for name in ("orders", "more", "third"):
        node.wait(create(node, OTHER, name, 10))


def test_users_of_a_tenant_share_its_rate_and_others_do_not(node: Node) -> None:
    limit(node, {"tenant": ""}, producer_byte_rate=1_000)
    carol = Session("http", principal="User:carol", tenant="acme")
    for session in (ACME, OTHER):
        node.wait(create(node, session, "orders"))
    node.wait(publish(node, ACME, 3_000))
    refused(node, publish(node, carol, 1), QuotaExceeded)
    node.wait(publish(node, OTHER, 500))


def test_each_tenant_has_its_own_storage(node: Node) -> None:
    limit(node, {"tenant": ""}, storage_bytes=2_000)
    for session in (ACME, OTHER):
        node.wait(create(node, session, "orders"))
    node.wait(publish(node, ACME, 2_500))
    refused(node, publish(node, ACME, 1), StorageQuotaReached)
    node.wait(publish(node, OTHER, 500))
    node.wait(node.broker.gate.topics.delete(ACME, topic="orders"))
    node.run_for(1_500)  # counted again every second
    node.wait(create(node, ACME, "orders"))
    node.wait(publish(node, ACME, 100))


def test_without_quotas_nobody_has_a_meter_and_no_timer_runs(node: Node) -> None:
    quotas = node.broker.quotas
    assert quotas.meter(ACME) is None
    limit(node, {"user": "alice"}, request_rate=5)
    assert quotas.meter(ACME) is not None
    limit(node, {"user": "alice"}, request_rate=None)
    assert quotas.meter(ACME) is None
    node.run_for(30_000)
    assert not quotas.rates
    assert quotas._timer is None


def test_clients_that_change_their_id_share_a_bucket_at_last(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKETS_MAX", 10)
    monkeypatch.setattr(module, "METERS_MAX", 10)
    limit(node, {"client-id": ""}, producer_byte_rate=100)
    quotas = node.broker.quotas
    for number in range(100):
        meter = quotas.meter(Session("kafka", client_id=str(number)))
        assert meter is not None
        meter.produced(60, 1)
    assert len(quotas.rates) <= 11
    late = quotas.meter(Session("kafka", client_id="late"))
    assert late is not None
    with pytest.raises(QuotaExceeded):
        late.check_produce()


def test_what_is_not_used_is_forgotten_and_debt_is_not(node: Node) -> None:
    limit(node, {"client-id": ""}, producer_byte_rate=100)
    quotas = node.broker.quotas
    for name, size in (("small", 50), ("large", 10_000)):
        meter = quotas.meter(Session("kafka", client_id=name))
        assert meter is not None
        meter.produced(size, 1)
    node.run_for(30_000)
    assert [dict(key.entity)["client-id"] for key in quotas.rates] == ["large"]
    again = quotas.meter(Session("kafka", client_id="large"))
    assert again is not None
    with pytest.raises(QuotaExceeded):
        again.check_produce()


def test_an_address_is_limited_in_new_and_open_connections(node: Node) -> None:
    limit(node, {"ip": ""}, connection_creation_rate=2, connections=5)
    quotas = node.broker.quotas
    admits = partial(quotas.admits, "10.0.0.1")
    assert [admits(connected=count) for count in range(4)] == [True, True, True, False]
    assert quotas.admits("10.0.0.2", connected=0)
    node.run_for(2_000)
    assert admits(connected=4)
    assert not admits(connected=5)
