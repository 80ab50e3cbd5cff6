"""One function per API: wire types in, calls on the gate, wire types out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

Handler = Callable[[Any, Any, Any], Any]  # of the front end, the call and the request

# Module and function. They are loaded by the first request, because no client uses all of them, and
# together with their messages they take some megabytes.
HANDLERS: Mapping[int, str] = {
    0: "produce.produce",
    1: "fetch.fetch",
    2: "offsets.list_offsets",
    3: "topics.metadata",
    8: "group_offsets.offset_commit",
    9: "group_offsets.offset_fetch",
    10: "cluster.find_coordinator",
    11: "groups.join_group",
    12: "groups.heartbeat",
    13: "groups.leave_group",
    14: "groups.sync_group",
    15: "groups.describe_groups",
    16: "groups.list_groups",
    17: "sasl.sasl_handshake",
    18: "cluster.api_versions",
    19: "topics.create_topics",
    20: "topics.delete_topics",
    21: "offsets.delete_records",
    22: "transactions.init_producer_id",
    23: "offsets.offset_for_leader_epoch",
    24: "transactions.add_partitions_to_txn",
    25: "transactions.add_offsets_to_txn",
    26: "transactions.end_txn",
    27: "transaction_admin.write_txn_markers",
    28: "transactions.txn_offset_commit",
    29: "acls.describe_acls",
    30: "acls.create_acls",
    31: "acls.delete_acls",
    32: "configs.describe_configs",
    33: "configs.alter_configs",
    34: "quorum.alter_replica_log_dirs",
    35: "cluster.describe_log_dirs",
    36: "sasl.sasl_authenticate",
    37: "topics.create_partitions",
    42: "groups.delete_groups",
    43: "reassignments.elect_leaders",
    44: "configs.incremental_alter_configs",
    45: "reassignments.alter_partition_reassignments",
    46: "reassignments.list_partition_reassignments",
    47: "group_offsets.offset_delete",
    48: "quotas.describe_client_quotas",
    49: "quotas.alter_client_quotas",
    50: "users.describe_user_scram_credentials",
    51: "users.alter_user_scram_credentials",
    55: "quorum.describe_quorum",
    57: "quorum.update_features",
    60: "cluster.describe_cluster",
    61: "transaction_admin.describe_producers",
    64: "reassignments.unregister_broker",
    65: "transaction_admin.describe_transactions",
    66: "transaction_admin.list_transactions",
    68: "groups.consumer_group_heartbeat",
    69: "groups.consumer_group_describe",
    71: "telemetry.get_telemetry_subscriptions",
    72: "telemetry.push_telemetry",
    74: "configs.list_config_resources",
    75: "topics.describe_topic_partitions",
    76: "share_groups.share_group_heartbeat",
    77: "share_groups.share_group_describe",
    78: "share_fetch.share_fetch",
    79: "share_fetch.share_acknowledge",
    90: "share_offsets.describe_share_group_offsets",
    91: "share_offsets.alter_share_group_offsets",
    92: "share_offsets.delete_share_group_offsets",
}
# Of client telemetry, which a node may be without.
TELEMETRY_KEYS = frozenset((71, 72))


def load_handler(key: int) -> Handler:
    """Return the handler of an API."""
    module, _, function = HANDLERS[key].partition(".")
    return cast(Handler, getattr(import_module(f"{__name__}.{module}"), function))
