"""Streams of gRPC: publish in requests of 100 messages, and receive with acknowledgements."""

from __future__ import annotations

from functools import partial

from bench.grpc_load import publish, receive_and_ack
from bench.peers.known import NATS
from bench.peers.load import consume_from_peer, depth_for, publish_to_peer
from bench.plan import PARTITIONS, PAYLOAD_BYTES, PAYLOAD_NAMES
from bench.report import MESSAGES, MICROSECONDS, Outcome, Section, at_least
from bench.rows.queues import new_group
from bench.session import EVERY, NONE, Case, Session
from bench.topics import end_offsets, fresh_topic

BATCH = 100
STREAMS = (1, 4)
CONSUMERS = 8
PUBLISH_AIM = at_least(150_000, "150 k msg/s")
RECEIVE_AIM = at_least(100_000, "100 k msg/s")


def measure(session: Session) -> None:
    """Both sizes; beside NATS, whose client publishes and acknowledges message by message."""
    section = session.section("gRPC streams")
    section.notes += [
        f"Topics of {PARTITIONS} partitions; grpc-go, a connection for each stream. Publish: "
        f"requests of {BATCH} messages, up to 32 without a response on each stream; the time ends "
        "with the last confirmation. Receive: up to 1,000 messages of credit on each stream and "
        f"{BATCH} per response; what a response brings is acknowledged in one request, with credit "
        "for as many. Every message must come exactly once, and the time ends when all "
        "acknowledgements are confirmed.",
        "NATS: JetStream file store as it comes (synced every two minutes); one message at a time, "
        "as its protocol has no batches: up to 1,000 on their way, and for consumers 200 in "
        "advance.",
        "The aims are those for messages of 100 B without a sync.",
    ]
    for size in PAYLOAD_BYTES:
        for streams in STREAMS:
            _measure_publish(session, section, size, streams)
        _measure_receive(session, section, size)


def _measure_publish(session: Session, section: Section, size: int, streams: int) -> None:
    peers = session.own_client_peers({NATS})
    count = session.plan.grpc_messages
    cases: dict[str, Case] = {
        name: partial(_publish, session, name, size, streams, count) for name in (EVERY, NONE)
    }
    cases |= {name: partial(_publish_peer, session, name, size, streams) for name in peers}
    title = f"publish {PAYLOAD_NAMES[size]}, {streams} stream" + "s" * (streams > 1)
    runs = session.in_turns(f"gRPC, {title}", cases)
    for name in (EVERY, NONE):
        row, mine = f"{title}, {name}", runs[name]
        target = PUBLISH_AIM if (name, size) == (NONE, 100) else None
        section.add(row, mine, "messages_per_s", MESSAGES, target=target)
        for peer in peers:
            section.add(row, mine, "messages_per_s", MESSAGES, reference=runs[peer])
        section.add(f"{row}: broker CPU per message", mine, "broker_cpu_us", MICROSECONDS)
        section.add(f"{row}: client CPU per message", mine, "client_cpu_us", MICROSECONDS)


def _measure_receive(session: Session, section: Section, size: int) -> None:
    peers = session.own_client_peers({NATS})
    count = session.plan.grpc_messages
    cases: dict[str, Case] = {
        name: partial(_receive, session, name, size, count) for name in (EVERY, NONE)
    }
    cases |= {name: partial(_receive_peer, session, name, size) for name in peers}
    title = f"receive + ack {PAYLOAD_NAMES[size]}, {CONSUMERS} streams"
    runs = session.in_turns(f"gRPC, {title}", cases)
    for name in (EVERY, NONE):
        row, mine = f"{title}, {name}", runs[name]
        target = RECEIVE_AIM if (name, size) == (NONE, 100) else None
        section.add(row, mine, "messages_per_s", MESSAGES, target=target)
        for peer in peers:
            section.add(row, mine, "messages_per_s", MESSAGES, reference=runs[peer])
        section.add(f"{row}: broker CPU per message", mine, "broker_cpu_us", MICROSECONDS)
        section.add(f"{row}: client CPU per message", mine, "client_cpu_us", MICROSECONDS)


def _publish(session: Session, name: str, size: int, streams: int, count: int) -> Outcome:
    server = session.server(name)
    with fresh_topic(server, PARTITIONS) as topic:
        return publish(
            session.tools, server, topic, streams=streams, batch=BATCH, count=count, size=size
        )


def _publish_peer(session: Session, name: str, size: int, streams: int) -> Outcome:
    return publish_to_peer(
        session.tools,
        session.queue_peer(name),
        connections=streams,
        depth=depth_for(size),
        count=session.plan.queue_messages_peer,
        size=size,
        seconds=session.plan.peer_seconds,
    )


def _receive(session: Session, name: str, size: int, count: int) -> Outcome:
    server = session.server(name)
    with fresh_topic(server, PARTITIONS) as topic:
        filled = publish(
            session.tools, server, topic, streams=1, batch=BATCH, count=count, size=size
        )
        if filled.void:
            return Outcome({}, f"the topic could not be filled: {filled.void}")
        return receive_and_ack(
            session.tools,
            server,
            topic,
            new_group(server),
            streams=CONSUMERS,
            batch=BATCH,
            count=sum(end_offsets(server, topic)),
            size=size,
        )


def _receive_peer(session: Session, name: str, size: int) -> Outcome:
    return consume_from_peer(
        session.tools,
        session.queue_peer(name),
        consumers=CONSUMERS,
        at_once=BATCH,
        count=session.plan.queue_messages_peer,
        size=size,
    )
