"""One function for each API: wire types in, calls on the broker, wire types out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from goqueue.wire.kafka.handlers import (
    cluster,
    configs,
    fetch,
    group_offsets,
    groups,
    offsets,
    produce,
    topics,
    transaction_admin,
    transactions,
)

HANDLERS: Mapping[int, Callable[[Any, Any, Any], Any]] = {
    0: produce.produce,
    1: fetch.fetch,
    2: offsets.list_offsets,
    3: topics.metadata,
    8: group_offsets.offset_commit,
    9: group_offsets.offset_fetch,
    10: cluster.find_coordinator,
    11: groups.join_group,
    12: groups.heartbeat,
    13: groups.leave_group,
    14: groups.sync_group,
    15: groups.describe_groups,
    16: groups.list_groups,
    18: cluster.api_versions,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: offsets.delete_records,
    22: transactions.init_producer_id,
    23: offsets.offset_for_leader_epoch,
    24: transactions.add_partitions_to_txn,
    25: transactions.add_offsets_to_txn,
    26: transactions.end_txn,
    27: transaction_admin.write_txn_markers,
    28: transactions.txn_offset_commit,
    32: configs.describe_configs,
    33: configs.alter_configs,
    35: cluster.describe_log_dirs,
    37: topics.create_partitions,
    42: groups.delete_groups,
    44: configs.incremental_alter_configs,
    47: group_offsets.offset_delete,
    60: cluster.describe_cluster,
    61: transaction_admin.describe_producers,
    65: transaction_admin.describe_transactions,
    66: transaction_admin.list_transactions,
    68: groups.consumer_group_heartbeat,
    69: groups.consumer_group_describe,
    75: topics.describe_topic_partitions,
}
