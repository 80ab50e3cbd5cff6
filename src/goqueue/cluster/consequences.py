"""What follows for partitions when nodes join, leave or change state, and as time passes.

Pure functions from the state to the metadata entries to replace. The controller decides when to
call them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from goqueue.cluster import elections, partition_changes, topic_changes
from goqueue.cluster.commands import CopyClaim
from goqueue.cluster.elections import Standing
from goqueue.cluster.facts import Change, NodeFact, PartitionFact, PartitionKey
from goqueue.cluster.metadata import Metadata


def left(
    metadata: Metadata, nodes: Collection[int], *, has_lost_disk: bool = False
) -> list[PartitionFact]:
    """Return the partitions that change when these nodes are fenced.

    The partitions come before the nodes in a decision, so that no fenced node ever leads.
    """
    standing = Standing(metadata.nodes, gone=frozenset(nodes))
    keeping: dict[PartitionKey, PartitionFact] = {}
    for node in nodes:
        for fact in metadata.partitions.of_node(node):
            keeping[fact.place] = fact
    after = []
    for place, fact in keeping.items():
        if has_lost_disk:
            for node in nodes:
                fact = elections.without_disk(fact, node)
        fact = partition_changes.resolved(metadata, fact, standing)
        if fact is not keeping[place]:
            after.append(fact)
    return after


def trusted(metadata: Metadata, fact: NodeFact, integrity: Sequence[CopyClaim]) -> list[Change]:
    """Return a node that is unfenced, and the partitions that only it makes electable."""
    standing = Standing({**metadata.nodes, fact.id: fact})
    return [fact, *partition_changes.weighed(metadata, fact.id, integrity, standing)]


def drained(metadata: Metadata, fact: NodeFact) -> list[Change]:
    """Return a node whose drain state has changed, and the partitions whose leader moves.

    Leaders move away from a node that is drained, and to a node that no longer is from nodes that
    lead only because no other could.
    """
    standing = Standing({**metadata.nodes, fact.id: fact})
    kept = metadata.partitions.of_node(fact.id)
    moved = [(one, elections.moved_away(one, standing)) for one in kept]
    return [fact, *(after for one, after in moved if after is not one)]


def resolved(metadata: Metadata, facts: Iterable[PartitionFact]) -> list[PartitionFact]:
    """Return those partitions whose pending election or move can be completed, completed."""
    standing = Standing(metadata.nodes)
    pairs = ((fact, partition_changes.resolved(metadata, fact, standing)) for fact in facts)
    return [after for fact, after in pairs if after is not fact]


def tidied(metadata: Metadata) -> list[PartitionFact]:
    """Return what should have been decided as soon as it became possible, as a safety net."""
    partitions = metadata.partitions
    unwilling = [node for node in metadata.nodes.values() if not node.takes_leaders]
    facts = {fact.place: fact for fact in (*partitions.leaderless(), *partitions.moving())}
    for node in unwilling:
        facts.update((fact.place, fact) for fact in partitions.led_by(node.id))
    return resolved(metadata, facts.values())


def rebalanced(
    metadata: Metadata, internal_topics: Sequence[str], *, moves_max: int
) -> list[Change]:
    """Return leaders to preferred replicas, and spread internal topics over more nodes."""
    standing = Standing(metadata.nodes)
    moved: dict[PartitionKey, Change] = {}
    for fact in metadata.partitions.strayed():
        after = elections.preferred(fact, standing)
        if after is not fact:
            moved[fact.place] = after
            if len(moved) >= moves_max:
                break
    for fact, target in topic_changes.internal_moves(metadata, internal_topics):
        if fact.place not in moved:
            moved[fact.place] = partition_changes.moved(metadata, fact, target)
    return [*moved.values(), *topic_changes.internal_secured(metadata, internal_topics)]
