"""Runs of the boto3 load generator: a queue is filled, then received from and deleted."""

from __future__ import annotations

import itertools
import sys

from bench.load import RUN_SECONDS_MAX, complaint, run
from bench.processes import cpu_seconds
from bench.report import Outcome

_numbers = itertools.count(1)


def send_and_consume(
    endpoint: str, pid: int, *, connections: int, count: int, size: int, is_once: bool = True
) -> Outcome:
    """Both halves of the way through a new queue.

    Each message must come, and with `is_once` only once; SQS itself promises no more than the first.
    """
    common = [
        *("--endpoint", endpoint, "--queue", f"bench-{next(_numbers)}"),
        *("--count", str(count), "--size", str(size), "--connections", str(connections)),
        *("--seconds-max", str(RUN_SECONDS_MAX)),
    ]
    values: dict[str, float] = {}
    for mode in ("send", "consume"):
        before = cpu_seconds(pid)
        result = run([sys.executable, "-m", "bench.clients.sqs_bench", mode, *common])
        broker_cpu = cpu_seconds(pid) - before
        values |= {
            f"{mode}_per_s": result["messages_per_s"],
            f"{mode}_p50_ms": result["p50_ms"],
            f"{mode}_p99_ms": result["p99_ms"],
            f"{mode}_broker_cpu_us": broker_cpu * 1e6 / max(result["acked"], 1),
            f"{mode}_client_cpu_us": result["cpu_seconds"] * 1e6 / max(result["acked"], 1),
        }
        if complaint(result):
            return Outcome(values, f"{mode}: {complaint(result)}")
        if is_once and result["twice"]:
            return Outcome(values, f"{mode}: {result['twice']:,} messages came twice")
    return Outcome(values)
