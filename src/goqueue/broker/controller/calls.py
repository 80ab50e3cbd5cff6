"""Routing of commands to the controller: from this node, and from other nodes to this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import msgspec

from goqueue.broker.controller.active_controller import Decided
from goqueue.cluster.commands import ClusterCommand, Result, decode_command, encode_command
from goqueue.loop.peers import Answer, Answered, PeerKind, Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import NotController, RequestTimedOut

_answer_encoder = msgspec.msgpack.Encoder()
_answer_decoder = msgspec.msgpack.Decoder(tuple[int, Result])


class QuorumCalls:
    """Sends a command to the controller once; a node that is not the controller names it."""

    def __init__(
        self,
        node_id: int,
        peers: Peers,
        random: Random,
        *,
        contacts: Iterable[int],
        leader: Callable[[], int | None],
        decide: Callable[[ClusterCommand], Promise[Decided] | None],
    ) -> None:
        """`contacts` are called while no leader is known; `decide` is None on other nodes."""
        self._node_id = node_id
        self._peers = peers
        self._random = random
        self._contacts = [node for node in contacts if node != node_id]
        self._leader = leader
        self._decide = decide
        self._is_stopped = False
        peers.serve(PeerKind.COMMAND, self._serve)

    def add_contacts(self, nodes: Iterable[int]) -> None:
        self._contacts += [
            one for one in nodes if one != self._node_id and one not in self._contacts
        ]

    def stop(self) -> None:
        self._is_stopped = True

    def ask(self, command: ClusterCommand, timeout_ms: int) -> Promise[Decided]:
        """Return the index in the log and the result; raise if it is refused here."""
        if self._is_stopped:
            raise RequestTimedOut("The node is stopping; retry on another node.")
        decided = self._decide(command)
        if decided is not None:
            return decided
        target = self._leader()
        if target is None or target == self._node_id:
            if not self._contacts:
                raise NotController(-1)
            target = self._random.choice(self._contacts)
        done: Promise[Decided] = Promise()

        def answered(answer: Answered | None, error: Exception | None) -> None:
            if answer is None:
                assert error is not None
                done.reject(error)
            else:
                done.resolve(_answer_decoder.decode(answer.head))

        called = self._peers.call(
            target, PeerKind.COMMAND, encode_command(command), timeout_ms=timeout_ms
        )
        called.then(answered)
        return done

    def _serve(self, caller: int, head: bytes, _: memoryview) -> Promise[Answer]:
        decided = self._decide(decode_command(head))
        if decided is None:
            leader = self._leader()
            raise NotController(-1 if leader is None else leader)
        answer: Promise[Answer] = Promise()

        def done(outcome: Decided | None, error: Exception | None) -> None:
            encoded = b"" if error else _answer_encoder.encode(outcome)
            answer.settle(Answer(encoded), error)

        decided.then(done)
        return answer
