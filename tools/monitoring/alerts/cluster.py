"""Alerts about the cluster: its controller, and the replicas of its partitions."""

from __future__ import annotations

from tools.monitoring.alerts.alert import Alert, Case

_ONE = 'job="goqueue", instance="node-1:8080"'
_TWO = 'job="goqueue", instance="node-2:8080"'
_OF_CLUSTER = {"job": "goqueue"}

NO_CONTROLLER = Alert(
    name="NoController",
    expression="sum by (job) (goqueue_cluster_active_controller) == 0",
    minutes=1,
    severity="critical",
    summary="{{ $labels.job }} has no active controller",
    description=(
        "No node of the cluster is the active controller: topics cannot be created or changed, and "
        "partitions whose leader ends get no other."
    ),
    firing=Case(
        series={
            f"goqueue_cluster_active_controller{{{_ONE}}}": "1x5 0x10",
            f"goqueue_cluster_active_controller{{{_TWO}}}": "0x15",
        },
        minute=10,
        labels=_OF_CLUSTER,
    ),
    silent=Case(
        series={
            f"goqueue_cluster_active_controller{{{_ONE}}}": "1x5 0x10",
            f"goqueue_cluster_active_controller{{{_TWO}}}": "0x5 1x10",
        },
        minute=10,
    ),
)

LEADERLESS_PARTITIONS = Alert(
    name="LeaderlessPartitions",
    expression="max by (job) (goqueue_cluster_leaderless_partitions) > 0",
    minutes=1,
    severity="critical",
    summary="{{ $value }} partitions of {{ $labels.job }} have no leader",
    description="{{ $value }} partitions cannot be written or read until a replica of them leads.",
    firing=Case(
        series={f"goqueue_cluster_leaderless_partitions{{{_ONE}}}": "0x5 3x10"},
        minute=10,
        labels=_OF_CLUSTER,
        value="3",
    ),
    silent=Case(
        series={f"goqueue_cluster_leaderless_partitions{{{_ONE}}}": "0x5 3 0x10"}, minute=10
    ),
)

UNDER_REPLICATED = Alert(
    name="UnderReplicated",
    expression="sum by (job) (goqueue_cluster_under_replicated_partitions) > 0",
    minutes=5,
    severity="high",
    summary="{{ $value }} partitions of {{ $labels.job }} have replicas that are not in sync",
    description=(
        "{{ $value }} partitions have fewer replicas in sync than they should. They work, but "
        "survive fewer failures."
    ),
    firing=Case(
        series={
            f"goqueue_cluster_under_replicated_partitions{{{_ONE}}}": "0x5 4x20",
            f"goqueue_cluster_under_replicated_partitions{{{_TWO}}}": "0x5 3x20",
        },
        minute=15,
        labels=_OF_CLUSTER,
        value="7",
    ),
    # A node that restarts.
    silent=Case(
        series={f"goqueue_cluster_under_replicated_partitions{{{_ONE}}}": "0x5 4x3 0x20"},
        minute=9,
    ),
)

UNDER_MIN_IN_SYNC = Alert(
    name="UnderMinInSync",
    expression="sum by (job) (goqueue_cluster_under_min_in_sync_partitions) > 0",
    minutes=1,
    severity="critical",
    summary="{{ $value }} partitions of {{ $labels.job }} refuse writes",
    description=(
        "{{ $value }} partitions have fewer replicas in sync than min.insync.replicas, so writes "
        "with acks=all are refused."
    ),
    firing=Case(
        series={f"goqueue_cluster_under_min_in_sync_partitions{{{_TWO}}}": "0x5 2x10"},
        minute=10,
        labels=_OF_CLUSTER,
        value="2",
    ),
    silent=Case(
        series={f"goqueue_cluster_under_min_in_sync_partitions{{{_TWO}}}": "0x15"}, minute=10
    ),
)

LEADERSHIP_FLAPPING = Alert(
    name="LeadershipFlapping",
    expression=(
        "sum by (job) (increase(goqueue_cluster_elections_total[15m])) > 4\n"
        "or max by (job) (changes(goqueue_cluster_led_partitions[15m])) > 12"
    ),
    minutes=5,
    severity="high",
    summary="Leaders of {{ $labels.job }} change again and again",
    description=(
        "In 15 minutes controllers were elected, or partitions changed their leaders, "
        "{{ $value | humanize }} times. Clients are redirected each time."
    ),
    firing=Case(
        series={f"goqueue_cluster_led_partitions{{{_ONE}}}": "4 2 " * 15},
        minute=25,
        labels=_OF_CLUSTER,
        value="15",
    ),
    # One fail-over, and leaders that return one by one.
    silent=Case(
        series={
            f"goqueue_cluster_led_partitions{{{_ONE}}}": "4x5 6x5 5 4x15",
            f"goqueue_cluster_elections_total{{{_ONE}}}": "1x5 2x25",
        },
        minute=20,
    ),
)

ALERTS = (
    NO_CONTROLLER,
    LEADERLESS_PARTITIONS,
    UNDER_MIN_IN_SYNC,
    UNDER_REPLICATED,
    LEADERSHIP_FLAPPING,
)
