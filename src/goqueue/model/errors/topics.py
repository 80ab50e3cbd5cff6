"""Topics, their settings and partitions, and the leaders of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.model.errors.base import GoQueueError

if TYPE_CHECKING:
    from goqueue.model.names import TopicPartition


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
