"""Decisions and snapshots: the same facts in the same order give the same bytes everywhere."""

from __future__ import annotations

import contextlib
from random import Random

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goqueue.cluster.facts import (
    Change,
    ClusterFact,
    Forget,
    JobFact,
    NamedProducer,
    NamedQueueFact,
    NextProducerId,
    NodeFact,
    PartitionFact,
    QueueGroupFact,
    RoutingEpoch,
    RoutingFact,
    TopicFact,
    decode_decision,
    encode_decision,
    node_key,
    routing_key,
)
from goqueue.cluster.metadata import DELETED_NAMES_MAX, Metadata, check_supported
from goqueue.model.errors import MalformedRequest, UnsupportedVersion
from goqueue.model.support import SUPPORT
from tests.unit.effort import steps_of

quickly = settings(max_examples=150, derandomize=True, deadline=None, database=None)

IDS = st.sampled_from([bytes([number]) * 16 for number in range(3)])
NAMES = st.sampled_from(["orders", "payments", "ü"])
NODES = st.integers(0, 4)
TEXTS = st.dictionaries(st.sampled_from("abc"), st.text(max_size=3), max_size=3)


def _topic(topic_id: bytes, count: int, own: dict[str, str]) -> TopicFact:
    """A name for each id, and now and then the same name with another id."""
    return TopicFact(topic_id, ["orders", "payments", "orders"][topic_id[0]], count, own)


MEMBERS = st.lists(NODES, min_size=1, max_size=4, unique=True).map(tuple)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(_topic, IDS, st.integers(1, 3), TEXTS),
    st.builds(NextProducerId, st.integers(0, 50)),
    st.builds(NamedProducer, NAMES, st.integers(0, 9), st.integers(0, 9)),
    st.builds(QueueGroupFact, IDS, NAMES, TEXTS),
    st.builds(NamedQueueFact, IDS, NAMES, NAMES, NAMES, NODES, NODES, TEXTS, TEXTS, st.booleans()),
    st.builds(JobFact, NAMES, NAMES, st.binary(max_size=3)),
    st.builds(ClusterFact, st.text(max_size=4)),
    st.builds(NodeFact, NODES, IDS, TEXTS, st.booleans(), st.booleans(), st.booleans()),
    st.builds(
        PartitionFact,
        IDS,
        st.integers(0, 3),
        MEMBERS,
        MEMBERS,
        NODES,
        adding=MEMBERS,
        target=MEMBERS,
    ),
    st.builds(RoutingFact, IDS, st.just((RoutingEpoch(1, (-1,)),))),
    st.builds(lambda name: Forget(b"topic/" + name.encode()), NAMES),
    st.builds(lambda name: Forget(b"named-queue/" + name.encode()), NAMES),
    st.builds(lambda node: Forget(node_key(node)), NODES),
    st.builds(lambda topic_id: Forget(routing_key(topic_id)), IDS),
    st.builds(lambda fact: Forget(fact.key), st.builds(NamedProducer, NAMES, NODES, NODES)),
    st.builds(
        lambda topic_id, number: Forget(PartitionFact(topic_id, number, (1,), (1,)).key),
        IDS,
        st.integers(0, 3),
    ),
)


@quickly
@given(changes=st.lists(CHANGES, max_size=40), cut=st.integers(0, 40))
def test_a_snapshot_in_the_middle_makes_no_difference(changes: list[Change], cut: int) -> None:
    straight, resumed = Metadata(), Metadata()
    straight.apply_all(tuple(changes))
    first = Metadata()
    first.apply_all(decode_decision(encode_decision(changes[:cut])))
    resumed.apply_all((TopicFact(b"g" * 16, "gone", 1), NextProducerId(10**6)))
    resumed.restore(first.snapshot())
    assert resumed.snapshot() == first.snapshot()
    resumed.apply_all(decode_decision(encode_decision(changes[cut:])))
    assert resumed.snapshot() == straight.snapshot()
    assert straight.copy().snapshot() == straight.snapshot()


