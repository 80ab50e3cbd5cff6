"""Draws the pictures of a result, as SVG for pages and PNG for everything else.

matplotlib belongs to the `bench` dependency group. Where it is missing, `draw` says so and draws
nothing: the tables do not need it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.charts import Bar, Graph, Panel, graphs, panels
from bench.report import is_speed, unit_of
from bench.results import slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("svg", "png")
DPI = 110
COLUMNS = 2
PANEL_INCHES = 6.4
BAR_INCHES = 0.34
TITLE_INCHES = 0.45
LINE_INCHES = 0.17
TITLE_LETTERS_MAX = 64
NAME_LETTERS_MAX = 60

_OWN = ("#1b4f9c", "#6f9fe0", "#a9c6ee")
_PEERS = {
    "Apache Kafka": "#d9822b",
    "three Apache Kafka": "#d9822b",
    "RabbitMQ": "#c0392b",
    "NATS": "#2e9e6b",
    "Redis": "#8e44ad",
    "ElasticMQ": "#b8860b",
    "moto": "#c2779b",
}
_LIMIT = "#b4b8bd"
# Curves of one system differ in how they are drawn.
_STROKES = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))


class PlotsMissing(Exception):
    """No picture can be drawn here; the text says what to install."""


def draw(section: Mapping[str, Any], folder: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Draw what a section compares and how its costs grow; the paths of the first kind."""
    require()
    name = _file_name(section)
    drawn = []
    if found := panels(section):
        drawn.append(_save(_bars(section["title"], found), folder / name, kinds))
    for graph in graphs(section):
        path = folder / f"{name}-by-{slug(graph.axis)}-{slug(graph.unit)}"
        drawn.append(_save(_curves(section["title"], graph), path, kinds))
    return drawn


def _file_name(section: Mapping[str, Any]) -> str:
    """The row first, so that the pictures of a row lie together."""
    row, title = slug(section["row"]), slug(section["title"])
    name = title if title.startswith(row) else f"{row}-{title}"
    return name[:NAME_LETTERS_MAX].rstrip("-")


def require() -> None:
    """Make ready to draw, or say what is missing."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise PlotsMissing(
            "no pictures: matplotlib is missing (make setup-bench installs it)"
        ) from None
    mpl.use("agg")
    mpl.rcParams.update(
        {
            "font.size": 9,
            "font.family": "DejaVu Sans",
            "axes.spines.top": False,
            "axes.spines.right": False,
            # The same results give the same file, and its text stays text.
            "svg.hashsalt": "goqueue",
            "svg.fonttype": "none",
        }
    )


def _save(figure: Figure, path: Path, kinds: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(f"{path}.{kind}", dpi=DPI, metadata=metadata)
    return path.with_name(f"{path.name}.{kinds[0]}")


def _bars(title: str, found: Sequence[Panel]) -> Figure:
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(found))
    rows = [found[at : at + columns] for at in range(0, len(found), columns)]
    heights = [max(_inches(panel) for panel in row) for row in rows]
    figure = Figure(figsize=(columns * PANEL_INCHES, sum(heights) + 0.5), layout="constrained")
    figure.suptitle(title, fontsize=11, fontweight="bold")
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    for at, row in enumerate(rows):
        for column, panel in enumerate(row):
            _draw_panel(figure.add_subplot(grid[at, column]), panel, slots=_slots(row))
    return figure


def _inches(panel: Panel) -> float:
    title_lines = 1 + _wrapped(panel.title).count("\n")
    return TITLE_INCHES + LINE_INCHES * title_lines + BAR_INCHES * len(panel.bars)


def _slots(row: Sequence[Panel]) -> int:
    """As many bars as the largest panel beside has, so that all bars are of one thickness."""
    return max(len(panel.bars) for panel in row)


def _draw_panel(axes: Axes, panel: Panel, slots: int) -> None:
    unit = unit_of(panel.unit)
    names = [bar.system for bar in panel.bars]
    medians = [bar.median for bar in panel.bars]
    spread = [
        [bar.median - bar.low for bar in panel.bars],
        [bar.high - bar.median for bar in panel.bars],
    ]
    positions = range(len(names))
    axes.barh(
        positions,
        medians,
        xerr=spread,
        color=_colours(panel.bars),
        height=0.72,
        error_kw={"elinewidth": 1, "capsize": 2.5, "ecolor": "#333333"},
    )
    widest = max(bar.high for bar in panel.bars) or 1.0
    for position, bar in zip(positions, panel.bars, strict=True):
        axes.text(bar.high + widest * 0.015, position, unit.write(bar.median), va="center")
    axes.set_xlim(0, widest * 1.22)
    axes.set_yticks(list(positions), names)
    axes.set_ylim(slots - 0.5, -0.5)  # downwards
    better = "more is better" if is_speed(panel.unit) else "less is better"
    axes.set_title(f"{_wrapped(panel.title)}\n{better}", fontsize=9, loc="left")
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _colours(bars: Sequence[Bar]) -> list[str]:
    own = iter(_OWN)
    chosen = []
    for bar in bars:
        if bar.kind == "own":
            chosen.append(next(own, _OWN[-1]))
        else:
            known = (each for start, each in _PEERS.items() if bar.system.startswith(start))
            chosen.append(next(known, _LIMIT))
    return chosen


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, TITLE_LETTERS_MAX))


def _curves(title: str, graph: Graph) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    axes = figure.add_subplot()
    styles = _styles(list(graph.curves))
    for name, curve in graph.curves.items():
        medians = [spot.median for spot in curve]
        spread = [
            [spot.median - spot.low for spot in curve],
            [spot.high - spot.median for spot in curve],
        ]
        axes.errorbar(
            [spot.x for spot in curve],
            medians,
            yerr=spread,
            label=name,
            markersize=4,
            capsize=3,
            elinewidth=0.8,
            **styles[name],
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(*_at_least_two_decades(graph))
    levels = sorted({spot.x for curve in graph.curves.values() for spot in curve})
    axes.set_xticks(levels)
    axes.minorticks_off()
    axes.grid(True, which="major", color="#e3e6ea")
    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    axes.yaxis.set_major_formatter(plain)
    axes.xaxis.set_major_formatter(plain)
    axes.set_xlabel(graph.axis)
    axes.set_ylabel(graph.unit)
    over = "" if title.endswith(f"by {graph.axis}") else f"\nby {graph.axis}"
    axes.set_title(f"{title}{over}", fontsize=10, loc="left")
    figure.legend(loc="outside lower center", fontsize=8, frameon=False, ncols=2)
    return figure


def _styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour for each system; the curves of one system are drawn in different ways."""
    styles: dict[str, dict[str, Any]] = {}
    used: dict[str, int] = {}
    for name in names:
        colour = next((each for start, each in _PEERS.items() if start in name), "")
        if not colour:
            colour = _OWN[1] if "fsync none" in name else _OWN[0]
        stroke, marker = _STROKES[used.get(colour, 0) % len(_STROKES)]
        used[colour] = used.get(colour, 0) + 1
        styles[name] = {"color": colour, "linestyle": stroke, "marker": marker}
    return styles


def _at_least_two_decades(graph: Graph) -> tuple[float, float]:
    """So that what is flat looks flat, and noise does not look like growth."""
    spots = [spot for curve in graph.curves.values() for spot in curve]
    low = min(spot.low for spot in spots if spot.low > 0)
    high = max(spot.high for spot in spots)
    middle, reach = (low * high) ** 0.5, max((high / low) ** 0.5 * 1.3, 10.0)
    return middle / reach, middle * reach
