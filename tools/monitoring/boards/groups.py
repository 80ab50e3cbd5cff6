"""The board of consumers: stream groups, queue groups, schedules and transactions."""

from __future__ import annotations

from tools.monitoring.boards.board import (
    COUNT,
    OF_CLUSTER,
    PER_SECOND,
    SECONDS,
    Board,
    Query,
    Section,
    Variable,
    graph,
    highest,
    numbers,
    quantiles,
    rate,
    stacked,
    total,
)

_NEXT_DUE = f"goqueue_schedule_next_due_timestamp_seconds{{{OF_CLUSTER}}}"
_CHOSEN = 'group=~"$group", topic=~"$topic"'


def _legend(*labels: str) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)


def _total(metric: str, *more: str) -> Query:
    labels = ("group", "topic", *more)
    return Query(total(metric, ", ".join(labels), _CHOSEN), _legend(*labels))


def _highest(metric: str, *more: str) -> Query:
    labels = ("group", "topic", *more)
    return Query(highest(metric, ", ".join(labels), _CHOSEN), _legend(*labels))


def _rate(metric: str, *more: str) -> Query:
    labels = ("group", "topic", *more)
    return Query(rate(metric, ", ".join(labels), _CHOSEN), _legend(*labels))


STREAMS = Section(
    "Stream groups",
    [
        graph(
            "Lag in time",
            SECONDS,
            _highest("goqueue_group_lag_seconds"),
            width=12,
            description="Age of the oldest message that the group has still to read.",
        ),
        graph("Lag in messages", COUNT, _total("goqueue_group_lag_messages"), width=12),
        graph("Committed", PER_SECOND, _rate("goqueue_group_committed_messages_total")),
        graph(
            "Lost to retention",
            PER_SECOND,
            _rate("goqueue_group_overtaken_messages_total"),
            description="Messages that were deleted before the group had read them.",
        ),
        graph(
            "Members",
            COUNT,
            Query(total("goqueue_group_members", "group", 'group=~"$group"'), "{{group}}"),
            Query(
                total("goqueue_share_group_members", "group", 'group=~"$group"'),
                "{{group}} (share)",
            ),
        ),
        graph(
            "Rebalances",
            PER_SECOND,
            Query(
                rate("goqueue_group_rebalances_total", "group, reason", 'group=~"$group"'),
                "{{group}} {{reason}}",
            ),
            width=12,
        ),
        quantiles(
            "Duration of rebalances, all groups",
            "goqueue_group_rebalance_duration_seconds",
            width=12,
        ),
    ],
)

QUEUES = Section(
    "Queue groups",
    [
        graph(
            "Oldest message",
            SECONDS,
            _highest("goqueue_queue_oldest_age_seconds"),
            width=12,
            description="Age of the oldest message that is not settled.",
        ),
        stacked("Ready", COUNT, _total("goqueue_queue_ready_messages"), width=12),
        stacked("In flight", COUNT, _total("goqueue_queue_in_flight_messages"), width=12),
        stacked(
            "Waiting for a retry or a delay",
            COUNT,
            _total("goqueue_queue_waiting_messages"),
            width=12,
        ),
        graph("Delivered", PER_SECOND, _rate("goqueue_queue_delivered_total")),
        graph("Delivered again", PER_SECOND, _rate("goqueue_queue_redelivered_total")),
        stacked("Settled", PER_SECOND, _rate("goqueue_queue_settled_total", "outcome")),
        graph("Dead letters", PER_SECOND, _rate("goqueue_queue_dead_lettered_total", "reason")),
        graph(
            "Redriven",
            PER_SECOND,
            Query(rate("goqueue_queue_redriven_total", "topic"), "{{topic}}"),
        ),
        graph(
            "Deduplicated",
            PER_SECOND,
            Query(rate("goqueue_queue_deduplicated_total", "topic"), "{{topic}}"),
        ),
    ],
)

LANES = Section(
    "Priorities",
    [
        stacked("Ready", COUNT, _total("goqueue_lane_ready_messages", "lane"), width=12),
        graph(
            "Oldest message", SECONDS, _highest("goqueue_lane_oldest_age_seconds", "lane"), width=12
        ),
    ],
)

SCHEDULES = Section(
    "Schedules",
    [
        *numbers(
            ("Scheduled", COUNT, total("goqueue_schedule_pending_messages")),
            (
                "Next is due in",
                SECONDS,
                f"min ({_NEXT_DUE} - timestamp({_NEXT_DUE}))",
            ),
        ),
        graph(
            "Scheduled, released, cancelled",
            PER_SECOND,
            Query(rate("goqueue_schedule_scheduled_total"), "scheduled"),
            Query(rate("goqueue_schedule_released_total"), "released"),
            Query(rate("goqueue_schedule_cancelled_total"), "cancelled"),
        ),
        quantiles("Lateness", "goqueue_schedule_lateness_seconds"),
    ],
)

TRANSACTIONS = Section(
    "Transactions",
    [
        *numbers(
            ("Open", COUNT, total("goqueue_transaction_open")),
            ("Oldest", SECONDS, highest("goqueue_transaction_oldest_age_seconds")),
        ),
        graph(
            "Ended",
            PER_SECOND,
            Query(
                rate("goqueue_transaction_ended_total", "outcome, reason"), "{{outcome}} {{reason}}"
            ),
        ),
        quantiles("Duration", "goqueue_transaction_duration_seconds"),
    ],
)

BOARD = Board(
    name="groups",
    title="GoQueue / Groups and queues",
    description="Stream groups, queue groups, schedules and transactions.",
    variables=[
        Variable(
            name="group",
            label="Group",
            series=["goqueue_group_members", "goqueue_queue_ready_messages"],
        ),
        Variable(name="topic", label="Topic", series=["goqueue_storage_log_bytes"]),
    ],
    sections=[STREAMS, QUEUES, LANES, SCHEDULES, TRANSACTIONS],
)
