"""Plans for moving what a node keeps."""

from __future__ import annotations

import pytest

from goqueue.broker.administration import NodeView, PartitionView, plan_away, plan_spread
from goqueue.model.errors import InvalidRequest


def node(
    number: int, *, replicas: int = 0, fenced: bool = False, draining: bool = False
) -> NodeView:
    return NodeView(number, {}, "", fenced, draining, False, True, False, 0, replicas)


def partition(number: int, *replicas: int) -> PartitionView:
    return PartitionView("orders", number, replicas[0], 0, replicas, replicas)


def test_a_node_is_emptied_onto_those_that_keep_least() -> None:
    nodes = [node(1, replicas=9), node(2, replicas=5), node(3, replicas=4), node(4, replicas=4)]
    views = [partition(0, 1, 2), partition(1, 2, 1), partition(2, 2, 3), partition(3, 1, 3)]
    planned = plan_away(views, leaving=1, nodes=nodes)
    # The place in the list stays, so that another node leads where this one did.
    assert [(one.number, one.target) for one in planned] == [(0, (3, 2)), (1, (2, 4)), (3, (2, 3))]


def test_nothing_is_moved_to_a_node_that_is_down_or_draining() -> None:
    nodes = [node(1), node(2), node(3, fenced=True), node(4, draining=True), node(5)]
    [planned] = plan_away([partition(0, 1, 2)], leaving=1, nodes=nodes)
    assert planned.target == (5, 2)
    with pytest.raises(InvalidRequest, match="orders/0"):
        plan_away([partition(0, 1, 2)], leaving=1, nodes=nodes[:4])


def test_a_partition_that_is_moving_goes_on_from_where_it_will_be() -> None:
    moving = partition(0, 1, 2)._replace(target=(2, 3), adding=(3,), removing=(1,))
    nodes = [node(1), node(2), node(3), node(4)]
    assert plan_away([moving], leaving=1, nodes=nodes) == []
    [planned] = plan_away([moving], leaving=3, nodes=nodes)
    assert planned.target == (2, 1)


def test_topics_are_spread_over_nodes_and_replicas_stay_where_they_may() -> None:
    nodes = [node(2, replicas=5), node(3, replicas=1), node(4, replicas=1)]
    views = [partition(0, 1, 2), partition(1, 2, 1), partition(2, 3, 4), partition(3, 1, 5)]
    planned = plan_spread(views, nodes=nodes)
    assert [(one.number, one.target) for one in planned] == [(0, (3, 2)), (1, (2, 4)), (3, (3, 4))]
    with pytest.raises(InvalidRequest, match="has 2 replicas"):
        plan_spread(views, nodes=nodes[:1])
