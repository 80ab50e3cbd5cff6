"""Tables as HTML text, for a self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

ROWS_MAX = 50  # per table on the page

Cell = str | int | float | None


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def show_duration(duration_ms: int) -> str:
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if duration_ms >= size:
            return f"{duration_ms / size:.3g} {unit}"
    return f"{duration_ms} ms"


def table(names: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> str:
    shown = rows[:ROWS_MAX]
    # A column of numbers is right-aligned, including its name.
    are_numbers = [
        any(isinstance(row[at], int | float) for row in shown) for at in range(len(names))
    ]
    head = "".join(
        f"<th{_alignment(is_number)}>{escape(name)}</th>"
        for name, is_number in zip(names, are_numbers, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, are_numbers))}</tr>" for row in shown)
    more = len(rows) - ROWS_MAX
    note = f'<p class="none">and {more:,} more</p>' if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _alignment(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _cell(value: Cell, is_number: bool) -> str:
    text = f"{value:,}" if isinstance(value, int | float) else value
    return f"<td{_alignment(is_number)}>{escape('-' if text is None else text)}</td>"
