"""Forwards operations to the node that must answer them.

State that lives on one node at a time, such as the members of a group or the leases of a queue, is
served by that node, and the node that received the call relays the response. An operation is
forwarded only once: two nodes that temporarily disagree about an owner would otherwise send it back
and forth. While there is no owner, or it has just changed, the entry node retries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from goqueue.broker.gate.operation import NO_OWNER, OPERATIONS, Operation
from goqueue.broker.gate.portable import Portable
from goqueue.loop.cancellation import Cancellation
from goqueue.loop.peers import Answer, Answered, PeerKind, Peers
from goqueue.loop.promise import Promise, promised
from goqueue.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NoOwner,
    NotCoordinator,
    RequestTimedOut,
    UnsupportedVersion,
)
from goqueue.model.session import Session

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

ANSWER_MS = 30_000  # for the owner to answer, in addition to the wait time of the client
HANDOVER_MS_MAX = 5_000  # longer than it takes to detect that a node has failed
HANDOVER_RETRY_MS = 50
CANCELLATION = "cancellation"  # the argument that is not sent

_MOVING = (NoOwner, NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable)

Perform = Callable[[Session, Operation, Mapping[str, Any]], Promise[Any]]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """A call without its arguments, which are sent separately."""

    number: int  # unique at the sending node, for cancellation
    operation: str
    session: Session


_encode = msgspec.msgpack.Encoder().encode
_head_decoder = msgspec.msgpack.Decoder(_Head)
_number_decoder = msgspec.msgpack.Decoder(int)


class Forwarder:
    """Sends operations to their owners, and performs those that other nodes send."""

    def __init__(self, broker: Broker, peers: Peers, perform: Perform) -> None:
        self.clock = broker.clock
        self._broker = broker
        self._peers = peers
        self._perform = perform
        self._last = 0
        self._portable: dict[str, Portable] = {}
        self._served: dict[tuple[int, int], Callable[[], None]] = {}
        peers.serve(PeerKind.OPERATION, self._serve)
        peers.listen(PeerKind.OPERATION, self._serve_cancel)

    # Sending

    def route(
        self,
        session: Session,
        operation: Operation,
        arguments: Mapping[str, Any],
        perform_here: Callable[[], Promise[Any]],
    ) -> Promise[Any]:
        """Have the owner answer an operation; retry while ownership changes."""
        call = _RoutedCall(self, session, operation, arguments, perform_here)
        call.attempt()
        return call.result

    async def attempt(self, call: _RoutedCall) -> Any:
        """Have the current owner answer a call, once."""
        operation, arguments = call.operation, call.arguments
        if operation.merge is not None:
            others = [self._send(node, call) for node in self._others()]
            here = await call.perform_here()
            # All nodes must answer, or the merged result would be incomplete.
            return operation.merge(arguments, [*[await one for one in others], here])
        assert operation.owner is not None
        owner = operation.owner(self._broker, arguments)
        node = await owner if isinstance(owner, Awaitable) else owner
        if node is None or node == self._broker.node_id:
            return await call.perform_here()
        return await self._send(node, call)

    def _others(self) -> list[int]:
        assert self._broker.cluster is not None
        return [one.id for one in self._broker.cluster.nodes() if one.id != self._broker.node_id]

    def _send(self, node: int, call: _RoutedCall) -> Promise[Any]:
        """Have another node perform an operation; it is notified if the client disconnects."""
        assert self._broker.cluster is not None
        result: Promise[Any] = Promise()
        # A call to a failed node must not wait for it.
        if node == NO_OWNER or not self._broker.cluster.is_there(node):
            result.reject(NoOwner())
            return result
        self._last += 1
        number = self._last
        portable = self._portable_of(call.operation)

        def answered(answer: Answered | None, error: Exception | None) -> None:
            if answer is None:
                result.settle(None, error)
            else:
                result.resolve(portable.decode_answer(answer.body))

        def cancel() -> None:
            if not result.is_done:
                self._peers.notify(node, PeerKind.OPERATION, _encode(number))

        call.cancellation.on_cancel(cancel)
        called = self._peers.call(
            node,
            PeerKind.OPERATION,
            _encode(_Head(number, call.operation.name, call.session)),
            [portable.encode_arguments(call.arguments)],
            timeout_ms=call.arguments.get("wait_ms", 0) + ANSWER_MS,
        )
        called.then(answered)
        return result

    def _portable_of(self, operation: Operation) -> Portable:
        portable = self._portable.get(operation.name)
        if portable is None:
            portable = self._portable[operation.name] = Portable(operation.perform)
        return portable

    # Serving

    def _serve(self, caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        call = _head_decoder.decode(head)
        answer: Promise[Answer] = Promise()
        operation = OPERATIONS.get(call.operation)
        if operation is None:
            answer.reject(
                UnsupportedVersion(
                    f"Node {self._broker.node_id} does not support {call.operation!r}."
                )
            )
            return answer
        portable = self._portable_of(operation)
        arguments = portable.decode_arguments(body)
        cancellation = Cancellation()
        if portable.waits:
            arguments[CANCELLATION] = cancellation
        place = (caller, call.number)

        def done(value: Any, error: Exception | None) -> None:
            if answer.is_done:
                return  # It was cancelled.
            self._served.pop(place, None)
            if error is not None:
                answer.reject(error)
            else:
                answer.resolve(Answer(b"", [portable.encode_answer(value)]))

        def give_up() -> None:
            cancellation.cancel()
            # A cancelled call may never complete, and its entry here would then leak.
            done(None, RequestTimedOut("The client has disconnected."))

        self._served[place] = give_up
        self._perform(call.session, operation, arguments).then(done)
        return answer

    def _serve_cancel(self, caller: int, head: bytes, _: memoryview) -> None:
        give_up = self._served.get((caller, _number_decoder.decode(head)))
        if give_up is not None:
            give_up()


class _RoutedCall:
    """A call on its way to its owner, retried while ownership changes.

    An attempt with an unknown outcome is repeated only if it changes nothing.
    """

    __slots__ = (
        "_deadline_ms",
        "_forwarder",
        "arguments",
        "cancellation",
        "operation",
        "perform_here",
        "result",
        "session",
    )

    def __init__(
        self,
        forwarder: Forwarder,
        session: Session,
        operation: Operation,
        arguments: Mapping[str, Any],
        perform_here: Callable[[], Promise[Any]],
    ) -> None:
        self.session = session
        self.operation = operation
        self.arguments = arguments
        self.perform_here = perform_here
        self.cancellation: Cancellation = arguments.get(CANCELLATION) or Cancellation()
        self.result: Promise[Any] = Promise()
        self._forwarder = forwarder
        self._deadline_ms = forwarder.clock.now_ms() + HANDOVER_MS_MAX

    def attempt(self) -> None:
        promised(self._forwarder.attempt(self)).then(self._done)

    def _done(self, value: Any, error: Exception | None) -> None:
        clock, cancellation = self._forwarder.clock, self.cancellation
        is_lost = self.operation.is_reading and isinstance(error, RequestTimedOut)
        is_wanted = not cancellation.is_cancelled and clock.now_ms() < self._deadline_ms
        if (is_lost or isinstance(error, _MOVING)) and is_wanted:
            timer = clock.call_later(HANDOVER_RETRY_MS, self.attempt)
            cancellation.on_cancel(timer.cancel)
        else:
            self.result.settle(value, error)
