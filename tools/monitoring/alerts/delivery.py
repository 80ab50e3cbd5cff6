"""Alerts about messages that are not read, not settled, or late."""

from __future__ import annotations

from tools.monitoring.alerts.alert import Alert, Case

_OWNER = 'job="goqueue", instance="node-1:8080"'
_GROUP = f'{_OWNER}, group="billing", topic="orders"'
_NEXT_DUE = "goqueue_schedule_next_due_timestamp_seconds"
_LABELS = {"job": "goqueue", "group": "billing", "topic": "orders"}

GROUP_LAG_GROWING = Alert(
    name="GroupLagGrowing",
    expression=(
        "max by (job, group, topic) (goqueue_group_lag_seconds) > 60\n"
        "and deriv(max by (job, group, topic) (goqueue_group_lag_seconds)[10m:1m]) > 0"
    ),
    minutes=10,
    severity="warning",
    summary="{{ $labels.group }} falls behind in {{ $labels.topic }}",
    description=(
        "The group reads messages that are {{ $value | humanizeDuration }} old, and the lag "
        "has been growing for ten minutes."
    ),
    firing=Case(
        series={f"goqueue_group_lag_seconds{{{_GROUP}}}": "0+30x40"},
        minute=30,
        labels=_LABELS,
        value="15m 0s",
    ),
    # A group that catches up.
    silent=Case(series={f"goqueue_group_lag_seconds{{{_GROUP}}}": "3600-30x40"}, minute=30),
)

GROUP_OVERTAKEN = Alert(
    name="GroupOvertaken",
    # The first loss makes the counter, which then has not increased.
    expression=(
        "sum by (job, group, topic) (increase(goqueue_group_overtaken_messages_total[10m])) > 0\n"
        "or (\n"
        "  sum by (job, group, topic) (goqueue_group_overtaken_messages_total)\n"
        "  unless sum by (job, group, topic) (goqueue_group_overtaken_messages_total offset 10m)\n"
        ") > 0"
    ),
    minutes=0,
    severity="high",
    summary="{{ $labels.group }} lost messages of {{ $labels.topic }} to retention",
    description=(
        "Retention deleted about {{ $value | humanize }} messages before the group had read them."
    ),
    firing=Case(
        series={f"goqueue_group_overtaken_messages_total{{{_GROUP}}}": "_x10 50x5"},
        minute=15,
        labels=_LABELS,
        value="50",
    ),
    silent=Case(series={f"goqueue_group_overtaken_messages_total{{{_GROUP}}}": "50x20"}, minute=15),
)

DEAD_LETTERS_GROWING = Alert(
    name="DeadLettersGrowing",
    expression=(
        "sum by (job, group, topic) (increase(goqueue_queue_dead_lettered_total[15m])) > 0"
    ),
    minutes=10,
    severity="warning",
    summary="Messages of {{ $labels.topic }} go to the dead letters of {{ $labels.group }}",
    description=(
        "About {{ $value | humanize }} messages in 15 minutes were given up by the group, and are "
        "in the dead-letter topic now."
    ),
    firing=Case(
        series={
            f'goqueue_queue_dead_lettered_total{{{_GROUP}, reason="rejected"}}': "0+1x40",
            f'goqueue_queue_dead_lettered_total{{{_GROUP}, reason="deliveries_exhausted"}}': (
                "0+1x40"
            ),
        },
        minute=30,
        labels=_LABELS,
        value="30",
    ),
    silent=Case(
        series={f'goqueue_queue_dead_lettered_total{{{_GROUP}, reason="rejected"}}': "7x40"},
        minute=30,
    ),
)

OLDEST_MESSAGE_TOO_OLD = Alert(
    name="OldestMessageTooOld",
    expression="max by (job, group, topic) (goqueue_queue_oldest_age_seconds) > 900",
    minutes=5,
    severity="warning",
    summary="{{ $labels.group }} has messages of {{ $labels.topic }} that nobody settles",
    description=(
        "The oldest message of the group that is not settled is {{ $value | humanizeDuration }} "
        "old."
    ),
    firing=Case(
        series={f"goqueue_queue_oldest_age_seconds{{{_GROUP}}}": "0+60x40"},
        minute=30,
        labels=_LABELS,
        value="30m 0s",
    ),
    silent=Case(series={f"goqueue_queue_oldest_age_seconds{{{_GROUP}}}": "300x40"}, minute=30),
)

# As of the scrape: what was due then may have been released meanwhile.
SCHEDULES_LATE = Alert(
    name="SchedulesLate",
    expression=(
        f"max by (job) (timestamp({_NEXT_DUE}) - {_NEXT_DUE}) > 30\n"
        "or histogram_quantile(0.95, sum by (job, le) "
        "(rate(goqueue_schedule_lateness_seconds_bucket[5m]))) > 5"
    ),
    minutes=2,
    severity="warning",
    summary="Scheduled messages of {{ $labels.job }} are late",
    description="Scheduled messages are in their topics {{ $value | humanizeDuration }} too late.",
    # The time of a test begins at 0.
    firing=Case(
        series={f"goqueue_schedule_next_due_timestamp_seconds{{{_OWNER}}}": "60x20"},
        minute=10,
        labels={"job": "goqueue"},
        value="9m 0s",
    ),
    silent=Case(
        series={
            f"goqueue_schedule_next_due_timestamp_seconds{{{_OWNER}}}": "65+60x20",
            f'goqueue_schedule_lateness_seconds_bucket{{{_OWNER}, le="1"}}': "0+10x20",
            f'goqueue_schedule_lateness_seconds_bucket{{{_OWNER}, le="+Inf"}}': "0+10x20",
        },
        minute=10,
    ),
)

ALERTS = (
    GROUP_OVERTAKEN,
    GROUP_LAG_GROWING,
    OLDEST_MESSAGE_TOO_OLD,
    DEAD_LETTERS_GROWING,
    SCHEDULES_LATE,
)
