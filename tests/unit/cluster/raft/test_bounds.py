"""Whatever a voter believes of what others tell it, it can write down and read back.

One message with a term near the end of what can be stored must not keep a voter from starting
again, or its cluster from electing a leader.
"""

from __future__ import annotations

import random

import pytest

from goqueue.cluster.raft import Entry, EntryKind, Members, Message, Position, decode, encode
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.frames import Frame, encode_frame
from goqueue.cluster.raft.messages import (
    COUNTER_JUMP_MAX,
    COUNTER_MAX,
    Append,
    AppendAnswer,
    PreVote,
    PreVoteAnswer,
    SnapshotAnswer,
    SnapshotChunk,
    StandNow,
    Vote,
    VoteAnswer,
    encode_members,
)
from goqueue.cluster.raft.ready import HardState, RaftState
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.model.errors import MalformedRequest
from tests.simulation.disk import SimulatedDisk

MEMBERS = Members((1, 2, 3))
EXTREMES = [
    *(0, 1, 2, 7, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 8),
    *((1 << 48) - 1, 1 << 48, (1 << 48) + 1, (1 << 53) + 1, (1 << 62), (1 << 63) - 1),
    *((1 << 63), (1 << 64) - 1),
]
SETTINGS = RaftSettings()


class Voter:
    """Node 1 of three, on a disk of its own."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(self.random)
        self.storage = RaftStorage(self.disk, "quorum")
        self.now_ms = 0
        self.raft = self._begin(self.storage.begin(MEMBERS))

    def _begin(self, state: RaftState) -> Raft:
        return Raft(1, state, SETTINGS, self.random)

    def hear(self, message: Message) -> None:
        """Receive what came over the network, if it is a message at all."""
        try:
            heard = decode(encode(message))
            self.raft.receive(heard, self.now_ms)
        except (MalformedRequest, OverflowError):
            pass
        except AssertionError as error:
            assert "both lead" in str(error)  # noqa: PT017  Who forges that is found out.
        self.save()

    def save(self) -> None:
        ready = self.raft.take()
        for message in ready.messages_now + ready.messages:
            assert decode(encode(message)) == message
        self.storage.save([ready])
        self.raft.saved(ready.token)

    def stand(self) -> None:
        """Let the time of the leader run out, and have node 2 agree to an election."""
        self.raft.tick(self.now_ms)  # After a restart the time begins to run here.
        self.now_ms += 3 * SETTINGS.election_ms
        self.raft.tick(self.now_ms)
        self.save()
        term = self.raft.term
        self.hear(PreVoteAnswer(2, 1, term, term, True))
        self.hear(VoteAnswer(2, 1, self.raft.term, True))

    def restart(self) -> None:
        """Read back what was written."""
        hard, entries = (self.raft.term, self.raft.vote), list(self.raft.log.entries)
        self.storage = RaftStorage(self.disk, "quorum")
        state = self.storage.load()
        assert state is not None
        assert (state.hard.term, state.hard.vote) == hard
        assert state.entries == entries
        self.raft = self._begin(state)


def number(source: random.Random) -> int:
    if source.random() < 0.7:
        return source.choice(EXTREMES)
    return source.randrange(1 << source.randrange(1, 64))


def message(source: random.Random, voter: Voter) -> Message:
    """What somebody might send who means harm, or has a fault."""
    term = number(source) if source.random() < 0.6 else voter.raft.term + source.randrange(2)
    place = Position(number(source), min(number(source), term))
    if source.random() < 0.5:
        place = voter.raft.log.last
    entries = [
        Entry(place.index + 1, max(place.term, min(term, number(source))), EntryKind.PAYLOAD, b"x")
    ]
    if source.random() < 0.2:
        payload = encode_members(Members((1, 2, 3), (number(source) % (1 << 31),)))
        entries = [Entry(place.index + 1, term, EntryKind.MEMBERS, payload)]
    made: list[Message] = [
        PreVote(2, 1, term, place),
        PreVoteAnswer(2, 1, term, number(source), True),
        Vote(2, 1, term, place, source.random() < 0.5),
        VoteAnswer(2, 1, term, True),
        Append(2, 1, term, place, entries, number(source), number(source)),
        Append(2, 1, term, place, [], number(source), number(source)),
        AppendAnswer(2, 1, term, number(source), True, number(source), 0, place),
        AppendAnswer(2, 1, term, number(source), False, 0, number(source), place),
        SnapshotChunk(2, 1, term, place, MEMBERS, 1, 0, b"s"),
        SnapshotAnswer(2, 1, term, place, number(source)),
        StandNow(2, 1, term),
    ]
    return source.choice(made)


@pytest.mark.parametrize("seed", range(150))
def test_whatever_a_voter_believes_it_can_read_back(seed: int) -> None:
    voter = Voter(seed)
    for _ in range(40):
        step = voter.random.random()
        if step < 0.85:
            voter.hear(message(voter.random, voter))
        elif step < 0.95:
            voter.stand()
        else:
            voter.restart()
        assert voter.raft.term <= COUNTER_MAX
        assert voter.raft.log.last_index <= COUNTER_MAX
    voter.restart()
    voter.stand()
    voter.restart()


@pytest.mark.parametrize("term", [one for one in EXTREMES if one > 1 << 33])
def test_one_forged_message_does_not_end_the_cluster(term: int) -> None:
    voter = Voter(1)
    voter.stand()
    assert voter.raft.is_leader
    before = voter.raft.term
    if term < 1 << 63:
        voter.hear(Append(2, 1, term, Position(0, 0), [], 0, 0))
        voter.hear(Vote(2, 1, term, Position(term, term), True))
    assert voter.raft.term == before
    voter.restart()
    voter.stand()
    assert voter.raft.is_leader


def test_a_voter_at_the_largest_jump_goes_on() -> None:
    voter = Voter(1)
    voter.stand()
    before = voter.raft.term
    voter.hear(Append(2, 1, before + COUNTER_JUMP_MAX, Position(0, 0), [], 0, 0))
    assert voter.raft.term == before + COUNTER_JUMP_MAX
    voter.restart()
    voter.stand()
    assert voter.raft.is_leader


def test_a_new_node_believes_any_term_and_stands_for_none_beyond_the_last() -> None:
    voter = Voter(1)
    voter.hear(Append(2, 1, COUNTER_MAX, Position(0, 0), [], 0, 0))
    assert voter.raft.term == COUNTER_MAX
    voter.stand()
    assert (voter.raft.term, voter.raft.is_leader) == (COUNTER_MAX, False)
    voter.hear(StandNow(2, 1, COUNTER_MAX))
    assert voter.raft.term == COUNTER_MAX
    voter.restart()


@pytest.mark.parametrize("wrong", [COUNTER_MAX + 1, (1 << 63) - 1, 1 << 63, -1])
def test_nothing_is_written_that_could_not_be_read_back(wrong: int) -> None:
    for frame in (
        Frame(HardState(wrong, None), []),
        Frame(None, [Entry(wrong, 1, EntryKind.PAYLOAD, b"")]),
        Frame(None, [Entry(1, wrong, EntryKind.PAYLOAD, b"")]),
        Frame(HardState(1, None), [], Position(wrong, 1)),
    ):
        with pytest.raises(ValueError, match="not from 0"):
            encode_frame(frame, 1)
