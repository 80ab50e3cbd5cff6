"""Queue groups whose owner keeps no copy of what they read: five nodes, three copies."""

from __future__ import annotations

from functools import partial

import pytest

from goqueue.broker.queues import remote_partitions as queue_copies
from goqueue.broker.queues.records import ReceivedMessage
from goqueue.broker.queues.remote_partitions import RemoteCopies, RemoteCopy
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record, encode_batch
from goqueue.partition import Appended
from tests.simulation.cluster_queues import (
    PARTITIONS,
    TOPIC,
    begin_far_away,
    owner_of,
    redrive_through_trouble,
    work_through_trouble,
)
from tests.simulation.cluster_world import ClusterNode, ClusterWorld


@pytest.mark.seeds(6)
def test_every_message_ends_acked_or_dead_once_per_group_wherever_it_is(seed: int) -> None:
    work_through_trouble(begin_far_away(seed))


@pytest.mark.seeds(3)
def test_dead_letters_come_back_once_wherever_they_are(seed: int) -> None:
    redrive_through_trouble(begin_far_away(seed))


def owner(world: ClusterWorld) -> ClusterNode:
    node = owner_of(world, "one")
    assert node is not None
    return node


def copies_of(node: ClusterNode) -> RemoteCopies:
    copies = node.broker.queues._hosts.sources._remote
    assert copies is not None
    return copies


def send(world: ClusterWorld, *values: str, number: int = 0) -> None:
    """Have messages committed, one batch each."""
    for value in values:
        leader = world.leader_of(TOPIC, number)
        assert leader is not None
        topic = leader.broker.topics.get(TOPIC)
        record = Record(b"", value.encode(), timestamp_ms=leader.clock.now_ms())
        batch = memoryview(encode_batch([record]))
        appended = leader.broker.producing.produce(topic, topic.partition(number), batch)
        assert isinstance(appended, Appended)
        stored: Promise[None] = Promise()
        topic.partition(number).when_committed(appended.last_offset, partial(stored.settle, None))
        world.wait(stored)


def receive(
    world: ClusterWorld, node: ClusterNode, count: int = 100, *, wait_ms: int = 0
) -> list[ReceivedMessage]:
    receiver = node.broker.queues.receive(
        "one", TOPIC, consumer="a", messages_max=count, wait_ms=wait_ms
    )
    return list(world.wait(receiver.promise))


def values_of(messages: list[ReceivedMessage]) -> list[str]:
    return [(one.record.value or b"").decode() for one in messages]


def ack(world: ClusterWorld, node: ClusterNode, messages: list[ReceivedMessage]) -> None:
    receipts = [one.delivery.receipt for one in messages]
    assert world.wait(node.broker.queues.ack("one", receipts)) == [None] * len(receipts)


def test_whoever_does_not_wait_gets_what_is_on_other_nodes() -> None:
    world = begin_far_away(1)
    node = owner(world)
    send(world, "a", "b")
    send(world, "c", number=1)
    assert not any(
        node.broker.topics.keeps(one) for one in node.broker.topics.get(TOPIC).partitions
    )
    got = receive(world, node)
    assert got
    while some := receive(world, node):
        got += some
    assert sorted(values_of(got)) == ["a", "b", "c"]
    ack(world, node, got)
    began_ms = world.age_ms
    assert receive(world, node) == []
    assert world.age_ms - began_ms < 100, "there was nothing to wait for"


def test_a_receiver_that_waits_is_woken_by_a_message_on_another_node() -> None:
    world = begin_far_away(2)
    node = owner(world)
    receiver = node.broker.queues.receive("one", TOPIC, consumer="a", wait_ms=60_000)
    world.run_for(1_000)
    began_ms = world.age_ms
    send(world, "at last")
    assert values_of(list(world.wait(receiver.promise))) == ["at last"]
    assert world.age_ms - began_ms < 500


def test_a_receiver_gets_what_was_asked_of_a_leader_that_is_not_heard_for_a_while() -> None:
    world = begin_far_away(10)
    node = owner(world)
    number, leader = next(
        (number, one)
        for number in range(PARTITIONS)
        if (one := world.leader_of(TOPIC, number)) is not None
        and not one.broker.cluster.quorum.is_controller  # type: ignore[union-attr]
    )
    assert receive(world, node) == []  # From now on the owner hears of messages.
    send(world, "a", number=number)
    copy = copies_of(node).of(node.broker.topics.get(TOPIC), number)
    world.run_until(lambda: copy.index.end == 1)
    world.run_for(1_000)
    world.network.cut([node.number], [leader.number])
    receiver = node.broker.queues.receive("one", TOPIC, consumer="a", wait_ms=30_000)
    assert copy.fetching
    # The answer with news, which was asked for earlier, is lost as well: the leader is given up
    # before the batches are.
    world.run_for(queue_copies.WAIT_MS + 1_000)
    world.network.heal()
    assert owner(world) is node
    got = world.wait(receiver.promise)
    assert values_of(list(got)) == ["a"]


def test_what_is_kept_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_copies, "AHEAD_BYTES_MAX", 20_000)
    monkeypatch.setattr(queue_copies, "SINGLE_BYTES", 1)
    monkeypatch.setattr("goqueue.broker.queues.records.READ_BYTES", 3_000)
    world = begin_far_away(3)
    node = owner(world)
    sent = [f"{number:01000}" for number in range(60)]
    send(world, *sent)
    copies, got = copies_of(node), []
    while some := receive(world, node, 7, wait_ms=1_000):
        got += values_of(some)
        ack(world, node, some)
        assert copies._ahead_bytes <= 20_000
        assert copies._ahead_bytes == sum(copies._ahead.values())
    assert got == sent
    assert len(copies._ahead) < 60


