"""Divides the quotas of a cluster among its nodes, by demand.

Each node enforces its share of a limit by itself, and reports once a second how much of it was
used and whether clients had to wait. The shares are max-min fair: a node that needs less than an
equal share gets what it needs, and those whose clients wait divide the rest.

What is granted exceeds the limit by no more than the least share of each node: a node gets only
what no other node still holds, so a share moves in two steps, of which the first is the report of
the node that has too much.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec

from goqueue.model.bounds import Name, NodeId
from goqueue.tenancy.quotas import WAIT_MS_MAX, BucketKey

FLOOR = 0.02  # of a limit, for all nodes together: what those without demand hold
HEADROOM = 1 / 16  # a node whose clients do not wait gets this much more than it used
SILENT_MS_MAX = 5_000  # after that, what a node has reported is forgotten
LEARNING_MS_MAX = 3_000  # how long a new controller waits to learn what nodes hold
NOTHING = 0.0
REPORT_MS = 1_000  # between the reports of a node
FAIR = 0.9  # of an equal share


class Demand(msgspec.Struct, frozen=True, array_like=True):
    """What a node used of one limit since its last report."""

    limit_name: Name
    entity: tuple[tuple[Name, Name], ...]
    limit: float
    rate: float  # used per second
    is_short: bool  # clients had to wait
    held: float  # its share so far; 0 if it has none yet

    @property
    def key(self) -> BucketKey:
        return BucketKey(self.limit_name, self.entity)


class Count(msgspec.Struct, frozen=True, array_like=True):
    """How many of something an entity has on a node."""

    limit_name: Name
    entity: tuple[tuple[Name, Name], ...]
    value: float

    @property
    def key(self) -> BucketKey:
        return BucketKey(self.limit_name, self.entity)


class Report(msgspec.Struct, frozen=True, array_like=True):
    """The use of quotas on a node."""

    demands: tuple[Demand, ...] = ()
    counts: tuple[Count, ...] = ()


class Allotment(msgspec.Struct, frozen=True, array_like=True):
    """The answer: a share for each demand, and for each count the total of the other nodes."""

    shares: tuple[float, ...] = ()
    elsewhere: tuple[float, ...] = ()


class _Known:
    """What one node has reported of a limit, and what it holds since."""

    __slots__ = ("at_ms", "granted", "wanted")

    def __init__(self, wanted: float, granted: float, at_ms: int) -> None:
        self.wanted = wanted
        self.granted = granted
        self.at_ms = at_ms


class Shares:
    """The shares of all nodes, on the node that divides the quotas."""

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._heard: dict[int, int] = {}  # when each node has last reported
        self._limits: dict[BucketKey, dict[int, _Known]] = {}
        self._counts: dict[BucketKey, dict[int, tuple[float, int]]] = {}
        self._swept_ms = now_ms

    def report(
        self, node: NodeId, report: Report, *, nodes: Collection[int], now_ms: int
    ) -> Allotment:
        """Take a report of one of the `nodes`, and return what it may use until its next one."""
        self._heard[node] = now_ms
        self._sweep(now_ms)
        is_learning = self._is_learning(nodes, now_ms)
        return Allotment(
            tuple(self._share(node, one, nodes, is_learning, now_ms) for one in report.demands),
            tuple(self._elsewhere(node, one, now_ms) for one in report.counts),
        )

    def _is_learning(self, nodes: Collection[int], now_ms: int) -> bool:
        """Whether some nodes may hold shares that an earlier controller granted."""
        if now_ms - self._since_ms >= LEARNING_MS_MAX:
            return False
        return any(node not in self._heard for node in nodes)

    def _share(
        self, node: int, demand: Demand, nodes: Collection[int], is_learning: bool, now_ms: int
    ) -> float:
        known = self._limits.setdefault(demand.key, {})
        for other in [one for one in known if one not in nodes]:
            del known[other]
        mine = known.get(node)
        if mine is None:
            mine = known[node] = _Known(NOTHING, demand.held, now_ms)
        mine.at_ms = now_ms
        mine.wanted = wanted(demand, len(nodes))
        wants = {one: each.wanted for one, each in known.items()}
        target = divide(demand.limit, wants, node_count=len(nodes))[node]
        if is_learning:
            target = min(target, max(demand.held, demand.limit / max(1, len(nodes))))
        held_elsewhere = sum(each.granted for one, each in known.items() if one != node)
        least = least_share(demand.limit, len(nodes))
        mine.granted = max(least, min(target, demand.limit - held_elsewhere))
        return mine.granted

    def _elsewhere(self, node: int, count: Count, now_ms: int) -> float:
        known = self._counts.setdefault(count.key, {})
        known[node] = (count.value, now_ms)
        return sum(value for one, (value, _) in known.items() if one != node)

    def _sweep(self, now_ms: int) -> None:
        """Forget what nodes no longer report."""
        if now_ms - self._swept_ms < SILENT_MS_MAX // 5:
            return
        self._swept_ms = now_ms
        oldest_ms = now_ms - SILENT_MS_MAX
        for key, known in list(self._limits.items()):
            for node in [one for one, each in known.items() if each.at_ms < oldest_ms]:
                del known[node]
            if not known:
                del self._limits[key]
        for key, counts in list(self._counts.items()):
            for node in [one for one, (_, at_ms) in counts.items() if at_ms < oldest_ms]:
                del counts[node]
            if not counts:
                del self._counts[key]
        self._heard = {node: at_ms for node, at_ms in self._heard.items() if at_ms >= oldest_ms}


def wanted(demand: Demand, node_count: int) -> float:
    """Return how much of a limit a node needs; all of it while its clients have to wait."""
    if demand.is_short:
        return math.inf
    return demand.rate * (1 + HEADROOM) + least_share(demand.limit, node_count)


def least_share(limit: float, node_count: int) -> float:
    """Return what a node holds that has not reported a demand yet."""
    return limit * FLOOR / max(1, node_count)


def longest_wait_ms(share: float, limit: float, node_count: int) -> int:
    """Return how long clients may be told to wait.

    A node whose clients wait gets an equal share at least. If it has less, it has more after the
    next reports.
    """
    return WAIT_MS_MAX if share * node_count >= limit * FAIR else REPORT_MS


def divide(limit: float, wants: Mapping[int, float], *, node_count: int) -> dict[int, float]:
    """Divide a limit among the nodes that use it; nodes beyond those keep the least share."""
    silent = max(0, node_count - len(wants))
    rest = limit - silent * least_share(limit, node_count)
    shares: dict[int, float] = {}
    in_order: Sequence[int] = sorted(wants, key=lambda node: (wants[node], node))
    for index, node in enumerate(in_order):
        shares[node] = min(wants[node], rest / (len(in_order) - index))
        rest -= shares[node]
    for node in in_order:
        shares[node] += rest / len(in_order)
    return shares
