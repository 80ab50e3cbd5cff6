"""One run of the benchmark: the servers it keeps, and the turns they take."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException

from bench import load
from bench.clients.build import Toolbox, ToolMissing
from bench.peers import Peer, PeerUnavailable, known
from bench.peers.sqs import SqsPeer
from bench.plan import PARTITIONS, Plan
from bench.processes import LoadFailed
from bench.report import Outcome, Runs, Section
from bench.reserve import Reserve
from bench.sqs_load import send_and_consume
from bench.systems import KafkaNode, Server, System, Unavailable, goqueue
from bench.topics import fresh_topic
from bench.usage import Meter

EVERY = "GoQueue, fsync every"
NONE = "GoQueue, fsync none"
SINK = "sink"
ECHO = "bare echo on uvloop"
HTTP_SINK = "HTTP sink"
HTTP_ECHO = "bare httptools echo"
ASGI_ECHO = "bare uvicorn echo"
KAFKA = "Apache Kafka"
MOTO = "moto's server"
ELASTICMQ = "ElasticMQ"

Case = Callable[[], Outcome]


@dataclass(slots=True)
class Session:
    """Starts each server when it is first needed and keeps it until the end."""

    plan: Plan
    work: Path
    tools: Toolbox
    peers: frozenset[str]
    stack: contextlib.ExitStack
    sections: list[Section] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)
    _systems: dict[str, System | Unavailable] = field(default_factory=dict)
    _queue_peers: dict[str, Peer | Unavailable] = field(default_factory=dict)
    _sqs_peers: dict[str, SqsPeer | Unavailable] = field(default_factory=dict)
    _reserve: Reserve = field(default_factory=Reserve)

    def system(self, name: str) -> System:
        """The running server of this name; raises `Unavailable` with the reason."""
        if name not in self._systems:
            try:
                self._systems[name] = self._start(name)
            except (Unavailable, ToolMissing, LoadFailed) as error:
                self._systems[name] = Unavailable(str(error))
        found = self._systems[name]
        if isinstance(found, Unavailable):
            raise found
        self.meter.use(found)
        return found

    def server(self, name: str) -> Server:
        """The running server of this name, if it is one with addresses of its own."""
        found = self.system(name)
        if not isinstance(found, Server):
            raise Unavailable(f"{name} has no HTTP listener")
        return found

    def queue_peer(self, name: str) -> Peer:
        """The running peer of this name, which has a client of its own."""
        if name not in self._queue_peers:
            try:
                self._queue_peers[name] = self._start_queue_peer(name)
            except (PeerUnavailable, Unavailable) as error:
                self._queue_peers[name] = Unavailable(str(error))
        found = self._queue_peers[name]
        if isinstance(found, Unavailable):
            raise found
        self.meter.use(found)
        return found

    def own_client_peers(self, among: Collection[str] | None = None) -> list[str]:
        """Those with a client of their own that were asked for; if names are given, of these."""
        asked = [name for key, names in known.ASKED.items() if key in self.peers for name in names]
        return [name for name in asked if among is None or name in among]

    def queue_peers(self) -> list[str]:
        """Those that hold messages as queues do and were asked for."""
        return self.own_client_peers(known.QUEUES)

    def sqs_peer(self, name: str) -> SqsPeer:
        """The running peer of this name, which speaks SQS."""
        if name not in self._sqs_peers:
            self.say(f"starting {name}")
            try:
                self._sqs_peers[name] = self._start_sqs_peer(name)
            except PeerUnavailable as error:
                self._sqs_peers[name] = Unavailable(str(error))
        found = self._sqs_peers[name]
        if isinstance(found, Unavailable):
            raise found
        self.meter.use(found)
        return found

    def sqs_peers(self) -> list[str]:
        """Those that speak SQS and were asked for."""
        asked = {"moto": MOTO, "elasticmq": ELASTICMQ}
        return [name for key, name in asked.items() if key in self.peers]

    def peer_versions(self) -> dict[str, str]:
        """What was compared with."""
        peers: dict[str, Peer | SqsPeer | Unavailable] = {**self._queue_peers, **self._sqs_peers}
        return {
            name: peer.version for name, peer in peers.items() if not isinstance(peer, Unavailable)
        }

    def peer_settings(self) -> dict[str, str]:
        """How the peers with clients of their own were set up, and what their answers promise."""
        return {
            name: peer.settings
            for name, peer in self._queue_peers.items()
            if not isinstance(peer, Unavailable)
        }

    def is_running(self, name: str) -> bool:
        """Whether this server has been started and not failed."""
        return name in self._systems and not isinstance(self._systems[name], Unavailable)

    def with_peers(self, *names: str) -> list[str]:
        """These servers, and Kafka where it was asked for."""
        return [*names, KAFKA] if "kafka" in self.peers else list(names)

    def node(self, label: str, settings: Mapping[str, str]) -> Server:
        """A GoQueue node of its own, not started; removed at the end."""
        home = self.work / label
        server = goqueue(f"GoQueue ({label})", home, settings)
        self.stack.callback(server.close)
        self.meter.keep(server)
        return server

    def in_turns(self, title: str, cases: Mapping[str, Case]) -> dict[str, Runs]:
        """Run every case once per round, starting each round with another one."""
        runs = {label: Runs(label) for label in cases}
        labels = list(cases)
        for turn in range(self.plan.repeat):
            first = turn % len(labels)
            for label in labels[first:] + labels[:first]:
                if not runs[label].skipped:
                    self.run_once(f"{title}, round {turn + 1}", cases[label], runs[label])
        return runs

    def section(self, title: str) -> Section:
        """A new part of the report."""
        section = Section(title)
        self.sections.append(section)
        return section

    def say(self, text: str) -> None:
        """Show progress without mixing with the table on standard output."""
        print(f"  {time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)

    def run_once(self, title: str, case: Case, runs: Runs) -> None:
        """Run one case and keep what came of it."""
        # A system that answers before its data is on disk must not leave the writing to the next.
        os.sync()
        self._reserve.give()
        try:
            with self.meter.run():
                outcome = case()
        except (Unavailable, ToolMissing) as error:
            runs.skipped = str(error)
            self.say(f"{title}: {runs.label}: not measured: {error}")
            return
        except (LoadFailed, KafkaException) as error:
            outcome = Outcome({}, void=str(error))
        finally:
            self._reserve.hold()
        outcome = dataclasses.replace(outcome, usages=self.meter.usages())
        runs.outcomes.append(outcome)
        figures = ", ".join(f"{name} {value:,.6g}" for name, value in outcome.values.items())
        mark = f"VOID: {outcome.void} " if outcome.void else ""
        self.say(f"{title}: {runs.label}: {mark}{figures}")

    def _start(self, name: str) -> System:
        home = self.work / name.replace(" ", "-").replace(",", "")
        self.say(f"starting {name}")
        if name == KAFKA:
            kafka = KafkaNode(home)
            self.stack.callback(kafka.close)
            self._warm_up(kafka)
            return kafka
        server = self._server(name, home)
        self.stack.callback(server.close)
        server.start()
        if server.is_storing:
            self._warm_up(server)
        return server

    def _start_queue_peer(self, name: str) -> Peer:
        node = self.queue_peer(known.RABBITMQ) if name == known.RABBITMQ_STREAM else None
        self.say(f"starting {name}")
        home = self.work / name.replace(" ", "-").replace(",", "")
        peer = known.start(name, home, node)
        self.stack.callback(peer.close)
        return peer

    def _start_sqs_peer(self, name: str) -> SqsPeer:
        home = self.work / name.replace(" ", "-").replace("'", "")
        peer: SqsPeer
        if name == MOTO:
            from bench.peers.moto import Moto

            peer = Moto(home)
        else:
            from bench.peers.elasticmq import ElasticMq

            peer = ElasticMq(home)
        self.stack.callback(peer.close)
        peer.start()
        if name == ELASTICMQ:  # A JVM compiles while it runs.
            count = self.plan.sqs_messages
            send_and_consume(peer.endpoint, None, connections=16, count=count, size=1000)
        return peer

    def _warm_up(self, system: System) -> None:
        """Large and small requests before the first that counts: a JVM compiles while it runs."""
        count = self.plan.warmup_messages
        # Without the C programs there is nothing to warm up with; the Python rows still run.
        with contextlib.suppress(ToolMissing):
            self.tools.rdkafka_bench()
            with fresh_topic(system, PARTITIONS) as topic:
                load.raw_produce(
                    self.tools, system, topic, connections=16, depth=8, count=count // 10
                )
            with fresh_topic(system, PARTITIONS) as topic:
                load.produce(self.tools, "C", system, topic, count=count, size=1000)
                load.consume(self.tools, "C", system, topic, count=count, size=1000)

    def _server(self, name: str, home: Path) -> Server:
        partitions = ("--partitions", str(PARTITIONS))
        if name == SINK:
            return Server(name, [str(self.tools.sink()), *partitions], home, is_storing=False)
        if name == ECHO:
            command = [sys.executable, "-m", "bench.sink", *partitions]
            return Server(name, command, home, is_storing=False)
        if name == HTTP_SINK:
            return Server(name, [str(self.tools.http_sink())], home, is_storing=False)
        if name in (HTTP_ECHO, ASGI_ECHO):
            stack = "httptools" if name == HTTP_ECHO else "uvicorn"
            command = [sys.executable, "-m", "bench.http_echo", "--stack", stack]
            return Server(name, command, home, is_storing=False)
        mode = {EVERY: "every", NONE: "none"}[name]
        return goqueue(name, home, {"storage.fsync": mode, "listeners.grpc": "127.0.0.1:0"})
