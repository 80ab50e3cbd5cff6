"""Three nodes: produce that waits for all of them, and what clients notice when nodes go."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

from bench import load
from bench.cluster_clients import (
    BROKER_ASSIGNED,
    COOPERATIVE,
    Members,
    PacedWriter,
    leader_of,
    stored,
    wait_until_whole,
)
from bench.clusters import Cluster, goqueue_cluster, kafka_cluster
from bench.plan import PARTITIONS
from bench.report import (
    MESSAGES,
    MILLISECONDS,
    SECONDS,
    Outcome,
    Runs,
    Section,
    at_least,
    at_most,
    times_at_least,
)
from bench.session import Session
from bench.topics import Topic, fresh_topic, miscount

GOQUEUE = "three GoQueue nodes"
KAFKA = "three Apache Kafka brokers"
SETTINGS = {"min.insync.replicas": "2"}
REPLICAS = 3
MEMBERS = 3
PROTOCOLS = {"assigned by the broker": BROKER_ASSIGNED, "cooperative-sticky": COOPERATIVE}
STEADY_ACKS = 100  # between two disturbances
# A message comes to each partition every 30 ms, and three processes and their clients share the
# cores: pauses up to this are there without any rebalance.
NO_GAP_MS = 100

Make = Callable[[], Cluster]


def measure(session: Session) -> None:
    """Throughput beside three Kafka brokers; then failover, rebalance and rolling restart."""
    section = session.section("Cluster: 3 nodes on this machine, 3 copies, min in-sync 2, acks=all")
    section.notes += [
        "GoQueue acknowledges when all copies in sync are on disk, Apache Kafka when they are in "
        "memory; both with the settings they come with, and after the same warm-up.",
        "A gap is the longest time in which a client that writes all the time hears of no "
        "acknowledged message.",
        "A member joins when its consumer is made, and has joined when it gets its first message. "
        "Members that agree among themselves (cooperative-sticky) join twice, and librdkafka joins "
        "at most once a second: less than that is not to be had with it, of any broker.",
    ]
    with contextlib.ExitStack() as stack:
        clusters = {GOQUEUE: _once(session, stack, "cluster-goqueue")}
        if "kafka" in session.peers:
            clusters[KAFKA] = _once(session, stack, "cluster-kafka")
        _throughput(session, section, clusters)
        for name, make in clusters.items():
            _failover(session, section, name, make)
            _rebalance(session, section, name, make)
            _rolling_restart(session, section, name, make)


def _once(session: Session, stack: contextlib.ExitStack, label: str) -> Make:
    """Starts a cluster when it is first asked for."""
    made: list[Cluster] = []

    def make() -> Cluster:
        if not made:
            session.say(f"starting {label}")
            build = goqueue_cluster if label.endswith("goqueue") else kafka_cluster
            cluster = build(session.work / label)
            stack.callback(cluster.close)
            cluster.start()
            made.append(cluster)
        return made[0]

    return make


def _throughput(session: Session, section: Section, clusters: dict[str, Make]) -> None:
    title = "produce 1 KB, acks=all, C client"
    count = session.plan.cluster_messages
    for name, make in clusters.items():
        # A JVM compiles while it runs, and new files are slower than old ones.
        warm_up = partial(_produce, session, make, max(count, session.plan.warmup_messages))
        session.run_once("warm-up, not counted", warm_up, Runs(name))
    runs = session.in_turns(
        title, {name: partial(_produce, session, make, count) for name, make in clusters.items()}
    )
    row, reference = f"{title}, {GOQUEUE}", runs.get(KAFKA)
    if reference is not None:
        section.add(
            row,
            runs[GOQUEUE],
            "messages_per_s",
            MESSAGES,
            reference=reference,
            target=times_at_least(1.0),
        )
        section.add(f"{title}, {KAFKA}", reference, "messages_per_s", MESSAGES)
    aim = at_least(250_000, "250 k msg/s", "aim")
    section.add(row, runs[GOQUEUE], "messages_per_s", MESSAGES, target=aim)


def _produce(session: Session, make: Make, count: int) -> Outcome:
    cluster = make()
    session.meter.use(*cluster.nodes.values())
    with fresh_topic(cluster, PARTITIONS, SETTINGS, replicas=REPLICAS) as topic:
        wait_until_whole(cluster, topic)
        result = load.run(
            [
                *(str(session.tools.rdkafka_bench()), "produce", "-X", "acks=all"),
                *("--brokers", cluster.bootstrap, "--topic", topic.name),
                *("--partitions", str(PARTITIONS), "--size", "1000"),
                *("--count", str(count)),
                *("--seconds-max", str(load.RUN_SECONDS_MAX)),
            ]
        )
        void = load.complaint(result) or miscount(cluster, topic, result["acked"])
        return Outcome({"messages_per_s": result["messages_per_s"]}, void)


# Failover


def _failover(session: Session, section: Section, name: str, make: Make) -> None:
    is_own = name == GOQUEUE
    kills = session.plan.cluster_kills if is_own else session.plan.cluster_peer_kills
    runs = Runs(name)
    session.run_once(f"{kills} kills", partial(_kill_leaders, session, make, kills), runs)
    row = f"leader killed {kills} times, {name}"
    section.add(
        f"{row}: worst gap", runs, "worst_s", SECONDS, target=at_most(5, "5 s") if is_own else None
    )
    section.add(
        f"{row}: p50 gap",
        runs,
        "p50_s",
        SECONDS,
        target=at_most(1.5, "1.5 s", "aim") if is_own else None,
    )


def _kill_leaders(session: Session, make: Make, kills: int) -> Outcome:
    cluster = make()
    with fresh_topic(cluster, 1, SETTINGS, replicas=REPLICAS) as topic:
        wait_until_whole(cluster, topic)
        writer = PacedWriter(cluster, topic)
        gaps = []
        try:
            for _ in range(kills):
                writer.wait_for_acks(STEADY_ACKS)
                gaps.append(_kill_leader(cluster, topic, writer))
                session.say(f"gap {gaps[-1]:.2f} s")
        finally:
            writer.finish()
        values = {"worst_s": max(gaps), "p50_s": statistics.median(gaps)}
        return Outcome(values, _complaint(cluster, topic, writer))


def _kill_leader(cluster: Cluster, topic: Topic, writer: PacedWriter) -> float:
    node = cluster.nodes[leader_of(cluster, topic)]
    begin = time.monotonic()
    node.kill()
    writer.wait_for_acks(STEADY_ACKS)
    gap = writer.gap_s(begin)
    node.launch()
    node.wait_until_serving()
    wait_until_whole(cluster, topic)
    return gap


# Rebalance


def _rebalance(session: Session, section: Section, name: str, make: Make) -> None:
    is_own = name == GOQUEUE
    rounds = session.plan.cluster_rounds if is_own else session.plan.cluster_peer_rounds
    for told, protocol in PROTOCOLS.items():
        runs = Runs(name)
        for _ in range(rounds):
            session.run_once(f"a member joins, {told}", partial(_join, make, protocol), runs)
        row = f"a fourth member joins, {told}, {name}"
        is_judged = is_own and protocol is BROKER_ASSIGNED
        section.add(
            f"{row}: until it gets messages",
            runs,
            "join_s",
            SECONDS,
            target=at_most(1, "1 s") if is_judged else None,
        )
        section.add(
            f"{row}: gap of partitions that move",
            runs,
            "moved_ms",
            MILLISECONDS,
            target=at_most(100, "100 ms", "aim") if is_judged else None,
        )
        section.add(
            f"{row}: gap of those that stay",
            runs,
            "stayed_ms",
            MILLISECONDS,
            target=at_most(NO_GAP_MS, "100 ms, no gap") if is_own else None,
        )


def _join(make: Make, protocol: Mapping[str, str | int]) -> Outcome:
    cluster = make()
    with fresh_topic(cluster, PARTITIONS, SETTINGS, replicas=REPLICAS) as topic:
        wait_until_whole(cluster, topic)
        writer = PacedWriter(cluster, topic)
        members = Members(cluster, topic, f"group-{topic.name}", protocol)
        try:
            for _ in range(MEMBERS):
                members.add()
            members.wait_until(MEMBERS)
            begin = time.monotonic()
            newcomer = members.add()
            members.wait_until(MEMBERS + 1)
        finally:
            members.finish()
            writer.finish()
        return Outcome(_gaps(members, newcomer, begin, topic), _complaint(cluster, topic, writer))


def _gaps(members: Members, newcomer: int, begin: float, topic: Topic) -> dict[str, float]:
    """How long partitions stood still around a rebalance; receipts before it show the pace."""
    moved, stayed = [0.0], [0.0]
    for partition in range(topic.partitions):
        receipts = [one for one in members.receipts if one.partition == partition]
        around = [one for one in receipts if one.when > begin - 0.5]
        steps = [b.when - a.when for a, b in itertools.pairwise(around)]
        owners = {one.member for one in around}
        (moved if len(owners) > 1 else stayed).append(max(steps, default=0.0) * 1000)
    first = min(one.when for one in members.receipts if one.member == newcomer)
    return {"join_s": first - begin, "moved_ms": max(moved), "stayed_ms": max(stayed)}


# Rolling restart


def _rolling_restart(session: Session, section: Section, name: str, make: Make) -> None:
    runs = Runs(name)
    session.run_once("rolling restart", partial(_restart_all, make), runs)
    row = f"rolling restart under load, {name}"
    target = at_most(1000, "1 s", "aim") if name == GOQUEUE else None
    section.add(f"{row}: p99 of acknowledgements", runs, "p99_ms", MILLISECONDS, target=target)
    section.add(f"{row}: worst gap", runs, "gap_s", SECONDS)


def _restart_all(make: Make) -> Outcome:
    cluster = make()
    with fresh_topic(cluster, PARTITIONS, SETTINGS, replicas=REPLICAS) as topic:
        wait_until_whole(cluster, topic)
        writer = PacedWriter(cluster, topic)
        try:
            # A client takes a while to begin, and that is not what is measured here.
            writer.wait_for_acks(STEADY_ACKS)
            begin = time.monotonic()
            for node in cluster.nodes.values():
                writer.wait_for_acks(STEADY_ACKS)
                node.stop()
                node.launch()
                node.wait_until_serving()
                wait_until_whole(cluster, topic)
        finally:
            writer.finish()
        values = {"p99_ms": writer.p99_ms(begin), "gap_s": writer.gap_s(begin)}
        return Outcome(values, _complaint(cluster, topic, writer))


def _complaint(cluster: Cluster, topic: Topic, writer: PacedWriter) -> str:
    """Why a run does not count: calls failed for good, or something acknowledged is not there."""
    if writer.errors:
        return f"{len(writer.errors)} failed, first: {writer.errors[0]}"
    lost = writer.acked - stored(cluster, topic)
    return f"{len(lost)} acknowledged messages are lost" if lost else ""
