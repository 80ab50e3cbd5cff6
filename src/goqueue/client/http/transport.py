"""Sends requests over pooled connections, and retries them.

The two transports differ only in `await`; failures are classified in `failures`, and `Attempts`
decides about retries.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import httpx

from goqueue.client.errors import TlsFailed
from goqueue.client.http.failures import (
    Failure,
    answer_late,
    answer_lost,
    failure_of_answer,
    unreachable,
)
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.settings import HttpSettings, RetrySettings, base_url
from goqueue.client.security.http import HttpLogin
from goqueue.client.security.settings import TlsSettings
from goqueue.client.security.tls import context_of, permanent_failure
from goqueue.model.errors import GoQueueError, InvalidRequest

T = TypeVar("T")

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_JSON = {"content-type": "application/json"}
_DOUBLINGS_MAX = 30


@dataclass(slots=True)
class Attempts:
    """The attempts at one request so far."""

    request: Request[Any]
    settings: RetrySettings
    random: Random
    failed: int = 0

    def wait_seconds(self, failure: Failure) -> float:
        """Return how long to wait before the next attempt; raise if there must be none.

        The wait is uniform between zero and a bound that doubles ("full jitter"), so that clients
        do not return all at once when their broker is back.
        """
        if not self._may_go_on(failure):
            raise failure.error
        doublings = min(self.failed, _DOUBLINGS_MAX)
        self.failed += 1
        bound_ms = min(self.settings.backoff_ms_max, self.settings.backoff_ms_min << doublings)
        return max(failure.wait_seconds_min, self.random.uniform(0, bound_ms) / 1000)

    def _may_go_on(self, failure: Failure) -> bool:
        if not failure.is_passing or self.failed >= self.settings.retries_max:
            return False
        if not failure.is_uncertain or self.request.repeat is Repeat.IDEMPOTENT:
            return True
        return self.request.repeat is Repeat.PUBLISHES and self.settings.repeats_publishes


class Transport:
    """A transport for any number of threads."""

    def __init__(
        self,
        address: str,
        settings: HttpSettings,
        *,
        random: Random | None = None,
        sleep: Callable[[float], object] | None = None,
        network: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = base_url(address)
        self.settings = settings
        self._random = random or Random()
        self._closed = threading.Event()
        self._sleep = sleep or self._closed.wait  # closing ends the waits too
        self._http = httpx.Client(transport=network, **_options(self.url, settings))

    def send(self, request: Request[T]) -> T:
        """Send a request and return its decoded response, or raise the error."""
        attempts = Attempts(request, self.settings.retry, self._random)
        while True:
            outcome = self._try(request)
            if not isinstance(outcome, Failure):
                return request.read(outcome)
            self._sleep(attempts.wait_seconds(outcome))
            if self._closed.is_set():
                raise outcome.error

    def _try(self, request: Request[Any]) -> bytes | Failure:
        if self._closed.is_set():
            raise InvalidRequest("This client is closed; create another one.")
        try:
            answer = self._http.request(**_arguments(request, self.settings))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _failure_of(error, self.url, request, self.settings)
        refused = failure_of_answer(answer.status_code, answer.headers, answer.content)
        return refused or answer.content

    def close(self) -> None:
        self._closed.set()
        self._http.close()


class AsyncTransport:
    """A transport for the coroutines of one event loop."""

    def __init__(
        self,
        address: str,
        settings: HttpSettings,
        *,
        random: Random | None = None,
        network: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = base_url(address)
        self.settings = settings
        self._random = random or Random()
        self._is_closed = False
        self._http = httpx.AsyncClient(transport=network, **_options(self.url, settings))

    async def send(self, request: Request[T]) -> T:
        """Send a request and return its decoded response, or raise the error."""
        attempts = Attempts(request, self.settings.retry, self._random)
        while True:
            outcome = await self._try(request)
            if not isinstance(outcome, Failure):
                return request.read(outcome)
            await asyncio.sleep(attempts.wait_seconds(outcome))

    async def _try(self, request: Request[Any]) -> bytes | Failure:
        if self._is_closed:
            raise InvalidRequest("This client is closed; create another one.")
        try:
            answer = await self._http.request(**_arguments(request, self.settings))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _failure_of(error, self.url, request, self.settings)
        refused = failure_of_answer(answer.status_code, answer.headers, answer.content)
        return refused or answer.content

    async def close(self) -> None:
        self._is_closed = True
        await self._http.aclose()


def _options(url: str, settings: HttpSettings) -> dict[str, Any]:
    return {
        "base_url": url,
        "headers": {"accept": "application/json", **settings.headers},
        "limits": httpx.Limits(
            max_connections=settings.connections_max,
            max_keepalive_connections=settings.connections_max,
            keepalive_expiry=settings.idle_ms_max / 1000,
        ),
        "auth": None if settings.login is None else _Authorization(settings.login),
        # A proxy for web pages would interrupt long polls.
        "trust_env": False,
        # Loading the CA certificates takes 20 ms, so it is done for https only.
        "verify": _is_https(url) and context_of(settings.tls or TlsSettings()),
    }


class _Authorization(httpx.Auth):
    """Adds the header when a request is sent, so that a rotated secret is used at once."""

    def __init__(self, login: HttpLogin) -> None:
        self._login = login

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["authorization"] = self._login.header()
        yield request


def _is_https(url: str) -> bool:
    return url.lower().startswith("https://")


def _arguments(request: Request[Any], settings: HttpSettings) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.path,
        "params": request.query or None,
        "content": request.body,
        "headers": {**_JSON, **request.headers} if request.body is not None else request.headers,
        "timeout": httpx.Timeout(
            _answer_seconds(request, settings), connect=settings.connect_ms_max / 1000
        ),
    }


def _answer_seconds(request: Request[Any], settings: HttpSettings) -> float:
    return (settings.answer_ms_max + request.wait_ms) / 1000


def _failure_of(
    error: Exception, url: str, request: Request[Any], settings: HttpSettings
) -> Failure:
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return Failure(InvalidRequest(f"{url} is not a valid address: {reason}."), is_passing=False)
    if (failed := _tls_failure(error, url)) is not None:
        return Failure(failed, is_passing=False)
    if isinstance(error, _NOT_SENT):
        return unreachable(url, reason)
    if isinstance(error, httpx.TimeoutException):
        return answer_late(url, _answer_seconds(request, settings))
    return answer_lost(url, reason)


def _tls_failure(error: BaseException | None, url: str) -> GoQueueError | None:
    """Return the error of a handshake that fails every time; None for other failures."""
    # A TLS listener answers a request without TLS by an alert, which is no HTTP response.
    if not _is_https(url) and "\\x15\\x03" in str(error):
        return TlsFailed(f"{url} requires TLS; write https://.")
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return permanent_failure(error, url)
        error = error.__cause__ or error.__context__
    return None
