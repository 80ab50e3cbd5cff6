"""Controller decisions about topics: creation, growth, settings and deletion.

Pure functions from the state to the changes that follow, or to an error for the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from goqueue.cluster import routing
from goqueue.cluster.elections import UNCLEAN_SETTING, Standing, candidate
from goqueue.cluster.facts import (
    NO_LEADER,
    Change,
    Forget,
    PartitionFact,
    TopicFact,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.placement import Load, check_assignment, extend, place
from goqueue.cluster.quota_checks import check_room
from goqueue.cluster.tenant_commands import check_new_topic_name
from goqueue.model.errors import (
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicName,
    TopicExists,
    UnknownTopic,
)
from goqueue.model.support import LEVEL_MIN

TOPIC_PARTITIONS_MAX = 10_000
INTERNAL_REPLICAS = 3  # survives the loss of one node without stopping
IN_SYNC_SETTING = "min_insync_replicas"
INTERNAL_MOVES_MAX = 100  # partitions of internal topics that get new replicas at the same time


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic that brokers use for their own state."""

    name: str
    partition_count: int
    settings: Mapping[str, str] = field(default_factory=dict)
    level: int = LEVEL_MIN  # the feature level that it came with


def created(
    metadata: Metadata,
    fact: TopicFact,
    *,
    replication_factor: int,
    assignments: Sequence[Sequence[int]] | None = None,
) -> list[Change]:
    """Create a topic and its partitions; `assignments` places each replica by hand."""
    _check_new(metadata, fact)
    check_room(metadata, fact.name, topics=1, partitions=fact.partition_count)
    replicas = _replicas(metadata, range(fact.partition_count), replication_factor, assignments)
    return [fact, *_new_partitions(metadata, fact.id, 0, replicas)]


def grown(
    metadata: Metadata,
    name: str,
    *,
    partition_count: int,
    assignments: Sequence[Sequence[int]] | None = None,
) -> list[Change]:
    """Add partitions, and record the former routing of keys."""
    fact = known(metadata, name)
    before = fact.partition_count
    if not before < partition_count <= TOPIC_PARTITIONS_MAX:
        raise InvalidPartitionCount(
            f"Topic {name} has {before} partition(s); the number can only grow, up to "
            f"{TOPIC_PARTITIONS_MAX}, and cannot become {partition_count}."
        )
    check_room(metadata, name, topics=0, partitions=partition_count - before)
    history = metadata.routing.get(fact.id)
    if history is not None and len(history.ended) >= routing.ROUTING_EPOCHS_MAX:
        raise InvalidPartitionCount(
            f"Topic {name} has grown {len(history.ended)} times, the maximum: the routing of "
            "its keys is stored; create a topic with the partitions you need and copy the records."
        )
    first = metadata.partitions.get(fact.id, 0)
    if first is None:
        raise InvalidRequest(f"Topic {name} belongs to a single node; adopt it first.")
    factor = len(first.target or first.replicas)
    replicas = _replicas(metadata, range(before, partition_count), factor, assignments)
    return [
        msgspec.structs.replace(fact, partition_count=partition_count),
        *_new_partitions(metadata, fact.id, before, replicas),
        routing.grown(history, fact.id, before),
    ]


def configured(metadata: Metadata, name: str, settings: Mapping[str, str]) -> list[Change]:
    """Replace the settings of a topic."""
    fact = known(metadata, name)
    return [msgspec.structs.replace(fact, settings=dict(settings))]


def deleted(metadata: Metadata, name: str) -> list[Change]:
    """Delete a topic, and with it its partitions and its routing."""
    return [Forget(known(metadata, name).key)]


def adopted(metadata: Metadata, node: int) -> list[Change]:
    """Turn the topics of a single node into partitions with that node as their only replica.

    They have no leader yet; the node becomes leader when it is unfenced, with a new leader epoch.
    """
    return [
        PartitionFact(
            topic.id, number, (node,), (node,), leader=NO_LEADER, leader_epoch=topic.leader_epoch
        )
        for topic in metadata.topics()
        for number in range(topic.partition_count)
        if metadata.partitions.get(topic.id, number) is None
    ]


def internal_created(
    metadata: Metadata, wanted: Sequence[InternalTopic], new_id: Callable[[], bytes]
) -> list[Change]:
    """Create the internal topics that do not exist yet and have come with the feature level."""
    changes: list[Change] = []
    load = Load(metadata.partitions, metadata.nodes)
    nodes = list(metadata.nodes.values())
    able = sum(not node.is_draining for node in nodes)
    for topic in missing(metadata, wanted):
        fact = TopicFact(new_id(), topic.name, topic.partition_count, dict(topic.settings))
        replicas = place(
            nodes,
            load,
            partition_count=topic.partition_count,
            replication_factor=min(INTERNAL_REPLICAS, max(able, 1)),
        )
        changes += [fact, *_new_partitions(metadata, fact.id, 0, replicas)]
    return changes


