"""PublishService.Publish: a batch of messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from goqueue.broker.gate.areas.records import PublishResult
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.wire.grpc.measuring import trace_of
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import publish_service_pb2 as bodies
from goqueue.wire.grpc.records import Routed, check_messages, report_of, routed

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

Results = Sequence[PublishResult]


async def publish(
    front: FrontEnd, call: Call, request: bodies.PublishRequest
) -> bodies.PublishResponse:
    call.trace = call.trace or trace_of(request.messages)
    await front.gate.records.prepare(call.session, topic=request.topic)
    results = publish_all(front, call, request.topic, request.messages, request.acks)
    return bodies.PublishResponse(report=report_of(await results))


def publish_all(
    front: FrontEnd,
    call: Call,
    topic: str,
    messages: Sequence[shared.OutgoingMessage],
    acks: int,
) -> Promise[Results]:
    """Publish messages of one topic; the promise has a result for each, in order."""
    publishing = Publishing(front, call, topic, messages, acks)
    # All calls are started before the first is awaited, so they share a group commit.
    return publishing.results([publishing.begin(one) for one in publishing.groups])


class Publishing:
    """The messages of a request, in groups that are published by one call each."""

    def __init__(
        self,
        front: FrontEnd,
        call: Call,
        topic: str,
        messages: Sequence[shared.OutgoingMessage],
        acks: int,
    ) -> None:
        check_messages(messages)
        self._publish = partial(
            front.gate.records.publish,
            call.session,
            topic=topic,
            waits=acks != shared.ACKS_NONE,
            now_ms=front.now_ms(),
        )
        self._count = len(messages)
        self.groups, self._errors = routed(
            messages, now_ms=front.now_ms(), trace_parent=call.trace_parent
        )

    def begin(self, group: Routed) -> Promise[list[PublishResult]]:
        """Publish one group. What a quota refuses is refused at once."""
        return self._publish(records=group.records, partition=group.partition)

    def results(self, calls: Sequence[Promise[list[PublishResult]]]) -> Promise[Results]:
        """Return the results of all groups, from the calls of each, in order."""
        if len(calls) == 1 and not self._errors:
            return cast(Promise[Results], calls[0])
        return _Gathered(self._count, self.groups, self._errors, calls).promise


class _Gathered:
    """The results of several calls, in the order of the request."""

    def __init__(
        self,
        count: int,
        groups: Sequence[Routed],
        errors: dict[int, GoQueueError],
        calls: Sequence[Promise[list[PublishResult]]],
    ) -> None:
        self.promise: Promise[Results] = Promise()
        self._results: list[PublishResult | None] = [errors.get(at) for at in range(count)]
        self._left = len(calls)
        for one, call in zip(groups, calls, strict=True):
            call.then(lambda results, error, one=one: self._arrived(one, results, error))  # type: ignore[misc]
        if not calls:
            self.promise.resolve(cast(Results, self._results))

    def _arrived(
        self, one: Routed, results: list[PublishResult] | None, error: Exception | None
    ) -> None:
        if results is None:
            if not isinstance(error, GoQueueError):
                if not self.promise.is_done:
                    self.promise.settle(None, error)
                return
            results = [error] * len(one.indexes)
        for index, result in zip(one.indexes, results, strict=True):
            self._results[index] = result
        self._left -= 1
        if not self._left and not self.promise.is_done:
            self.promise.resolve(cast(Results, self._results))
