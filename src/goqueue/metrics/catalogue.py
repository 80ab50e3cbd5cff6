"""The table of every metric. docs/metrics.md is generated from it.

Names are `goqueue_{subsystem}_{name}_{unit}`, in base units. Counters count what this node did; a
gauge is exported only by the leader of the partition or the owner of the group, so that sums and
maxima over nodes are right. Labels do not name nodes or clients.
"""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.metrics.catalogue_of_clients import OF_CLIENTS
from goqueue.metrics.instruments import LONG_SECONDS
from goqueue.metrics.metric import Kind, Metric, counter, gauge, histogram, info, of_process

# Families of details
PARTITIONS = "partitions"
GROUPS = "groups"
QUEUES = "queues"
LANES = "lanes"

# The node

BUILD_INFO = info("build", "The version of the node, and that of Python.", "version", "python")
NODE_INFO = info("node", "What the node is called.", "node_id", "cluster_id", "rack")
NODE_START_TIME = gauge("node_start_time_seconds", "When the node started, in seconds since 1970.")
NODE_READY = gauge("node_ready", "1 if the node serves clients.")
LOOP_LAG = histogram(
    "loop_lag_seconds", "How much later than requested timers of the event loop ran."
)
GC_COLLECTIONS = counter("gc_collections", "Garbage collections of Python, of all generations.")
GC_PAUSE = histogram("gc_pause_seconds", "How long garbage collections stopped the node.")
METRICS_SCRAPE_DURATION = histogram(
    "metrics_scrape_duration_seconds", "Time to answer scrapes, the waiting in between included."
)
METRICS_SERIES_LEFT_OUT = gauge(
    "metrics_series_left_out", "Series that the last scrape left out, because there are too many."
)
METRICS_EXPORTS = counter(
    "metrics_exports", "Attempts to export the metrics to a collector, by outcome.", "outcome"
)
METRICS_EXPORT_REJECTED = counter(
    "metrics_export_rejected_points", "Data points that the collector did not take."
)
METRICS_EXPORT_WAITING = gauge(
    "metrics_export_waiting", "Exports that wait because the collector is away."
)

PROCESS_CPU = of_process(
    Kind.COUNTER, "cpu_seconds_total", "Total user and system CPU time spent in seconds."
)
PROCESS_RESIDENT_MEMORY = of_process(
    Kind.GAUGE, "resident_memory_bytes", "Resident memory size in bytes."
)
PROCESS_VIRTUAL_MEMORY = of_process(
    Kind.GAUGE, "virtual_memory_bytes", "Virtual memory size in bytes."
)
PROCESS_START_TIME = of_process(
    Kind.GAUGE, "start_time_seconds", "Start time of the process since unix epoch in seconds."
)
PROCESS_OPEN_FDS = of_process(Kind.GAUGE, "open_fds", "Number of open file descriptors.")
PROCESS_MAX_FDS = of_process(Kind.GAUGE, "max_fds", "Maximum number of open file descriptors.")
PROCESS_THREADS = of_process(Kind.GAUGE, "threads", "Number of threads of the process.")

# Requests

REQUEST_DURATION = histogram(
    "request_duration_seconds",
    "Time from the receipt of a request to its response, without the wait of long polls.",
    "listener",
    "api",
)
REQUEST_ERRORS = counter(
    "request_errors",
    "Requests that were answered with an error, or with one for a part of them.",
    "listener",
    "api",
    "code",
)
LISTENER_CONNECTIONS = gauge("listener_connections", "Open connections of clients.", "listener")
LISTENER_CONNECTIONS_OPENED = counter(
    "listener_connections_opened", "Connections that were accepted.", "listener"
)
LISTENER_CONNECTIONS_REFUSED = counter(
    "listener_connections_refused", "Connections that were refused.", "listener", "reason"
)
LISTENER_STREAMS = gauge("listener_streams", "Open calls of clients that are streams of messages.")
LISTENER_RECEIVED_BYTES = counter(
    "listener_received_bytes", "Bytes received from clients, after decryption.", "listener"
)
LISTENER_SENT_BYTES = counter(
    "listener_sent_bytes", "Bytes sent to clients, before encryption.", "listener"
)

