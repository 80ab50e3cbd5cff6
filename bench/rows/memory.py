"""Resident memory: idle, with many idle partitions, and after the load of the other rows."""

from __future__ import annotations

import time
from functools import partial

from bench.processes import resident_bytes
from bench.report import MEGABYTES, Outcome, Runs, Section, at_most, times_at_most
from bench.rows.fresh import GOQUEUE, fresh_servers, started
from bench.session import EVERY, KAFKA, Case, Session
from bench.topics import create_topic

SETTLE_SECONDS = 1.0
PARTITIONS_PER_TOPIC = 500


def measure(session: Session) -> None:
    """Servers of their own for the idle figures; the measured one for what load leaves behind."""
    section = session.section("Memory of the broker")
    section.notes += [
        "Idle: a new server with nothing in it, one second after it has started, with its child "
        "processes. What a JVM reserves and has not touched is not counted.",
    ]
    makers = fresh_servers(session)
    cases: dict[str, Case] = {name: partial(_idle, session, name) for name in makers}
    full_name = f"{session.plan.idle_partitions:,} idle partitions"
    runs = session.in_turns("memory", {**cases, full_name: partial(_full, session)})
    idle, full = runs[GOQUEUE], runs[full_name]
    section.add("idle, GoQueue", idle, "mb", MEGABYTES, target=at_most(90, "90 MB"))
    for name in makers:
        if name != GOQUEUE:
            target = times_at_most(0.2, "aim") if name == KAFKA else None
            section.add("idle, GoQueue", idle, "mb", MEGABYTES, reference=runs[name], target=target)
    section.add(
        f"with {full_name}", full, "mb", MEGABYTES, reference=idle, target=times_at_most(1.5)
    )
    _add_after_load(session, section, idle)


def _idle(session: Session, name: str) -> Outcome:
    with started(fresh_servers(session)[name], "memory-idle") as (server, _):
        time.sleep(SETTLE_SECONDS)
        return _resident(server.pid)


def _full(session: Session) -> Outcome:
    node = session.node("memory-full", {})
    try:
        node.start()
        left = session.plan.idle_partitions
        while left:
            count = min(left, PARTITIONS_PER_TOPIC)
            create_topic(node, count)
            left -= count
        time.sleep(SETTLE_SECONDS)
        return _resident(node.pid)
    finally:
        node.close()


def _add_after_load(session: Session, section: Section, idle: Runs) -> None:
    for name in (EVERY, KAFKA):
        if session.is_running(name):
            after = Runs(name, [_resident(session.system(name).pid)])
            reference = idle if name == EVERY else None
            row = f"after the runs above, {name}"
            section.add(row, after, "mb", MEGABYTES, reference=reference)


def _resident(pid: int) -> Outcome:
    return Outcome({"mb": resident_bytes(pid) / 1e6})
