"""Operations of several requests, written once and run by threads or by coroutines.

Such an operation is a generator: it yields requests and callbacks of the user, and is resumed with
their results or errors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from goqueue.client.http.request import AsyncSender, Request, Sender
from goqueue.model.errors import GoQueueError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback of the user; with coroutines it may be a coroutine function."""

    function: Callable[..., object]
    argument: object


Step: TypeAlias = Request[Any] | Callback
Steps: TypeAlias = Generator[Step, Any, T]


def run_steps(steps: Steps[T], transport: Sender) -> T:
    try:
        step = next(steps)
        while True:
            if isinstance(step, Callback):
                step.function(step.argument)
                step = next(steps)
                continue
            try:
                answer = transport.send(step)
            except GoQueueError as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_steps_async(steps: Steps[T], transport: AsyncSender) -> T:
    try:
        step = next(steps)
        while True:
            if isinstance(step, Callback):
                returned = step.function(step.argument)
                if inspect.isawaitable(returned):
                    await returned
                step = next(steps)
                continue
            try:
                answer = await transport.send(step)
            except GoQueueError as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
