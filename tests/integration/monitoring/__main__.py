"""Proves the counters: clients of every kind on three nodes that Prometheus scrapes.

`make prove-metrics` runs it for five minutes: afterwards the sums over the nodes, as Prometheus has
them, must be what the clients counted. No alert may fire meanwhile.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.cluster import Cluster
from tests.integration.rpc.calls import LISTENER
from tests.integration.waiting import eventually

from .clients import prepare, run
from .ledger import Comparison, compared, sums_of
from .prometheus import Prometheus

INTERVAL_SECONDS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="prove-metrics", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long clients work")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="goqueue-metrics-") as directory:
        return prove(Path(directory), chosen.seconds)


def prove(directory: Path, seconds: float) -> int:
    cluster = Cluster(directory / "cluster", settings=LISTENER)
    targets = [node.http.removeprefix("http://") for node in cluster.nodes.values()]
    (directory / "prometheus").mkdir()
    prometheus = Prometheus(directory / "prometheus", targets, interval_seconds=INTERVAL_SECONDS)
    try:
        cluster.start()
        prepare(cluster)
        prometheus.start()
        ledger = run(cluster, seconds)
        _wait_for_scrapes(prometheus, 2 * len(targets))
        sums = sums_of([prometheus.samples("goqueue_.+_(total|count)")])
        comparisons = compared(ledger, sums)
        return _report(prometheus, comparisons, ledger.failures, seconds)
    finally:
        prometheus.close()
        cluster.close()


def _wait_for_scrapes(prometheus: Prometheus, count: int) -> None:
    """Wait until each node was scraped after the clients had ended."""
    before = prometheus.scrapes()
    eventually(lambda: prometheus.scrapes() >= before + count, because="nodes were scraped again")


def _report(
    prometheus: Prometheus, comparisons: list[Comparison], failures: list[str], seconds: float
) -> int:
    rules = prometheus.rules()
    unhealthy = [
        f"{rule['name']}: {rule.get('lastError', rule['health'])}"
        for rule in rules
        if rule["health"] != "ok"
    ]
    firing = [
        f"{rule['name']} {alert['labels']}"
        for rule in rules
        for alert in rule["alerts"]
        if alert["state"] == "firing"
    ]
    print(f"Clients worked for {seconds:.0f} s; {prometheus.scrapes()} scrapes succeeded.")
    print("\n".join(map(str, comparisons)))
    wrong = [one for one in comparisons if not one.agrees]
    for title, found in (
        ("Clients that failed", failures),
        ("Rules that failed", unhealthy),
        ("Alerts that fired", firing),
    ):
        print(f"{title}: {'; '.join(found) or 'none'}")
    is_proved = not (wrong or failures or unhealthy or firing) and bool(comparisons)
    count = sum(one.wanted for one in comparisons)
    print(
        f"{len(comparisons)} sums of {count} events "
        + ("agree exactly." if is_proved else f"were compared; {len(wrong)} differ.")
    )
    return 0 if is_proved else 1


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print(f"{time.monotonic() - started:.0f} s in all.")
    sys.exit(code)
