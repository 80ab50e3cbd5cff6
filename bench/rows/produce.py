"""Batched produce by stock clients, six partitions: acks=1, and acks=all."""

from __future__ import annotations

from functools import partial

from bench.load import produce
from bench.plan import LARGE_BYTES, PARTITIONS, PAYLOAD_NAMES, PRODUCED_BYTES
from bench.report import (
    MESSAGES,
    PER_MILLION,
    Outcome,
    Runs,
    Section,
    Target,
    at_least,
    times_at_least,
)
from bench.session import EVERY, KAFKA, NONE, SINK, Session
from bench.topics import fresh_topic

CLIENTS = ("Python", "C")


def measure(session: Session) -> None:
    """Small messages by both clients, against both fsync modes, the sink and Kafka."""
    section = session.section("Produce, 6 partitions, batched by librdkafka")
    section.notes += [
        "The sink acknowledges and discards: what the same client reaches with no broker.",
        "Batched produce is not like for like with peers that send one message at a time; "
        "compare those with one record per request.",
        "Apache Kafka acknowledges from the page cache, as GoQueue does with fsync none.",
        "acks=1 unless it says acks=all; with one node there is nobody else to wait for, so the "
        "two differ only in what they cost. The row `cluster` has three nodes.",
    ]
    for size in PRODUCED_BYTES:
        for client in CLIENTS if size != LARGE_BYTES else ("C",):
            _measure_client(session, section, client, size, "1")
        _measure_client(session, section, "C", size, "all")


def _measure_client(session: Session, section: Section, client: str, size: int, acks: str) -> None:
    title = f"produce {PAYLOAD_NAMES[size]}, {client} client" + (", acks=all" * (acks == "all"))
    systems = session.with_peers(EVERY, NONE, SINK)
    cases = {name: partial(_run, session, name, client, size, acks) for name in systems}
    runs = session.in_turns(title, cases)
    for name in (EVERY, NONE):
        _add_lines(section, f"{title}, {name}", runs, runs[name], _floor(client, size))
    if KAFKA in runs:
        section.add(
            f"{title}, {KAFKA}", runs[KAFKA], "messages_per_s", MESSAGES, reference=runs[SINK]
        )


def _run(session: Session, name: str, client: str, size: int, acks: str) -> Outcome:
    system = session.system(name)
    with fresh_topic(system, PARTITIONS) as topic:
        count = session.plan.messages(client, size)
        return produce(session.tools, client, system, topic, count=count, size=size, acks=acks)


def _floor(client: str, size: int) -> Target | None:
    return at_least(300_000, "300 k msg/s") if (client, size) == ("Python", 1000) else None


def _add_lines(
    section: Section, row: str, runs: dict[str, Runs], mine: Runs, floor: Target | None
) -> None:
    if floor is not None:
        section.add(row, mine, "messages_per_s", MESSAGES, target=floor)
    section.add(
        row,
        mine,
        "messages_per_s",
        MESSAGES,
        reference=runs[SINK],
        target=times_at_least(0.8, "aim"),
    )
    if KAFKA in runs:
        section.add(
            row,
            mine,
            "messages_per_s",
            MESSAGES,
            reference=runs[KAFKA],
            target=times_at_least(1.0),
        )
    section.add(
        f"{row}: broker CPU per million messages",
        mine,
        "broker_cpu_us",
        PER_MILLION,
        reference=runs.get(KAFKA),
    )
