"""Durations as ISO 8601 writes them, as far as they have a fixed length: days to seconds."""

from __future__ import annotations

import re

# At least one part; the time after "T" is not empty.
_TIME = r"T(?=\d)(?:\d{1,9}H)?(?:\d{1,9}M)?(?:\d{1,9}(?:\.\d{1,3})?S)?"
DURATION = rf"P(?=\d|T\d)(?:\d{{1,6}}D)?(?:{_TIME})?"
_PARTS = re.compile(r"(\d+(?:\.\d+)?)([DHMS])")
_UNIT_MS = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1000}


def duration_ms(text: str) -> int:
    """Return the length of a duration that matches `DURATION`."""
    return round(sum(float(count) * _UNIT_MS[unit] for count, unit in _PARTS.findall(text)))
