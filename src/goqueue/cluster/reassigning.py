"""Moving the replicas of a partition: add the new ones, wait until they are in sync, let go.

Until then the old replicas stay as they are, so that giving up needs nothing but forgetting the
new ones, and nothing that is committed is ever kept by fewer nodes than before. A move may have a
throttle, which ends with it.
"""

from __future__ import annotations

import msgspec

from goqueue.cluster.elections import Standing, candidate
from goqueue.cluster.facts import NO_LEADER, PartitionFact
from goqueue.model.errors import NotEnoughReplicas


def begun(fact: PartitionFact, target: tuple[int, ...], standing: Standing) -> PartitionFact:
    """The partition on its way to the replicas `target`; another way it was on is given up."""
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
    """The partition with the replicas that it had before."""
    fact = _without(fact, set(fact.adding), standing)
    return msgspec.structs.replace(_settled(fact), version=fact.version + 1)


def throttled(
    fact: PartitionFact, bytes_per_second: int, *, before: PartitionFact | None = None
) -> PartitionFact:
    """The partition moving this fast at most; as it was when it does not move.

    `before` is what is known of it, if `fact` is already another.
    """
    if not fact.is_moving or fact.throttle_bytes_per_second == bytes_per_second:
        return fact
    version = (fact if before is None else before).version + 1
    return msgspec.structs.replace(
        fact, throttle_bytes_per_second=bytes_per_second, version=max(version, fact.version)
    )


def completed(fact: PartitionFact, standing: Standing) -> PartitionFact:
    """The partition with its new replicas alone, or as it was when they are not ready."""
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
    """The partition on its way nowhere."""
    return msgspec.structs.replace(
        fact, adding=(), removing=(), target=(), throttle_bytes_per_second=0
    )


def _without(fact: PartitionFact, dropped: set[int], standing: Standing) -> PartitionFact:
    """The partition without nodes that were being added; the version is the caller's to raise."""
    in_sync = tuple(node for node in fact.in_sync if node not in dropped)
    leader = fact.leader
    if leader in dropped:
        leader = candidate(fact, standing, among=in_sync)
    if not in_sync or (leader == NO_LEADER and fact.leader != NO_LEADER):
        raise NotEnoughReplicas(
            "Only the new replicas have all committed records now. Let the move complete, or "
            "retry when one of the former replicas is in sync again."
        )
    return msgspec.structs.replace(
        fact,
        in_sync=in_sync,
        leader=leader,
        leader_epoch=fact.leader_epoch + (leader != fact.leader),
        adding=tuple(node for node in fact.adding if node not in dropped),
    )
