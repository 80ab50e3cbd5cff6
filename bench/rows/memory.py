"""Resident memory: idle, with many idle partitions, and after the load of the other rows."""

from __future__ import annotations

import time

from bench.processes import resident_bytes
from bench.report import MEGABYTES, Outcome, Runs, Section, at_most, times_at_most
from bench.session import EVERY, KAFKA, Session
from bench.systems import Unavailable
from bench.topics import create_topic

SETTLE_SECONDS = 1.0
PARTITIONS_PER_TOPIC = 500


def measure(session: Session) -> None:
    """A node of its own for the idle figures; the measured one for what load leaves behind."""
    section = session.section("Memory of the broker")
    idle, full = Runs("idle"), Runs(f"{session.plan.idle_partitions:,} idle partitions")
    for turn in range(session.plan.repeat):
        try:
            _measure_idle(session, turn, idle, full)
        except Unavailable as error:
            idle.skipped = full.skipped = str(error)
            break
    section.add("idle node", idle, "mb", MEGABYTES, target=at_most(90, "90 MB"))
    section.add(
        f"with {session.plan.idle_partitions:,} idle partitions",
        full,
        "mb",
        MEGABYTES,
        reference=idle,
        target=times_at_most(1.5),
    )
    _add_kafka(session, section, idle)
    if session.is_running(EVERY):
        after = Runs("after load", [_resident(session.system(EVERY).pid)])
        section.add("after the runs above", after, "mb", MEGABYTES, reference=idle)


def _measure_idle(session: Session, turn: int, idle: Runs, full: Runs) -> None:
    node = session.node(f"memory-{turn}", {})
    node.start()
    try:
        time.sleep(SETTLE_SECONDS)
        idle.outcomes.append(_resident(node.pid))
        session.say(f"memory: idle {idle.outcomes[-1].values['mb']:.0f} MB")
        left = session.plan.idle_partitions
        while left:
            count = min(left, PARTITIONS_PER_TOPIC)
            create_topic(node, count)
            left -= count
        time.sleep(SETTLE_SECONDS)
        full.outcomes.append(_resident(node.pid))
        session.say(f"memory: {full.label} {full.outcomes[-1].values['mb']:.0f} MB")
    finally:
        node.close()


def _add_kafka(session: Session, section: Section, idle: Runs) -> None:
    if "kafka" not in session.peers:
        return
    kafka = Runs(f"{KAFKA}, as it runs now")
    try:
        kafka.outcomes = [_resident(session.system(KAFKA).pid)] * max(len(idle.outcomes), 1)
    except Unavailable as error:
        kafka.skipped = str(error)
    section.add(
        "idle node",
        idle,
        "mb",
        MEGABYTES,
        reference=kafka,
        target=times_at_most(0.2, "aim"),
    )


def _resident(pid: int) -> Outcome:
    return Outcome({"mb": resident_bytes(pid) / 1e6})
