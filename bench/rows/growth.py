"""Whether a message costs the same when there are many: of messages, and of partitions."""

from __future__ import annotations

from functools import partial

from bench.load import consume_last, produce, raw_produce
from bench.plan import PARTITIONS
from bench.report import MICROSECONDS, Outcome, Section, times_at_most
from bench.session import EVERY, NONE, Session
from bench.topics import end_offsets, fresh_topic

SIZE = 100
CONNECTIONS = 16
# Two measurements on a busy machine differ by this much; a cost that grows with the amount grows
# by far more over three decades.
FLAT = times_at_most(1.5)


def measure(session: Session) -> None:
    """Cost in processor time of the broker, which other load on the machine disturbs least."""
    section = session.section("Growth: broker CPU per message")
    section.notes += [
        "Messages: a topic is filled to the level, then a probe is produced to it and read back.",
        "Partitions: single-record requests of 1 KB from 16 connections, round all partitions.",
        "Flat means at most 1.5 × the cost at the first level.",
    ]
    _measure_messages(session, section)
    for name in (EVERY, NONE):
        _measure_partitions(session, section, name)


def _measure_messages(session: Session, section: Section) -> None:
    labels = {level: f"{level:,} stored" for level in session.plan.growth_levels}
    cases = {label: partial(_probe, session, level) for level, label in labels.items()}
    runs = session.in_turns("growth by messages", cases)
    first = runs[labels[session.plan.growth_levels[0]]]
    for metric, what in (("produce_us", "produce"), ("consume_us", "consume")):
        for label in labels.values():
            row = f"{what} {SIZE} B by the C client, {label}"
            section.add(row, runs[label], metric, MICROSECONDS, reference=first, target=FLAT)


def _probe(session: Session, level: int) -> Outcome:
    system, tools, probe = session.system(EVERY), session.tools, session.plan.growth_probe
    with fresh_topic(system, PARTITIONS) as topic:
        filled = produce(tools, "C", system, topic, count=level, size=SIZE)
        if filled.void:
            return Outcome({}, f"the topic could not be filled: {filled.void}")
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
    labels = {count: f"{count:,} partitions" for count in session.plan.growth_partitions}
    cases = {label: partial(_spread_out, session, name, count) for count, label in labels.items()}
    runs = session.in_turns(f"growth by partitions, {name}", cases)
    first = runs[labels[session.plan.growth_partitions[0]]]
    for label in labels.values():
        row = f"one record per request, {name}, {label}"
        section.add(row, runs[label], "broker_cpu_us", MICROSECONDS, reference=first, target=FLAT)


def _spread_out(session: Session, name: str, partitions: int) -> Outcome:
    system, tools = session.system(name), session.tools
    load = partial(raw_produce, tools, system, connections=CONNECTIONS, depth=1)
    with fresh_topic(system, partitions) as topic:
        # The first message of a partition makes its files; that is not what a message costs.
        first = load(topic, count=max(2 * partitions, CONNECTIONS))
        if first.void:
            return first
        return load(topic, count=session.plan.growth_requests, held=int(first.values["acked"]))
