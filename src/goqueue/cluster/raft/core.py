"""Raft as a pure state machine: time and messages in, work to be done out.

It keeps the log identical on all members, and never lets two nodes lead in one term. It opens no
file and no connection and reads no clock: the driver calls an input, then `take`, and performs the
`Ready`. No decision depends on the clocks of two nodes agreeing; time only decides when to try.

A promise (a vote, or the acknowledgement of an entry) is sent only after it is on disk, and the
node counts its own promise only then. So a crash looks to the others like a delay.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from goqueue.cluster.raft.following import Following
from goqueue.cluster.raft.leading import Leadership, Progress
from goqueue.cluster.raft.log import RaftLog
from goqueue.cluster.raft.members import MemberChange, change_members
from goqueue.cluster.raft.messages import (
    COUNTER_JUMP_MAX,
    COUNTER_MAX,
    Append,
    AppendAnswer,
    EntryKind,
    Members,
    Message,
    PreVote,
    PreVoteAnswer,
    SnapshotAnswer,
    SnapshotChunk,
    StandNow,
    Vote,
    VoteAnswer,
    encode_members,
)
from goqueue.cluster.raft.ready import (
    START,
    HardState,
    NotLeader,
    Outbox,
    Proposal,
    RaftState,
    Ready,
    Refused,
)
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.model.errors import MalformedRequest


class Role(StrEnum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"  # checks whether it could win, without disrupting the leader
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(slots=True)
class _Saving:
    """A Ready that is being written to disk."""

    token: int
    hard_state: HardState
    generation: int
    last_index: int


class Raft:
    def __init__(
        self, node_id: int, state: RaftState, settings: RaftSettings, random: Random
    ) -> None:
        self.node_id = node_id
        self.settings = settings
        self.log = RaftLog(state)
        self.role = Role.FOLLOWER
        self.leader_id: int | None = None
        # A node that has lost its disk was a voter and may have lost its promises. Its driver lets
        # it vote again once the removal of its former registration is in the log.
        self.may_vote = True
        self.elections = 0  # how often it was a candidate
        self._random = random
        self._hard = self._hard_taken = self._hard_saved = state.hard
        self._outbox = Outbox()
        self._following = Following(node_id, self.log, self._outbox, settings)
        self._leadership: Leadership | None = None
        self._ayes: set[int] = set()
        self._reads_lost: list[int] = []
        self._saving: deque[_Saving] = deque()
        self._token = 0
        self._now_ms: int | None = None
        self._clock_behind_ms = 0  # total amount by which the caller's clock has been set back
        self._heard_leader_ms = 0
        self._election_due_ms = 0

    def begin(self, members: Members) -> None:
        """Set the initial members of a new log, once they are agreed on and saved."""
        assert self._now_ms is None, "the members are set before anything else happens"
        self.log.begin(members)

    # State

    @property
    def term(self) -> int:
        return self._hard.term

    @property
    def vote(self) -> int | None:
        return self._hard.vote

    @property
    def is_leader(self) -> bool:
        return self._leadership is not None

    @property
    def members(self) -> Members:
        return self.log.members

    @property
    def commit_index(self) -> int:
        return self.log.commit_index

    @property
    def is_settled(self) -> bool:
        """Return whether this node leads and may change the members, without a transfer."""
        leadership = self._leadership
        return (
            leadership is not None
            and leadership.transfer_to is None
            and leadership.has_committed
            and self.log.members_index <= self.log.commit_index
        )

    @property
    def due_ms(self) -> int:
        """Return when `tick` has something to do next."""
        if self._leadership is not None:
            return self._leadership.heartbeat_due_ms - self._clock_behind_ms
        return self._election_due_ms - self._clock_behind_ms

    def lag_of(self, node: int) -> int | None:
        """Return how many committed entries a member lacks; None unless this node leads it."""
        if self._leadership is None or node not in self._leadership.followers:
            return None
        return self._leadership.lag_of(node)

    def progress_of(self, node: int) -> Progress | None:
        """Return the progress of a member, if this node leads and has it."""
        return None if self._leadership is None else self._leadership.followers.get(node)

    # Inputs

    def tick(self, now_ms: int) -> None:
        """Advance the time. A sole voter stands for election at once."""
        is_first = self._now_ms is None
        now_ms = self._advance(now_ms)
        if self._leadership is not None:
            if self._leadership.has_majority(now_ms):
                self._leadership.tick(now_ms)
            else:
                self._become_follower(self.term, None)
        elif now_ms >= self._election_due_ms or (
            is_first and self.members.voters == (self.node_id,)
        ):
            self._seek_election()

    def receive(self, message: Message, now_ms: int) -> None:
        now_ms = self._advance(now_ms)
        if message.to != self.node_id:
            raise MalformedRequest(
                f"Node {self.node_id} received a message for node {message.to}; check the "
                "addresses of the peers."
            )
        self._check_jump(message)
        if isinstance(message, PreVote):
            self._answer_pre_vote(message)
        elif isinstance(message, Vote) and self._is_led() and not message.is_transfer:
            pass  # A disconnected or removed node does not depose a working leader.
        # A voter that grants a pre-vote may not have reached this term; its answer names the asked
        # term.
        elif message.term < self.term and not isinstance(message, PreVoteAnswer):
            self._answer_latecomer(message)
        else:
            if message.term > self.term:
                self._become_follower(message.term, None)
            self._receive_in_term(message, now_ms)

    def _check_jump(self, message: Message) -> None:
        """Refuse terms and indexes that no cluster can have reached while this node was away."""
        if self.term and message.term > self.term + COUNTER_JUMP_MAX:
            raise MalformedRequest(
                f"Node {message.sender} sent term {message.term}, but this node is in term "
                f"{self.term}; so many elections are not possible."
            )
        if isinstance(message, SnapshotChunk) and self.log.last_index:
            jump = message.last.index - self.log.last_index
            if jump > COUNTER_JUMP_MAX:
                raise MalformedRequest(
                    f"Node {message.sender} sent a snapshot up to {message.last.index}, but this "
                    f"node has {self.log.last_index}; so many entries are not possible."
                )

    def miss(self, node: int, now_ms: int) -> None:
        """Note that a node seems to be gone. If it leads, start an election early.

        If the leader is alive after all, its next message makes it the leader here again, and until
        then the nodes that receive its heartbeats refuse to elect another.
        """
        now_ms = self._advance(now_ms)
        if self._leadership is None and node == self.leader_id:
            self.leader_id = None
            soon_ms = now_ms + self._random.randrange(self.settings.gone_ms)
            self._election_due_ms = min(self._election_due_ms, soon_ms)

    def propose(self, payload: bytes, now_ms: int) -> Proposal | NotLeader | Refused:
        self._advance(now_ms)
        if self._leadership is None:
            return NotLeader(self.leader_id)
        return self._leadership.refusal(len(payload)) or self._leadership.append(
            EntryKind.PAYLOAD, payload
        )

    def propose_members(
        self, change: MemberChange, node: int, now_ms: int
    ) -> Proposal | NotLeader | Refused:
        """Propose a change of one member. The new list takes effect once it is in the log."""
        self._advance(now_ms)
        leadership = self._leadership
        if leadership is None:
            return NotLeader(self.leader_id)
        # An earlier leader may have started a change whose commit is not known here, and two
        # changes at once could have majorities that do not overlap.
        if not leadership.has_committed or self.log.members_index > self.log.commit_index:
            return Refused("Another membership change is not committed yet; retry when it is.")
        members = change_members(self.members, change, node, voters_max=self.settings.voters_max)
        if isinstance(members, Refused):
            return members
        if change is MemberChange.PROMOTE:
            lag = leadership.lag_of(node)
            if lag > self.settings.promotion_lag_max:
                return Refused(f"Node {node} lacks {lag} entries; retry when it has caught up.")
        payload = encode_members(members)
        return leadership.refusal(len(payload)) or leadership.append(EntryKind.MEMBERS, payload)

    def read(self, context: int, now_ms: int) -> NotLeader | Refused | None:
        """Request a read index; a later `Ready` has the answer."""
        self._advance(now_ms)
        if self._leadership is None:
            return NotLeader(self.leader_id)
        return self._leadership.read(context)

    def transfer(self, to: int, now_ms: int) -> NotLeader | Refused | None:
        """Transfer the leadership; it stays here if that takes longer than an election timeout."""
        now_ms = self._advance(now_ms)
        if self._leadership is None:
            return NotLeader(self.leader_id)
        if to == self.node_id or to not in self.members.voters:
            return Refused(f"Node {to} is not another voter; choose one of {self.members.voters}.")
        self._leadership.transfer(to, now_ms)
        return None

    def compact(self, index: int, data: bytes) -> None:
        """Replace the log up to `index` by `data`, the state after the entry at `index`.

        Only entries that were handed out as committed can be compacted.
        """
        if len(data) > self.settings.snapshot_bytes_max:
            raise ValueError(
                f"A snapshot of {len(data)} bytes is larger than the "
                f"{self.settings.snapshot_bytes_max} that a follower would accept."
            )
        assert index <= self.log.handed_out_index, "compacted before it was applied"
        if index > self.log.snapshot.last.index:
            self.log.compact(index, data, entries_kept=self.settings.entries_kept)

    def saved(self, token: int) -> None:
        """Note that the Ready with this token, and all before it, are on disk."""
        while self._saving and self._saving[0].token <= token:
            saving = self._saving.popleft()
            self._hard_saved = saving.hard_state
            self.log.note_saved(saving.generation, saving.last_index)
        if self.role is Role.CANDIDATE and self._is_term_saved():
            self._count_aye(self.node_id)
        if self._leadership is not None:
            self._leadership.commit_what_a_majority_has()
            self._resign_if_removed()

    def take(self) -> Ready:
        """Return everything to be done since the last call."""
        ready = Ready()
        if self._leadership is not None:
            self._leadership.flush()
            ready.reads = self._leadership.take_reads()
        ready.reads_lost, self._reads_lost = self._reads_lost, []
        self.log.take(ready, committed_max=self.settings.committed_entries_max)
        if self._hard != self._hard_taken or ready.snapshot is not None:
            ready.hard_state = self._hard_taken = self._hard
        ready.messages_now, ready.messages = self._outbox.take()
        if not ready.has_writes and not self._saving:
            ready.messages_now += ready.messages
            ready.messages = []
        self._token += 1
        ready.token = self._token
        if ready.needs_saving:
            self._saving.append(
                _Saving(self._token, self._hard, self.log.generation, self.log.last_index)
            )
        return ready

    # Elections

    def _seek_election(self) -> None:
        """Start a pre-vote: check whether an election could be won before disrupting the leader."""
        self.leader_id = None
        self._postpone_election()
        if not self._may_stand():
            self.role = Role.FOLLOWER
            return
        self.role = Role.PRE_CANDIDATE
        self._ayes = set()
        for voter in self._other_voters():
            self._outbox.send_now(PreVote(self.node_id, voter, self.term, self.log.last))
        self._count_aye(self.node_id)

    def _may_stand(self) -> bool:
        """Return whether this node is a voter, or was one until a change that may be uncommitted.

        It may be the only node that has the entry that removes it, and then no other can win.
        """
        has_room = self.term < COUNTER_MAX and self.log.last_index < COUNTER_MAX
        return (self.may_vote and has_room) and any(
            self.node_id in members.voters for members in self.log.possible_members()
        )

    def _stand(self, *, is_transfer: bool) -> None:
        """Become a candidate in a new term. The node's own vote counts once it is on disk."""
        self.elections += 1
        self._hard = HardState(self.term + 1, self.node_id)
        self.role = Role.CANDIDATE
        self.leader_id = None
        self._ayes = set()
        self._postpone_election()
        for voter in self._other_voters():
            self._outbox.send_after_saving(
                Vote(self.node_id, voter, self.term, self.log.last, is_transfer)
            )

    def _count_aye(self, voter: int) -> None:
        self._ayes.add(voter)
        if len(self._ayes.intersection(self.members.voters)) < self.members.majority:
            return
        if self.role is Role.PRE_CANDIDATE:
            self._stand(is_transfer=False)
        else:
            self._lead()

    def _lead(self) -> None:
        assert self._now_ms is not None
        self.role = Role.LEADER
        self.leader_id = self.node_id
        self._leadership = Leadership(
            self.node_id,
            self.term,
            self.log,
            self._outbox,
            self.settings,
            now_ms=self._now_ms,
        )

    def _become_follower(self, term: int, leader_id: int | None) -> None:
        if term > self.term:
            self._hard = HardState(term, None)
        if self._leadership is not None:
            self._reads_lost += [done.context for done in self._leadership.take_reads()]
            self._reads_lost += self._leadership.unfinished_reads()
            self._leadership = None
            self._postpone_election()
        self.role = Role.FOLLOWER
        self.leader_id = leader_id

    def _is_led(self) -> bool:
        """Return whether this node leads or has received a message of a leader recently."""
        assert self._now_ms is not None
        if self._leadership is not None:
            return True
        silent_ms = self._now_ms - self._heard_leader_ms
        return self.leader_id is not None and silent_ms < self.settings.election_ms

    def _is_blank(self) -> bool:
        """Return whether the node has no state, so that it may have lost promises it made."""
        return not self.may_vote or (not self.members.all and self.log.last == START)

    def _answer_pre_vote(self, message: PreVote) -> None:
        is_granted = (
            message.term >= self.term
            and not self._is_led()
            and not self._is_blank()
            and self.log.is_behind_or_equal(message.last)
        )
        self._outbox.send_now(
            PreVoteAnswer(self.node_id, message.sender, self.term, message.term, is_granted)
        )

    def _answer_vote(self, message: Vote) -> None:
        is_granted = (
            self.vote in (None, message.sender)
            and not self._is_blank()
            and self.log.is_behind_or_equal(message.last)
        )
        answer = VoteAnswer(self.node_id, message.sender, self.term, is_granted)
        if is_granted:
            self._hard = HardState(self.term, message.sender)
            self.role = Role.FOLLOWER
            self._postpone_election()
            self._outbox.send_after_saving(answer)
        else:
            self._outbox.send_now(answer)

    # Messages

    def _receive_in_term(self, message: Message, now_ms: int) -> None:
        if isinstance(message, Append):
            self._follow(message.sender, now_ms)
            self._following.receive_append(message, is_term_saved=self._is_term_saved())
        elif isinstance(message, SnapshotChunk):
            self._follow(message.sender, now_ms)
            self._following.receive_chunk(message, is_term_saved=self._is_term_saved())
        elif isinstance(message, Vote):
            self._answer_vote(message)
        elif isinstance(message, VoteAnswer):
            if self.role is Role.CANDIDATE and message.is_granted:
                self._count_aye(message.sender)
        elif isinstance(message, PreVoteAnswer):
            is_for_this = message.asked_term == self.term and message.is_granted
            if self.role is Role.PRE_CANDIDATE and is_for_this:
                self._count_aye(message.sender)
        elif isinstance(message, StandNow):
            is_voter = self.node_id in self.members.voters
            if self.role is Role.FOLLOWER and is_voter and self._may_stand():
                self._stand(is_transfer=True)
        elif self._leadership is not None:
            if isinstance(message, AppendAnswer):
                self._leadership.receive_append_answer(message, now_ms)
            elif isinstance(message, SnapshotAnswer):
                self._leadership.receive_snapshot_answer(message, now_ms)
            self._resign_if_removed()

    def _answer_latecomer(self, message: Message) -> None:
        """Inform a leader or candidate of an earlier term that its term is over."""
        if isinstance(message, Append | SnapshotChunk):
            refused = message.previous.index if isinstance(message, Append) else 0
            self._outbox.send_now(
                AppendAnswer(self.node_id, message.sender, self.term, 0, False, 0, refused, START)
            )
        elif isinstance(message, Vote):
            self._outbox.send_now(VoteAnswer(self.node_id, message.sender, self.term, False))

    def _follow(self, leader_id: int, now_ms: int) -> None:
        if self._leadership is not None:
            raise AssertionError(
                f"Nodes {leader_id} and {self.node_id} both lead in term {self.term}; one of them "
                "has lost its persisted vote. Stop it and replace it under a new id."
            )
        self._become_follower(self.term, leader_id)
        self._heard_leader_ms = now_ms
        self._postpone_election()

    # Helpers

    def _is_term_saved(self) -> bool:
        return self._hard_saved == self._hard

    def _resign_if_removed(self) -> None:
        """Step down once the leader's own removal is committed, and transfer to another voter."""
        leadership = self._leadership
        if leadership is None or self.log.members_index > self.log.commit_index:
            return
        if self.node_id not in self.members.voters:
            leadership.flush()
            leadership.resign()
            self._become_follower(self.term, None)

    def _other_voters(self) -> list[int]:
        return [voter for voter in self.members.voters if voter != self.node_id]

    def _advance(self, now_ms: int) -> int:
        """Advance the time and return it as counted here.

        The caller's clock may be set back, even by an hour. Then no time passes at that moment, and
        time advances normally from there.
        """
        if self._now_ms is None:
            self._now_ms = now_ms
            self._postpone_election()
        behind_ms = self._now_ms - (now_ms + self._clock_behind_ms)
        if behind_ms > 0:
            self._clock_behind_ms += behind_ms
        self._now_ms = now_ms + self._clock_behind_ms
        return self._now_ms

    def _postpone_election(self) -> None:
        assert self._now_ms is not None
        election_ms = self.settings.election_ms
        self._election_due_ms = self._now_ms + election_ms + self._random.randrange(election_ms)
