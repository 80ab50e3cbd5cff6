"""What was measured, beside what it is compared with, and whether that is enough."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.results import is_peer
from bench.usage import Usage, chosen

Level = Literal["must", "aim"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its figures by name, why it does not count if it does not, and what it took."""

    values: dict[str, float]
    void: str = ""
    usages: tuple[Usage, ...] = ()


@dataclass(slots=True)
class Runs:
    """All runs of one case, in the order of the rounds."""

    label: str
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: str = ""

    @property
    def void(self) -> str:
        """The first reason for which a run does not count."""
        return next((outcome.void for outcome in self.outcomes if outcome.void), "")

    def valid(self, metric: str) -> list[float]:
        """The figures of the runs that count."""
        return [outcome.values[metric] for outcome in self.outcomes if not outcome.void]

    def median(self, metric: str) -> float | None:
        """The middle figure, or nothing when no run counts."""
        values = self.valid(metric)
        return statistics.median(values) if values else None

    def usages(self, metric: str) -> list[Usage]:
        """What the runs that count took for this figure."""
        found = [chosen(outcome.usages, metric) for outcome in self.outcomes if not outcome.void]
        return [usage for usage in found if usage is not None]


@dataclass(frozen=True, slots=True)
class Unit:
    """How a figure is written."""

    name: str
    write: Callable[[float], str]


