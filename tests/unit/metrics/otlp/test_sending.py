"""A collector that is away costs resolution, not memory, and is not stormed when it is back."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.metrics.otlp.sending import (
    ATTEMPTS_MAX,
    BACK_OFF_MS_MAX,
    RETRY_AFTER_MS_MAX,
    WAITING_MAX,
    Answer,
    Sending,
)

TAKEN = Answer(200)
AWAY = Answer(None, reason="connection refused")


def made(*bodies: bytes) -> Sending:
    sending = Sending(Random(1))
    for one in bodies:
        sending.add(one)
    return sending


def test_requests_are_sent_in_order_one_at_a_time() -> None:
    sending = made(b"a", b"b")
    assert sending.take(0) == b"a"
    assert sending.take(0) is None
    sending.answered(TAKEN, 0)
    assert sending.take(0) == b"b"
    sending.answered(TAKEN, 0)
    assert sending.take(0) is None
    assert (sending.sent, sending.failed, sending.dropped) == (2, 0, 0)


def test_a_failed_request_is_repeated_after_a_wait_that_grows() -> None:
    sending, now_ms, waits = made(b"a"), 0, []
    for _ in range(ATTEMPTS_MAX - 1):
        assert sending.take(now_ms) == b"a"
        sending.answered(AWAY, now_ms)
        wait_ms = sending.wait_ms(now_ms)
        assert wait_ms is not None
        waits.append(wait_ms)
        assert sending.take(now_ms + wait_ms - 1) is None
        now_ms += wait_ms
    assert waits[0] >= 500
    assert all(1.0 <= later / earlier <= 4.0 for earlier, later in pairwise(waits))
    assert sending.take(now_ms) == b"a"
    sending.answered(AWAY, now_ms)
    assert sending.dropped == 1
    assert sending.waiting == 0


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500])
def test_a_request_that_the_collector_refuses_is_given_up_at_once(status: int) -> None:
    sending = made(b"a", b"b")
    sending.take(0)
    sending.answered(Answer(status), 0)
    assert sending.take(0) == b"b"
    assert (sending.failed, sending.dropped) == (1, 1)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_the_collector_says_when_to_come_back(status: int) -> None:
    sending = made(b"a")
    sending.take(0)
    sending.answered(Answer(status, retry_after_ms=7_000), 0)
    assert sending.wait_ms(0) == 7_000
    assert sending.take(6_999) is None
    assert sending.take(7_000) == b"a"
    sending.answered(Answer(status, retry_after_ms=1 << 40), 7_000)
    assert sending.wait_ms(7_000) == RETRY_AFTER_MS_MAX


def test_the_oldest_are_dropped_while_the_collector_is_away() -> None:
    sending = made(*(bytes([number]) for number in range(WAITING_MAX + 3)))
    assert sending.waiting == WAITING_MAX
    assert sending.dropped == 3
    assert sending.take(0) == bytes([3])


def test_what_is_dropped_on_its_way_is_not_taken_for_the_next() -> None:
    sending = made(b"a")
    assert sending.take(0) == b"a"
    for number in range(WAITING_MAX):
        sending.add(bytes([number]))
    sending.answered(TAKEN, 0)
    assert sending.waiting == WAITING_MAX
    assert sending.take(0) == bytes([0])


@given(
    st.lists(
        st.one_of(
            st.just("add"),
            st.sampled_from([TAKEN, AWAY, Answer(400), Answer(503, 20), Answer(429)]),
        )
    )
)
def test_nothing_is_counted_twice_and_memory_is_bounded(steps: list[object]) -> None:
    sending, now_ms, added = made(), 0, 0
    for step in steps:
        now_ms += 500
        if isinstance(step, Answer):
            if sending.take(now_ms) is not None:
                sending.answered(step, now_ms)
        else:
            added += 1
            sending.add(bytes([added % 256]))
        assert sending.waiting <= WAITING_MAX
        assert (sending.wait_ms(now_ms) or 0) <= BACK_OFF_MS_MAX
        assert sending.sent + sending.dropped + sending.waiting == added
