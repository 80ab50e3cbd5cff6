"""`python -m bench`: runs the rows, prints the table, keeps the results."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import machine, plots, results
from bench.clients.build import Toolbox, ToolMissing
from bench.peers import known
from bench.plan import GIB, QUICK, Plan
from bench.processes import REPOSITORY, run_load
from bench.report import Section
from bench.rows import ROWS
from bench.session import KAFKA, Session
from bench.tables import markdown_table, to_markdown, to_terminal

CACHE = REPOSITORY / ".cache" / "bench"
PEERS = ("kafka", *known.ASKED, "moto", "elasticmq")
ALL = "all"
RESULTS = REPOSITORY / "bench" / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report; 1 when a run was void."""
    options = _parse(arguments)
    plan = _plan(options)
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))
    begin = time.monotonic()
    facts = machine.facts(work)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        session = Session(plan, work, Toolbox(CACHE), frozenset(options.peers), stack)
        _say_what_is_missing(session)
        is_whole = _run(session, options.rows)
        facts["versions"] = _versions(session)
        facts["peer_settings"] = session.peer_settings()
    facts["settings"] = dataclasses.asdict(plan) | {"quick": options.quick, "rows": options.rows}
    facts["seconds"] = round(time.monotonic() - begin)
    if session.sections:
        name = _write(options.out, session.sections, facts)
        pictures = f", pictures in {name}/" if Path(name).is_dir() else ""
        print(f"\n{facts['seconds']} s; written to {name}.md and {name}.json{pictures}")
    if not is_whole:
        print("interrupted: the rows above are all there is", file=sys.stderr)
        return 130
    return 1 if _has_void(session.sections) else 0


def _run(session: Session, rows: Sequence[str]) -> bool:
    """Run the rows; False when the user ended it."""
    try:
        for name in rows:
            session.say(f"row: {name}")
            done = len(session.sections)
            ROWS[name](session)
            for section in session.sections[done:]:
                section.row = name
                print(to_terminal(section.to_data()), flush=True)
    except KeyboardInterrupt:
        return False
    return True


def _say_what_is_missing(session: Session) -> None:
    tools = session.tools
    for tool in (tools.rdkafka_bench, tools.raw_bench, tools.sink, tools.http_bench):
        try:
            tool()
        except ToolMissing as error:
            session.say(f"rows that need it will be left out: {error}")


def _versions(session: Session) -> dict[str, str]:
    """What was measured with, and against."""
    versions: dict[str, str] = {}
    with contextlib.suppress(ToolMissing):
        versions |= run_load([str(session.tools.rdkafka_bench()), "version"], seconds_max=10)
    if session.is_running(KAFKA):
        versions["apache_kafka"] = getattr(session.system(KAFKA), "version", "unknown")
    return versions | session.peer_versions()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure one node against its limits and peers."
    )
    parser.add_argument(
        "--rows",
        type=lambda text: text.split(","),
        default=list(ROWS),
        help=f"comma separated, of: {', '.join(ROWS)}",
    )
    parser.add_argument("--quick", action="store_true", help="a look, in under two minutes")
    parser.add_argument("--repeat", type=int, help="rounds per row (3)")
    parser.add_argument(
        "--peers",
        type=lambda text: list(PEERS) if text == ALL else text.split(","),
        default=[],
        help=f"systems to compare with: {', '.join(PEERS)}; or {ALL}",
    )
    parser.add_argument("--start-gb", type=float, help="data for the start-up row (10)")
    parser.add_argument("--start-partitions", type=int, help="partitions for the start-up row")
    parser.add_argument("--growth-max", type=int, help="most messages of the growth row (10^7)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args(arguments)
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if unknown := set(options.peers) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    if options.repeat is not None and options.repeat < 1:
        parser.error("--repeat wants at least 1")
    return options


def _plan(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else Plan()
    changes: dict[str, Any] = {}
    if options.repeat is not None:
        changes["repeat"] = options.repeat
    if options.start_gb is not None:
        changes["start_bytes"] = int(options.start_gb * GIB)
    if options.start_partitions is not None:
        changes["start_partitions"] = options.start_partitions
    if options.growth_max is not None:
        kept = [level for level in plan.growth_levels if level < options.growth_max]
        changes["growth_levels"] = (*kept, options.growth_max)
    return dataclasses.replace(plan, **changes)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _has_void(sections: Sequence[Section]) -> bool:
    verdicts = [line["verdict"] or "" for section in sections for line in section.lines]
    return any(verdict.startswith("VOID") for verdict in verdicts)


def _write(folder: Path, sections: Sequence[Section], facts: dict[str, Any]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    name = f"{stamp}-{facts['commit'][:10]}"
    data = [section.to_data() for section in sections]
    results.write(folder / f"{name}.json", facts, data)
    lines = ["# Benchmark of one node", ""]
    lines += markdown_table(
        ("fact", "value"), [(key, _plain(value)) for key, value in facts.items()]
    )
    tables = "\n".join(to_markdown(section) for section in data)
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n\n" + tables)
    try:
        for section in data:
            plots.draw(section, folder / name)
    except plots.PlotsMissing as error:
        print(error, file=sys.stderr)
    return os.path.relpath(folder / name)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return " ".join(str(part) for part in value)
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
