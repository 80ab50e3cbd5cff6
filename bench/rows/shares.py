"""Share groups: records to members of a group that accept each of them, over Kafka's protocol."""

from __future__ import annotations

import itertools
from functools import partial

from bench.load import fill, share
from bench.plan import PARTITIONS, PAYLOAD_NAMES
from bench.report import MESSAGES, MICROSECONDS, MILLISECONDS, Outcome, Section, times_at_least
from bench.session import EVERY, KAFKA, NONE, Case, Session
from bench.topics import end_offsets, fresh_topic

_numbers = itertools.count(1)


def measure(session: Session) -> None:
    """Both sizes, by one, some and many consumers."""
    section = session.section("Share groups: receive + accept")
    section.notes += [
        f"Topics of {PARTITIONS} partitions, filled before the run by librdkafka. Consumers are "
        "those of franz-go in Go, all in one process, each with a connection of its own; they "
        "accept what they receive, and acknowledgements travel with the next fetch. Every record "
        "must come exactly once and every acknowledgement be confirmed; the time ends with the "
        "last confirmation, and begins when a twentieth has been received. 500 records are asked "
        "for at once, the default of the client; a fetch without records returns after 20 ms, so "
        "that the last acknowledgements do not wait for it longer.",
        "Apache Kafka has its own settings, except for the replication of its internal topics: 1.",
    ]
    for size, count in session.plan.share_messages:
        for consumers in session.plan.queue_consumers:
            _measure(session, section, size, count, consumers)


def _measure(session: Session, section: Section, size: int, count: int, consumers: int) -> None:
    names = session.with_peers(EVERY, NONE)
    cases: dict[str, Case] = {
        name: partial(_run, session, name, size, count, consumers) for name in names
    }
    title = f"{PAYLOAD_NAMES[size]}, {consumers} consumer" + ("s" if consumers > 1 else "")
    runs = session.in_turns(f"share groups, {title}", cases)
    for name in (EVERY, NONE):
        row, mine = f"{title}, {name}", runs[name]
        section.add(row, mine, "messages_per_s", MESSAGES)
        if KAFKA in runs:
            section.add(
                row,
                mine,
                "messages_per_s",
                MESSAGES,
                reference=runs[KAFKA],
                # Kafka's acknowledgements are in the page cache when they are confirmed.
                target=times_at_least(1.0) if name == NONE else None,
            )
        section.add(f"{row}: first record", mine, "first_message_ms", MILLISECONDS)
        section.add(f"{row}: broker CPU per message", mine, "broker_cpu_us", MICROSECONDS)
        section.add(f"{row}: client CPU per message", mine, "client_cpu_us", MICROSECONDS)


def _run(session: Session, name: str, size: int, count: int, consumers: int) -> Outcome:
    system = session.system(name)
    with fresh_topic(system, PARTITIONS) as topic:
        filled = fill(session.tools, system, topic, count=count, size=size, held=0)
        if filled.void:
            return Outcome({}, f"the topic could not be filled: {filled.void}")
        return share(
            session.tools,
            system,
            topic,
            group=f"bench-share-{next(_numbers)}",
            consumers=consumers,
            count=sum(end_offsets(system, topic)),
            size=size,
        )
