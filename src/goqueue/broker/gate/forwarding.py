"""Which node must answer an operation, and how the operation gets there.

State that lives on one node at a time, such as the members of a group or the leases of a queue, is
served by that node, and the node that received the call relays the response. An operation is
forwarded only once: two nodes that temporarily disagree about an owner would otherwise send it back
and forth. While there is no owner, or it has just changed, the entry node retries.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Protocol,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import msgspec

from goqueue.broker.gate.operation import NO_OWNER, OPERATIONS, Arguments, Operation
from goqueue.broker.gate.waiting import CANCELLATION
from goqueue.loop.peers import Answer, Answered, PeerKind, Peers
from goqueue.loop.promise import Cancellation, Promise, promised
from goqueue.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GoQueueError,
    NoOwner,
    NotCoordinator,
    RequestTimedOut,
    UnsupportedVersion,
)
from goqueue.model.errors.refusals import Refusal, error_of, refusal_of
from goqueue.model.session import Session

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.topics.topics import Topic

ANSWER_MS = 30_000  # for the owner to answer, in addition to the wait time of the client
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
                self._peers.notify(node, PeerKind.OPERATION, _encode_head(number))

        call.cancellation.on_cancel(cancel)
        called = self._peers.call(
            node,
            PeerKind.OPERATION,
            _encode_head(_Head(number, call.operation.name, call.session)),
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
            timer = clock.call_later(HANDOVER_RETRY_MS, self.attempt)
            cancellation.on_cancel(timer.cancel)
        else:
            self.result.settle(value, error)


# Codecs

_AWAITABLE = (Promise, Awaitable, Coroutine)


@runtime_checkable
class Packed(Protocol):
    """A type that is not plain data, and defines its own encoding."""

    def pack(self) -> Any: ...

    @classmethod
    def unpack(cls, packed: Any) -> Any: ...

    PACKED: ClassVar[Any]  # the type of what `pack` returns


class Portable:
    """Codecs for one operation, built from the annotations of its method at first use."""

    def __init__(self, method: Callable[..., Any]) -> None:
        hints = get_type_hints(method)
        parameters = [
            one
            for one in inspect.signature(method).parameters.values()
            if one.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        self.waits = any(hints[one.name] is Cancellation for one in parameters)
        self._names = [one.name for one in parameters if hints[one.name] is not Cancellation]
        # A tuple has the order of the declaration; every argument is sent.
        kinds = tuple(hints[name] for name in self._names)
        self._defaults = {
            one.name: one.default
            for one in parameters
            if one.default is not inspect.Parameter.empty
        }
        self._arguments = msgspec.msgpack.Decoder(tuple[kinds], dec_hook=_unpack)  # type: ignore[valid-type]
        self._answer = msgspec.msgpack.Decoder(awaited(hints["return"]), dec_hook=_unpack)

    def encode_arguments(self, arguments: Arguments) -> bytes:
        given = {**self._defaults, **arguments}
        return _encode([given[name] for name in self._names])

    def decode_arguments(self, data: memoryview) -> dict[str, Any]:
        return dict(zip(self._names, self._arguments.decode(data), strict=True))

    def encode_answer(self, answer: Any) -> bytes:
        return _encode(answer)

    def decode_answer(self, data: memoryview) -> Any:
        return self._answer.decode(data)


def awaited(kind: Any) -> Any:
    """Return the type of an answer, whether the method returns it or a promise of it."""
    if get_origin(kind) in _AWAITABLE:
        return get_args(kind)[-1]
    return kind


def _pack(value: Any) -> Any:
    if isinstance(value, GoQueueError):
        return refusal_of(value)
    if isinstance(value, Packed):
        return value.pack()
    raise TypeError(f"{type(value).__name__} cannot be sent to another node")


def _unpack(kind: type, value: Any) -> Any:
    if issubclass(kind, GoQueueError):
        return error_of(msgspec.convert(value, Refusal))
    return kind.unpack(msgspec.convert(value, kind.PACKED, dec_hook=_unpack))  # type: ignore[attr-defined]


_encode = msgspec.msgpack.Encoder(enc_hook=_pack).encode
