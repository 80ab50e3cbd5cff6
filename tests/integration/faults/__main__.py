"""Run campaigns: `python -m tests.integration.faults --seeds 3 --seconds 120`."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
from pathlib import Path

from .campaign import WORKLOADS, Plan, run
from .machines import why_not


def main() -> int:
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many seeds")
    parser.add_argument("--seconds", type=float, default=120.0, help="of faults for each seed")
    names = [one.name for one in WORKLOADS]
    parser.add_argument("--workload", action="append", choices=names, default=[], dest="workloads")
    parser.add_argument("--fault", action="append", default=[], dest="faults")
    parser.add_argument(
        "--stale-seconds",
        type=float,
        help="excuse an owner that was replaced for so long after a repair; by default never",
    )
    parser.add_argument("--pace", type=float, default=1.0, help="2 makes clients half as busy")
    parser.add_argument("--slack", type=float, default=1.0, help="for a machine that is busy")
    parser.add_argument("--folder", type=Path, default=Path(".cache/campaign"))
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    # Whoever ends a campaign wants its namespaces and mounts gone too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"ended by signal {number}"))
    reason = why_not()
    if reason:
        sys.exit(f"No campaign here: {reason}")
    failed = []
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        folder = chosen.folder / f"{time.strftime('%Y%m%d-%H%M%S')}-seed-{seed}"
        plan = Plan(
            seed=seed,
            seconds=chosen.seconds,
            folder=folder.resolve(),
            workloads=chosen.workloads,
            faults=chosen.faults,
            stale_seconds=chosen.stale_seconds,
            pace=chosen.pace,
            slack=chosen.slack,
        )
        with tempfile.TemporaryDirectory(prefix="goqueue-campaign-") as directory:
            report = run(plan, Path(directory))
        sys.stdout.write(report.text() + "\n")
        sys.stdout.flush()
        if not report.is_clean:
            failed.append(seed)
    if failed:
        sys.stdout.write(f"violations with seeds {failed}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
