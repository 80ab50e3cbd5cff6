"""A queue group over gRPC: single calls and streams, with the stubs of the proto files."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from goqueue.wire.grpc.messages import ack_service_pb2 as acks
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from tests.integration.faults.operations import Kind, Outcome
from tests.integration.rpc.calls import Rpc, Stream, messages

from .base import HTTP_TIMEOUT_SECONDS, Site
from .queues import (
    PACE_SECONDS,
    RECEIVED_MAX,
    WAIT_SECONDS,
    Consumer,
    HttpQueue,
    Received,
    turns,
)

REQUESTS = 3  # of one stream that publishes
MESSAGES = 2  # of each request
_STOPPED = -1  # the number of the request after which no more messages come
# Answers that say that nothing was done. The others leave it open, as `UNAVAILABLE` does, or ask to
# be repeated: what a full disk has refused may be done when there is room.
_REFUSALS = frozenset(
    (
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
    )
)
_REFUSAL_NUMBERS = frozenset(int(one.value[0]) for one in _REFUSALS)


class GrpcQueue(HttpQueue):
    """A queue group that gRPC clients write to and receive from."""

    name = "grpc-queue"
    topic = "calls"
    group = "callers"

    def senders(self) -> list[Callable[[], None]]:
        return [lambda: self._send("one"), lambda: self._send("two")]

    def consumer(self, chance: random.Random) -> Consumer:
        return _GrpcConsumer(_Nodes(self.site, chance), chance, self.group, self.topic)

    def _send(self, process: str) -> None:
        chance = self.random(process)
        nodes = _Nodes(self.site, chance)
        for turn in turns(self.site, PACE_SECONDS, chance):
            requests = {
                number: [f"{self.name}:{process}:{turn}-{number}-{at}" for at in range(MESSAGES)]
                for number in range(1, 1 + REQUESTS)
            }
            if chance.random() < 0.5:
                self._publish(process, nodes, requests[1])
            else:
                self._publish_in_a_stream(process, nodes, requests)

    def _publish(self, process: str, nodes: _Nodes, values: list[str]) -> None:
        operations = [self.begin(process, Kind.SEND, value) for value in values]
        request = publishing.PublishRequest(topic=self.topic, messages=_outgoing(values))
        outcome, response = nodes.call(nodes.rpc.publishing.Publish, request)
        outcomes = [outcome] * len(values) if response is None else _published(response.report)
        for operation, one in zip(operations, outcomes, strict=True):
            self.history.end(operation, one, nodes.note)

    def _publish_in_a_stream(
        self, process: str, nodes: _Nodes, requests: dict[int, list[str]]
    ) -> None:
        """Send all requests at once; those without a response may have been carried out."""
        operations = {
            number: [self.begin(process, Kind.SEND, value) for value in values]
            for number, values in requests.items()
        }
        outcomes = {number: [Outcome.UNKNOWN] * MESSAGES for number in requests}
        stream = nodes.stream(nodes.rpc.publishing.PublishStream)
        for number, values in requests.items():
            stream.send(
                publishing.PublishStreamRequest(
                    number=number, topic=self.topic, messages=_outgoing(values)
                )
            )
        stream.half_close()
        try:
            for response in stream:
                outcomes[response.number] = (
                    _published(response.report)
                    if response.HasField("report")
                    else [_outcome(response.error)] * MESSAGES
                )
        except grpc.RpcError as error:
            nodes.failed(error)
        for number, some in operations.items():
            for operation, one in zip(some, outcomes[number], strict=True):
                self.history.end(operation, one, nodes.note)


def _outgoing(values: Iterable[str]) -> list[Any]:
    return messages(*(value.encode() for value in values))


def _published(report: Any) -> list[Outcome]:
    outcomes = [Outcome.OK] * len(report.offsets)
    for one in report.errors:
        outcomes[one.index] = _outcome(one.error)
    return outcomes


def _outcome(error: Any) -> Outcome:
    return Outcome.REFUSED if error.status in _REFUSAL_NUMBERS else Outcome.UNKNOWN


class _Nodes:
    """Calls one node, and another one after a failure."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._rpcs = [Rpc(node.grpc) for node in site.nodes.values()]
        self._at = chance.randrange(len(self._rpcs))
        self.note = ""

    @property
    def rpc(self) -> Rpc:
        return self._rpcs[self._at]

    def next_node(self) -> None:
        self._at = (self._at + 1) % len(self._rpcs)

    def call(self, method: Any, request: Any) -> tuple[Outcome, Any]:
        """Return what the client knows afterwards, and the response."""
        try:
            response = method(request, timeout=HTTP_TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            return self.failed(error), None
        self.note = ""
        return Outcome.OK, response

    def stream(self, method: Any) -> Stream:
        return Stream(self.rpc, method)

    def failed(self, error: grpc.RpcError) -> Outcome:
        code = error.code()  # type: ignore[attr-defined]
        self.note = f"node {self._at + 1}: {code.name} {error.details()}"  # type: ignore[attr-defined]
        self.next_node()
        return Outcome.REFUSED if code in _REFUSALS else Outcome.UNKNOWN


class _GrpcConsumer(Consumer):
    """Receives by a call or by a stream, and settles on a stream or by calls to any node."""

    def __init__(self, nodes: _Nodes, chance: random.Random, group: str, topic: str) -> None:
        self._nodes = nodes
        self._chance = chance
        self._group = group
        self._topic = topic
        self._stream: Stream | None = None  # on which messages were received last
        self._number = 0

    def receive(self, lease_seconds: int) -> list[Received] | None:
        self._leave()
        if self._chance.random() < 0.5:
            return self._pull(lease_seconds)
        return self._receive(lease_seconds)

    def _pull(self, lease_seconds: int) -> list[Received] | None:
        request = consuming.PullRequest(
            group=self._group,
            topic=self._topic,
            messages_max=RECEIVED_MAX,
            wait_ms=WAIT_SECONDS * 1000,
            visibility_ms=lease_seconds * 1000,
        )
        _, response = self._nodes.call(self._nodes.rpc.consuming.Pull, request)
        return None if response is None else _received(response.messages)

    def _receive(self, lease_seconds: int) -> list[Received] | None:
        """Take what comes until the first messages, or for a while."""
        self._stream = stream = self._nodes.stream(self._nodes.rpc.consuming.Receive)
        start = consuming.ReceiveStart(
            group=self._group, topic=self._topic, visibility_ms=lease_seconds * 1000
        )
        stream.send(consuming.ReceiveRequest(start=start, credit=RECEIVED_MAX))
        stop = consuming.ReceiveRequest(number=_STOPPED, stop=True)
        alarm = threading.Timer(WAIT_SECONDS, stream.send, (stop,))
        alarm.daemon = True
        alarm.start()
        found: list[Received] = []
        try:
            for response in stream:
                if response.messages and not found:
                    alarm.cancel()
                    stream.send(stop)
                found += _received(response.messages)
                if any(one.number == _STOPPED for one in response.settlements):
                    return found
        except grpc.RpcError as error:
            self._nodes.failed(error)
        finally:
            alarm.cancel()
        self._leave()
        return found or None

    def _leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def ack(self, one: Received) -> Outcome:
        if self._stream is not None:
            return self._settle_on(self._stream, ack=[one.receipt])
        request = acks.AckRequest(group=self._group, receipts=[one.receipt])
        return self._settle("Ack", request)

    def release(self, one: Received) -> Outcome:
        if self._stream is not None:
            nack = consuming.Nack(receipts=[one.receipt], delay_ms=0)
            return self._settle_on(self._stream, nack=[nack])
        request = acks.NackRequest(group=self._group, receipts=[one.receipt], delay_ms=0)
        return self._settle("Nack", request)

    def extend(self, one: Received, seconds: int) -> Outcome:
        request = acks.ExtendRequest(
            group=self._group, receipts=[one.receipt], visibility_ms=seconds * 1000
        )
        return self._settle("Extend", request)

    def _settle(self, how: str, request: Any) -> Outcome:
        # Any node may be asked, whoever owns the queue now.
        self._nodes.next_node()
        outcome, response = self._nodes.call(getattr(self._nodes.rpc.acks, how), request)
        if response is None:
            # No answer to a retry says nothing about the first attempt.
            return self._unknown()
        return self._judge(outcome, response.errors)

    def _settle_on(self, stream: Stream, **how: Any) -> Outcome:
        self._number += 1
        stream.send(consuming.ReceiveRequest(number=self._number, **how))
        try:
            for response in stream:
                for one in response.settlements:
                    if one.number == self._number:
                        return self._judge(Outcome.OK, one.errors)
        except grpc.RpcError as error:
            self._nodes.failed(error)
        self._leave()
        return self._unknown()

    def _unknown(self) -> Outcome:
        self.note = self._nodes.note
        return Outcome.UNKNOWN

    def _judge(self, outcome: Outcome, errors: Any) -> Outcome:
        self.note = ""
        if not errors:
            return outcome
        self.note = errors[0].error.reason
        return _outcome(errors[0].error)


def _received(messages: Iterable[Any]) -> list[Received]:
    return [Received(one.value.decode(), one.receipt) for one in messages]
