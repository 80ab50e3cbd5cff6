"""The one table from our errors to status codes."""

from __future__ import annotations

import inspect

import pytest

from goqueue.model import errors
from goqueue.wire.carrier import problems
from goqueue.wire.carrier.problems import STATUSES, HttpError, problem_of

OURS = [
    one
    for _, one in inspect.getmembers(errors, inspect.isclass)
    if issubclass(one, errors.GoQueueError) and one is not errors.GoQueueError
]
OF_HTTP = [
    one
    for _, one in inspect.getmembers(problems, inspect.isclass)
    if issubclass(one, HttpError) and one is not HttpError
]


@pytest.mark.parametrize("error", OURS)
def test_every_error_has_a_status(error: type[errors.GoQueueError]) -> None:
    assert error in STATUSES, (
        f"{error.__name__} of goqueue.model.errors has no status in goqueue.wire.carrier.problems"
    )


def test_the_table_names_nothing_that_is_not_an_error_of_ours() -> None:
    assert set(STATUSES) == set(OURS)


@pytest.mark.parametrize("error", OURS)
def test_a_server_error_is_the_fault_of_the_node_alone(error: type[errors.GoQueueError]) -> None:
    if STATUSES[error] >= 500:
        is_damage = "corrupt" in error.code
        assert error.retryable or is_damage, f"{error.__name__} says that the client is wrong"
    else:
        assert STATUSES[error] >= 400


def test_codes_are_unique() -> None:
    codes = [one.code for one in [*OURS, *OF_HTTP]]
    assert sorted(codes) == sorted(set(codes))


def test_a_problem_says_what_and_what_to_do() -> None:
    problem = problem_of(errors.UnknownTopic("orders"))
    assert problem.type == "urn:goqueue:problem:unknown_topic"
    assert (problem.status, problem.code, problem.title) == (404, "unknown_topic", "Unknown topic")
    assert "create it first" in problem.detail
    assert problem.retryable