# Producers and consumers

PRODUCER_MESSAGES = counter("producer_messages", "Messages stored for producers.", "topic")
PRODUCER_BYTES = counter(
    "producer_bytes", "Bytes of batches stored for producers, as compressed.", "topic"
)
PRODUCER_BATCHES = counter("producer_batches", "Batches stored for producers.", "topic")
PRODUCER_DUPLICATES = counter(
    "producer_duplicates",
    "Messages that had been stored before, and were not stored again.",
    "topic",
)
CONSUMER_MESSAGES = counter(
    "consumer_messages", "Messages read by consumers of logs, by offsets.", "topic"
)
CONSUMER_BYTES = counter(
    "consumer_bytes", "Bytes of batches read by consumers of logs, as compressed.", "topic"
)
CONSUMER_FETCHES = counter(
    "consumer_fetches",
    "Reads of a partition by consumers of logs that returned something.",
    "topic",
)

# Storage

STORAGE_LOG = gauge("storage_log_bytes", "Size of the logs of a topic.", "topic")
STORAGE_SEGMENTS = gauge("storage_segments", "Segments of the logs of a topic.", "topic")
STORAGE_PARTITIONS = gauge("storage_partitions", "Partitions that the node leads.")
STORAGE_SYNC_DURATION = histogram(
    "storage_sync_duration_seconds", "Time of a group commit: writing and syncing in a thread."
)
STORAGE_FREE = gauge("storage_free_bytes", "Free space of the disk with the data.")
STORAGE_TOTAL = gauge("storage_total_bytes", "Size of the disk with the data.")
STORAGE_FULL = gauge("storage_full", "1 while writes are refused because the disk is full.")
STORAGE_FAILED_PARTITIONS = gauge(
    "storage_failed_partitions", "Partitions that refuse requests after an error of the disk."
)
STORAGE_RETIRED = counter(
    "storage_retired_messages",
    "Offsets removed by retention, by deletion of records, or with their topic.",
    "topic",
)
STORAGE_COMPACTIONS = counter("storage_compactions", "Compactions of a log.", "topic")
PARTITION_LOG = gauge(
    "partition_log_bytes", "Size of a log.", "topic", "partition", detail=PARTITIONS
)
PARTITION_SEGMENTS = gauge(
    "partition_segments", "Segments of a log.", "topic", "partition", detail=PARTITIONS
)
PARTITION_START = gauge(
    "partition_start_offset", "First offset of a log.", "topic", "partition", detail=PARTITIONS
)
PARTITION_END = gauge(
    "partition_end_offset",
    "Offset after the last record.",
    "topic",
    "partition",
    detail=PARTITIONS,
)
PARTITION_HIGH_WATERMARK = gauge(
    "partition_high_watermark",
    "Offset after the last committed record.",
    "topic",
    "partition",
    detail=PARTITIONS,
)
PARTITION_IN_SYNC = gauge(
    "partition_in_sync_replicas",
    "Replicas that are in sync.",
    "topic",
    "partition",
    detail=PARTITIONS,
)

# Stream groups

