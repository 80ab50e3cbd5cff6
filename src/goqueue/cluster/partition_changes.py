"""Requested changes of one partition: in-sync sets, elections and moves.

Pure functions from the state to the next state of the partition, or to an error for the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from goqueue.cluster import elections, reassigning, routing
from goqueue.cluster.commands import CopyClaim
from goqueue.cluster.elections import Standing
from goqueue.cluster.facts import NO_LEADER, Change, PartitionFact
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.placement import check_assignment
from goqueue.cluster.topic_changes import allows_unclean
from goqueue.model.errors import (
    ElectionNotNeeded,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    NoEligibleLeader,
    NoReassignment,
    NotLeader,
    PreferredLeaderNotAvailable,
    StalePartitionVersion,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopicId,
)
from goqueue.model.names import TopicPartition


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
    unclean = allows_unclean(metadata, fact.topic_id)
    fact = elections.settled(fact, standing, allows_unclean=unclean)
    fact = reassigning.completed(fact, standing)
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
    return elections.moved_away(reassigning.completed(fact, standing), standing)


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
        return reassigning.completed(chosen, standing)
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
    return reassigning.completed(reassigning.begun(fact, target, standing), standing)


def move_cancelled(metadata: Metadata, fact: PartitionFact) -> PartitionFact:
    if not fact.is_moving:
        raise NoReassignment(name_of(metadata, fact))
    return reassigning.cancelled(fact, Standing(metadata.nodes))


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
