"""The time from the start of the process to the first answer about metadata."""

from __future__ import annotations

import itertools
import shutil

from bench.load import fill, raw_produce
from bench.plan import GIB
from bench.processes import LoadFailed
from bench.report import SECONDS, Outcome, Runs, at_most, times_at_most
from bench.session import KAFKA, Session
from bench.systems import KafkaNode, Server, Unavailable
from bench.topics import Topic, create_topic, miscount

SIZE = 1000
FILL_AT_ONCE = 2_000_000
# The logs, and as much again for whatever else writes to this disk meanwhile.
DISK_ROOM = 2
# A crash finds writes to every partition since the last start.
CRASH_BATCHES_PER_PARTITION = 2


def measure(session: Session) -> None:
    """Empty, then with data after an orderly stop and after kill -9."""
    section = session.section("Start-up: process start to first metadata answer")
    section.notes.append(
        "With data: the page cache is as the stop left it; end offsets are compared each time."
    )
    numbers = itertools.count(1)
    names = session.with_peers("empty")
    cases = {
        name: (lambda: _restart_kafka(session))
        if name == KAFKA
        else (lambda: _start_empty(session, next(numbers)))
        for name in names
    }
    runs = session.in_turns("start-up, empty", cases)
    section.add("empty node", runs["empty"], "s", SECONDS, target=at_most(1.0, "1 s"))
    if KAFKA in runs:
        section.add(
            "empty node",
            runs["empty"],
            "s",
            SECONDS,
            reference=runs[KAFKA],
            target=times_at_most(0.2, "aim"),
        )
    clean, killed = _start_full(session)
    size = f"{session.plan.start_bytes / GIB:g} GB in {session.plan.start_partitions:,} partitions"
    section.add(f"{size}, after an orderly stop", clean, "s", SECONDS, target=at_most(2.0, "2 s"))
    section.add(f"{size}, after kill -9", killed, "s", SECONDS, target=at_most(10.0, "10 s"))


def _start_empty(session: Session, number: int) -> Outcome:
    node = session.node(f"start-{number}", {})
    try:
        return Outcome({"s": node.start()})
    finally:
        node.close()


def _restart_kafka(session: Session) -> Outcome:
    """A Kafka of its own: its storage is formatted by the first start, which is not timed."""
    kafka = KafkaNode(session.work / "start-kafka")
    try:
        return Outcome({"s": kafka.restart()})
    finally:
        kafka.close()


def _start_full(session: Session) -> tuple[Runs, Runs]:
    clean, killed = Runs("orderly stop"), Runs("kill -9")
    free = shutil.disk_usage(session.work).free
    if free < DISK_ROOM * session.plan.start_bytes:
        reason = f"{free / GIB:.0f} GB of free disk are too few; choose less with --start-gb"
        clean.skipped = killed.skipped = reason
        return clean, killed
    node = session.node("start-full", {})
    try:
        node.start()
        topic, stored = _fill(session, node)
        for _ in range(session.plan.repeat):
            node.stop()
            _restart(session, node, topic, stored, clean)
            stored += _write_everywhere(session, node, topic, stored)
            node.kill()
            _restart(session, node, topic, stored, killed)
    except Unavailable as error:
        clean.skipped = killed.skipped = str(error)
    except LoadFailed as error:
        clean.outcomes.append(Outcome({}, str(error)))
        killed.outcomes.append(Outcome({}, str(error)))
    finally:
        node.close()
    return clean, killed


def _fill(session: Session, node: Server) -> tuple[Topic, int]:
    topic = create_topic(node, session.plan.start_partitions)
    left = session.plan.start_bytes // SIZE
    stored = 0
    while left:
        count = min(left, FILL_AT_ONCE)
        outcome = fill(session.tools, node, topic, count=count, size=SIZE, held=stored)
        if outcome.void:
            raise LoadFailed(f"the node could not be filled: {outcome.void}")
        stored += int(outcome.values["acked"])
        left -= count
        session.say(f"start-up: {stored * SIZE / 1e9:.1f} GB written")
    return topic, stored


def _write_everywhere(session: Session, node: Server, topic: Topic, held: int) -> int:
    outcome = raw_produce(
        session.tools,
        node,
        topic,
        connections=16,
        depth=1,
        size=SIZE,
        count=topic.partitions * CRASH_BATCHES_PER_PARTITION,
        held=held,
    )
    if outcome.void:
        raise LoadFailed(f"the node could not be written to: {outcome.void}")
    return int(outcome.values["acked"])


def _restart(session: Session, node: Server, topic: Topic, stored: int, runs: Runs) -> None:
    seconds = node.start()
    runs.outcomes.append(Outcome({"s": seconds}, miscount(node, topic, stored)))
    session.say(f"start-up after {runs.label}: {seconds:.2f} s {runs.outcomes[-1].void}")
