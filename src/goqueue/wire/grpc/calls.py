"""One call: who makes it, how long it may take, and how it is ended from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from goqueue.broker.gate.request_metrics import UNMEASURED
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import GoQueueError, MalformedRequest
from goqueue.model.session import Session
from goqueue.wire.carrier.credentials import API_KEY, AUTHORIZATION
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.measuring import codes_in

if TYPE_CHECKING:
    from goqueue.wire.grpc.front_end import Connection

T = TypeVar("T")
M = TypeVar("M", bound=Message)

WAIT_MS_MAX = 60_000
TRACE_PARENT = b"traceparent"
_KEPT = frozenset((API_KEY, AUTHORIZATION, TRACE_PARENT))
# What a response needs to come back in time: a wait ends so much before the deadline of its call.
DEADLINE_MARGIN_MS = 200


class Asked(NamedTuple):
    """The metadata of a call, as far as it says who makes it."""

    headers: Mapping[bytes, bytes]


class Call:
    """A call in progress."""

    __slots__ = (
        "_remaining_seconds",
        "_task",
        "api",
        "cancellation",
        "connection",
        "error",
        "session",
        "started",
        "trace",
        "trace_parent",
    )

    def __init__(
        self,
        session: Session,
        connection: Connection,
        task: asyncio.Task[Any] | None = None,
        *,
        trace_parent: bytes = b"",
        remaining_seconds: float | None = None,
    ) -> None:
        """`remaining_seconds` is the time until its deadline, if it has one."""
        self.session = session
        self.connection = connection
        self.api = UNMEASURED.apis[""]  # until the server gives its instruments
        self.started = perf_counter()
        self.trace_parent = trace_parent
        self.trace = trace_parent  # a header that may name the trace it belongs to
        self.cancellation = Cancellation()
        self._remaining_seconds = remaining_seconds
        self.error: GoQueueError | None = None  # why the node has ended it
        self._task = task

    @property
    def host(self) -> str:
        return self.connection.host

    def wait_ms(self, wanted_ms: int) -> int:
        """Return how long to wait for something, so that the response comes in time."""
        if not 0 <= wanted_ms <= WAIT_MS_MAX:
            raise InvalidField(f"wait_ms is at most {WAIT_MS_MAX}.", field="wait_ms")
        if self._remaining_seconds is None:
            return wanted_ms
        return max(0, min(wanted_ms, int(self._remaining_seconds * 1000) - DEADLINE_MARGIN_MS))

    def leave_out(self, seconds: float) -> None:
        """Do not count time in which the call waited because its client wanted it to."""
        self.started += seconds

    def failed_in_part(self, response: Message) -> None:
        """Count the errors in a response, each code once."""
        for code in codes_in(response):
            self.api.failed(code)

    def end(self, error: GoQueueError) -> None:
        """End the call with an error, wherever it waits."""
        if self.error is None and self._task is not None:
            self.error = error
            self._task.cancel()


def asked(metadata: object) -> Asked:
    """Return what the metadata of a call says about its caller."""
    kept: dict[bytes, bytes] = {}
    for name, value in metadata or ():  # type: ignore[attr-defined]
        key = name.encode()
        if key in _KEPT:
            kept[key] = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    return Asked(kept)


async def value_of(promise: Promise[T]) -> T:
    """Await a promise in a task of asyncio."""
    if not promise.is_done:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: T | None, __: Exception | None) -> None:
            if not future.done():
                future.set_result(None)

        promise.then(done)
        await future
    return await promise  # without waiting, because it has been settled


def decoded(kind: type[M], data: bytes) -> M:
    """Return the message in these bytes; raise what the client may know if they are none."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise MalformedRequest(f"These bytes are no {kind.DESCRIPTOR.full_name}.") from None
