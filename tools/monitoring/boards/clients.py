"""The board of clients: who connects, and what stock clients report of themselves."""

from __future__ import annotations

from tools.monitoring.boards.board import (
    COUNT,
    PER_SECOND,
    RATIO,
    SECONDS,
    Board,
    Panel,
    Query,
    Section,
    average,
    graph,
    highest,
    lowest,
    rate,
    stacked,
    total,
)

_BY = "software"
_LEGEND = "{{software}}"


def _latency(title: str, name: str) -> Panel:
    """An average that clients have measured, and the largest value of any of them."""
    return graph(
        title,
        SECONDS,
        Query(average(f"goqueue_client_{name}_seconds", _BY), f"{_LEGEND} average"),
        Query(highest(f"goqueue_client_{name}_max_seconds", _BY), f"{_LEGEND} largest"),
    )


CONNECTIONS = Section(
    "Connections",
    [
        stacked(
            "Open connections",
            COUNT,
            Query(total("goqueue_listener_connections", "listener"), "{{listener}}"),
        ),
        graph(
            "Open streams and share sessions",
            COUNT,
            Query(total("goqueue_listener_streams"), "streams"),
            Query(total("goqueue_share_sessions"), "share sessions"),
        ),
        graph(
            "Opened and refused",
            PER_SECOND,
            Query(rate("goqueue_listener_connections_opened_total", "listener"), "{{listener}}"),
            Query(
                rate("goqueue_listener_connections_refused_total", "listener, reason"),
                "{{listener}} refused: {{reason}}",
            ),
        ),
        graph(
            "Failed authentication",
            PER_SECOND,
            Query(
                rate(
                    "goqueue_security_authentications_total",
                    "listener, mechanism",
                    'outcome!="accepted"',
                ),
                "{{listener}} {{mechanism}}",
            ),
        ),
    ],
)

REPORTS = Section(
    "Reports of Kafka clients (KIP-714)",
    [
        stacked(
            "Clients that report", COUNT, Query(total("goqueue_client_instances", _BY), _LEGEND)
        ),
        graph(
            "Reports",
            PER_SECOND,
            Query(rate("goqueue_client_reports_total", "outcome"), "{{outcome}}"),
        ),
        graph(
            "Connections that clients have made",
            PER_SECOND,
            Query(rate("goqueue_client_connections_opened_total", _BY), _LEGEND),
        ),
    ],
)

PRODUCERS = Section(
    "Producers, as they report",
    [
        _latency("Requests", "producer_request_latency"),
        _latency("Time in the buffer", "producer_queue_time"),
        _latency("Throttled by quotas", "producer_throttle_time"),
    ],
)

CONSUMERS = Section(
    "Consumers, as they report",
    [
        _latency("Requests", "consumer_request_latency"),
        _latency("Fetches, long polls included", "consumer_fetch_latency"),
        _latency("Commits", "consumer_commit_latency"),
        _latency("Rebalances", "consumer_rebalance_latency"),
        graph(
            "Largest lag of a partition",
            COUNT,
            Query(highest("goqueue_client_consumer_lag_max_messages", _BY), _LEGEND),
        ),
        graph(
            "Share of time spent waiting, smallest",
            RATIO,
            Query(lowest("goqueue_client_consumer_poll_idle_min_ratio", _BY), _LEGEND),
            description="Near 0, a consumer has no time left: it is too slow.",
        ),
        graph(
            "Assigned partitions",
            COUNT,
            Query(total("goqueue_client_consumer_assigned_partitions", _BY), _LEGEND),
        ),
    ],
)

BOARD = Board(
    name="clients",
    title="GoQueue / Clients",
    description="Who connects, and what stock clients report of themselves.",
    sections=[CONNECTIONS, REPORTS, PRODUCERS, CONSUMERS],
)
