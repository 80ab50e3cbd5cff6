"""Alerts about certificates and the audit log."""

from __future__ import annotations

from tools.monitoring.alerts.alert import Alert, Case

_NODE = 'job="goqueue", instance="node-1:8080"'
_LABELS = {"job": "goqueue", "instance": "node-1:8080"}
_DAY_SECONDS = 86_400

CERTIFICATE_EXPIRES_SOON = Alert(
    name="CertificateExpiresSoon",
    expression=(
        "min by (job, instance, listener) (goqueue_certificate_expiry_timestamp_seconds) - time() "
        f"< {14 * _DAY_SECONDS}"
    ),
    minutes=60,
    severity="warning",
    summary="The certificate of {{ $labels.listener }} on {{ $labels.instance }} expires soon",
    description=(
        "It expires in {{ $value | humanizeDuration }}. Afterwards clients refuse to connect."
    ),
    firing=Case(
        series={
            f'goqueue_certificate_expiry_timestamp_seconds{{{_NODE}, listener="kafka"}}': (
                f"{2 * _DAY_SECONDS}x120"
            )
        },
        minute=120,
        labels={**_LABELS, "listener": "kafka"},
        value="1d 22h 0m 0s",
    ),
    silent=Case(
        series={
            f'goqueue_certificate_expiry_timestamp_seconds{{{_NODE}, listener="kafka"}}': (
                f"{60 * _DAY_SECONDS}x120"
            )
        },
        minute=120,
    ),
)

AUDIT_LOST = Alert(
    name="AuditLost",
    expression="sum by (job, instance) (increase(goqueue_audit_lost_total[15m])) > 0",
    minutes=0,
    severity="high",
    summary="{{ $labels.instance }} lost events of the audit log",
    description="About {{ $value | humanize }} events could not be written in 15 minutes.",
    firing=Case(
        series={f"goqueue_audit_lost_total{{{_NODE}}}": "0x20 30x5"},
        minute=25,
        labels=_LABELS,
        value="30",
    ),
    silent=Case(series={f"goqueue_audit_lost_total{{{_NODE}}}": "30x30"}, minute=25),
)

ALERTS = (AUDIT_LOST, CERTIFICATE_EXPIRES_SOON)
