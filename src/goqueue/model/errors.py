"""Every error a caller can act on.

An error is a response: its text is written for the caller, its `code` is stable, and `retryable`
is whether the same call may succeed later. Front ends map these classes in one table each.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from goqueue.model.access import Action, Resource
    from goqueue.model.names import TopicPartition


class GoQueueError(Exception):
    """Anything a caller can act on. The text is written for that caller."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False


class RecordFaults(Exception):
    """Part of an error about a batch: `faults` has what is wrong with some of its records."""

    def __init__(self, text: str, faults: Mapping[int, str] | None = None) -> None:
        self.faults = dict(faults or {})
        super().__init__(text)


class InvalidSettings(GoQueueError):
    """The settings of a node are inconsistent; `problems` lists every fault at once."""

    code = "invalid_settings"

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class InvalidRequest(GoQueueError):
    code = "invalid_request"


class AccessDenied(GoQueueError):
    code = "access_denied"

    def __init__(self, principal: str, action: Action, resource: Resource) -> None:
        self.kind: str = resource.kind.value
        super().__init__(f"{principal} may not {action} {resource}; request that permission.")


class NoOwner(GoQueueError):
    """The node that could handle the call is unknown, or regards another one as the owner."""

    code = "no_owner"
    retryable = True

    def __init__(self) -> None:
        super().__init__("The resource is moving to another node; nothing was done. Retry.")


class MalformedRequest(GoQueueError):
    """Bytes that do not follow their protocol."""

    code = "malformed_request"


class RequestTooLarge(MalformedRequest):
    code = "request_too_large"


class UnsupportedVersion(GoQueueError):
    code = "unsupported_version"


# Topics and partitions


class InvalidTopicName(GoQueueError):
    code = "invalid_topic_name"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Topic name {name[:260]!r} is not allowed: {reason}.")


class TopicExists(GoQueueError):
    code = "topic_exists"

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} already exists.")


class UnknownTopic(GoQueueError):
    code = "unknown_topic"
    retryable = True

    def __init__(self, topic: str, remedy: str = "create it first") -> None:
        super().__init__(f"Topic {topic!r} does not exist; {remedy}.")


class UnknownTopicId(GoQueueError):
    code = "unknown_topic_id"
    retryable = True

    def __init__(self, topic_id: object) -> None:
        super().__init__(f"No topic has the id {topic_id}; refresh the metadata.")


class UnknownPartition(GoQueueError):
    code = "unknown_partition"
    retryable = True

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"Partition {partition} does not exist; refresh the metadata.")


class UnknownMessage(GoQueueError):
    """The partition exists, but has no record at that offset."""

    code = "unknown_message"

    def __init__(self, partition: TopicPartition, offset: int, *, start: int, end: int) -> None:
        super().__init__(
            f"There is no message at offset {offset} of {partition}: offsets {start} to {end} are "
            "kept, and compaction leaves gaps."
        )


class TopicDeletionDisabled(GoQueueError):
    code = "topic_deletion_disabled"

    def __init__(self) -> None:
        super().__init__("Topics cannot be deleted on this node (setting topics.delete_enabled).")


class InvalidPartitionCount(GoQueueError):
    code = "invalid_partition_count"


class InvalidReplicationFactor(GoQueueError):
    code = "invalid_replication_factor"


class InvalidReplicaAssignment(GoQueueError):
    code = "invalid_replica_assignment"


class InvalidTopicSetting(GoQueueError):
    code = "invalid_topic_setting"

    def __init__(self, reason: str, *, setting: str = "") -> None:
        self.setting = setting
        self.reason = reason
        super().__init__(f"Topic setting {setting}: {reason}" if setting else reason)


class RecordsKept(GoQueueError):
    """A compacted topic keeps the last record of each key; its records cannot be deleted."""

    code = "records_kept"

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"Topic {topic!r} is compacted; to delete its records add 'delete' to cleanup_policy."
        )


