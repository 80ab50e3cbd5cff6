"""A reader that has fallen behind: a long log is read from its beginning, once it is on disk."""

from __future__ import annotations

import contextlib
from functools import partial

from bench.load import consume, fill, follow
from bench.peers.known import LOGS
from bench.peers.load import Queue, follow_peer, new_queue, read_from_peer
from bench.plan import PARTITIONS
from bench.processes import LoadFailed
from bench.report import MESSAGES, Outcome, Section, at_least, times_at_least
from bench.rows.beside import add_beside
from bench.session import KAFKA, NONE, Case, Session
from bench.systems import System
from bench.topics import Topic, create_topic, delete_topic, end_offsets, evict, fresh_topic

SIZE = 1000
FLOOR = at_least(500_000, "500 k msg/s")
TARGETS = {KAFKA: times_at_least(1.0)}


def measure(session: Session) -> None:
    """Catch up, and keep up with a publisher."""
    plan = session.plan
    section = session.section(
        f"Consume {plan.catch_up_messages * SIZE / 1e9:g} GB from the beginning, and the tail"
    )
    section.notes += [
        "GoQueue and Apache Kafka: librdkafka in C, 6 partitions; their files are dropped from the "
        "page cache before each run, though the host of a virtual machine may still hold them.",
        f"The other peers hold {plan.catch_up_messages_peer:,} messages, as many as fit the time: "
        "RabbitMQ's stream over AMQP 0-9-1 with 2,000 in advance, NATS by a pull consumer without "
        "acks, Redis by XREAD of 1,000 at a time, which has all messages in memory. Their cache is "
        "left as it is. Not like for like: they hand out messages one by one, a Kafka client gets "
        "whole batches. A quorum queue of RabbitMQ cannot be read twice.",
        "The tail: a reader of what one client is publishing as fast as it can; all three share "
        "the machine's cores.",
    ]
    _measure_catch_up(session, section)
    _measure_tail(session, section)


def _measure_catch_up(session: Session, section: Section) -> None:
    names = session.with_peers(NONE)
    own = session.own_client_peers(LOGS)
    with contextlib.ExitStack() as stack:
        topics: dict[str, Topic] = {}
        queues: dict[str, Queue] = {}
        cases: dict[str, Case] = {
            name: partial(_read, session, stack, topics, name) for name in names
        }
        cases |= {name: partial(_read_peer, session, stack, queues, name) for name in own}
        runs = session.in_turns("catch up", cases)
    row, peers = "catch up", [*names[1:], *own]
    section.add(f"{row}, {NONE}", runs[NONE], "messages_per_s", MESSAGES, target=FLOOR)
    add_beside(section, row, runs, "messages_per_s", MESSAGES, peers=peers, targets=TARGETS)


def _read(
    session: Session, stack: contextlib.ExitStack, topics: dict[str, Topic], name: str
) -> Outcome:
    system = session.system(name)
    if name not in topics:
        topics[name] = _fill(session, stack, system)
    topic = topics[name]
    evict(system, topic)
    count = sum(end_offsets(system, topic))
    return consume(session.tools, "C", system, topic, count=count, size=SIZE)


def _fill(session: Session, stack: contextlib.ExitStack, system: System) -> Topic:
    topic = create_topic(system, PARTITIONS)
    stack.callback(delete_topic, system, topic)
    count = session.plan.catch_up_messages
    filled = fill(session.tools, system, topic, count=count, size=SIZE, held=0)
    if filled.void:
        raise LoadFailed(f"the topic could not be filled: {filled.void}")
    return topic


def _read_peer(
    session: Session, stack: contextlib.ExitStack, queues: dict[str, Queue], name: str
) -> Outcome:
    peer, count = session.queue_peer(name), session.plan.catch_up_messages_peer
    if name not in queues:
        queue = new_queue(session.tools, peer)
        stack.callback(queue.remove)
        queue.fill(count=count, size=SIZE)
        queues[name] = queue
    return read_from_peer(queues[name], count=count, size=SIZE)


def _measure_tail(session: Session, section: Section) -> None:
    names = session.with_peers(NONE)
    own = session.own_client_peers(LOGS)
    cases: dict[str, Case] = {name: partial(_follow, session, name) for name in names}
    cases |= {name: partial(_follow_peer, session, name) for name in own}
    runs = session.in_turns("tail", cases)
    row, peers = "behind a running publisher", [*names[1:], *own]
    section.add(f"{row}, {NONE}", runs[NONE], "messages_per_s", MESSAGES)
    add_beside(section, row, runs, "messages_per_s", MESSAGES, peers=peers, targets=TARGETS)


def _follow(session: Session, name: str) -> Outcome:
    system = session.system(name)
    with fresh_topic(system, PARTITIONS) as topic:
        count = session.plan.messages("C", SIZE)
        return follow(session.tools, system, topic, count=count, size=SIZE)


def _follow_peer(session: Session, name: str) -> Outcome:
    peer, count = session.queue_peer(name), session.plan.tail_messages_peer
    return follow_peer(session.tools, peer, count=count, size=SIZE)
