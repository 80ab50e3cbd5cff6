"""Refusals that several memberships share."""

from __future__ import annotations

from goqueue.model.errors import FencedInstance, GroupFull, LimitReached, RebalanceInProgress


def rebalance_in_progress(group_id: str) -> RebalanceInProgress:
    return RebalanceInProgress(f"Group {group_id!r} is rebalancing; join again.")


def group_full(group_id: str, size_max: int) -> GroupFull:
    return GroupFull(f"Group {group_id!r} already has {size_max} members, its limit.")


def too_many_groups(count_max: int) -> LimitReached:
    return LimitReached(
        f"There are {count_max} other groups, the limit of one partition of the offsets topic "
        "(setting groups.per_partition_max); delete some."
    )


def fenced_instance(group_id: str, instance_id: str) -> FencedInstance:
    return FencedInstance(
        f"Another member of group {group_id!r} took over the instance id {instance_id!r}."
    )
