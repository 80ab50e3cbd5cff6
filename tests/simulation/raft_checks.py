"""What must be true of a quorum at every step, whatever happens to it."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from goqueue.cluster.raft import Entry, HardState, Message, Ready
from goqueue.cluster.raft.messages import AppendAnswer, EntryKind, Vote, VoteAnswer

if TYPE_CHECKING:
    from tests.simulation.raft_world import Voter, World


class Checks:
    """Everything that was ever promised, by anyone, in any of its lives."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.leaders: dict[int, int] = {}  # by term
        self.votes: dict[tuple[int, int], int] = {}  # by voter and term
        self.entries: dict[tuple[int, int], tuple[EntryKind, bytes, int]] = {}
        self.committed: list[tuple[int, EntryKind, bytes]] = [(0, EntryKind.NOTHING, b"")]
        self.committing_terms = [0]  # of those who committed each of them
        self.values: list[bytes] = []  # the payloads among them

    def messages(self, messages: list[Message]) -> None:
        """Of everything that leaves a node, as soon as it may."""
        for message in messages:
            self._message(message)

    def stepped(self, node: Voter) -> None:
        """Of a node after every input."""
        if node.raft.is_leader:
            self._one_leader(node)
        if node.raft.commit_index > len(self.committed) - 1:
            self._commit(node)

    def taken(self, node: Voter, ready: Ready) -> None:
        """Of everything that a node asks for."""
        for entry in ready.entries:
            self._log_matching(node, entry)
        self.stepped(node)
        for entry in ready.committed:
            node.applied_index += 1
            assert entry.index == node.applied_index, "applied out of order"
            self._is_committed(entry)

    def _message(self, message: Message) -> None:
        if isinstance(message, Vote):
            self._vote(message.sender, message.term, message.sender)
        elif isinstance(message, VoteAnswer) and message.is_granted:
            self._vote(message.sender, message.term, message.to)
        elif isinstance(message, AppendAnswer) and message.is_accepted:
            node = self.world.voters[message.sender]
            assert message.match_index <= node.durable_index, "promised before it was saved"

    def _vote(self, voter: int, term: int, candidate: int) -> None:
        saved = self.world.voters[voter].durable_hard
        # A later term that came before the save makes up for it: this one is over for good.
        is_saved = saved == HardState(term, candidate) or saved.term > term
        assert is_saved, "voted before it was saved"
        given = self.votes.setdefault((voter, term), candidate)
        assert given == candidate, f"{voter} voted for {given} and {candidate} in term {term}"

    def _one_leader(self, node: Voter) -> None:
        term = node.raft.term
        if term in self.leaders:
            assert self.leaders[term] == node.id, f"{node.id} and another lead in term {term}"
            return
        self.leaders[term] = node.id
        log = node.raft.log
        # A candidate that stood still may find that it has won when later leaders have committed
        # more; it must have what earlier ones have.
        due = bisect_left(self.committing_terms, term)
        assert log.last_index >= due - 1, "the leader lacks committed entries"
        for index in range(log.base.index, due):
            assert log.term_at(index) == self.committed[index][0], "the leader has other entries"

    def _log_matching(self, node: Voter, entry: Entry) -> None:
        """An entry's place and term decide its contents and the entry before it."""
        term_before = node.raft.log.term_at(entry.index - 1)
        if term_before is None:
            return  # It was compacted away since.
        assert term_before <= entry.term
        seen = (entry.kind, entry.payload, term_before)
        known = self.entries.setdefault((entry.index, entry.term), seen)
        assert known == seen, f"two logs differ at {entry.index} of term {entry.term}"

    def _commit(self, node: Voter) -> None:
        """Something is committed that was not before."""
        raft, log = node.raft, node.raft.log
        # A leader that commits its own removal is none any more when this is asked.
        assert self.leaders.get(raft.term) == node.id, "only a leader decides what is committed"
        index = raft.commit_index
        holders = [
            voter
            for voter in raft.members.voters
            if self.world.voters[voter].has_durably(index, log.position_at(index).term)
        ]
        assert len(holders) >= raft.members.majority, f"{index} is saved on {holders} alone"
        assert log.term_at(index) == raft.term, "an entry of an earlier term was counted"
        for entry in log.entries[len(self.committed) - log.base.index - 1 : index - log.base.index]:
            assert entry.index == len(self.committed)
            self.committed.append((entry.term, entry.kind, entry.payload))
            self.committing_terms.append(raft.term)
            if entry.kind is EntryKind.PAYLOAD:
                self.values.append(entry.payload)

    def _is_committed(self, entry: Entry) -> None:
        assert entry.index < len(self.committed), "applied before it was committed"
        known = self.committed[entry.index]
        assert known == (entry.term, entry.kind, entry.payload), "a committed entry has changed"
