"""Plots as SVG text, for a self-contained page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape

WIDTH, HEIGHT = 760, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 26
_WIDE, _TALL = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
COLOURS = ("#2563eb", "#db2777", "#059669", "#d97706", "#7c3aed", "#0891b2", "#dc2626", "#6b7280")
POINTS_MAX = 600  # per line; more would not be visible
DOTS_MAX = 40  # per line; more would hide it
_BARS_MIN = 10  # width is divided among at least this many, so that a single bar is not too wide
_STEPS_MAX = 5  # of the scale
_LETTER_WIDE = 6.0


def bars(values: Sequence[tuple[str, float]], *, what: str) -> str:
    """Plot one bar for each name, with its value as the height."""
    if not values:
        return empty()
    marks = scale(max(value for _, value in values))
    wide = _WIDE / max(len(values), _BARS_MIN)
    longest = max(len(name) for name, _ in values) * _LETTER_WIDE
    every = math.ceil((longest + 3) / wide)
    parts = [_axis(marks)]
    for number, (name, value) in enumerate(values):
        x, tall = _LEFT + number * wide, _TALL * value / marks[-1]
        parts.append(
            f'<rect x="{x + wide * 0.12:.1f}" y="{_TOP + _TALL - tall:.1f}" rx="2" '
            f'width="{max(wide * 0.76, 0.5):.1f}" height="{tall:.1f}" fill="{COLOURS[0]}">'
            f"<title>{escape(name)}: {value:,.0f} {escape(what)}</title></rect>"
        )
        if number % every == 0 and x + wide / 2 + longest / 2 <= WIDTH:
            parts.append(_label(x + wide / 2, HEIGHT - 8, name, "middle"))
    return _picture(parts, what)


def lines(series: Mapping[str, Sequence[tuple[int, float]]], *, what: str) -> str:
    """Plot a line for each name, of values over time in milliseconds since 1970."""
    points = [point for some in series.values() for point in some]
    if not points:
        return empty()
    low, high = min(time for time, _ in points), max(time for time, _ in points)
    marks = scale(max(value for _, value in points))
    parts = [_axis(marks), *_moments(low, high)]
    for number, (name, some) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        drawn = [_place(point, low, high, marks[-1]) for point in thinned(some)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-linejoin="round"><title>{escape(name)}</title></polyline>'
        )
        if len(some) <= DOTS_MAX:
            for (x, y), (time, value) in zip(drawn, some, strict=True):
                said = f"{name}, {show_time(time)}: {value:,.0f} {what}"
                parts.append(
                    f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">'
                    f"<title>{escape(said)}</title></circle>"
                )
    return _picture(parts, what) + _legend(list(series))


def thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Reduce to POINTS_MAX points, keeping the largest of each interval: peaks matter most."""
    size = -(-len(points) // POINTS_MAX)
    if size <= 1:
        return list(points)
    stretches = [points[at : at + size] for at in range(0, len(points), size)]
    return [max(some, key=lambda point: point[1]) for some in stretches]


def scale(top: float) -> list[float]:
    """Return round numbers from zero to at least `top`; steps are integers, as for counts."""
    size = 1.0
    while True:
        for digit in (1, 2, 5):
            step = size * digit
            if step * _STEPS_MAX >= top:
                return [step * number for number in range(max(math.ceil(top / step), 1) + 1)]
        size *= 10


def empty() -> str:
    return '<p class="none">Nothing to show yet.</p>'


def show_time(time_ms: int) -> str:
    return _shown(time_ms, "%Y-%m-%d %H:%M:%S")


def show_minute(time_ms: int) -> str:
    """Format a time for a label, where the year is clear and space is limited."""
    return _shown(time_ms, "%m-%d %H:%M")


def show_count(value: float) -> str:
    """Format a number with at most four digits, with a suffix for thousands."""
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def show_size(size_bytes: int) -> str:
    """Format a size in decimal units."""
    for limit, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size_bytes >= limit:
            return f"{size_bytes / limit:.3g} {unit}"
    return f"{size_bytes} B"


def _shown(time_ms: int, form: str) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may write any number
        return f"{time_ms} ms"
    return moment.strftime(form)


def _place(point: tuple[int, float], low: int, high: int, top: float) -> tuple[float, float]:
    time, value = point
    share = (time - low) / (high - low) if high > low else 0.5
    return _LEFT + _WIDE * share, _TOP + _TALL - _TALL * value / top


def _axis(marks: Sequence[float]) -> str:
    parts = []
    for mark in marks:
        y = _TOP + _TALL - _TALL * mark / marks[-1]
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        )
        parts.append(_label(_LEFT - 8, y + 4, show_count(mark), "end"))
    return "".join(parts)


def _moments(low: int, high: int) -> list[str]:
    """Return the first, middle and last time labels below a plot; for one moment, only that."""
    shares = ((0.0, "start"), (0.5, "middle"), (1.0, "end")) if high > low else ((0.5, "middle"),)
    return [
        _label(_LEFT + _WIDE * share, HEIGHT - 8, show_time(round(low + (high - low) * share)), at)
        for share, at in shares
    ]


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(names: Sequence[str]) -> str:
    entries = "".join(
        f'<span><i style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f'<p class="legend">{entries}</p>'


def _picture(parts: Sequence[str], what: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(what)}">'
        f"{''.join(parts)}</svg>"
    )
