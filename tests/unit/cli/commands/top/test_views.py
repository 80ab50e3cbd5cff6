"""The views: figures of metrics that exist, in rows that fit their columns."""

from __future__ import annotations

import inspect
import re

import pytest

from goqueue.cli.commands.top import ViewName, views
from goqueue.cli.commands.top.screen import NAMES
from goqueue.cli.commands.top.views import GROUPS, NODES, OVERVIEW, QUEUES, TOPICS, VIEWS, View
from goqueue.client.errors import Unreachable
from tests.unit.cli.commands.top.figures import ONE, TWO, measured
from tests.unit.monitoring.queries import labels_by_series

QUEUE = 'group="billing",topic="orders"'
BUSY = f"""
goqueue_producer_messages_total{{topic="orders"}} 100
goqueue_queue_delivered_total{{{QUEUE}}} 40
goqueue_consumer_messages_total{{topic="orders"}} 60
goqueue_storage_log_bytes{{topic="orders"}} 2048
goqueue_group_lag_seconds{{group="readers",topic="orders"}} 12.5
goqueue_group_lag_messages{{group="readers",topic="orders"}} 7
goqueue_group_members{{group="readers"}} 3
goqueue_queue_ready_messages{{{QUEUE}}} 9
goqueue_queue_settled_total{{{QUEUE},outcome="acked"}} 30
goqueue_queue_settled_total{{{QUEUE},outcome="expired"}} 5
goqueue_cluster_active_controller 1
process_cpu_seconds_total 5
goqueue_storage_free_bytes 25
goqueue_storage_total_bytes 100
"""


def test_every_series_is_one_of_the_catalogue() -> None:
    named = set(re.findall(r'"((?:goqueue|process)_\w+)"', inspect.getsource(views)))
    known = labels_by_series()
    assert named
    assert {name for name in named if name not in known and f"{name}_bucket" not in known} == set()


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_rows_have_a_value_for_each_column(view: View) -> None:
    rows = view.rows(measured({ONE: ""}, {ONE: BUSY}, failures={TWO: Unreachable("down")}))
    assert rows
    assert all(set(row) == {one.name for one in view.columns} for row in rows)
    assert view.sorted_by in {one.name for one in view.columns}


def test_the_overview_has_each_of_its_figures() -> None:
    row = views.overview_of(measured({ONE: ""}, {ONE: BUSY}))
    assert {one.name for one in OVERVIEW} == set(row) - {"nodes", "nodes_answering"}
    assert row["messages_in"] == 10
    assert row["messages_out"] == 10
    assert row["lag_seconds_max"] == 12.5


def test_topics_count_what_queues_deliver_as_out() -> None:
    (row,) = TOPICS.rows(measured({ONE: ""}, {ONE: BUSY}))
    assert (row["topic"], row["messages_in"], row["messages_out"]) == ("orders", 10, 10)
    assert row["size"] == 2048


def test_groups_and_queues_are_told_apart() -> None:
    figures = measured({ONE: ""}, {ONE: BUSY})
    (group,), (queue,) = GROUPS.rows(figures), QUEUES.rows(figures)
    assert (group["group"], group["lag"], group["members"]) == ("readers", 7, 3)
    assert (queue["group"], queue["ready"], queue["acked"]) == ("billing", 9, 3)


def test_a_node_that_does_not_answer_is_listed() -> None:
    rows = NODES.rows(measured({ONE: ""}, {ONE: BUSY}, failures={TWO: Unreachable("down")}))
    one, two = sorted(rows, key=lambda row: str(row["node"]))
    assert (one["state"], one["cpu"], one["disk_free"]) == ("controller", 0.5, 0.25)
    assert (two["state"], two["cpu"]) == ("no answer", None)


def test_the_option_names_each_view() -> None:
    assert tuple(ViewName) == NAMES
