"""The short page of benchmarks: the rows that matter most, and where to find all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.comparisons import behind, comparisons, verdicts
from bench.report import unit_of
from bench.results import slug
from bench.tables import HEADINGS, markdown_table, section_cells

BEHIND_MAX = 8  # of the comparisons in which a peer is ahead


class Wanted(NamedTuple):
    """A line of the results, by its name and by what it is compared with."""

    row: str
    against: str = ""


_SYNCED, _UNSYNCED = "GoQueue, fsync every", "GoQueue, fsync none"
WANTED = (
    Wanted(f"produce 1 KB, C client, {_SYNCED}", "Apache Kafka"),
    Wanted(f"produce 1 KB, C client, {_UNSYNCED}", "Apache Kafka"),
    Wanted(f"produce 100 B, C client, {_SYNCED}", "Apache Kafka"),
    Wanted("64 producers, one batch of 16 × 1 KB outstanding each, fsync", "Apache Kafka"),
    Wanted("consume 1 KB from disk, C client", "Apache Kafka, C, disk"),
    Wanted("consume 1 KB behind a running producer, C client", "Apache Kafka"),
    Wanted(f"one outstanding per connection, {_SYNCED}", "Apache Kafka"),
    Wanted(f"one outstanding per connection, {_UNSYNCED}", "Apache Kafka"),
    Wanted(f"8 outstanding per connection, {_SYNCED}", "Apache Kafka"),
    Wanted(f"100 B in batches of 100, 8 consumers, {_SYNCED}", "RabbitMQ quorum queue"),
    Wanted(f"1 KB in batches of 100, 8 consumers, {_SYNCED}", "RabbitMQ quorum queue"),
    Wanted("1 KB, all columns, discarded", "from Parquet"),
    Wanted("1 KB, archived", "write"),
    Wanted("micro-batch of one record, 1 partition, median"),
    Wanted("produce 1 KB, acks=all, C client, three GoQueue nodes", "three Apache Kafka brokers"),
    Wanted("leader killed 20 times, three GoQueue nodes: p50 gap"),
    Wanted("leader killed 20 times, three GoQueue nodes: worst gap"),
    Wanted("idle, GoQueue", "Apache Kafka"),
    Wanted("empty, GoQueue", "Apache Kafka"),
    Wanted("10 GB in 1,000 partitions, after kill -9, GoQueue", "Apache Kafka"),
)


def write_summary(sections: Sequence[Mapping[str, Any]], *, tables: str, measured: str) -> str:
    """The text of the page; `tables` is the page with all rows, beside this one."""
    lines = [
        "# Benchmarks",
        "",
        f"Medians of three rounds, measured {measured} with GoQueue, its peers and the load "
        "generator on the same machine with 2 cores. Systems take turns, and a *ratio* is the "
        "median of the rounds' ratios: for a speed above 1 is good for GoQueue, for a time or an "
        "amount below 1. This page is written by `python -m bench.page`; do not edit.",
        "",
        *_rows(sections, tables),
        *_verdicts(sections, tables),
        *_behind(sections, tables),
        "## More",
        "",
        f"- [All rows]({tables}), with spreads, processor time, settings of the peers, and what "
        "is not like for like",
        "- [Profiles](profiles.md): why a target is missed or a peer is ahead",
        "- [bench/README.md](../bench/README.md): how each row is measured. `make bench-peers` "
        "measures everything on your machine.",
    ]
    return "\n".join(lines) + "\n"


def _rows(sections: Sequence[Mapping[str, Any]], tables: str) -> list[str]:
    known = {
        (cells["row"], cells["against"]): (section["title"], cells)
        for section in sections
        for cells in _cells(section["lines"])
    }
    table = [
        (f"[{one.row}]({tables}#{slug(title)})", *(cells[name] for name in HEADINGS_SHOWN))
        for one in WANTED
        if (found := known.get(one)) is not None
        for title, cells in (found,)
    ]
    return [*markdown_table(("what", *HEADINGS_SHOWN), table), ""]


HEADINGS_SHOWN = ("figure", "against", "its figure", "ratio")


def _cells(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [dict(zip(HEADINGS, section_cells(line), strict=True)) for line in lines]


def _verdicts(sections: Sequence[Mapping[str, Any]], tables: str) -> list[str]:
    count = {kind: len(lines) for kind, lines in verdicts(sections).items()}
    return [
        f"Of {count['met'] + count['missed']} bounds that must hold, {count['met']} are met "
        f"([those that are missed]({tables}#targets)).",
        "",
    ]


def _behind(sections: Sequence[Mapping[str, Any]], tables: str) -> list[str]:
    found = [one for section in sections for one in comparisons(section)]
    last = behind(found)
    ahead = sum(one.standing == "ahead" for one in found)
    table = [
        (
            f"[{one.row}]({tables}#{slug(one.section)})",
            unit_of(one.unit).write(one.ours),
            one.peer,
            unit_of(one.unit).write(one.theirs),
        )
        for one in last[:BEHIND_MAX]
    ]
    return [
        "## Where a peer is ahead",
        "",
        f"GoQueue is ahead in {ahead} of {len(found)} comparisons and behind in {len(last)}. The "
        f"farthest of those, all in [the tables]({tables}#where-a-peer-is-ahead):",
        "",
        *markdown_table(("what", "GoQueue", "peer", "its figure"), table),
        "",
    ]
