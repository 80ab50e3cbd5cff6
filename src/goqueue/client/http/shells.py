"""Turns functions that build requests into methods that send them.

    class Topics(Shell[TopicRequests]):
        create = call(TopicRequests.create)

    class AsyncTopics(AsyncShell[TopicRequests]):
        create = async_call(TopicRequests.create)

Both methods have the parameters and the docstring of the function that builds the request, so that
the two clients cannot diverge.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from goqueue.client.http.request import AsyncSender, Request, Sender

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Shell(Generic[R]):
    """Sends the requests of one area and blocks for their responses."""

    def __init__(self, requests: R, transport: Sender) -> None:
        self._requests = requests
        self._transport = transport


class AsyncShell(Generic[R]):
    """Sends the requests of one area and awaits their responses."""

    def __init__(self, requests: R, transport: AsyncSender) -> None:
        self._requests = requests
        self._transport = transport


def call(build: Callable[Concatenate[R, P], Request[T]]) -> Callable[Concatenate[Shell[R], P], T]:
    """A method that builds a request and waits for its response."""

    def method(self: Shell[R], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._transport.send(_built(build, self._requests, *args, **kwargs))

    functools.update_wrapper(method, build)
    return method


def async_call(
    build: Callable[Concatenate[R, P], Request[T]],
) -> Callable[Concatenate[AsyncShell[R], P], Coroutine[Any, Any, T]]:
    """A coroutine that builds a request and awaits its response."""

    async def method(self: AsyncShell[R], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._transport.send(_built(build, self._requests, *args, **kwargs))

    functools.update_wrapper(method, build)
    return method


def _built(
    build: Callable[Concatenate[R, P], Request[T]], requests: R, *args: P.args, **kwargs: P.kwargs
) -> Request[T]:
    """The request, as the class of `requests` makes it: another API overrides the function."""
    made: Request[T] = getattr(requests, build.__name__)(*args, **kwargs)
    return made
