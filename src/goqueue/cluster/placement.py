"""Where the replicas of new partitions go: apart from each other, and evenly over the nodes.

The same nodes and the same load give the same answer. Racks come first, since they fail together;
then the number of replicas and of leaders that each node has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from goqueue.cluster.facts import NodeFact
from goqueue.cluster.partitions import PartitionTable
from goqueue.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor

REPLICAS_MAX = 15  # each one is a full copy and waits for the slowest


class Load:
    """How much each node has to do, counting what is being placed."""

    __slots__ = ("leaders", "pairs", "replicas")

    def __init__(self, partitions: PartitionTable, nodes: Iterable[int]) -> None:
        known = list(nodes)
        self.replicas = Counter({node: partitions.replica_count(node) for node in known})
        # A leader that is away comes back to what it leads by preference, so partitions that it
        # only leads for now would count wrongly; the difference is small and soon gone.
        self.leaders = Counter({node: partitions.leader_count(node) for node in known})
        # How often a node is the first to follow another; whoever fails, its leaders then spread.
        self.pairs: Counter[tuple[int, int]] = Counter()


def place(
    nodes: Sequence[NodeFact], load: Load, *, partition_count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """The replicas of each new partition; the first of them is to lead."""
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
    """The replicas that are `chosen`, and as many more as are wanted and possible."""
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
    """Replicas that someone has chosen by hand, or an error that says what is wrong with them."""
    known = set(nodes)
    if not 1 <= len(replicas) <= REPLICAS_MAX:
        raise InvalidReplicaAssignment(
            f"A partition has from 1 to {REPLICAS_MAX} replicas, not {len(replicas)}."
        )
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(
            f"The replicas {list(replicas)} name a node twice; each keeps one copy."
        )
    unknown = [node for node in replicas if node not in known]
    if unknown:
        raise InvalidReplicaAssignment(
            f"No node {', '.join(map(str, unknown))} is registered; these are: "
            f"{', '.join(map(str, sorted(known))) or 'none'}."
        )
    return tuple(replicas)


def _able(nodes: Sequence[NodeFact], replication_factor: int) -> list[NodeFact]:
    """The nodes that may get replicas. One that is down for a moment may: it will catch up."""
    able = sorted((node for node in nodes if not node.is_draining), key=lambda node: node.id)
    if not 1 <= replication_factor <= REPLICAS_MAX:
        raise InvalidReplicationFactor(
            f"The replication factor must be from 1 to {REPLICAS_MAX}, not {replication_factor}."
        )
    if replication_factor > len(able):
        drained = len(nodes) - len(able)
        hint = f" ({drained} more are being drained)" if drained else ""
        raise InvalidReplicationFactor(
            f"Replication factor {replication_factor} needs as many nodes, and the cluster has "
            f"{len(able)}{hint}; add nodes or ask for fewer replicas."
        )
    if all(node.is_fenced for node in able):
        raise InvalidReplicationFactor(
            "No node is alive that could lead the partition; retry when one is."
        )
    return able
