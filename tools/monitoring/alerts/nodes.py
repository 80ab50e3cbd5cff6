"""Alerts about the processes of a cluster."""

from __future__ import annotations

from tools.monitoring.alerts.alert import OF_GOQUEUE, Alert, Case

_NODE = 'job="goqueue", instance="node-1:8080"'

NODE_DOWN = Alert(
    name="NodeDown",
    expression=f"up{{{OF_GOQUEUE}}} == 0",
    minutes=1,
    severity="critical",
    summary="{{ $labels.instance }} does not answer",
    description="Prometheus could not read the metrics of {{ $labels.instance }} for a minute.",
    firing=Case(
        series={f"up{{{_NODE}}}": "1x5 0x10"},
        minute=10,
        labels={"job": "goqueue", "instance": "node-1:8080"},
    ),
    silent=Case(series={f"up{{{_NODE}}}": "1x5 0 1x10"}, minute=10),
)

LOOP_LAG_HIGH = Alert(
    name="LoopLagHigh",
    expression=(
        "histogram_quantile(0.99, sum by (job, instance, le) "
        "(rate(goqueue_loop_lag_seconds_bucket[5m]))) > 0.25"
    ),
    minutes=5,
    severity="warning",
    summary="The event loop of {{ $labels.instance }} is late",
    description=(
        "One timer in a hundred runs more than {{ $value | humanizeDuration }} late, and so do "
        "the responses to clients. The node has more work than one core can do, or something "
        "blocks its event loop."
    ),
    firing=Case(
        series={
            f'goqueue_loop_lag_seconds_bucket{{{_NODE}, le="0.25"}}': "0+90x20",
            f'goqueue_loop_lag_seconds_bucket{{{_NODE}, le="0.5"}}': "0+100x20",
            f'goqueue_loop_lag_seconds_bucket{{{_NODE}, le="+Inf"}}': "0+100x20",
        },
        minute=15,
        labels={"job": "goqueue", "instance": "node-1:8080"},
        value="475ms",
    ),
    silent=Case(
        series={
            f'goqueue_loop_lag_seconds_bucket{{{_NODE}, le="0.25"}}': "0+100x20",
            f'goqueue_loop_lag_seconds_bucket{{{_NODE}, le="0.5"}}': "0+100x20",
            f'goqueue_loop_lag_seconds_bucket{{{_NODE}, le="+Inf"}}': "0+100x20",
        },
        minute=15,
    ),
)

JOURNEYS_BEHIND = Alert(
    name="JourneysBehind",
    expression="max by (job, instance) (goqueue_journey_lag_seconds) > 60",
    minutes=5,
    severity="warning",
    summary="{{ $labels.instance }} records journeys with delay",
    description=(
        "Events of messages wait {{ $value | humanizeDuration }} until they are in the journal, so "
        "the journeys of the newest messages are incomplete."
    ),
    firing=Case(
        series={f"goqueue_journey_lag_seconds{{{_NODE}}}": "90x20"},
        minute=10,
        labels={"job": "goqueue", "instance": "node-1:8080"},
        value="1m 30s",
    ),
    silent=Case(series={f"goqueue_journey_lag_seconds{{{_NODE}}}": "0.5x20"}, minute=10),
)

ALERTS = (NODE_DOWN, LOOP_LAG_HIGH, JOURNEYS_BEHIND)
