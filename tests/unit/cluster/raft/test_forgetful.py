"""A node that has lost its disk, and logs that begin with what was known before."""

from __future__ import annotations

from random import Random

import pytest

from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.frames import DamagedQuorumFile
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
from goqueue.cluster.raft.ready import START, HardState, RaftState, Refused
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.cluster.raft.storage import RaftStorage
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


def deliver(source: Raft, target: Raft, now_ms: int) -> None:
    """Save what is to be saved and hand over what is for that one node; all else gets lost."""
    while not (ready := source.take()).is_empty:
        source.saved(ready.token)
        for message in (*ready.messages_now, *ready.messages):
            if message.to == target.node_id:
                target.receive(message, now_ms)


@pytest.mark.parametrize("may_vote", [False, True])
def test_half_fed_it_would_help_to_undo_what_was_committed_if_it_were_let(may_vote: bool) -> None:
    """Entry 2 is committed on nodes 1 and 2. Node 2 loses its disk and is given entry 1 again."""
    voters = Members((1, 2, 3))
    first, second = (Entry(index, 1, EntryKind.PAYLOAD, b"x") for index in (1, 2))
    settings = RaftSettings(append_entries_max=1, appends_in_flight_max=1)

    def started(node: int, entries: list[Entry]) -> Raft:
        state = RaftState.new(voters)
        state.hard, state.entries = HardState(1, None), entries
        return Raft(node, state, settings, Random(node))

    leader, behind = started(1, [first, second]), started(3, [first])
    new = Raft(2, RaftState.new(), settings, Random(2))
    new.may_vote = may_vote
    for node in (leader, behind, new):
        node.tick(0)
    now_ms = 2_500
    leader.tick(now_ms)
    for _ in range(3):
        deliver(leader, behind, now_ms)
        deliver(behind, leader, now_ms)
        if leader.is_leader:
            break
    assert leader.is_leader
    while new.log.last_index < 1:  # until the first entry has come, and no further
        deliver(leader, new, now_ms)
        deliver(new, leader, now_ms)
    assert new.log.last == Position(1, 1)
    # The leader dies. Nodes 2 and 3 are a majority, and neither has entry 2.
    for now_ms in range(5_000, 30_000, 100):
        for one, other in ((behind, new), (new, behind)):
            one.tick(now_ms)
            deliver(one, other, now_ms)
    assert (behind.is_leader or new.is_leader) == may_vote