def test_messages_of_aborted_transactions_are_not_delivered() -> None:
    world = begin_far_away(4)
    node, leader = owner(world), world.leader_of(TOPIC, 0)
    assert leader is not None
    partition = leader.broker.topics.get(TOPIC).partition(0)
    send(world, "before")
    for is_commit in (False, True):
        batch = encode_batch(
            [Record(b"", b"committed" if is_commit else b"aborted")],
            producer_id=77,
            producer_epoch=0,
            base_sequence=int(is_commit),
            is_transactional=True,
        )
        partition.append(memoryview(batch), now_ms=leader.clock.now_ms())
        partition.append_marker(
            producer_id=77,
            producer_epoch=0,
            is_commit=is_commit,
            coordinator_epoch=int(is_commit),
            now_ms=leader.clock.now_ms(),
        )
    send(world, "after")
    got: list[str] = []
    while some := receive(world, node, wait_ms=1_000):
        got += values_of(some)
        ack(world, node, some)
    assert got == ["before", "committed", "after"]


def test_a_group_of_what_comes_from_now_on_begins_where_the_leaders_say() -> None:
    world = begin_far_away(5)
    world.wait(world.up()[0].broker.queues.groups.create("one", {"start": "latest"}))
    node = owner(world)
    world.run_until(lambda: node.broker.queues._hosts.groups["one"].settings.start == "latest")
    send(world, "old")
    receiver = node.broker.queues.receive("one", TOPIC, consumer="a", wait_ms=60_000)
    world.run_for(500)
    assert not receiver.promise.is_done
    send(world, "new")
    assert values_of(list(world.wait(receiver.promise))) == ["new"]


def test_what_is_deleted_on_another_node_is_passed_over() -> None:
    world = begin_far_away(6)
    node, leader = owner(world), world.leader_of(TOPIC, 0)
    assert leader is not None
    send(world, "a", "b", "c", "d")
    first = receive(world, node, 1)
    assert values_of(first) == ["a"]
    leader.broker.administration.delete_records(TOPIC, 0, before_offset=3)
    got: list[str] = []
    while some := receive(world, node, wait_ms=8_000):
        got += values_of(some)
        ack(world, node, some)
    # What was fetched before it was deleted may still come; what is left must.
    assert got[-1] == "d"
    stats = node.broker.queues.inspection.stats("one", TOPIC)
    assert stats.ready == 0
    assert stats.partitions[0].done_before >= 3


def test_a_queue_looks_and_goes_back_wherever_its_messages_are() -> None:
    world = begin_far_away(7)
    node = owner(world)
    queues = node.broker.queues
    send(world, "a", "b", "c")
    ack(world, node, receive(world, node, 2, wait_ms=1_000))
    peeked = world.wait(queues.inspection.peek("one", TOPIC, 0, offset=0))
    assert [(one.state.state, one.record and one.record.value) for one in peeked] == [
        ("done", b"a"),
        ("done", b"b"),
        ("ready", b"c"),
    ]
    assert world.wait(queues.positions.rewind("one", TOPIC, offsets={0: 1})) == {0: 1}
    got = receive(world, node, wait_ms=1_000)
    assert values_of(got) == ["b", "c"]
    assert world.wait(queues.positions.rewind("one", TOPIC, time_ms=0)) == {0: 0, 1: 0}
    assert world.wait(queues.positions.purge("one", TOPIC)) == {0: 3, 1: 0}
    assert receive(world, node) == []


def test_a_queue_goes_on_when_copies_come_to_its_owner_and_leave_it() -> None:
    world = begin_far_away(8)
    node = owner(world)
    numbers = iter(range(1000))
    seen: list[str] = []

    def work() -> None:
        for number in range(PARTITIONS):
            send(world, *(str(next(numbers)) for _ in range(3)), number=number)
        while some := receive(world, node, wait_ms=1_000):
            seen.extend(values_of(some))
            ack(world, node, some)

    work()
    topic = node.broker.topics.get(TOPIC)
    others = [one for one in world.nodes if one != node.number]
    for replicas in ((node.number, *others[:2]), tuple(others[:3])):
        for number in range(PARTITIONS):
            world.wait(node.broker.administration.reassign(topic, number, replicas))
        work()
        world.run_until(
            lambda replicas=replicas: all(  # type: ignore[misc]
                node.broker.placement(topic, number).replicas == replicas
                for number in range(PARTITIONS)
            )
        )
        world.run_for(500)
        work()
        sources = node.broker.queues._hosts.groups["one"].queues[topic.name].sources
        is_far = node.number not in replicas
        assert [isinstance(one, RemoteCopy) for one in sources] == [is_far] * PARTITIONS
    assert len(seen) == len(set(seen)) == next(numbers)


def test_urgent_messages_come_first_wherever_they_are() -> None:
    world = begin_far_away(9)
    node, leader = owner(world), world.leader_of(TOPIC, 0)
    assert leader is not None
    topic = leader.broker.topics.get(TOPIC)
    for value, priority in ((b"later", b"background"), (b"now", b"critical")):
        headers = (("goqueue-priority", priority),)
        record = Record(b"", value, headers, timestamp_ms=leader.clock.now_ms())
        leader.broker.producing.produce(
            topic, topic.partition(0), memoryview(encode_batch([record]))
        )
    world.run_for(500)
    assert values_of(receive(world, node, 1, wait_ms=1_000)) == ["now"]
