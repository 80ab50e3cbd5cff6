"""Who leads a partition: pure steps from one fact about it to the next.

A leader is taken from the in-sync members, for they have everything that is committed. Every step
raises the version, and a change of leader raises the leader epoch; that is what turns away those
who decided on an older state.

A copy that comes back from a power cut may have been cut where its end was torn, and nobody there
can tell a torn write from one that was acknowledged and has rotted. Such a member does not lead by
itself: it claims what it has, and of enough claims the greatest leads. As with votes in Raft, the
copy whose last batch is of the newest epoch, and of those the longest, has all that others have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from goqueue.cluster.facts import NO_LEADER, NOTHING_CLAIMED, Claim, NodeFact, PartitionFact

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
    claims: Mapping[int, Claim] | None = None,
) -> PartitionFact:
    """The next fact about a partition, or the same one when nothing is new."""
    leader = fact.leader if leader is None else leader
    members = fact.in_sync if in_sync is None else in_order(fact, in_sync)
    is_lost = fact.is_lost if is_lost is None else is_lost
    told = fact.claims if claims is None else tuple(sorted(claims.items()))
    if leader != NO_LEADER:
        told = ()  # Whoever follows has from the leader what it lacks.
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
    first that comes back leads, if it is sure of that itself.
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
    """The partition after a node has told what it still has of it.

    A member in sync tells because it is not sure to have everything, others because they are asked.
    """
    if fact.leader != NO_LEADER:
        return fact
    return changed(fact, claims={**fact.claimed, node: claim})


def _fullest(fact: PartitionFact, standing: Standing) -> list[int]:
    """Those with the greatest claim, who have the same; none until enough have told theirs.

    What is committed was on every member of some in-sync set. Whether half of the copies or fewer
    have rotted, more than half of them, all in sync, include one that is whole. With fewer in sync
    everybody has to be heard: who left the set before a record was committed cannot be told any
    more from who left it afterwards. A copy that cannot be opened may have everything, so whoever
    claims nothing has not been heard yet.
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
    """Whether a node is asked what it has of a partition, as soon as it can tell.

    One that is not in sync is, for those who are may lack it; and so is whoever could not open its
    copy when it told of its doubts.
    """
    is_open = fact.leader == NO_LEADER and bool(fact.claims) and not fact.is_lost
    if not is_open or node not in fact.members:
        return False
    claim = fact.claimed.get(node)
    return node not in fact.in_sync if claim is None else claim == NOTHING_CLAIMED


def given_up(fact: PartitionFact, node: int, standing: Standing) -> PartitionFact:
    """The partition after a member has found its copy damaged, led by another if one can.

    It drops what it has from there on and gets it again, for which it must not count as in sync.
    So it stays in sync, with a hole, unless more than half of the copies are in sync without it, or
    the other one of two: they might have holes elsewhere. The new epoch is for the leader to forget
    how far it was.
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
    """Someone alive who has at least a part of the records, or NO_LEADER.

    A replica that is only being added may have nothing yet, and would end the move in its favour.
    """
    alive = [node for node in fact.replicas if standing.is_alive(node)]
    # When the disks of the in-sync members are lost, the others have more than they do.
    alive.sort(key=lambda node: fact.is_lost and node in fact.in_sync)
    claims = fact.claimed
    told = [node for node in alive if claims.get(node, NOTHING_CLAIMED) != NOTHING_CLAIMED]
    if told and not fact.is_lost:
        return max(told, key=lambda node: claims[node])
    return alive[0] if alive else NO_LEADER


def without_disk(fact: PartitionFact, node: int) -> PartitionFact:
    """The partition after a node has lost what it kept of it."""
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
    """The partition led by someone who takes leaders, when its leader no longer does."""
    if fact.leader == NO_LEADER or standing.takes_leaders(fact.leader):
        return fact
    leader = candidate(fact, standing, among=fact.in_sync)
    return changed(fact, leader=leader) if standing.takes_leaders(leader) else fact


def preferred(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """The partition led by the first of its replicas, when that one can."""
    first = (fact.target or fact.replicas)[0]
    is_sure = first in fact.in_sync and first not in fact.claimed and not fact.is_lost
    if is_sure and standing.takes_leaders(first):
        return changed(fact, leader=first)
    return fact
