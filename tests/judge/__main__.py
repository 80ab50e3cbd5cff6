"""Compares GoQueue with Apache Kafka: `make judge-kafka`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.peers.kafka import Kafka
from tests.integration.process import Broker
from tests.judge.asking import Asking
from tests.judge.every_case import CASES, DIFFERENCES
from tests.judge.recorded import ANSWERS


def judge(bootstrap: str) -> dict[str, Any]:
    """What a broker answers in every case, as JSON has it."""
    found = {}
    for name, case in CASES.items():
        with Asking(bootstrap) as ask:
            found[name] = json.loads(json.dumps(case(ask)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="judge", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write Kafka's answers down")
    parser.add_argument("--kafka", help="a Kafka that runs already, fresh, instead of a new one")
    arguments = parser.parse_args()
    if arguments.kafka:
        kafka = judge(arguments.kafka)
    else:
        with Kafka() as node:
            kafka = judge(node.bootstrap)
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder), {})
        broker.start()
        try:
            ours = judge(broker.bootstrap)
        finally:
            broker.close()
    if arguments.record:
        ANSWERS.write_text(json.dumps(kafka, indent=1, sort_keys=True) + "\n")
    differing = [name for name in CASES if ours[name] != _expected(name, kafka[name])]
    for name in differing:
        sys.stdout.write(f"{name}:\n  Kafka   {kafka[name]}\n  GoQueue {ours[name]}\n")
    sys.stdout.write(
        f"{len(CASES)} cases, {len(DIFFERENCES)} with a stated difference, {len(differing)} fail.\n"
    )
    sys.exit(1 if differing else 0)


def _expected(name: str, kafka: Any) -> Any:
    return json.loads(json.dumps(DIFFERENCES[name][1])) if name in DIFFERENCES else kafka


if __name__ == "__main__":
    main()
