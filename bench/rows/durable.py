"""Produce with every batch on disk before its acknowledgement, by 64 producers at once."""

from __future__ import annotations

from functools import partial

from bench import limits
from bench.load import raw_produce
from bench.peers.known import SYNCED
from bench.peers.load import publish_to_peer
from bench.plan import PARTITIONS
from bench.report import MESSAGES, MILLISECONDS, Outcome, times_at_least
from bench.session import EVERY, KAFKA, SINK, Case, Session
from bench.topics import fresh_topic

PRODUCERS = 64
RECORDS = 16
ALONE = "one fdatasync per batch, in line"
# Kafka's own switch for the same promise: flush after every message, here after every batch.
KAFKA_CONFIG = {"flush.messages": "1"}


def measure(session: Session) -> None:
    """64 connections, each with one outstanding batch of 16 KB."""
    title = f"{PRODUCERS} producers, one batch of {RECORDS} × 1 KB outstanding each, fsync"
    systems = session.with_peers(EVERY, SINK)
    cases: dict[str, Case] = {name: partial(_run, session, name) for name in systems}
    own = session.own_client_peers(SYNCED)
    cases |= {name: partial(_run_peer, session, name) for name in own}
    runs = session.in_turns("durable", {**cases, ALONE: lambda: _one_by_one(session)})
    section = session.section("Produce, fsync before every acknowledgement, 64 producers")
    section.notes += [
        "Against one sync per batch, the ratio says how many waiting batches one sync serves.",
        f"Peers without batches have {RECORDS} messages of 1 KB on their way on each connection "
        "instead of a batch of as many, which is close to like for like: they store and "
        "acknowledge each message by itself.",
    ]
    mine = runs[EVERY]
    if KAFKA in runs:
        section.add(
            title,
            mine,
            "messages_per_s",
            MESSAGES,
            reference=runs[KAFKA],
            target=times_at_least(1.0),
        )
    section.add(
        title,
        mine,
        "messages_per_s",
        MESSAGES,
        reference=runs[ALONE],
        target=times_at_least(2.0, "aim"),
    )
    section.add(title, mine, "messages_per_s", MESSAGES, reference=runs[SINK])
    for name in own:
        section.add(title, mine, "messages_per_s", MESSAGES, reference=runs[name])
    for metric, name in (("p50_ms", "p50"), ("p99_ms", "p99")):
        section.add(
            f"{title}: {name} of one batch", mine, metric, MILLISECONDS, reference=runs.get(KAFKA)
        )


def _run(session: Session, name: str) -> Outcome:
    system = session.system(name)
    config = KAFKA_CONFIG if name == KAFKA else None
    with fresh_topic(system, PARTITIONS, config) as topic:
        return raw_produce(
            session.tools,
            system,
            topic,
            connections=PRODUCERS,
            depth=1,
            records=RECORDS,
            count=session.plan.durable_batches,
        )


def _run_peer(session: Session, name: str) -> Outcome:
    return publish_to_peer(
        session.tools,
        session.queue_peer(name),
        connections=PRODUCERS,
        depth=RECORDS,
        count=session.plan.durable_batches * RECORDS,
        seconds=session.plan.peer_seconds,
    )


def _one_by_one(session: Session) -> Outcome:
    p50, _ = limits.fdatasync_ms(session.work, session.plan.limit_syncs)
    return Outcome({"messages_per_s": RECORDS * 1000 / p50})