class NotCompacted(GoQueueError):
    code = "not_compacted"

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"Topic {topic!r} is not compacted; add 'compact' to its cleanup_policy first."
        )


class InternalTopic(GoQueueError):
    code = "internal_topic"

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"Topic {topic!r} is kept by the broker itself; it cannot be changed this way."
        )


class NotLeader(GoQueueError):
    code = "not_leader"
    retryable = True

    def __init__(self, partition: TopicPartition, leader: int) -> None:
        self.leader = leader
        super().__init__(f"Broker {leader} leads {partition}; retry there.")


class FencedLeaderEpoch(GoQueueError):
    code = "fenced_leader_epoch"
    retryable = True


class UnknownLeaderEpoch(GoQueueError):
    code = "unknown_leader_epoch"
    retryable = True


# Nodes of a cluster


class NotController(GoQueueError):
    """Another node is the active controller; `controller` is -1 if it is unknown."""

    code = "not_controller"
    retryable = True

    def __init__(self, controller: int) -> None:
        self.controller = controller
        who = f"Node {controller}" if controller >= 0 else "A node that is not known yet"
        super().__init__(f"{who} is the active controller; retry there.")


class UnknownNode(GoQueueError):
    code = "unknown_node"

    def __init__(self, node: int) -> None:
        super().__init__(
            f"No node {node} is registered in this cluster; list the nodes to see all."
        )


class NodeConflict(GoQueueError):
    """Two processes register as the same node."""

    code = "node_conflict"

    def __init__(self, node: int) -> None:
        super().__init__(
            f"Node {node} is running at another address. Give this one another node.id, or stop "
            "that one and wait until its session has expired."
        )


class StaleIncarnation(GoQueueError):
    """A request from an earlier run of a node."""

    code = "stale_incarnation"

    def __init__(self, node: int) -> None:
        super().__init__(f"Node {node} has registered again since; register anew.")


class NodeInUse(GoQueueError):
    code = "node_in_use"


class QuorumAtRisk(GoQueueError):
    """With these voters the cluster would have no quorum, or soon might not."""

    code = "quorum_at_risk"


class ForeignCluster(GoQueueError):
    code = "foreign_cluster"

    def __init__(self, theirs: str, ours: str) -> None:
        super().__init__(
            f"The node belongs to the cluster {theirs!r}, and this is {ours!r}. Give it the "
            "addresses of its own cluster, or an empty data folder to join this one."
        )


class StalePartitionVersion(GoQueueError):
    """A change based on a partition state that is no longer current."""

    code = "stale_partition_version"


class IneligibleReplica(GoQueueError):
    """A node that may not be in sync now: it is fenced, about to stop, or has restarted."""

    code = "ineligible_replica"


class NoReassignment(GoQueueError):
    code = "no_reassignment"

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"The replicas of {partition} are not being moved.")


class ElectionNotNeeded(GoQueueError):
    code = "election_not_needed"

    def __init__(self, partition: TopicPartition, leader: int) -> None:
        super().__init__(f"Node {leader} leads {partition} already.")


class PreferredLeaderNotAvailable(GoQueueError):
    code = "preferred_leader_not_available"
    retryable = True


class NoEligibleLeader(GoQueueError):
    code = "no_eligible_leader"
    retryable = True


class RoutingUnsettled(GoQueueError):
    """Partitions were added a moment ago, and not all leaders have reported where that was."""

    code = "routing_unsettled"
    retryable = True

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"Topic {topic!r} is still being made larger; retry when all its partitions have a "
            "leader that has taken notice."
        )


# Records


class InvalidRecord(RecordFaults, GoQueueError):
    """A record that breaks a rule of its topic or of the format; the batch was not stored."""

    code = "invalid_record"


class InvalidAttribute(GoQueueError):
    """A header that requests something (a delay, a priority) with an invalid value."""

    code = "invalid_attribute"


