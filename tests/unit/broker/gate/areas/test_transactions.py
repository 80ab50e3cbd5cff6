"""Transactions behind the gate: what each call needs to be allowed, and what it answers."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.transactions import (
    Addressed,
    CommitOffsets,
    OffsetToCommit,
    PublishResults,
    TransactionsArea,
)
from goqueue.broker.publishing.publisher import Published, Scheduled
from goqueue.broker.transactions.ids import transactional_id_in
from goqueue.broker.transactions.names import GENERATED_REST_MS, SCAN_PAUSE_MS
from goqueue.model.access import (
    CLUSTER,
    Acl,
    Action,
    PatternKind,
    Permission,
    Resource,
    ResourceKind,
)
from goqueue.model.batch import Record
from goqueue.model.errors import AccessDenied, GoQueueError, UnknownTopic, UnknownTransaction
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session
from goqueue.tenancy.acls import AccessControl, Who
from goqueue.transactions import TransactionState
from tests.unit.broker.gate.areas.rules import ALICE, Only, access
from tests.unit.broker.node import Node

TILL = access(Action.WRITE, ResourceKind.TRANSACTIONAL_ID, "till")
ORDERS = access(Action.WRITE, ResourceKind.TOPIC, "orders")
READ_ORDERS = access(Action.READ, ResourceKind.TOPIC, "orders")
BILLING = access(Action.READ, ResourceKind.GROUP, "billing")


BOB = Session("test", principal="User:bob")


class Rules:
    """A policy that decides by rules."""

    def __init__(self, control: AccessControl) -> None:
        self._control = control

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return self._control.allows(Who(session.principal, "10.0.0.1"), action, resource)

    def allows_any(self, session: Session, action: Action, kind: ResourceKind) -> bool:
        return self._control.allows_any(Who(session.principal, "10.0.0.1"), action, kind)


class Desk:
    def __init__(self) -> None:
        self.node = Node()
        self.node.create("orders")
        self.node.create("secrets")
        self.wait = self.node.wait

    @property
    def area(self) -> TransactionsArea:
        return self.node.broker.gate.transactions

    def begin(self, name: str | None = "till") -> str:
        begun = self.area.begin(ALICE, transactional_id=name, timeout_ms=60_000)
        return self.wait(begun).id

    def publish(self, transaction_id: str, *topics: str, **more: object) -> list[str]:
        """Publish a message to each topic; why it is refused, or nothing."""
        published = self.area.publish(
            ALICE,
            transaction_id=transaction_id,
            messages=[Addressed(one, Record(None, b"v")) for one in topics],
            now_ms=1,
            **more,  # type: ignore[arg-type]
        )
        return [
            str(one) if isinstance(one, GoQueueError) else ""
            for one in self.wait(published).results
        ]

    def allow(self, *allowed: object) -> Only:
        self.node.broker.gate.policy = policy = Only(*allowed)  # type: ignore[arg-type]
        return policy


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_id_is_checked_by_the_transactional_id_in_it(desk: Desk) -> None:
    transaction_id = desk.begin()
    policy = desk.allow()
    for call in (
        desk.area.commit(ALICE, transaction_id=transaction_id),
        desk.area.abort(ALICE, transaction_id=transaction_id),
        desk.area.prepare(ALICE, transaction_id=transaction_id, timeout_ms=None),
    ):
        with pytest.raises(AccessDenied, match="WRITE transactional id 'till'"):
            desk.wait(call)
    assert policy.checked == [TILL] * 3
    desk.allow(TILL)
    desk.wait(desk.area.commit(ALICE, transaction_id=transaction_id))
    with pytest.raises(UnknownTransaction):
        desk.wait(desk.area.commit(ALICE, transaction_id="not-an-id"))


def test_names_that_the_broker_chooses_are_granted_by_their_prefix(desk: Desk) -> None:
    desk.allow()
    with pytest.raises(AccessDenied):
        desk.begin(None)
    desk.allow(access(Action.WRITE, ResourceKind.TRANSACTIONAL_ID, "__transaction-"))
    assert desk.begin(None)


def rules_for_everybody(desk: Desk, *more: Acl) -> None:
    """Give all users what the use of transactions without names needs."""
    control = AccessControl()
    for kind, name in (
        (ResourceKind.TRANSACTIONAL_ID, "__transaction-"),
        (ResourceKind.TOPIC, "orders"),
    ):
        for action in (Action.READ, Action.WRITE):
            control.add(
                Acl(kind, PatternKind.PREFIXED, name, "User:*", "*", action, Permission.ALLOW)
            )
    for one in more:
        control.add(one)
    desk.node.broker.gate.policy = Rules(control)


def test_nobody_sees_or_ends_a_transaction_that_the_broker_named_for_another(desk: Desk) -> None:
    rules_for_everybody(desk)
    mine = desk.begin(None)
    assert desk.publish(mine, "orders") == [""]
    area, wait = desk.area, desk.wait
    assert [one.id for one in wait(area.list(ALICE)).transactions] == [mine]
    assert wait(area.list(BOB)).transactions == []
    name = transactional_id_in(mine)
    for call in (
        area.commit(BOB, transaction_id=mine),
        area.abort(BOB, transaction_id=mine),
        area.show(BOB, transaction_id=mine),
        area.describe(BOB, transactional_id=name),
        area.initialise(
            BOB, transactional_id=name, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        ),
    ):
        with pytest.raises(AccessDenied):
            wait(call)
    assert wait(area.show(ALICE, transaction_id=mine)).view.state is TransactionState.ONGOING
    wait(area.commit(ALICE, transaction_id=mine))


def test_an_administrator_ends_a_transaction_that_the_broker_named(desk: Desk) -> None:
    alter = Acl(
        ResourceKind.CLUSTER,
        PatternKind.LITERAL,
        CLUSTER.name,
        BOB.principal,
        "*",
        Action.ALTER,
        Permission.ALLOW,
    )
    rules_for_everybody(desk, alter)
    mine = desk.begin(None)
    desk.publish(mine, "orders")
    [listed] = desk.wait(desk.area.list(BOB)).transactions
    desk.wait(desk.area.abort(BOB, transaction_id=listed.id))
    with pytest.raises(GoQueueError):
        desk.wait(desk.area.commit(ALICE, transaction_id=mine))


def test_names_of_one_user_are_not_used_again_for_another(desk: Desk) -> None:
    mine = desk.begin(None)
    desk.wait(desk.area.commit(ALICE, transaction_id=mine))
    desk.node.run_for(GENERATED_REST_MS + SCAN_PAUSE_MS)
    begun = desk.wait(desk.area.begin(BOB, transactional_id=None, timeout_ms=60_000))
    assert begun.transactional_id != transactional_id_in(mine)
    again = desk.wait(desk.area.begin(ALICE, transactional_id=None, timeout_ms=60_000))
    assert again.transactional_id == transactional_id_in(mine)


def test_publishing_needs_every_topic(desk: Desk) -> None:
    transaction_id = desk.begin()
    desk.allow(TILL, ORDERS)
    assert desk.publish(transaction_id, "orders", "orders") == ["", ""]
    with pytest.raises(AccessDenied, match="topic 'secrets'"):
        desk.publish(transaction_id, "orders", "secrets")


def test_a_topic_that_is_made_by_publishing_needs_permission_to_create_it(desk: Desk) -> None:
    transaction_id = desk.begin()
    fresh = access(Action.WRITE, ResourceKind.TOPIC, "fresh")
    desk.allow(TILL, fresh)
    assert "may not CREATE topic 'fresh'" in desk.publish(transaction_id, "fresh")[0]
    desk.allow(TILL, fresh, access(Action.CREATE, ResourceKind.TOPIC, "fresh"))
    assert desk.publish(transaction_id, "fresh") == [""]


def test_messages_that_could_not_be_read_have_the_whole_call_refused(desk: Desk) -> None:
    transaction_id = desk.begin()
    found = desk.publish(transaction_id, "orders", "no/topic", unreadable={1: "Not base64."})
    assert "message 1 of the same call was refused: Not base64." in found[0]
    assert found[1] == "Not base64."
    assert "'no/topic'" in found[2]
    assert desk.node.broker.topics.get("orders").partitions[0].end_offset == 0


def test_offsets_are_read_of_their_group_and_topics(desk: Desk) -> None:
    transaction_id = desk.begin()
    commit = CommitOffsets(
        group_id="billing",
        offsets=[OffsetToCommit(topic=one, partition=0, offset=0) for one in ("orders", "secrets")],
    )
    desk.allow(TILL, BILLING, READ_ORDERS)
    refused = desk.area.commit_offsets(ALICE, transaction_id=transaction_id, call=commit)
    assert {place: type(one) for place, one in desk.wait(refused).errors.items()} == {
        ("secrets", 0): AccessDenied
    }
    desk.allow(TILL, READ_ORDERS)
    with pytest.raises(AccessDenied, match="READ group 'billing'"):
        desk.wait(desk.area.commit_offsets(ALICE, transaction_id=transaction_id, call=commit))


def test_a_partition_that_is_missing_is_answered_whatever_else_is_wrong(desk: Desk) -> None:
    commit = CommitOffsets(
        group_id="billing",
        offsets=[OffsetToCommit(topic=one, partition=0, offset=0) for one in ("orders", "nowhere")],
    )
    desk.begin()
    identity = desk.wait(desk.area.new_producer(ALICE))
    refused = desk.area.commit_group_offsets(
        ALICE, transactional_id="till", identity=identity, call=commit, joins_transaction=False
    )
    errors = desk.wait(refused).errors
    assert errors["nowhere", 0].code == UnknownTopic.code
    assert errors["orders", 0].code == "invalid_producer_id_mapping"


def test_nodes_add_partitions_for_producers_that_they_have_authorised(desk: Desk) -> None:
    identity = desk.wait(
        desk.area.initialise(
            ALICE, transactional_id="till", timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
    )
    internal = TopicPartition("__transaction_state", 0)
    call = {"transactional_id": "till", "identity": identity, "partitions": [internal]}
    joined = desk.wait(desk.area.add_partitions(ALICE, **call))
    assert ([one.code for one in joined.outcomes if one], joined.is_attempted) == (
        ["internal_topic"],
        False,
    )
    desk.allow(TILL)
    with pytest.raises(AccessDenied, match="CLUSTER_ACTION"):
        desk.wait(desk.area.add_partitions(ALICE, **call, is_from_node=True))
    desk.allow(access(Action.CLUSTER_ACTION, ResourceKind.CLUSTER, "kafka-cluster"))
    joined = desk.wait(desk.area.add_partitions(ALICE, **call, is_from_node=True))
    assert joined.outcomes == [None]


def test_what_may_not_be_described_is_not_listed(desk: Desk) -> None:
    for name in ("till", "other"):
        desk.begin(name)
    desk.allow(access(Action.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, "till"))
    page = desk.wait(desk.area.list(ALICE))
    assert [one.view.transactional_id for one in page.transactions] == ["till"]
    assert page.total == 1
    found = desk.area.find_coordinators(ALICE, transactional_ids=["till", "other"])
    nodes = desk.wait(found)
    assert nodes["till"] == desk.node.broker.node_id
    assert isinstance(nodes["other"], AccessDenied)


def test_results_of_all_kinds_travel() -> None:
    results = [Published(0, 0, 0), Scheduled("", 0), UnknownTopic("t")]
    assert list(PublishResults.unpack(PublishResults(results).pack()).results) == results
