"""The metrics that clients report of themselves, aggregated by the software of the client."""

from __future__ import annotations

from goqueue.metrics.instruments import LONG_SECONDS
from goqueue.metrics.metric import Metric, counter, gauge, histogram

SOFTWARE = "software"


def _reported(name: str, text: str) -> Metric:
    """One observation for each report: the average that the client has measured."""
    return histogram(f"client_{name}_seconds", text, SOFTWARE, bounds=LONG_SECONDS)


def _largest(name: str, text: str) -> Metric:
    return gauge(f"client_{name}_max_seconds", text, SOFTWARE)


CLIENT_INSTANCES = gauge(
    "client_instances", "Clients that report metrics to this node at present.", SOFTWARE
)
CLIENT_REPORTS = counter(
    "client_reports", "Reports of metrics by clients, by what became of them.", "outcome"
)
CLIENT_REPORT_BYTES = counter(
    "client_report_bytes", "Bytes of reports that were read, as sent by clients."
)
CLIENT_CONNECTIONS = counter(
    "client_connections_opened", "Connections to all nodes that clients have made.", SOFTWARE
)
CLIENT_PRODUCER_LATENCY = _reported(
    "producer_request_latency", "Average latency of requests that producers have measured."
)
CLIENT_PRODUCER_LATENCY_MAX = _largest(
    "producer_request_latency", "Longest request in the last report of a producer."
)
CLIENT_PRODUCER_QUEUE = _reported(
    "producer_queue_time", "Average time that records have waited in the buffers of producers."
)
CLIENT_PRODUCER_QUEUE_MAX = _largest(
    "producer_queue_time", "Longest wait in a buffer in the last report of a producer."
)
CLIENT_PRODUCER_THROTTLE = _reported(
    "producer_throttle_time", "Average time that producers were told to wait by quotas."
)
CLIENT_PRODUCER_THROTTLE_MAX = _largest(
    "producer_throttle_time", "Longest wait for a quota in the last report of a producer."
)
CLIENT_CONSUMER_LATENCY = _reported(
    "consumer_request_latency", "Average latency of requests that consumers have measured."
)
CLIENT_CONSUMER_LATENCY_MAX = _largest(
    "consumer_request_latency", "Longest request in the last report of a consumer."
)
CLIENT_CONSUMER_FETCH = _reported(
    "consumer_fetch_latency", "Average latency of fetches of consumers, long polls included."
)
CLIENT_CONSUMER_FETCH_MAX = _largest(
    "consumer_fetch_latency", "Longest fetch in the last report of a consumer."
)
CLIENT_CONSUMER_COMMIT = _reported(
    "consumer_commit_latency", "Average latency of commits of offsets that consumers have measured."
)
CLIENT_CONSUMER_COMMIT_MAX = _largest(
    "consumer_commit_latency", "Longest commit in the last report of a consumer."
)
CLIENT_CONSUMER_REBALANCE = _reported(
    "consumer_rebalance_latency", "Average duration of rebalances that consumers have measured."
)
CLIENT_CONSUMER_REBALANCE_MAX = _largest(
    "consumer_rebalance_latency", "Longest rebalance in the last report of a consumer."
)
CLIENT_CONSUMER_PARTITIONS = gauge(
    "client_consumer_assigned_partitions",
    "Partitions that are assigned to the consumers that report to this node.",
    SOFTWARE,
)
CLIENT_CONSUMER_IDLE = gauge(
    "client_consumer_poll_idle_min_ratio",
    "Smallest share of time that a consumer has waited for messages; near 0, it is too slow.",
    SOFTWARE,
)
CLIENT_CONSUMER_LAG = gauge(
    "client_consumer_lag_max_messages",
    "Largest lag of a partition in the last report of a consumer.",
    SOFTWARE,
)

OF_CLIENTS = tuple(one for one in list(vars().values()) if isinstance(one, Metric))
