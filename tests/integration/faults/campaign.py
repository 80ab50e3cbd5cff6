"""Runs all workloads on three nodes that are broken in every way, and judges what clients saw."""

from __future__ import annotations

import logging
import random
import shutil
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.integration.cluster import CLUSTER_SETTINGS
from tests.integration.waiting import eventually

from . import replicas, rules
from .machines import MachineBroker, Network, faketime_library, slow_link
from .nemesis import Deed, Nemesis
from .operations import Fault, History
from .reading import TopicReader
from .workloads.base import Logs, Site, Workload
from .workloads.grpc import GrpcQueue
from .workloads.logs import HttpSchedules, KafkaDelayed, KafkaLog
from .workloads.offsets import HttpStream, KafkaOffsets
from .workloads.queues import HttpQueue
from .workloads.shares import KafkaShare
from .workloads.sqs import SqsFifo, SqsStandard
from .workloads.transactions import HttpTransactions, KafkaTransactions

WORKLOADS: tuple[type[Workload], ...] = (
    KafkaLog,
    KafkaDelayed,
    HttpSchedules,
    HttpQueue,
    GrpcQueue,
    KafkaShare,
    SqsStandard,
    SqsFifo,
    KafkaTransactions,
    HttpTransactions,
    KafkaOffsets,
    HttpStream,
)
NODES = 3
DISK_BYTES = 192 << 20
RSS_BYTES_MAX = 700 << 20
# Within five minutes, for which deduplication ids are remembered by the time of day.
SKEWS_SECONDS = (-100, -2, 0, 5, 100)
# How long a fault lasts: shorter and longer than it takes the others to notice.
FAULT_SECONDS = (1.0, 9.0)
CALM_SECONDS = (0.5, 5.0)
WHOLE_SECONDS_MAX = 90.0
DRAIN_SECONDS_MAX = 400.0
DRAIN_SILENCE_SECONDS = 60.0  # nothing more is expected after so long without progress
END_SECONDS_MAX = 60.0
READ_SECONDS_MAX = 60.0
SAME_SECONDS_MAX = 30.0
STALE_FAULTS = frozenset(
    (
        "pause_the_leader",
        "pause_anyone",
        "isolate_the_leader",
        "split_one_way",
        "cut_the_leader_one_way",
        "bridge",
        "lose_packets",
        "slow_links",
    )
)
SETTINGS: dict[str, object] = {
    **CLUSTER_SETTINGS,
    "storage.commit_journal_bytes": 1 << 20,
    "storage.free_bytes_min": 1 << 20,
}
SESSION_MS = 2_000
SHOWN_MAX = 10  # violations of a rule in the report; all are in its folder

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Plan:
    """What one run is to do."""

    seed: int
    seconds: float
    folder: Path  # where the report, the history and the logs of the nodes go
    workloads: Sequence[str] = ()  # names; empty for all
    faults: Sequence[str] = ()  # names; empty for all
    # How long after a repair an owner that was replaced may act; without it, it never may.
    stale_seconds: float | None = None
    pace: float = 1.0
    slack: float = 1.0  # nodes are missed, and faults last, so many times as long


