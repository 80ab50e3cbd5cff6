"""Rounds of a cluster of two nodes, without a cluster."""

from __future__ import annotations

from goqueue.cli.commands.top.measured import Measured, Round, Scrape, scrape_of
from goqueue.client.http import Node
from goqueue.client.http.samples import read_samples
from goqueue.model.errors import GoQueueError

ONE, TWO = "127.0.0.1:8080", "127.0.0.1:8081"
SECONDS = 10.0


def scrape(text: str, *, at: float = 0.0) -> Scrape:
    return scrape_of(at, read_samples(text.encode()))


def node(number: int, address: str, state: str = "running") -> Node:
    return Node(
        id=number,
        state=state,  # type: ignore[arg-type]
        addresses={"http": address},
        rack="",
        voter=True,
        controller=number == 1,
        leaders=1,
        replicas=2,
    )


NODES = {ONE: node(1, ONE), TWO: node(2, TWO)}


def measured(
    before: dict[str, str],
    last: dict[str, str],
    *,
    failures: dict[str, GoQueueError] | None = None,
) -> Measured:
    """What two rounds say that are ten seconds apart: texts of metrics by node."""
    first = Round({name: scrape(text) for name, text in before.items()}, cluster_id="berlin")
    second = Round(
        {name: scrape(text, at=SECONDS) for name, text in last.items()},
        failures or {},
        NODES,
        "berlin",
    )
    return Measured(first, {}).followed_by(second)
