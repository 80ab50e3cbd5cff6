"""Results as tables, for a page and for a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import MICROSECONDS, MILLISECONDS, Unit, is_speed, unit_of

HEADINGS = (
    *("row", "figure", "spread", "against", "its figure", "ratio"),
    *("server CPU per message, ours / its", "target", "verdict"),
)
USAGE_HEADINGS = (
    *("case", "system", "server CPU", "per message", "server peak memory"),
    *("client CPU", "per message", "client peak memory"),
)

Line = Mapping[str, Any]


def section_cells(line: Line) -> tuple[str, ...]:
    """One line of the table of a section, under `HEADINGS`."""
    unit = unit_of(line["unit"])
    cells = (
        line["row"],
        unit.write(line["median"]) if line["median"] is not None else "–",
        _spread(line["samples"], unit),
        line["against"] or "",
        _reference(line, unit),
        f"{line['ratio']:.2f}" if line["ratio"] is not None else "",
        _processor_time(line),
        line["target"] or "",
        line["verdict"] or "",
    )
    return _plain(cells)


def usage_cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """One line of the table of processor time and memory, under `USAGE_HEADINGS`."""
    runs = entry["runs"]
    cells = [entry["case"], entry["system"]]
    for side in ("server", "client"):
        seconds = statistics.median(run[f"{side}_cpu_s"] for run in runs)
        each = [run[f"{side}_cpu_s"] * 1e6 / run["messages"] for run in runs if run["messages"]]
        peak = max(run[f"{side}_peak_bytes"] for run in runs)
        cells.append(f"{seconds:.2f} s")
        cells.append(MICROSECONDS.write(statistics.median(each)) if each else "")
        cells.append(f"{peak / 1e6:,.0f} MB" if peak else "")
    return _plain(cells)


def to_markdown(section: Mapping[str, Any], *, level: int = 2) -> str:
    """A section as a Markdown table with its notes, and another of what the runs took."""
    mark = "#" * level
    lines = [f"{mark} {section['title']}", ""]
    lines += markdown_table(HEADINGS, [section_cells(line) for line in section["lines"]])
    if section["notes"]:
        lines += ["", *(f"- {note}" for note in section["notes"])]
    if section["usage"]:
        lines += ["", f"{mark}# Processor time and memory", ""]
        lines += markdown_table(USAGE_HEADINGS, [usage_cells(one) for one in section["usage"]])
    return "\n".join(lines).rstrip() + "\n"


def to_terminal(section: Mapping[str, Any]) -> str:
    """A section in aligned columns."""
    lines = [f"\n{section['title']}"]
    lines += _columns(HEADINGS, [section_cells(line) for line in section["lines"]])
    lines += [f"  ({note})" for note in section["notes"]]
    if section["usage"]:
        lines += ["", *_columns(USAGE_HEADINGS, [usage_cells(one) for one in section["usage"]])]
    return "\n".join(lines)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    table = [headings, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in table]
    return [("  " + "  ".join(cells)).rstrip() for cells in padded]


def _spread(samples: Sequence[float], unit: Unit) -> str:
    if not samples:
        return ""
    if len(samples) == 1:
        return "one run"
    return f"{unit.write(min(samples))} … {unit.write(max(samples))}"


def _reference(line: Line, unit: Unit) -> str:
    reference = line["reference"]
    if reference is not None:
        return unit.write(reference["median"]) if reference["median"] is not None else ""
    # Results of before kept the ratio alone.
    if line["ratio"] and line["median"] is not None:
        return f"≈ {unit.write(line['median'] / line['ratio'])}"
    return ""


def _processor_time(line: Line) -> str:
    """Of server processes; nothing where the figure is itself a cost."""
    mine, reference = line.get("server_us"), line["reference"] or {}
    if mine is None or not (is_speed(line["unit"]) or line["unit"] == MILLISECONDS.name):
        return ""
    text = MICROSECONDS.write(mine)
    theirs = reference.get("server_us")
    return f"{text} / {MICROSECONDS.write(theirs)}" if theirs is not None else text


def _plain(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell.replace("|", "/").replace("\n", " ") for cell in cells)
