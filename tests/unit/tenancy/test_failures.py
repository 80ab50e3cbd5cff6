"""Back-off after failed attempts to authenticate."""

from __future__ import annotations

from goqueue.tenancy.failures import (
    ENTRIES_MAX,
    FORGET_MS,
    FREE_FAILURES,
    FREE_FAILURES_OF_ADDRESS,
    WAIT_MS_MAX,
    Failures,
)


def test_the_wait_doubles_after_some_free_failures() -> None:
    failures = Failures()
    waits = []
    for _ in range(FREE_FAILURES + 12):
        failures.failed("10.0.0.1", "ada", now_ms=1_000)
        waits.append(failures.wait_ms("10.0.0.1", "ada", now_ms=1_000))
    assert waits[:FREE_FAILURES] == [0] * FREE_FAILURES
    assert waits[FREE_FAILURES : FREE_FAILURES + 3] == [250, 500, 1_000]
    assert waits[-1] == WAIT_MS_MAX
    assert failures.wait_ms("10.0.0.1", "ada", now_ms=1_000 + WAIT_MS_MAX) == 0


def test_others_are_not_affected() -> None:
    failures = Failures()
    for _ in range(FREE_FAILURES + 3):
        failures.failed("10.0.0.1", "ada", now_ms=0)
    assert failures.wait_ms("10.0.0.2", "ada", now_ms=0) == 0
    assert failures.wait_ms("10.0.0.1", "bob", now_ms=0) == 0


def test_an_address_that_tries_many_users_has_to_wait() -> None:
    failures = Failures()
    for number in range(FREE_FAILURES_OF_ADDRESS + 1):
        failures.failed("10.0.0.1", f"user-{number}", now_ms=0)
    assert failures.wait_ms("10.0.0.1", "bob", now_ms=0) > 0


def test_success_and_time_forgive() -> None:
    failures = Failures()
    for _ in range(FREE_FAILURES + 1):
        failures.failed("10.0.0.1", "ada", now_ms=0)
    failures.succeeded("10.0.0.1", "ada")
    assert failures.wait_ms("10.0.0.1", "ada", now_ms=0) == 0
    for _ in range(FREE_FAILURES + 1):
        failures.failed("10.0.0.1", "ada", now_ms=0)
    failures.failed("10.0.0.1", "ada", now_ms=FORGET_MS + 1)
    assert failures.wait_ms("10.0.0.1", "ada", now_ms=FORGET_MS + 1) == 0


def test_memory_is_bounded() -> None:
    failures = Failures()
    for number in range(2 * ENTRIES_MAX):
        failures.failed(f"host-{number}", "ada", now_ms=0)
    assert len(failures._entries) == ENTRIES_MAX
