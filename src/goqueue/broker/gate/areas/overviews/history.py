"""The recent past of the cluster, of a topic, and of a group: rates and lag over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.gate.areas.overviews.figures import silent_nodes
from goqueue.broker.gate.operation import (
    Area,
    Arguments,
    cluster,
    group,
    named_by_owner,
    operation,
    query,
    topic,
)
from goqueue.broker.history.recorder import (
    DETAIL_STEP_MS,
    GROUP_SERIES,
    KEPT_MS,
    NODE_SERIES,
    NODE_STEP_MS,
    TOPIC_SERIES,
)
from goqueue.model.access import Action
from goqueue.model.errors import InvalidRequest
from goqueue.model.session import Session
from goqueue.model.tenants import GroupName, Text, TopicName

if TYPE_CHECKING:
    from goqueue.broker.history.ring import Ring

__all__ = ["KEPT_MS", "POINTS_MAX", "HistoryArea", "Period", "Recorded"]

POINTS_MAX = 1000


class Period(NamedTuple):
    """A time range that ends now or before, and the number of values to return for it at most."""

    from_ms: int
    until_ms: int
    points: int


class Recorded(NamedTuple):
    """Values of some series at equal distances; nan where nothing is known."""

    nodes: list[int]  # that have answered
    from_ms: int
    step_ms: int
    series: dict[Text, list[float]]


def _add_up(_: Arguments, answers: Sequence[Recorded]) -> Recorded:
    """Add up the rates of all nodes; a node that has no value for a time is left out there."""
    return _merged(answers, sum)


def _largest(_: Arguments, answers: Sequence[Recorded]) -> Recorded:
    """Return the values of the node that has them; a group is owned by one node at a time."""
    return _merged(answers, max)


def _merged(answers: Sequence[Recorded], pick: Callable[[list[float]], float]) -> Recorded:
    whole = answers[-1]

    def merge(values: Sequence[float]) -> float:
        known = [one for one in values if not isnan(one)]
        return pick(known) if known else nan

    series = {
        name: [
            merge(values) for values in zip(*(one.series[name] for one in answers), strict=False)
        ]
        for name in whole.series
    }
    nodes = [node for one in answers for node in one.nodes]
    return whole._replace(nodes=nodes, series=series)


class HistoryArea(Area):
    """What nodes have recorded in the last hours."""

    @operation(Action.DESCRIBE, cluster, merge=_add_up, is_reading=True, is_partial=True)
    async def of_cluster(
        self, session: Session, *, period: Period, node: int | None = None
    ) -> Recorded:
        """Return the rates of all nodes together, or of one."""
        ring = self._broker.measuring.history.recorder.node
        is_wanted = node is None or node == self._broker.node_id
        return self._recorded(ring if is_wanted else None, NODE_SERIES, NODE_STEP_MS, period)

    @operation(Action.DESCRIBE, topic(), merge=_add_up, is_reading=True, is_partial=True)
    async def of_topic(self, session: Session, *, topic: TopicName, period: Period) -> Recorded:
        """Return the rates of a topic."""
        self._broker.topics.get(topic)
        ring = self._broker.measuring.history.recorder.topics.get(topic)
        return self._recorded(ring, TOPIC_SERIES, DETAIL_STEP_MS, period)

    @operation(Action.DESCRIBE, group(), merge=_largest, is_reading=True, is_partial=True)
    async def of_group(self, session: Session, *, group: GroupName, period: Period) -> Recorded:
        """Return how far a group was behind."""
        ring = self._broker.measuring.history.recorder.groups.get(group)
        return self._recorded(ring, GROUP_SERIES, DETAIL_STEP_MS, period)

    @query(Action.DESCRIBE, named_by_owner)
    def missing(self, session: Session, *, answered: Sequence[int]) -> list[int]:
        """Return the nodes that have not answered: what they have recorded is not in the sums."""
        return silent_nodes(self._broker, answered)

    def _recorded(
        self, ring: Ring | None, names: Sequence[str], step_ms: int, period: Period
    ) -> Recorded:
        if period.points < 1:
            raise InvalidRequest("Ask for at least one point.")
        # By the period alone: clocks of nodes differ, and their values are added up in order.
        end = period.until_ms // step_ms
        begin = max(period.from_ms // step_ms, end - KEPT_MS // step_ms)
        end = max(begin, end)
        joined = max(1, -(-(end - begin) // period.points))  # rows for each value
        begin -= begin % joined  # so that all nodes join the same ones
        unknown = [nan] * -(-(end - begin) // joined)
        series = {
            name: unknown if ring is None else _joined(ring.column(number, begin, end), joined)
            for number, name in enumerate(names)
        }
        return Recorded([self._broker.node_id], begin * step_ms, joined * step_ms, series)


def _joined(values: Sequence[float], count: int) -> list[float]:
    """Return the mean of each `count` values, as far as they are known."""
    if count == 1:
        return list(values)
    means = []
    for at in range(0, len(values), count):
        known = [one for one in values[at : at + count] if not isnan(one)]
        means.append(sum(known) / len(known) if known else nan)
    return means