GROUP_LAG_MESSAGES = gauge(
    "group_lag_messages", "Messages that the group has still to read.", "group", "topic"
)
GROUP_LAG_SECONDS = gauge(
    "group_lag_seconds",
    "Age of the oldest message that the group has still to read; 0 if there is none.",
    "group",
    "topic",
)
GROUP_MEMBERS = gauge("group_members", "Members of the group.", "group")
GROUP_OVERTAKEN = counter(
    "group_overtaken_messages",
    "Messages that retention deleted before the group had read them.",
    "group",
    "topic",
)
GROUP_COMMITTED = counter(
    "group_committed_messages",
    "Messages by which committed offsets have advanced.",
    "group",
    "topic",
)
GROUP_REBALANCES = counter(
    "group_rebalances", "Rebalances of the group, by what caused them.", "group", "reason"
)
GROUP_REBALANCE_DURATION = histogram(
    "group_rebalance_duration_seconds",
    "Time from the start of a rebalance to its end.",
    bounds=LONG_SECONDS,
)
GROUP_PARTITION_LAG_MESSAGES = gauge(
    "group_partition_lag_messages",
    "Messages that the group has still to read.",
    "group",
    "topic",
    "partition",
    detail=GROUPS,
)
GROUP_PARTITION_LAG_SECONDS = gauge(
    "group_partition_lag_seconds",
    "Age of the oldest message that the group has still to read; 0 if there is none.",
    "group",
    "topic",
    "partition",
    detail=GROUPS,
)
GROUP_PARTITION_COMMITTED = gauge(
    "group_partition_committed_offset",
    "Committed offset of the group.",
    "group",
    "topic",
    "partition",
    detail=GROUPS,
)

# Queue groups

QUEUE_READY = gauge("queue_ready_messages", "Messages that can be delivered now.", "group", "topic")
QUEUE_IN_FLIGHT = gauge(
    "queue_in_flight_messages", "Messages that are leased by consumers.", "group", "topic"
)
QUEUE_WAITING = gauge(
    "queue_waiting_messages",
    "Messages that wait for a retry or for their delay.",
    "group",
    "topic",
)
QUEUE_OLDEST_AGE = gauge(
    "queue_oldest_age_seconds",
    "Age of the oldest message that can be delivered, since this node serves the queue at the "
    "most; 0 if there is none.",
    "group",
    "topic",
)
QUEUE_DELIVERED = counter(
    "queue_delivered", "Deliveries of messages to consumers.", "group", "topic"
)
QUEUE_REDELIVERED = counter(
    "queue_redelivered", "Deliveries that were not the first of their message.", "group", "topic"
)
QUEUE_SETTLED = counter(
    "queue_settled", "Deliveries that ended, by how.", "group", "topic", "outcome"
)
QUEUE_DEAD_LETTERED = counter(
    "queue_dead_lettered", "Messages moved to the dead-letter topic.", "group", "topic", "reason"
)
QUEUE_REDRIVEN = counter(
    "queue_redriven", "Dead letters moved back, by dead-letter topic.", "topic"
)
QUEUE_DEDUPLICATED = counter(
    "queue_deduplicated",
    "Messages not stored again, because their id had been sent before.",
    "topic",
)
QUEUE_PARTITION_READY = gauge(
    "queue_partition_ready_messages",
    "Messages that can be delivered now.",
    "group",
    "topic",
    "partition",
    detail=QUEUES,
)
QUEUE_PARTITION_IN_FLIGHT = gauge(
    "queue_partition_in_flight_messages",
    "Messages that are leased by consumers.",
    "group",
    "topic",
    "partition",
    detail=QUEUES,
)
QUEUE_PARTITION_WAITING = gauge(
    "queue_partition_waiting_messages",
    "Messages that wait for a retry or for their delay.",
    "group",
    "topic",
    "partition",
    detail=QUEUES,
)
QUEUE_PARTITION_OLDEST_AGE = gauge(
    "queue_partition_oldest_age_seconds",
    "Age of the oldest message that can be delivered, since this node serves the queue at the "
    "most; 0 if there is none.",
    "group",
    "topic",
    "partition",
    detail=QUEUES,
)

# Lanes: of groups that have found more than one

LANE_READY = gauge(
    "lane_ready_messages",
    "Messages of a priority that can be delivered now.",
    "group",
    "topic",
    "lane",
)
LANE_OLDEST_AGE = gauge(
    "lane_oldest_age_seconds",
    "Age of the oldest message of a priority that can be delivered.",
    "group",
    "topic",
    "lane",
)
LANE_PARTITION_READY = gauge(
    "lane_partition_ready_messages",
    "Messages of a priority that can be delivered now.",
    "group",
    "topic",
    "partition",
    "lane",
    detail=LANES,
)
LANE_PARTITION_OLDEST_AGE = gauge(
    "lane_partition_oldest_age_seconds",
    "Age of the oldest message of a priority that can be delivered.",
    "group",
    "topic",
    "partition",
    "lane",
    detail=LANES,
)

