"""What clients of each front end learn about a change that may have been made, or was not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from goqueue.client.grpc import failures as grpc_failures
from goqueue.client.http.failures import Failure, failure_of_answer
from goqueue.model.errors import GoQueueError, RequestTimedOut, UpgradeInProgress
from goqueue.wire.carrier.problems import problem_of
from goqueue.wire.grpc.statuses import failure_of
from goqueue.wire.http.registry_dialect import number_of
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.sqs.errors import told

UNKNOWN = RequestTimedOut("It may have been carried out.")
REFUSED = UpgradeInProgress("It was not carried out.")


def over_http(error: GoQueueError) -> Failure:
    problem = problem_of(error)
    failure = failure_of_answer(problem.status, {}, msgspec.json.encode(problem))
    assert failure is not None
    return failure


def over_grpc(error: GoQueueError) -> Failure:
    code, text, details = failure_of(error)
    return grpc_failures.failure_of(grpc_failures.Ended(code, text, details), "here:1", None)


@pytest.mark.parametrize("answered", [over_http, over_grpc])
@pytest.mark.parametrize(("error", "is_uncertain"), [(UNKNOWN, True), (REFUSED, False)])
def test_clients_know_whether_a_change_may_have_been_made(
    answered: Callable[[GoQueueError], Failure], error: GoQueueError, is_uncertain: bool
) -> None:
    failure = answered(error)
    assert type(failure.error) is type(error)
    assert (failure.is_passing, failure.is_uncertain) == (True, is_uncertain)


def test_other_protocols_have_their_own_error_for_it() -> None:
    assert code_of(UNKNOWN) is ErrorCode.REQUEST_TIMED_OUT
    assert code_of(REFUSED) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert number_of(UNKNOWN) == 50002
    assert (told(UNKNOWN).name, told(UNKNOWN).status) == ("ServiceUnavailableException", 503)
    assert str(told(UNKNOWN)) == str(UNKNOWN)
