"""Queue groups over HTTP: receive and acknowledge."""

from __future__ import annotations

import itertools
from functools import partial

from bench.http_load import call, receive_and_ack, settle
from bench.load import fill
from bench.peers.known import NATS, RABBITMQ, RABBITMQ_STREAM, REDIS_SYNCED
from bench.peers.load import consume_from_peer
from bench.plan import PARTITIONS, PAYLOAD_NAMES
from bench.report import (
    MESSAGES,
    MICROSECONDS,
    MILLISECONDS,
    Outcome,
    Point,
    Section,
    times_at_least,
    times_at_most,
)
from bench.session import EVERY, NONE, Case, Session
from bench.systems import Server
from bench.topics import Topic, end_offsets, fresh_topic

CONSUMERS = 8
BATCH = 100
# A group of the benchmark may hold as many as a group ever may; what bounds a run is its count.
GROUP_SETTINGS = {"unacked_max": 1_000_000, "consumer_unacked_max": 1_000_000}
SETTLE_LEVEL_MIN = 10_000
TOGETHER = ", acks sent with the next receive"
FLAT = times_at_most(1.5)
TARGETS = {
    RABBITMQ: (times_at_least(2.0),),
    NATS: (times_at_least(1.0), times_at_least(2.0, "aim")),
}
_numbers = itertools.count(1)


def measure(session: Session) -> None:
    """Few and many consumers, both sizes in batches, smaller calls, and many unacknowledged."""
    section = session.section("Queue groups over HTTP: receive + ack")
    section.notes += [
        f"Topics of {PARTITIONS} partitions, filled before the run by librdkafka. A consumer has a "
        "connection of its own: it receives, acknowledges what it got in one call, waits for the "
        "answer, and receives again. Every message must come exactly once and every ack be "
        "answered with its result; an ack is answered when it is journaled. "
        f"`{TOGETHER.strip(', ')}`: both are one call, answered when the acks are journaled; the "
        "time of a receive is that of both.",
        "RabbitMQ: one durable quorum queue on one node, persistent messages, librabbitmq in C, "
        f"prefetch {2 * BATCH}, one ack with `multiple` for every {BATCH}; such acks are not "
        "answered, so the run ends with a call on each channel. The queue must be empty then.",
        "NATS: JetStream file store as it comes (synced every two minutes), one durable pull "
        f"consumer with explicit acks shared by all connections, nats.go, {2 * BATCH} in advance, "
        "every message acknowledged by itself; the run ends when the server says that none is "
        "pending.",
        "Redis: one stream, AOF synced every second or always, one group; XREADGROUP of "
        f"{BATCH} and one XACK for as many, the next read sent along with it; hiredis in C. None "
        "may be pending then. Not like for like: an acknowledged message stays in the stream until "
        "something trims it.",
        f"A {RABBITMQ_STREAM} and a topic of Apache Kafka cannot take part: they know how far a "
        "reader is, not which messages are acknowledged. (Kafka's share groups are another "
        "row.)",
        "Unacked: so many messages of 100 B are held, one after the other or every second one "
        f"between acknowledged ones; then others are received and acknowledged in batches of "
        f"{BATCH}, then some of those that are held, in random order.",
    ]
    for consumers in session.plan.queue_consumers:
        _measure_batches(session, section, 1000, consumers)
    _measure_batches(session, section, 100, CONSUMERS)
    for at_once, count in session.plan.queue_messages:
        if at_once != BATCH:
            _measure_calls(session, section, at_once, count)
    _measure_unacked(session, section)


def _measure_batches(session: Session, section: Section, size: int, consumers: int) -> None:
    plan, names, peers = session.plan, (EVERY, NONE), session.queue_peers()
    count = dict(plan.queue_messages)[BATCH]
    cases: dict[str, Case] = {
        name: partial(_run, session, name, BATCH, count, size, consumers) for name in names
    }
    cases |= {
        f"{name}{TOGETHER}": partial(
            _run, session, name, BATCH, count, size, consumers, is_together=True
        )
        for name in names
    }
    ours = tuple(cases)
    cases |= {name: partial(_run_peer, session, name, size, consumers) for name in peers}
    title = f"{PAYLOAD_NAMES[size]} in batches of {BATCH}, {consumers} consumer"
    title += "s" if consumers > 1 else ""
    runs = session.in_turns(f"queues, {title}", cases)
    for name in ours:
        row, mine = f"{title}, {name}", runs[name]
        section.add(row, mine, "messages_per_s", MESSAGES)
        for peer in peers:
            if peer == REDIS_SYNCED and not name.startswith(EVERY):
                continue  # It promises more.
            for target in TARGETS[peer] if consumers == CONSUMERS and peer in TARGETS else (None,):
                section.add(
                    row, mine, "messages_per_s", MESSAGES, reference=runs[peer], target=target
                )
        section.add(f"{row}: receive p50", mine, "p50_ms", MILLISECONDS)
        section.add(f"{row}: receive p99", mine, "p99_ms", MILLISECONDS)
        section.add(f"{row}: ack p99", mine, "ack_p99_ms", MILLISECONDS)
        section.add(f"{row}: broker CPU per message", mine, "broker_cpu_us", MICROSECONDS)
        section.add(f"{row}: client CPU per message", mine, "client_cpu_us", MICROSECONDS)


