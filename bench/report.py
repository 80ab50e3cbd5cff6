"""What was measured, beside what it is compared with, and whether that is enough."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["must", "aim"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its figures by name, and why it does not count if it does not."""

    values: dict[str, float]
    void: str = ""


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


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table, ready to print."""

    row: str
    figure: str
    spread: str = ""
    against: str = ""
    reference: str = ""
    ratio: str = ""
    target: str = ""
    verdict: str = ""


@dataclass(slots=True)
class Section:
    """One group of rows with the notes that belong to it."""

    title: str
    notes: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)

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
    ) -> None:
        """Add a line; with a reference, the ratio is the middle one of the rounds' ratios."""
        target_text = target.text if target else ""
        against = reference.label if reference else ""
        reference_figure = reference.median(reference_metric or metric) if reference else None
        reference_text = unit.write(reference_figure) if reference_figure is not None else ""
        figure = runs.median(metric)
        if figure is None:
            verdict = f"VOID: {runs.void}" if runs.void else f"not measured: {runs.skipped}"
            line = Line(row, "–", "", against, reference_text, "", target_text, verdict)
            self._append(line, runs, metric, unit, reference)
            return
        ratio = _ratio(runs, metric, reference, reference_metric or metric)
        verdict = target.judge(figure, ratio) if target else ""
        if reference is not None and reference_figure is None:
            verdict = f"not measured: {reference.void or reference.skipped}"
        if runs.void:
            verdict = f"VOID: {runs.void}"
        line = Line(
            row=row,
            figure=unit.write(figure),
            spread=_spread(runs.valid(metric), unit),
            against=against,
            reference=reference_text,
            ratio=f"{ratio:.2f}" if ratio is not None else "",
            target=target_text,
            verdict=verdict,
        )
        self._append(line, runs, metric, unit, reference)

    def _append(
        self, line: Line, runs: Runs, metric: str, unit: Unit, reference: Runs | None
    ) -> None:
        self.lines.append(line)
        self.data.append(
            {
                "row": line.row,
                "system": runs.label,
                "metric": metric,
                "unit": unit.name,
                "median": runs.median(metric),
                "samples": runs.valid(metric),
                "void": [outcome.void for outcome in runs.outcomes if outcome.void],
                "skipped": runs.skipped,
                "against": reference.label if reference else None,
                "ratio": float(line.ratio) if line.ratio else None,
                "target": line.target or None,
                "verdict": line.verdict or None,
            }
        )


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


def _spread(values: Sequence[float], unit: Unit) -> str:
    if len(values) < 2:
        return "one run"
    return f"{unit.write(min(values))} … {unit.write(max(values))}"


HEADINGS = ("row", "figure", "spread", "against", "its figure", "ratio", "target", "verdict")


def to_markdown(section: Section) -> str:
    """The section as a Markdown table with its notes."""
    lines = [f"## {section.title}", ""]
    lines.append("| " + " | ".join(HEADINGS) + " |")
    lines.append("|" + "---|" * len(HEADINGS))
    lines += ["| " + " | ".join(_cells(line)) + " |" for line in section.lines]
    lines += ["", *(f"- {note}" for note in section.notes)]
    return "\n".join(lines).rstrip() + "\n"


def to_terminal(section: Section) -> str:
    """The section in aligned columns."""
    rows = [HEADINGS, *(_cells(line) for line in section.lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [f"\n{section.title}"]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  " + "  ".join(cells).rstrip())
    lines += [f"  ({note})" for note in section.notes]
    return "\n".join(lines)


def _cells(line: Line) -> tuple[str, ...]:
    cells = (
        *(line.row, line.figure, line.spread, line.against),
        *(line.reference, line.ratio, line.target, line.verdict),
    )
    return tuple(cell.replace("|", "/").replace("\n", " ") for cell in cells)
