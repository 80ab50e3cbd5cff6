"""Placement of replicas of new partitions: spread over racks, and evenly over the nodes.

The same nodes and the same load give the same result. Racks come first, since they fail together;
then the number of replicas and of leaders that each node has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from goqueue.cluster.facts import NodeFact
from goqueue.cluster.metadata import PartitionTable
from goqueue.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor

REPLICAS_MAX = 15  # each replica stores everything, and commits wait for the slowest


class Load:
    """Replicas and leaders of each node, including those being placed."""

    __slots__ = ("leaders", "pairs", "replicas")

    def __init__(self, partitions: PartitionTable, nodes: Iterable[int]) -> None:
        known = list(nodes)
        self.replicas = Counter({node: partitions.replica_count(node) for node in known})
        # A node that returns leads its preferred partitions again, so partitions that others lead
        # only for now are miscounted; the difference is small and temporary.
        self.leaders = Counter({node: partitions.leader_count(node) for node in known})
        # How often a node is the first follower of another; this spreads the leaders of a failed
        # node.
        self.pairs: Counter[tuple[int, int]] = Counter()


def place(
    nodes: Sequence[NodeFact], load: Load, *, partition_count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """Return the replicas of each new partition, the preferred leader first."""
    able = _able(nodes, replication_factor)
    alive = [node for node in able if not node.is_fenced]
    willing = [node for node in alive if node.takes_leaders] or alive
    placed = []
    for _ in range(partition_count):
        first = min(willing, key=lambda node: (load.leaders[node.id], load.replicas[node.id]))
        load.leaders[first.id] += 1
        load.replicas[first.id] += 1
        placed.append(extend([first], able, load, replication_factor))
    return placed


def extend(
    chosen: list[NodeFact], nodes: Sequence[NodeFact], load: Load, replication_factor: int
) -> tuple[int, ...]:
    """Extend the `chosen` replicas up to the replication factor, as far as nodes allow."""
    chosen = list(chosen)
    racks = Counter(node.rack for node in chosen if node.rack)
    rest = [node for node in nodes if node not in chosen]
    while rest and len(chosen) < replication_factor:
        leader = chosen[0].id
        following = min(
            rest,
            key=lambda node: (
                node.is_fenced,
                racks[node.rack],
                load.replicas[node.id],
                load.pairs[leader, node.id],
                node.id,
            ),
        )
        if len(chosen) == 1:
            load.pairs[leader, following.id] += 1
        load.replicas[following.id] += 1
        racks[following.rack] += bool(following.rack)
        chosen.append(following)
        rest.remove(following)
    return tuple(node.id for node in chosen)


def check_assignment(replicas: Sequence[int], nodes: Iterable[int]) -> tuple[int, ...]:
    """Check replicas chosen by hand; raise an error that says what is wrong with them."""
    known = set(nodes)
    if not 1 <= len(replicas) <= REPLICAS_MAX:
        raise InvalidReplicaAssignment(
            f"A partition has from 1 to {REPLICAS_MAX} replicas, not {len(replicas)}."
        )
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(
            f"The replicas {list(replicas)} name a node twice; name each node once."
        )
    unknown = [node for node in replicas if node not in known]
    if unknown:
        raise InvalidReplicaAssignment(
            f"No node {', '.join(map(str, unknown))} is registered; registered nodes: "
            f"{', '.join(map(str, sorted(known))) or 'none'}."
        )
    return tuple(replicas)


def _able(nodes: Sequence[NodeFact], replication_factor: int) -> list[NodeFact]:
    """Return the nodes that may get replicas, also those temporarily down: they will catch up."""
    able = sorted((node for node in nodes if not node.is_draining), key=lambda node: node.id)
    if not 1 <= replication_factor <= REPLICAS_MAX:
        raise InvalidReplicationFactor(
            f"The replication factor must be from 1 to {REPLICAS_MAX}, not {replication_factor}."
        )
    if replication_factor > len(able):
        drained = len(nodes) - len(able)
        hint = f" ({drained} more are being drained)" if drained else ""
        raise InvalidReplicationFactor(
            f"Replication factor {replication_factor} needs as many nodes, but the cluster has "
            f"{len(able)}{hint}; add nodes or request fewer replicas."
        )
    if all(node.is_fenced for node in able):
        raise InvalidReplicationFactor(
            "No live node can lead the partition; retry when one is alive."
        )
    return able
