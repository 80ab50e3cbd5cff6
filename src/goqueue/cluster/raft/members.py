"""Membership changes: one server at a time, so that old and new majorities overlap."""

from __future__ import annotations

from enum import StrEnum

from goqueue.cluster.raft.messages import MEMBERS_MAX, Members
from goqueue.cluster.raft.ready import Refused


class MemberChange(StrEnum):
    ADD_LEARNER = "add_learner"
    PROMOTE = "promote"  # a learner becomes a voter
    DEMOTE = "demote"  # a voter becomes a learner
    REMOVE = "remove"


def change_members(
    members: Members, change: MemberChange, node: int, *, voters_max: int
) -> Members | Refused:
    """Return the members after one change, or why it is refused."""
    if change is MemberChange.ADD_LEARNER:
        if node in members.all:
            return Refused(f"Node {node} is already a member.")
        if len(members.all) >= MEMBERS_MAX:
            return Refused(f"The quorum has {MEMBERS_MAX} members, the maximum; remove one first.")
        return Members(members.voters, tuple(sorted((*members.learners, node))))
    if node not in members.all:
        return Refused(f"Node {node} is not a member; add it as a learner first.")
    without = Members(
        tuple(voter for voter in members.voters if voter != node),
        tuple(learner for learner in members.learners if learner != node),
    )
    if change is MemberChange.PROMOTE:
        if node in members.voters:
            return Refused(f"Node {node} is already a voter.")
        if len(members.voters) >= voters_max:
            return Refused(f"There are {voters_max} voters, the maximum; remove one first.")
        return Members(tuple(sorted((*without.voters, node))), without.learners)
    if not without.voters:
        return Refused(f"Node {node} is the only voter; promote another one first.")
    if change is MemberChange.DEMOTE:
        if node in members.learners:
            return Refused(f"Node {node} is not a voter.")
        return Members(without.voters, tuple(sorted((*without.learners, node))))
    return without
