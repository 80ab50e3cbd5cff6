"""PublishStream: requests are published in order while earlier ones wait for their responses."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.calls import decoded, value_of
from goqueue.wire.grpc.handlers.publishing import Publishing, Results
from goqueue.wire.grpc.measuring import trace_of
from goqueue.wire.grpc.messages import publish_service_pb2 as bodies
from goqueue.wire.grpc.records import report_of
from goqueue.wire.grpc.statuses import error_of
from goqueue.wire.grpc.streams.outbox import Outbox, called, known_error, together
from goqueue.wire.grpc.streams.patience import admitted, begun, within_quota
from goqueue.wire.grpc.streams.window import Window

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd
    from goqueue.wire.grpc.routes import Wire


async def publish_stream(front: FrontEnd, call: Call, wire: Wire) -> None:
    stream = _PublishStream(front, call, wire)
    try:
        await together(stream.read(), stream.outbox.run())
    finally:
        stream.close()


class _PublishStream:
    """A stream of requests, each with its own response."""

    def __init__(self, front: FrontEnd, call: Call, wire: Wire) -> None:
        self.outbox = Outbox(front, call, wire)
        self._front = front
        self._call = call
        self._wire = wire
        self._window = Window()
        self._topic = ""
        self._prepared = ""  # the topic that is known to exist
        self._is_closed = False

    async def read(self) -> None:
        """Read and publish requests, as long as there is room for them."""
        while (data := await self._wire.read()) is not None:
            size, started = len(data), perf_counter()
            self._window.enter(size)
            self._front.intake.take(size)
            request = decoded(bodies.PublishStreamRequest, data)
            await self._publish(request, size, started)
            while self._window.is_full:
                await called(self._window.when_left)
            if self._front.intake.is_full:
                await called(self._front.intake.when_room)
            await within_quota(self._front, self._call)
        while not self._window.is_empty:
            await called(self._window.when_left)
        self.outbox.end()

    def close(self) -> None:
        """Release the memory of requests whose responses are not sent any more."""
        self._is_closed = True
        self._front.intake.give(self._window.bytes)

    async def _publish(
        self, request: bodies.PublishStreamRequest, size: int, started: float
    ) -> None:
        number, trace = request.number, self._call.trace or trace_of(request.messages)

        def done(results: Results | None, error: Exception | None) -> None:
            if self._is_closed:
                return
            self._call.api.answered(perf_counter() - started, trace)
            self._respond(number, results, error, size)

        try:
            promise = await self._begin(request)
        except GoQueueError as error:
            done(None, error)
            return
        promise.then(done)

    async def _begin(self, request: bodies.PublishStreamRequest) -> Promise[Results]:
        """Start to publish a request; a client over its quota is slowed, not refused."""
        topic = self._topic = request.topic or self._topic
        if not topic:
            raise InvalidField("The first request of a stream names a topic.", field="topic")
        await admitted(self._front, self._call)
        if topic != self._prepared:
            prepare = partial(self._front.gate.records.prepare, self._call.session, topic=topic)
            await value_of(await begun(prepare))
            self._prepared = topic
        publishing = Publishing(self._front, self._call, topic, request.messages, request.acks)
        return publishing.results(
            [await begun(partial(publishing.begin, one)) for one in publishing.groups]
        )

    def _respond(
        self,
        number: int,
        results: Results | None,
        error: Exception | None,
        size: int,
    ) -> None:
        response = bodies.PublishStreamResponse(number=number)
        if results is not None:
            response.report.CopyFrom(report_of(results))
        else:
            response.error.CopyFrom(error_of(known_error(self._call, error)))
        self._call.failed_in_part(response)
        self.outbox.put(response.SerializeToString(), lambda: self._sent(size))

    def _sent(self, size: int) -> None:
        self._window.leave(size)
        self._front.intake.give(size)