def _everything(metadata: Metadata) -> list[object]:
    """All that can be seen, in no order."""
    return [
        {topic.name: topic for topic in metadata.topics()},
        {fact.place: fact for fact in metadata.partitions},
        list(metadata.deleted),
        metadata.cluster,
        metadata.nodes,
        metadata.routing,
        metadata.producers,
        metadata.queue_groups,
        metadata.named_queues,
        metadata.jobs,
        metadata.next_producer_id,
    ]


ONE_OF_EACH: list[Change] = [
    TopicFact(b"\x00" * 16, "orders", 1),
    TopicFact(b"\x01" * 16, "gone", 1),
    Forget(b"topic/gone"),
    NextProducerId(7),
    NamedProducer("a", 1, 2),
    QueueGroupFact(b"g" * 16, "shop"),
    NamedQueueFact(
        b"q" * 16, "mail", "orders", "mail", 1, 2, {"a": "b"}, {"c": "d"}, True, True, 3
    ),
    JobFact("redrive", "1", b"body"),
    ClusterFact("c"),
    NodeFact(1, b"i"),
    PartitionFact(b"\x00" * 16, 0, (1,), (1,), 1),
    RoutingFact(b"\x00" * 16, (RoutingEpoch(1, (5,)),)),
]


@quickly
@example(changes=ONE_OF_EACH)
@given(changes=st.lists(CHANGES, max_size=40))
def test_a_snapshot_leaves_nothing_out(changes: list[Change]) -> None:
    metadata, restored = Metadata(), Metadata()
    metadata.apply_all(tuple(changes))
    restored.restore(metadata.snapshot())
    assert _everything(restored) == _everything(metadata) == _everything(metadata.copy())


@quickly
@given(changes=st.lists(CHANGES, max_size=40), order=st.randoms(use_true_random=False))
def test_the_same_state_is_the_same_bytes_whatever_its_history(
    changes: list[Change], order: Random
) -> None:
    metadata, other = Metadata(), Metadata()
    metadata.apply_all(tuple(changes))
    metadata.deleted.clear()  # The order in which topics were deleted is a part of the state.
    facts = list(metadata.facts())
    order.shuffle(facts)
    facts.sort(key=lambda fact: not isinstance(fact, TopicFact))  # Topics come before their own.
    other.apply_all(tuple(facts))
    assert other.snapshot() == metadata.snapshot()


@quickly
@given(changes=st.lists(CHANGES, max_size=40))
def test_the_lists_of_partitions_agree_with_the_partitions(changes: list[Change]) -> None:
    metadata = Metadata()
    metadata.apply_all(tuple(changes))
    table = metadata.partitions
    everything = list(table)
    assert table.count == len(everything)
    for node in range(-1, 5):
        led = [fact for fact in everything if fact.leader == node]
        kept = [fact for fact in everything if node in fact.members]
        assert sorted(map(id, table.led_by(node))) == sorted(map(id, led))
        assert sorted(map(id, table.of_node(node))) == sorted(map(id, kept))
        assert (table.leader_count(node), table.replica_count(node)) == (len(led), len(kept))
    assert {fact.place for fact in table.moving()} == {
        fact.place for fact in everything if fact.target
    }
    assert {fact.place for fact in table.strayed()} == {
        fact.place for fact in everything if fact.leader not in (-1, fact.replicas[0])
    }
    topics = {topic.id for topic in metadata.topics()}
    assert {fact.topic_id for fact in everything} | set(metadata.routing) <= topics


@quickly
@given(changes=st.lists(CHANGES, max_size=10))
def test_a_decision_survives_the_wire(changes: list[Change]) -> None:
    assert decode_decision(encode_decision(changes)) == tuple(changes)


def test_equal_facts_are_equal_bytes_in_whatever_order_their_settings_came() -> None:
    one, other = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    first, second = Metadata(), Metadata()
    first.apply(TopicFact(b"1" * 16, "orders", 1, one))
    second.apply(TopicFact(b"1" * 16, "orders", 1, other))
    assert first.snapshot() == second.snapshot()


