"""A million messages that are due later: taking them in, holding, releasing and cancelling them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.http_load import call, cancel, publish, schedule
from bench.load import kafka_schedule, watch_releases
from bench.plan import PARTITIONS
from bench.processes import LoadFailed, cpu_seconds, finish_load, resident_bytes
from bench.report import (
    CORES,
    MEGABYTES,
    MESSAGES,
    MICROSECONDS,
    MILLISECONDS,
    Outcome,
    Runs,
    Section,
    at_least,
    at_most,
)
from bench.rows.delayed import NOTES, add_peers, measure_peers
from bench.session import Session
from bench.systems import Server, Unavailable
from bench.topics import create_topic

SIZE = 100
BATCH = 1000
CONNECTIONS = 4
PACE = 1_000
CANCEL_CONNECTIONS = 16
HOUR_MS = 3_600_000
SETTLE_SECONDS = 1.0
# Inserting takes a while, and what is due before the last one is in would be late for no fault of
# the broker's: so the window begins when an insert at the required rate has ended twice over.
INSERT_PER_S_MIN = 50_000
LEAD_MS_MIN = 3_000
LATE_SECONDS_MAX = 60


@dataclass(slots=True)
class Parts:
    """What is measured on each node, in this order."""

    insert: Runs = field(default_factory=lambda: Runs("HTTP"))
    memory: Runs = field(default_factory=lambda: Runs("resident memory"))
    kafka: Runs = field(default_factory=lambda: Runs("librdkafka in C"))
    cancel_one: Runs = field(default_factory=lambda: Runs("cancel one by one"))
    cancel_many: Runs = field(default_factory=lambda: Runs("cancel in batches"))
    steady: Runs = field(default_factory=lambda: Runs("firing at a steady pace"))
    firing: Runs = field(default_factory=lambda: Runs("firing all"))


def measure(session: Session) -> None:
    """A node of its own for each round, because what waits on it would weigh on other rows."""
    plan, parts = session.plan, Parts()
    section = session.section(f"Schedules: {plan.schedules:,} messages of {SIZE} B, fsync every")
    section.notes += [
        f"HTTP: {BATCH} messages per request, {CONNECTIONS} connections, due within one hour, in "
        "no order. Memory is what the node grew by while they were inserted; `due at once` means "
        "those that are to fire, which are all held in memory.",
        "Kafka: a stock producer sets the header `goqueue-delay-ms`; acks=all, linger 5 ms.",
        f"Firing: first {PACE // 1000} k msg/s for {plan.schedule_pace_seconds} s, then "
        f"{plan.schedules:,} due over {plan.schedule_window_seconds} s, while those inserted "
        "before wait. They are due in another order than they came, so that their payloads lie "
        "anywhere. The error is the time the broker put a message into its topic, less the time "
        "it was due; `seen` is the same by the clock of a consumer that follows. A message that "
        "is early, missing or comes twice makes the run void.",
    ]
    for turn in range(plan.repeat):
        node = session.node(f"schedules-{turn}", {"storage.fsync": "every"})
        try:
            node.start()
            _measure_node(session, node, parts, turn)
        except Unavailable as error:
            parts.insert.skipped = str(error)
        finally:
            node.close()
    peers = measure_peers(
        session,
        count=plan.schedules,
        size=SIZE,
        lead_ms=_lead_ms(plan.schedules),
        window_ms=plan.schedule_window_seconds * 1000,
    )
    _report(section, parts)
    if peers:
        section.notes += NOTES
        add_peers(section, peers, insert=parts.insert, by_kafka=parts.kafka, firing=parts.firing)


def _measure_node(session: Session, node: Server, parts: Parts, turn: int) -> None:
    plan = session.plan
    pace_seconds, window_seconds = plan.schedule_pace_seconds, plan.schedule_window_seconds
    ids = session.work / f"schedules-{turn}.ids"
    title = f"schedules, round {turn + 1}"
    steps = (
        (parts.insert, partial(_insert, session, node, ids, parts.memory)),
        (parts.cancel_one, partial(_cancel_one, session, node, ids)),
        (parts.cancel_many, partial(_cancel_many, session, node, ids)),
        (parts.kafka, partial(_insert_by_kafka, session, node)),
        (parts.steady, partial(_fire, session, node, PACE * pace_seconds, pace_seconds)),
        (parts.firing, partial(_fire, session, node, plan.schedules, window_seconds)),
    )
    try:
        for runs, step in steps:
            if not runs.skipped:
                session.run_once(f"{title}, {runs.label}", step, runs)
    finally:
        ids.unlink(missing_ok=True)


def _insert(session: Session, node: Server, ids: Path, memory: Runs) -> Outcome:
    topic = create_topic(node, PARTITIONS)
    warm = create_topic(node, PARTITIONS)
    # What a node needs to serve HTTP at all is not what schedules cost; but no more than that, or
    # memory that it has given back to itself would hide what they cost.
    publish(session.tools, node, warm, connections=CONNECTIONS, records=1, count=1000)
    time.sleep(SETTLE_SECONDS)
    before = resident_bytes(node.pid)
    outcome = schedule(
        session.tools,
        node,
        topic,
        count=session.plan.schedules,
        size=SIZE,
        at_once=BATCH,
        connections=CONNECTIONS,
        due_from_ms=HOUR_MS,
        due_until_ms=2 * HOUR_MS,
        ids=ids,
    )
    time.sleep(SETTLE_SECONDS)
    grown = resident_bytes(node.pid) - before
    memory.outcomes.append(Outcome({"mb": grown / 1e6}, outcome.void))
    pending = call(node, "GET", "/v1/schedules/stats")["pending"]
    if not outcome.void and pending != session.plan.schedules:
        return Outcome(outcome.values, f"{pending:,} of {session.plan.schedules:,} are pending")
    return outcome


def _cancel_one(session: Session, node: Server, ids: Path) -> Outcome:
    count = session.plan.schedule_cancels_single
    return _cancel(session, node, ids, count=count, at_once=1)


def _cancel_many(session: Session, node: Server, ids: Path) -> Outcome:
    first = _take_lines(ids, 1)[0]
    answer = call(node, "POST", "/v1/schedules/cancel", {"ids": [first]})
    if answer["failed"]:
        raise LoadFailed(f"a schedule could not be cancelled: {answer}")
    count = session.plan.schedule_cancels
    return _cancel(session, node, ids, count=count, at_once=BATCH)


def _cancel(session: Session, node: Server, ids: Path, *, count: int, at_once: int) -> Outcome:
    chosen = ids.with_suffix(".chosen")
    chosen.write_text("".join(f"{line}\n" for line in _take_lines(ids, count)))
    before = call(node, "GET", "/v1/schedules/stats")["pending"]
    try:
        outcome = cancel(
            session.tools,
            node,
            ids=chosen,
            count=count,
            at_once=at_once,
            connections=CANCEL_CONNECTIONS if at_once == 1 else CONNECTIONS,
        )
    finally:
        chosen.unlink()
    gone = before - call(node, "GET", "/v1/schedules/stats")["pending"]
    if not outcome.void and gone != count:
        return Outcome(outcome.values, f"{count:,} were cancelled and {gone:,} are gone")
    return outcome


def _take_lines(path: Path, count: int) -> list[str]:
    """The last lines of a file, which loses them: an id is cancelled once."""
    lines = path.read_text().splitlines()
    if len(lines) < count:
        raise LoadFailed(f"{count:,} schedules are to be cancelled and {len(lines):,} are known")
    path.write_text("".join(f"{line}\n" for line in lines[:-count]))
    return lines[-count:]


def _insert_by_kafka(session: Session, node: Server) -> Outcome:
    topic, count = create_topic(node, PARTITIONS), session.plan.schedules
    before = call(node, "GET", "/v1/schedules/stats")["pending"]
    outcome = kafka_schedule(
        session.tools,
        node,
        topic,
        count=count,
        size=SIZE,
        due_from_ms=HOUR_MS,
        due_until_ms=2 * HOUR_MS,
    )
    added = call(node, "GET", "/v1/schedules/stats")["pending"] - before
    if not outcome.void and added != count:
        return Outcome(outcome.values, f"{count:,} were acknowledged and {added:,} are pending")
    return outcome


def _fire(session: Session, node: Server, count: int, seconds: int) -> Outcome:
    topic = create_topic(node, PARTITIONS)
    ids = session.work / "schedules.firing"
    lead_ms = _lead_ms(count)
    window_ms = seconds * 1000
    resident = resident_bytes(node.pid)
    begin = time.monotonic()
    inserted = schedule(
        session.tools,
        node,
        topic,
        count=count,
        size=SIZE,
        at_once=BATCH,
        connections=CONNECTIONS,
        due_from_ms=lead_ms,
        due_until_ms=lead_ms + window_ms,
        ids=ids,
    )
    ids.unlink(missing_ok=True)
    if inserted.void:
        return inserted
    if (time.monotonic() - begin) * 1000 > lead_ms:
        return Outcome({}, f"the insert took longer than {lead_ms / 1000:.0f} s")
    grown = resident_bytes(node.pid) - resident
    left_seconds = (lead_ms + window_ms) / 1000 - (time.monotonic() - begin)
    before, watch_begin = cpu_seconds(node.pid), time.monotonic()
    # Time enough to see how late the last ones are, if they are.
    watching = watch_releases(
        session.tools,
        node,
        topic,
        count=count,
        size=SIZE,
        seconds_max=left_seconds + LATE_SECONDS_MAX,
    )
    result = finish_load(watching, left_seconds + 2 * LATE_SECONDS_MAX)
    cores = (cpu_seconds(node.pid) - before) / (time.monotonic() - watch_begin)
    void = ""
    if result["failed"] or result["missing"]:
        void = f"{result['missing']:,} missing, {result['first_error']}"
    elif result["early"]:
        void = f"{result['early']:,} early, by up to {-result['earliest_ms']} ms"
    names = ("p50_ms", "p99_ms", "max_ms", "seen_p50_ms", "seen_p99_ms")
    values = {name: result[name] for name in names}
    return Outcome(values | {"broker_cores": cores, "mb": grown / 1e6}, void)


def _lead_ms(count: int) -> int:
    return max(2 * count * 1000 // INSERT_PER_S_MIN, LEAD_MS_MIN)


def _report(section: Section, parts: Parts) -> None:
    fast = at_least(100_000, "100 k msg/s")
    section.add("insert over HTTP", parts.insert, "insert_per_s", MESSAGES, target=fast)
    section.add(
        "insert over HTTP: broker CPU per message", parts.insert, "insert_broker_us", MICROSECONDS
    )
    section.add("insert by a Kafka producer", parts.kafka, "insert_per_s", MESSAGES, target=fast)
    small = at_most(150, "150 MB")
    section.add("memory growth, due in an hour", parts.memory, "mb", MEGABYTES, target=small)
    section.add("memory growth, due at once", parts.firing, "mb", MEGABYTES, target=small)
    for runs, row in (
        (parts.steady, f"firing {PACE // 1000} k msg/s"),
        (parts.firing, "firing all"),
    ):
        for metric, what in (("p50_ms", "p50"), ("p99_ms", "p99"), ("max_ms", "largest")):
            target = at_most(20.0, "20 ms") if what == "p99" else None
            section.add(f"{row}: error, {what}", runs, metric, MILLISECONDS, target=target)
        section.add(f"{row}: error as seen, p99", runs, "seen_p99_ms", MILLISECONDS)
        section.add(f"{row}: broker CPU", runs, "broker_cores", CORES)
    target = at_least(50_000, "50 k msg/s")
    section.add("cancel, one per request", parts.cancel_one, "cancel_per_s", MESSAGES)
    section.add(
        f"cancel, {BATCH} per request", parts.cancel_many, "cancel_per_s", MESSAGES, target=target
    )
