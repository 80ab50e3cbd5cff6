"""The latency of one publish when nothing else is going on."""

from __future__ import annotations

from functools import partial

from bench.load import publish, raw_produce
from bench.peers.load import publish_to_peer
from bench.plan import PARTITIONS
from bench.report import MILLISECONDS, Outcome, at_most, times_at_most
from bench.rows.beside import CLIENTS, PROMISES, add_beside
from bench.session import ECHO, EVERY, KAFKA, NONE, Case, Session
from bench.topics import fresh_topic

PERCENTILES = (("p50_ms", "p50"), ("p99_ms", "p99"))


def measure(session: Session) -> None:
    """By bare requests, which leaves the client out, and by librdkafka."""
    section = session.section("One outstanding publish of 1 KB")
    section.notes += [
        "The bare echo answers the same requests on the same event loop and stores nothing.",
        PROMISES,
        CLIENTS,
    ]
    own = session.own_client_peers()
    cases: dict[str, Case] = {
        name: partial(_run_raw, session, name) for name in session.with_peers(EVERY, NONE, ECHO)
    }
    cases |= {name: partial(_run_peer, session, name) for name in own}
    raw = session.in_turns("publish, bare requests", cases)
    for metric, name in PERCENTILES:
        bound = at_most(1.0, "1 ms") if name == "p50" else at_most(10.0, "10 ms")
        row = f"bare requests, {EVERY}, {name}"
        section.add(row, raw[EVERY], metric, MILLISECONDS, target=bound)
        row = f"bare requests, {NONE}, {name}"
        section.add(
            row,
            raw[NONE],
            metric,
            MILLISECONDS,
            reference=raw[ECHO],
            target=times_at_most(2.0, "aim"),
        )
        if KAFKA in raw:
            section.add(
                row,
                raw[NONE],
                metric,
                MILLISECONDS,
                reference=raw[KAFKA],
                target=times_at_most(1.0),
            )
        detail = f", {name}"
        add_beside(section, "bare requests", raw, metric, MILLISECONDS, peers=own, detail=detail)
    client = session.in_turns(
        "publish, librdkafka",
        {
            name: partial(_run_client, session, name)
            for name in session.with_peers(EVERY, NONE, ECHO)
        },
    )
    for metric, name in PERCENTILES:
        bound = at_most(1.0, "1 ms") if name == "p50" else at_most(10.0, "10 ms")
        row = f"librdkafka in C, {EVERY}, {name}"
        section.add(row, client[EVERY], metric, MILLISECONDS, target=bound)
        row = f"librdkafka in C, {NONE}, {name}"
        reference = client.get(KAFKA, client[ECHO])
        target = times_at_most(1.0) if KAFKA in client else times_at_most(2.0, "aim")
        section.add(row, client[NONE], metric, MILLISECONDS, reference=reference, target=target)


def _run_raw(session: Session, name: str) -> Outcome:
    system = session.system(name)
    with fresh_topic(system, PARTITIONS) as topic:
        return raw_produce(
            session.tools, system, topic, connections=1, depth=1, count=session.plan.publish_count
        )


def _run_peer(session: Session, name: str) -> Outcome:
    return publish_to_peer(
        session.tools,
        session.queue_peer(name),
        connections=1,
        depth=1,
        count=session.plan.publish_count,
        seconds=session.plan.peer_seconds,
    )


def _run_client(session: Session, name: str) -> Outcome:
    system, plan = session.system(name), session.plan
    with fresh_topic(system, PARTITIONS) as topic:
        return publish(
            session.tools, system, topic, count=plan.publish_count, warmup=plan.publish_warmup
        )
