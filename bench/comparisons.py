"""What the results say: who is ahead where, and which targets are met."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts import Bar, panels
from bench.peers.known import SYNCED
from bench.report import is_speed, subject
from bench.results import is_peer

# Closer than this two systems are level: rounds on a shared machine differ by more.
LEVEL = 0.05

# Rows in which a message is acknowledged, by either side; in `durable` all systems have it on disk
# by then.
_WRITING = frozenset(
    {"produce", "single", "connections", "pipelined", "publish", "endtoend", "growth", "queues"}
)

Judged = tuple[str, Mapping[str, Any]]  # the title of its section, and a line with a target


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of GoQueue beside that of a peer."""

    section: str
    row: str
    system: str
    peer: str
    unit: str
    ours: float
    theirs: float
    lead: float  # how many times better GoQueue is; below 1 the peer is ahead
    remark: str = ""

    @property
    def standing(self) -> str:
        """`ahead`, `level` or `behind`, from GoQueue's side."""
        if abs(self.lead - 1) <= LEVEL:
            return "level"
        return "ahead" if self.lead > 1 else "behind"


def comparisons(section: Mapping[str, Any]) -> list[Comparison]:
    """Each pair once: by the ratio of the rounds, and by the medians where rows tell no ratio."""
    found: dict[tuple[str, str, str, str], Comparison] = {}
    compared = set()
    for line in section["lines"]:
        if is_peer(line["against"]) and not is_peer(line["system"]) and line["ratio"]:
            one = _by_ratio(section, line)
            found.setdefault((one.row, one.system, one.peer, one.unit), one)
            compared.add(one.row)
    for panel in panels(section):
        if panel.title in compared:
            continue
        own = [bar for bar in panel.bars if bar.kind == "own" and "GoQueue" in bar.system]
        peers = [bar for bar in panel.bars if bar.kind == "peer"]
        for bar in own:
            for peer in peers:
                one = _by_medians(section["title"], panel.title, panel.unit, bar, peer)
                found[one.row, one.system, one.peer, one.unit] = one
    return list(found.values())


def verdicts(sections: Iterable[Mapping[str, Any]]) -> dict[str, list[Judged]]:
    """The lines with a target by what became of it: met, missed, aim met, aim missed, or other."""
    found: dict[str, list[Judged]] = {
        kind: [] for kind in ("met", "missed", "aim met", "aim missed", "not measured or void")
    }
    for section in sections:
        for line in section["lines"]:
            if line["target"]:
                kind = line["verdict"] or ""
                known = kind if kind in found else "not measured or void"
                found[known].append((section["title"], line))
    return found


def behind(found: Sequence[Comparison]) -> list[Comparison]:
    """Where a peer is ahead, the farthest first."""
    chosen = [one for one in found if one.standing == "behind"]
    return sorted(chosen, key=lambda one: one.lead)


def _by_ratio(section: Mapping[str, Any], line: Mapping[str, Any]) -> Comparison:
    ratio, unit = line["ratio"], line["unit"]
    reference = line["reference"]
    theirs = reference["median"] if reference else line["median"] / ratio
    return Comparison(
        section=section["title"],
        row=subject(line["row"], line["system"]),
        system=line["system"],
        peer=line["against"],
        unit=unit,
        ours=line["median"],
        theirs=theirs,
        lead=ratio if is_speed(unit) else 1 / ratio,
        remark=_remark(section["row"], line["system"], line["against"]),
    )


def _remark(row: str, system: str, peer: str) -> str:
    """Whether the peer promised less for its figure."""
    is_more = row in _WRITING and "fsync every" in system and not peer.startswith(tuple(SYNCED))
    return "the peer does not wait for its disk" if is_more else ""


def _by_medians(section: str, title: str, unit: str, own: Bar, peer: Bar) -> Comparison:
    better, worse = (own, peer) if is_speed(unit) else (peer, own)
    lead = better.median / worse.median if worse.median else 1.0
    return Comparison(section, title, own.system, peer.system, unit, own.median, peer.median, lead)
