"""The views: which figures of a cluster are shown together, in rows and columns.

A view makes rows of plain numbers; how they are written is said by its columns, so that the live
view, the plain output and JSON show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from goqueue.cli.commands.top.measured import Measured, Values
from goqueue.cli.output import Row

Unit = Literal["text", "count", "rate", "bytes", "byte_rate", "seconds", "share"]


@dataclass(frozen=True, slots=True)
class Column:
    name: str  # of the value in a row, and in JSON
    title: str
    unit: Unit = "count"


@dataclass(frozen=True, slots=True)
class View:
    """A table. The first columns are names; a terminal that is too narrow loses the last ones."""

    name: str
    columns: Sequence[Column]
    rows: Callable[[Measured], list[Row]]
    sorted_by: str

    @property
    def names(self) -> list[Column]:
        return [one for one in self.columns if one.unit == "text"]


def overview_of(measured: Measured) -> Row:
    """The figures of the whole cluster."""
    return {
        "nodes": len(measured.last.scrapes) + len(measured.last.failures),
        "nodes_answering": len(measured.last.scrapes),
        "messages_in": _sum(measured.rate("goqueue_producer_messages_total")),
        "messages_out": _sum(measured.rate("goqueue_consumer_messages_total"))
        + _sum(measured.rate("goqueue_queue_delivered_total")),
        "bytes_in": _sum(measured.rate("goqueue_listener_received_bytes_total")),
        "bytes_out": _sum(measured.rate("goqueue_listener_sent_bytes_total")),
        "connections": _sum(measured.total("goqueue_listener_connections")),
        "requests": _sum(measured.rate("goqueue_request_duration_seconds_count")),
        "errors": _sum(measured.rate("goqueue_request_errors_total")),
        "request_seconds_p95": measured.quantile(0.95, "goqueue_request_duration_seconds"),
        "sync_seconds_p95": measured.quantile(0.95, "goqueue_storage_sync_duration_seconds"),
        "loop_seconds_p99": measured.quantile(0.99, "goqueue_loop_lag_seconds"),
        "lag_messages": _sum(measured.total("goqueue_group_lag_messages")),
        "lag_seconds_max": _max(measured.highest("goqueue_group_lag_seconds")),
        "ready": _sum(measured.total("goqueue_queue_ready_messages")),
        "in_flight": _sum(measured.total("goqueue_queue_in_flight_messages")),
        "oldest_seconds_max": _max(measured.highest("goqueue_queue_oldest_age_seconds")),
        "dead_letters": _sum(measured.rate("goqueue_queue_dead_lettered_total")),
        "scheduled": _sum(measured.total("goqueue_schedule_pending_messages")),
        "open_transactions": _sum(measured.total("goqueue_transaction_open")),
        "partitions": _sum(measured.total("goqueue_storage_partitions")),
        "leaderless": _max(measured.highest("goqueue_cluster_leaderless_partitions")),
        "under_replicated": _sum(measured.total("goqueue_cluster_under_replicated_partitions")),
        "throttled": _sum(measured.rate("goqueue_quota_throttled_total")),
        "denied": _sum(measured.rate("goqueue_security_denials_total")),
    }


def _topics(measured: Measured) -> list[Row]:
    messages_in = measured.rate("goqueue_producer_messages_total", "topic")
    bytes_in = measured.rate("goqueue_producer_bytes_total", "topic")
    read = measured.rate("goqueue_consumer_messages_total", "topic")
    delivered = measured.rate("goqueue_queue_delivered_total", "topic")
    bytes_out = measured.rate("goqueue_consumer_bytes_total", "topic")
    sizes = measured.total("goqueue_storage_log_bytes", "topic")
    segments = measured.total("goqueue_storage_segments", "topic")
    return [
        {
            "topic": key[0],
            "messages_in": messages_in.get(key, 0.0),
            "bytes_in": bytes_in.get(key, 0.0),
            "messages_out": read.get(key, 0.0) + delivered.get(key, 0.0),
            "bytes_out": bytes_out.get(key, 0.0),
            "size": sizes.get(key, 0.0),
            "segments": segments.get(key, 0.0),
        }
        for key in _keys(messages_in, read, delivered, sizes)
    ]


def _groups(measured: Measured) -> list[Row]:
    by = ("group", "topic")
    messages = measured.total("goqueue_group_lag_messages", *by)
    seconds = measured.highest("goqueue_group_lag_seconds", *by)
    committed = measured.rate("goqueue_group_committed_messages_total", *by)
    overtaken = measured.total("goqueue_group_overtaken_messages_total", *by)
    members = measured.total("goqueue_group_members", "group")
    return [
        {
            "group": key[0],
            "topic": key[1],
            "lag": messages.get(key, 0.0),
            "lag_seconds": seconds.get(key, 0.0),
            "committed": committed.get(key, 0.0),
            "members": members.get(key[:1], 0.0),
            "overtaken": overtaken.get(key, 0.0),
        }
        for key in _keys(messages, seconds)
    ]


def _queues(measured: Measured) -> list[Row]:
    by = ("group", "topic")
    ready = measured.total("goqueue_queue_ready_messages", *by)
    in_flight = measured.total("goqueue_queue_in_flight_messages", *by)
    waiting = measured.total("goqueue_queue_waiting_messages", *by)
    oldest = measured.highest("goqueue_queue_oldest_age_seconds", *by)
    delivered = measured.rate("goqueue_queue_delivered_total", *by)
    acked = measured.rate("goqueue_queue_settled_total", *by, where={"outcome": "acked"})
    dead = measured.rate("goqueue_queue_dead_lettered_total", *by)
    return [
        {
            "group": key[0],
            "topic": key[1],
            "ready": ready.get(key, 0.0),
            "in_flight": in_flight.get(key, 0.0),
            "waiting": waiting.get(key, 0.0),
            "oldest_seconds": oldest.get(key, 0.0),
            "delivered": delivered.get(key, 0.0),
            "acked": acked.get(key, 0.0),
            "dead": dead.get(key, 0.0),
        }
        for key in _keys(ready, in_flight, waiting, oldest)
    ]


def _nodes(measured: Measured) -> list[Row]:
    addresses = {*measured.last.nodes, *measured.last.scrapes, *measured.last.failures}
    return [_node(measured, address) for address in addresses]


def _node(measured: Measured, address: str) -> Row:
    known = measured.last.nodes.get(address)
    row: dict[str, object] = {
        "node": "-" if known is None else str(known.id),
        "address": address,
        "state": "running" if known is None else known.state,
    }
    if address not in measured.last.scrapes:
        return {**row, "state": "no answer", **{one.name: None for one in _NODE_FIGURES}}
    if measured.of_node(address, "goqueue_cluster_active_controller"):
        row["state"] = "controller"
    free = measured.of_node(address, "goqueue_storage_free_bytes")
    size = measured.of_node(address, "goqueue_storage_total_bytes")
    count = "goqueue_request_duration_seconds_count"
    return {
        **row,
        "requests": measured.rate_of_node(address, count),
        "cpu": measured.rate_of_node(address, "process_cpu_seconds_total"),
        "memory": measured.of_node(address, "process_resident_memory_bytes"),
        "loop_seconds_p99": measured.quantile(0.99, "goqueue_loop_lag_seconds", address=address),
        "disk_free": None if free is None or not size else free / size,
        "leads": measured.of_node(address, "goqueue_cluster_led_partitions"),
        "bytes_in": measured.rate_of_node(address, "goqueue_listener_received_bytes_total"),
        "bytes_out": measured.rate_of_node(address, "goqueue_listener_sent_bytes_total"),
        "sync_seconds_p95": measured.quantile(
            0.95, "goqueue_storage_sync_duration_seconds", address=address
        ),
    }


_NODE_FIGURES = (
    Column("requests", "REQ/S", "rate"),
    Column("cpu", "CPU", "share"),
    Column("memory", "MEMORY", "bytes"),
    Column("loop_seconds_p99", "LOOP99", "seconds"),
    Column("disk_free", "FREE", "share"),
    Column("leads", "LEADS"),
    Column("bytes_in", "IN/S", "byte_rate"),
    Column("bytes_out", "OUT/S", "byte_rate"),
    Column("sync_seconds_p95", "SYNC95", "seconds"),
)

TOPICS = View(
    "topics",
    (
        Column("topic", "TOPIC", "text"),
        Column("messages_in", "IN/S", "rate"),
        Column("messages_out", "OUT/S", "rate"),
        Column("bytes_in", "BYTES IN/S", "byte_rate"),
        Column("bytes_out", "BYTES OUT/S", "byte_rate"),
        Column("size", "SIZE", "bytes"),
        Column("segments", "SEGMENTS"),
    ),
    _topics,
    sorted_by="messages_in",
)
GROUPS = View(
    "groups",
    (
        Column("group", "GROUP", "text"),
        Column("topic", "TOPIC", "text"),
        Column("lag", "LAG"),
        Column("lag_seconds", "BEHIND", "seconds"),
        Column("committed", "COMMIT/S", "rate"),
        Column("members", "MEMBERS"),
        Column("overtaken", "LOST"),
    ),
    _groups,
    sorted_by="lag_seconds",
)
QUEUES = View(
    "queues",
    (
        Column("group", "GROUP", "text"),
        Column("topic", "TOPIC", "text"),
        Column("ready", "READY"),
        Column("in_flight", "FLIGHT"),
        Column("waiting", "WAIT"),
        Column("oldest_seconds", "OLDEST", "seconds"),
        Column("delivered", "OUT/S", "rate"),
        Column("acked", "ACK/S", "rate"),
        Column("dead", "DEAD/S", "rate"),
    ),
    _queues,
    sorted_by="ready",
)
NODES = View(
    "nodes",
    (
        Column("node", "NODE", "text"),
        Column("address", "ADDRESS", "text"),
        Column("state", "STATE", "text"),
        *_NODE_FIGURES,
    ),
    _nodes,
    sorted_by="node",
)
VIEWS = (TOPICS, GROUPS, QUEUES, NODES)

OVERVIEW = (
    Column("messages_in", "Messages in /s", "rate"),
    Column("messages_out", "Messages out /s", "rate"),
    Column("bytes_in", "Received /s", "byte_rate"),
    Column("bytes_out", "Sent /s", "byte_rate"),
    Column("requests", "Requests /s", "rate"),
    Column("errors", "Errors /s", "rate"),
    Column("request_seconds_p95", "Requests, 95 %", "seconds"),
    Column("sync_seconds_p95", "Commits, 95 %", "seconds"),
    Column("loop_seconds_p99", "Event loop, 99 %", "seconds"),
    Column("connections", "Connections"),
    Column("lag_messages", "Lag of groups"),
    Column("lag_seconds_max", "Longest lag", "seconds"),
    Column("ready", "Ready in queues"),
    Column("in_flight", "In flight"),
    Column("oldest_seconds_max", "Oldest message", "seconds"),
    Column("dead_letters", "Dead letters /s", "rate"),
    Column("scheduled", "Scheduled"),
    Column("open_transactions", "Open transactions"),
    Column("partitions", "Partitions"),
    Column("leaderless", "Leaderless"),
    Column("under_replicated", "Under-replicated"),
    Column("throttled", "Throttled /s", "rate"),
    Column("denied", "Denied /s", "rate"),
)


def _sum(values: Values) -> float:
    return sum(values.values())


def _max(values: Values) -> float:
    return max(values.values(), default=0.0)


def _keys(*values: Values) -> list[tuple[str, ...]]:
    return sorted({key for one in values for key in one})
