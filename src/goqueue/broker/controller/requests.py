"""Commands of this node, retried until the controller has decided them or they time out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from goqueue.cluster.commands import ClusterCommand, DeleteTopic, Result, UnregisterNode
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    GoQueueError,
    NotController,
    RequestTimedOut,
    UnknownNode,
    UnknownTopic,
)

COMMAND_TIMEOUT_MS = 30_000  # long enough for one or two elections
CALL_TIMEOUT_MS = 5_000  # per attempt; then another node may lead
RETRY_MS = 100
WAITING_MAX = 10_000  # commands of this node in flight

Ask = Callable[[ClusterCommand, int], Promise[tuple[int, Result]]]


@dataclass(slots=True)
class _Request:
    command: ClusterCommand
    promise: Promise[Result]
    deadline_ms: int
    attempts: int = 0


class QuorumRequests:
    def __init__(
        self, clock: Clock, *, ask: Ask, when_applied: Callable[[int], Promise[None]]
    ) -> None:
        """`ask` makes one attempt and returns the index in the log and the result."""
        self._clock = clock
        self._ask = ask
        self._when_applied = when_applied
        self._count = 0
        self._is_stopped = False

    def stop(self) -> None:
        """Stop retrying."""
        self._is_stopped = True

    def request(self, command: ClusterCommand) -> Promise[Result]:
        promise: Promise[Result] = Promise()
        if self._count >= WAITING_MAX:
            promise.reject(RequestTimedOut("Too many commands wait for the controller; retry."))
            return promise
        self._count += 1
        promise.then(self._done)
        deadline_ms = self._clock.now_ms() + COMMAND_TIMEOUT_MS
        self._attempt(_Request(command, promise, deadline_ms))
        return promise

    def _done(self, _: Result, error: Exception | None) -> None:
        self._count -= 1

    def _attempt(self, request: _Request) -> None:
        request.attempts += 1
        try:
            self._ask(request.command, CALL_TIMEOUT_MS).then(partial(self._decided, request))
        except GoQueueError as error:
            self._decided(request, None, error)

    def _decided(
        self, request: _Request, decided: tuple[int, Result] | None, error: Exception | None
    ) -> None:
        if error is None:
            assert decided is not None
            index, result = decided
            applied = self._when_applied(index)
            applied.then(lambda _, late: request.promise.settle(None if late else result, late))
            return
        is_passing = isinstance(error, NotController | RequestTimedOut)
        if is_passing and self._clock.now_ms() < request.deadline_ms and not self._is_stopped:
            self._clock.call_later(RETRY_MS, partial(self._attempt, request))
        elif _is_done_before(request, error):
            request.promise.resolve(None)
        else:
            request.promise.reject(error)


def _is_done_before(request: _Request, error: Exception) -> bool:
    """Return whether an earlier attempt, whose answer was lost, already did what is refused now."""
    command = request.command
    return request.attempts > 1 and (
        (isinstance(command, DeleteTopic) and isinstance(error, UnknownTopic))
        or (isinstance(command, UnregisterNode) and isinstance(error, UnknownNode))
    )