# Share groups

SHARE_GROUP_MEMBERS = gauge("share_group_members", "Members of the share group.", "group")
SHARE_SESSIONS = gauge("share_sessions", "Open fetch sessions of members of share groups.")

# Schedules

SCHEDULE_PENDING = gauge("schedule_pending_messages", "Scheduled messages that are not yet due.")
SCHEDULE_NEXT_DUE = gauge(
    "schedule_next_due_timestamp_seconds",
    "When the next scheduled message is due, in seconds since 1970; absent if there is none. Those "
    "that were moved or cancelled count until that time, if others are pending.",
)
SCHEDULE_LATENESS = histogram(
    "schedule_lateness_seconds",
    "How long after they were due messages were in their topics.",
    bounds=LONG_SECONDS,
)
SCHEDULE_SCHEDULED = counter("schedule_scheduled", "Messages that were scheduled.")
SCHEDULE_RELEASED = counter("schedule_released", "Scheduled messages moved to their topics.")
SCHEDULE_CANCELLED = counter("schedule_cancelled", "Scheduled messages that were cancelled.")

# Transactions

TRANSACTION_OPEN = gauge("transaction_open", "Transactions that have not ended.")
TRANSACTION_OLDEST_AGE = gauge(
    "transaction_oldest_age_seconds", "Age of the oldest transaction that has not ended."
)
TRANSACTION_ENDED = counter(
    "transaction_ended", "Transactions that ended, by how and why.", "outcome", "reason"
)
TRANSACTION_DURATION = histogram(
    "transaction_duration_seconds",
    "Time from the start of a transaction to its end.",
    bounds=LONG_SECONDS,
)

# Schemas

SCHEMA_SUBJECTS = gauge("schema_subjects", "Subjects of the schema registry.")
SCHEMA_CHECKS = counter(
    "schema_checks", "Batches whose records were validated, by result.", "topic", "outcome"
)

# The cluster

CLUSTER_NODES = gauge(
    "cluster_nodes", "Nodes of the cluster by state; exported by the active controller.", "state"
)
CLUSTER_ACTIVE_CONTROLLER = gauge(
    "cluster_active_controller", "1 if the node is the active controller."
)
CLUSTER_LEADERLESS = gauge(
    "cluster_leaderless_partitions",
    "Partitions without a leader; exported by the active controller.",
)
CLUSTER_UNDER_REPLICATED = gauge(
    "cluster_under_replicated_partitions",
    "Partitions led here with fewer replicas in sync than there are.",
)
CLUSTER_UNDER_MIN_IN_SYNC = gauge(
    "cluster_under_min_in_sync_partitions",
    "Partitions led here with fewer replicas in sync than writing with acks=all needs.",
)
CLUSTER_LED = gauge("cluster_led_partitions", "Partitions that the node leads.")
CLUSTER_REPLICAS = gauge("cluster_replicas", "Replicas that the node has.")
CLUSTER_IN_SYNC_CHANGES = counter(
    "cluster_in_sync_changes",
    "Changes of the in-sync replicas of partitions led here.",
    "direction",
)
CLUSTER_ELECTIONS = counter("cluster_elections", "Elections of the controller that the node began.")
CLUSTER_REPLICATION_LAG_MESSAGES = gauge(
    "cluster_replication_lag_messages",
    "Messages that the slowest replica of each partition led here is behind, summed by topic.",
    "topic",
)
CLUSTER_REPLICATION_LAG_SECONDS = gauge(
    "cluster_replication_lag_seconds",
    "Longest time for which a replica of a partition led here has been behind.",
)
CLUSTER_RAFT_TERM = gauge("cluster_raft_term", "Term of the metadata quorum.")
CLUSTER_RAFT_COMMITTED = gauge(
    "cluster_raft_committed", "Committed index of the metadata log, as this node knows it."
)
CLUSTER_PEER_CONNECTIONS = gauge("cluster_peer_connections", "Open connections to other nodes.")

