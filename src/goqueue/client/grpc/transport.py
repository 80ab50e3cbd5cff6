"""Sends calls over a channel, with deadlines, and retries them.

A call is a `Request`: its path is that of a method, its body the bytes of a message. The two
transports differ only in `await`; which calls are repeated is decided as for HTTP.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import grpc
from grpc import aio

from goqueue.client.grpc import channels
from goqueue.client.grpc.failures import Ended, details_of, failure_of
from goqueue.client.grpc.request import SERVICES, NotInGrpc, Series
from goqueue.client.grpc.settings import GrpcSettings, Target
from goqueue.client.http.failures import Failure
from goqueue.client.http.request import Request
from goqueue.client.http.steps import run_steps, run_steps_async
from goqueue.client.http.transport import Attempts
from goqueue.model.errors import GoQueueError, InvalidRequest

T = TypeVar("T")

_CLOSED = "This client is closed; create another one."

Stream = Any  # an iterator of bytes with `cancel`; the library has no name for it
AsyncStream = aio.UnaryStreamCall[bytes, bytes]


class Transport:
    """A transport for any number of threads."""

    def __init__(
        self,
        target: Target,
        settings: GrpcSettings,
        *,
        random: Random | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.target = target
        self.settings = settings
        self.random = random or Random()
        self._closed = threading.Event()
        self._sleep = sleep or self._closed.wait  # closing ends the waits too
        secure = channels.credentials(target, settings)
        options = channels.options(settings)
        self._channel = (
            grpc.insecure_channel(target.address, options)
            if secure is None
            else grpc.secure_channel(target.address, secure, options)
        )

    def send(self, request: Request[T]) -> T:
        """Make a call and return its decoded response, or raise the error."""
        if isinstance(request, Series):
            found: T = run_steps(request.steps(), self)
            return found
        check_path(request)
        attempts = Attempts(request, self.settings.retry, self.random)
        while True:
            outcome = self._try(request)
            if not isinstance(outcome, Failure):
                return request.read(outcome)
            self._sleep(attempts.wait_seconds(outcome))
            if self._closed.is_set():
                raise outcome.error

    def stream(self, path: str, request: bytes) -> Stream:
        """Begin a call with many responses; its errors are those of `stream_error`."""
        self._check_open()
        call: Any = self._channel.unary_stream(path)
        return call(request, metadata=channels.metadata(self.settings))

    def stream_error(self, error: grpc.RpcError) -> Failure:
        """The failure that ended a stream."""
        return _failure_of(error, self.target, None)

    def _try(self, request: Request[Any]) -> bytes | Failure:
        self._check_open()
        seconds = _seconds(request, self.settings)
        try:
            call: Any = self._channel.unary_unary(request.path)
            answer: bytes = call(
                request.body or b"",
                timeout=seconds,
                metadata=channels.metadata(self.settings),
            )
        except grpc.RpcError as error:
            return _failure_of(error, self.target, seconds)
        except ValueError as error:  # the channel was closed by another thread
            self._check_open()
            raise InvalidRequest(f"{self.target} cannot be called: {error}.") from error
        return answer

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise InvalidRequest(_CLOSED)

    def close(self) -> None:
        """Close the connection; calls in progress fail."""
        self._closed.set()
        self._channel.close()


class AsyncTransport:
    """A transport for the coroutines of one event loop."""

    def __init__(
        self, target: Target, settings: GrpcSettings, *, random: Random | None = None
    ) -> None:
        self.target = target
        self.settings = settings
        self.random = random or Random()
        self._is_closed = False
        self._made: aio.Channel | None = None

    async def send(self, request: Request[T]) -> T:
        """Make a call and return its decoded response, or raise the error."""
        if isinstance(request, Series):
            found: T = await run_steps_async(request.steps(), self)
            return found
        check_path(request)
        attempts = Attempts(request, self.settings.retry, self.random)
        while True:
            outcome = await self._try(request)
            if not isinstance(outcome, Failure):
                return request.read(outcome)
            await asyncio.sleep(attempts.wait_seconds(outcome))

    def stream(self, path: str, request: bytes) -> AsyncStream:
        """Begin a call with many responses; its errors are those of `stream_error`."""
        call: Any = self._channel().unary_stream(path)
        made: AsyncStream = call(request, metadata=channels.metadata(self.settings))
        return made

    def stream_error(self, error: grpc.RpcError) -> Failure:
        """The failure that ended a stream."""
        return _failure_of(error, self.target, None)

    async def _try(self, request: Request[Any]) -> bytes | Failure:
        seconds = _seconds(request, self.settings)
        try:
            call: Any = self._channel().unary_unary(request.path)
            answer: bytes = await call(
                request.body or b"",
                timeout=seconds,
                metadata=channels.metadata(self.settings),
            )
        except grpc.RpcError as error:
            return _failure_of(error, self.target, seconds)
        return answer

    def _channel(self) -> aio.Channel:
        """The channel, which belongs to the event loop that is running when it is made."""
        if self._is_closed:
            raise InvalidRequest(_CLOSED)
        if self._made is None:
            secure = channels.credentials(self.target, self.settings)
            options = channels.options(self.settings)
            self._made = (
                aio.insecure_channel(self.target.address, options)
                if secure is None
                else aio.secure_channel(self.target.address, secure, options)
            )
        return self._made

    async def close(self) -> None:
        """Close the connection; calls in progress fail."""
        self._is_closed = True
        if self._made is not None:
            await self._made.close()


def check_path(request: Request[Any]) -> None:
    """Refuse what only the HTTP API offers."""
    if not request.path.startswith(SERVICES):
        raise NotInGrpc(f"{request.method} {request.path}")


def _seconds(request: Request[Any], settings: GrpcSettings) -> float:
    return (settings.answer_ms_max + request.wait_ms) / 1000


def _failure_of(error: grpc.RpcError, target: Target, seconds: float | None) -> Failure:
    if not isinstance(error, grpc.Call | aio.AioRpcError):
        failed: GoQueueError = InvalidRequest(f"{target} cannot be called: {error}.")
        return Failure(failed, is_passing=False)
    ended = Ended(
        int(error.code().value[0]), error.details() or "", details_of(error.trailing_metadata())
    )
    return failure_of(ended, str(target), seconds)