@dataclass(slots=True)
class Report:
    """What came of a run."""

    plan: Plan
    history: History
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[str, rules.Violation]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # of the campaign itself
    stale: Counter[str] = field(default_factory=Counter)
    rss_bytes: dict[int, int] = field(default_factory=dict)
    partitions: int = 0
    waited_for_cpu: float = 0.0  # the share of the time in which some process had to
    not_done: list[str] = field(default_factory=list)  # faults that this machine cannot make

    @property
    def is_clean(self) -> bool:
        return not self.violations and not self.failures

    def text(self) -> str:
        plan, total = self.plan, len(self.history.operations)
        lines = [f"seed {plan.seed}: {total} operations, {sum(self.faults.values())} faults"]
        lines += [f"  {name}: {_listed(found)}" for name, found in self.history.counts().items()]
        lines.append(f"  faults: {_listed(self.faults)}")
        if self.not_done:
            lines.append(f"  not possible on this machine: {', '.join(self.not_done)}")
        if self.stale:
            lines.append(f"  by stale owners, within the bound: {_listed(self.stale)}")
        memory = ", ".join(f"{one >> 20} MiB" for one in self.rss_bytes.values())
        lines.append(f"  resident memory: {memory}; {self.partitions} partitions compared")
        lines.append(f"  processes waited for a processor {self.waited_for_cpu:.0%} of the time")
        by_rule = Counter(f"{name}: {one.rule}" for name, one in self.violations)
        lines.append(f"  violations: {_listed(by_rule) or 'none'}")
        shown: Counter[str] = Counter()
        for name, one in self.violations:
            shown[f"{name}: {one.rule}"] += 1
            if shown[f"{name}: {one.rule}"] <= SHOWN_MAX:
                lines.append(f"    {name}: {one}")
        lines += [f"  failure of the campaign: {one}" for one in self.failures]
        lines.append(f"  more in {plan.folder}")
        return "\n".join(lines)

    def save(self, nodes: dict[int, MachineBroker]) -> None:
        """Write the report, the history, what concerns each violation, and the nodes' logs."""
        folder = self.plan.folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.txt").write_text(self.text() + "\n")
        self.history.save(folder / "history.jsonl")
        for number, node in nodes.items():
            (folder / f"node-{number}.log").write_text(node.log_text)
        with (folder / "violations.txt").open("w") as lines:
            for name, one in self.violations:
                about = self.history.about([one.message])
                lines.write(f"{name}: {one}\n" + "".join(f"    {line}\n" for line in about))


class Machines:
    """Three nodes on machines of their own."""

    def __init__(self, directory: Path, slack: float) -> None:
        settings = SETTINGS | {
            "cluster.session_ms": int(SESSION_MS * slack),
            "cluster.heartbeat_ms": SESSION_MS // 4,
        }
        self._slack = slack
        self.network = Network(NODES)
        self.nodes: dict[int, MachineBroker] = {}
        for number in self.network.numbers:
            home = directory / f"node-{number}"
            home.mkdir(parents=True)
            self.nodes[number] = MachineBroker(
                home, settings, node_id=number, network=self.network, disk_bytes=DISK_BYTES
            )
            self.nodes[number].start_seconds_max *= slack

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        self.network.make()
        for node in self.nodes.values():
            node.mount()
            node.launch()
        for node in self.nodes.values():
            node.until_ready()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def close(self) -> None:
        for node in self.nodes.values():
            node.resume()
            node.close()
            node.unmount()
        self.network.remove()

    def until_whole(self) -> None:
        """Wait until every replica of every topic is in sync."""
        within = WHOLE_SECONDS_MAX * self._slack
        eventually(self._is_whole, because="every replica is in sync", within=within)

    def partitions(self) -> dict[str, int]:
        found = self._admin.list_topics(timeout=20).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def leader(self, chance: random.Random) -> int:
        """Who leads a partition of some topic, internal ones included; anyone if nobody says."""
        try:
            topics = self._admin.list_topics(timeout=2).topics
        except KafkaException:
            return 1
        if not topics:  # A node that starts does not know any yet.
            return 1
        topic = topics[chance.choice(sorted(topics))]
        partition = topic.partitions.get(chance.randrange(max(1, len(topic.partitions))))
        found = -1 if partition is None else int(partition.leader)
        return found if found in self.nodes else 1

    def different(self) -> list[rules.Violation]:
        """Replicas that stay different although nobody writes any more."""
        deadline = time.monotonic() + SAME_SECONDS_MAX
        while True:
            logs = {
                number: replicas.digests(node.segments(), node.data_dir / "logs")
                for number, node in self.nodes.items()
            }
            found = [
                one
                for one in replicas.different(logs)
                if not one.message.startswith(replicas.COMPACTED)
            ]
            if not found or time.monotonic() > deadline:
                self.compared = len({one for each in logs.values() for one in each})
                return found
            time.sleep(1)

    def _is_whole(self) -> bool:
        try:
            topics = self._admin.list_topics(timeout=5).topics.values()
        except KafkaException:
            return False
        return all(
            one.leader in self.nodes and len(one.isrs) == NODES
            for topic in topics
            for one in topic.partitions.values()
        )


