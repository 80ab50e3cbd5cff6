"""The time from the start of a process to its first answer: empty, and with much data."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from bench.load import fill, raw_produce
from bench.peers import PeerUnavailable
from bench.plan import GIB
from bench.processes import LoadFailed
from bench.report import SECONDS, Outcome, Runs, Section, at_most, times_at_most
from bench.rows.fresh import GOQUEUE, fresh_servers, started
from bench.session import KAFKA, Case, Session
from bench.systems import System, Unavailable, ask_metadata
from bench.topics import Topic, create_topic, miscount, wait_until_led

SIZE = 1000
FILL_AT_ONCE = 2_000_000
# The logs, and as much again for whatever else writes to this disk meanwhile.
DISK_ROOM = 2
# A crash finds writes to every partition since the last start.
CRASH_BATCHES_PER_PARTITION = 2
_numbers = itertools.count(1)


class Node(System, Protocol):
    """A server that keeps its data when it ends; `start` tells the seconds it took."""

    def start(self) -> float: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


def measure(session: Session) -> None:
    """Empty, then with data after an orderly stop and after kill -9."""
    section = session.section("Start-up: process start to first answer")
    section.notes += [
        "GoQueue and Kafka have started when a metadata request is answered, the others when they "
        "answer a request of their own protocol. Each is started once before, so that its program "
        "is in the page cache; Kafka's storage is formatted before it is timed.",
        "With data: the page cache is as the stop left it. End offsets are compared each time, and "
        "`all partitions` is the time until all of them are told.",
    ]
    _measure_empty(session, section)
    makers: dict[str, Callable[[], Node]] = {
        GOQUEUE: lambda: session.node("start-full", {}),
    }
    if "kafka" in session.peers:
        makers[KAFKA] = lambda: _KafkaServer(session.work / "start-kafka")
    found = {name: _start_full(session, name, make) for name, make in makers.items()}
    _add_full(session, section, found)


def _measure_empty(session: Session, section: Section) -> None:
    makers = fresh_servers(session)
    cases: dict[str, Case] = {name: partial(_start_empty, session, name) for name in makers}
    for name, case in cases.items():
        session.run_once("start-up, not counted", case, Runs(name))
    runs = session.in_turns("start-up, empty", cases)
    mine = runs[GOQUEUE]
    section.add("empty, GoQueue", mine, "s", SECONDS, target=at_most(1.0, "1 s"))
    for name in makers:
        if name != GOQUEUE:
            target = times_at_most(0.2, "aim") if name == KAFKA else None
            section.add("empty, GoQueue", mine, "s", SECONDS, reference=runs[name], target=target)


def _start_empty(session: Session, name: str) -> Outcome:
    with started(fresh_servers(session)[name], f"start-{next(_numbers)}") as (_, seconds):
        return Outcome({"s": seconds})


def _add_full(session: Session, section: Section, found: dict[str, tuple[Runs, Runs]]) -> None:
    size = f"{session.plan.start_bytes / GIB:g} GB in {session.plan.start_partitions:,} partitions"
    stops = (
        ("after an orderly stop", at_most(2.0, "2 s")),
        ("after kill -9", at_most(10.0, "10 s")),
    )
    for at, (how, target) in enumerate(stops):
        mine = found[GOQUEUE][at]
        section.add(f"{size}, {how}, GoQueue", mine, "s", SECONDS, target=target)
        peer = found[KAFKA][at] if KAFKA in found else None
        section.add(f"{size}, {how}, all partitions, GoQueue", mine, "all_s", SECONDS)
        if peer is not None:
            for metric, what in (("s", ""), ("all_s", ", all partitions")):
                section.add(
                    f"{size}, {how}{what}, GoQueue",
                    mine,
                    metric,
                    SECONDS,
                    reference=peer,
                    target=times_at_most(0.2, "aim"),
                )


def _start_full(session: Session, name: str, make: Callable[[], Node]) -> tuple[Runs, Runs]:
    clean, killed = Runs(name), Runs(name)
    free = shutil.disk_usage(session.work).free
    if free < DISK_ROOM * session.plan.start_bytes:
        reason = f"{free / GIB:.0f} GB of free disk are too few; choose less with --start-gb"
        clean.skipped = killed.skipped = reason
        return clean, killed
    node = make()
    try:
        node.start()
        topic, stored = _fill(session, node)
        for _ in range(session.plan.repeat):
            node.stop()
            _restart(session, node, topic, stored, clean, "an orderly stop")
            stored += _write_everywhere(session, node, topic, stored)
            node.kill()
            _restart(session, node, topic, stored, killed, "kill -9")
    except (Unavailable, PeerUnavailable) as error:
        clean.skipped = killed.skipped = str(error)
    except LoadFailed as error:
        clean.outcomes.append(Outcome({}, str(error)))
        killed.outcomes.append(Outcome({}, str(error)))
    finally:
        node.close()
    return clean, killed


def _fill(session: Session, node: Node) -> tuple[Topic, int]:
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


def _write_everywhere(session: Session, node: Node, topic: Topic, held: int) -> int:
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


def _restart(session: Session, node: Node, topic: Topic, stored: int, runs: Runs, how: str) -> None:
    begin = time.monotonic()
    seconds = node.start()
    wait_until_led(node, topic)
    values = {"s": seconds, "all_s": time.monotonic() - begin}
    runs.outcomes.append(Outcome(values, miscount(node, topic, stored)))
    session.say(
        f"start-up of {runs.label} after {how}: {seconds:.2f} s, all partitions "
        f"{values['all_s']:.2f} s {runs.outcomes[-1].void}"
    )


class _KafkaServer:
    """Apache Kafka as a node that is stopped, killed and started again."""

    name = KAFKA
    is_storing = True

    def __init__(self, home: Path) -> None:
        # Imported here, because only a run that asks for peers needs it.
        from bench.peers.kafka import Kafka

        home.mkdir(parents=True, exist_ok=True)
        self._kafka = Kafka(directory=home)

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def pid(self) -> int:
        return self._kafka.pid

    @property
    def data_dir(self) -> Path:
        return self._kafka.data_dir

    def start(self) -> float:
        begin = time.monotonic()
        self._kafka.start()
        ask_metadata(self.bootstrap)
        return time.monotonic() - begin

    def stop(self) -> None:
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()

    def close(self) -> None:
        self._kafka.close()