@quickly
@given(data=st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (decode_decision, Metadata().restore):
        for prefix in (b"", b"\x01", b"GQMD\x01"):
            with contextlib.suppress(MalformedRequest, UnsupportedVersion):
                read(prefix + data)


def test_nests_without_end_are_refused() -> None:
    with pytest.raises(MalformedRequest):
        decode_decision(b"\x01" + b"\x91\x81\xa1x" * 5000)


def test_what_a_node_does_not_understand_stops_it_instead_of_being_passed_over() -> None:
    strange = b"\x01" + msgspec.msgpack.encode([{"type": "planet", "name": "Mars"}])
    with pytest.raises(MalformedRequest, match="planet"):
        decode_decision(strange)
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        decode_decision(b"\x02")
    with pytest.raises(UnsupportedVersion, match="level 99"):
        check_supported([ClusterFact("c", 99)], SUPPORT)


def test_a_snapshot_that_cannot_be_read_leaves_the_state_as_it_was() -> None:
    metadata = Metadata()
    metadata.apply(TopicFact(b"1" * 16, "orders", 1))
    before = metadata.snapshot()
    for broken in (b"", before[:20], b"GQMD\x09" + before[5:], before[:-3] + b"\xc1\xc1\xc1"):
        with pytest.raises((MalformedRequest, UnsupportedVersion)):
            metadata.restore(broken)
        assert metadata.snapshot() == before


def test_partitions_and_routing_go_with_their_topic() -> None:
    metadata = Metadata()
    topic = TopicFact(b"1" * 16, "orders", 1)
    partition = PartitionFact(topic.id, 0, (1, 2), (1,), 1)
    routing = RoutingFact(topic.id, (RoutingEpoch(1, (5,)),))
    metadata.apply_all((topic, partition, routing))
    metadata.apply(msgspec.structs.replace(topic, settings={"retention_ms": "5"}))
    assert metadata.partitions.get(topic.id, 0) == partition
    assert metadata.routing == {topic.id: routing}
    metadata.apply(TopicFact(b"2" * 16, "orders", 1))
    assert metadata.partitions.count == 0
    assert metadata.routing == {}
    metadata.apply_all((partition, routing))
    assert metadata.partitions.count == 0, "a late word about a topic that is gone"


def test_names_of_deleted_topics_are_remembered_up_to_a_bound() -> None:
    metadata = Metadata()
    for number in range(DELETED_NAMES_MAX + 5):
        metadata.forget_topic(f"t{number}")
    assert len(metadata.deleted) == DELETED_NAMES_MAX
    assert "t4" not in metadata.deleted
    assert "t5" in metadata.deleted
    again = Metadata()
    again.restore(metadata.snapshot())
    assert list(again.deleted) == list(metadata.deleted)


def test_the_form_of_the_new_facts_on_disk_is_fixed() -> None:
    partition = PartitionFact(b"0123456789abcdef", 3, (1, 2), (1,), 1, 4, 5)
    node = NodeFact(7, b"i", {"peers": "h:1"}, is_fenced=False, rack="a")
    assert msgspec.msgpack.decode(encode_decision([partition, node, Forget(b"topic/x")])[1:]) == [
        {
            "type": "partition",
            "topic_id": b"0123456789abcdef",
            "number": 3,
            "replicas": [1, 2],
            "in_sync": [1],
            "leader": 1,
            "leader_epoch": 4,
            "version": 5,
        },
        {
            "type": "node",
            "id": 7,
            "incarnation": b"i",
            "addresses": {"peers": "h:1"},
            "is_fenced": False,
            "rack": "a",
        },
        {"type": "forget", "key": b"topic/x"},
    ]
    assert partition.key == b"partition/30313233343536373839616263646566/3"
    assert node.key == b"node/7"


def test_ten_thousand_partitions_cost_little() -> None:
    metadata = Metadata()
    metadata.apply(TopicFact(b"1" * 16, "big", 10_000))
    for number in range(10_000):
        metadata.apply(PartitionFact(b"1" * 16, number, (1, 2, 3), (1, 2, 3), 1))
    snapshot = metadata.snapshot()
    assert len(snapshot) < 1_500_000
    fact = metadata.partitions.at((b"1" * 16, 5000))
    changes = [msgspec.structs.replace(fact, version=version) for version in range(100)]
    _, steps = steps_of(lambda: [metadata.apply(change) for change in changes])
    # Looking at all partitions for each fact would take a million.
    assert steps < 20_000
