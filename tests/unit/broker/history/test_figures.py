"""Figures of all groups: computed no more often than they are worth."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from goqueue.broker.history.figures import REUSED_MS, REUSED_MS_MAX, SHARE, Figures
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.loop.promise import Promise
from goqueue.model.session import NOBODY
from tests.unit.broker.node import Node


class SlowLag:
    """Knows the lag of no group, and takes its time."""

    def __init__(self, node: Node, cost_ms: int) -> None:
        self.looks = 0
        self._node = node
        self._cost_ms = cost_ms

    async def refresh(self) -> None:
        self.looks += 1
        is_over: Promise[None] = Promise()
        self._node.broker.clock.call_later(self._cost_ms, lambda: is_over.resolve(None))
        await is_over

    def known(self) -> Sequence[object]:
        return []


@pytest.mark.parametrize(
    ("cost_ms", "reused_ms"),
    [(1, REUSED_MS), (300, SHARE * 300), (3_000, REUSED_MS_MAX)],
)
def test_figures_are_reused_for_as_long_as_they_cost(cost_ms: int, reused_ms: int) -> None:
    node = Node()
    node.create("orders")
    offsets = [OffsetToCommit(topic="orders", partition=0, offset=0)]
    commit = CommitOffsets(group_id="readers", offsets=offsets)
    node.wait(node.broker.gate.group_offsets.commit(NOBODY, call=commit))
    lag = SlowLag(node, cost_ms)
    figures = Figures(node.broker.measuring.history.figures.parts, lambda: lag)  # type: ignore[arg-type, return-value]
    for _ in range(3):  # while it is computed, all wait for the same
        figures.all()
    assert set(node.wait(figures.all()).groups) == {"readers"}
    node.run_for(max(0, reused_ms - cost_ms - 1_000))
    node.wait(figures.all())
    assert lag.looks == 1
    node.run_for(2_000 + cost_ms)
    node.wait(figures.all())
    assert lag.looks == 2
