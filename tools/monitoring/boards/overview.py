"""The board to begin with: whether all is well, and what the cluster does."""

from __future__ import annotations

from tools.monitoring.boards.board import (
    BYTES_PER_SECOND,
    COUNT,
    OF_CLUSTER,
    PER_SECOND,
    RATIO,
    REQUESTS_PER_SECOND,
    SECONDS,
    Board,
    Query,
    Section,
    alarm,
    graph,
    highest,
    largest,
    numbers,
    quantile,
    rate,
    stacked,
    total,
)

_OUT = (
    f"({rate('goqueue_consumer_messages_total')} or vector(0)) "
    f"+ ({rate('goqueue_queue_delivered_total')} or vector(0))"
)
_ERRORS = (
    f"{rate('goqueue_request_errors_total')} / {rate('goqueue_request_duration_seconds_count')}"
)

HEALTH = Section(
    "Health",
    [
        alarm("Alerts", f'count(ALERTS{{{OF_CLUSTER}, alertstate="firing"}}) or vector(0)', 1, 1),
        alarm("Nodes that do not answer", f"count(up{{{OF_CLUSTER}}} == 0) or vector(0)", 1, 1),
        alarm("Leaderless", highest("goqueue_cluster_leaderless_partitions"), 1, 1),
        alarm("Under-replicated", total("goqueue_cluster_under_replicated_partitions"), 1, 1),
        alarm("Requests that fail", _ERRORS, 0.001, 0.01, RATIO),
        alarm("Longest lag", highest("goqueue_group_lag_seconds"), 60, 600, SECONDS),
        *numbers(
            ("Nodes", COUNT, f"count(up{{{OF_CLUSTER}}} == 1)"),
            ("Topics' partitions", COUNT, total("goqueue_storage_partitions")),
            ("Connections", COUNT, total("goqueue_listener_connections")),
            ("Messages in", PER_SECOND, rate("goqueue_producer_messages_total")),
            ("Messages out", PER_SECOND, _OUT),
            ("Scheduled", COUNT, total("goqueue_schedule_pending_messages")),
        ),
    ],
)

TRAFFIC = Section(
    "Traffic",
    [
        stacked(
            "Messages in, by topic",
            PER_SECOND,
            Query(largest(10, rate("goqueue_producer_messages_total", "topic")), "{{topic}}"),
            width=12,
        ),
        stacked(
            "Messages out",
            PER_SECOND,
            Query(rate("goqueue_consumer_messages_total"), "read by consumers of logs"),
            Query(rate("goqueue_queue_delivered_total"), "delivered to queue groups"),
            width=12,
        ),
        stacked(
            "Received from clients",
            BYTES_PER_SECOND,
            Query(rate("goqueue_listener_received_bytes_total", "listener"), "{{listener}}"),
            width=12,
        ),
        stacked(
            "Sent to clients",
            BYTES_PER_SECOND,
            Query(rate("goqueue_listener_sent_bytes_total", "listener"), "{{listener}}"),
            width=12,
        ),
    ],
)

REQUESTS = Section(
    "Requests",
    [
        graph(
            "Requests",
            REQUESTS_PER_SECOND,
            Query(rate("goqueue_request_duration_seconds_count", "listener"), "{{listener}}"),
        ),
        graph(
            "Errors",
            REQUESTS_PER_SECOND,
            Query(
                largest(10, rate("goqueue_request_errors_total", "listener, code")),
                "{{listener}} {{code}}",
            ),
        ),
        graph(
            "Time to answer, 95 %",
            SECONDS,
            Query(
                largest(10, quantile(0.95, "goqueue_request_duration_seconds", "listener, api")),
                "{{listener}} {{api}}",
            ),
            description="Without the time for which requests wait for messages.",
        ),
    ],
)

CONSUMERS = Section(
    "Consumers",
    [
        graph(
            "Lag of stream groups",
            SECONDS,
            Query(
                largest(10, highest("goqueue_group_lag_seconds", "group, topic")),
                "{{group}} {{topic}}",
            ),
        ),
        graph(
            "Oldest message of queue groups",
            SECONDS,
            Query(
                largest(10, highest("goqueue_queue_oldest_age_seconds", "group, topic")),
                "{{group}} {{topic}}",
            ),
        ),
        graph(
            "Dead letters",
            PER_SECOND,
            Query(
                rate("goqueue_queue_dead_lettered_total", "group, topic, reason"),
                "{{group}} {{topic}} {{reason}}",
            ),
        ),
    ],
)

NODES = Section(
    "Nodes",
    [
        graph("CPU", RATIO, Query(rate("process_cpu_seconds_total", "instance"), "{{instance}}")),
        graph(
            "Delay of the event loop, 99 %",
            SECONDS,
            Query(quantile(0.99, "goqueue_loop_lag_seconds", "instance"), "{{instance}}"),
        ),
        graph(
            "Free space of the disk",
            RATIO,
            Query(
                f"goqueue_storage_free_bytes{{{OF_CLUSTER}}} "
                f"/ goqueue_storage_total_bytes{{{OF_CLUSTER}}}",
                "{{instance}}",
            ),
        ),
    ],
)

BOARD = Board(
    name="overview",
    title="GoQueue / Overview",
    description="Whether all is well, and what the cluster does.",
    sections=[HEALTH, TRAFFIC, REQUESTS, CONSUMERS, NODES],
)
