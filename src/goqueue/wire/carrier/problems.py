"""Errors as problem details (RFC 9457), and the table of their status codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from goqueue.model import errors
from goqueue.model.access import ResourceKind
from goqueue.model.errors import GoQueueError

MEDIA_TYPE = b"application/problem+json"
_TYPE_PREFIX = "urn:goqueue:problem:"


class HttpError(GoQueueError):
    """An error of a request that is found before the broker is called."""

    status: ClassVar[int] = 400


class UnknownRoute(HttpError):
    code = "unknown_route"
    status = 404

    def __init__(self, path: str) -> None:
        super().__init__(f"There is no route {path[:200]!r}; /docs and /openapi.json list them.")


class MethodNotAllowed(HttpError):
    code = "method_not_allowed"
    status = 405

    def __init__(self, method: str, allowed: list[str]) -> None:
        self.allowed = allowed
        super().__init__(f"{method[:20]} is not allowed here; use {' or '.join(allowed)}.")


class InvalidField(HttpError):
    """A body or a query that does not match its route."""

    code = "invalid_field"

    def __init__(self, detail: str, *, field: str = "") -> None:
        self.field = field
        super().__init__(detail)


class MalformedJson(HttpError):
    code = "malformed_json"


class UnsupportedMediaType(HttpError):
    code = "unsupported_media_type"
    status = 415

    def __init__(self, media_type: str) -> None:
        super().__init__(
            f"A body of type {media_type[:100]!r} cannot be read; send JSON and the header "
            "'Content-Type: application/json'."
        )


class BodyTooLarge(HttpError):
    code = "body_too_large"
    status = 413

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"A body may have at most {bytes_max} bytes (setting listeners.http_body_bytes_max); "
            "send less at once."
        )


class HeadTooLarge(HttpError):
    code = "head_too_large"
    status = 431

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"The path and headers of a request may have at most {bytes_max} bytes.")


class SlowRequest(HttpError):
    code = "slow_request"
    retryable = True
    status = 408

    def __init__(self) -> None:
        super().__init__(
            "The request did not arrive in time (setting listeners.http_receive_timeout_ms)."
        )


class MalformedHttp(HttpError):
    code = "malformed_http"

    def __init__(self) -> None:
        super().__init__("These bytes are not an HTTP/1.1 request.")


class RepeatedHeader(HttpError):
    code = "repeated_header"

    def __init__(self, name: str) -> None:
        super().__init__(f"The header {name!r} is given twice; send it once.")


class MissingHost(HttpError):
    code = "missing_host"

    def __init__(self) -> None:
        super().__init__("A request of HTTP/1.1 has the header Host.")


class UnsupportedTransfer(HttpError):
    code = "unsupported_transfer_encoding"
    status = 501

    def __init__(self, coding: str) -> None:
        super().__init__(
            f"The transfer encoding {coding[:100]!r} is not supported; send 'chunked', or a "
            "Content-Length."
        )


class UnsupportedCoding(HttpError):
    code = "unsupported_content_encoding"
    status = 415

    def __init__(self, coding: str) -> None:
        super().__init__(
            f"A body with the content encoding {coding[:100]!r} cannot be read; send it as it is."
        )


class UnknownHost(HttpError):
    """An unknown host name in a request, possibly DNS rebinding by another site."""

    code = "unknown_host"
    status = 421

    def __init__(self, host: str) -> None:
        super().__init__(
            f"The host name {host[:200]!r} is not accepted. If it belongs to this node, a proxy or "
            "a load balancer, add it to the setting listeners.http_hosts; else use the address of "
            "the node."
        )


class ForeignOrigin(HttpError):
    code = "foreign_origin"
    status = 403

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"A page of {origin[:200]!r} may not send this request; only pages of this node may."
        )


class ReceiveMemoryFull(HttpError):
    code = "receive_memory_full"
    retryable = True
    status = 503

    def __init__(self) -> None:
        super().__init__("Too many large bodies are being received at once; retry later.")


class NodeStopping(HttpError):
    code = "node_stopping"
    retryable = True
    status = 503

    def __init__(self) -> None:
        super().__init__("The node is stopping; retry after its restart, or use another node.")


class NodeStarting(HttpError):
    """The node is not yet an accepted member of its cluster."""

    code = "node_starting"
    retryable = True
    status = 503

    def __init__(self, waits_for: str) -> None:
        super().__init__(f"The node is not ready; retry, or use another node. {waits_for}")


class InternalError(HttpError):
    """An internal error. Its details are in the log, not in the response."""

    code = "internal_error"
    status = 500

    def __init__(self) -> None:
        super().__init__("The node failed to handle this request; its log contains the reason.")


STATUSES: dict[type[GoQueueError], int] = {
    errors.InvalidSettings: 400,
    errors.InvalidRequest: 400,
    errors.AccessDenied: 403,
    errors.AuthenticationRequired: 401,
    errors.AuthenticationFailed: 401,
    errors.TooManyFailures: 429,
    errors.InvalidAcl: 400,
    errors.InvalidRole: 400,
    errors.InvalidCredential: 400,
    errors.UnknownUser: 404,
    errors.UserExists: 409,
    errors.UnknownCredential: 404,
    errors.UnknownKey: 404,
    errors.KeyExists: 409,
    errors.UnknownRole: 404,
    errors.InvalidTenantName: 400,
    errors.UnknownTenant: 404,
    errors.TenantExists: 409,
    errors.TenantInUse: 409,
    errors.TenantSuspended: 403,
    errors.QuotaExceeded: 429,
    errors.QuotaReached: 403,
    errors.StorageQuotaReached: 403,
    errors.InFlightQuotaReached: 429,
    errors.InvalidQuota: 400,
    errors.NoOwner: 503,
    errors.UpgradeInProgress: 503,
    errors.MalformedRequest: 400,
    errors.RequestTooLarge: 413,
    errors.UnsupportedVersion: 400,
    errors.InvalidTopicName: 400,
    errors.TopicExists: 409,
    errors.UnknownTopic: 404,
    errors.UnknownTopicId: 404,
    errors.UnknownPartition: 404,
    errors.UnknownMessage: 404,
    errors.TopicDeletionDisabled: 403,
    errors.InvalidPartitionCount: 400,
    errors.InvalidReplicationFactor: 400,
    errors.InvalidReplicaAssignment: 400,
    errors.InvalidTopicSetting: 400,
    errors.RecordsKept: 409,
    errors.NotCompacted: 409,
    errors.InternalTopic: 403,
    errors.NotLeader: 503,
    errors.FencedLeaderEpoch: 409,
    errors.UnknownLeaderEpoch: 409,
    errors.NotController: 503,
    errors.UnknownNode: 404,
    errors.NodeConflict: 409,
    errors.StaleIncarnation: 409,
    errors.NodeInUse: 409,
    errors.QuorumAtRisk: 409,
    errors.ForeignCluster: 409,
    errors.StalePartitionVersion: 409,
    errors.IneligibleReplica: 409,
    errors.NoReassignment: 404,
    errors.ElectionNotNeeded: 409,
    errors.PreferredLeaderNotAvailable: 503,
    errors.NoEligibleLeader: 503,
    errors.InvalidRecord: 400,
    errors.InvalidAttribute: 400,
    errors.CorruptBatch: 500,
    errors.UnpacksTooLarge: 413,
    errors.RecordTooLarge: 413,
    errors.InvalidTimestamp: 400,
    errors.UnsupportedFormat: 400,
    errors.UnsupportedCompression: 400,
    errors.OffsetOutOfRange: 416,
    errors.OutOfOrderSequence: 409,
    errors.DuplicateSequence: 409,
    errors.UnknownProducer: 409,
    errors.FencedProducer: 409,
    errors.NotEnoughReplicas: 503,
    errors.RequestTimedOut: 503,
    errors.StorageFull: 507,
    errors.StorageFailed: 503,
    errors.InvalidGroupId: 400,
    errors.UnknownGroup: 404,
    errors.GroupNotEmpty: 409,
    errors.GroupSubscribedToTopic: 409,
    errors.CoordinatorNotAvailable: 503,
    errors.CoordinatorLoading: 503,
    errors.NotCoordinator: 503,
    errors.UnknownMember: 404,
    errors.MemberIdRequired: 409,
    errors.FencedInstance: 409,
    errors.UnreleasedInstance: 409,
    errors.IllegalGeneration: 409,
    errors.RebalanceInProgress: 409,
    errors.InconsistentProtocol: 409,
    errors.InvalidSessionTimeout: 400,
    errors.FencedMemberEpoch: 409,
    errors.StaleMemberEpoch: 409,
    errors.UnsupportedAssignor: 400,
    errors.InvalidRegularExpression: 400,
    errors.GroupFull: 409,
    errors.LimitReached: 409,
    errors.MetricsDisabled: 404,
    errors.OffsetMetadataTooLarge: 400,
    errors.InvalidTransactionState: 409,
    errors.ConcurrentTransactions: 409,
    errors.InvalidProducerIdMapping: 409,
    errors.UnknownTransaction: 404,
    errors.InvalidTransactionTimeout: 400,
    errors.UnstableOffsetCommit: 409,
    errors.TransactionAbortable: 409,
    errors.TransactionCoordinatorFenced: 409,
    errors.UnknownFetchSession: 404,
    errors.InvalidFetchSessionEpoch: 409,
    errors.UnknownShareSession: 404,
    errors.InvalidShareSessionEpoch: 409,
    errors.ShareSessionLimitReached: 409,
    errors.GroupKindMismatch: 409,
    errors.InvalidGroupSettings: 400,
    errors.InvalidSchema: 422,
    errors.SchemaRefused: 422,
    errors.SchemaMismatch: 422,
    errors.QueueExists: 409,
    errors.UnknownQueue: 404,
    errors.QueueDeletedRecently: 409,
    errors.PurgeInProgress: 409,
    errors.DeduplicationFull: 503,
    errors.LeaseTooLong: 409,
    errors.InvalidReceipt: 400,
    errors.InvalidRecordState: 409,
    errors.StaleReceipt: 409,
    errors.DeadLettering: 503,
    errors.CorruptDeliveryState: 500,
    errors.CorruptJourney: 500,
    errors.UnknownSchedule: 404,
    errors.ScheduleReleased: 409,
    errors.UnknownRedrive: 404,
    errors.UnknownReport: 404,
    errors.RedriveActive: 409,
    errors.RedriveEnded: 409,
}


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The reason why a request was refused. `code` is stable; `detail` says what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    field: str = ""


_UNKNOWN: dict[str, Callable[[str], GoQueueError]] = {
    ResourceKind.TOPIC: errors.UnknownTopic,
    ResourceKind.GROUP: errors.UnknownGroup,
    ResourceKind.TRANSACTIONAL_ID: lambda name: errors.UnknownTransaction(
        f"Transactional id {name!r} does not exist."
    ),
    ResourceKind.SUBJECT: lambda name: errors.SchemaRefused(
        errors.SchemaRefusal.UNKNOWN_SUBJECT, f"Subject '{name}' not found."
    ),
}


def shown(error: GoQueueError) -> GoQueueError:
    """Return the error for a client: what it may not see looks as if it did not exist."""
    if isinstance(error, errors.AccessDenied) and error.is_hidden and error.kind in _UNKNOWN:
        return _UNKNOWN[error.kind](error.name)
    return error


def status_of(error: GoQueueError) -> int:
    return error.status if isinstance(error, HttpError) else STATUSES[type(error)]


def problem_of(error: GoQueueError) -> Problem:
    error = shown(error)
    return Problem(
        type=_TYPE_PREFIX + error.code,
        title=error.code.replace("_", " ").capitalize(),
        status=status_of(error),
        detail=str(error),
        code=error.code,
        retryable=error.retryable,
        field=error.field if isinstance(error, InvalidField) else "",
    )
