"""Back-off after failed attempts to authenticate."""

from __future__ import annotations

from goqueue.tenancy.failures import (
    ENTRIES_MAX,
    FORGET_MS,
    FREE_FAILURES,
    FREE_FAILURES_OF_ADDRESS,
    KNOWN_MAX,
    NAME_LENGTH_MAX,
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
    for _ in range(FREE_FAILURES):
        failures.failed("10.0.0.1", "ada", now_ms=0)
    failures.failed("10.0.0.1", "ada", now_ms=FORGET_MS)
    assert failures.wait_ms("10.0.0.1", "ada", now_ms=FORGET_MS) == 0


def test_a_client_that_keeps_failing_slowly_does_not_lock_its_address() -> None:
    failures = Failures()
    for number in range(1_000):
        failures.failed("10.0.0.1", "misconfigured", now_ms=number * WAIT_MS_MAX)
    now_ms = 999 * WAIT_MS_MAX
    assert failures.wait_ms("10.0.0.1", "ada", now_ms=now_ms) == 0


def test_a_user_that_logged_in_before_is_not_locked_out_with_its_address() -> None:
    failures = Failures()
    failures.succeeded("10.0.0.1", "ada")
    for number in range(3 * FREE_FAILURES_OF_ADDRESS):
        failures.failed("10.0.0.1", f"user-{number}", now_ms=0)
    assert failures.wait_ms("10.0.0.1", "ada", now_ms=0) == 0
    assert failures.wait_ms("10.0.0.1", "bob", now_ms=0) == WAIT_MS_MAX


def test_an_attacker_elsewhere_does_not_lock_out_a_user() -> None:
    failures = Failures()
    for number in range(2_000):
        failures.failed(f"10.1.{number // 250}.{number % 250}", "ada", now_ms=0)
        failures.failed("10.2.0.1", "ada", now_ms=0)
    assert failures.wait_ms("10.0.0.1", "ada", now_ms=0) == 0


def test_the_addresses_of_an_ipv6_network_count_together() -> None:
    failures = Failures()
    for number in range(FREE_FAILURES + 1):
        failures.failed(f"2001:db8::{number:x}", "ada", now_ms=0)
    assert failures.wait_ms("2001:db8::ffff", "ada", now_ms=0) > 0
    assert failures.wait_ms("2001:db8:0:1::1", "ada", now_ms=0) == 0
    for _ in range(FREE_FAILURES + 1):
        failures.failed("::ffff:10.0.0.1", "ada", now_ms=0)
    assert failures.wait_ms("10.0.0.1", "ada", now_ms=0) > 0


def test_names_are_not_stored_at_any_length() -> None:
    failures = Failures()
    failures.failed("10.0.0.1", "x" * 500_000, now_ms=0)
    assert all(len(user or "") <= NAME_LENGTH_MAX for _, user in failures._entries)


def test_memory_is_bounded() -> None:
    failures = Failures()
    for number in range(2 * ENTRIES_MAX):
        failures.failed(f"host-{number}", "ada", now_ms=0)
        failures.succeeded(f"host-{number}", "bob")
    assert len(failures._entries) == ENTRIES_MAX
    assert len(failures._known) == KNOWN_MAX
