"""How cost grows: the same case at several levels, each held against the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bench.report import MICROSECONDS, Outcome, Point, Runs, Section, times_at_most
from bench.session import Session

# Two measurements on a busy machine differ by this much; a cost that grows with the amount grows
# by far more over three decades.
FLAT = times_at_most(1.5)


def add_curve(
    section: Section,
    runs: dict[int, Runs],
    metric: str,
    *,
    axis: str,
    series: str,
    is_judged: bool = True,
) -> None:
    """A line for each level, held against the first, and a curve of them."""
    first = next(iter(runs.values()))
    for level, each in runs.items():
        section.add(
            f"{series}, {level:,} {axis}",
            each,
            metric,
            MICROSECONDS,
            reference=first,
            target=FLAT if is_judged else None,
            point=Point(axis, series, level),
        )


def at_levels(
    session: Session, title: str, axis: str, levels: Sequence[int], case: Callable[[int], Outcome]
) -> dict[int, Runs]:
    """The runs of all levels, which take turns."""
    labels = {level: f"{level:,} {axis}" for level in levels}
    cases = {label: partial(case, level) for level, label in labels.items()}
    runs = session.in_turns(title, cases)
    return {level: runs[label] for level, label in labels.items()}
