"""The table that maps our errors to Kafka's error codes."""

from __future__ import annotations

from enum import IntEnum

from goqueue.model import errors
from goqueue.model.access import ResourceKind


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    INELIGIBLE_REPLICA = 107
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133


CODES: dict[type[errors.GoQueueError], ErrorCode] = {
    errors.InvalidSettings: ErrorCode.INVALID_CONFIG,
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.MalformedRequest: ErrorCode.INVALID_REQUEST,
    errors.RequestTooLarge: ErrorCode.INVALID_REQUEST,
    errors.UnsupportedVersion: ErrorCode.UNSUPPORTED_VERSION,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownMessage: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.TopicDeletionDisabled: ErrorCode.TOPIC_DELETION_DISABLED,
    errors.InvalidPartitionCount: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.InvalidTopicSetting: ErrorCode.INVALID_CONFIG,
    errors.RecordsKept: ErrorCode.POLICY_VIOLATION,
    errors.NotCompacted: ErrorCode.POLICY_VIOLATION,
    errors.InternalTopic: ErrorCode.INVALID_TOPIC,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.NotController: ErrorCode.NOT_CONTROLLER,
    errors.UnknownNode: ErrorCode.BROKER_ID_NOT_REGISTERED,
    errors.NodeConflict: ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    errors.StaleIncarnation: ErrorCode.STALE_BROKER_EPOCH,
    errors.NodeInUse: ErrorCode.POLICY_VIOLATION,
    errors.QuorumAtRisk: ErrorCode.POLICY_VIOLATION,
    errors.ForeignCluster: ErrorCode.INCONSISTENT_CLUSTER_ID,
    errors.StalePartitionVersion: ErrorCode.INVALID_UPDATE_VERSION,
    errors.IneligibleReplica: ErrorCode.INELIGIBLE_REPLICA,
    errors.NoReassignment: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    errors.ElectionNotNeeded: ErrorCode.ELECTION_NOT_NEEDED,
    errors.PreferredLeaderNotAvailable: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    errors.NoEligibleLeader: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.InvalidAttribute: ErrorCode.INVALID_RECORD,
    errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    errors.UnpacksTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.UnsupportedFormat: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    errors.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    errors.UnknownProducer: ErrorCode.UNKNOWN_PRODUCER_ID,
    errors.FencedProducer: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.StorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    errors.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupSubscribedToTopic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.AccessDenied: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    errors.AuthenticationRequired: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.AuthenticationFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.TooManyFailures: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.InvalidAcl: ErrorCode.INVALID_REQUEST,
    errors.InvalidRole: ErrorCode.INVALID_REQUEST,
    errors.InvalidCredential: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    errors.UnknownUser: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UserExists: ErrorCode.DUPLICATE_RESOURCE,
    errors.UnknownCredential: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UnknownKey: ErrorCode.RESOURCE_NOT_FOUND,
    errors.KeyExists: ErrorCode.DUPLICATE_RESOURCE,
    errors.UnknownRole: ErrorCode.RESOURCE_NOT_FOUND,
    errors.InvalidTenantName: ErrorCode.INVALID_REQUEST,
    errors.UnknownTenant: ErrorCode.RESOURCE_NOT_FOUND,
    errors.TenantExists: ErrorCode.DUPLICATE_RESOURCE,
    errors.TenantInUse: ErrorCode.POLICY_VIOLATION,
    errors.TenantSuspended: ErrorCode.POLICY_VIOLATION,
    errors.QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.QuotaReached: ErrorCode.POLICY_VIOLATION,
    errors.StorageQuotaReached: ErrorCode.POLICY_VIOLATION,
    errors.InFlightQuotaReached: ErrorCode.POLICY_VIOLATION,
    errors.InvalidQuota: ErrorCode.INVALID_REQUEST,
    errors.NoOwner: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.UpgradeInProgress: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorNotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    errors.UnreleasedInstance: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    errors.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.InvalidRegularExpression: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.LimitReached: ErrorCode.POLICY_VIOLATION,
    errors.MetricsDisabled: ErrorCode.INVALID_REQUEST,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.GroupKindMismatch: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.InvalidGroupSettings: ErrorCode.INVALID_CONFIG,
    errors.InvalidSchema: ErrorCode.INVALID_REQUEST,
    errors.SchemaRefused: ErrorCode.INVALID_REQUEST,
    errors.SchemaMismatch: ErrorCode.INVALID_RECORD,
    errors.QueueExists: ErrorCode.INVALID_REQUEST,
    errors.UnknownQueue: ErrorCode.INVALID_REQUEST,
    errors.QueueDeletedRecently: ErrorCode.INVALID_REQUEST,
    errors.PurgeInProgress: ErrorCode.INVALID_REQUEST,
    errors.DeduplicationFull: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.LeaseTooLong: ErrorCode.INVALID_REQUEST,
    errors.InvalidReceipt: ErrorCode.INVALID_REQUEST,
    errors.InvalidRecordState: ErrorCode.INVALID_RECORD_STATE,
    errors.StaleReceipt: ErrorCode.INVALID_REQUEST,
    errors.DeadLettering: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CorruptDeliveryState: ErrorCode.INVALID_REQUEST,
    errors.CorruptJourney: ErrorCode.INVALID_REQUEST,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.InvalidProducerIdMapping: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.UnknownTransaction: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.UnstableOffsetCommit: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.TransactionAbortable: ErrorCode.TRANSACTION_ABORTABLE,
    errors.TransactionCoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.UnknownFetchSession: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    errors.InvalidFetchSessionEpoch: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    errors.UnknownShareSession: ErrorCode.SHARE_SESSION_NOT_FOUND,
    errors.InvalidShareSessionEpoch: ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    errors.ShareSessionLimitReached: ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    errors.UnknownSchedule: ErrorCode.INVALID_REQUEST,
    errors.ScheduleReleased: ErrorCode.INVALID_REQUEST,
    # Dead letters.
    errors.UnknownRedrive: ErrorCode.INVALID_REQUEST,
    errors.UnknownReport: ErrorCode.INVALID_REQUEST,
    errors.RedriveActive: ErrorCode.INVALID_REQUEST,
    errors.RedriveEnded: ErrorCode.INVALID_REQUEST,
}

_DENIED: dict[str, ErrorCode] = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def code_of(error: errors.GoQueueError) -> ErrorCode:
    if isinstance(error, errors.AccessDenied):
        return _DENIED.get(error.kind, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return CODES[type(error)]


def transaction_code(
    error: errors.GoQueueError, *, knows_fenced: bool, knows_abortable: bool
) -> ErrorCode:
    """The code for a producer in a transaction, as its version of the request knows it."""
    if isinstance(error, errors.FencedProducer):
        return ErrorCode.PRODUCER_FENCED if knows_fenced else ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(error, errors.TransactionAbortable) and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if isinstance(error, errors.UnknownTransaction):
        # For a producer, an expired id and an unknown one are the same.
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return code_of(error)


def message_of(error: errors.GoQueueError) -> str:
    """The text of the error, with settings under the names that Kafka's tools use."""
    if isinstance(error, errors.InvalidTopicSetting):
        return f"Invalid configuration {error.setting.replace('_', '.')}: {error.reason}"
    return str(error)
