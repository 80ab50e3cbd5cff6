"""Publishing by one client with many messages on their way: in batches, or one by one."""

from __future__ import annotations

from functools import partial

from bench.load import produce, raw_produce
from bench.peers.load import DEPTH, DEPTH_BYTES, depth_for, publish_to_peer
from bench.plan import LARGE_BYTES, PARTITIONS, PAYLOAD_NAMES, PRODUCED_BYTES
from bench.report import MESSAGES, Outcome, Section, times_at_least
from bench.rows.beside import CLIENTS, PROMISES, add_beside, with_same_promise
from bench.session import EVERY, KAFKA, NONE, Case, Session
from bench.topics import fresh_topic

ONE_BY_ONE = {f"{name}, one record per request": name for name in (EVERY, NONE)}
TARGETS = {KAFKA: times_at_least(1.0)}


def measure(session: Session) -> None:
    """Three sizes; each system by the best client there is."""
    section = session.section("Publish by one client, many messages on their way")
    section.notes += [
        "GoQueue and Apache Kafka: librdkafka in C, acks=1, 6 partitions, which sends batches. "
        "The other peers have no batches on the wire: their clients send one message at a time and "
        f"do not wait, up to {DEPTH:,} messages or {DEPTH_BYTES // 1_000_000} MB. That is not like "
        "for like. `One record per request` is: prebuilt requests on one connection, as many of "
        "them on their way.",
        PROMISES,
        CLIENTS,
    ]
    for size in PRODUCED_BYTES:
        _measure_size(session, section, size)


def _measure_size(session: Session, section: Section, size: int) -> None:
    kafka = session.with_peers()
    own = session.own_client_peers()
    cases: dict[str, Case] = {
        name: partial(_run, session, name, size) for name in (EVERY, NONE, *kafka)
    }
    cases |= {
        label: partial(_run_one_by_one, session, name, size) for label, name in ONE_BY_ONE.items()
    }
    cases |= {name: partial(_run_peer, session, name, size) for name in own}
    title = PAYLOAD_NAMES[size]
    runs = session.in_turns(f"pipelined, {title}", cases)
    for name, mine in runs.items():
        section.add(f"{title}, {name}", mine, "messages_per_s", MESSAGES)
    peers = [*kafka, *own]
    add_beside(section, title, runs, "messages_per_s", MESSAGES, peers=peers, targets=TARGETS)
    for peer in own:
        label = f"{with_same_promise(peer)}, one record per request"
        section.add(
            f"{title}, {label}", runs[label], "messages_per_s", MESSAGES, reference=runs[peer]
        )


def _run(session: Session, name: str, size: int) -> Outcome:
    system = session.system(name)
    with fresh_topic(system, PARTITIONS) as topic:
        count = session.plan.messages("C", size)
        return produce(session.tools, "C", system, topic, count=count, size=size)


def _run_one_by_one(session: Session, name: str, size: int) -> Outcome:
    system = session.system(name)
    count = session.plan.pipelined_requests // (40 if size == LARGE_BYTES else 1)
    with fresh_topic(system, PARTITIONS) as topic:
        return raw_produce(
            session.tools,
            system,
            topic,
            connections=1,
            depth=depth_for(size),
            count=count,
            size=size,
        )


def _run_peer(session: Session, name: str, size: int) -> Outcome:
    plan = session.plan
    return publish_to_peer(
        session.tools,
        session.queue_peer(name),
        connections=1,
        depth=depth_for(size),
        count=plan.messages("C", size),
        size=size,
        seconds=plan.peer_seconds,
    )
