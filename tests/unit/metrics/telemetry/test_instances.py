"""How many instances are kept, and for how long."""

from __future__ import annotations

from random import Random

import pytest

from goqueue.metrics.telemetry import instances as module
from goqueue.metrics.telemetry.instances import NO_ID, Instances, Subscription, Verdict

SUBSCRIPTION = Subscription(interval_ms=1_000, bytes_max=100, prefixes=("a.",))


def made() -> Instances:
    return Instances(SUBSCRIPTION, Random(1))


def push(instances: Instances, instance_id: bytes, now_ms: int, **fields: int) -> Verdict:
    given = {"subscription_id": SUBSCRIPTION.id, "size": 1, **fields}
    return instances.admit(instance_id, "x", is_last=False, now_ms=now_ms, **given)


def test_each_new_client_gets_an_id_of_its_own() -> None:
    instances = made()
    ids = {instances.ask(NO_ID, "x", 0)[0] for _ in range(100)}
    assert len(ids) == len(instances) == 100
    assert NO_ID not in ids


def test_a_client_of_another_node_may_push_at_once() -> None:
    """Clients keep their id when they turn to another node."""
    instances = made()
    assert push(instances, b"i" * 16, 5) is Verdict.ACCEPTED
    assert push(instances, b"i" * 16, 10) is Verdict.TOO_EARLY


def test_the_one_that_was_silent_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 3)
    instances = made()
    for number in range(3):
        push(instances, bytes([number]) * 16, number)
    push(instances, b"new" + bytes(13), 3)
    assert len(instances) == 3
    assert push(instances, b"\2" * 16, 4) is Verdict.TOO_EARLY
    # The first is unknown again, so it may push.
    assert push(instances, bytes(16), 4) is Verdict.ACCEPTED


def test_the_silent_are_forgotten_when_others_come() -> None:
    instances = made()
    push(instances, b"i" * 16, 0)
    instances.ask(NO_ID, "x", 2_999)
    assert len(instances) == 2
    instances.ask(NO_ID, "x", 3_000)
    assert len(instances) == 2


def test_a_push_that_is_a_little_early_is_accepted() -> None:
    instances = made()
    push(instances, b"i" * 16, 0)
    assert push(instances, b"i" * 16, 899) is Verdict.TOO_EARLY
    assert push(instances, b"i" * 16, 900) is Verdict.ACCEPTED


def test_a_subscription_has_another_number_when_it_changes() -> None:
    others = [
        Subscription(2_000, 100, ("a.",)),
        Subscription(1_000, 101, ("a.",)),
        Subscription(1_000, 100, ("a.", "b.")),
    ]
    numbers = {one.id for one in (SUBSCRIPTION, *others)}
    assert len(numbers) == 4
    assert all(0 <= one < 1 << 31 for one in numbers)


def test_size_and_subscription_are_checked_before_a_report_is_read() -> None:
    instances = made()
    assert push(instances, b"i" * 16, 0, size=101) is Verdict.TOO_LARGE
    assert push(instances, b"j" * 16, 0, subscription_id=7) is Verdict.UNKNOWN_SUBSCRIPTION
