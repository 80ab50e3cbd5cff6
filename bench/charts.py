"""What the pictures of a result show: bars of systems side by side, and curves of growing cost.

Only values here; `bench.plots` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.report import MEGABYTES, MILLISECONDS, SECONDS, is_speed, subject
from bench.results import is_peer

# Costs per message are in the tables; as bars they would only repeat the speeds upside down.
_BAR_UNITS = frozenset({MILLISECONDS.name, SECONDS.name, MEGABYTES.name})


@dataclass(frozen=True, slots=True)
class Bar:
    """One system. Without a spread there was one run, or results of before kept no more."""

    system: str
    median: float
    low: float
    high: float
    # Whose it is: `own`, `peer`, or `limit` for what is no broker.
    kind: str


@dataclass(slots=True)
class Panel:
    """The systems that one row compares, each once."""

    title: str
    unit: str
    bars: list[Bar] = field(default_factory=list)

    def add(self, bar: Bar | None) -> None:
        """Add a system, unless it is there."""
        if bar is not None and all(bar.system != each.system for each in self.bars):
            self.bars.append(bar)


@dataclass(frozen=True, slots=True)
class Spot:
    """One point of a curve."""

    x: float
    median: float
    low: float
    high: float


@dataclass(slots=True)
class Graph:
    """Curves over the same quantity."""

    axis: str
    unit: str
    curves: dict[str, list[Spot]] = field(default_factory=dict)


def panels(section: Mapping[str, Any]) -> list[Panel]:
    """A panel for each row that tells of two systems or more, in the order of the table."""
    found: dict[tuple[str, str], Panel] = {}
    for line in section["lines"]:
        unit = line["unit"]
        # A point that is held against a level of its own says nothing beside other systems.
        is_level = line["point"] is not None and not is_peer(line["against"])
        if is_level or not (is_speed(unit) or unit in _BAR_UNITS):
            continue
        title = subject(line["row"], line["system"]).removesuffix(" (aim)")
        panel = found.setdefault((title, unit), Panel(title, unit))
        kind = "peer" if is_peer(line["system"]) else "own"
        panel.add(_bar(line["system"], line["median"], line["samples"], kind))
        panel.add(_reference_bar(line))
    order = ("own", "peer", "limit")
    for panel in found.values():
        panel.bars.sort(key=lambda bar: order.index(bar.kind))
    return [panel for panel in found.values() if len(panel.bars) > 1]


def graphs(section: Mapping[str, Any]) -> list[Graph]:
    """A graph for each quantity that something was measured against."""
    found: dict[tuple[str, str], Graph] = {}
    for line in section["lines"]:
        point = line["point"]
        if point is None or line["median"] is None:
            continue
        graph = found.setdefault((point["axis"], line["unit"]), Graph(point["axis"], line["unit"]))
        curve = graph.curves.setdefault(point["series"], [])
        if all(spot.x != point["x"] for spot in curve):
            samples = line["samples"]
            curve.append(Spot(point["x"], line["median"], min(samples), max(samples)))
    for graph in found.values():
        for curve in graph.curves.values():
            curve.sort(key=lambda spot: spot.x)
    return list(found.values())


def _reference_bar(line: Mapping[str, Any]) -> Bar | None:
    if line["against"] is None:
        return None
    system = line["against"]
    kind = "own" if "GoQueue" in system else "peer" if is_peer(system) else "limit"
    if (reference := line["reference"]) is not None:
        return _bar(system, reference["median"], reference["samples"], kind)
    if line["ratio"] and line["median"] is not None:
        return _bar(system, line["median"] / line["ratio"], (), kind)
    return None


def _bar(system: str, median: float | None, samples: Sequence[float], kind: str) -> Bar | None:
    if median is None:
        return None
    known = samples or (median,)
    return Bar(system, median, min(known), max(known), kind)
