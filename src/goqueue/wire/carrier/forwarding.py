"""Requests that another node must answer, sent there whole.

Any node takes any request. What belongs to one node, such as the members of a group or the leases
of a queue, is answered by that node, and the one that was asked passes the answer on. A request
is passed on once: two nodes that disagree about who owns something, as they may for a moment,
would otherwise send it to and fro.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from goqueue.loop.peers import Answer, Answered, PeerKind
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, NoOwner, RequestTimedOut
from goqueue.model.session import Session
from goqueue.wire.carrier.calls import Call, Raw, Request
from goqueue.wire.carrier.handover import is_moving
from goqueue.wire.carrier.problems import Problem, problem_from
from goqueue.wire.carrier.streams import Stream

if TYPE_CHECKING:
    from goqueue.broker import Broker
    from goqueue.loop.peers import Peers
    from goqueue.wire.carrier.application import Application

NOBODY = -1
ANSWER_MS = 30_000  # for the owner to answer, besides the time that the client said it would wait

_log = logging.getLogger(__name__)

T = TypeVar("T")


class _Sent(msgspec.Struct, frozen=True, array_like=True):
    """A request without its body, which travels beside it."""

    number: int  # among those of the node that sends it, to cancel it by
    application: int
    method: str
    path: str
    query: bytes
    headers: dict[bytes, bytes]
    session: Session


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """An answer without its body."""

    status: int
    media_type: bytes
    is_moving: bool = False  # a refusal: another node will soon be able to answer
    headers: bytes = b""


_encode = msgspec.msgpack.Encoder().encode
_sent_decoder = msgspec.msgpack.Decoder(_Sent)
_told_decoder = msgspec.msgpack.Decoder(_Told)
_number_decoder = msgspec.msgpack.Decoder(int)


class Forwarder:
    """Sends requests to other nodes, and answers theirs, for all HTTP listeners of this one."""

    def __init__(self, broker: Broker, peers: Peers) -> None:
        self.node_id = broker.node_id
        self._broker = broker
        self._peers = peers
        self._applications: list[Application] = []
        self._last = 0
        self._served: dict[tuple[int, int], Callable[[], None]] = {}
        peers.serve(PeerKind.FORWARD, self._serve)
        peers.listen(PeerKind.FORWARD, self._serve_cancel)

    def attach(self, application: Application) -> int:
        """Answer other nodes' requests by an application too; its number among them."""
        self._applications.append(application)
        return len(self._applications) - 1

    def others(self) -> list[int]:
        """The other nodes that can be asked."""
        assert self._broker.cluster is not None
        return [one.id for one in self._broker.cluster.nodes() if one.id != self.node_id]

    # Asking

    def forward(
        self, node: int, request: Request, call: Call, *, application: int, wait_ms: int = 0
    ) -> Promise[Raw]:
        """Have a request answered by another node; when the client goes, it is told so."""
        result: Promise[Raw] = Promise()
        if call.is_forwarded or not self._can_answer(node):
            result.reject(NoOwner())
            return result
        self._last += 1
        number = self._last
        headers = {
            name: value
            for name in self._applications[application].headers_forwarded
            if (value := request.headers.get(name)) is not None
        }
        head = _encode(
            _Sent(
                number,
                application,
                request.method,
                request.path,
                request.query,
                headers,
                call.session,
            )
        )

        def answered(answer: Answered | None, error: Exception | None) -> None:
            if answer is None:
                result.settle(None, error)
            else:
                told = _told_decoder.decode(answer.head)
                result.resolve(
                    Raw(
                        bytes(answer.body),
                        told.media_type,
                        status=told.status,
                        is_moving=told.is_moving,
                        headers=told.headers,
                    )
                )

        def cancel() -> None:
            if not result.is_done:
                self._peers.notify(node, PeerKind.FORWARD, _encode(number))

        call.on_cancel(cancel)
        body = [request.body] if request.body else ()
        timeout_ms = wait_ms + ANSWER_MS
        called = self._peers.call(node, PeerKind.FORWARD, head, body, timeout_ms=timeout_ms)
        called.then(answered)
        return result

    def _can_answer(self, node: int) -> bool:
        """Whether a node can be asked; whoever asks one that is gone must not wait for it."""
        assert self._broker.cluster is not None
        is_other = node not in (NOBODY, self.node_id)
        return is_other and self._broker.cluster.is_there(node)

    async def ask(self, node: int, request: Request, kind: type[T]) -> T:
        """A question of this node's own to another one."""
        return _read(await self.forward(node, request, Call({}), application=0), kind)

    async def ask_all(self, request: Request, kind: type[T]) -> Sequence[T]:
        """The answers of all other nodes; all must answer, or the whole would not be one."""
        asked = [self.forward(node, request, Call({}), application=0) for node in self.others()]
        return [_read(await one, kind) for one in asked]

    # Answering

    def _serve(self, caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        sent = _sent_decoder.decode(head)
        application = self._applications[sent.application]
        request = Request(sent.method, sent.path, sent.query, sent.headers)
        request.body = bytes(body)
        place = (caller, sent.number)
        answer: Promise[Answer] = Promise()
        operation = application.find(request)
        call = Call(request.parameters, session=sent.session, is_forwarded=True)

        def done(value: Any, error: Exception | None) -> None:
            if answer.is_done:
                return
            self._served.pop(place, None)
            if isinstance(value, Stream):
                value.close()
                error = NoOwner()
            if error is None:
                status, media_type, content, more = application.told(operation, request, value)
            else:
                status, media_type, content, more = application.refused(request, error)
            head = _encode(_Told(status, media_type, is_moving(error), more))
            answer.resolve(Answer(head, [content]))

        def give_up() -> None:
            call.cancel()
            done(None, RequestTimedOut("The client has gone."))

        if application.is_stopping:
            done(None, NoOwner())
            return answer
        self._served[place] = give_up
        application.perform(operation, request, call).then(done)
        return answer

    def _serve_cancel(self, caller: int, head: bytes, _: memoryview) -> None:
        give_up = self._served.get((caller, _number_decoder.decode(head)))
        if give_up is not None:
            give_up()


def json_request(method: str, path: str, body: Any) -> Request:
    """A request of this node's own."""
    request = Request(method, path, headers={b"content-type": b"application/json"})
    request.body = msgspec.json.encode(body)
    return request


def _read(answer: Raw, kind: type[T]) -> T:
    """The contents of another node's answer, or the error that it is."""
    if answer.status >= 400:
        raise _error(answer)
    return msgspec.json.decode(answer.body, type=kind)


def _error(answer: Raw) -> GoQueueError:
    return problem_from(msgspec.json.decode(answer.body, type=Problem))
