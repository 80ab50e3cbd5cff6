"""The gRPC status of every error, and the details that come with some."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    InvalidTopicName,
    QuotaExceeded,
    UnknownTopic,
)
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.messages.topic_service_pb2 import CreateTopicRequest, GetTopicRequest
from goqueue.wire.grpc.statuses import Code, code_of, failure_of, field_of

from .known_errors import KNOWN, instance_of

M = TypeVar("M", bound=Message)


@pytest.mark.parametrize("kind", KNOWN, ids=lambda one: one.__name__)
def test_every_error_has_a_status(kind: type[GoQueueError]) -> None:
    code = code_of(instance_of(kind))
    if kind.retryable:
        assert code not in (Code.INVALID_ARGUMENT, Code.ALREADY_EXISTS, Code.UNIMPLEMENTED)


def details(error: GoQueueError, kind: type[M]) -> list[M]:
    status = status_pb2.Status.FromString(failure_of(error).details)
    found: list[Any] = []
    for one in status.details:
        if one.Is(kind.DESCRIPTOR):
            found.append(kind())
            one.Unpack(found[-1])
    return found


def test_a_quota_says_which_and_when_to_try_again() -> None:
    error = QuotaExceeded("producer_byte_rate", 1_000, 1_500)
    assert failure_of(error).code is Code.RESOURCE_EXHAUSTED
    [retry] = details(error, error_details_pb2.RetryInfo)
    assert retry.retry_delay.ToMilliseconds() == 1_500
    [quota] = details(error, error_details_pb2.QuotaFailure)
    assert quota.violations[0].subject == "producer_byte_rate"


def test_an_invalid_field_is_named() -> None:
    error = InvalidField("No.", field="group")
    status = status_pb2.Status.FromString(failure_of(error, field_of(error, None)).details)
    bad = error_details_pb2.BadRequest()
    [packed] = [one for one in status.details if one.Is(bad.DESCRIPTOR)]
    packed.Unpack(bad)
    assert [one.field for one in bad.field_violations] == ["group"]


def test_the_field_of_an_error_is_one_that_the_request_has() -> None:
    error = InvalidTopicName("no name", "why")
    assert field_of(error, CreateTopicRequest) == "name"
    assert field_of(error, GetTopicRequest) == "topic"
    assert field_of(InvalidRequest("No."), None, "consumer") == "consumer"
    assert field_of(UnknownTopic("orders"), GetTopicRequest) == ""


def test_the_reason_is_the_code_of_the_error() -> None:
    [info] = details(UnknownTopic("orders"), error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("unknown_topic", "goqueue")
