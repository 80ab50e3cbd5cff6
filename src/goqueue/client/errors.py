"""The table that maps Kafka's error codes to exceptions.

A code that has a class in `model.errors` becomes that class. Other codes become `BrokerRefused`, or
`BrokerUnready` if the same call may succeed later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from goqueue.model import errors as model
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition, check_topic_name

NONE = 0
UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
UNSUPPORTED_VERSION = 35
SASL_AUTHENTICATION_FAILED = 58


class BrokerRefused(GoQueueError):
    """An error of the broker that has no class of its own; the text contains its name."""

    code = "broker_refused"


class BrokerUnready(GoQueueError):
    """A temporary error of the broker."""

    code = "broker_unready"
    retryable = True


class Unreachable(GoQueueError):
    """No connection could be established."""

    code = "unreachable"
    retryable = True


class ConnectionLost(GoQueueError):
    """The connection broke before the response: the request may or may not have been executed."""

    code = "connection_lost"
    retryable = True


class HungUp(ConnectionLost):
    """The connection was closed before its first response.

    Right at the first contact that is more likely a listener that requires TLS or credentials than
    a restart.
    """

    code = "hung_up"
    lacks_tls = False  # the client used none, and the listener may require it


class TlsFailed(GoQueueError):
    """The TLS handshake failed, for a reason that does not pass by itself."""

    code = "tls_failed"


class SecretRefused(model.AuthenticationFailed):
    """The broker refused a secret that a function returned: the next one may be right.

    While a password is rotated, the broker and the clients do not learn of it at the same moment.
    """

    code = "secret_refused"
    retryable = True


class ErrorContext(NamedTuple):
    """The resource that a request was about, for the text of its error."""

    topic: str = ""
    partition: int = -1
    group: str = ""
    transaction: str = ""

    def __str__(self) -> str:
        if self.group:
            return f"group {self.group!r}"
        if self.transaction:
            return f"transaction {self.transaction!r}"
        if self.partition >= 0:
            return f"{self.topic}/{self.partition}"
        return f"topic {self.topic!r}" if self.topic else ""


NOTHING = ErrorContext()
Make = Callable[[str, ErrorContext], GoQueueError]


@dataclass(frozen=True, slots=True)
class KafkaError:
    """One error code: its name, its class, and how the exception is created."""

    number: int
    name: str
    kind: type[GoQueueError]
    make: Make | None = None

    @property
    def is_retryable(self) -> bool:
        return self.kind.retryable


def error_of(
    number: int, message: str | None = None, about: ErrorContext = NOTHING
) -> GoQueueError:
    """The exception for a code other than zero, with the broker's message if it sent one."""
    row = KAFKA_ERRORS.get(number) or KafkaError(number, f"ERROR_{number}", BrokerRefused)
    text = message or _sentence(row.name, about)
    return row.make(text, about) if row.make else row.kind(text)


def check(number: int, message: str | None = None, about: ErrorContext = NOTHING) -> None:
    """Raise the exception for a code other than zero."""
    if number != NONE:
        raise error_of(number, message, about)


def _sentence(name: str, about: ErrorContext) -> str:
    whom = f" for {about}" if str(about) else ""
    return f"The broker answered {name.lower().replace('_', ' ')}{whom}."


def _unknown_topic_or_partition(_: str, about: ErrorContext) -> GoQueueError:
    if about.partition < 0:
        return model.UnknownTopic(about.topic)
    return model.UnknownPartition(TopicPartition(about.topic, about.partition))


def _not_leader(_: str, about: ErrorContext) -> GoQueueError:
    return model.NotLeader(TopicPartition(about.topic, about.partition), -1)


def _out_of_range(_: str, about: ErrorContext) -> GoQueueError:
    # The valid range is not in the response; a caller that knows it raises a better error.
    return model.OffsetOutOfRange(
        TopicPartition(about.topic, about.partition), -1, start=-1, end=-1
    )


def _invalid_topic(_: str, about: ErrorContext) -> GoQueueError:
    # The code has two meanings. If the name is valid, the error is about what it belongs to.
    try:
        check_topic_name(about.topic)
    except model.InvalidTopicName as error:
        return error
    return model.InternalTopic(about.topic)


def _policy_violation(text: str, about: ErrorContext) -> GoQueueError:
    # For a partition it means that deleting records is not allowed; for a topic, any policy.
    return model.RecordsKept(about.topic) if about.partition >= 0 else BrokerRefused(text)


def _unknown_member(_: str, about: ErrorContext) -> GoQueueError:
    return model.UnknownMember(about.group, "")


