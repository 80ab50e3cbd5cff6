"""Calls to the controller: commands, linearizable reads, and the state of the quorum.

A command is decided on the node that is the controller, here or elsewhere. It resolves on the
calling node when its decision has been applied there too, so that the caller sees its effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import msgspec

from goqueue.broker.controller.active_controller import Decided
from goqueue.broker.controller.metadata import AppliedMetadata
from goqueue.broker.controller.node import Environment
from goqueue.cluster.commands import (
    CatchUp,
    ClusterCommand,
    DeleteTopic,
    Result,
    UnregisterNode,
    decode_command,
    encode_command,
)
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.ready import Ready
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, PeerKind, Peers, read_answer
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    GoQueueError,
    NotController,
    RequestTimedOut,
    UnknownNode,
    UnknownTopic,
)

COMMAND_TIMEOUT_MS = 30_000  # long enough for one or two elections
CALL_TIMEOUT_MS = 5_000  # per attempt; then another node may lead
RETRY_MS = 100
WAITING_MAX = 10_000  # commands of this node in flight
STATE_TIMEOUT_MS = 5_000  # for the state of the quorum

_answer_encoder = msgspec.msgpack.Encoder()
_answer_decoder = msgspec.msgpack.Decoder(tuple[int, Result])


@dataclass(slots=True)
class _Request:
    """A command that is retried until it is decided or times out."""

    command: ClusterCommand
    promise: Promise[Result]
    deadline_ms: int
    attempts: int = 0


class ControllerCalls:
    """Sends commands to the controller; a node that is not the controller names it."""

    def __init__(
        self,
        raft: Raft,
        applied: AppliedMetadata,
        environment: Environment,
        *,
        decide: Callable[[ClusterCommand], Promise[Decided] | None],
    ) -> None:
        """`decide` passes a command to the controller on this node; it returns None elsewhere."""
        self._raft = raft
        self._applied = applied
        self._clock = environment.clock
        self._peers = environment.peers
        self._random = environment.random
        self._decide = decide
        self._contacts: list[int] = []
        self._count = 0  # requests in flight
        self._is_stopped = False
        self._peers.serve(PeerKind.COMMAND, self._serve)

    def add_contacts(self, nodes: Iterable[int]) -> None:
        """Add nodes to call while no leader is known."""
        known = {self._raft.node_id, *self._contacts}
        self._contacts += [node for node in nodes if node not in known]

    def stop(self) -> None:
        self._is_stopped = True

    # Once

    def ask_once(self, command: ClusterCommand, *, timeout_ms: int) -> Promise[None]:
        """Send a command once, without retries, because it will be repeated anyway."""
        done: Promise[None] = Promise()
        try:
            asked = self._ask(command, timeout_ms)
        except GoQueueError as error:
            done.reject(error)
        else:
            asked.then(lambda _, error: done.settle(None, error))
        return done

    def catch_up(self, *, timeout_ms: int) -> Promise[None]:
        """Resolve when this node has applied everything decided before the call; tried once."""
        done: Promise[None] = Promise()

        def answered(decided: Decided | None, error: Exception | None) -> None:
            if decided is None:
                assert error is not None
                done.reject(error)
            else:
                self._applied.when_applied(decided[0]).then(done.settle)

        try:
            self._ask(CatchUp(), timeout_ms).then(answered)
        except GoQueueError as error:
            done.reject(error)
        return done

    def _ask(self, command: ClusterCommand, timeout_ms: int) -> Promise[Decided]:
        """Return the index in the log and the result; raise if it is refused here."""
        if self._is_stopped:
            raise RequestTimedOut("The node is stopping; retry on another node.")
        decided = self._decide(command)
        if decided is not None:
            return decided
        called = self._peers.call(
            self._target(), PeerKind.COMMAND, encode_command(command), timeout_ms=timeout_ms
        )
        return read_answer(called, lambda answer: _answer_decoder.decode(answer.head))

    def _target(self) -> int:
        """Return the presumed controller, or a node that may know it."""
        leader = self._raft.leader_id
        if leader is not None and leader != self._raft.node_id:
            return leader
        if not self._contacts:
            raise NotController(-1)
        return self._random.choice(self._contacts)

    # With retries

    def request(self, command: ClusterCommand) -> Promise[Result]:
        """Request a decision; resolves when it is in effect on this node."""
        promise: Promise[Result] = Promise()
        if self._count >= WAITING_MAX:
            promise.reject(RequestTimedOut("Too many commands wait for the controller; retry."))
            return promise
        self._count += 1
        promise.then(self._done)
        deadline_ms = self._clock.now_ms() + COMMAND_TIMEOUT_MS
        self._attempt(_Request(command, promise, deadline_ms))
        return promise

    def _done(self, _: Result, error: Exception | None) -> None:
        self._count -= 1

    def _attempt(self, request: _Request) -> None:
        request.attempts += 1
        try:
            self._ask(request.command, CALL_TIMEOUT_MS).then(partial(self._decided, request))
        except GoQueueError as error:
            self._decided(request, None, error)

    def _decided(self, request: _Request, decided: Decided | None, error: Exception | None) -> None:
        if error is None:
            assert decided is not None
            index, result = decided
            applied = self._applied.when_applied(index)
            applied.then(lambda _, late: request.promise.settle(None if late else result, late))
            return
        is_passing = isinstance(error, NotController | RequestTimedOut)
        if is_passing and self._clock.now_ms() < request.deadline_ms and not self._is_stopped:
            self._clock.call_later(RETRY_MS, partial(self._attempt, request))
        elif _is_done_before(request, error):
            request.promise.resolve(None)
        else:
            request.promise.reject(error)

    # Commands of other nodes

    def _serve(self, caller: int, head: bytes, _: memoryview) -> Promise[Answer]:
        decided = self._decide(decode_command(head))
        if decided is None:
            raise _not_controller(self._raft)
        answer: Promise[Answer] = Promise()

        def done(outcome: Decided | None, error: Exception | None) -> None:
            encoded = b"" if error else _answer_encoder.encode(outcome)
            answer.settle(Answer(encoded), error)

        decided.then(done)
        return answer


def _is_done_before(request: _Request, error: Exception) -> bool:
    """Return whether an earlier attempt, whose answer was lost, already did what is refused now."""
    command = request.command
    return request.attempts > 1 and (
        (isinstance(command, DeleteTopic) and isinstance(error, UnknownTopic))
        or (isinstance(command, UnregisterNode) and isinstance(error, UnknownNode))
    )


def _not_controller(raft: Raft) -> NotController:
    return NotController(-1 if raft.leader_id is None else raft.leader_id)


class QuorumReads:
    """Linearizable reads of the commit index (Raft's ReadIndex), pending on the leader.

    The leader confirms with a majority that it still leads before it answers. So a node that has
    applied the log up to the answer has everything that was decided before the request.
    """

    def __init__(self, raft: Raft, clock: Clock, wake: Callable[[], None]) -> None:
        """`wake` runs Raft soon."""
        self._raft = raft
        self._clock = clock
        self._wake = wake
        self._count = 0
        self._waiting: dict[int, Promise[Decided]] = {}  # bounded by Raft

    def ask(self) -> Promise[Decided]:
        """Return an index up to which everything was committed when this was called, or later."""
        done: Promise[Decided] = Promise()
        self._count += 1
        refusal = self._raft.read(self._count, self._clock.now_ms())
        if refusal is not None:
            done.reject(NotController(-1))
            return done
        self._waiting[self._count] = done
        self._wake()
        return done

    def settle(self, ready: Ready) -> None:
        """Resolve confirmed reads; the committed entries that came with them are applied."""
        for read in ready.reads:
            self._waiting.pop(read.context).resolve((read.index, None))
        for context in ready.reads_lost:
            lost = self._waiting.pop(context, None)
            if lost is not None:
                lost.reject(NotController(-1))

    def give_up(self) -> None:
        """Fail all pending reads because this node no longer leads; callers retry elsewhere."""
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done.reject(NotController(-1))


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


_state_encoder = msgspec.msgpack.Encoder()
_state_decoder = msgspec.msgpack.Decoder(QuorumState)


class QuorumStates:
    """Returns the progress of the members. Only the leader tracks it, so other nodes call it."""

    def __init__(self, raft: Raft, clock: Clock, peers: Peers) -> None:
        self._raft = raft
        self._clock = clock
        self._peers = peers
        peers.serve(PeerKind.QUORUM_STATE, self._serve)

    def find(self) -> Promise[QuorumState]:
        result: Promise[QuorumState] = Promise()
        leader = self._raft.leader_id
        if leader == self._raft.node_id:
            result.resolve(self._here())
        elif leader is None:
            result.reject(NotController(-1))
        else:
            call = self._peers.call(leader, PeerKind.QUORUM_STATE, b"", timeout_ms=STATE_TIMEOUT_MS)
            return read_answer(call, lambda answer: _state_decoder.decode(answer.head))
        return result

    def _here(self) -> QuorumState:
        """Return the state on the leader."""
        raft, wall_ms = self._raft, self._clock.wall_ms()
        members = []
        for node in raft.members.all:
            end_offset, heard_ms = -1, -1
            progress = raft.progress_of(node)
            if node == raft.node_id:
                end_offset, heard_ms = raft.log.last_index, wall_ms
            elif progress is not None:
                silent_ms = max(0, self._clock.now_ms() - progress.heard_ms)
                end_offset, heard_ms = progress.match_index, wall_ms - silent_ms
            is_voter = node in raft.members.voters
            members.append(QuorumMember(node, end_offset, heard_ms, is_voter))
        return QuorumState(raft.node_id, raft.term, raft.log.commit_index, members)

    def _serve(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        answer: Promise[Answer] = Promise()
        if self._raft.leader_id == self._raft.node_id:
            answer.resolve(Answer(_state_encoder.encode(self._here())))
        else:
            answer.reject(_not_controller(self._raft))
        return answer