class Campaign:
    """One run: clients of all kinds, faults, repair, and the rules."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.machines = Machines(directory, plan.slack)
        self.history = History()
        self.report = Report(plan, self.history)
        self._chance = random.Random(f"{plan.seed} campaign")
        excusing = [] if plan.stale_seconds is None else self.history.faults
        self.stale = rules.Stale(excusing, plan.stale_seconds or 0.0)
        self.site = Site(self.machines.nodes, self.history, plan.seed, self.stale, pace=plan.pace)
        self.workloads = [
            one(self.site) for one in WORKLOADS if not plan.workloads or one.name in plan.workloads
        ]

    def run(self) -> Report:
        waits = _cpu_waits()
        try:
            self.machines.start()
            self._run()
        except AssertionError as error:
            # A node that does not start, or replicas that never get in sync, are findings too.
            _log.exception("the campaign cannot go on")
            self._violate("cluster", "not whole", str(error))
        finally:
            self.site.over.set()
            self.report.waited_for_cpu = (_cpu_waits() - waits) / self.history.now()
            self.report.save(self.machines.nodes)
            self.machines.close()
        return self.report

    def _run(self) -> None:
        for workload in self.workloads:
            workload.prepare()
        self.machines.until_whole()
        readers = self._readers()
        self.site.sending.set()
        threads = [thread for workload in self.workloads for thread in workload.start()]
        for reader in readers:
            reader.start()
        self._break_things()
        self._drain()
        self._end(threads)
        for reader in readers:
            reader.finish()
        self._judge(readers)

    # Faults

    def _break_things(self) -> None:
        nemesis = Nemesis(
            self.machines.nodes,
            self.machines.network,
            self.plan.seed,
            leader=lambda: self.machines.leader(self._chance),
            until_whole=self.machines.until_whole,
            skews_seconds=SKEWS_SECONDS,
        )
        if faketime_library() is None:
            self.report.not_done.append("clock jumps (Debian: libfaketime)")
        if not slow_link():
            self.report.not_done.append("slow links")
        over = self.history.now() + self.plan.seconds
        self._calm()
        deeds: list[Deed] = []
        while self.history.now() < over:
            deeds = deeds or nemesis.order()
            deed = deeds.pop()
            if not self.plan.faults or deed.__name__ in self.plan.faults:
                self._break(nemesis, deed)
                self._calm()
        for ended in nemesis.ended:
            self._violate("cluster", "node ended by itself", ended)

    def _break(self, nemesis: Nemesis, deed: Deed) -> None:
        name = deed.__name__
        fault = Fault(
            name=name,
            text="",
            start=self.history.now(),
            may_leave_stale_owner=name in STALE_FAULTS,
        )
        self.history.faults.append(fault)
        fault.text = nemesis.strike(deed)
        self._note_clocks()
        self.site.over.wait(self._chance.uniform(*FAULT_SECONDS) * self.plan.slack)
        nemesis.mend()
        fault.end = self.history.now()
        self.report.faults[name] += 1

    def _note_clocks(self) -> None:
        offsets = {number: float(one.clock_offset) for number, one in self.machines.nodes.items()}
        changes = self.history.clocks.changes
        if offsets != (changes[-1][1] if changes else dict.fromkeys(offsets, 0.0)):
            self.history.clocks.change(self.history.now(), offsets)

    def _calm(self) -> None:
        self.site.over.wait(self._chance.uniform(*CALM_SECONDS))

    # The end

    def _drain(self) -> None:
        """Repair everything, stop the senders, and wait until nothing more is expected."""
        self.machines.until_whole()
        for node in self.machines.nodes.values():
            node.until_ready()
        self.site.sending.clear()
        self.site.draining.set()
        # What was delayed by a clock that was ahead is due when all clocks are.
        if self.history.clocks.changes:
            for node in self.machines.nodes.values():
                node.skew(max(SKEWS_SECONDS))
            self._note_clocks()
        began = self.history.now()
        left = list(self.workloads)
        while left and not self._is_stuck(began):
            left = [one for one in left if not one.is_drained()]
            self.site.over.wait(1)
        for one in left:
            self._violate(one.name, "not drained", f"in {self.history.now() - began:.0f} s")
        if left:
            self._look_around([path for one in left for path in one.inspected()])

    def _look_around(self, paths: list[str]) -> None:
        """Save where clients are, and what each node says about what is not drained."""
        self.plan.folder.mkdir(parents=True, exist_ok=True)
        names = {one.ident: one.name for one in threading.enumerate()}
        with (self.plan.folder / "stuck.txt").open("w") as lines:
            for ident, frame in sys._current_frames().items():
                where = "".join(traceback.format_stack(frame)[-4:])
                lines.write(f"{names.get(ident)}:\n{where}\n")
            for node in self.machines.nodes.values():
                for path in (*paths, "/v1/admin/cluster/health"):
                    lines.write(f"node {node.node_id} {path}: {_answer(node.http + path)}\n")

    def _is_stuck(self, began: float) -> bool:
        now = self.history.now()
        silent_since = max(began, self.history.progress_at)
        return now > began + DRAIN_SECONDS_MAX or now > silent_since + DRAIN_SILENCE_SECONDS

    def _end(self, threads: list[threading.Thread]) -> None:
        self.site.over.set()
        deadline = time.monotonic() + END_SECONDS_MAX
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.report.failures.append(f"{thread.name} does not end")
        for workload in self.workloads:
            self.report.failures += [f"{workload.name}: {one}" for one in workload.failures]

    # Rules

    def _readers(self) -> list[TopicReader]:
        """One for each level of isolation."""
        levels: dict[str, dict[str, int]] = {}
        counts = self.machines.partitions()
        for workload in self.workloads:
            for topic, isolation in workload.topics().items():
                levels.setdefault(isolation, {})[topic] = counts[topic]
        bootstrap, now = self.machines.bootstrap, self.history.now
        return [TopicReader(bootstrap, topics, level, now) for level, topics in levels.items()]

    def _judge(self, live: list[TopicReader]) -> None:
        logs = Logs()
        final = self._readers()
        for before, after in zip(live, final, strict=True):
            unread = after.read_to_the_end(seconds_max=READ_SECONDS_MAX)
            if unread:
                self._violate("log", "unreadable", unread)
            after.finish()
            logs.seen.update(before.seen)
            for one in rules.changed(before.places, after.places):
                self.report.violations.append(("log", one))
            for text in (*before.wrong, *after.wrong):
                self._violate("log", "wrong", text)
        for workload in self.workloads:
            for topic in workload.topics():
                logs.values[topic] = next(v for r in final if (v := r.values(topic)))
            found = workload.check(logs)
            self.report.violations += [(workload.name, one) for one in found]
        self.report.stale = Counter(one.workload for one in self.stale.excused)
        for one in self.machines.different():
            self.report.violations.append(("replicas", one))
        self.report.partitions = self.machines.compared
        self._check_nodes()

    def _check_nodes(self) -> None:
        for number, node in self.machines.nodes.items():
            if not node.is_alive:
                self._violate("cluster", "node ended by itself", f"node {number}")
                continue
            self.report.rss_bytes[number] = node.rss_bytes
            if node.rss_bytes > RSS_BYTES_MAX:
                self._violate("cluster", "too much memory", f"node {number}: {node.rss_bytes}")

    def _violate(self, where: str, rule: str, text: str) -> None:
        self.report.violations.append((where, rules.Violation(rule, where, text)))


def run(plan: Plan, directory: Path) -> Report:
    """Run a campaign in a directory of its own, which is removed afterwards."""
    home = directory / f"campaign-{plan.seed}"
    try:
        return Campaign(plan, home).run()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _cpu_waits() -> float:
    """For how many seconds some process of this machine has waited for a processor by now."""
    try:
        text = Path("/proc/pressure/cpu").read_text()
    except OSError:
        return 0.0
    return int(text.split("total=")[1].split()[0]) / 1e6


def _answer(url: str) -> str:
    try:
        return httpx.get(url, timeout=10).text[:20_000]
    except httpx.HTTPError as error:
        return repr(error)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
