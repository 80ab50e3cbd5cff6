"""Requests that wait for a new owner: until there is one, or too long."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NoOwner,
    NotCoordinator,
    RequestTimedOut,
    UnknownGroup,
)
from goqueue.wire.carrier.calls import Call, Raw
from goqueue.wire.carrier.handover import LOOK_MS, WAIT_MS_MAX, persist
from tests.simulation.clock import VirtualClock

MOVING = Raw(b"{}", b"application/json", status=503, is_moving=True)


class Owner:
    """Answers with one outcome after the other, and with the last again and again."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = outcomes
        self.asked = 0

    def __call__(self) -> Promise[Any]:
        outcome = self.outcomes[min(self.asked, len(self.outcomes) - 1)]
        self.asked += 1
        promise: Promise[Any] = Promise()
        if isinstance(outcome, Exception):
            promise.reject(outcome)
        else:
            promise.resolve(outcome)
        return promise


class Asked:
    def __init__(self, owner: Owner, *, is_reading: bool = False) -> None:
        self.clock, self.call = VirtualClock(), Call({})
        self.begin_ms = self.clock.now_ms()
        self.answers: list[tuple[Any, Exception | None]] = []
        self.promise = persist(owner, self.call, self.clock, is_reading=is_reading)
        self.promise.then(lambda value, error: self.answers.append((value, error)))

    def wait(self) -> tuple[Any, Exception | None]:
        self.clock.run_until(lambda: bool(self.answers))
        return self.answers[0]

    @property
    def took_ms(self) -> int:
        return self.clock.now_ms() - self.begin_ms


@pytest.mark.parametrize(
    "refusal",
    [
        NoOwner(),
        NotCoordinator("moved"),
        CoordinatorLoading("reading"),
        CoordinatorNotAvailable("not yet"),
        MOVING,
    ],
)
def test_a_request_waits_for_the_new_owner(refusal: Any) -> None:
    owner = Owner(refusal, refusal, "answer")
    asked = Asked(owner)
    assert asked.wait() == ("answer", None)
    assert (owner.asked, asked.took_ms) == (3, 2 * LOOK_MS)


@pytest.mark.parametrize("refusal", [NoOwner(), MOVING])
def test_it_does_not_wait_for_ever(refusal: Any) -> None:
    asked = Asked(Owner(refusal))
    assert refusal in asked.wait()
    assert WAIT_MS_MAX <= asked.took_ms <= WAIT_MS_MAX + LOOK_MS


@pytest.mark.parametrize("outcome", ["answer", UnknownGroup("none"), Raw(b"", b"", status=503)])
def test_any_other_answer_is_passed_on_at_once(outcome: Any) -> None:
    asked = Asked(Owner(outcome, "never"))
    assert outcome in asked.wait()
    assert asked.took_ms == 0


def test_what_may_have_been_done_is_asked_again_only_if_it_changes_nothing() -> None:
    lost = RequestTimedOut("The connection broke.")
    assert Asked(Owner(lost, "answer"), is_reading=True).wait() == ("answer", None)
    assert Asked(Owner(lost, "answer")).wait() == (None, lost)


def test_a_client_that_has_gone_is_not_asked_for_any_more() -> None:
    owner = Owner(NoOwner())
    asked = Asked(owner)
    asked.call.cancel()
    asked.clock.run_for(WAIT_MS_MAX)
    assert (owner.asked, asked.answers) == (1, [])


def test_a_client_that_goes_while_it_is_answered_is_not_asked_for_again() -> None:
    pending: Promise[Any] = Promise()
    clock, call, asked = VirtualClock(), Call({}), []

    def attempt() -> Promise[Any]:
        asked.append(1)
        return pending

    persist(attempt, call, clock, is_reading=True)
    call.cancel()
    pending.reject(RequestTimedOut("The client has gone."))
    clock.run_for(WAIT_MS_MAX)
    assert asked == [1]
