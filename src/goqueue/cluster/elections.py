"""Who leads a partition: pure steps from one fact about it to the next.

A leader is taken from the in-sync members, for they have everything that is committed. Every step
raises the version, and a change of leader raises the leader epoch; that is what turns away those
who decided on an older state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from goqueue.cluster.facts import NO_LEADER, NodeFact, PartitionFact

UNCLEAN_SETTING = "unclean_leader_election_enable"


class Standing:
    """Which nodes may be in sync and which may lead, as it will be when `gone` are fenced."""

    __slots__ = ("_gone", "_nodes")

    def __init__(self, nodes: Mapping[int, NodeFact], *, gone: Collection[int] = ()) -> None:
        self._nodes = nodes
        self._gone = gone

    def is_alive(self, node: int) -> bool:
        fact = self._nodes.get(node)
        return fact is not None and not fact.is_fenced and node not in self._gone

    def takes_leaders(self, node: int) -> bool:
        return self.is_alive(node) and self._nodes[node].takes_leaders


def changed(
    fact: PartitionFact,
    *,
    leader: int | None = None,
    in_sync: Collection[int] | None = None,
    is_lost: bool | None = None,
) -> PartitionFact:
    """The next fact about a partition, or the same one when nothing is new."""
    leader = fact.leader if leader is None else leader
    members = fact.in_sync if in_sync is None else in_order(fact, in_sync)
    is_lost = fact.is_lost if is_lost is None else is_lost
    if (leader, members, is_lost) == (fact.leader, fact.in_sync, fact.is_lost):
        return fact
    return msgspec.structs.replace(
        fact,
        leader=leader,
        in_sync=members,
        is_lost=is_lost,
        leader_epoch=fact.leader_epoch + (leader != fact.leader),
        version=fact.version + 1,
    )


def in_order(fact: PartitionFact, nodes: Collection[int]) -> tuple[int, ...]:
    """The same nodes in the order in which they should lead."""
    return tuple(node for node in fact.members if node in nodes)


def candidate(fact: PartitionFact, standing: Standing, *, among: Collection[int]) -> int:
    """The best leader among the in-sync members given, or NO_LEADER.

    A node that is being drained is better than none: it is alive and has all that is committed.
    """
    if fact.is_lost:
        return NO_LEADER
    able = [node for node in fact.members if node in among and standing.is_alive(node)]
    willing = (node for node in able if standing.takes_leaders(node))
    return next(willing, able[0] if able else NO_LEADER)


def settled(
    fact: PartitionFact, standing: Standing, *, allows_unclean: bool = False
) -> PartitionFact:
    """The partition in accord with who is alive: fenced nodes neither lead it nor count for it.

    When all in-sync members are gone they stay in the set, since only they have everything: the
    first that comes back leads.
    """
    alive = [node for node in fact.in_sync if standing.is_alive(node)]
    if fact.leader in alive:
        return changed(fact, in_sync=alive)
    leader = candidate(fact, standing, among=alive)
    if leader != NO_LEADER:
        return changed(fact, leader=leader, in_sync=alive)
    if allows_unclean and (leader := unclean_candidate(fact, standing)) != NO_LEADER:
        return changed(fact, leader=leader, in_sync=[leader], is_lost=False)
    return changed(fact, leader=NO_LEADER)


def unclean_candidate(fact: PartitionFact, standing: Standing) -> int:
    """Someone alive who has at least a part of the records, or NO_LEADER.

    A replica that is only being added may have nothing yet, and would end the move in its favour.
    """
    alive = [node for node in fact.replicas if standing.is_alive(node)]
    # When the disks of the in-sync members are lost, the others have more than they do.
    alive.sort(key=lambda node: fact.is_lost and node in fact.in_sync)
    return alive[0] if alive else NO_LEADER


def without_disk(fact: PartitionFact, node: int) -> PartitionFact:
    """The partition after a node has lost what it kept of it."""
    if node not in fact.in_sync:
        return fact
    others = [member for member in fact.in_sync if member != node]
    leader = NO_LEADER if fact.leader == node else fact.leader
    if others:
        return changed(fact, leader=leader, in_sync=others)
    return changed(fact, leader=NO_LEADER, is_lost=True)


def moved_away(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """The partition led by someone who takes leaders, when its leader no longer does."""
    if fact.leader == NO_LEADER or standing.takes_leaders(fact.leader):
        return fact
    leader = candidate(fact, standing, among=fact.in_sync)
    return changed(fact, leader=leader) if standing.takes_leaders(leader) else fact


def preferred(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """The partition led by the first of its replicas, when that one can."""
    first = (fact.target or fact.replicas)[0]
    if first in fact.in_sync and not fact.is_lost and standing.takes_leaders(first):
        return changed(fact, leader=first)
    return fact