def _unknown_transaction(_: str, about: ErrorContext) -> GoQueueError:
    return model.UnknownTransaction(
        f"There is no transactional id {about.transaction!r}; `goqueue txn list` shows those there "
        "are."
    )


def _access_denied(text: str, about: ErrorContext) -> GoQueueError:
    return model.AccessDenied.with_text(
        f"{text.rstrip('.')}: these credentials lack a permission; request it, or use others."
    )


# If `model.errors` has a class, the class decides whether a retry makes sense.
_ROWS = (
    KafkaError(-1, "UNKNOWN_SERVER_ERROR", BrokerRefused),
    KafkaError(1, "OFFSET_OUT_OF_RANGE", model.OffsetOutOfRange, _out_of_range),
    KafkaError(2, "CORRUPT_MESSAGE", model.CorruptBatch),
    KafkaError(3, "UNKNOWN_TOPIC_OR_PARTITION", model.UnknownTopic, _unknown_topic_or_partition),
    KafkaError(4, "INVALID_FETCH_SIZE", BrokerRefused),
    KafkaError(5, "LEADER_NOT_AVAILABLE", BrokerUnready),
    KafkaError(6, "NOT_LEADER_OR_FOLLOWER", model.NotLeader, _not_leader),
    KafkaError(7, "REQUEST_TIMED_OUT", model.RequestTimedOut),
    KafkaError(8, "BROKER_NOT_AVAILABLE", BrokerUnready),
    KafkaError(9, "REPLICA_NOT_AVAILABLE", BrokerUnready),
    KafkaError(10, "MESSAGE_TOO_LARGE", model.RecordTooLarge),
    KafkaError(11, "STALE_CONTROLLER_EPOCH", BrokerRefused),
    KafkaError(12, "OFFSET_METADATA_TOO_LARGE", model.OffsetMetadataTooLarge),
    KafkaError(13, "NETWORK_EXCEPTION", BrokerUnready),
    KafkaError(14, "COORDINATOR_LOAD_IN_PROGRESS", model.CoordinatorLoading),
    KafkaError(15, "COORDINATOR_NOT_AVAILABLE", model.CoordinatorNotAvailable),
    KafkaError(16, "NOT_COORDINATOR", model.NotCoordinator),
    KafkaError(17, "INVALID_TOPIC_EXCEPTION", model.InvalidTopicName, _invalid_topic),
    KafkaError(18, "RECORD_LIST_TOO_LARGE", model.RecordTooLarge),
    KafkaError(19, "NOT_ENOUGH_REPLICAS", model.NotEnoughReplicas),
    KafkaError(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", model.NotEnoughReplicas),
    KafkaError(21, "INVALID_REQUIRED_ACKS", model.InvalidRequest),
    KafkaError(22, "ILLEGAL_GENERATION", model.IllegalGeneration),
    KafkaError(23, "INCONSISTENT_GROUP_PROTOCOL", model.InconsistentProtocol),
    KafkaError(24, "INVALID_GROUP_ID", model.InvalidGroupId),
    KafkaError(25, "UNKNOWN_MEMBER_ID", model.UnknownMember, _unknown_member),
    KafkaError(26, "INVALID_SESSION_TIMEOUT", model.InvalidSessionTimeout),
    KafkaError(27, "REBALANCE_IN_PROGRESS", model.RebalanceInProgress),
    KafkaError(28, "INVALID_COMMIT_OFFSET_SIZE", BrokerRefused),
    KafkaError(29, "TOPIC_AUTHORIZATION_FAILED", model.AccessDenied, _access_denied),
    KafkaError(30, "GROUP_AUTHORIZATION_FAILED", model.AccessDenied, _access_denied),
    KafkaError(31, "CLUSTER_AUTHORIZATION_FAILED", model.AccessDenied, _access_denied),
    KafkaError(32, "INVALID_TIMESTAMP", model.InvalidTimestamp),
    KafkaError(33, "UNSUPPORTED_SASL_MECHANISM", BrokerRefused),
    KafkaError(34, "ILLEGAL_SASL_STATE", BrokerRefused),
    KafkaError(35, "UNSUPPORTED_VERSION", model.UnsupportedVersion),
    KafkaError(
        36,
        "TOPIC_ALREADY_EXISTS",
        model.TopicExists,
        lambda _, about: model.TopicExists(about.topic),
    ),
    KafkaError(37, "INVALID_PARTITIONS", model.InvalidPartitionCount),
    KafkaError(38, "INVALID_REPLICATION_FACTOR", model.InvalidReplicationFactor),
    KafkaError(39, "INVALID_REPLICA_ASSIGNMENT", model.InvalidReplicaAssignment),
    KafkaError(40, "INVALID_CONFIG", model.InvalidTopicSetting),
    KafkaError(41, "NOT_CONTROLLER", BrokerUnready),
    KafkaError(42, "INVALID_REQUEST", model.InvalidRequest),
    KafkaError(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", model.UnsupportedFormat),
    KafkaError(44, "POLICY_VIOLATION", model.RecordsKept, _policy_violation),
    KafkaError(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", model.OutOfOrderSequence),
    KafkaError(46, "DUPLICATE_SEQUENCE_NUMBER", model.DuplicateSequence),
    KafkaError(47, "INVALID_PRODUCER_EPOCH", model.FencedProducer),
    KafkaError(48, "INVALID_TXN_STATE", model.InvalidTransactionState),
    KafkaError(49, "INVALID_PRODUCER_ID_MAPPING", model.InvalidProducerIdMapping),
    KafkaError(50, "INVALID_TRANSACTION_TIMEOUT", model.InvalidTransactionTimeout),
    KafkaError(51, "CONCURRENT_TRANSACTIONS", model.ConcurrentTransactions),
    KafkaError(52, "TRANSACTION_COORDINATOR_FENCED", model.TransactionCoordinatorFenced),
    KafkaError(53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", model.AccessDenied, _access_denied),
    KafkaError(54, "SECURITY_DISABLED", BrokerRefused),
    KafkaError(55, "OPERATION_NOT_ATTEMPTED", BrokerRefused),
    KafkaError(56, "KAFKA_STORAGE_ERROR", model.StorageFailed),
    KafkaError(57, "LOG_DIR_NOT_FOUND", BrokerRefused),
    KafkaError(58, "SASL_AUTHENTICATION_FAILED", model.AuthenticationFailed),
    KafkaError(59, "UNKNOWN_PRODUCER_ID", model.UnknownProducer),
    KafkaError(60, "REASSIGNMENT_IN_PROGRESS", BrokerRefused),
    KafkaError(61, "DELEGATION_TOKEN_AUTH_DISABLED", BrokerRefused),
    KafkaError(62, "DELEGATION_TOKEN_NOT_FOUND", BrokerRefused),
    KafkaError(63, "DELEGATION_TOKEN_OWNER_MISMATCH", BrokerRefused),
    KafkaError(64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", BrokerRefused),
    KafkaError(65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", model.AccessDenied, _access_denied),
    KafkaError(66, "DELEGATION_TOKEN_EXPIRED", BrokerRefused),
    KafkaError(67, "INVALID_PRINCIPAL_TYPE", BrokerRefused),
    KafkaError(
        68,
        "NON_EMPTY_GROUP",
        model.GroupNotEmpty,
        lambda _, about: model.GroupNotEmpty(about.group),
    ),
    KafkaError(
        69,
        "GROUP_ID_NOT_FOUND",
        model.UnknownGroup,
        lambda _, about: model.UnknownGroup(about.group),
    ),
    KafkaError(70, "FETCH_SESSION_ID_NOT_FOUND", model.UnknownFetchSession),
    KafkaError(71, "INVALID_FETCH_SESSION_EPOCH", model.InvalidFetchSessionEpoch),
    KafkaError(72, "LISTENER_NOT_FOUND", BrokerUnready),
    KafkaError(73, "TOPIC_DELETION_DISABLED", BrokerRefused),
    KafkaError(74, "FENCED_LEADER_EPOCH", model.FencedLeaderEpoch),
    KafkaError(75, "UNKNOWN_LEADER_EPOCH", model.UnknownLeaderEpoch),
    KafkaError(76, "UNSUPPORTED_COMPRESSION_TYPE", model.UnsupportedCompression),
    KafkaError(77, "STALE_BROKER_EPOCH", BrokerRefused),
    KafkaError(78, "OFFSET_NOT_AVAILABLE", BrokerUnready),
    KafkaError(
        79, "MEMBER_ID_REQUIRED", model.MemberIdRequired, lambda _, __: model.MemberIdRequired("")
    ),
    KafkaError(80, "PREFERRED_LEADER_NOT_AVAILABLE", BrokerUnready),
    KafkaError(81, "GROUP_MAX_SIZE_REACHED", model.GroupFull),
    KafkaError(82, "FENCED_INSTANCE_ID", model.FencedInstance),
    KafkaError(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", BrokerUnready),
    KafkaError(84, "ELECTION_NOT_NEEDED", BrokerRefused),
    KafkaError(85, "NO_REASSIGNMENT_IN_PROGRESS", BrokerRefused),
    KafkaError(86, "GROUP_SUBSCRIBED_TO_TOPIC", model.GroupSubscribedToTopic),
    KafkaError(87, "INVALID_RECORD", model.InvalidRecord),
    KafkaError(88, "UNSTABLE_OFFSET_COMMIT", model.UnstableOffsetCommit),
    KafkaError(89, "THROTTLING_QUOTA_EXCEEDED", BrokerUnready),
    KafkaError(90, "PRODUCER_FENCED", model.FencedProducer),
    KafkaError(91, "RESOURCE_NOT_FOUND", BrokerRefused),
    KafkaError(92, "DUPLICATE_RESOURCE", BrokerRefused),
    KafkaError(93, "UNACCEPTABLE_CREDENTIAL", model.InvalidCredential),
    KafkaError(94, "INCONSISTENT_VOTER_SET", BrokerRefused),
    KafkaError(95, "INVALID_UPDATE_VERSION", BrokerRefused),
    KafkaError(96, "FEATURE_UPDATE_FAILED", BrokerRefused),
    KafkaError(97, "PRINCIPAL_DESERIALIZATION_FAILURE", BrokerRefused),
    KafkaError(98, "SNAPSHOT_NOT_FOUND", BrokerRefused),
    KafkaError(99, "POSITION_OUT_OF_RANGE", BrokerRefused),
    KafkaError(
        100,
        "UNKNOWN_TOPIC_ID",
        model.UnknownTopicId,
        lambda _, about: model.UnknownTopicId(about.topic or "sent"),
    ),
    KafkaError(101, "DUPLICATE_BROKER_REGISTRATION", BrokerRefused),
    KafkaError(102, "BROKER_ID_NOT_REGISTERED", BrokerRefused),
    KafkaError(103, "INCONSISTENT_TOPIC_ID", BrokerUnready),
    KafkaError(104, "INCONSISTENT_CLUSTER_ID", BrokerRefused),
    KafkaError(105, "TRANSACTIONAL_ID_NOT_FOUND", model.UnknownTransaction, _unknown_transaction),
    KafkaError(106, "FETCH_SESSION_TOPIC_ID_ERROR", BrokerUnready),
    KafkaError(107, "INELIGIBLE_REPLICA", BrokerRefused),
    KafkaError(108, "NEW_LEADER_ELECTED", BrokerRefused),
    KafkaError(109, "OFFSET_MOVED_TO_TIERED_STORAGE", BrokerRefused),
    KafkaError(110, "FENCED_MEMBER_EPOCH", model.FencedMemberEpoch),
    KafkaError(111, "UNRELEASED_INSTANCE_ID", model.UnreleasedInstance),
    KafkaError(112, "UNSUPPORTED_ASSIGNOR", model.UnsupportedAssignor),
    KafkaError(113, "STALE_MEMBER_EPOCH", model.StaleMemberEpoch),
    KafkaError(114, "MISMATCHED_ENDPOINT_TYPE", BrokerRefused),
    KafkaError(115, "UNSUPPORTED_ENDPOINT_TYPE", BrokerRefused),
    KafkaError(116, "UNKNOWN_CONTROLLER_ID", BrokerRefused),
    KafkaError(117, "UNKNOWN_SUBSCRIPTION_ID", BrokerRefused),
    KafkaError(118, "TELEMETRY_TOO_LARGE", BrokerRefused),
    KafkaError(119, "INVALID_REGISTRATION", BrokerRefused),
    KafkaError(120, "TRANSACTION_ABORTABLE", model.TransactionAbortable),
    KafkaError(121, "INVALID_RECORD_STATE", model.InvalidRecordState),
    KafkaError(122, "SHARE_SESSION_NOT_FOUND", model.UnknownShareSession),
    KafkaError(123, "INVALID_SHARE_SESSION_EPOCH", model.InvalidShareSessionEpoch),
    KafkaError(124, "FENCED_STATE_EPOCH", BrokerRefused),
    KafkaError(125, "INVALID_VOTER_KEY", BrokerRefused),
    KafkaError(126, "DUPLICATE_VOTER", BrokerRefused),
    KafkaError(127, "VOTER_NOT_FOUND", BrokerRefused),
    KafkaError(128, "INVALID_REGULAR_EXPRESSION", model.InvalidRegularExpression),
    KafkaError(129, "REBOOTSTRAP_REQUIRED", BrokerUnready),
    KafkaError(130, "STREAMS_INVALID_TOPOLOGY", BrokerRefused),
    KafkaError(131, "STREAMS_INVALID_TOPOLOGY_EPOCH", BrokerRefused),
    KafkaError(132, "STREAMS_TOPOLOGY_FENCED", BrokerRefused),
    KafkaError(133, "SHARE_SESSION_LIMIT_REACHED", model.ShareSessionLimitReached),
)

KAFKA_ERRORS = {row.number: row for row in _ROWS}
