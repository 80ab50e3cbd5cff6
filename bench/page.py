"""`python -m bench.page RESULT.json...`: writes docs/benchmarks.md and its tables from results.

Several results are joined row by row, and the newest that has a row counts, but a quick one only
where there is no other. Nothing on the page is
typed by hand except how to read it, so it cannot say more than was measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import plots, results
from bench.comparisons import Comparison, behind, comparisons, verdicts
from bench.processes import REPOSITORY
from bench.report import unit_of
from bench.results import Result, slug
from bench.summary import write_summary
from bench.tables import HEADINGS, USAGE_HEADINGS, markdown_table, section_cells, usage_cells

PAGE = REPOSITORY / "docs" / "benchmarks.md"
TABLES = "tables.md"  # beside the pictures
GUIDE = REPOSITORY / "bench" / "README.md"
ORDER = (
    *("limits", "produce", "durable", "consume", "catchup", "single", "connections", "pipelined"),
    *("publish", "endtoend", "http", "receive", "queues", "shares", "grpc"),
    *("sqs", "schedules", "schemas", "spark"),
    *("cluster", "growth", "memory", "startup"),
)
HOW_TO_READ = (
    "A *figure* is the median of the rounds, *spread* the lowest and highest. GoQueue and what it "
    "is compared with take turns, and the *ratio* is the median of the rounds' ratios: a slow "
    "minute slows both. For a speed a ratio above 1 is good for GoQueue, for a time or an amount "
    "one below 1. Every answer is checked and every message counted; a run that fails this is VOID."
)
NOT_ALIKE = (
    "Promises differ. `GoQueue, fsync every` has a message on disk before it answers, and so have "
    "RabbitMQ's quorum queue, NATS with `sync always` and Redis with `AOF always`. `GoQueue, fsync "
    "none`, Apache Kafka, NATS as delivered, Redis with `AOF everysec` and RabbitMQ's stream "
    "answer before that; moto and ElasticMQ keep everything in memory.",
    "Kafka's protocol, which GoQueue speaks, sends messages in batches; a peer that takes one "
    "message at a time is not like for like with that. The rows with one message per request are.",
    "Each system is driven by the best common client for it, and clients differ: a part of every "
    "figure is the client's, and the table of processor time says how large a part.",
    "Client and server share the machine. Where both cores are busy, a client that needs less "
    "leaves more to its server.",
    "JVMs are warmed up before they are measured, except where starting is what is measured.",
)


@dataclass(frozen=True, slots=True)
class Part:
    """A section, and the run that it comes from."""

    section: Mapping[str, Any]
    result: Result


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page and its pictures."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="JSON files of bench/results")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; pictures go beside it")
    options = parser.parse_args(arguments)
    parts = join([results.read(path) for path in options.results])
    folder = options.out.with_suffix("")
    pictures = _draw(parts, folder)
    folder.mkdir(exist_ok=True)
    tables = folder / TABLES
    tables.write_text(write(parts, pictures, GUIDE.read_text()))
    sections = [part.section for part in parts]
    measured = f"{_newest(parts).date} UTC"
    summary = write_summary(sections, tables=f"{folder.name}/{TABLES}", measured=measured)
    options.out.write_text(summary)
    print(f"written: {os.path.relpath(options.out)} and {os.path.relpath(tables)}")
    return 0


def join(found: Iterable[Result]) -> list[Part]:
    """All sections of each row from the newest result that has it, in the order of the rows.

    A quick run counts only for rows that no other has.
    """
    newest: dict[str, list[Part]] = {}
    for result in sorted(found, key=lambda each: (not each.is_quick, each.name)):
        rows: dict[str, list[Part]] = {}
        for section in result.sections:
            rows.setdefault(section["row"], []).append(Part(section, result))
        newest |= rows
    known = [row for row in ORDER if row in newest]
    others = [row for row in newest if row not in ORDER]
    return [part for row in (*known, *others) for part in newest[row]]


def write(parts: Sequence[Part], pictures: Mapping[str, Sequence[str]], guide: str) -> str:
    """The text of the page; `pictures` by the title of the section that they show."""
    lines = [
        "# All rows of the benchmarks",
        "",
        "Written by `python -m bench.page` from [results](../../bench/results); do not edit. "
        "[bench/README.md](../../bench/README.md) says how each row is measured and how to repeat "
        "it. [profiles.md](../profiles.md) says why a target is missed or a peer is ahead.",
        "",
        HOW_TO_READ,
        "",
        *_machine(parts),
        *_peers(parts, guide),
        *_targets(parts),
        *_standing(parts),
        *_not_alike(parts),
        "## All rows",
        "",
    ]
    for part in parts:
        lines += _section(part, pictures.get(part.section["title"], ()))
    return "\n".join(lines).rstrip() + "\n"


def _machine(parts: Sequence[Part]) -> list[str]:
    facts = _newest(parts).facts
    names = ("processor", "cores", "memory_gb", "kernel", "filesystem", "python")
    lines = ["## The machine and the runs", ""]
    rows = [(name.replace("_", " "), str(facts.get(name, "unknown"))) for name in names]
    versions = _merged(parts, "versions")
    rows += [(name.replace("_", " "), version) for name, version in versions.items()]
    rows += [(name, version) for name, version in facts.get("packages", {}).items()]
    lines += [*markdown_table(("fact", "value"), rows), ""]
    runs: dict[str, list[str]] = {}
    for part in parts:
        held = runs.setdefault(part.result.name, [])
        if part.section["row"] not in held:
            held.append(part.section["row"])
    by_name = {part.result.name: part.result for part in parts}
    table = [_run_cells(by_name[name], held) for name, held in sorted(runs.items())]
    headings = ("rows", "when (UTC)", "commit", "rounds", "load average at the start", "remark")
    return [*lines, *markdown_table(headings, table), ""]


def _run_cells(result: Result, rows: Sequence[str]) -> tuple[str, ...]:
    remarks = []
    if result.is_quick:
        remarks.append("quick: shows that it works, not how fast")
    if result.facts.get("local_changes"):
        remarks.append("with changes that were not committed")
    return (
        ", ".join(rows),
        result.date,
        f"`{result.commit}`",
        str(result.facts["settings"].get("repeat", "")),
        str(result.facts.get("load_average_at_start", "")),
        "; ".join(remarks),
    )


def _peers(parts: Sequence[Part], guide: str) -> list[str]:
    lines = ["## Peers and their settings", "", *_guide_table(guide, "| peer |"), ""]
    if settings := _merged(parts, "peer_settings"):
        lines += [
            *markdown_table(("as measured", "settings and promise"), list(settings.items())),
            "",
        ]
    return lines


def _guide_table(guide: str, start: str) -> list[str]:
    """The table of the guide that begins with this heading."""
    lines = guide.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith(start)), len(lines))
    table = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        table.append(line)
    return table


def _targets(parts: Sequence[Part]) -> list[str]:
    found = verdicts(part.section for part in parts)
    count = {kind: len(lines) for kind, lines in found.items()}
    lines = [
        "## Targets",
        "",
        f"Of {count['met'] + count['missed']} bounds that must hold, {count['met']} are met; of "
        f"{count['aim met'] + count['aim missed']} aims, {count['aim met']}. "
        f"{count['not measured or void']} could not be judged.",
        "",
    ]
    open_lines = [*found["missed"], *found["aim missed"], *found["not measured or void"]]
    headings = ("row", "figure", "against", "ratio", "target", "verdict")
    table = [_chosen_cells(title, line, headings) for title, line in open_lines]
    return [*lines, *markdown_table(headings, table), ""] if table else lines


def _chosen_cells(title: str, line: Mapping[str, Any], headings: Sequence[str]) -> list[str]:
    cells = dict(zip(HEADINGS, section_cells(line), strict=True))
    cells["row"] = f"[{cells['row']}](#{slug(title)})"
    return [cells[heading] for heading in headings]


def _standing(parts: Sequence[Part]) -> list[str]:
    found = [one for part in parts for one in comparisons(part.section)]
    last = behind(found)
    count = {kind: sum(one.standing == kind for one in found) for kind in ("ahead", "level")}
    lines = [
        "## Where a peer is ahead",
        "",
        f"Of {len(found)} comparisons GoQueue is ahead in {count['ahead']}, level within 5 % in "
        f"{count['level']}, and behind in {len(last)}" + (", the farthest first:" if last else "."),
        "",
    ]
    headings = ("what", "system", "figure", "peer", "its figure", "peer is ahead by", "remark")
    return [*lines, *markdown_table(headings, [_behind_cells(one) for one in last]), ""]


def _behind_cells(one: Comparison) -> tuple[str, ...]:
    unit = unit_of(one.unit)
    ahead = f"{1 / one.lead:.2f} ×" if one.lead else "more than can be said"
    what = f"[{one.row}](#{slug(one.section)})"
    ours, theirs = unit.write(one.ours), unit.write(one.theirs)
    return (what, one.system, ours, one.peer, theirs, ahead, one.remark)


def _not_alike(parts: Sequence[Part]) -> list[str]:
    told = [note for part in parts for note in part.section["notes"] if "like for like" in note]
    notes = dict.fromkeys((*NOT_ALIKE, *told))
    return ["## What is not like for like", "", *(f"- {note}" for note in notes), ""]


def _section(part: Part, pictures: Sequence[str]) -> list[str]:
    section, result = part.section, part.result
    lines = [
        f'<a id="{slug(section["title"])}"></a>',
        "",
        f"### {section['title']}",
        "",
        f"Row `{section['row']}`, measured {result.date} UTC at `{result.commit}`.",
        "",
    ]
    for picture in pictures:
        lines += [f"![{section['title']}]({picture})", ""]
    cells = [section_cells(line) for line in section["lines"]]
    lines += [*markdown_table(HEADINGS, cells), ""]
    if section["notes"]:
        lines += [*(f"- {note}" for note in section["notes"]), ""]
    if section["usage"]:
        table = markdown_table(USAGE_HEADINGS, [usage_cells(one) for one in section["usage"]])
        lines += ["<details><summary>Processor time and memory</summary>", "", *table, ""]
        lines += ["</details>", ""]
    return lines


def _draw(parts: Sequence[Part], folder: Path) -> dict[str, list[str]]:
    """The pictures by title, as the page names them. Those of before are gone first."""
    drawn: dict[str, list[str]] = {}
    try:
        plots.require()
    except plots.PlotsMissing as error:
        print(error, file=sys.stderr)
        return drawn
    shutil.rmtree(folder, ignore_errors=True)
    for part in parts:
        paths = plots.draw(part.section, folder, kinds=("svg",))
        drawn[part.section["title"]] = [path.name for path in paths]
    return drawn


def _newest(parts: Sequence[Part]) -> Result:
    return max((part.result for part in parts), key=lambda result: result.name)


def _merged(parts: Sequence[Part], name: str) -> dict[str, str]:
    """A fact of all runs that have it; the newest counts."""
    merged: dict[str, str] = {}
    for part in sorted(parts, key=lambda each: each.result.name):
        merged |= part.result.facts.get(name, {})
    return merged


if __name__ == "__main__":
    sys.exit(main())
