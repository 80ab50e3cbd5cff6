"""How figures are written: short, with units, and without what a terminal would obey."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.cli.commands.top.views import Unit
from goqueue.cli.output import plain

_THOUSANDS = ("", "k", "M", "G", "T")
_BYTES = (" B", " KiB", " MiB", " GiB", " TiB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
NOTHING = "-"


def written(value: object, unit: Unit) -> str:
    """A value in at most nine characters, unless it is a text."""
    if value is None:
        return NOTHING
    if unit == "text":
        return plain(str(value))
    assert isinstance(value, int | float)
    match unit:
        case "seconds":
            return _duration(value)
        case "share":
            return f"{value:.0%}"
        case "bytes" | "byte_rate":
            return _scaled(value, _BYTES, step=1024, limit=1024)
        case "rate" if 0 < value < 10:
            return f"{value:.1f}" if value >= 0.1 else "<0.1"
    return _scaled(value, _THOUSANDS, step=1000, limit=10_000)


def _scaled(value: float, units: Sequence[str], *, step: int, limit: int) -> str:
    """A number below `limit` as it is, a larger one with one decimal and a unit."""
    if abs(value) < limit:
        return f"{value:.0f}{units[0]}"
    for unit in units[1:-1]:
        value /= step
        if abs(value) < step:
            return f"{value:.1f}{unit}"
    return f"{value / step:.1f}{units[-1]}"


def _duration(seconds: float) -> str:
    if seconds < 0.0005:
        return "0"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _DAY:.0f} d"
