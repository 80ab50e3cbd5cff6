"""Changes of partitions: those that are requested, and those that follow from changes of nodes.

Pure functions from the state to the next state of partitions, or to an error for the caller. The
controller decides when to call them.

A move adds the new replicas, waits until they are in sync, then removes the old ones. Until then
the old replicas stay, so that cancelling only removes the new ones, and no committed record is ever
stored on fewer nodes than before. A move may have a throttle, which ends with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from goqueue.cluster import elections, routing, topic_changes
from goqueue.cluster.commands import CopyClaim
from goqueue.cluster.elections import Standing
from goqueue.cluster.facts import NO_LEADER, Change, NodeFact, PartitionFact, PartitionKey
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.placement import check_assignment
from goqueue.model.errors import (
    ElectionNotNeeded,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    NoEligibleLeader,
    NoReassignment,
    NotEnoughReplicas,
    NotLeader,
    PreferredLeaderNotAvailable,
    StalePartitionVersion,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopicId,
)
from goqueue.model.names import TopicPartition

# What is requested


def known(metadata: Metadata, topic_id: bytes, number: int) -> PartitionFact:
    fact = metadata.partitions.get(topic_id, number)
    if fact is None:
        topic = metadata.topic_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(topic_id.hex())
        raise UnknownPartition(TopicPartition(topic.name, number))
    return fact


def name_of(metadata: Metadata, fact: PartitionFact) -> TopicPartition:
    topic = metadata.topic_by_id(fact.topic_id)
    assert topic is not None, "a partition does not outlive its topic"
    return TopicPartition(topic.name, fact.number)


def resolved(metadata: Metadata, fact: PartitionFact, standing: Standing) -> PartitionFact:
    """Complete a pending election or move of the partition, given the live nodes."""
    unclean = topic_changes.allows_unclean(metadata, fact.topic_id)
    fact = elections.settled(fact, standing, allows_unclean=unclean)
    fact = _move_completed(fact, standing)
    return elections.moved_away(fact, standing)


def weighed(
    metadata: Metadata, node: int, copies: Sequence[CopyClaim], standing: Standing
) -> list[PartitionFact]:
    """Return the leaderless partitions of a node that change after it has claimed its replicas.

    A replica without a claim is as trustworthy as it was before.
    """
    told = {(one.topic_id, one.number): one.claim for one in copies}
    after = []
    for fact in metadata.partitions.leaderless():
        if node not in fact.members:
            continue
        claim = told.get(fact.place)
        weighed = fact if claim is None else elections.claimed(fact, node, claim)
        weighed = resolved(metadata, weighed, standing)
        if weighed is not fact:
            after.append(weighed)
    return after


def given_up(metadata: Metadata, fact: PartitionFact, *, node: int, version: int) -> PartitionFact:
    """Return the partition after a node has found its replica damaged."""
    _check_version(metadata, fact, version)
    return elections.given_up(fact, node, Standing(metadata.nodes))


def in_sync_changed(
    metadata: Metadata,
    fact: PartitionFact,
    *,
    node: int,
    in_sync: Collection[int],
    leader_epoch: int,
    version: int,
    incarnations: Mapping[int, bytes],
) -> PartitionFact:
    """Apply the in-sync set proposed by the leader, and complete what it makes possible."""
    check_leader(metadata, fact, node=node, leader_epoch=leader_epoch)
    _check_version(metadata, fact, version)
    if node not in in_sync or len(set(in_sync)) != len(in_sync):
        raise InvalidRequest("An in-sync set must name the leader, and each member once.")
    _check_members(metadata, fact, in_sync, incarnations)
    standing = Standing(metadata.nodes)
    if set(in_sync) == set(fact.in_sync):
        # The leader withdraws an earlier proposal. A duplicate of that may still be in flight, and
        # only a new version makes it stale.
        return msgspec.structs.replace(fact, version=fact.version + 1)
    fact = elections.changed(fact, in_sync=in_sync)
    return elections.moved_away(_move_completed(fact, standing), standing)


def _check_version(metadata: Metadata, fact: PartitionFact, version: int) -> None:
    if version != fact.version:
        raise StalePartitionVersion(
            f"The in-sync set of {name_of(metadata, fact)} was proposed at version {version}, but "
            f"the partition is at {fact.version}; propose again with that."
        )


def check_leader(metadata: Metadata, fact: PartitionFact, *, node: int, leader_epoch: int) -> None:
    """Raise unless the request comes from the current leader."""
    if leader_epoch < fact.leader_epoch:
        raise FencedLeaderEpoch(
            f"{name_of(metadata, fact)} is at leader epoch {fact.leader_epoch}, not {leader_epoch}."
        )
    if leader_epoch > fact.leader_epoch:
        raise UnknownLeaderEpoch(
            f"{name_of(metadata, fact)} is at leader epoch {fact.leader_epoch}; {leader_epoch} is "
            "newer than the controller has decided."
        )
    if node != fact.leader:
        raise NotLeader(name_of(metadata, fact), fact.leader)


def elected(metadata: Metadata, fact: PartitionFact, *, is_unclean: bool) -> PartitionFact:
    """Elect the preferred replica, or any live replica if an unclean election is requested."""
    standing = Standing(metadata.nodes)
    name = name_of(metadata, fact)
    if is_unclean:
        if fact.leader != NO_LEADER:
            raise ElectionNotNeeded(name, fact.leader)
        chosen = elections.settled(fact, standing, allows_unclean=True)
        if chosen.leader == NO_LEADER:
            raise NoEligibleLeader(
                f"No replica of {name} is alive; start one of {list(fact.replicas)}."
            )
        return _move_completed(chosen, standing)
    chosen = elections.preferred(fact, standing)
    first = (fact.target or fact.replicas)[0]
    if chosen is fact:
        if fact.leader == first:
            raise ElectionNotNeeded(name, first)
        raise PreferredLeaderNotAvailable(
            f"Node {first}, preferred leader of {name}, is not in sync, not alive or being drained."
        )
    return chosen


def moved(metadata: Metadata, fact: PartitionFact, replicas: Sequence[int]) -> PartitionFact:
    """Start a move to other replicas, or complete it if they are in sync."""
    standing = Standing(metadata.nodes)
    target = check_assignment(replicas, metadata.nodes)
    return _move_completed(_move_begun(fact, target, standing), standing)


def move_cancelled(metadata: Metadata, fact: PartitionFact) -> PartitionFact:
    if not fact.is_moving:
        raise NoReassignment(name_of(metadata, fact))
    return _move_undone(fact, Standing(metadata.nodes))


def routing_ended(
    metadata: Metadata, topic_id: bytes, *, node: int, told: Mapping[int, tuple[int, int]]
) -> list[Change]:
    """Record where old routing ended: per partition, the sender's leader epoch and the offset."""
    history = metadata.routing.get(topic_id)
    ends: dict[int, int] = {}
    for number, (leader_epoch, end_offset) in told.items():
        fact = known(metadata, topic_id, number)
        check_leader(metadata, fact, node=node, leader_epoch=leader_epoch)
        if end_offset < 0:
            raise InvalidRequest(f"Old routing cannot end at offset {end_offset}.")
        ends[number] = end_offset
    if history is None:
        return []
    old = {number: end for number, end in ends.items() if number < len(history.ended[-1].ends)}
    after = routing.ended_at(history, old)
    return [] if after is history else [after]


