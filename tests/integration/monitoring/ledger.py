"""What clients count of their own work, to be compared with the counters of the nodes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from goqueue.client.http import Sample

Labels = frozenset[tuple[str, str]]
Key = tuple[str, Labels]  # the name of a counter, and some of its labels


@dataclass
class Ledger:
    """Counts of clients in many threads, by the counter that must agree with them."""

    counts: Counter[Key] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, count: int = 1, **labels: str) -> None:
        with self._lock:
            self.counts[name, frozenset(labels.items())] += count

    def fail(self, what: str) -> None:
        """Something happened whose effect the client does not know, so that nothing is proved."""
        with self._lock:
            self.failures.append(what)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One counter: what clients counted, and the sum over the nodes."""

    name: str
    labels: Labels
    wanted: int
    found: float

    @property
    def agrees(self) -> bool:
        return self.found == self.wanted

    def __str__(self) -> str:
        labels = ",".join(f'{key}="{value}"' for key, value in sorted(self.labels))
        mark = "=" if self.agrees else "≠"
        return f"{self.wanted:>10} {mark} {self.found:<10.0f} {self.name}{{{labels}}}"


def sums_of(scrapes: Iterable[Iterable[Sample]]) -> Counter[Key]:
    """Every series, summed over the nodes."""
    found: Counter[Key] = Counter()
    for scrape in scrapes:
        for name, labels, value in scrape:
            found[name, frozenset(labels)] += value  # type: ignore[assignment]
    return found


def compared(ledger: Ledger, sums: Mapping[Key, float]) -> list[Comparison]:
    """Each count of the clients beside that of the nodes, summed over all other labels."""
    return [
        Comparison(
            name,
            labels,
            wanted,
            sum(value for (one, has), value in sums.items() if one == name and labels <= has),
        )
        for (name, labels), wanted in sorted(ledger.counts.items(), key=str)
    ]
