"""Reassignment of replicas: add the new ones, wait until they are in sync, remove the old ones.

Until then the old replicas stay, so that cancelling only removes the new ones, and no committed
record is ever stored on fewer nodes than before. A move may have a throttle, which ends with it.
"""

from __future__ import annotations

import msgspec

from goqueue.cluster.elections import Standing, candidate
from goqueue.cluster.facts import NO_LEADER, PartitionFact
from goqueue.model.errors import NotEnoughReplicas


def begun(fact: PartitionFact, target: tuple[int, ...], standing: Standing) -> PartitionFact:
    """Start a move to the replicas `target`; a move already in progress is abandoned."""
    if target == (fact.target or fact.replicas):
        return fact
    if target == fact.replicas:
        return cancelled(fact, standing)
    adding = tuple(node for node in target if node not in fact.replicas)
    dropped = set(fact.adding) - set(adding)
    fact = _without(fact, dropped, standing)
    return msgspec.structs.replace(
        fact,
        adding=adding,
        removing=tuple(node for node in fact.replicas if node not in target),
        target=target,
        version=fact.version + 1,
    )


def cancelled(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """Restore the replicas from before the move."""
    fact = _without(fact, set(fact.adding), standing)
    return msgspec.structs.replace(_settled(fact), version=fact.version + 1)


def throttled(
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


def completed(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """Complete the move if the new replicas are in sync; otherwise return it unchanged."""
    if not fact.is_moving or fact.leader == NO_LEADER:
        return fact
    in_sync = tuple(node for node in fact.target if node in fact.in_sync)
    if not in_sync or any(node not in in_sync for node in fact.adding):
        return fact
    after = msgspec.structs.replace(_settled(fact), replicas=fact.target, in_sync=in_sync)
    leader = fact.leader
    if leader not in in_sync:
        leader = candidate(after, standing, among=in_sync)
    if leader == NO_LEADER:
        return fact
    return msgspec.structs.replace(
        after,
        leader=leader,
        leader_epoch=fact.leader_epoch + (leader != fact.leader),
        version=fact.version + 1,
    )


def _settled(fact: PartitionFact) -> PartitionFact:
    """Clear the move."""
    return msgspec.structs.replace(
        fact, adding=(), removing=(), target=(), throttle_bytes_per_second=0
    )


def _without(fact: PartitionFact, dropped: set[int], standing: Standing) -> PartitionFact:
    """Remove nodes that were being added; the caller raises the version."""
    in_sync = tuple(node for node in fact.in_sync if node not in dropped)
    leader = fact.leader
    if leader in dropped:
        leader = candidate(fact, standing, among=in_sync)
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
