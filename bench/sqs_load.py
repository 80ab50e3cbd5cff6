"""Runs of the boto3 load generator: a queue is filled, then received from and deleted."""

from __future__ import annotations

import itertools
import sys

from bench.load import RUN_SECONDS_MAX, complaint, run
from bench.processes import cpu_seconds
from bench.report import Outcome

_numbers = itertools.count(1)


def send_and_consume(
    endpoint: str, pid: int | None, *, connections: int, count: int, size: int, queues: int = 1
) -> Outcome:
    """Both halves of the way through a new queue, or through one for each connection.

    Each message must come exactly once. The CPU of a server is told where its process is: that of
    threads which ended meanwhile would be missing.
    """
    common = [
        *("--endpoint", endpoint, "--queue", f"bench-{next(_numbers)}"),
        *("--count", str(count), "--size", str(size), "--connections", str(connections)),
        *("--queues", str(queues), "--seconds-max", str(RUN_SECONDS_MAX)),
    ]
    values: dict[str, float] = {}
    for mode in ("send", "consume"):
        before = cpu_seconds(pid) if pid else 0.0
        result = run([sys.executable, "-m", "bench.clients.sqs_bench", mode, *common])
        acked = max(result["acked"], 1)
        if pid:
            values[f"{mode}_broker_cpu_us"] = (cpu_seconds(pid) - before) * 1e6 / acked
        values |= {
            f"{mode}_per_s": result["messages_per_s"],
            f"{mode}_p50_ms": result["p50_ms"],
            f"{mode}_p99_ms": result["p99_ms"],
            f"{mode}_client_cpu_us": result["cpu_seconds"] * 1e6 / acked,
        }
        if complaint(result):
            return Outcome(values, f"{mode}: {complaint(result)}")
        if result["twice"]:
            return Outcome(values, f"{mode}: {result['twice']:,} messages came twice")
    return Outcome(values)