# Quotas and tenants

QUOTA_THROTTLED = counter(
    "quota_throttled", "Requests that had to wait, or were refused, by quota.", "limit"
)
QUOTA_THROTTLE = counter(
    "quota_throttle_seconds", "Time that clients were told to wait, by quota.", "limit"
)
QUOTA_LIMIT = gauge(
    "quota_limit",
    "What a tenant may have or do in the whole cluster; the same on every node that counts it.",
    "tenant",
    "limit",
)
QUOTA_USED = gauge("quota_used", "What a tenant uses of its quota on this node.", "tenant", "limit")
TENANT_STORAGE = gauge("tenant_storage_bytes", "Size of the logs of a tenant.", "tenant")
TENANT_TOPICS = gauge(
    "tenant_topics", "Topics of a tenant; exported by the active controller.", "tenant"
)
TENANT_PARTITIONS = gauge("tenant_partitions", "Partitions of a tenant.", "tenant")
TENANT_GROUPS = gauge("tenant_groups", "Groups of a tenant.", "tenant")
TENANT_SCHEDULED = gauge(
    "tenant_scheduled_messages", "Scheduled messages of a tenant that are not yet due.", "tenant"
)
TENANT_IN_FLIGHT = gauge(
    "tenant_in_flight_messages", "Messages that are leased by consumers of a tenant.", "tenant"
)
TENANT_MESSAGES = counter(
    "tenant_messages",
    "Messages stored for a tenant (in), or read or delivered (out).",
    "tenant",
    "direction",
)
TENANT_BYTES = counter(
    "tenant_bytes",
    "Bytes of batches stored for a tenant (in), or read from logs (out).",
    "tenant",
    "direction",
)

# Security and audit

SECURITY_AUTHENTICATIONS = counter(
    "security_authentications",
    "Attempts of clients to authenticate.",
    "listener",
    "mechanism",
    "outcome",
)
SECURITY_DENIALS = counter("security_denials", "Denied actions.", "listener")
AUDIT_EVENTS = counter("audit_events", "Events of the audit log.")
AUDIT_LOST = counter("audit_lost", "Events of the audit log that could not be written.")
AUDIT_WAITING = gauge("audit_waiting_events", "Events of the audit log that wait to be written.")
CERTIFICATE_EXPIRY = gauge(
    "certificate_expiry_timestamp_seconds",
    "When the certificate of a listener expires, in seconds since 1970.",
    "listener",
)

# Journeys

JOURNEY_EVENTS = counter("journey_events", "Events of messages written to the journal.")
JOURNEY_WRITTEN = counter("journey_written_bytes", "Bytes written to the journal of messages.")
JOURNEY_LAG = gauge("journey_lag_seconds", "Age of the oldest event that waits to be written.")
JOURNEY_RECOVERED = counter(
    "journey_recovered", "Events that were written from the logs after a crash."
)
JOURNEY_EXPORTS = counter(
    "journey_exports", "Attempts to export journeys to a collector, by outcome.", "outcome"
)
JOURNEY_EXPORTED_SPANS = counter(
    "journey_exported_spans", "Spans that were sent to the collector, and accepted."
)
JOURNEY_EXPORT_REJECTED = counter(
    "journey_export_rejected_spans", "Spans of accepted exports that the collector did not take."
)

_OF_NODES = [one for one in list(vars().values()) if isinstance(one, Metric)]
CATALOGUE: Mapping[str, Metric] = {one.name: one for one in (*_OF_NODES, *OF_CLIENTS)}
DETAILS = tuple(dict.fromkeys(one.detail for one in CATALOGUE.values() if one.detail))
