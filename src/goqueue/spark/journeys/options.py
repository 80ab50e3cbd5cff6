"""Options that select events of journeys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from goqueue.tracing.events import Kind

NAMES = (
    "journeys.from",
    "journeys.groups",
    "journeys.kinds",
    "journeys.topics",
    "journeys.until",
)
# Records of the journal are written after what they tell, as the clock of their writer says. The
# clocks of nodes should not differ by more.
CLOCKS_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class EventSelection:
    """Which events are rows. What is not given selects all."""

    topics: frozenset[str] = frozenset()  # without the prefix of a tenant
    groups: frozenset[str] = frozenset()
    kinds: frozenset[Kind] = frozenset()
    from_ms: int | None = None
    until_ms: int | None = None  # not included

    @property
    def journal_from_ms(self) -> int | None:
        """Since when records of the journal can have selected events."""
        return None if self.from_ms is None else max(0, self.from_ms - CLOCKS_MS_MAX)


ALL_EVENTS = EventSelection()


class Options(Protocol):
    """The part of the option reader that is needed here."""

    problems: list[str]

    def text(self, *names: str) -> str | None: ...

    def timestamp_ms(self, name: str) -> int | None: ...


def read_selection(reader: Options) -> EventSelection:
    """Parse the options; errors are added to those of the reader."""
    kinds = set()
    for name in _names(reader, "journeys.kinds"):
        kind = Kind.__members__.get(name.upper())
        if kind is None:
            reader.problems.append(
                f"journeys.kinds has {name!r}; give some of {', '.join(map(kind_name, Kind))}."
            )
        else:
            kinds.add(kind)
    return EventSelection(
        frozenset(_names(reader, "journeys.topics")),
        frozenset(_names(reader, "journeys.groups")),
        frozenset(kinds),
        reader.timestamp_ms("journeys.from"),
        reader.timestamp_ms("journeys.until"),
    )


def is_given(reader: Options) -> bool:
    """Whether any of these options is given."""
    return reader.text(*NAMES) is not None


def kind_name(kind: Kind) -> str:
    return kind.name.lower()


def _names(reader: Options, option: str) -> list[str]:
    return [name.strip() for name in (reader.text(option) or "").split(",") if name.strip()]
