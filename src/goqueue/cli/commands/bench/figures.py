"""Pure arithmetic of measurements: numbered messages, latencies, rates."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from goqueue.model.errors import GoQueueError

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
HEAD = struct.Struct(">4sQQ")  # magic, number, when it was due, in nanoseconds
BYTES_MIN = HEAD.size
BARS = 12  # of a histogram
BAR_WIDTH = 40
_MAGIC = b"gqb1"


class MessagesWrong(GoQueueError):
    """What arrived is not what was acknowledged."""

    code = "messages_wrong"


def numbered(number: int, due_ns: int, padding: bytes) -> bytes:
    """The value of a message; with the padding it has the size that is measured."""
    return HEAD.pack(_MAGIC, number, due_ns) + padding


def read_numbered(value: bytes | None) -> tuple[int, int] | None:
    """The number of a message and when it was due; None if it is not one of a benchmark."""
    if value is None or len(value) < HEAD.size or value[:4] != _MAGIC:
        return None
    _, number, due_ns = HEAD.unpack_from(value)
    return number, due_ns


@dataclass(slots=True)
class Arrivals:
    """Which of the messages 0 to `count`-1 have arrived."""

    count: int
    missing: set[int] = field(init=False)
    duplicates: int = 0

    def __post_init__(self) -> None:
        self.missing = set(range(self.count))

    def add(self, number: int) -> bool:
        """Note an arrival; False if it is a duplicate."""
        if number not in self.missing:
            self.duplicates += 1
            return False
        self.missing.remove(number)
        return True

    def check(self, *, where: str) -> None:
        """Raise unless everything has arrived."""
        if self.missing:
            first = min(self.missing)
            raise MessagesWrong(
                f"{len(self.missing)} of {self.count} acknowledged messages did not arrive "
                f"{where}, the first of them number {first}."
            )


def due_ns(started_ns: int, number: int, rate: float) -> int:
    """When message `number` is due at `rate` a second, whether or not earlier ones were late.

    Latencies count from then on, so a broker that stops makes all messages late that were due
    meanwhile, and not only the one that it was sent.
    """
    return started_ns + int(number * 1e9 / rate)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def latency_row(name: str, latencies_ms: Iterable[float]) -> dict[str, object]:
    """One row of the table of latencies."""
    ordered = sorted(latencies_ms)
    row: dict[str, object] = {"latency": name, "messages": len(ordered)}
    row["min_ms"] = round(ordered[0], 2)
    for percent in PERCENTILES:
        row[f"p{percent:g}_ms"] = round(percentile(ordered, percent), 2)
    row["max_ms"] = round(ordered[-1], 2)
    return row


def rate_row(name: str, count: int, byte_count: int, seconds: float) -> dict[str, object]:
    """One row of the table of rates."""
    seconds = max(seconds, 1e-9)
    return {
        "step": name,
        "messages": count,
        "seconds": round(seconds, 3),
        "messages_per_s": round(count / seconds),
        "mb_per_s": round(byte_count / seconds / 1e6, 2),
    }


def histogram(latencies_ms: Sequence[float]) -> list[str]:
    """Lines with a bar for each range of latencies; the ranges grow by a constant factor."""
    low, high = max(min(latencies_ms), 1e-3), max(*latencies_ms, 2e-3)
    factor = (high / low) ** (1 / BARS) if high > low else 2.0
    counts = [0] * BARS
    for one in latencies_ms:
        index = int(math.log(max(one, low) / low, factor) + 1e-9)
        counts[min(index, BARS - 1)] += 1
    lines = []
    for index, count in enumerate(counts):
        bar = "█" * math.ceil(BAR_WIDTH * count / max(counts))
        lines.append(f"≤ {low * factor ** (index + 1):10.2f} ms  {count:8d}  {bar}".rstrip())
    return lines
