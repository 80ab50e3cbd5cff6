"""Transactions and queries, called at any node of a cluster: their coordinator answers."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.transactions import Addressed, CommitOffsets, OffsetToCommit
from goqueue.broker.publishing.publisher import Published, Scheduled
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record
from goqueue.model.errors import (
    FencedProducer,
    InvalidReceipt,
    NotCoordinator,
    UnknownPartition,
    UnknownTopic,
    UnknownTransaction,
)
from goqueue.model.names import OFFSETS_TOPIC, ProducerIdentity, TopicPartition
from goqueue.model.queries import Attempt
from goqueue.model.session import Session
from goqueue.transactions import TransactionState
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

SESSION = Session("test", principal="User:alice")
DELAYED = Record(None, b"later", ((DELAY_HEADER, b"600000"),))
NOW_MS = 1_000


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    world.create("orders", partitions=2)
    return world


def begin(world: ClusterWorld, node: ClusterNode, name: str | None) -> str:
    begun = node.broker.gate.transactions.begin(SESSION, transactional_id=name, timeout_ms=60_000)
    return world.wait(begun).id


def test_every_node_acts_in_any_transaction(world: ClusterWorld) -> None:
    for number, entry in world.nodes.items():
        for other in world.nodes:
            gate = entry.broker.gate.transactions
            transaction_id = begin(world, entry, f"till-{number}-{other}")
            published = gate.publish(
                SESSION,
                transaction_id=transaction_id,
                messages=[
                    Addressed("orders", Record(None, b"now"), 1),
                    Addressed("orders", DELAYED),
                ],
                now_ms=NOW_MS,
            )
            first, second = world.wait(published).results
            assert isinstance(first, Published)
            assert isinstance(second, Scheduled)
            shown = world.wait(gate.show(SESSION, transaction_id=transaction_id))
            assert shown.view.state is TransactionState.ONGOING
            assert TopicPartition("orders", 1) in shown.view.partitions
            assert not shown.is_superseded
            world.wait(gate.commit(SESSION, transaction_id=transaction_id))
            # A commit may be repeated, at any node.
            again = world.nodes[other].broker.gate.transactions
            world.wait(again.commit(SESSION, transaction_id=transaction_id))


def test_what_is_refused_arrives_with_its_reason(world: ClusterWorld) -> None:
    broker = world.nodes[1].broker
    world.run_until(lambda: broker.topics.find(OFFSETS_TOPIC) is not None)
    number = broker.groups.partition_of("shop")
    world.run_until(lambda: world.leader_of(OFFSETS_TOPIC, number) is not None)
    owner = world.leader_of(OFFSETS_TOPIC, number)
    assert owner is not None
    world.wait(owner.broker.queues.groups.create("shop"))
    for entry in world.nodes.values():
        gate = entry.broker.gate.transactions
        transaction_id = begin(world, entry, "till")
        messages = [Addressed("orders", Record(None, b"good")), Addressed("no/topic", DELAYED)]
        published = gate.publish(
            SESSION,
            transaction_id=transaction_id,
            messages=messages,
            unreadable={1: "Not base64."},
            now_ms=NOW_MS,
        )
        codes = [getattr(one, "code", "") for one in world.wait(published).results]
        assert codes == ["invalid_request", "invalid_request", "invalid_topic_name"]
        ack = gate.ack(SESSION, transaction_id=transaction_id, group="shop", receipts=["no"])
        [outcome] = world.wait(ack)
        assert isinstance(outcome, InvalidReceipt)
        with pytest.raises(UnknownTransaction):
            world.wait(gate.show(SESSION, transaction_id="AQAA"))
        world.wait(gate.abort(SESSION, transaction_id=transaction_id))


def test_offsets_are_committed_from_any_node(world: ClusterWorld) -> None:
    for entry in world.nodes.values():
        gate = entry.broker.gate.transactions
        transaction_id = begin(world, entry, None)
        refused = gate.commit_offsets(
            SESSION,
            transaction_id=transaction_id,
            call=CommitOffsets(
                group_id="billing",
                offsets=[
                    OffsetToCommit(topic="orders", partition=0, offset=0),
                    OffsetToCommit(topic="orders", partition=7, offset=0),
                    OffsetToCommit(topic="nowhere", partition=0, offset=0),
                ],
            ),
        )
        errors = world.wait(refused).errors
        assert {place: type(one) for place, one in errors.items()} == {
            ("orders", 7): UnknownPartition,
            ("nowhere", 0): UnknownTopic,
        }
        world.wait(gate.commit(SESSION, transaction_id=transaction_id))


def test_every_node_lists_the_transactions_of_all(world: ClusterWorld) -> None:
    names = [f"till-{number}" for number in range(6)]
    for name in names:
        begin(world, world.nodes[1], name)
    for entry in world.nodes.values():
        gate = entry.broker.gate.transactions
        page = world.wait(gate.list(SESSION, prefix="till-", limit=4))
        assert [one.view.transactional_id for one in page.transactions] == names[:4]
        assert page.total == 6
        shown = world.wait(gate.show(SESSION, transaction_id=page.transactions[0].id))
        assert shown.view == page.transactions[0].view


def test_producers_reach_their_coordinator_through_any_node(world: ClusterWorld) -> None:
    for number, entry in world.nodes.items():
        gate, name = entry.broker.gate.transactions, f"producer-{number}"
        initialised = gate.initialise(
            SESSION, transactional_id=name, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        identity = world.wait(initialised)
        place = TopicPartition("orders", 0)
        common = {"transactional_id": name, "identity": identity}
        joined = world.wait(gate.add_partitions(SESSION, **common, partitions=[place]))
        assert joined.outcomes == [None]
        missing = [place, TopicPartition("orders", 9)]
        refused = world.wait(gate.add_partitions(SESSION, **common, partitions=missing))
        assert not refused.is_attempted
        assert isinstance(refused.outcomes[1], UnknownPartition)
        verified = world.wait(gate.verify_partitions(SESSION, **common, partitions=[place]))
        assert verified.outcomes == [None]
        world.wait(gate.add_group(SESSION, **common, group="billing"))
        commit = CommitOffsets(
            group_id="billing", offsets=[OffsetToCommit(topic="orders", partition=0, offset=0)]
        )
        committed = gate.commit_group_offsets(
            SESSION, **common, call=commit, joins_transaction=False
        )
        assert world.wait(committed).errors == {}
        view = world.wait(gate.describe(SESSION, transactional_id=name))
        assert view.state is TransactionState.ONGOING
        ended = world.wait(gate.end(SESSION, **common, is_commit=True, bumps_epoch=True))
        assert ended == ProducerIdentity(identity.producer_id, identity.epoch + 1)
        with pytest.raises(FencedProducer):
            world.wait(gate.add_partitions(SESSION, **common, partitions=[place]))


def test_a_gate_that_does_not_route_sends_clients_to_the_coordinator(world: ClusterWorld) -> None:
    begin(world, world.nodes[1], "till")
    answers = []
    for entry in world.nodes.values():
        gate = entry.broker.local_gate.transactions
        try:
            answers.append(world.wait(gate.describe(SESSION, transactional_id="till")).state)
        except NotCoordinator:
            answers.append(None)
    assert sorted(answers, key=str) == [TransactionState.EMPTY, None, None]


def test_every_node_commits_epochs_of_any_query(world: ClusterWorld) -> None:
    for number, entry in world.nodes.items():
        gate, query_id = entry.broker.gate, f"sink-{number}"
        opened = world.wait(gate.queries.open(SESSION, query_id=query_id, run_name="driver"))
        name = Attempt(query_id, opened.run, 0, "task-0").transactional_id
        transaction_id = begin(world, entry, name)
        messages = [Addressed("orders", Record(None, b"part"))]
        published = gate.transactions.publish(
            SESSION, transaction_id=transaction_id, messages=messages, now_ms=NOW_MS
        )
        world.wait(published)
        prepared = gate.transactions.prepare(
            SESSION, transaction_id=transaction_id, timeout_ms=None
        )
        world.wait(prepared)
        committed = gate.queries.commit_epoch(
            SESSION,
            query_id=query_id,
            run=opened.run,
            epoch=0,
            transaction_ids=[transaction_id],
            is_last=False,
        )
        assert world.wait(committed).epoch == 0
        assert world.wait(gate.queries.show(SESSION, query_id=query_id)).epoch == 0
