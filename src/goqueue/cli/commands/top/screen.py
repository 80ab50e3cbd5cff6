"""The screen: which view is shown and how, what keys do, and the lines of a frame.

It reads no key and writes nothing: `press` takes the name of a key, `frame` returns lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from goqueue.cli.commands.top.measured import Measured
from goqueue.cli.commands.top.views import (
    GROUPS,
    NODES,
    OVERVIEW,
    QUEUES,
    TOPICS,
    VIEWS,
    Column,
    View,
    overview_of,
)
from goqueue.cli.commands.top.writing import written
from goqueue.cli.output import Row

OVERVIEW_NAME = "overview"
NAMES = (OVERVIEW_NAME, *(view.name for view in VIEWS))
HELP = "q quit  1-5 or tab view  < > sort  r reverse  i internal  p pause  arrows scroll"
INTERNAL_PREFIX = "__"
# Less than this, and a name cannot be told from others: the last columns go instead.
NAME_WIDTH_MIN = 12
GAPS = (2, 1)  # between columns: the first that leaves room for all
BUSIEST_MAX = 5  # rows of each view in the overview
_MISSING = float("-inf")  # sorted after all numbers
# Figures that are not 0 when something is wrong.
_BAD = {"leaderless", "under_replicated", "errors", "dead_letters", "throttled", "denied"}


class Style(Enum):
    PLAIN = ""
    HEAD = "1"
    SELECTED = "7"
    FAINT = "2"
    BAD = "1;31"


class Line(NamedTuple):
    text: str
    style: Style = Style.PLAIN


class Size(NamedTuple):
    columns: int
    lines: int


@dataclass(slots=True)
class Status:
    """What the head of the screen says beside the figures."""

    interval_seconds: float
    clock: str = ""
    trouble: str = ""


@dataclass(slots=True)
class Sorting:
    column: str
    is_ascending: bool = False


@dataclass(slots=True)
class Screen:
    """What the user has chosen."""

    view: str = OVERVIEW_NAME
    is_paused: bool = False
    shows_internal: bool = False
    first: int = 0  # the row at the top
    sortings: dict[str, Sorting] = field(
        default_factory=lambda: {
            one.name: Sorting(one.sorted_by, is_ascending=one is NODES) for one in VIEWS
        }
    )

    def press(self, key: str) -> bool:
        """Do what a key is for; return False if it ends the view."""
        if key in ("q", "Q", "ctrl-c", "ctrl-d"):
            return False
        if key.isdecimal() and 1 <= int(key) <= len(NAMES):
            self._show(NAMES[int(key) - 1])
        elif key in ("tab", "shift-tab"):
            step = 1 if key == "tab" else -1
            self._show(NAMES[(NAMES.index(self.view) + step) % len(NAMES)])
        elif key in (">", "<", "right", "left", "r"):
            self._sort(key)
        elif key == "i":
            self.shows_internal = not self.shows_internal
        elif key == "p":
            self.is_paused = not self.is_paused
        else:
            self._scroll(key)
        return True

    def frame(self, measured: Measured | None, status: Status, size: Size) -> list[Line]:
        """Return the lines of the screen, none longer than it is wide."""
        head = [self._title(measured, status), self._tabs()]
        if status.trouble:
            head.append(Line(status.trouble, Style.BAD))
        room = max(0, size.lines - len(head) - 1)
        body = [Line("Waiting for the first figures …")]
        if measured is not None:
            body = self._body(measured, size.columns, room)
        body = [*body[:room], *[Line("")] * (room - len(body))]
        lines = [*head, *body, Line(HELP, Style.FAINT)][: size.lines]
        return [Line(fitted(line.text, size.columns), line.style) for line in lines]

    def _show(self, view: str) -> None:
        self.view, self.first = view, 0

    def _sort(self, key: str) -> None:
        view = _view(self.view)
        if view is None:
            return
        sorting = self.sortings[view.name]
        if key == "r":
            sorting.is_ascending = not sorting.is_ascending
            return
        columns = [one.name for one in view.columns]
        step = 1 if key in (">", "right") else -1
        chosen = view.columns[(columns.index(sorting.column) + step) % len(columns)]
        # Names from A on, figures from the largest on.
        self.sortings[view.name] = Sorting(chosen.name, is_ascending=chosen.unit == "text")

    def _scroll(self, key: str) -> None:
        steps = {"down": 1, "up": -1, "page-down": 10, "page-up": -10}
        self.first = 0 if key == "home" else max(0, self.first + steps.get(key, 0))

    def _title(self, measured: Measured | None, status: Status) -> Line:
        parts = ["goqueue top"]
        if measured is not None:
            last = measured.last
            parts.append(f"cluster {last.cluster_id or '-'}")
            parts.append(f"{len(last.scrapes)} of {len(last.scrapes) + len(last.failures)} nodes")
        parts += [f"every {status.interval_seconds:g} s", status.clock]
        if self.is_paused:
            parts.append("PAUSED")
        return Line("  ".join(part for part in parts if part), Style.HEAD)

    def _tabs(self) -> Line:
        tabs = [
            f"[{number} {name}]" if name == self.view else f" {number} {name} "
            for number, name in enumerate(NAMES, 1)
        ]
        return Line("".join(tabs))

    def _body(self, measured: Measured, width: int, room: int) -> list[Line]:
        view = _view(self.view)
        if view is None:
            figures = _overview(measured, width)
            return figures + self._busiest(measured, width, room - len(figures))
        rows = self.rows_of(view, measured)
        if not rows:
            return [Line(f"There are no {view.name}.")]
        sorting = self.sortings[view.name]
        self.first = min(self.first, max(0, len(rows) - max(1, room - 1)))
        shown = rows[self.first : self.first + max(0, room - 1)]
        return table(view, shown, sorting, width)

    def _busiest(self, measured: Measured, width: int, room: int) -> list[Line]:
        """The first rows of other views, as many as there is room for."""
        lines: list[Line] = []
        for view in (TOPICS, GROUPS, QUEUES):
            left = room - len(lines) - 2  # an empty line and the heading
            if rows := self.rows_of(view, measured)[: max(0, min(BUSIEST_MAX, left))]:
                lines += [Line(""), *table(view, rows, self.sortings[view.name], width)]
        return lines

    def rows_of(self, view: View, measured: Measured) -> list[Row]:
        """The rows of a view in the chosen order; internal topics only if they are wanted."""
        rows = view.rows(measured)
        if not self.shows_internal:
            rows = [row for row in rows if not _is_internal(row)]
        sorting = self.sortings[view.name]
        rows.sort(key=lambda row: [str(row[one.name]) for one in view.names])
        rows.sort(key=lambda row: _rank(row, sorting), reverse=not sorting.is_ascending)
        return rows


def table(view: View, rows: Sequence[Row], sorting: Sorting, width: int) -> list[Line]:
    """The heading and the rows, in columns that fit into the width."""
    cells = [[written(row[one.name], one.unit) for one in view.columns] for row in rows]
    titles = [_titled(one, sorting) for one in view.columns]
    gap, widths = _widths(view, [titles, *cells], width)
    lines = [Line(_joined(view, titles, widths, gap), Style.HEAD)]
    for row, one in zip(rows, cells, strict=True):
        style = Style.BAD if row.get("state") == "no answer" else Style.PLAIN
        lines.append(Line(_joined(view, one, widths, gap), style))
    return lines


def fitted(text: str, width: int) -> str:
    """A text in at most `width` cells of a terminal, some of whose characters take two."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)) + "…" if width > 0 else ""


