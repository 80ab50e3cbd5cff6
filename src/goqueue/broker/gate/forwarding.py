"""Which node must answer an operation, and how the operation gets there.

State that lives on one node at a time, such as the members of a group or the leases of a queue, is
served by that node, and the node that received the call relays the response. An operation is
forwarded only once: two nodes that temporarily disagree about an owner would otherwise send it back
and forth. While there is no owner, or it has just changed, the entry node retries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import (
    TYPE_CHECKING,
    Any,
)

import msgspec

from goqueue.broker.gate.levels import operation_level
from goqueue.broker.gate.operation import NO_OWNER, OPERATIONS, Arguments, Operation
from goqueue.broker.gate.portable import Portable
from goqueue.broker.gate.waiting import CANCELLATION
from goqueue.loop.peers import Answer, PeerKind, Peers, read_answer
from goqueue.loop.promise import Cancellation, Promise, promised
from goqueue.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GoQueueError,
    LimitReached,
    NoOwner,
    NotCoordinator,
    RequestTimedOut,
    UnsupportedVersion,
    UpgradeInProgress,
)
from goqueue.model.session import Session
from goqueue.model.support import LEVEL_MAX

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.topics.topics import Topic

ANSWER_MS = 30_000  # for the owner to answer, in addition to the wait time of the client
# For each node, if the result may do without it: a person waits for it.
PARTIAL_ANSWER_MS = 2_000
HANDOVER_MS_MAX = 5_000  # longer than it takes to detect that a node has failed
HANDOVER_RETRY_MS = 50

_MOVING = (NoOwner, NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable)

Coordinators = dict[str, int | GoQueueError]  # a node for each name, or the error
Perform = Callable[[Session, Operation, Arguments], Promise[Any]]


# Owners


def coordinator(broker: Broker, arguments: Arguments) -> int:
    """Return the coordinator of a group name, which can check whether a stream group has it."""
    return broker.groups.coordinator_of(arguments["group"])


def coordinator_of_call(broker: Broker, arguments: Arguments) -> int:
    """Return the coordinator for an operation whose argument `call` names the group."""
    return broker.groups.coordinator_of(arguments["call"].group_id)


coordinator_of_call.__name__ = coordinator.__name__  # as the page of all operations shows it


def owner_of_group(broker: Broker, arguments: Arguments) -> int:
    """Return the owner of a group of either kind."""
    queue_groups, name = broker.queues.groups, arguments["group"]
    if queue_groups.is_known(name):
        return queue_groups.owner_of(name)
    return broker.groups.coordinator_of(name)


async def find_coordinators(
    broker: Broker,
    listener: str,
    topic: Topic,
    partition_of: Callable[[str], int],
    names: Iterable[str],
) -> dict[str, int]:
    """Return the coordinator of each name, -1 if there is none.

    Waits a short time until every coordinator has an address at the client's listener.
    """
    numbers = {name: partition_of(name) for name in names}

    def node_of(number: int) -> int:
        leader = broker.placement(topic, number).leader
        return leader if _is_reachable(broker, leader, listener) else NO_OWNER

    await broker.topics.internal.until(
        lambda: all(node_of(number) != NO_OWNER for number in numbers.values())
    )
    return {name: node_of(number) for name, number in numbers.items()}


def _is_reachable(broker: Broker, node: int, listener: str) -> bool:
    cluster = broker.cluster
    if cluster is None:
        return node == broker.node_id
    return any(
        one.id == node and listener in one.addresses and cluster.is_there(node)
        for one in cluster.nodes()
    )


# Forwarding


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """A call without its arguments, which are sent separately."""

    number: int  # unique at the sending node, for cancellation
    operation: str
    session: Session


_encode_head = msgspec.msgpack.Encoder().encode
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
        arguments: Arguments,
        perform_here: Callable[[], Promise[Any]],
    ) -> Promise[Any]:
        """Have the owner answer an operation; retry while ownership changes."""
        call = _RoutedCall(self, session, operation, arguments, perform_here)
        call.attempt()
        return call.result

    async def attempt(self, call: _RoutedCall) -> Any:
        """Have the current owner answer a call, once."""
        operation, arguments = call.operation, call.arguments
        if operation.is_partial:
            return await self._merge_available(call)
        if operation.merge is not None:
            # Nodes of an older release have nothing of what the operation is about.
            known = [node for node in self._others() if self._knows(node, operation)]
            others = [self._send(node, call) for node in known]
            here = await call.perform_here()
            # All nodes must answer, or the merged result would be incomplete.
            return operation.merge(arguments, [*[await one for one in others], here])
        assert operation.owner is not None
        owner = operation.owner(self._broker, arguments)
        node = await owner if isinstance(owner, Awaitable) else owner
        if node is None or node == self._broker.node_id:
            return await call.perform_here()
        return await self._send(node, call)

    async def _merge_available(self, call: _RoutedCall) -> Any:
        """Merge the answers of those nodes that have one."""
        operation, answers = call.operation, []
        assert operation.merge is not None
        others = [self._send(node, call, answer_ms=PARTIAL_ANSWER_MS) for node in self._others()]
        here = await call.perform_here()
        for one in others:
            try:
                answers.append(await one)
            except GoQueueError:
                continue  # The node is away, or does not know the operation yet.
        return operation.merge(call.arguments, [*answers, here])

    def _others(self) -> list[int]:
        assert self._broker.cluster is not None
        return [one.id for one in self._broker.cluster.nodes() if one.id != self._broker.node_id]

    def _send(self, node: int, call: _RoutedCall, *, answer_ms: int = ANSWER_MS) -> Promise[Any]:
        """Have another node perform an operation; it is notified if the client disconnects."""
        assert self._broker.cluster is not None
        result: Promise[Any]
        # A call to a failed node must not wait for it.
        if node == NO_OWNER or not self._broker.cluster.is_there(node):
            return _rejected(NoOwner())
        self._last += 1
        number = self._last
        portable = self._portable_of(call.operation)
        try:
            arguments = self._arguments_for(node, call, portable)
        except UpgradeInProgress as refused:
            return _rejected(refused)

        def unreadable(problem: str) -> GoQueueError:
            return _unanswered(
                call.operation,
                f"Node {node} has answered {call.operation.name} as another release does: "
                f"{problem}. Run the same release on all nodes.",
            )

        def cancel() -> None:
            if not result.is_done:
                self._peers.notify(node, PeerKind.OPERATION, _encode_head(number))

        called = self._peers.call(
            node,
            PeerKind.OPERATION,
            _encode_head(_Head(number, call.operation.name, call.session)),
            [arguments],
            timeout_ms=call.arguments.get("wait_ms", 0) + answer_ms,
        )
        result = read_answer(
            called, lambda answer: portable.decode_answer(answer.body), unreadable=unreadable
        )
        call.cancellation.on_cancel(cancel)
        return result

    def _arguments_for(self, node: int, call: _RoutedCall, portable: Portable) -> bytes:
        """Encode the arguments for a node; raise UpgradeInProgress if it lacks the operation."""
        level, name = self._level_of(node), call.operation.name
        needed = operation_level(name)
        if level < needed:
            raise UpgradeInProgress(
                f"Node {node} must answer {name}, and its release does not know it; retry after "
                "its upgrade."
            )
        return portable.encode_arguments(call.arguments, level)

    def _level_of(self, node: int) -> int:
        """Return the newest feature level that both this node and another support."""
        assert self._broker.cluster is not None
        return min(LEVEL_MAX, self._broker.cluster.support_of(node).level_max)

    def _knows(self, node: int, operation: Operation) -> bool:
        return self._level_of(node) >= operation_level(operation.name)

    def _portable_of(self, operation: Operation) -> Portable:
        portable = self._portable.get(operation.name)
        if portable is None:
            portable = self._portable[operation.name] = Portable(operation.perform, operation.name)
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
                self._answer(answer, operation, value, caller)

        def give_up() -> None:
            cancellation.cancel()
            # A cancelled call may never complete, and its entry here would then leak.
            done(None, RequestTimedOut("The client has disconnected."))

        self._served[place] = give_up
        self._perform(call.session, operation, arguments).then(done)
        return answer

    def _answer(
        self, answer: Promise[Answer], operation: Operation, value: Any, caller: int
    ) -> None:
        """Answer a node in the form that its release knows."""
        try:
            encoded = self._portable_of(operation).encode_answer(value, self._level_of(caller))
        except UpgradeInProgress as error:
            answer.reject(_unanswered(operation, str(error)))
        except MemoryError:
            # Anything but an error of the call would end the connection between the nodes.
            answer.reject(
                LimitReached("This node has no memory left for such an answer; ask for less.")
            )
        else:
            answer.resolve(Answer(b"", [encoded]))

    def _serve_cancel(self, caller: int, head: bytes, _: memoryview) -> None:
        give_up = self._served.get((caller, _number_decoder.decode(head)))
        if give_up is not None:
            give_up()


def _rejected(error: GoQueueError) -> Promise[Any]:
    promise: Promise[Any] = Promise()
    promise.reject(error)
    return promise


def _unanswered(operation: Operation, reason: str) -> GoQueueError:
    """Return the error for a call that was performed, but whose answer cannot be passed on."""
    if operation.is_reading:
        return UpgradeInProgress(reason)
    # Clients take this error for an unknown outcome, and do not simply repeat a change after it.
    return RequestTimedOut(
        f"{reason} {operation.name} may have been carried out; check before you repeat it."
    )


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
        arguments: Arguments,
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

            def retry() -> None:
                cancellation.on_cancel(_nothing_waits)
                self.attempt()

            timer = clock.call_later(HANDOVER_RETRY_MS, retry)

            def give_up() -> None:
                timer.cancel()
                self.result.settle(None, error)

            cancellation.on_cancel(give_up)
        else:
            self.result.settle(value, error)


def _nothing_waits() -> None:
    """An attempt is running, which says itself how to cancel it."""
