"""What a message costs beside many consumers, and a schedule beside many others."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench import load
from bench.http_load import call, cancel, receive_and_ack, schedule
from bench.plan import PARTITIONS
from bench.report import SECONDS, Outcome, Point, Section
from bench.rows.curves import add_curve, at_levels
from bench.rows.queues import new_group
from bench.session import EVERY, KAFKA, Session
from bench.systems import Server
from bench.topics import create_topic, end_offsets, fresh_topic

SIZE = 100
BATCH = 10
GROUP_PARTITIONS = 64
SCHEDULES_AT_ONCE = 1_000
SCHEDULE_CONNECTIONS = 4
HOUR_MS = 3_600_000


def measure(session: Session, section: Section) -> None:
    """Queue groups, stream groups, schedules."""
    section.notes += [
        f"Consumers of a queue group: {SIZE} B over HTTP, received and acknowledged {BATCH} at a "
        "time by each.",
        f"Members of a stream group: stock librdkafka consumers on {GROUP_PARTITIONS} partitions, "
        f"{SIZE} B, read while they are produced; producing is part of the cost. The more members, "
        "the fewer messages there are in an answer to each.",
        "Schedules: so many wait; then others are added over HTTP, and as many are cancelled.",
    ]
    _measure_queue_group(session, section)
    joins = session.section("Growth: the time until a group has formed")
    joins.notes.append(
        "From the first member's subscription until all partitions are given out and every member "
        "has some. librdkafka joins again at most once a second when others have come."
    )
    for name in session.with_peers(EVERY):
        _measure_stream_group(session, section, joins, name)
    _measure_schedules(session, section)


def _measure_queue_group(session: Session, section: Section) -> None:
    levels, case = session.plan.growth_consumers, partial(_receive, session)
    runs = at_levels(session, "growth, queue group", "consumers", levels, case)
    add_curve(section, runs, "broker_cpu_us", axis="consumers", series=f"queue group, {EVERY}")


def _receive(session: Session, consumers: int) -> Outcome:
    server = session.server(EVERY)
    with fresh_topic(server, PARTITIONS) as topic:
        filled = load.fill(
            *(session.tools, server, topic),
            count=session.plan.growth_consumer_messages,
            size=SIZE,
            held=0,
        )
        if filled.void:
            return filled
        return receive_and_ack(
            *(session.tools, server, topic, new_group(server)),
            consumers=consumers,
            at_once=BATCH,
            count=sum(end_offsets(server, topic)),
        )


def _measure_stream_group(session: Session, section: Section, joins: Section, name: str) -> None:
    levels, case = session.plan.growth_consumers, partial(_join, session, name)
    runs = at_levels(session, f"growth, stream group, {name}", "consumers", levels, case)
    add_curve(
        section,
        runs,
        "group_us",
        axis="consumers",
        series=f"stream group, {name}",
        is_judged=name != KAFKA,
    )
    for level, each in runs.items():
        row, point = f"{level:,} consumers, {name}", Point("consumers", name, level)
        joins.add(row, each, "join_s", SECONDS, point=point)


def _join(session: Session, name: str, members: int) -> Outcome:
    system, count = session.system(name), session.plan.growth_consumer_messages * 10
    with fresh_topic(system, GROUP_PARTITIONS) as topic:
        result = load.run(
            [
                *(str(session.tools.rdkafka_groups()), "group", "--brokers", system.bootstrap),
                *("--topic", topic.name, "--group", f"group-{topic.name}"),
                *("--partitions", str(GROUP_PARTITIONS), "--members", str(members)),
                *("--count", str(count), "--size", str(SIZE)),
                *("--server-pid", str(system.pid), "--seconds-max", str(load.RUN_SECONDS_MAX)),
            ]
        )
    values = {
        "group_us": result["server_cpu_seconds"] * 1e6 / max(result["acked"], 1),
        "join_s": result["join_seconds"],
        "join_cpu_s": result["join_server_cpu_seconds"],
        "messages_per_s": result["messages_per_s"],
    }
    return Outcome(values, load.complaint(result))


def _measure_schedules(session: Session, section: Section) -> None:
    levels, case = session.plan.growth_schedules, partial(_schedule, session)
    runs = at_levels(session, "growth", "scheduled messages", levels, case)
    for metric, what in (
        ("insert_broker_us", "schedule one more"),
        ("cancel_broker_us", "cancel one"),
    ):
        add_curve(section, runs, metric, axis="scheduled messages", series=what)


def _schedule(session: Session, level: int) -> Outcome:
    """A node of its own, because what waits on it would weigh on other rows."""
    node = session.node(f"growth-schedules-{level}", {"storage.fsync": "every"})
    ids = session.work / "growth.ids"
    try:
        node.start()
        waiting = _insert(session, node, level, ids)
        if waiting.void:
            return waiting
        probe = session.plan.growth_schedule_probe
        added = _insert(session, node, probe, ids)
        gone = cancel(
            *(session.tools, node),
            ids=ids,
            count=probe,
            at_once=SCHEDULES_AT_ONCE,
            connections=SCHEDULE_CONNECTIONS,
        )
        left = call(node, "GET", "/v1/schedules/stats")["pending"]
    finally:
        node.close()
        ids.unlink(missing_ok=True)
    void = added.void or gone.void
    if not void and left != level:
        void = f"{left:,} are pending instead of {level:,}"
    return Outcome(added.values | gone.values, void)


def _insert(session: Session, node: Server, count: int, ids: Path) -> Outcome:
    return schedule(
        *(session.tools, node, create_topic(node, PARTITIONS)),
        count=count,
        size=SIZE,
        at_once=SCHEDULES_AT_ONCE,
        connections=SCHEDULE_CONNECTIONS,
        due_from_ms=HOUR_MS,
        due_until_ms=2 * HOUR_MS,
        ids=ids,
    )
