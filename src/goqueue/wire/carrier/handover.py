"""Requests about something that changes hands: they wait until somebody owns it again.

What lives on one node at a time moves when that node stops or dies, and for a moment nobody can
answer for it. A client could only ask again and again, so its own node does that for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from goqueue.loop.clock import Scheduler
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NoOwner,
    NotCoordinator,
    RequestTimedOut,
)
from goqueue.wire.carrier.calls import Call, Raw

WAIT_MS_MAX = 5_000  # longer than it takes to find out that a silent node is dead
LOOK_MS = 50

_MOVING = (NoOwner, NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable)


def is_moving(error: Exception | None) -> bool:
    """Whether a refusal only means that another node will soon be able to answer."""
    return isinstance(error, _MOVING)


def persist(
    attempt: Callable[[], Promise[Any]], call: Call, scheduler: Scheduler, *, is_reading: bool
) -> Promise[Any]:
    """Try until there is an owner that answers, or it takes too long.

    An attempt of which nobody knows what became is made again only if it changes nothing.
    """
    result: Promise[Any] = Promise()
    deadline_ms = scheduler.now_ms() + WAIT_MS_MAX

    def done(value: Any, error: Exception | None) -> None:
        is_passing = value.is_moving if isinstance(value, Raw) else is_moving(error)
        is_lost = is_reading and isinstance(error, RequestTimedOut)
        is_wanted = not call.is_cancelled and scheduler.now_ms() < deadline_ms
        if (is_passing or is_lost) and is_wanted:
            timer = scheduler.call_later(LOOK_MS, attempt_again)
            call.on_cancel(timer.cancel)
        else:
            result.settle(value, error)

    def attempt_again() -> None:
        attempt().then(done)

    attempt_again()
    return result
