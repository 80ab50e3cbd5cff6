"""`python -m bench.turns CHECKOUT`: measures another checkout and this one in turns.

On a shared machine a figure of one run says little. So both run each row one after the other, as
often as there are rounds, and the ratio of each round is taken: a slow minute slows both. Processor
time of the server per message is shown too, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import results
from bench.processes import REPOSITORY
from bench.report import is_speed
from bench.tables import markdown_table

Figures = dict[tuple[str, str], float]  # by the name of a line, and what it tells


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each figure that both have."""
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description=__doc__)
    parser.add_argument("checkout", type=Path, help="set up by `make setup-test` there")
    parser.add_argument("--rows", default="single,produce,queues", help="as of `python -m bench`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    options = parser.parse_args(arguments)
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for round_ in range(options.rounds):
        # Whoever goes first finds the machine as the last round has left it.
        order = (options.checkout, REPOSITORY)
        measured = {
            place: measure(place, options.rows, is_quick=options.quick)
            for place in (order if round_ % 2 == 0 else order[::-1])
        }
        before, after = (measured[place] for place in order)
        for key in before.keys() & after.keys():
            if before[key] > 0:
                ratios[key].append(after[key] / before[key])
        print(f"round {round_ + 1} of {options.rounds} is done", file=sys.stderr)
    print("\n".join(table(ratios)))
    return 0


def measure(checkout: Path, rows: str, *, is_quick: bool) -> Figures:
    """The figures of one round of rows in a checkout, by its own virtual environment."""
    with TemporaryDirectory() as folder:
        command = [checkout / ".venv/bin/python", "-m", "bench", "--rows", rows, "--repeat", "1"]
        extra = ["--quick"] if is_quick else []
        subprocess.run(
            [*command, *extra, "--out", folder],
            cwd=checkout,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        [path] = Path(folder).glob("*.json")
        return figures(results.read(path).sections)


def figures(sections: Sequence[Any]) -> Figures:
    """What GoQueue did in each line: speeds as time per message, so that less is better."""
    found: Figures = {}
    for section in sections:
        for line in section["lines"]:
            if "GoQueue" not in line["system"] or line["void"] or not line["median"]:
                continue
            median = line["median"]
            found[line["row"], "time"] = 1 / median if is_speed(line["unit"]) else median
            if line["server_us"]:
                found[line["row"], "server CPU"] = line["server_us"]
    return found


def table(ratios: dict[tuple[str, str], list[float]]) -> list[str]:
    """Medians of the rounds' ratios; above 1 this checkout needs more."""
    lines = [
        (name, what, f"{statistics.median(all_of):.3f}", f"{min(all_of):.2f} to {max(all_of):.2f}")
        for (name, what), all_of in sorted(ratios.items())
    ]
    return markdown_table(("line", "what", "this / other", "rounds"), lines)


if __name__ == "__main__":
    sys.exit(main())