def _measure_calls(session: Session, section: Section, at_once: int, count: int) -> None:
    names = (EVERY, NONE)
    cases: dict[str, Case] = {
        name: partial(_run, session, name, at_once, count, 1000, CONSUMERS) for name in names
    }
    runs = session.in_turns(f"queues, {at_once} per call", cases)
    for name in names:
        row, mine = f"1 KB, {at_once} per call, {CONSUMERS} consumers, {name}", runs[name]
        section.add(row, mine, "messages_per_s", MESSAGES)
        section.add(f"{row}: broker CPU per message", mine, "broker_cpu_us", MICROSECONDS)


def _measure_unacked(session: Session, section: Section) -> None:
    """A group holds so many; others are received and acknowledged, then some of those held."""
    levels = session.plan.unacked_levels
    for hold_every, how in ((1, "in a row"), (2, "every second one")):
        labels = {level: f"{level:,} unacked {how}" for level in levels}
        cases = {
            label: partial(_run_beside, session, level, hold_every)
            for level, label in labels.items()
        }
        runs = session.in_turns(f"queues, unacked {how}", cases)
        for metric, what in (("broker_cpu_us", "others"), ("settle_cpu_us", "then of these")):
            # A handful is acknowledged in one call, whose own cost would be all there is to see.
            counted = [one for one in levels if what == "others" or one >= SETTLE_LEVEL_MIN]
            first = runs[labels[counted[0]]]
            for level in counted:
                row = f"{labels[level]}, broker CPU per message {what}"
                mine = runs[labels[level]]
                acked = "others" if what == "others" else "some of them"
                series = f"ack of {acked}; held {how}"
                point = Point("unacked messages", series, level)
                section.add(
                    row, mine, metric, MICROSECONDS, reference=first, target=FLAT, point=point
                )


def _run(
    session: Session,
    name: str,
    at_once: int,
    count: int,
    size: int,
    consumers: int,
    *,
    is_together: bool = False,
) -> Outcome:
    server = session.server(name)
    with fresh_topic(server, PARTITIONS) as topic:
        stored, void = _fill(session, server, topic, count, size, held=0)
        if void:
            return Outcome({}, void)
        return receive_and_ack(
            session.tools,
            server,
            topic,
            new_group(server),
            consumers=consumers,
            at_once=at_once,
            count=stored,
            is_together=is_together,
        )


def _run_beside(session: Session, level: int, hold_every: int) -> Outcome:
    server, probe = session.server(EVERY), session.plan.unacked_probe
    with fresh_topic(server, PARTITIONS) as topic:
        group = new_group(server)
        take = partial(receive_and_ack, session.tools, server, topic, group)
        stored, void = _fill(session, server, topic, level * hold_every, 100, held=0)
        if void:
            return Outcome({}, void)
        receipts = session.work / f"{group}.receipts"
        held = take(
            consumers=CONSUMERS,
            at_once=1000,
            count=stored,
            hold_every=hold_every,
            receipts=receipts,
        )
        if held.void:
            return Outcome({}, f"the messages could not be held: {held.void}")
        added, void = _fill(session, server, topic, probe, 100, held=stored)
        if void:
            return Outcome({}, void)
        others = take(consumers=CONSUMERS, at_once=BATCH, count=added)
        these = settle(
            session.tools,
            server,
            topic,
            group,
            consumers=CONSUMERS,
            at_once=BATCH,
            count=min(probe, level // 10),
            receipts=receipts,
        )
        receipts.unlink()
        return Outcome(others.values | these.values, others.void or these.void)


def _run_peer(session: Session, name: str, size: int, consumers: int) -> Outcome:
    peer, count = session.queue_peer(name), session.plan.queue_messages_peer
    return consume_from_peer(
        session.tools, peer, consumers=consumers, at_once=BATCH, count=count, size=size
    )


def _fill(
    session: Session, server: Server, topic: Topic, count: int, size: int, *, held: int
) -> tuple[int, str]:
    """How many were added, with the few that librdkafka warms up with; and why it failed."""
    outcome = fill(session.tools, server, topic, count=count, size=size, held=held)
    if outcome.void:
        return 0, f"the topic could not be filled: {outcome.void}"
    return sum(end_offsets(server, topic)) - held, ""


def new_group(server: Server) -> str:
    name = f"bench-{next(_numbers)}"
    call(server, "PUT", f"/v1/groups/{name}", {"kind": "queue", "settings": GROUP_SETTINGS})
    return name