class CorruptBatch(GoQueueError):
    """A batch whose bytes do not match its checksum, on the wire or on disk."""

    code = "corrupt_batch"
    position: int = -1  # where in its file, if it was found on disk
    next_offset: int | None = None  # the first readable offset after it, if any
    is_in_all_copies: bool = False  # its checksum is valid, so no other replica is any better


class UnpacksTooLarge(CorruptBatch):
    """A compressed batch that would decompress to more bytes than allowed."""

    code = "unpacks_too_large"
    is_in_all_copies = True

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"A compressed batch unpacks to more than {bytes_max} bytes (setting "
            "topics.unpacked_bytes_max); send smaller batches."
        )


class RecordTooLarge(GoQueueError):
    code = "record_too_large"


class InvalidTimestamp(RecordFaults, GoQueueError):
    code = "invalid_timestamp"


class UnsupportedFormat(GoQueueError):
    code = "unsupported_format"


class UnsupportedCompression(GoQueueError):
    code = "unsupported_compression"


class OffsetOutOfRange(GoQueueError):
    code = "offset_out_of_range"

    def __init__(self, partition: TopicPartition, offset: int, *, start: int, end: int) -> None:
        super().__init__(
            f"Offset {offset} of {partition} is not available; offsets {start} to {end} are."
        )


class OutOfOrderSequence(GoQueueError):
    code = "out_of_order_sequence"


class DuplicateSequence(GoQueueError):
    """The batch was stored before, too long ago to return its offset again."""

    code = "duplicate_sequence"


class UnknownProducer(GoQueueError):
    code = "unknown_producer"


class FencedProducer(GoQueueError):
    code = "fenced_producer"


class NotEnoughReplicas(GoQueueError):
    code = "not_enough_replicas"
    retryable = True


class RequestTimedOut(GoQueueError):
    code = "request_timed_out"
    retryable = True


# Disks


class StorageFull(GoQueueError):
    code = "storage_full"
    retryable = True


class StorageFailed(GoQueueError):
    """The disk refused to write or to sync; the partition is closed for writing."""

    code = "storage_failed"
    retryable = True


# Groups


class InvalidGroupId(GoQueueError):
    code = "invalid_group_id"


class UnknownGroup(GoQueueError):
    code = "unknown_group"

    def __init__(self, group: str) -> None:
        super().__init__(f"Group {group!r} does not exist.")


class GroupNotEmpty(GoQueueError):
    code = "group_not_empty"

    def __init__(self, group: str) -> None:
        super().__init__(f"Group {group!r} has members; stop them first.")


class GroupSubscribedToTopic(GoQueueError):
    code = "group_subscribed_to_topic"


class CoordinatorNotAvailable(GoQueueError):
    code = "coordinator_not_available"
    retryable = True


class CoordinatorLoading(GoQueueError):
    code = "coordinator_loading"
    retryable = True


class NotCoordinator(GoQueueError):
    code = "not_coordinator"
    retryable = True


class UnknownMember(GoQueueError):
    code = "unknown_member"

    def __init__(self, group: str, member: str) -> None:
        super().__init__(f"Group {group!r} has no member {member!r}; join again.")


class MemberIdRequired(GoQueueError):
    """A first join is answered with an id; the member joins again with it."""

    code = "member_id_required"
    retryable = True

    def __init__(self, member: str) -> None:
        self.member_id = member
        super().__init__(f"Join again with the member id {member!r}.")


class FencedInstance(GoQueueError):
    code = "fenced_instance"


class UnreleasedInstance(GoQueueError):
    code = "unreleased_instance"
    retryable = True


class IllegalGeneration(GoQueueError):
    code = "illegal_generation"


class RebalanceInProgress(GoQueueError):
    code = "rebalance_in_progress"
    retryable = True


class InconsistentProtocol(GoQueueError):
    code = "inconsistent_protocol"


class InvalidSessionTimeout(GoQueueError):
    code = "invalid_session_timeout"


class FencedMemberEpoch(GoQueueError):
    code = "fenced_member_epoch"


class StaleMemberEpoch(GoQueueError):
    code = "stale_member_epoch"
    retryable = True