def missing(metadata: Metadata, wanted: Sequence[InternalTopic]) -> list[InternalTopic]:
    """Return the internal topics to create; an older node takes one of a later level for yours."""
    return [
        one for one in wanted if one.level <= metadata.level and metadata.topic(one.name) is None
    ]


def internal_moves(
    metadata: Metadata, names: Sequence[str]
) -> list[tuple[PartitionFact, tuple[int, ...]]]:
    """Return partitions of internal topics with too few replicas, and the replicas to move to.

    Nodes that are down are not counted, and partitions that are being moved are skipped.
    """
    nodes = [node for node in metadata.nodes.values() if node.takes_leaders]
    nodes.sort(key=lambda node: node.id)
    factor = min(INTERNAL_REPLICAS, len(nodes))
    load = Load(metadata.partitions, metadata.nodes)
    moves: list[tuple[PartitionFact, tuple[int, ...]]] = []
    under_way = 0
    for name in names:
        topic = metadata.topic(name)
        for fact in metadata.partitions.of_topic(topic.id) if topic else []:
            under_way += fact.is_moving
            if fact.is_moving or len(fact.replicas) >= factor or fact.leader == NO_LEADER:
                continue
            kept = [metadata.nodes[node] for node in fact.replicas]
            target = extend(kept, nodes, load, factor)
            if len(target) > len(kept):
                moves.append((fact, target))
    return moves[: max(INTERNAL_MOVES_MAX - under_way, 0)]


def internal_secured(metadata: Metadata, names: Sequence[str]) -> list[TopicFact]:
    """Raise the required in-sync count of internal topics that have all their replicas."""
    secured = []
    for name in names:
        topic = metadata.topic(name)
        if topic is None or IN_SYNC_SETTING in topic.settings:
            continue
        facts = metadata.partitions.of_topic(topic.id)
        if facts and all(len(fact.in_sync) >= INTERNAL_REPLICAS for fact in facts):
            settings = {**topic.settings, IN_SYNC_SETTING: str(INTERNAL_REPLICAS - 1)}
            secured.append(msgspec.structs.replace(topic, settings=settings))
    return secured


def known(metadata: Metadata, name: str) -> TopicFact:
    fact = metadata.topic(name)
    if fact is None:
        raise UnknownTopic(name)
    return fact


def allows_unclean(metadata: Metadata, topic_id: bytes) -> bool:
    topic = metadata.topic_by_id(topic_id)
    return topic is not None and topic.settings.get(UNCLEAN_SETTING) == "true"


def _check_new(metadata: Metadata, fact: TopicFact) -> None:
    check_new_topic_name(metadata, fact.name)
    if metadata.topic(fact.name) is not None:
        raise TopicExists(fact.name)
    other = metadata.topic_mistaken_for(fact.name)
    if other is not None:
        raise InvalidTopicName(fact.name, f"it would be mistaken for {other!r}")
    if not 1 <= fact.partition_count <= TOPIC_PARTITIONS_MAX:
        raise InvalidPartitionCount(
            f"Number of partitions must be from 1 to {TOPIC_PARTITIONS_MAX}, not "
            f"{fact.partition_count}."
        )


def _replicas(
    metadata: Metadata,
    numbers: range,
    replication_factor: int,
    assignments: Sequence[Sequence[int]] | None,
) -> list[tuple[int, ...]]:
    if assignments is None:
        load = Load(metadata.partitions, metadata.nodes)
        return place(
            list(metadata.nodes.values()),
            load,
            partition_count=len(numbers),
            replication_factor=replication_factor,
        )
    if len(assignments) != len(numbers):
        raise InvalidReplicaAssignment(
            f"{len(assignments)} lists of replicas were given for {len(numbers)} new partitions."
        )
    return [check_assignment(replicas, metadata.nodes) for replicas in assignments]


def _new_partitions(
    metadata: Metadata, topic_id: bytes, first: int, replicas: Sequence[tuple[int, ...]]
) -> list[PartitionFact]:
    """Create empty partitions, in sync on all live replicas, or on all if none is alive."""
    standing = Standing(metadata.nodes)
    facts = []
    for number, nodes in enumerate(replicas, first):
        alive = tuple(node for node in nodes if standing.is_alive(node))
        fact = PartitionFact(topic_id, number, nodes, alive or nodes)
        leader = candidate(fact, standing, among=alive)
        facts.append(msgspec.structs.replace(fact, leader=leader))
    return facts
