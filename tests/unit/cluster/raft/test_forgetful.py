"""A node that has lost its disk, and logs that begin with what was known before."""

from __future__ import annotations

from random import Random

import pytest

from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.members import MemberChange, change_members
from goqueue.cluster.raft.messages import (
    Append,
    Entry,
    EntryKind,
    Members,
    Position,
    PreVote,
    PreVoteAnswer,
    StandNow,
    Vote,
    VoteAnswer,
    encode_members,
)
from goqueue.cluster.raft.ready import START, RaftState, Refused
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.cluster.raft.storage import DamagedQuorumFile, RaftStorage
from tests.simulation.disk import SimulatedDisk

FOLDER = "meta/quorum"


def forgetful() -> Raft:
    """Node 2, which the leader still counts as a voter and has begun to feed."""
    raft = Raft(2, RaftState.new(), RaftSettings(), Random(1))
    raft.may_vote = False
    members = Entry(1, 1, EntryKind.MEMBERS, encode_members(Members((1, 2, 3))))
    raft.receive(Append(1, 2, 1, START, [members], 1, 0), 0)
    raft.saved(raft.take().token)
    assert raft.members.voters == (1, 2, 3)
    return raft


def test_it_votes_for_nobody_and_does_not_stand_itself() -> None:
    raft = forgetful()
    now_ms = 60_000
    raft.tick(now_ms)
    raft.receive(PreVote(3, 2, 1, Position(9, 1)), now_ms)
    raft.receive(Vote(3, 2, 2, Position(9, 1), False), now_ms)
    raft.receive(StandNow(3, 2, 2), now_ms)
    ready = raft.take()
    answers = [*ready.messages_now, *ready.messages]
    assert {type(one) for one in answers} == {PreVoteAnswer, VoteAnswer}
    assert not any(one.is_granted for one in answers)  # type: ignore[union-attr]


def test_it_votes_again_when_it_is_let() -> None:
    raft = forgetful()
    raft.may_vote = True
    raft.tick(60_000)
    raft.take()
    raft.receive(Vote(3, 2, 2, Position(9, 1), False), 60_000)
    answers = raft.take().messages
    assert [one.is_granted for one in answers if isinstance(one, VoteAnswer)] == [True]


def test_a_voter_is_made_a_learner_unless_it_is_the_only_one() -> None:
    members = Members((1, 2, 3), (4,))
    assert change_members(members, MemberChange.DEMOTE, 2, voters_max=9) == Members((1, 3), (2, 4))
    for node, given in ((4, members), (1, Members((1,), (2,)))):
        assert isinstance(change_members(given, MemberChange.DEMOTE, node, voters_max=9), Refused)


def test_a_log_that_begins_with_data_is_sent_to_those_who_join_as_a_snapshot() -> None:
    disk = SimulatedDisk(Random(1))
    state = RaftStorage(disk, FOLDER).begin(Members((1,)), b"facts")
    assert state.snapshot.last > START, "whoever has nothing must not agree with it"
    raft = Raft(1, state, RaftSettings(), Random(1))
    raft.tick(0)
    while not (ready := raft.take()).is_empty:
        raft.saved(ready.token)
    raft.propose_members(MemberChange.ADD_LEARNER, 2, 0)
    joining = Raft(2, RaftState.new(), RaftSettings(), Random(2))
    restored = None
    for now_ms in range(0, 5_000, 50):
        for one, other in ((raft, joining), (joining, raft)):
            one.tick(now_ms)
            ready = one.take()
            restored = ready.restored or restored
            one.saved(ready.token)
            for message in (*ready.messages_now, *ready.messages):
                other.receive(message, now_ms)
    assert restored is not None
    assert restored.data == b"facts"
    assert joining.commit_index == raft.commit_index


@pytest.mark.parametrize("data", [b"", b"facts"])
def test_a_beginning_that_was_cut_short_is_begun_again(data: bytes) -> None:
    disk = SimulatedDisk(Random(1))
    RaftStorage(disk, FOLDER).begin(Members((1,)), data)
    disk.remove(f"{FOLDER}/snapshot")
    assert RaftStorage(disk, FOLDER).load() is None
    state = RaftStorage(disk, FOLDER).begin(Members((1,)), data)
    loaded = RaftStorage(disk, FOLDER).load()
    assert loaded is not None
    assert loaded.snapshot == state.snapshot


def test_a_log_without_its_snapshot_is_damage_once_something_was_promised() -> None:
    disk = SimulatedDisk(Random(1))
    storage = RaftStorage(disk, FOLDER)
    raft = Raft(1, storage.begin(Members((1,)), b"facts"), RaftSettings(), Random(1))
    raft.tick(0)
    storage.save([raft.take()])
    disk.remove(f"{FOLDER}/snapshot")
    with pytest.raises(DamagedQuorumFile):
        RaftStorage(disk, FOLDER).load()
