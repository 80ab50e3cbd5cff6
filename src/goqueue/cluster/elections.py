"""Election of partition leaders: pure steps from one state of a partition to the next.

A leader is taken from the in-sync replicas, because they have everything that is committed. Every
step raises the version, and a change of leader raises the leader epoch; this fences those that
decided on an older state.

After a power failure recovery may have truncated a replica at its torn end, and the node cannot
distinguish a torn write from an acknowledged one that was corrupted later. Such a suspect replica
is not elected directly: its node claims what it has, and of enough claims the greatest leads. As
with votes in Raft, the replica whose last batch has the newest epoch, and among those the longest,
has everything that the others have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from goqueue.cluster.facts import NO_LEADER, NOTHING_CLAIMED, Claim, NodeFact, PartitionFact

UNCLEAN_SETTING = "unclean_leader_election_enable"


class Standing:
    """Which nodes may be in sync and which may lead, once `gone` are fenced."""

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
    claims: Mapping[int, Claim] | None = None,
) -> PartitionFact:
    """Return the next state of a partition, or the same object if nothing changes."""
    leader = fact.leader if leader is None else leader
    members = fact.in_sync if in_sync is None else in_order(fact, in_sync)
    is_lost = fact.is_lost if is_lost is None else is_lost
    told = fact.claims if claims is None else tuple(sorted(claims.items()))
    if leader != NO_LEADER:
        told = ()  # Followers get what they lack from the leader.
    if (leader, members, is_lost, told) == (fact.leader, fact.in_sync, fact.is_lost, fact.claims):
        return fact
    return msgspec.structs.replace(
        fact,
        leader=leader,
        in_sync=members,
        is_lost=is_lost,
        claims=told,
        leader_epoch=fact.leader_epoch + (leader != fact.leader),
        version=fact.version + 1,
    )


def in_order(fact: PartitionFact, nodes: Collection[int]) -> tuple[int, ...]:
    """Return the same nodes in the order of preference as leader."""
    return tuple(node for node in fact.members if node in nodes)


def candidate(fact: PartitionFact, standing: Standing, *, among: Collection[int]) -> int:
    """Return the best leader among the given in-sync replicas, or NO_LEADER.

    A node that is being drained is better than none: it is alive and has everything committed.
    """
    if fact.is_lost:
        return NO_LEADER
    able = [node for node in fact.members if node in among and standing.is_alive(node)]
    willing = (node for node in able if standing.takes_leaders(node))
    return next(willing, able[0] if able else NO_LEADER)


def settled(
    fact: PartitionFact, standing: Standing, *, allows_unclean: bool = False
) -> PartitionFact:
    """Remove fenced nodes from leadership and from the in-sync set.

    If all in-sync replicas are gone they stay in the set, since only they have everything: the
    first that returns leads, unless its replica is suspect.
    """
    alive = [node for node in fact.in_sync if standing.is_alive(node)]
    if fact.leader in alive:
        return changed(fact, in_sync=alive)
    for able in ([node for node in alive if node not in fact.claimed], _fullest(fact, standing)):
        leader = candidate(fact, standing, among=able)
        if leader != NO_LEADER:
            return changed(fact, leader=leader, in_sync=able)
    if allows_unclean and (leader := unclean_candidate(fact, standing)) != NO_LEADER:
        return changed(fact, leader=leader, in_sync=[leader], is_lost=False)
    return changed(fact, leader=NO_LEADER)


def claimed(fact: PartitionFact, node: int, claim: Claim) -> PartitionFact:
    """Return the partition after a node has claimed what its replica has.

    In-sync nodes claim because their replica is suspect, others because they were asked to.
    """
    if fact.leader != NO_LEADER:
        return fact
    return changed(fact, claims={**fact.claimed, node: claim})


def _fullest(fact: PartitionFact, standing: Standing) -> list[int]:
    """Return the nodes with the greatest claim, whose logs are equal; none if claims are missing.

    What is committed was on every member of some in-sync set. If at most half of the replicas are
    corrupted, more than half of them, all in sync, include an intact one. With fewer in sync, all
    replicas must claim: one that left the set before a record was committed cannot be distinguished
    from one that left it afterwards. A replica that cannot be opened may have everything, so an
    empty claim does not count.
    """
    claims = {
        node: claim
        for node, claim in fact.claims
        if node in fact.members and claim != NOTHING_CLAIMED
    }
    in_sync = [node for node in fact.in_sync if node in claims]
    if len(in_sync) <= len(fact.replicas) // 2 and len(claims) < len(fact.members):
        return []
    best = max(claims.values())
    return [node for node in claims if claims[node] == best and standing.is_alive(node)]


def is_claim_due(fact: PartitionFact, node: int) -> bool:
    """Return whether a node should claim what it has of a partition as soon as it can.

    A node that is not in sync should, because those in sync may lack records; so should a node that
    could not open its replica when it reported its suspect replicas.
    """
    is_open = fact.leader == NO_LEADER and bool(fact.claims) and not fact.is_lost
    if not is_open or node not in fact.members:
        return False
    claim = fact.claimed.get(node)
    return node not in fact.in_sync if claim is None else claim == NOTHING_CLAIMED


def given_up(fact: PartitionFact, node: int, standing: Standing) -> PartitionFact:
    """Return the partition after a node has found its replica damaged, led by another if possible.

    The node truncates its replica at the damage and fetches the rest again, and must not be in sync
    meanwhile. It stays in sync, with a gap, unless more than half of the replicas are in sync
    without it, or there are just two replicas: the others might have gaps elsewhere. The epoch is
    raised so that the leader discards the position it has recorded for this follower.
    """
    others = [one for one in fact.in_sync if one != node and standing.is_alive(one)]
    leader = candidate(fact, standing, among=others) if fact.leader == node else fact.leader
    if NO_LEADER in (fact.leader, leader):
        return fact
    is_healing = 2 * len(others) > len(fact.replicas) or len(fact.replicas) == 2
    in_sync = [one for one in fact.in_sync if one != node] if is_healing else fact.in_sync
    after = changed(fact, leader=leader, in_sync=in_sync)
    if after is not fact and after.leader == fact.leader:
        after = msgspec.structs.replace(after, leader_epoch=fact.leader_epoch + 1)
    return after


def unclean_candidate(fact: PartitionFact, standing: Standing) -> int:
    """Return a live replica that has at least part of the records, or NO_LEADER.

    A replica that is only being added may be empty, and its election would complete the move.
    """
    alive = [node for node in fact.replicas if standing.is_alive(node)]
    # If the disks of the in-sync replicas are lost, the others have more than they do.
    alive.sort(key=lambda node: fact.is_lost and node in fact.in_sync)
    claims = fact.claimed
    told = [node for node in alive if claims.get(node, NOTHING_CLAIMED) != NOTHING_CLAIMED]
    if told and not fact.is_lost:
        return max(told, key=lambda node: claims[node])
    return alive[0] if alive else NO_LEADER


def without_disk(fact: PartitionFact, node: int) -> PartitionFact:
    """Return the partition after a node has lost its disk."""
    claims = {other: claim for other, claim in fact.claims if other != node}
    fact = changed(fact, claims=claims)
    if node not in fact.in_sync:
        return fact
    others = [member for member in fact.in_sync if member != node]
    leader = NO_LEADER if fact.leader == node else fact.leader
    if others:
        return changed(fact, leader=leader, in_sync=others)
    return changed(fact, leader=NO_LEADER, is_lost=True)


def moved_away(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """Move leadership to a node that takes leaders, if the current leader no longer does."""
    if fact.leader == NO_LEADER or standing.takes_leaders(fact.leader):
        return fact
    leader = candidate(fact, standing, among=fact.in_sync)
    return changed(fact, leader=leader) if standing.takes_leaders(leader) else fact


def preferred(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """Move leadership to the preferred replica, if it can lead."""
    first = (fact.target or fact.replicas)[0]
    is_sure = first in fact.in_sync and first not in fact.claimed and not fact.is_lost
    if is_sure and standing.takes_leaders(first):
        return changed(fact, leader=first)
    return fact
