"""`python -m bench`: runs the rows, prints the table, keeps the results."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import machine
from bench.clients.build import Toolbox, ToolMissing
from bench.plan import GIB, QUICK, Plan
from bench.processes import REPOSITORY, run_load
from bench.report import Section, to_markdown, to_terminal
from bench.rows import ROWS
from bench.session import KAFKA, Session

CACHE = REPOSITORY / ".cache" / "bench"
PEERS = ("kafka", "rabbitmq", "nats", "moto", "elasticmq")
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
    facts["settings"] = dataclasses.asdict(plan) | {"quick": options.quick, "rows": options.rows}
    facts["seconds"] = round(time.monotonic() - begin)
    if session.sections:
        name = _write(options.out, session.sections, facts)
        print(f"\n{facts['seconds']} s; written to {name}.md and {name}.json")
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
                print(to_terminal(section), flush=True)
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
        type=lambda text: text.split(","),
        default=[],
        help=f"systems to compare with: {', '.join(PEERS)}",
    )
    parser.add_argument("--start-gb", type=float, help="data for the start-up row (10)")
    parser.add_argument("--start-partitions", type=int, help="partitions for the start-up row")
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
    return dataclasses.replace(plan, **changes)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _has_void(sections: Sequence[Section]) -> bool:
    return any(line.verdict.startswith("VOID") for section in sections for line in section.lines)


def _write(folder: Path, sections: Sequence[Section], facts: dict[str, Any]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    name = f"{stamp}-{facts['commit'][:10]}"
    result = facts | {"sections": {section.title: section.data for section in sections}}
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    lines = ["# Benchmark of one node", "", "| fact | value |", "|---|---|"]
    lines += [f"| {key} | {_plain(value)} |" for key, value in facts.items()]
    tables = "\n".join(to_markdown(section) for section in sections)
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n\n" + tables)
    return os.path.relpath(folder / name)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return " ".join(str(part) for part in value)
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
