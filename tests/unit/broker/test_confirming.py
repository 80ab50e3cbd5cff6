"""Asking the cluster whether what a node believes is still so."""

from __future__ import annotations

import pytest

from goqueue.broker.confirming import CONFIRM_MS_MAX, RETRY_MS, Confirming
from goqueue.loop.promise import Promise
from goqueue.model.errors import InvalidRequest, NotController, RequestTimedOut
from tests.simulation.clock import VirtualClock


class Cluster:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.asked: list[Promise[None]] = []
        self.confirming = Confirming(self.clock, self._ask)

    def _ask(self) -> Promise[None]:
        self.asked.append(Promise())
        return self.asked[-1]


def outcome(promise: Promise[None]) -> Exception | None:
    assert promise.is_done
    told: list[Exception | None] = []
    promise.then(lambda _, error: told.append(error))
    return told[0]


def test_who_comes_while_a_question_is_out_waits_for_the_next() -> None:
    """The answer may have been on its way before they came."""
    cluster = Cluster()
    first = cluster.confirming.confirm()
    later = [cluster.confirming.confirm() for _ in range(3)]
    assert len(cluster.asked) == 1
    cluster.asked[0].resolve(None)
    assert outcome(first) is None
    assert not any(one.is_done for one in later)
    assert len(cluster.asked) == 2, "one question for all of them"
    cluster.asked[1].resolve(None)
    assert [outcome(one) for one in later] == [None] * 3


def test_each_question_is_asked_anew() -> None:
    cluster = Cluster()
    for count in range(1, 4):
        confirmed = cluster.confirming.confirm()
        assert len(cluster.asked) == count
        cluster.asked[-1].resolve(None)
        assert outcome(confirmed) is None


def test_a_question_that_got_lost_is_asked_again() -> None:
    cluster = Cluster()
    confirmed = cluster.confirming.confirm()
    cluster.asked[0].reject(NotController(2))
    assert not confirmed.is_done
    cluster.clock.run_for(RETRY_MS)
    cluster.asked[1].resolve(None)
    assert outcome(confirmed) is None


def test_a_refusal_for_good_is_told_and_the_next_question_is_asked() -> None:
    cluster = Cluster()
    first, second = cluster.confirming.confirm(), cluster.confirming.confirm()
    cluster.asked[0].reject(InvalidRequest("never"))
    assert isinstance(outcome(first), InvalidRequest)
    cluster.asked[1].resolve(None)
    assert outcome(second) is None


def test_nobody_waits_for_ever_and_a_late_answer_serves_those_who_still_do() -> None:
    cluster = Cluster()
    first = cluster.confirming.confirm()
    cluster.clock.run_for(CONFIRM_MS_MAX - 1)
    second = cluster.confirming.confirm()
    cluster.clock.run_for(1)
    assert isinstance(outcome(first), RequestTimedOut)
    assert not second.is_done
    cluster.asked[0].resolve(None)
    assert len(cluster.asked) == 2
    cluster.asked[1].resolve(None)
    assert outcome(second) is None
    cluster.clock.run_until_idle()


@pytest.mark.parametrize("is_answered", [True, False])
def test_no_timer_is_left_behind(is_answered: bool) -> None:
    cluster = Cluster()
    cluster.confirming.confirm()
    if is_answered:
        cluster.asked[0].resolve(None)
        assert not cluster.clock.has_timers()
    else:
        cluster.clock.run_for(CONFIRM_MS_MAX)
        assert not cluster.clock.has_timers()
