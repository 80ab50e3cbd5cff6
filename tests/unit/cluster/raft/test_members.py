"""Changes of the quorum's members: one at a time, and only such as make sense."""

from __future__ import annotations

from goqueue.cluster.raft import MemberChange, Members, Refused
from goqueue.cluster.raft.members import change_members

MEMBERS = Members((1, 2), (5,))


def _change(change: MemberChange, node: int, members: Members = MEMBERS) -> Members | Refused:
    return change_members(members, change, node, voters_max=3)


def test_a_node_comes_as_a_learner_becomes_a_voter_and_goes() -> None:
    assert _change(MemberChange.ADD_LEARNER, 3) == Members((1, 2), (3, 5))
    assert _change(MemberChange.PROMOTE, 5) == Members((1, 2, 5), ())
    assert _change(MemberChange.REMOVE, 5) == Members((1, 2), ())
    assert _change(MemberChange.REMOVE, 1) == Members((2,), (5,))


def test_what_makes_no_sense_is_refused_with_a_reason() -> None:
    reasons = [
        _change(MemberChange.ADD_LEARNER, 1),
        _change(MemberChange.ADD_LEARNER, 5),
        _change(MemberChange.PROMOTE, 1),
        _change(MemberChange.PROMOTE, 9),
        _change(MemberChange.REMOVE, 9),
        _change(MemberChange.REMOVE, 1, Members((1,), (5,))),
        _change(MemberChange.PROMOTE, 5, Members((1, 2, 3), (5,))),
    ]
    texts = [one.reason for one in reasons if isinstance(one, Refused)]
    assert len(texts) == len(reasons)
    assert "already" in texts[0]
    assert "learner first" in texts[3]
    assert "only voter" in texts[5]
    assert "remove one first" in texts[6]
