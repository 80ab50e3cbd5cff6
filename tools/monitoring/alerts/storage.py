"""Alerts about disks."""

from __future__ import annotations

from tools.monitoring.alerts.alert import Alert, Case

_NODE = 'job="goqueue", instance="node-1:8080"'
_LABELS = {"job": "goqueue", "instance": "node-1:8080"}
_GB = 1_000_000_000

DISK_FULL = Alert(
    name="DiskFull",
    expression="max by (job, instance) (goqueue_storage_full) == 1",
    minutes=0,
    severity="critical",
    summary="{{ $labels.instance }} refuses writes, because its disk is full",
    description=(
        "Producers receive a retryable error from {{ $labels.instance }}. It accepts writes again "
        "by itself when space is freed."
    ),
    firing=Case(series={f"goqueue_storage_full{{{_NODE}}}": "0x5 1x5"}, minute=8, labels=_LABELS),
    silent=Case(series={f"goqueue_storage_full{{{_NODE}}}": "0x10"}, minute=8),
)

DISK_FULL_IN_30M = Alert(
    name="DiskFullIn30m",
    expression=(
        "predict_linear(goqueue_storage_free_bytes[15m], 1800) < 0\n"
        "and goqueue_storage_free_bytes / goqueue_storage_total_bytes < 0.5"
    ),
    minutes=5,
    severity="high",
    summary="The disk of {{ $labels.instance }} will be full in half an hour",
    description="At the rate of the last 15 minutes, writes are refused in less than 30 minutes.",
    firing=Case(
        series={
            f"goqueue_storage_free_bytes{{{_NODE}}}": f"{40 * _GB}-{_GB}x30",
            f"goqueue_storage_total_bytes{{{_NODE}}}": f"{100 * _GB}x30",
        },
        minute=25,
        labels=_LABELS,
    ),
    # As much is written, to a disk that has room for hours.
    silent=Case(
        series={
            f"goqueue_storage_free_bytes{{{_NODE}}}": f"{400 * _GB}-{_GB}x30",
            f"goqueue_storage_total_bytes{{{_NODE}}}": f"{1000 * _GB}x30",
        },
        minute=25,
    ),
)

FAILED_PARTITIONS = Alert(
    name="FailedPartitions",
    expression="max by (job, instance) (goqueue_storage_failed_partitions) > 0",
    minutes=0,
    severity="critical",
    summary="{{ $value }} partitions of {{ $labels.instance }} failed",
    description=(
        "Writing or reading failed on the disk of {{ $labels.instance }}, and {{ $value }} "
        "partitions refuse requests until the node is started again."
    ),
    firing=Case(
        series={f"goqueue_storage_failed_partitions{{{_NODE}}}": "0x5 1x5"},
        minute=8,
        labels=_LABELS,
        value="1",
    ),
    silent=Case(series={f"goqueue_storage_failed_partitions{{{_NODE}}}": "0x10"}, minute=8),
)

ALERTS = (DISK_FULL, FAILED_PARTITIONS, DISK_FULL_IN_30M)
