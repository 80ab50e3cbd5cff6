"""The gRPC status of each error, and its details in the form of google.rpc.

Nothing here imports the gRPC library, so the table can be checked without it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import InvalidField, shown, status_of
from goqueue.wire.grpc.messages import messages_pb2

DOMAIN = "goqueue"
DETAILS_KEY = "grpc-status-details-bin"
RETRY_MS = 1000  # of errors that may pass and do not say when


class Code(IntEnum):
    """Those of google.rpc.Code that are used here."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# By the status of the same error over HTTP, unless the error is in the table below.
_BY_HTTP_STATUS = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.FAILED_PRECONDITION,
    413: Code.INVALID_ARGUMENT,
    415: Code.INVALID_ARGUMENT,
    416: Code.OUT_OF_RANGE,
    421: Code.PERMISSION_DENIED,
    422: Code.INVALID_ARGUMENT,
    429: Code.RESOURCE_EXHAUSTED,
    431: Code.INVALID_ARGUMENT,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    507: Code.RESOURCE_EXHAUSTED,
}
_OF_ERROR: dict[type[GoQueueError], Code] = {
    errors.UserExists: Code.ALREADY_EXISTS,
    errors.KeyExists: Code.ALREADY_EXISTS,
    errors.TenantExists: Code.ALREADY_EXISTS,
    errors.TopicExists: Code.ALREADY_EXISTS,
    errors.QueueExists: Code.ALREADY_EXISTS,
    errors.DuplicateSequence: Code.ALREADY_EXISTS,
    errors.FencedProducer: Code.ABORTED,
    errors.ConcurrentTransactions: Code.ABORTED,
    errors.InvalidProducerIdMapping: Code.ABORTED,
    errors.TransactionAbortable: Code.ABORTED,
    errors.TransactionCoordinatorFenced: Code.ABORTED,
    errors.RebalanceInProgress: Code.ABORTED,
    errors.UnstableOffsetCommit: Code.ABORTED,
    errors.QuotaReached: Code.RESOURCE_EXHAUSTED,
    errors.StorageQuotaReached: Code.RESOURCE_EXHAUSTED,
    errors.LimitReached: Code.RESOURCE_EXHAUSTED,
    errors.GroupFull: Code.RESOURCE_EXHAUSTED,
    errors.CorruptBatch: Code.DATA_LOSS,
    errors.CorruptDeliveryState: Code.DATA_LOSS,
    errors.CorruptJourney: Code.DATA_LOSS,
}


# The fields that errors of the core are about; a request has one of them.
_FIELDS: dict[type[GoQueueError], tuple[str, ...]] = {
    errors.InvalidTopicName: ("topic", "name"),
    errors.InvalidTopicSetting: ("settings",),
    errors.InvalidGroupSettings: ("settings",),
    errors.InvalidPartitionCount: ("partitions",),
    errors.InvalidReplicationFactor: ("replication",),
}


class Failure(NamedTuple):
    """How a call ends that has failed."""

    code: Code
    message: str
    details: bytes  # a google.rpc.Status


def code_of(error: GoQueueError) -> Code:
    return _OF_ERROR.get(type(error)) or _BY_HTTP_STATUS[status_of(error)]


def failure_of(error: GoQueueError, field: str = "") -> Failure:
    """Return the status of a call that ends with an error; `field` is the one it is about."""
    error = shown(error)
    code, message = code_of(error), str(error)
    status = status_pb2.Status(code=code, message=message)
    for detail in _details(error, code, field):
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    return Failure(code, message, status.SerializeToString())


def field_of(error: GoQueueError, request: type[Message] | None, otherwise: str = "") -> str:
    """Return the field of a request that an error is about; `otherwise` if the error is general."""
    if isinstance(error, InvalidField):
        return error.field
    if type(error) is errors.InvalidRequest:
        return otherwise
    names = _FIELDS.get(type(error), ())
    known = request.DESCRIPTOR.fields_by_name if request is not None else names
    return next((one for one in names if one in known), "")


def error_of(error: GoQueueError) -> messages_pb2.Error:
    """Return the error of a part of a request."""
    error = shown(error)
    return messages_pb2.Error(
        status=code_of(error), reason=error.code, message=str(error), retryable=error.retryable
    )


def _details(error: GoQueueError, code: Code, field: str) -> list[Message]:
    about = {"retryable": "true" if error.retryable else "false"}
    found: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.code, domain=DOMAIN, metadata=about)
    ]
    if field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=str(error))
        found.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, errors.QuotaExceeded):
        exceeded = error_details_pb2.QuotaFailure.Violation(
            subject=error.limit, description=str(error)
        )
        found.append(error_details_pb2.QuotaFailure(violations=[exceeded]))
    if error.retryable and code in (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED):
        found.append(error_details_pb2.RetryInfo(retry_delay=_delay(error)))
    return found


def _delay(error: GoQueueError) -> Duration:
    wait_ms = getattr(error, "wait_ms", 0) or RETRY_MS
    duration = Duration()
    duration.FromMilliseconds(wait_ms)
    return duration
