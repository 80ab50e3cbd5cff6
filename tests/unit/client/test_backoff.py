"""Waits between attempts."""

from __future__ import annotations

import random

from goqueue.client.backoff import Backoff


def test_waits_double_up_to_a_limit_and_lose_up_to_a_half() -> None:
    backoff = Backoff(50, 1000, random.Random(1))
    waits = [backoff.next_ms() for _ in range(100)]
    for wait, full in zip(waits, [50, 100, 200, 400, 800, *[1000] * 95], strict=True):
        assert full / 2 <= wait <= full


def test_the_same_random_gives_the_same_waits() -> None:
    first, second = (Backoff(50, 1000, random.Random(5)) for _ in range(2))
    assert [first.next_ms() for _ in range(5)] == [second.next_ms() for _ in range(5)]
