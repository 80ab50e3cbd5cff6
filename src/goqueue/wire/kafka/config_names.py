"""Maps Kafka's names of settings to ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from goqueue.broker.gate.areas.configs import CATCHING_UP, FEEDING, HEARTBEAT_MS, SESSION_MS

# The broker settings that are defaults of topic settings, if Kafka has one.
OF_NODE: Final[Mapping[str, str]] = {
    "cleanup_policy": "log.cleanup.policy",
    "compression_type": "compression.type",
    "delete_retention_ms": "log.cleaner.delete.retention.ms",
    "file_delete_delay_ms": "log.segment.delete.delay.ms",
    "flush_messages": "log.flush.interval.messages",
    "flush_ms": "log.flush.interval.ms",
    "index_interval_bytes": "log.index.interval.bytes",
    "max_compaction_lag_ms": "log.cleaner.max.compaction.lag.ms",
    "max_message_bytes": "message.max.bytes",
    "message_timestamp_after_max_ms": "log.message.timestamp.after.max.ms",
    "message_timestamp_before_max_ms": "log.message.timestamp.before.max.ms",
    "message_timestamp_type": "log.message.timestamp.type",
    "min_cleanable_dirty_ratio": "log.cleaner.min.cleanable.ratio",
    "min_compaction_lag_ms": "log.cleaner.min.compaction.lag.ms",
    "min_insync_replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention_bytes": "log.retention.bytes",
    "retention_ms": "log.retention.ms",
    "segment_bytes": "log.segment.bytes",
    "segment_index_bytes": "log.index.size.max.bytes",
    "segment_jitter_ms": "log.roll.jitter.ms",
    "segment_ms": "log.roll.ms",
    "unclean_leader_election_enable": "unclean.leader.election.enable",
}
TOPIC_DEFAULT: Final[Mapping[str, str]] = {name: setting for setting, name in OF_NODE.items()}

# The broker settings that are defaults of group settings.
OF_GROUP: Final[Mapping[str, str]] = {
    SESSION_MS: "group.consumer.session.timeout.ms",
    HEARTBEAT_MS: "group.consumer.heartbeat.interval.ms",
}

# Those of share groups, which nodes of Kafka have and ours have not.
OF_SHARE_GROUP: Final[Mapping[str, str]] = {
    name: f"group.{name.replace('_', '.')}"
    for name in (
        "share_delivery_count_limit",
        "share_heartbeat_interval_ms",
        "share_partition_max_record_locks",
        "share_record_lock_duration_ms",
        "share_session_timeout_ms",
    )
}

# Limits on replication traffic.
FEEDING_RATE: Final = "leader.replication.throttled.rate"
CATCHING_UP_RATE: Final = "follower.replication.throttled.rate"
# Tools reset it together with those. A node has one data folder, so nothing moves between folders.
FOLDERS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
RATES: Final[Mapping[str, str]] = {
    FEEDING_RATE: FEEDING,
    CATCHING_UP_RATE: CATCHING_UP,
}


def core_name(name: str) -> str:
    """`retention.ms` is `retention_ms` inside."""
    return name.replace(".", "_")


def wire_name(name: str) -> str:
    return name.replace("_", ".")