class UnsupportedAssignor(GoQueueError):
    code = "unsupported_assignor"


class InvalidRegularExpression(GoQueueError):
    code = "invalid_regular_expression"


class GroupFull(GoQueueError):
    code = "group_full"


class LimitReached(GoQueueError):
    """There are as many topics, partitions or groups as the broker's settings allow."""

    code = "limit_reached"


class OffsetMetadataTooLarge(GoQueueError):
    code = "offset_metadata_too_large"


# Queue groups


class GroupKindMismatch(GoQueueError):
    """A name belongs to a stream group or to a queue group, never to both."""

    code = "group_kind_mismatch"

    def __init__(self, group: str, *, is_queue: bool) -> None:
        kind, other = ("queue", "stream") if is_queue else ("stream", "queue")
        super().__init__(
            f"Group {group!r} is a {kind} group; choose another name for a {other} group, or "
            "delete this one first."
        )


class InvalidGroupSettings(GoQueueError):
    code = "invalid_group_settings"
    problem = ""  # the setting that cannot be decoded and why, as the decoder reports it


class QueueExists(GoQueueError):
    """A named queue of that name has other attributes."""

    code = "queue_exists"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"A queue named {name!r} exists with other attributes; change those, or choose "
            "another name."
        )


class UnknownQueue(GoQueueError):
    code = "unknown_queue"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no queue named {name!r}; create it first.")


class QueueDeletedRecently(GoQueueError):
    """A queue of that name was deleted a moment ago, and the name cannot be used yet."""

    code = "queue_deleted_recently"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"A queue named {name!r} was deleted a moment ago; create it again a minute later."
        )


class PurgeInProgress(GoQueueError):
    """A named queue was purged a moment ago."""

    code = "purge_in_progress"

    def __init__(self, name: str) -> None:
        super().__init__(f"Queue {name!r} was purged a moment ago; purge it again later.")


class DeduplicationFull(GoQueueError):
    """The limit of stored deduplication ids is reached."""

    code = "deduplication_full"
    retryable = True

    def __init__(self, ids_max: int) -> None:
        super().__init__(
            f"This node stores {ids_max} deduplication ids, its limit; retry when the oldest have "
            "expired."
        )


class LeaseTooLong(GoQueueError):
    """A message may be leased for a limited total time, however often its lease is extended."""

    code = "lease_too_long"

    def __init__(self, total_ms_max: int) -> None:
        super().__init__(
            f"The message would be leased for more than {total_ms_max} ms in total; settle it, or "
            "let it be delivered again."
        )


class InvalidReceipt(GoQueueError):
    code = "invalid_receipt"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The receipt is not valid: {reason}. Send the receipt exactly as it was received."
        )


class StaleReceipt(GoQueueError):
    """The message is no longer leased under the receipt; nothing was changed."""

    code = "stale_receipt"

    def __init__(self) -> None:
        super().__init__(
            "The message is no longer leased under this receipt: it was settled, its lease "
            "expired, or the group was rewound. If it is not done, it will be delivered again."
        )


class DeadLettering(GoQueueError):
    """The message is being moved to the dead-letter topic, and is not there yet."""

    code = "dead_lettering"
    retryable = True

    def __init__(self) -> None:
        super().__init__("The message is being moved to the dead-letter topic; retry.")


class CorruptDeliveryState(GoQueueError):
    """A record of the delivery journal that cannot be read."""

    code = "corrupt_delivery_state"


# Transactions


class InvalidTransactionState(GoQueueError):
    """A call that is not valid in this state of the transaction; nothing was changed."""

    code = "invalid_transaction_state"


class ConcurrentTransactions(GoQueueError):
    """The last transaction of this id is still being completed."""

    code = "concurrent_transactions"
    retryable = True


class InvalidProducerIdMapping(GoQueueError):
    """The producer id is not that of the transactional id."""

    code = "invalid_producer_id_mapping"


class UnknownTransaction(GoQueueError):
    """The transactional id was never initialised, or has expired."""

    code = "unknown_transaction"


