"""GoQueue beside peers that make the same promise when they acknowledge."""

from __future__ import annotations

from collections.abc import Mapping

from bench.peers.known import SYNCED
from bench.report import Runs, Section, Target, Unit
from bench.session import EVERY, NONE

PROMISES = (
    "A figure with fsync every stands beside peers that have a message on disk before they "
    "acknowledge it (RabbitMQ's quorum queue; NATS and Redis with sync always); one with fsync "
    "none beside those that have it in memory or in the page cache (Apache Kafka, RabbitMQ's "
    "stream, NATS and Redis as delivered, which sync every two minutes and every second)."
)
CLIENTS = (
    "Clients: librabbitmq over AMQP 0-9-1 for RabbitMQ, streams too, since their own protocol has "
    "no client in C; hiredis for Redis; bare requests from C, as for Kafka, where NATS is "
    "published to, nats.go for all else. Every acknowledgement is read, and a peer must then hold "
    "as many messages."
)


def with_same_promise(peer: str) -> str:
    """The name of GoQueue that stands beside this peer."""
    return EVERY if peer in SYNCED else NONE


def add_beside(
    section: Section,
    row: str,
    runs: Mapping[str, Runs],
    metric: str,
    unit: Unit,
    *,
    peers: list[str],
    targets: Mapping[str, Target] | None = None,
    detail: str = "",
) -> None:
    """A line for each peer, with the figure of GoQueue that has its promise."""
    for peer in peers:
        mine = with_same_promise(peer)
        section.add(
            f"{row}, {mine}{detail}",
            runs[mine],
            metric,
            unit,
            reference=runs[peer],
            target=(targets or {}).get(peer),
        )
