"""The board of the cluster: its controller, its replicas, its consensus."""

from __future__ import annotations

from tools.monitoring.boards.board import (
    COUNT,
    OF_CLUSTER,
    PER_SECOND,
    SECONDS,
    Board,
    Panel,
    Query,
    Section,
    alarm,
    graph,
    highest,
    numbers,
    rate,
    stacked,
    total,
)


def _of_nodes(metric: str) -> Query:
    return Query(highest(metric, "instance"), "{{instance}}")


def _rate_of_nodes(metric: str, *more: str) -> Query:
    labels = ("instance", *more)
    return Query(rate(metric, ", ".join(labels)), " ".join(f"{{{{{one}}}}}" for one in labels))


HEALTH = Section(
    "Health",
    [
        alarm("Leaderless", highest("goqueue_cluster_leaderless_partitions"), 1, 1),
        alarm("Refuse writes", total("goqueue_cluster_under_min_in_sync_partitions"), 1, 1),
        alarm("Under-replicated", total("goqueue_cluster_under_replicated_partitions"), 1, 1),
        *numbers(
            ("Active controllers", COUNT, total("goqueue_cluster_active_controller")),
            ("Replicas", COUNT, total("goqueue_cluster_replicas")),
            ("Failed partitions", COUNT, total("goqueue_storage_failed_partitions")),
        ),
        Panel(
            title="Nodes",
            shape="table",
            width=12,
            queries=[Query(f"goqueue_node_info{{{OF_CLUSTER}}}")],
        ),
        stacked(
            "Nodes by state",
            COUNT,
            Query(highest("goqueue_cluster_nodes", "state"), "{{state}}"),
            width=12,
        ),
    ],
)

REPLICAS = Section(
    "Replicas",
    [
        stacked("Led partitions", COUNT, _of_nodes("goqueue_cluster_led_partitions")),
        stacked("Replicas", COUNT, _of_nodes("goqueue_cluster_replicas")),
        graph(
            "Changes of in-sync replicas",
            PER_SECOND,
            _rate_of_nodes("goqueue_cluster_in_sync_changes_total", "direction"),
        ),
        graph(
            "Under-replicated partitions",
            COUNT,
            _of_nodes("goqueue_cluster_under_replicated_partitions"),
        ),
        graph(
            "Messages behind the leader, by topic",
            COUNT,
            Query(total("goqueue_cluster_replication_lag_messages", "topic"), "{{topic}}"),
        ),
        graph(
            "Time behind the leader",
            SECONDS,
            _of_nodes("goqueue_cluster_replication_lag_seconds"),
            description="By the node that leads.",
        ),
    ],
)

QUORUM = Section(
    "Metadata quorum",
    [
        graph("Active controller", COUNT, _of_nodes("goqueue_cluster_active_controller")),
        graph("Elections", PER_SECOND, _rate_of_nodes("goqueue_cluster_elections_total")),
        graph("Term", COUNT, _of_nodes("goqueue_cluster_raft_term")),
        graph("Committed index", COUNT, _of_nodes("goqueue_cluster_raft_committed")),
        graph(
            "Changes of the metadata",
            PER_SECOND,
            Query(f"max(deriv(goqueue_cluster_raft_committed{{{OF_CLUSTER}}}[5m]))", "entries"),
        ),
        graph("Connections to other nodes", COUNT, _of_nodes("goqueue_cluster_peer_connections")),
    ],
)

BOARD = Board(
    name="cluster",
    title="GoQueue / Cluster",
    description="Nodes, replicas, and the quorum that decides.",
    sections=[HEALTH, REPLICAS, QUORUM],
)
