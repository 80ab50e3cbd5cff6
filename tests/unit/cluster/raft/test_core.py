"""The quorum's rules, one at a time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from goqueue.cluster.raft import (
    Entry,
    EntryKind,
    HardState,
    MemberChange,
    Members,
    NotLeader,
    Position,
    Proposal,
    Raft,
    RaftState,
    Refused,
    Role,
)
from goqueue.cluster.raft.messages import (
    Append,
    AppendAnswer,
    PreVote,
    PreVoteAnswer,
    SnapshotChunk,
    Vote,
    VoteAnswer,
    encode_members,
)
from goqueue.model.errors import MalformedRequest
from tests.unit.cluster.raft.quorum import SETTINGS, Quorum, node_with

START = Position(0, 0)


# Elections


def test_a_sole_voter_leads_as_soon_as_its_vote_is_saved() -> None:
    node = Raft(4, RaftState.new(Members((4,))), SETTINGS, random.Random(0))
    node.tick(1_000)
    ready = node.take()
    assert (node.role, ready.hard_state) == (Role.CANDIDATE, HardState(1, 4))
    node.saved(ready.token)
    assert node.is_leader
    ready = node.take()
    assert [entry.kind for entry in ready.entries] == [EntryKind.NOTHING]
    assert ready.committed == []
    node.saved(ready.token)
    assert [entry.index for entry in node.take().committed] == [1]


def test_a_node_votes_as_soon_as_the_first_members_are_agreed_on() -> None:
    node = Raft(4, RaftState.new(), SETTINGS, random.Random(0))
    assert node.members == Members(())
    node.begin(Members((4,)))
    assert node.members == Members((4,))
    node.tick(1_000)
    assert node.role is Role.CANDIDATE


def test_the_first_members_cannot_be_set_once_time_has_begun() -> None:
    node = Raft(4, RaftState.new(), SETTINGS, random.Random(0))
    node.tick(1_000)
    with pytest.raises(AssertionError):
        node.begin(Members((4,)))


def test_three_voters_elect_one_leader_and_agree() -> None:
    quorum = Quorum(3)
    quorum.run(400)
    [leader] = quorum.leaders()
    proposal = quorum.propose(leader, b"one")
    quorum.settle()
    assert proposal.term == quorum.nodes[leader].term
    assert [quorum.payloads(number) for number in quorum.nodes] == [[b"one"]] * 3
    assert {node.leader_id for node in quorum.nodes.values()} == {leader}


def test_a_vote_leaves_after_it_is_saved_and_is_kept_over_a_restart() -> None:
    node = node_with([])
    node.receive(Vote(1, 0, 5, START, False), 0)
    ready = node.take()
    assert ready.messages_now == []
    assert ready.messages == [VoteAnswer(0, 1, 5, True)]
    assert ready.hard_state == HardState(5, 1)
    again = node_with([], hard=ready.hard_state)
    again.receive(Vote(2, 0, 5, Position(9, 4), False), 0)
    again.receive(Vote(1, 0, 5, START, False), 0)
    assert again.take().messages_now == [VoteAnswer(0, 2, 5, False), VoteAnswer(0, 1, 5, True)]


def test_a_vote_is_saved_also_in_a_term_that_was_known_before() -> None:
    node = node_with([], hard=HardState(5, None))
    node.receive(Vote(1, 0, 5, START, False), 0)
    ready = node.take()
    assert (ready.hard_state, ready.messages) == (HardState(5, 1), [VoteAnswer(0, 1, 5, True)])


@pytest.mark.parametrize(
    ("last", "is_granted"),
    [
        (Position(3, 2), True),
        (Position(4, 2), True),
        (Position(1, 3), True),
        (Position(2, 2), False),
        (Position(9, 1), False),
    ],
)
def test_only_a_log_that_lacks_nothing_gets_votes(last: Position, is_granted: bool) -> None:
    node = node_with([1, 2, 2])
    node.receive(PreVote(1, 0, 2, last), 0)
    node.receive(Vote(1, 0, 5, last, False), 0)
    ready = node.take()
    answers = ready.messages_now + ready.messages
    assert [one.is_granted for one in answers] == [is_granted] * 2  # type: ignore[union-attr]


def test_asking_beforehand_changes_nothing_and_the_cut_off_node_keeps_its_term() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(0)
    quorum.cut = {2}
    quorum.run(2_000)
    assert (quorum.nodes[2].role, quorum.nodes[2].term) == (Role.PRE_CANDIDATE, leader.term)
    quorum.cut = set()
    quorum.run(300)
    assert quorum.leaders() == [0]
    assert {node.term for node in quorum.nodes.values()} == {leader.term}


def test_a_leader_that_is_known_to_be_gone_is_replaced_before_its_silence_counts() -> None:
    quorum = Quorum(3, settings=replace(SETTINGS, election_ms=10_000, gone_ms=100))
    quorum.elect(0)
    quorum.cut = {0}
    for number in (1, 2):
        quorum.nodes[number].miss(0, quorum.now_ms)
    quorum.run(200)
    assert quorum.leaders() in ([0, 1], [0, 2])  # The old one does not know it yet.


def test_whoever_misses_a_leader_that_others_hear_unseats_nobody() -> None:
    quorum = Quorum(3, settings=replace(SETTINGS, gone_ms=20))
    leader = quorum.elect(0)
    quorum.nodes[2].miss(0, quorum.now_ms)
    quorum.nodes[0].miss(0, quorum.now_ms)  # It cannot miss itself,
    quorum.nodes[1].miss(2, quorum.now_ms)  # and who does not lead is missed by nobody.
    assert (quorum.nodes[2].leader_id, quorum.nodes[1].leader_id) == (None, 0)
    quorum.cut = {2}  # So that the leader's next word does not settle it first.
    quorum.run(25)
    assert quorum.nodes[2].role is Role.PRE_CANDIDATE
    quorum.cut = set()
    quorum.run(300)
    assert quorum.leaders() == [0]
    assert {node.term for node in quorum.nodes.values()} == {leader.term}


def test_a_node_of_an_earlier_term_can_help_to_win() -> None:
    quorum = Quorum(2)
    quorum.nodes[0] = node_with([1, 1], voters=2, hard=HardState(6, None))
    quorum.nodes[1] = node_with([1], voters=2, number=1, hard=HardState(5, None))
    quorum.elect(0)
    assert {node.term for node in quorum.nodes.values()} == {7}


def test_a_node_that_hears_its_leader_refuses_to_help_another() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(0)
    last = leader.log.last
    for number in (0, 1):
        node = quorum.nodes[number]
        node.receive(PreVote(2, number, leader.term + 3, last), quorum.now_ms)
        node.receive(Vote(2, number, leader.term + 4, last, False), quorum.now_ms)
        ready = node.take()
        assert ready.messages == []
        assert ready.messages_now == [PreVoteAnswer(number, 2, leader.term, leader.term + 3, False)]
    assert quorum.leaders() == [0]


def test_a_leader_without_a_majority_steps_down_in_time_and_gives_reads_back() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(0)
    quorum.cut = {0}
    assert leader.read(17, quorum.now_ms) is None
    quorum.run(SETTINGS.election_ms + 10)
    assert leader.role is not Role.LEADER
    assert quorum.reads_lost == [17]
    assert leader.propose(b"late", quorum.now_ms) == NotLeader(None)
    quorum.run(400)
    assert len(quorum.leaders()) == 1
    quorum.cut = set()
    quorum.run(400)
    assert len(quorum.leaders()) == 1


def test_a_slow_disk_does_not_look_like_a_dead_node() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(0)
    quorum.run(50)
    quorum.slow = {0, 1, 2}
    quorum.propose(0, b"waits")
    quorum.run(10 * SETTINGS.election_ms)
    assert quorum.leaders() == [0]
    assert quorum.payloads(0) == []
    assert leader.log.commit_index == 1
    quorum.slow = {0}
    quorum.run(50)
    # Two of three have saved it; the leader's own disk is not needed.
    assert quorum.payloads(0) == [b"waits"]


def test_a_clock_that_is_set_back_or_forth_stops_nobody() -> None:
    quorum = Quorum(3)
    quorum.now_ms = 10_000_000
    quorum.elect(0)
    for jump_ms in (-3_600_000, 7_200_000, -60_000):
        quorum.now_ms += jump_ms
        quorum.run(600)
        [leader] = quorum.leaders()
        assert abs(quorum.nodes[leader].due_ms - quorum.now_ms) <= SETTINGS.heartbeat_ms
        quorum.cut = {leader}
        quorum.now_ms -= 5_000
        quorum.run(600)
        assert len(quorum.leaders()) == 1
        assert quorum.leaders() != [leader]
        quorum.cut = set()


def test_a_blank_node_does_not_vote() -> None:
    blank = Raft(7, RaftState.new(), SETTINGS, random.Random(0))
    blank.receive(PreVote(1, 7, 0, Position(5, 1)), 0)
    blank.receive(Vote(1, 7, 3, Position(5, 1), False), 0)
    ready = blank.take()
    answers = ready.messages_now + ready.messages
    assert [one.is_granted for one in answers] == [False, False]  # type: ignore[union-attr]


# The log


def test_a_leader_counts_itself_only_when_it_has_saved() -> None:
    quorum = Quorum(3)
    quorum.elect(0)
    quorum.cut = {2}
    quorum.slow = {0}
    quorum.propose(0, b"one")
    quorum.settle()
    assert quorum.nodes[0].commit_index == 1
    quorum.slow = set()
    quorum.settle()
    assert quorum.payloads(0) == [b"one"]


def test_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    node = node_with([1, 2], hard=HardState(3, None))
    node.tick(0)
    node.tick(1_000)
    node.receive(PreVoteAnswer(1, 0, 3, 3, True), 1_000)
    node.saved(node.take().token)
    node.receive(VoteAnswer(1, 0, 4, True), 1_000)
    assert node.is_leader
    node.take()
    node.receive(AppendAnswer(1, 0, 4, 0, True, 2, 0, START), 1_000)
    node.receive(AppendAnswer(2, 0, 4, 0, True, 2, 0, START), 1_000)
    assert node.commit_index == 0
    node.receive(AppendAnswer(1, 0, 4, 0, True, 3, 0, START), 1_000)
    assert node.commit_index == 0
    node.receive(AppendAnswer(2, 0, 4, 0, True, 3, 0, START), 1_000)
    assert node.commit_index == 3


def test_an_append_is_answered_after_it_is_saved() -> None:
    node = node_with([1])
    entry = Entry(2, 1, EntryKind.PAYLOAD, b"x")
    node.receive(Append(1, 0, 1, Position(1, 1), [entry], 0, 6), 0)
    ready = node.take()
    assert (ready.entries, ready.messages_now) == ([entry], [])
    assert ready.messages == [AppendAnswer(0, 1, 1, 6, True, 2, 0, START)]
    # A question in between is answered with what is on disk.
    node.receive(Append(1, 0, 1, Position(2, 1), [], 0, 7), 0)
    later = node.take()
    assert later.messages_now == [AppendAnswer(0, 1, 1, 7, True, 1, 0, START)]
    assert later.messages == [AppendAnswer(0, 1, 1, 7, True, 2, 0, START)]
    node.saved(later.token)
    node.receive(Append(1, 0, 1, Position(2, 1), [], 0, 8), 0)
    assert node.take().messages_now == [AppendAnswer(0, 1, 1, 8, True, 2, 0, START)]


def test_a_conflicting_tail_is_replaced_and_a_stale_append_takes_nothing_back() -> None:
    node = node_with([1, 2, 2])
    new = [Entry(2, 3, EntryKind.PAYLOAD, b"a"), Entry(3, 3, EntryKind.PAYLOAD, b"b")]
    node.receive(Append(1, 0, 3, Position(1, 1), new, 0, 0), 0)
    ready = node.take()
    assert (ready.truncate_from, ready.entries) == (2, new)
    node.saved(ready.token)
    node.receive(Append(1, 0, 3, Position(1, 1), new[:1], 0, 0), 0)
    assert node.log.last == Position(3, 3)
    assert node.take().entries == []


def test_a_stale_leader_is_told_and_changes_nothing() -> None:
    node = node_with([1, 2])
    entry = Entry(2, 1, EntryKind.PAYLOAD, b"old")
    node.receive(Append(1, 0, 1, Position(1, 1), [entry], 2, 0), 0)
    ready = node.take()
    [answer] = ready.messages_now
    assert isinstance(answer, AppendAnswer)
    assert (answer.term, answer.is_accepted) == (2, False)
    assert (ready.entries, node.leader_id, node.commit_index) == ([], None, 0)


def test_a_far_diverged_follower_is_found_in_few_steps() -> None:
    quorum = Quorum(3)
    quorum.nodes[0] = node_with([1] * 10 + [5] * 300, hard=HardState(6, None))
    quorum.nodes[1] = node_with([1] * 10 + [2] * 300, number=1, hard=HardState(6, None))
    quorum.nodes[2] = node_with([1] * 10 + [5] * 300, number=2, hard=HardState(6, None))
    quorum.elect(0)
    refusals = [
        one
        for one in quorum.sent
        if isinstance(one, AppendAnswer) and one.sender == 1 and not one.is_accepted
    ]
    assert len(refusals) <= 2
    assert quorum.nodes[1].log.entries == quorum.nodes[0].log.entries
    assert quorum.nodes[1].commit_index == 311


def test_no_more_than_the_window_is_sent_ahead_of_answers() -> None:
    settings = replace(SETTINGS, append_entries_max=2, appends_in_flight_max=3)
    quorum = Quorum(3, settings=settings)
    quorum.elect(0)
    quorum.slow = {2}
    for number in range(40):
        quorum.propose(0, b"%d" % number)
    quorum.settle()
    assert len(quorum.payloads(0)) == 40
    assert quorum.nodes[2].log.last_index == 1 + 6
    quorum.slow = set()
    quorum.run(50)
    assert quorum.payloads(2) == quorum.payloads(0)


def test_proposals_are_bounded_and_refused_with_a_reason() -> None:
    settings = replace(SETTINGS, payload_bytes_max=100, uncommitted_bytes_max=300)
    quorum = Quorum(3, settings=settings)
    leader = quorum.elect(0)
    quorum.cut = {0}
    too_large = leader.propose(bytes(101), quorum.now_ms)
    assert isinstance(too_large, Refused)
    assert "split" in too_large.reason
    outcomes = [leader.propose(bytes(100), quorum.now_ms) for _ in range(3)]
    assert [type(one) for one in outcomes] == [Proposal, Proposal, Refused]
    quorum.cut = set()
    quorum.run(50)
    assert isinstance(leader.propose(bytes(100), quorum.now_ms), Proposal)
    assert quorum.nodes[1].propose(b"x", quorum.now_ms) == NotLeader(0)


def test_a_message_for_another_node_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="addresses"):
        node_with([]).receive(PreVote(1, 2, 0, START), 0)


# Reads


def test_a_read_waits_for_a_majority_that_still_follows() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(0)
    quorum.propose(0, b"one")
    quorum.settle()
    assert leader.read(5, quorum.now_ms) is None
    quorum.work()
    assert quorum.reads == []
    quorum.settle()
    assert [(one.context, one.index) for one in quorum.reads] == [(5, 2)]
    assert quorum.nodes[1].read(6, quorum.now_ms) == NotLeader(0)


def test_a_new_leader_answers_no_read_before_its_first_commit() -> None:
    quorum = Quorum(3)
    quorum.elect(0)
    quorum.propose(0, b"one")
    quorum.settle()
    quorum.slow = {0, 1, 2}
    quorum.cut = set()
    leader = quorum.nodes[1]
    assert quorum.nodes[0].transfer(1, quorum.now_ms) is None
    quorum.settle()
    for number in (1, 0):
        quorum.save(number)
        quorum.settle()
    assert leader.is_leader
    assert leader.read(9, quorum.now_ms) is None
    quorum.settle()
    assert quorum.reads == []
    quorum.slow = set()
    quorum.settle()
    assert [one.context for one in quorum.reads] == [9]


def test_waiting_reads_are_bounded() -> None:
    quorum = Quorum(3, settings=replace(SETTINGS, reads_waiting_max=2))
    leader = quorum.elect(0)
    quorum.cut = {0}
    assert [leader.read(number, quorum.now_ms) for number in range(2)] == [None, None]
    assert isinstance(leader.read(2, quorum.now_ms), Refused)


# Handing over


def test_leadership_is_handed_over_without_waiting_for_a_time_out() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(0)
    quorum.propose(0, b"one")
    assert leader.transfer(2, quorum.now_ms) is None
    assert isinstance(leader.propose(b"two", quorum.now_ms), Refused)
    quorum.settle()
    assert quorum.leaders() == [2]
    assert quorum.payloads(2) == [b"one"]


def test_a_handover_to_a_dead_node_ends_by_itself() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(0)
    quorum.cut = {2}
    quorum.propose(0, b"one")
    assert leader.transfer(2, quorum.now_ms) is None
    quorum.run(SETTINGS.election_ms + 20)
    assert quorum.leaders() == [0]
    assert isinstance(leader.propose(b"two", quorum.now_ms), Proposal)
    assert isinstance(leader.transfer(0, quorum.now_ms), Refused)
    assert isinstance(leader.transfer(9, quorum.now_ms), Refused)


# Snapshots


def test_a_follower_that_is_far_behind_gets_a_snapshot_in_pieces() -> None:
    quorum = Quorum(3, settings=replace(SETTINGS, snapshot_chunk_bytes=10))
    leader = quorum.elect(0)
    quorum.cut = {2}
    for number in range(20):
        quorum.propose(0, b"%d" % number)
    quorum.settle()
    leader.compact(15, b"the state after fifteen entries")
    quorum.propose(0, b"last")
    quorum.settle()
    quorum.cut = set()
    quorum.run(200)
    chunks = [one for one in quorum.sent if isinstance(one, SnapshotChunk)]
    assert len(chunks) >= 4
    [restored] = quorum.restored[2]
    assert restored.data == b"the state after fifteen entries"
    assert [entry.index for entry in quorum.applied[2]] == [1, *range(16, 23)]
    assert quorum.nodes[2].log.saved_index == 22


def test_entries_behind_a_snapshot_are_kept_for_those_a_little_late() -> None:
    quorum = Quorum(3, settings=replace(SETTINGS, entries_kept=5))
    leader = quorum.elect(0)
    quorum.cut = {2}
    quorum.propose(0, b"missed")
    quorum.settle()
    leader.compact(2, b"state")
    quorum.cut = set()
    quorum.run(50)
    assert quorum.payloads(2) == [b"missed"]
    assert quorum.restored[2] == []


@pytest.mark.parametrize(("terms", "last"), [([1, 1, 2, 2, 2], 3), ([1, 1, 3, 3, 3], 5)])
def test_a_snapshot_ends_a_log_that_differs_and_keeps_one_that_does_not(
    terms: list[int], last: int
) -> None:
    node = node_with(terms, hard=HardState(4, None))
    node.receive(SnapshotChunk(1, 0, 4, Position(3, 3), Members((0, 1, 2)), 5, 0, b"state"), 0)
    ready = node.take()
    assert ready.restored is not None
    assert (ready.restored.data, ready.base) == (b"state", Position(3, 3))
    assert [entry.index for entry in ready.entries] == list(range(4, last + 1))
    answers = ready.messages_now + ready.messages
    assert answers == [AppendAnswer(0, 1, 4, 0, True, 3, 0, START)]
    assert (node.commit_index, node.log.last_index) == (3, last)


def test_a_snapshot_too_large_for_followers_is_refused() -> None:
    quorum = Quorum(1, settings=replace(SETTINGS, snapshot_bytes_max=10))
    quorum.run(300)
    with pytest.raises(ValueError, match="larger"):
        quorum.nodes[0].compact(1, bytes(11))


# Members


def test_a_node_learns_votes_and_leaves() -> None:
    quorum = Quorum(3, spares=1)
    leader = quorum.elect(0)
    quorum.propose(0, b"before")
    quorum.settle()
    for change, members in [
        (MemberChange.ADD_LEARNER, Members((0, 1, 2), (3,))),
        (MemberChange.PROMOTE, Members((0, 1, 2, 3))),
        (MemberChange.REMOVE, Members((0, 1, 2))),
    ]:
        assert isinstance(leader.propose_members(change, 3, quorum.now_ms), Proposal)
        quorum.run(50)
        assert leader.members == members
        assert quorum.payloads(3) == [b"before"]


def test_one_change_at_a_time_and_none_before_the_first_commit() -> None:
    quorum = Quorum(3, spares=2)
    leader = quorum.elect(0)
    quorum.cut = {0}
    assert isinstance(leader.propose_members(MemberChange.ADD_LEARNER, 3, 0), Proposal)
    second = leader.propose_members(MemberChange.ADD_LEARNER, 4, 0)
    assert isinstance(second, Refused)
    assert "not committed yet" in second.reason


def test_a_new_leader_changes_no_member_before_its_first_commit() -> None:
    quorum = Quorum(4, spares=1)
    quorum.slow = {1, 2, 3}
    for node in quorum.nodes.values():
        node.tick(0)
    leader = quorum.nodes[0]
    leader.tick(1_000)
    quorum.settle()
    for number in (1, 2):
        quorum.save(number)
        quorum.settle()
    assert (leader.is_leader, leader.commit_index) == (True, 0)
    assert isinstance(leader.propose_members(MemberChange.REMOVE, 3, 1_000), Refused)
    quorum.slow = set()
    quorum.settle()
    assert isinstance(leader.propose_members(MemberChange.REMOVE, 3, 1_000), Proposal)


def test_a_change_of_members_that_is_taken_back_counts_no_more() -> None:
    node = node_with([1])
    change = Entry(2, 1, EntryKind.MEMBERS, encode_members(Members((0, 1))))
    node.receive(Append(1, 0, 1, Position(1, 1), [change], 0, 0), 0)
    assert node.members == Members((0, 1))
    other = Entry(2, 2, EntryKind.NOTHING, b"")
    node.receive(Append(2, 0, 2, Position(1, 1), [other], 0, 0), 0)
    assert node.members == Members((0, 1, 2))


def test_learners_are_not_counted() -> None:
    quorum = Quorum(3, spares=2)
    leader = quorum.elect(0)
    for learner in (3, 4):
        leader.propose_members(MemberChange.ADD_LEARNER, learner, quorum.now_ms)
        quorum.run(50)
    quorum.cut = {1, 2}
    before = leader.commit_index
    quorum.propose(0, b"only learners have it")
    quorum.settle()
    assert quorum.nodes[4].log.last_index == leader.log.last_index == before + 1
    assert leader.commit_index == before


def test_a_learner_that_lags_is_not_promoted() -> None:
    quorum = Quorum(3, spares=1)
    leader = quorum.elect(0)
    quorum.cut = {3}
    leader.propose_members(MemberChange.ADD_LEARNER, 3, quorum.now_ms)
    quorum.settle()
    refused = leader.propose_members(MemberChange.PROMOTE, 3, quorum.now_ms)
    assert isinstance(refused, Refused)
    assert "caught up" in refused.reason


def test_a_leader_that_removes_itself_hands_over() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(0)
    leader.propose_members(MemberChange.REMOVE, 0, quorum.now_ms)
    quorum.settle()
    [successor] = quorum.leaders()
    assert successor != 0
    term = quorum.nodes[successor].term
    quorum.run(2_000)
    assert quorum.leaders() == [successor]
    assert quorum.nodes[successor].term == term


def test_a_node_that_does_not_know_of_its_removal_disturbs_nobody() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(0)
    quorum.cut = {2}
    leader.propose_members(MemberChange.REMOVE, 2, quorum.now_ms)
    quorum.settle()
    quorum.cut = set()
    quorum.run(2_000)
    assert quorum.leaders() == [0]
    assert leader.members == Members((0, 1))
    assert {quorum.nodes[0].term, quorum.nodes[1].term} == {leader.term}


def test_the_last_one_that_has_a_removal_sees_to_its_commit() -> None:
    """Two voters; the leader removes itself, and is cut off before the other has the entry."""
    quorum = Quorum(2)
    leader = quorum.elect(0)
    quorum.cut = {1}
    leader.propose_members(MemberChange.REMOVE, 0, quorum.now_ms)
    quorum.run(500)
    assert quorum.leaders() == []
    quorum.cut = set()
    quorum.run(1_000)
    assert quorum.leaders() == [1]
    assert quorum.nodes[1].members == Members((1,))


def test_a_restarted_node_that_has_the_only_copy_of_its_removal_sees_to_its_commit() -> None:
    """It has forgotten what is committed, so it was a voter in none of the lists it is sure of."""
    members = [Members((0,)), Members((0,), (1,)), Members((0, 1)), Members((0,))]
    quorum = Quorum(2)
    for number, count in ((0, 3), (1, 4)):
        state = RaftState.new(members[0])
        state.hard = HardState(1, 0)
        state.entries = [
            Entry(index, 1, EntryKind.MEMBERS, encode_members(members[index]))
            for index in range(1, count)
        ]
        quorum.nodes[number] = Raft(number, state, SETTINGS, random.Random(number))
    quorum.run(1_000)
    assert quorum.leaders() == [0]
    assert quorum.nodes[0].members == Members((0,))
