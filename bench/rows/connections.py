"""One message per request, one outstanding on each of 1, 16, 100 and 1,000 connections."""

from __future__ import annotations

from functools import partial

from bench import http_load
from bench.load import raw_produce
from bench.peers.known import NATS
from bench.peers.load import publish_to_peer
from bench.plan import PARTITIONS
from bench.report import (
    MILLISECONDS,
    REQUESTS,
    Outcome,
    Point,
    Section,
    Target,
    times_at_least,
)
from bench.rows.beside import CLIENTS, PROMISES, add_beside
from bench.session import EVERY, KAFKA, NONE, Case, Session
from bench.topics import fresh_topic

HTTP = {f"{name}, HTTP": name for name in (EVERY, NONE)}
TARGETS: dict[str, Target] = {KAFKA: times_at_least(1.0), NATS: times_at_least(1.0, "aim")}


def measure(session: Session) -> None:
    """Every system with the same number of connections in turn."""
    section = session.section("One message of 1 KB per request, by connections")
    section.notes += [
        "One request outstanding on each connection, all from one thread in C. This is like for "
        "like: every system takes, stores and acknowledges each message by itself.",
        PROMISES,
        CLIENTS,
        "GoQueue and Apache Kafka spread the messages over 6 partitions; the others have one queue "
        "or stream.",
    ]
    for connections, count in session.plan.connection_levels:
        _measure_level(session, section, connections, count)


def _measure_level(session: Session, section: Section, connections: int, count: int) -> None:
    kafka = session.with_peers()
    own = session.own_client_peers()
    cases: dict[str, Case] = {
        name: partial(_run, session, name, connections, count) for name in (EVERY, NONE, *kafka)
    }
    cases |= {
        label: partial(_run_http, session, name, connections, count) for label, name in HTTP.items()
    }
    cases |= {name: partial(_run_peer, session, name, connections, count) for name in own}
    title = f"{connections:,} connection{'s' if connections > 1 else ''}"
    runs = session.in_turns(f"connections, {title}", cases)
    for name, mine in runs.items():
        section.add(
            f"{title}, {name}",
            mine,
            "requests_per_s",
            REQUESTS,
            point=Point("connections", name, connections),
        )
    targets = TARGETS if connections == 16 else {KAFKA: TARGETS[KAFKA]}
    peers = [*kafka, *own]
    add_beside(section, title, runs, "requests_per_s", REQUESTS, peers=peers, targets=targets)
    add_beside(section, title, runs, "p99_ms", MILLISECONDS, peers=peers, detail=", p99")


def _run(session: Session, name: str, connections: int, count: int) -> Outcome:
    system = session.system(name)
    with fresh_topic(system, PARTITIONS) as topic:
        return raw_produce(
            session.tools, system, topic, connections=connections, depth=1, count=count
        )


def _run_http(session: Session, name: str, connections: int, count: int) -> Outcome:
    server = session.server(name)
    with fresh_topic(server, PARTITIONS) as topic:
        return http_load.publish(
            session.tools, server, topic, connections=connections, records=1, count=count
        )


def _run_peer(session: Session, name: str, connections: int, count: int) -> Outcome:
    return publish_to_peer(
        session.tools,
        session.queue_peer(name),
        connections=connections,
        depth=1,
        count=count,
        seconds=session.plan.peer_seconds,
    )