class InvalidTransactionTimeout(GoQueueError):
    code = "invalid_transaction_timeout"


class UnstableOffsetCommit(GoQueueError):
    """An offset is pending in a transaction that has not ended."""

    code = "unstable_offset_commit"
    retryable = True


class TransactionAbortable(GoQueueError):
    """The transaction cannot continue, but the producer can: abort, and begin another."""

    code = "transaction_abortable"


class TransactionCoordinatorFenced(GoQueueError):
    """Markers of a coordinator that has been superseded by another."""

    code = "transaction_coordinator_fenced"


# Fetch sessions


class UnknownFetchSession(GoQueueError):
    code = "unknown_fetch_session"
    retryable = True


class InvalidFetchSessionEpoch(GoQueueError):
    code = "invalid_fetch_session_epoch"
    retryable = True


# Schedules


class UnknownSchedule(GoQueueError):
    code = "unknown_schedule"

    def __init__(self, schedule_id: str) -> None:
        super().__init__(
            f"No message is scheduled as {schedule_id[:100]!r}; it was cancelled or released, or "
            "the id is wrong."
        )


class ScheduleReleased(GoQueueError):
    """Too late: the message is in its topic, or in flight to it."""

    code = "schedule_released"

    def __init__(self, schedule_id: str) -> None:
        super().__init__(
            f"The message scheduled as {schedule_id!r} has been released to its topic and can no "
            "longer be changed."
        )


# Dead letters


class UnknownRedrive(GoQueueError):
    code = "unknown_redrive"

    def __init__(self, topic: str, redrive_id: str) -> None:
        super().__init__(
            f"No redrive of the dead letters of {topic!r} has the id {redrive_id[:100]!r}; the "
            "list of redrives shows those there are."
        )


class RedriveActive(GoQueueError):
    code = "redrive_active"

    def __init__(self, topic: str, redrive_id: str) -> None:
        super().__init__(
            f"Redrive {redrive_id} of {topic!r} has not ended; wait for it, or cancel it first."
        )


class RedriveEnded(GoQueueError):
    code = "redrive_ended"

    def __init__(self, redrive_id: str, state: str) -> None:
        super().__init__(f"Redrive {redrive_id} has ended ({state}); start a new one.")


# Schemas


class InvalidSchema(GoQueueError):
    """A text that is not a schema of its kind, or exceeds the limits of the registry."""

    code = "invalid_schema"


class SchemaRefusal(StrEnum):
    """Why the registry refuses; its clients identify each reason by a number."""

    UNKNOWN_SUBJECT = "unknown_subject"
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_SCHEMA = "unknown_schema"
    SUBJECT_DELETED = "subject_deleted"
    SUBJECT_NOT_DELETED = "subject_not_deleted"
    VERSION_DELETED = "version_deleted"
    VERSION_NOT_DELETED = "version_not_deleted"
    NO_CONFIG = "no_config"
    NO_MODE = "no_mode"
    INCOMPATIBLE = "incompatible"
    INVALID_VERSION = "invalid_version"
    INVALID_LEVEL = "invalid_level"
    INVALID_MODE = "invalid_mode"
    NOT_PERMITTED = "not_permitted"
    REFERENCED = "referenced"
    INVALID_SUBJECT = "invalid_subject"
    TOO_LARGE = "too_large"


class SchemaRefused(GoQueueError):
    """A request to the registry for something that does not exist or that its rules forbid."""

    code = "schema_refused"

    def __init__(self, reason: SchemaRefusal, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


class SchemaMismatch(RecordFaults, GoQueueError):
    """Records that do not conform to the schema that their topic requires, by position."""

    code = "schema_mismatch"

    def __init__(self, faults: dict[int, str]) -> None:
        index, text = next(iter(faults.items()))
        more = "" if len(faults) == 1 else f" ({len(faults) - 1} more records are refused too)"
        super().__init__(f"Record {index}: {text}{more}" if index or more else text, faults)