def _rate(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    return f"{value / 1e3:.0f} k" if value >= 1e4 else f"{value / 1e3:.2f} k"


MESSAGES = Unit("msg/s", lambda value: f"{_rate(value)} msg/s")
REQUESTS = Unit("req/s", lambda value: f"{_rate(value)} req/s")
MILLISECONDS = Unit("ms", lambda value: f"{value:.3f} ms" if value < 10 else f"{value:.0f} ms")
SECONDS = Unit("s", lambda value: f"{value:.2f} s")
MICROSECONDS = Unit("µs", lambda value: f"{value:.2f} µs")
# The same number as microseconds per message.
PER_MILLION = Unit("s per million", lambda value: f"{value:.2f} s")
GIGABYTES = Unit("GB/s", lambda value: f"{value:.2f} GB/s")
CORES = Unit("cores", lambda value: f"{value:.2f} cores")
MEGABYTES = Unit("MB", lambda value: f"{value:.0f} MB")
UNITS = {
    unit.name: unit
    for unit in (
        *(MESSAGES, REQUESTS, MILLISECONDS, SECONDS, MICROSECONDS, PER_MILLION),
        *(GIGABYTES, CORES, MEGABYTES),
    )
}


def unit_of(name: str) -> Unit:
    """The unit of this name; a row may have one of its own, which is written plainly."""
    return UNITS.get(name) or Unit(name, lambda value: f"{value:,.3g} {name}")


def is_speed(unit: str) -> bool:
    """Whether more of it is better; of all that is not a speed, less is."""
    return unit.endswith("/s")


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the figure itself, or on its ratio to the reference."""

    text: str
    bound: float
    is_upper: bool = False
    of_ratio: bool = False
    level: Level = "must"

    def judge(self, figure: float, ratio: float | None) -> str:
        """`met` or `missed`; an aim says that it is one."""
        value = ratio if self.of_ratio else figure
        if value is None:
            return ""
        is_met = value <= self.bound if self.is_upper else value >= self.bound
        return ("" if self.level == "must" else "aim ") + ("met" if is_met else "missed")


def at_least(bound: float, text: str, level: Level = "must") -> Target:
    """The figure must reach `bound`."""
    return Target(f"≥ {text}", bound, level=level)


def at_most(bound: float, text: str, level: Level = "must") -> Target:
    """The figure must not exceed `bound`."""
    return Target(f"≤ {text}", bound, is_upper=True, level=level)


def times_at_least(bound: float, level: Level = "must") -> Target:
    """The ratio to the reference must reach `bound`."""
    return Target(f"≥ {bound:g} ×", bound, of_ratio=True, level=level)


def times_at_most(bound: float, level: Level = "must") -> Target:
    """The ratio to the reference must not exceed `bound`."""
    return Target(f"≤ {bound:g} ×", bound, is_upper=True, of_ratio=True, level=level)


# Which of several figures of the same runs a row tells.
_DETAIL = re.compile(r"(: .*|, p\d+)$")


@dataclass(frozen=True, slots=True)
class Point:
    """Where a figure lies in a picture of how cost grows."""

    axis: str
    series: str
    x: float


@dataclass(slots=True)
class Section:
    """One group of lines with the notes that belong to it.

    A line is kept as the values that are written to the results; `bench.tables` makes text of it.
    """

    title: str
    notes: list[str] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    row: str = ""
    # With the runs themselves: while they are held, no others have their ids.
    _used: dict[tuple[int, str], tuple[Runs, dict[str, Any]]] = field(default_factory=dict)

    def add(
        self,
        row: str,
        runs: Runs,
        metric: str,
        unit: Unit,
        *,
        reference: Runs | None = None,
        reference_metric: str = "",
        target: Target | None = None,
        point: Point | None = None,
    ) -> None:
        """Add a line; with a reference, the ratio is the middle one of the rounds' ratios."""
        its_metric = reference_metric or metric
        figure = runs.median(metric)
        ratio = _ratio(runs, metric, reference, its_metric)
        self._note_usage(row, runs, metric)
        if reference is not None:
            self._note_usage(subject(row, runs.label), reference, its_metric)
        self.lines.append(
            {
                "row": row,
                "system": runs.label,
                **_figures(runs, metric),
                "unit": unit.name,
                "against": reference.label if reference else None,
                "reference": _figures(reference, its_metric) if reference else None,
                "ratio": ratio,
                "target": target.text if target else None,
                "verdict": _verdict(figure, ratio, runs, reference, its_metric, target) or None,
                "point": dataclasses.asdict(point) if point else None,
            }
        )

    def to_data(self) -> dict[str, Any]:
        """As it is kept with the results."""
        return {
            "row": self.row,
            "title": self.title,
            "notes": self.notes,
            "lines": self.lines,
            "usage": [entry for _, entry in self._used.values()],
        }

    def _note_usage(self, row: str, runs: Runs, metric: str) -> None:
        """Once for the runs of a case, however many lines tell of them."""
        usages = runs.usages(metric)
        if usages:
            entry = {
                "case": _DETAIL.sub("", subject(row, runs.label)),
                "system": runs.label,
                "what": usages[-1].what,
                "runs": [usage.to_data() for usage in usages],
            }
            self._used.setdefault((id(runs), usages[-1].what), (runs, entry))


def subject(row: str, system: str) -> str:
    """What a row is about, whichever product it tells of."""
    if "GoQueue" not in system and not is_peer(system):
        return row
    return re.sub(rf"(, |(?<!^) )?\b{re.escape(system)}(?![\w-])", "", row, count=1).lstrip(", ")


def _figures(runs: Runs, metric: str) -> dict[str, Any]:
    return {
        "metric": metric,
        "median": runs.median(metric),
        "samples": runs.valid(metric),
        "void": [outcome.void for outcome in runs.outcomes if outcome.void],
        "skipped": runs.skipped,
        "server_us": _middle(usage.server_us() for usage in runs.usages(metric)),
        "client_us": _middle(usage.client_us() for usage in runs.usages(metric)),
    }


def _middle(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def _verdict(
    figure: float | None,
    ratio: float | None,
    runs: Runs,
    reference: Runs | None,
    reference_metric: str,
    target: Target | None,
) -> str:
    if runs.void:
        return f"VOID: {runs.void}"
    if figure is None:
        return f"not measured: {runs.skipped}"
    if reference is not None and reference.median(reference_metric) is None:
        return f"not measured: {reference.void or reference.skipped}"
    return target.judge(figure, ratio) if target else ""


def _ratio(runs: Runs, metric: str, reference: Runs | None, reference_metric: str) -> float | None:
    if reference is None:
        return None
    pairs = zip(runs.outcomes, reference.outcomes, strict=False)
    ratios = [
        mine.values[metric] / theirs.values[reference_metric]
        for mine, theirs in pairs
        if not mine.void and not theirs.void and theirs.values[reference_metric]
    ]
    return statistics.median(ratios) if ratios else None
