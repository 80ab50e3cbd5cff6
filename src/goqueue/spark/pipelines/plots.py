"""Plots as SVG text, for a page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape

WIDTH, HEIGHT = 760, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 40
COLOURS = ("#2563eb", "#db2777", "#059669", "#d97706", "#7c3aed", "#0891b2", "#dc2626", "#4b5563")
POINTS_MAX = 600  # of one line; more would not be seen


def bars(values: Sequence[tuple[str, float]], *, what: str) -> str:
    """One bar for each name, as tall as its value."""
    if not values:
        return empty()
    top = max(value for _, value in values) or 1
    wide = (WIDTH - _LEFT - _RIGHT) / len(values)
    every = max(1, len(values) * 70 // (WIDTH - _LEFT - _RIGHT) + 1)
    parts = [_axis(0, top)]
    for number, (name, value) in enumerate(values):
        x, tall = _LEFT + number * wide, (HEIGHT - _TOP - _BOTTOM) * value / top
        parts.append(
            f'<rect x="{x + wide * 0.1:.1f}" y="{HEIGHT - _BOTTOM - tall:.1f}" '
            f'width="{max(wide * 0.8, 0.5):.1f}" height="{tall:.1f}" fill="{COLOURS[0]}">'
            f"<title>{escape(name)}: {value:,.0f} {escape(what)}</title></rect>"
        )
        if number % every == 0:
            parts.append(_label(x + wide / 2, HEIGHT - _BOTTOM + 16, name, "middle"))
    return _picture(parts, what)


def lines(series: Mapping[str, Sequence[tuple[int, float]]], *, what: str) -> str:
    """A line for each name, of values over time in milliseconds since 1970."""
    points = [point for some in series.values() for point in some]
    if not points:
        return empty()
    low, high = min(time for time, _ in points), max(time for time, _ in points)
    top = max(value for _, value in points) or 1
    parts = [_axis(0, top)]
    for share, anchor in ((0.0, "start"), (1.0, "end")):
        moment = round(low + (high - low) * share)
        x = _LEFT + (WIDTH - _LEFT - _RIGHT) * share
        parts.append(_label(x, HEIGHT - _BOTTOM + 16, show_time(moment), anchor))
    for number, (name, some) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        drawn = " ".join(_point(point, low, high, top) for point in thinned(some))
        parts.append(
            f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.5">'
            f"<title>{escape(name)}</title></polyline>"
        )
        if len(some) == 1:
            at = _point(some[0], low, high, top).split(",")
            parts.append(f'<circle cx="{at[0]}" cy="{at[1]}" r="3" fill="{colour}"/>')
    return _picture(parts, what) + _legend(list(series))


def thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most POINTS_MAX, the largest of each stretch: peaks are what one looks for."""
    size = -(-len(points) // POINTS_MAX)
    if size <= 1:
        return list(points)
    stretches = [points[at : at + size] for at in range(0, len(points), size)]
    return [max(some, key=lambda point: point[1]) for some in stretches]


def empty() -> str:
    return '<p class="none">Nothing to show yet.</p>'


def show_time(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may write any number
        return f"{time_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def show_count(value: float) -> str:
    """A number of at most four digits with its thousands as a letter."""
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def _point(point: tuple[int, float], low: int, high: int, top: float) -> str:
    time, value = point
    x = _LEFT + (WIDTH - _LEFT - _RIGHT) * (time - low) / max(high - low, 1)
    y = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top
    return f"{x:.1f},{y:.1f}"


def _axis(low: float, high: float) -> str:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * share
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        )
        parts.append(_label(_LEFT - 6, y + 4, show_count(low + (high - low) * share), "end"))
    return "".join(parts)


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
