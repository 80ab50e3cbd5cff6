"""`python -m bench.interleaved [CHECKOUT]`: two brokers run at once and take turns, a second each.

Where `bench.turns` compares whole rows, minutes apart, this compares chunks of load that follow
one another at once, so that a machine whose speed changes slows both alike. It compares another
checkout with this one, or this one with itself under other settings (`--set`), for questions like
what access rules cost. The figure is the server's processor time per message; the median of the
ratios of all pairs says more than a mean on a shared machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.clients.build import Toolbox
from bench.http_load import receive_and_ack
from bench.load import consume, fill, produce, raw_produce
from bench.plan import PARTITIONS
from bench.processes import REPOSITORY
from bench.report import Outcome
from bench.rows.queues import new_group
from bench.systems import Server, goqueue
from bench.tables import markdown_table
from bench.topics import Topic, end_offsets, fresh_topic

CHUNKS = 20
_Load = Callable[[Toolbox, Server, Topic], Outcome]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each load."""
    parser = argparse.ArgumentParser(prog="python -m bench.interleaved", description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path, default=REPOSITORY)
    parser.add_argument("--loads", default=",".join(LOADS), help="some of these")
    parser.add_argument("--chunks", type=int, default=CHUNKS, help="pairs for each load")
    parser.add_argument("--fsync", default="every", help="every, interval or none")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument(
        "--quota",
        action="append",
        default=[],
        metavar="LIMIT=VALUE",
        help="of every user, on this broker only",
    )
    options = parser.parse_args(arguments)
    tools = Toolbox(REPOSITORY / ".cache" / "bench")
    plain = {"storage.fsync": options.fsync}
    changed = plain | dict(one.split("=", 1) for one in options.set)
    with (
        TemporaryDirectory() as work,
        _started("other", Path(work), options.checkout, plain) as other,
        _started("this", Path(work), REPOSITORY, changed) as this,
    ):
        if options.quota:
            _limit(this, dict(one.split("=", 1) for one in options.quota))
        lines = [
            _compare(name, LOADS[name], tools, (other, this), options.chunks)
            for name in options.loads.split(",")
        ]
    print("\n".join(markdown_table(_COLUMNS, lines)))
    return 0


_COLUMNS = ("load", "other, us", "this, us", "this / other", "pairs from", "to")


def _limit(server: Server, limits: Mapping[str, str]) -> None:
    """Set quotas of every user."""
    values = {name: float(value) for name, value in limits.items()}
    request = urllib.request.Request(
        f"http://{server.http}/v1/quotas",
        json.dumps({"entity": {"user": None}, "limits": values}).encode(),
        {"content-type": "application/json"},
        method="PATCH",
    )
    with urllib.request.urlopen(request):
        pass


@contextlib.contextmanager
def _started(
    name: str, work: Path, checkout: Path, settings: Mapping[str, str]
) -> Iterator[Server]:
    server = goqueue(name, work / name, settings, checkout=checkout)
    server.start()
    try:
        yield server
    finally:
        server.close()


def _compare(
    name: str, load: _Load, tools: Toolbox, servers: tuple[Server, Server], chunks: int
) -> tuple[str, ...]:
    """Run pairs of chunks, each server first in every other pair; the first pair is warm-up."""
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(chunks + 1):
        for index in (0, 1) if number % 2 else (1, 0):
            with fresh_topic(servers[index], PARTITIONS) as topic:
                outcome = load(tools, servers[index], topic)
            if outcome.void:
                raise SystemExit(f"{name}: {outcome.void}")
            if number:
                costs[index].append(outcome.values["broker_cpu_us"])
        print(f"{name}: pair {number} of {chunks}", file=sys.stderr)
    ratios = [this / other for other, this in zip(*costs, strict=True)]
    other_us, this_us = map(statistics.median, costs)
    return (
        name,
        f"{other_us:.2f}",
        f"{this_us:.2f}",
        f"{statistics.median(ratios):.3f}",
        f"{min(ratios):.2f}",
        f"{max(ratios):.2f}",
    )


def _single(
    tools: Toolbox, server: Server, topic: Topic, *, connections: int, count: int
) -> Outcome:
    return raw_produce(tools, server, topic, connections=connections, depth=1, count=count)


def _batches(tools: Toolbox, server: Server, topic: Topic, *, size: int, count: int) -> Outcome:
    return produce(tools, "C", server, topic, count=count, size=size)


def _reading(tools: Toolbox, server: Server, topic: Topic, *, size: int, count: int) -> Outcome:
    filled = fill(tools, server, topic, count=count, size=size, held=0)
    if filled.void:
        return filled
    return consume(tools, "C", server, topic, count=sum(end_offsets(server, topic)), size=size)


def _queue(tools: Toolbox, server: Server, topic: Topic, *, consumers: int, count: int) -> Outcome:
    filled = fill(tools, server, topic, count=count, size=100, held=0)
    if filled.void:
        return filled
    stored = sum(end_offsets(server, topic))
    return receive_and_ack(
        tools, server, topic, new_group(server), consumers=consumers, at_once=100, count=stored
    )


LOADS: Mapping[str, _Load] = {
    "single-1": partial(_single, connections=1, count=2_000),
    "single-16": partial(_single, connections=16, count=6_000),
    "single-100": partial(_single, connections=100, count=8_000),
    "produce-1k": partial(_batches, size=1_000, count=200_000),
    "produce-100": partial(_batches, size=100, count=500_000),
    "consume-1k": partial(_reading, size=1_000, count=200_000),
    "queue-1": partial(_queue, consumers=1, count=40_000),
    "queue-8": partial(_queue, consumers=8, count=80_000),
}


if __name__ == "__main__":
    sys.exit(main())