def _check_members(
    metadata: Metadata,
    fact: PartitionFact,
    in_sync: Collection[int],
    incarnations: Mapping[int, bytes],
) -> None:
    standing = Standing(metadata.nodes)
    name = name_of(metadata, fact)
    for member in in_sync:
        if member not in fact.members:
            raise IneligibleReplica(f"Node {member} has no replica of {name}.")
        node = metadata.nodes.get(member)
        if node is None or not standing.is_alive(member):
            raise IneligibleReplica(f"Node {member} is fenced and cannot be in sync for {name}.")
        if member not in fact.in_sync and node.is_stopping:
            raise IneligibleReplica(f"Node {member} is about to stop.")
        if incarnations.get(member, node.incarnation) != node.incarnation:
            raise IneligibleReplica(
                f"Node {member} has restarted since it was seen in sync for {name}."
            )


# What follows from changes of nodes, and as time passes


def nodes_left(
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
        fact = resolved(metadata, fact, standing)
        if fact is not keeping[place]:
            after.append(fact)
    return after


def node_trusted(
    metadata: Metadata, fact: NodeFact, integrity: Sequence[CopyClaim]
) -> list[Change]:
    """Return a node that is unfenced, and the partitions that only it makes electable."""
    standing = Standing({**metadata.nodes, fact.id: fact})
    return [fact, *weighed(metadata, fact.id, integrity, standing)]


def node_drained(metadata: Metadata, fact: NodeFact) -> list[Change]:
    """Return a node whose drain state has changed, and the partitions whose leader moves.

    Leaders move away from a node that is drained, and to a node that no longer is from nodes that
    lead only because no other could.
    """
    standing = Standing({**metadata.nodes, fact.id: fact})
    kept = metadata.partitions.of_node(fact.id)
    moved = [(one, elections.moved_away(one, standing)) for one in kept]
    return [fact, *(after for one, after in moved if after is not one)]


def all_resolved(metadata: Metadata, facts: Iterable[PartitionFact]) -> list[PartitionFact]:
    """Return those partitions whose pending election or move can be completed, completed."""
    standing = Standing(metadata.nodes)
    pairs = ((fact, resolved(metadata, fact, standing)) for fact in facts)
    return [after for fact, after in pairs if after is not fact]


def tidied(metadata: Metadata) -> list[PartitionFact]:
    """Return what should have been decided as soon as it became possible, as a safety net."""
    partitions = metadata.partitions
    unwilling = [node for node in metadata.nodes.values() if not node.takes_leaders]
    facts = {fact.place: fact for fact in (*partitions.leaderless(), *partitions.moving())}
    for node in unwilling:
        facts.update((fact.place, fact) for fact in partitions.led_by(node.id))
    return all_resolved(metadata, facts.values())


def rebalanced(
    metadata: Metadata, internal_topics: Sequence[str], *, moves_max: int
) -> list[Change]:
    """Return leaders to preferred replicas, and spread internal topics over more nodes."""
    standing = Standing(metadata.nodes)
    changed: dict[PartitionKey, Change] = {}
    for fact in metadata.partitions.strayed():
        after = elections.preferred(fact, standing)
        if after is not fact:
            changed[fact.place] = after
            if len(changed) >= moves_max:
                break
    for fact, target in topic_changes.internal_moves(metadata, internal_topics):
        if fact.place not in changed:
            changed[fact.place] = moved(metadata, fact, target)
    return [*changed.values(), *topic_changes.internal_secured(metadata, internal_topics)]


# Steps of a move


def _move_begun(fact: PartitionFact, target: tuple[int, ...], standing: Standing) -> PartitionFact:
    """Start a move to the replicas `target`; a move already in progress is abandoned."""
    if target == (fact.target or fact.replicas):
        return fact
    if target == fact.replicas:
        return _move_undone(fact, standing)
    adding = tuple(node for node in target if node not in fact.replicas)
    dropped = set(fact.adding) - set(adding)
    fact = _without_nodes(fact, dropped, standing)
    return msgspec.structs.replace(
        fact,
        adding=adding,
        removing=tuple(node for node in fact.replicas if node not in target),
        target=target,
        version=fact.version + 1,
    )


def _move_undone(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """Restore the replicas from before the move."""
    fact = _without_nodes(fact, set(fact.adding), standing)
    return msgspec.structs.replace(_without_move(fact), version=fact.version + 1)


def move_throttled(
    fact: PartitionFact, bytes_per_second: int, *, before: PartitionFact | None = None
) -> PartitionFact:
    """Set the throttle of a move; a partition that is not moving is unchanged.

    `before` is the committed state, if `fact` already differs from it.
    """
    if not fact.is_moving or fact.throttle_bytes_per_second == bytes_per_second:
        return fact
    version = (fact if before is None else before).version + 1
    return msgspec.structs.replace(
        fact, throttle_bytes_per_second=bytes_per_second, version=max(version, fact.version)
    )


def _move_completed(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """Complete the move if the new replicas are in sync; otherwise return it unchanged."""
    if not fact.is_moving or fact.leader == NO_LEADER:
        return fact
    in_sync = tuple(node for node in fact.target if node in fact.in_sync)
    if not in_sync or any(node not in in_sync for node in fact.adding):
        return fact
    after = msgspec.structs.replace(_without_move(fact), replicas=fact.target, in_sync=in_sync)
    leader = fact.leader
    if leader not in in_sync:
        leader = elections.candidate(after, standing, among=in_sync)
    if leader == NO_LEADER:
        return fact
    return msgspec.structs.replace(
        after,
        leader=leader,
        leader_epoch=fact.leader_epoch + (leader != fact.leader),
        version=fact.version + 1,
    )


def _without_move(fact: PartitionFact) -> PartitionFact:
    """Clear the move."""
    return msgspec.structs.replace(
        fact, adding=(), removing=(), target=(), throttle_bytes_per_second=0
    )


def _without_nodes(fact: PartitionFact, dropped: set[int], standing: Standing) -> PartitionFact:
    """Remove nodes that were being added; the caller raises the version."""
    in_sync = tuple(node for node in fact.in_sync if node not in dropped)
    leader = fact.leader
    if leader in dropped:
        leader = elections.candidate(fact, standing, among=in_sync)
    if not in_sync or (leader == NO_LEADER and fact.leader != NO_LEADER):
        raise NotEnoughReplicas(
            "Only the new replicas have all committed records. Let the move complete, or "
            "retry when one of the former replicas is in sync again."
        )
    return msgspec.structs.replace(
        fact,
        in_sync=in_sync,
        leader=leader,
        leader_epoch=fact.leader_epoch + (leader != fact.leader),
        adding=tuple(node for node in fact.adding if node not in dropped),
    )
