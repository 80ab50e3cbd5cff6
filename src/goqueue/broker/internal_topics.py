"""The topics that brokers keep for themselves, their settings and numbers of partitions."""

from __future__ import annotations

from goqueue.broker.topics import (
    DELIVERY_TOPIC,
    OFFSETS_TOPIC,
    SCHEDULED_TOPIC,
    SCHEMAS_TOPIC,
    TRANSACTION_TOPIC,
)
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import Settings

OFFSETS_SETTINGS = {
    "cleanup_policy": "compact",
    "compression_type": "producer",
    "segment_bytes": str(100 << 20),
    "max_message_bytes": str(64 << 20),
}
DELIVERY_SETTINGS = {
    "cleanup_policy": "delete",
    "compression_type": "producer",
    "retention_ms": "-1",  # only what a snapshot has replaced may go
    "retention_bytes": "-1",
    "segment_bytes": str(16 << 20),
    "max_message_bytes": str(64 << 20),
}
SCHEDULED_SETTINGS = {
    "cleanup_policy": "compact",
    "compression_type": "producer",
    "segment_bytes": str(64 << 20),
    "max_message_bytes": str(64 << 20),
    # Records stay at least until a checkpoint knows them.
    "min_compaction_lag_ms": str(600_000),
}
SCHEMAS_SETTINGS = {
    "cleanup_policy": "compact",
    "compression_type": "producer",
    "segment_bytes": str(16 << 20),
    "max_message_bytes": str(64 << 20),
}
TRANSACTION_SETTINGS = {
    "cleanup_policy": "compact",
    "compression_type": "producer",
    "segment_bytes": str(100 << 20),
    "max_message_bytes": str(64 << 20),
}

_VOTERS_FOR_TWO_COPIES = 3


def internal_topics(settings: Settings) -> list[InternalTopic]:
    """What a cluster makes of them when it forms.

    Where there are enough nodes, what one of them alone has is not committed.
    """
    cluster = settings.cluster
    is_discovered = cluster.discovery is not None
    voters = cluster.discovery_count if is_discovered else len(cluster.peers.split(","))
    extra = {"min_insync_replicas": "2"} if voters >= _VOTERS_FOR_TWO_COPIES else {}
    return [
        InternalTopic(name, partition_count, {**own, **extra})
        for name, partition_count, own in (
            (OFFSETS_TOPIC, settings.groups.offsets_partitions, OFFSETS_SETTINGS),
            (DELIVERY_TOPIC, settings.delivery.partitions, DELIVERY_SETTINGS),
            (SCHEDULED_TOPIC, settings.schedules.partitions, SCHEDULED_SETTINGS),
            (SCHEMAS_TOPIC, 1, SCHEMAS_SETTINGS),
            (TRANSACTION_TOPIC, settings.transactions.state_partitions, TRANSACTION_SETTINGS),
        )
    ]
