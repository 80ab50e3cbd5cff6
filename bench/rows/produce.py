"""Batched produce by stock clients, acks=1, six partitions."""

from __future__ import annotations

from functools import partial

from bench.load import produce
from bench.plan import PARTITIONS, PAYLOAD_BYTES, PAYLOAD_NAMES
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
    """Both sizes by both clients, against both fsync modes, the sink and Kafka."""
    section = session.section("Produce, acks=1, 6 partitions, batched by librdkafka")
    section.notes += [
        "The sink acknowledges and discards: what the same client reaches with no broker.",
        "Batched produce is not like for like with peers that send one message at a time; "
        "compare those with one record per request.",
        "Apache Kafka acknowledges from the page cache, as GoQueue does with fsync none.",
    ]
    for size in PAYLOAD_BYTES:
        for client in CLIENTS:
            _measure_client(session, section, client, size)


def _measure_client(session: Session, section: Section, client: str, size: int) -> None:
    title = f"produce {PAYLOAD_NAMES[size]}, {client} client"
    systems = session.with_peers(EVERY, NONE, SINK)
    cases = {name: partial(_run, session, name, client, size) for name in systems}
    runs = session.in_turns(title, cases)
    for name in (EVERY, NONE):
        _add_lines(section, f"{title}, {name}", runs, runs[name], _floor(client, size))
    if KAFKA in runs:
        section.add(
            f"{title}, {KAFKA}", runs[KAFKA], "messages_per_s", MESSAGES, reference=runs[SINK]
        )


def _run(session: Session, name: str, client: str, size: int) -> Outcome:
    system = session.system(name)
    with fresh_topic(system, PARTITIONS) as topic:
        count = session.plan.messages(client, size)
        return produce(session.tools, client, system, topic, count=count, size=size)


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
