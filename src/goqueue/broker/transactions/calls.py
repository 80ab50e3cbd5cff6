"""Calls about transactions between nodes, each sent to the leader of a given partition."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic
from goqueue.loop.peers import Answer, PeerKind
from goqueue.loop.promise import Promise, start
from goqueue.model.errors import (
    ERRORS_BY_CODE,
    CoordinatorNotAvailable,
    GoQueueError,
    InvalidRequest,
    NotLeader,
    RequestTimedOut,
)

_encode = msgspec.msgpack.Encoder().encode


class _Call(msgspec.Struct, frozen=True, array_like=True):
    name: str
    question: bytes


_call_decoder = msgspec.msgpack.Decoder(_Call)

# Requests and responses are structs that both nodes share.
Serve = Callable[[bytes], Coroutine[Promise[Any], None, bytes]]


class TransactionCalls:
    """Sends calls to other nodes, and dispatches theirs to the registered handlers."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self._serving: dict[str, Serve] = {}
        leaders.serve(PeerKind.TRANSACTIONS, self._serve)

    def serve(self, name: str, serve: Serve) -> None:
        """Register the handler of calls with this name."""
        self._serving[name] = serve

    async def ask(self, topic: Topic, number: int, name: str, question: object) -> bytes:
        """Call the leader of a partition, which is not this node, once; return its response."""
        head = _encode(_Call(name, _encode(question)))
        try:
            answer = await self._leaders.call(topic, number, PeerKind.TRANSACTIONS, head)
        except (NotLeader, RequestTimedOut) as error:
            raise CoordinatorNotAvailable(
                f"The leader of {topic.name}/{number} did not respond; retry."
            ) from error
        return answer.head

    def _serve(self, _: int, head: bytes, __: memoryview) -> Promise[Answer]:
        call = _call_decoder.decode(head)
        serve = self._serving.get(call.name)
        if serve is None:
            raise InvalidRequest(f"This node does not support the call {call.name!r}.")
        answer: Promise[Answer] = Promise()

        def done(found: bytes | None, error: Exception | None) -> None:
            answer.settle(None if found is None else Answer(found), error)

        start(serve(call.question), done)
        return answer


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """An error that is part of a response, with the text of the node that raised it."""

    code: str
    text: str

    @classmethod
    def of(cls, error: GoQueueError) -> Fault:
        return cls(error.code, str(error))

    def error(self) -> GoQueueError:
        return ERRORS_BY_CODE.get(self.code, GoQueueError).with_text(self.text)
