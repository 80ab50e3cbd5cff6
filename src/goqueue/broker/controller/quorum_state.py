"""Replication state of the quorum's members, as tracked by its leader."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from goqueue.cluster.raft.core import Raft
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, Answered, PeerKind, Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import NotController

ANSWER_MS = 5_000


class QuorumMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of the quorum; -1 for unknown values."""

    node: int
    end_offset: int
    heard_ms: int  # when it last answered, in wall-clock time
    is_voter: bool


class QuorumState(msgspec.Struct, frozen=True, array_like=True):
    """The metadata log: leader, term, commit position and members."""

    leader: int
    term: int
    commit_offset: int
    members: list[QuorumMember]


class QuorumStates:
    """Returns the progress of the members. Only the leader tracks it, so other nodes call it."""

    def __init__(self, node_id: int, raft: Callable[[], Raft], clock: Clock, peers: Peers) -> None:
        """`raft` returns the current state machine: it is replaced when the members are known."""
        self._node_id = node_id
        self._raft = raft
        self._clock = clock
        self._peers = peers
        peers.serve(PeerKind.QUORUM_STATE, self._serve)

    def find(self) -> Promise[QuorumState]:
        result: Promise[QuorumState] = Promise()
        leader = self._raft().leader_id
        if leader == self._node_id:
            result.resolve(self._here())
        elif leader is None:
            result.reject(NotController(-1))
        else:

            def answered(answer: Answered | None, error: Exception | None) -> None:
                found = None if answer is None else _decoder.decode(answer.head)
                result.settle(found, error)

            call = self._peers.call(leader, PeerKind.QUORUM_STATE, b"", timeout_ms=ANSWER_MS)
            call.then(answered)
        return result

    def _here(self) -> QuorumState:
        """Return the state on the leader."""
        raft, wall_ms = self._raft(), self._clock.wall_ms()
        members = []
        for node in raft.members.all:
            end_offset, heard_ms = -1, -1
            progress = raft.progress_of(node)
            if node == self._node_id:
                end_offset, heard_ms = raft.log.last_index, wall_ms
            elif progress is not None:
                silent_ms = max(0, self._clock.now_ms() - progress.heard_ms)
                end_offset, heard_ms = progress.match_index, wall_ms - silent_ms
            is_voter = node in raft.members.voters
            members.append(QuorumMember(node, end_offset, heard_ms, is_voter))
        return QuorumState(self._node_id, raft.term, raft.log.commit_index, members)

    def _serve(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        answer: Promise[Answer] = Promise()
        leader = self._raft().leader_id
        if leader == self._node_id:
            answer.resolve(Answer(_encoder.encode(self._here())))
        else:
            answer.reject(NotController(-1 if leader is None else leader))
        return answer


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(QuorumState)