def _view(name: str) -> View | None:
    return next((one for one in VIEWS if one.name == name), None)


def _is_internal(row: Row) -> bool:
    return str(row.get("topic", "")).startswith(INTERNAL_PREFIX)


def _rank(row: Row, sorting: Sorting) -> tuple[float, str]:
    value = row[sorting.column]
    if isinstance(value, str):
        return (float(value), "") if value.isdecimal() else (0.0, value)
    return (value if isinstance(value, int | float) else _MISSING), ""


def _titled(column: Column, sorting: Sorting) -> str:
    if column.name != sorting.column:
        return column.title
    return column.title + ("↑" if sorting.is_ascending else "↓")


def _widths(view: View, cells: Sequence[Sequence[str]], width: int) -> tuple[int, Sequence[int]]:
    """The gap and the width of each column that has room; names share what figures leave."""
    from rich.cells import cell_len

    wanted = [max(cell_len(row[index]) for row in cells) for index in range(len(view.columns))]
    for gap in GAPS:
        if sum(wanted) + gap * (len(wanted) - 1) <= width:
            return gap, wanted
    count = len(view.names)
    used = sum(min(one, NAME_WIDTH_MIN) for one in wanted[:count]) + gap * (count - 1)
    figures: list[int] = []
    for one in wanted[count:]:
        used += gap + one
        if used > width:
            break
        figures.append(one)
    room = width - sum(figures) - gap * (len(figures) + count - 1)
    return gap, [*_shared(wanted[:count], max(room, count)), *figures]


def _shared(wanted: list[int], room: int) -> list[int]:
    """Divide the room among names: what one does not need is left to the others."""
    given = [0] * len(wanted)
    for position in sorted(range(len(wanted)), key=wanted.__getitem__):
        left = sum(1 for one in given if one == 0)
        given[position] = max(1, min(wanted[position], (room - sum(given)) // left))
    return given


def _joined(view: View, cells: Sequence[str], widths: Sequence[int], gap: int) -> str:
    from rich.cells import cell_len

    parts = []
    for column, cell, width in zip(view.columns, cells, widths, strict=False):
        text = fitted(cell, width)
        space = " " * (width - cell_len(text))
        parts.append(text + space if column.unit == "text" else space + text)
    return (" " * gap).join(parts).rstrip()


def _overview(measured: Measured, width: int) -> list[Line]:
    """All figures of the cluster, in two columns if there is room."""
    row = overview_of(measured)
    cells = [f"{one.title:<18}{written(row[one.name], one.unit):>10}" for one in OVERVIEW]
    bad = [one.name in _BAD and bool(row[one.name]) for one in OVERVIEW]
    if width < 2 * len(cells[0]) + 4:
        return [
            Line(cell, Style.BAD if is_bad else Style.PLAIN)
            for cell, is_bad in zip(cells, bad, strict=True)
        ]
    half = (len(cells) + 1) // 2
    lines = []
    for index in range(half):
        pair = cells[index::half]
        is_bad = any(bad[index::half])
        lines.append(Line("    ".join(pair), Style.BAD if is_bad else Style.PLAIN))
    return lines
