"""Problem details become the errors that the broker raised."""

from __future__ import annotations

import msgspec
import pytest

from goqueue.client.errors import BrokerRefused, BrokerUnready
from goqueue.client.http.failures import ERRORS_BY_CODE, failure_of_answer
from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier import problems


def answer(error: GoQueueError) -> tuple[int, dict[str, str], bytes]:
    problem = problems.problem_of(error)
    return problem.status, {}, msgspec.json.encode(problem)


@pytest.mark.parametrize("kind", problems.STATUSES, ids=lambda kind: kind.__name__)
def test_each_error_comes_back_as_itself_with_the_words_of_the_broker(
    kind: type[GoQueueError],
) -> None:
    status = problems.STATUSES[kind]
    problem = problems.Problem(
        type="", title="", status=status, detail="Do this.", code=kind.code, retryable=False
    )
    failure = failure_of_answer(status, {}, msgspec.json.encode(problem))
    assert failure is not None
    assert type(failure.error) is kind
    assert str(failure.error) == "Do this."


def test_a_good_answer_is_no_failure() -> None:
    assert failure_of_answer(200, {}, b"{}") is None


def test_an_unknown_topic_is_not_worth_another_try_although_it_may_come() -> None:
    failure = failure_of_answer(*answer(errors.UnknownTopic("orders")))
    assert failure is not None
    assert not failure.is_passing


def test_a_full_disk_passes_and_a_failed_one_leaves_doubts() -> None:
    full = failure_of_answer(*answer(errors.StorageFull("full")))
    failed = failure_of_answer(*answer(errors.StorageFailed("broken")))
    assert full is not None
    assert failed is not None
    assert (full.is_passing, full.is_uncertain) == (True, False)
    assert (failed.is_passing, failed.is_uncertain) == (True, True)


def test_an_error_of_a_later_version_keeps_its_words() -> None:
    body = b'{"code": "invented_later", "detail": "Wait.", "retryable": true}'
    failure = failure_of_answer(409, {}, body)
    assert failure is not None
    assert isinstance(failure.error, BrokerUnready)
    assert str(failure.error) == "Wait."
    refused = failure_of_answer(409, {}, b'{"code": "invented_later", "title": "No"}')
    assert refused is not None
    assert isinstance(refused.error, BrokerRefused)


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"\xff", b"[]", b"{}"])
def test_an_answer_of_somebody_else_is_told_by_its_status(body: bytes) -> None:
    failure = failure_of_answer(502, {"retry-after": "7"}, body)
    assert failure is not None
    assert failure.is_passing
    assert failure.is_uncertain
    assert failure.wait_seconds_min == 7.0
    assert "status 502" in str(failure.error)


def test_no_two_errors_share_a_code() -> None:
    kinds = set(ERRORS_BY_CODE.values())
    assert len(kinds) == len(ERRORS_BY_CODE)
    assert set(problems.STATUSES) <= kinds
