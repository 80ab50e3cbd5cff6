"""Alerts about what clients notice: errors, latency, throttling."""

from __future__ import annotations

from tools.monitoring.alerts.alert import Alert, Case

_LISTENER = 'job="goqueue", instance="node-1:8080", listener="kafka"'
_LABELS = {"job": "goqueue", "listener": "kafka"}
PRODUCE_APIS = "Produce|[pP]ublish.*|SendMessage.*"
FETCH_APIS = "Fetch|ShareFetch|receive|readMessages|pollGroup|ReceiveMessage|Pull|Read"
# What clients are told in the normal course of joining a group.
EXPECTED_CODES = "MEMBER_ID_REQUIRED|REBALANCE_IN_PROGRESS"


def _latency(api: str, *, slow: bool) -> dict[str, str]:
    """Requests of which one in ten takes between 1 s and 2.5 s, or none does."""
    fast = "0+90x20" if slow else "0+100x20"
    bucket = f'goqueue_request_duration_seconds_bucket{{{_LISTENER}, api="{api}"'
    return {
        f'{bucket}, le="0.5"}}': fast,
        f'{bucket}, le="1"}}': fast,
        f'{bucket}, le="2.5"}}': fast,
        f'{bucket}, le="5"}}': "0+100x20",
        f'{bucket}, le="+Inf"}}': "0+100x20",
    }


HIGH_ERROR_RATE = Alert(
    name="HighErrorRate",
    expression=(
        "sum by (job, listener) "
        f'(rate(goqueue_request_errors_total{{code!~"{EXPECTED_CODES}"}}[5m]))\n'
        "/ sum by (job, listener) (rate(goqueue_request_duration_seconds_count[5m])) > 0.01"
    ),
    minutes=5,
    severity="high",
    summary="{{ $value | humanizePercentage }} of the requests to {{ $labels.listener }} fail",
    description=(
        "On the listener {{ $labels.listener }} of {{ $labels.job }}, "
        "{{ $value | humanizePercentage }} of the requests are answered with an error."
    ),
    firing=Case(
        series={
            f'goqueue_request_errors_total{{{_LISTENER}, api="Produce", code="A"}}': "0+3x20",
            f'goqueue_request_errors_total{{{_LISTENER}, api="Fetch", code="B"}}': "0+2x20",
            f'goqueue_request_duration_seconds_count{{{_LISTENER}, api="Produce"}}': "0+40x20",
            f'goqueue_request_duration_seconds_count{{{_LISTENER}, api="Fetch"}}': "0+60x20",
        },
        minute=15,
        labels=_LABELS,
        value="5%",
    ),
    silent=Case(
        series={
            f'goqueue_request_errors_total{{{_LISTENER}, api="Fetch", code="B"}}': "0+1x20",
            f'goqueue_request_errors_total{{{_LISTENER}, api="JoinGroup", '
            'code="MEMBER_ID_REQUIRED"}': "0+50x20",
            f'goqueue_request_duration_seconds_count{{{_LISTENER}, api="Fetch"}}': "0+1000x20",
        },
        minute=15,
    ),
)

PRODUCE_LATENCY_HIGH = Alert(
    name="ProduceLatencyHigh",
    expression=(
        "histogram_quantile(0.95, sum by (job, listener, le) "
        f'(rate(goqueue_request_duration_seconds_bucket{{api=~"{PRODUCE_APIS}"}}[5m]))) > 1'
    ),
    minutes=5,
    severity="high",
    summary="Producers wait long on {{ $labels.listener }}",
    description=(
        "One request to publish in twenty takes {{ $value | humanizeDuration }} or longer."
    ),
    firing=Case(
        series=_latency("Produce", slow=True),
        minute=15,
        labels=_LABELS,
        value="3.75s",
    ),
    silent=Case(series=_latency("Produce", slow=False), minute=15),
)

# The time for which a request waits for messages is not part of its duration.
FETCH_LATENCY_HIGH = Alert(
    name="FetchLatencyHigh",
    expression=(
        "histogram_quantile(0.95, sum by (job, listener, le) "
        f'(rate(goqueue_request_duration_seconds_bucket{{api=~"{FETCH_APIS}"}}[5m]))) > 1'
    ),
    minutes=5,
    severity="high",
    summary="Consumers wait long on {{ $labels.listener }}",
    description=(
        "One request for messages in twenty takes {{ $value | humanizeDuration }} or longer, not "
        "counting the time for which it waits for new messages."
    ),
    firing=Case(
        series=_latency("Fetch", slow=True),
        minute=15,
        labels=_LABELS,
        value="3.75s",
    ),
    silent=Case(series=_latency("Fetch", slow=False), minute=15),
)

QUOTA_THROTTLING = Alert(
    name="QuotaThrottling",
    expression="sum by (job, limit) (rate(goqueue_quota_throttle_seconds_total[5m])) > 0.5",
    minutes=10,
    severity="warning",
    summary="Clients wait because of the quota {{ $labels.limit }}",
    description=(
        "In each second clients are told to wait {{ $value | humanizeDuration }}, all together, "
        "because they use more than their quota."
    ),
    firing=Case(
        series={
            'goqueue_quota_throttle_seconds_total{job="goqueue", instance="node-1:8080", '
            'limit="producer_byte_rate"}': "0+120x30"
        },
        minute=25,
        labels={"job": "goqueue", "limit": "producer_byte_rate"},
        value="2s",
    ),
    silent=Case(
        series={
            'goqueue_quota_throttle_seconds_total{job="goqueue", instance="node-1:8080", '
            'limit="producer_byte_rate"}': "0+6x30"
        },
        minute=25,
    ),
)

ALERTS = (HIGH_ERROR_RATE, PRODUCE_LATENCY_HIGH, FETCH_LATENCY_HIGH, QUOTA_THROTTLING)
