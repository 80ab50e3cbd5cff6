"""Whether a message costs the same when there are many: of messages, partitions, connections.

What many consumers and many schedules cost is in `growth_groups`; what many unacknowledged
messages cost is in `queues`.
"""

from __future__ import annotations

from functools import partial

from bench.load import consume, consume_last, produce, raw_produce
from bench.plan import PARTITIONS
from bench.report import (
    MESSAGES,
    MICROSECONDS,
    Outcome,
    Point,
    Runs,
    Section,
    times_at_least,
)
from bench.rows import growth_groups
from bench.rows.curves import add_curve, at_levels
from bench.session import EVERY, KAFKA, NONE, Session
from bench.topics import end_offsets, fresh_topic

SIZE = 100
CONNECTIONS = 16
FILL_AT_ONCE = 10_000_000


def measure(session: Session) -> None:
    """Cost in processor time of the broker, which other load on the machine disturbs least."""
    section = session.section("Growth: broker CPU per message")
    section.notes += [
        "Flat means at most 1.5 × the cost at the first level.",
        "Messages: a topic is filled to the level, then a probe is produced to it and read back.",
        "Partitions: single-record requests of 1 KB from 16 connections, round all partitions.",
        "Connections: single-record requests of 1 KB, one outstanding on each connection.",
        "What many unacknowledged messages cost is told with the queue groups.",
    ]
    _measure_messages(session, section)
    for name in (EVERY, NONE):
        _measure_partitions(session, section, name)
    for name in session.with_peers(EVERY, NONE):
        _measure_connections(session, section, name)
    growth_groups.measure(session, section)
    _measure_clients(session)


def _measure_messages(session: Session, section: Section) -> None:
    levels = session.plan.growth_levels
    runs = at_levels(session, "growth", "messages stored", levels, partial(_probe, session))
    for metric, what in (("produce_us", "produce"), ("consume_us", "consume")):
        series = f"{what} {SIZE} B by the C client"
        add_curve(section, runs, metric, axis="messages stored", series=series)


def _probe(session: Session, level: int) -> Outcome:
    system, tools, probe = session.system(EVERY), session.tools, session.plan.growth_probe
    with fresh_topic(system, PARTITIONS) as topic:
        stored = 0
        while stored < level:
            count = min(level - stored, FILL_AT_ONCE)
            filled = produce(tools, "C", system, topic, count=count, size=SIZE, held=stored)
            if filled.void:
                return Outcome({}, f"the topic could not be filled: {filled.void}")
            stored += int(filled.values["acked"])
        starts = end_offsets(system, topic)
        written = produce(tools, "C", system, topic, count=probe, size=SIZE, held=sum(starts))
        new = sum(end_offsets(system, topic)) - sum(starts)
        read = consume_last(tools, system, topic, starts=starts, count=new, size=SIZE)
    values = {
        "produce_us": written.values["broker_cpu_us"],
        "consume_us": read.values["broker_cpu_us"],
    }
    return Outcome(values, written.void or read.void)


def _measure_partitions(session: Session, section: Section, name: str) -> None:
    case = partial(_spread_out, session, name)
    levels = session.plan.growth_partitions
    runs = at_levels(session, f"growth, {name}", "partitions", levels, case)
    series = f"one record per request, {name}"
    add_curve(section, runs, "broker_cpu_us", axis="partitions", series=series)


def _spread_out(session: Session, name: str, partitions: int) -> Outcome:
    system, tools = session.system(name), session.tools
    load = partial(raw_produce, tools, system, connections=CONNECTIONS, depth=1)
    with fresh_topic(system, partitions) as topic:
        # The first message of a partition makes its files; that is not what a message costs.
        first = load(topic, count=max(2 * partitions, CONNECTIONS))
        if first.void:
            return first
        return load(topic, count=session.plan.growth_requests, held=int(first.values["acked"]))


def _measure_connections(session: Session, section: Section, name: str) -> None:
    levels, case = session.plan.growth_connections, partial(_connect, session, name)
    runs = at_levels(session, f"growth, {name}", "connections", levels, case)
    series = f"one record per request, {name}"
    add_curve(
        section, runs, "broker_cpu_us", axis="connections", series=series, is_judged=name != KAFKA
    )


def _connect(session: Session, name: str, connections: int) -> Outcome:
    system, count = session.system(name), session.plan.growth_requests
    with fresh_topic(system, PARTITIONS) as topic:
        return raw_produce(
            session.tools, system, topic, connections=connections, depth=1, count=count
        )


def _measure_clients(session: Session) -> None:
    """A real client and many partitions, beside Kafka."""
    section = session.section("Growth: a stock client and many partitions")
    count = session.plan.growth_client_messages
    section.notes += [
        f"librdkafka in C with its own partitioner, {count:,} messages of {SIZE} B; every "
        "partition gets some before, and all are read from their beginnings.",
        "Apache Kafka acknowledges from the page cache, as GoQueue does with fsync none.",
    ]
    names = session.with_peers(EVERY, NONE)
    for partitions in session.plan.growth_client_partitions:
        cases = {name: partial(_use_client, session, name, partitions) for name in names}
        runs = session.in_turns(f"a client and {partitions:,} partitions", cases)
        for what in ("produce", "consume"):
            for name in names:
                _add_client(section, runs, name, what, partitions)


def _add_client(
    section: Section, runs: dict[str, Runs], name: str, what: str, partitions: int
) -> None:
    row, mine = f"{what}, {partitions:,} partitions, {name}", runs[name]
    is_own, metric = name != KAFKA, f"{what}_per_s"
    if not is_own or KAFKA not in runs:
        section.add(row, mine, metric, MESSAGES)
    else:
        # The default mode waits for the disk, which Kafka does not: that is told, and not judged.
        target = times_at_least(1.0) if name == NONE or what == "consume" else None
        section.add(row, mine, metric, MESSAGES, reference=runs[KAFKA], target=target)
    section.add(
        f"{row}: broker CPU per message",
        mine,
        f"{what}_us",
        MICROSECONDS,
        reference=runs.get(KAFKA) if is_own else None,
        point=Point("partitions", f"{what} by a stock client, {name}", partitions),
    )


def _use_client(session: Session, name: str, partitions: int) -> Outcome:
    system, tools, count = session.system(name), session.tools, session.plan.growth_client_messages
    with fresh_topic(system, partitions) as topic:
        first = raw_produce(
            *(tools, system, topic),
            connections=CONNECTIONS,
            depth=1,
            size=SIZE,
            count=max(2 * partitions, CONNECTIONS),
        )
        if first.void:
            return first
        held = sum(end_offsets(system, topic))
        written = produce(tools, "C", system, topic, count=count, size=SIZE, held=held)
        if written.void:
            return written
        stored = sum(end_offsets(system, topic))
        read = consume(tools, "C", system, topic, count=stored, size=SIZE)
    values = {
        "produce_per_s": written.values["messages_per_s"],
        "produce_us": written.values["broker_cpu_us"],
        "consume_per_s": read.values.get("messages_per_s", 0.0),
        "consume_us": read.values.get("broker_cpu_us", 0.0),
    }
    return Outcome(values, read.void)
