"""Transactions in clusters: each is there as a whole or not at all, whichever nodes fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goqueue.broker.publishing.publisher import Published, Scheduled
from goqueue.broker.transactions.orphans import LOOK_MS
from goqueue.broker.transactions.publishing import Addressed
from goqueue.broker.transactions.transactions import Transactions
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import GoQueueError, NotCoordinator
from goqueue.model.names import (
    OFFSETS_TOPIC,
    SCHEDULED_TOPIC,
    TRANSACTION_TOPIC,
    ProducerIdentity,
    TopicPartition,
)
from goqueue.storage.aborted import find_aborted
from goqueue.transactions import TransactionState
from tests.simulation.cluster_transactions import (
    ENDLESS,
    POSITIONS,
    ClusterStage,
    Copy,
    applications_on,
    begin,
    run,
    settle,
)
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.transactions_model import INPUT, OUTPUTS, TIMEOUT_MS


def test_transactions_span_partitions_of_all_nodes() -> None:
    stage = begin(1)
    applications = applications_on(stage)
    settle(stage, applications)
    assert all(one.attempts == POSITIONS for one in applications), "nothing had to be repeated"


def test_only_the_coordinator_of_a_name_answers_for_it() -> None:
    stage = begin(2)
    world = stage.cluster
    number = world.nodes[1].broker.transactions.partition_of("app")
    owner = world.leader_of(TRANSACTION_TOPIC, number)
    assert owner is not None
    for node in world.up():
        assert node.broker.transactions.owner_of("app") == owner.number
        initialised = node.broker.transactions.initialise("app", timeout_ms=TIMEOUT_MS)
        if node is owner:
            assert world.wait(initialised).epoch == 0
        else:
            with pytest.raises(NotCoordinator):
                world.wait(initialised)


@pytest.mark.parametrize("topic", [TRANSACTION_TOPIC, OFFSETS_TOPIC, "orders", "bills"])
def test_a_leader_that_dies_costs_no_transaction(topic: str) -> None:
    stage = begin(3)
    applications = applications_on(stage, positions=4)
    for turn in range(3):
        run(stage, applications, 40 + 13 * turn)
        victim = stage.cluster.leader_of(topic, turn % 2)
        assert victim is not None
        victim.crash()
        stage.lose_connections()
        run(stage, applications, 2_500)
        victim.start()
        run(stage, applications, 500)
        stage.cluster.run_until(stage.cluster.is_whole)
    settle(stage, applications)


def test_one_call_publishes_to_leaders_on_all_nodes_and_commits_offsets_elsewhere() -> None:
    stage = begin(5)
    world = stage.cluster
    for turn in range(12):
        name, is_commit = f"till-{turn}", turn % 3 != 2
        number = world.nodes[1].broker.transactions.partition_of(name)
        owner = world.leader_of(TRANSACTION_TOPIC, number)
        assert owner is not None
        transacting = owner.broker.transacting
        transaction = world.wait(transacting.begin(name, timeout_ms=60_000))
        for part in range(2):  # the second goes on with the sequence numbers of the first
            messages = [
                Addressed(place.topic, Record(None, f"{turn}/{part}".encode()), place.partition)
                for place in OUTPUTS
            ]
            results = world.wait(transacting.publish(transaction, messages))
            assert all(isinstance(one, Published) for one in results)
        offsets = [OffsetToCommit(topic=INPUT, partition=0, offset=turn + 1)]
        call = CommitOffsets(group_id=f"group-{turn % 4}", offsets=offsets)
        assert world.wait(transacting.commit_offsets(transaction, call)).errors == {}
        world.wait((transacting.commit if is_commit else transacting.abort)(transaction))
    world.run_for(500)
    expected = [f"{turn}/{part}" for turn in range(12) if turn % 3 != 2 for part in range(2)]
    for node in world.up():
        for place in OUTPUTS:
            assert Copy(node).read(place) == expected
    assert [_committed_offset(world, f"group-{one}") for one in range(4)] == [5, 10, 11, 8]


def _committed_offset(world: ClusterWorld, group: str) -> int:
    number = world.nodes[1].broker.groups.partition_of(group)
    node = world.leader_of(OFFSETS_TOPIC, number)
    assert node is not None
    return node.broker.groups.fetch_offsets(group)[INPUT][0].offset


def test_a_transaction_without_a_name_is_coordinated_where_it_is_begun() -> None:
    world = begin(6).cluster
    begun = 0
    for node in world.up():
        if not any(node.broker.transactions.is_here(f"{one}") for one in range(20)):
            continue
        transaction = world.wait(node.broker.transacting.begin(None, timeout_ms=60_000))
        assert node.broker.transactions.is_here(transaction.transactional_id)
        begun += 1
    assert begun > 0


def test_a_partition_that_moves_gets_the_rest_of_a_transaction() -> None:
    stage = begin(7)
    world = stage.cluster
    name = TopicPartition("orders", 0)
    leader = world.leader_of(*_pair(name))
    assert leader is not None
    owner = next(
        node
        for node in world.up()
        if node is not leader
        and any(node.broker.transactions.is_here(f"till-{one}") for one in range(50))
    )
    till = next(
        f"till-{one}" for one in range(50) if owner.broker.transactions.is_here(f"till-{one}")
    )
    transacting = owner.broker.transacting
    transaction = world.wait(transacting.begin(till, timeout_ms=60_000))
    message = Addressed(name.topic, Record(None, b"first"), name.partition)
    world.wait(transacting.publish(transaction, [message]))
    leader.crash()
    message = Addressed(name.topic, Record(None, b"second"), name.partition)
    world.wait(transacting.publish(transaction, [message]))
    world.wait(transacting.commit(transaction))
    world.heal()
    world.run_for(6_000)
    for node in world.up():
        assert Copy(node).read(name) == ["first", "second"]


def _pair(name: TopicPartition) -> tuple[str, int]:
    return name.topic, name.partition


def test_what_no_coordinator_knows_is_aborted_and_what_one_knows_is_not() -> None:
    stage = begin(4)
    world = stage.cluster
    number = world.nodes[1].broker.transactions.partition_of("slow")
    owner = world.leader_of(TRANSACTION_TOPIC, number)
    assert owner is not None
    transactions = owner.broker.transactions
    known = world.wait(transactions.initialise("slow", timeout_ms=600_000))
    unknown = ProducerIdentity(known.producer_id + 1, 0)
    places = {TopicPartition("orders", 0): known, TopicPartition("bills", 0): unknown}
    world.wait(transactions.add_partitions("slow", known, [TopicPartition("orders", 0)]))
    partitions = {}
    for name, identity in places.items():
        leader = world.leader_of(name.topic, 0)
        assert leader is not None
        partitions[name.topic] = leader.broker.topics.get(name.topic).partition(0)
        batch = encode_batch(
            [Record(None, b"stray")],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        partitions[name.topic].append(memoryview(batch), now_ms=world.clock.now_ms())
    world.run_for(3 * LOOK_MS)
    bills, orders = partitions["bills"], partitions["orders"]
    assert bills.transactions.get(unknown.producer_id) is None
    assert [one.producer_id for one in find_aborted(bills.log, 0, bills.end_offset)] == [
        unknown.producer_id
    ]
    assert bills.last_stable_offset == bills.end_offset
    assert orders.transactions.get(known.producer_id) is not None
    assert orders.last_stable_offset == 0


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
def test_a_deposed_coordinator_does_not_take_the_next_transaction_for_the_last(
    *, is_commit: bool, waits: bool
) -> None:
    world, old, new, identity = _deposed(9, ends_as=is_commit)
    places = [TopicPartition("orders", 0)]
    _insist(world, lambda: new.add_partitions("till", identity, places))
    # It would say of the second what it remembers of the first, which had the same epoch.
    ending = old.finish if waits else old.end
    ended = ending("till", identity, is_commit=is_commit)
    world.run_for(5_000)
    assert new.describe("till").state is TransactionState.ONGOING
    world.heal()
    with pytest.raises(NotCoordinator):
        world.wait(ended)


def test_a_deposed_coordinator_does_not_begin_the_next_transaction_with_the_last() -> None:
    world, old, new, identity = _deposed(10, ends_as=None)
    _insist(world, lambda: new.end("till", identity, is_commit=True))
    # The first is open still, as far as it knows, and has the partition of the second.
    added = old.add_partitions("till", identity, [TopicPartition("orders", 0)])
    world.run_for(5_000)
    assert new.describe("till").state is TransactionState.COMPLETE_COMMIT
    world.heal()
    with pytest.raises(NotCoordinator):
        world.wait(added)


def test_any_node_has_a_transaction_aborted_for_an_operator() -> None:
    """The leader of a partition is asked, which need not coordinate the transaction."""
    world = begin(7).cluster
    for turn in range(6):
        name = f"stuck-{turn}"
        number = world.nodes[1].broker.transactions.partition_of(name)
        owner = world.leader_of(TRANSACTION_TOPIC, number)
        assert owner is not None
        transacting = owner.broker.transacting
        transaction = world.wait(transacting.begin(name, timeout_ms=600_000))
        messages = [
            Addressed(place.topic, Record(None, b"never"), place.partition) for place in OUTPUTS
        ]
        world.wait(transacting.publish(transaction, messages))
        transactions = owner.broker.transactions
        identity = transactions.describe(name).identity
        asked = world.up()[turn % 3]
        results = world.wait(
            asked.broker.transactions.write_markers(
                identity, [OUTPUTS[0]], is_commit=False, coordinator_epoch=0
            )
        )
        assert results == {OUTPUTS[0]: None}
        assert transactions.describe(name).state is TransactionState.COMPLETE_ABORT
    world.run_for(500)
    for node in world.up():
        for place in OUTPUTS:
            assert Copy(node).read(place) == []


def _deposed(
    seed: int, *, ends_as: bool | None
) -> tuple[ClusterWorld, Transactions, Transactions, ProducerIdentity]:
    """A coordinator that knows a transaction, is cut off and has a successor unknown to it."""
    world = begin(seed).cluster
    number = world.nodes[1].broker.transactions.partition_of("till")
    old = world.leader_of(TRANSACTION_TOPIC, number)
    assert old is not None
    transactions = old.broker.transactions
    identity = world.wait(transactions.initialise("till", timeout_ms=600_000))
    places = [TopicPartition("orders", 0)]
    world.wait(transactions.add_partitions("till", identity, places))
    if ends_as is not None:
        world.wait(transactions.finish("till", identity, is_commit=ends_as))
        world.run_for(100)
    world.network.cut([old.number], [one for one in world.nodes if one != old.number])
    world.run_until(lambda: world.leader_of(TRANSACTION_TOPIC, number) is not old)
    new = world.leader_of(TRANSACTION_TOPIC, number)
    assert new is not None
    assert old.broker.transactions.is_here("till")
    return world, transactions, new.broker.transactions, identity


def _insist(world: ClusterWorld, call: Callable[[], Promise[Any]]) -> None:
    for _ in range(50):
        try:
            world.wait(call())
        except GoQueueError as error:
            if not error.retryable:
                raise
            world.run_for(100)
        else:
            return
    raise AssertionError("nobody answers")


@pytest.mark.seeds(8)
def test_every_position_is_there_once_and_whole_whichever_nodes_fail(seed: int) -> None:
    stage = begin(seed)
    stage.strikes = True
    world, chance = stage.cluster, stage.random
    applications = applications_on(stage, positions=ENDLESS)
    for _ in range(12):
        faults = world.network.faults
        faults.loss = chance.choice([0.0, 0.0, 0.05, 0.2])
        faults.duplication = chance.choice([0.0, 0.1, 0.3])
        faults.delay_ms = chance.choice([1.0, 5.0, 50.0])
        faults.late = chance.choice([0.0, 0.02, 0.1])
        _trouble(stage)
        for _ in range(chance.randint(1, 4)):
            if chance.random() < 0.3:
                chance.choice(applications).start_instance()
            run(stage, applications, chance.choice([chance.uniform(5, 200), 1_000]))
        if chance.random() < 0.5:  # Where nothing is done, nothing can go wrong.
            world.network.heal()
            stage.mend()
            run(stage, applications, 1_500)
    stage.is_quiet = True
    world.heal()
    for application in applications:
        application.positions = application.committed_offset() + 2
    settle(stage, applications)


def _trouble(stage: ClusterStage) -> None:
    world, chance = stage.cluster, stage.random
    victim = chance.choice(list(world.nodes.values()))
    what = chance.random()
    if what < 0.25 and victim.is_up:
        victim.crash()
        stage.lose_connections()
    elif what < 0.4 and victim.is_up:
        victim.kill()
        stage.lose_connections()
    elif what < 0.6:
        world.network.cut([victim.number], [one for one in world.nodes if one != victim.number])
    elif what < 0.8:
        world.network.faults.cut.clear()
    if chance.random() < 0.6:
        for node in world.nodes.values():
            if not node.is_up:
                node.start()


def test_a_transaction_delays_messages_whose_schedules_another_node_keeps() -> None:
    world = ClusterWorld(8, schedules__partitions="1")
    world.heal()
    world.create("later")
    keeper = world.leader_of(SCHEDULED_TOPIC)
    expected: list[str] = []
    for turn in range(4):
        name = f"till-{turn}"
        number = world.nodes[1].broker.transactions.partition_of(name)
        owner = world.leader_of(TRANSACTION_TOPIC, number)
        assert owner is not None
        if owner is keeper:
            continue
        transacting, is_commit = owner.broker.transacting, turn % 2 == 0
        transaction = world.wait(transacting.begin(name, timeout_ms=60_000))
        for part in range(2):
            value = f"{turn}/{part}"
            headers = (("goqueue-delay-ms", b"15000"),)
            delayed = Addressed("later", Record(None, value.encode(), headers))
            [result] = world.wait(transacting.publish(transaction, [delayed]))
            assert isinstance(result, Scheduled)
            expected += [value] * is_commit
        world.wait((transacting.commit if is_commit else transacting.abort)(transaction))
    assert expected
    assert world.read(world.up()[0], "later") == []
    world.run_for(25_000)
    assert sorted(world.read(world.up()[0], "later")) == sorted(expected)
