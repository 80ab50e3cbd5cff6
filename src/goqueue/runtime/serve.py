"""One node as a process: open the data, listen, serve, stop cleanly on a signal."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

import msgspec
import uvloop

from goqueue.broker import Broker
from goqueue.broker.controller.formation import belongs_to_cluster
from goqueue.broker.replication.clustering import Clustering
from goqueue.config import Address, SecuritySettings, Settings
from goqueue.loop.promise import start
from goqueue.metrics import Metric
from goqueue.metrics import catalogue as metrics
from goqueue.model import compression
from goqueue.model.errors import GoQueueError, InvalidSettings
from goqueue.model.session import ListenerRules
from goqueue.model.support import SUPPORT, release
from goqueue.runtime.client_listeners import (
    GRPC,
    KAFKA,
    ClientListeners,
    warn_of_readable_credentials,
)
from goqueue.runtime.clock import LoopClock
from goqueue.runtime.cluster_secret import credentials_of
from goqueue.runtime.data_folder import data_folder, explained
from goqueue.runtime.discovery import Discovery
from goqueue.runtime.disk import LocalDisk
from goqueue.runtime.front_ends import grpc_bridge, http_applications, limits
from goqueue.runtime.jwks import loader_of
from goqueue.runtime.listening import ConnectionLimits, Listener
from goqueue.runtime.logs import set_up_logging
from goqueue.runtime.measuring.node import NodeMeasuring
from goqueue.runtime.memory import MemoryKeeper
from goqueue.runtime.peers import PeerConnections
from goqueue.runtime.sockets import Connect
from goqueue.runtime.tls.clients import ClientTls
from goqueue.runtime.tls.expiry import ExpiryWarnings
from goqueue.runtime.tls.handshakes import HandshakeLimits, Pace, Tls
from goqueue.runtime.tls.nodes import NodeTls
from goqueue.wire.carrier.application import Hosts
from goqueue.wire.kafka.front_end import FrontEnd
from goqueue.wire.peers.frames import PROTOCOL_MAX, PROTOCOL_MIN, Hello
from goqueue.wire.peers.handshake import Credentials

if TYPE_CHECKING:
    from goqueue.runtime.measuring.metrics_export import MetricsExport
    from goqueue.runtime.measuring.traces_export import TracesExport

_CARRIED = ("http", "registry", "sqs")  # the protocols over HTTP
_INTERNAL = "internal"
# Nodes make one connection to each other.
NODE_HANDSHAKES = HandshakeLimits(total_max=256, per_address_max=16, seconds_max=5.0)

_log = logging.getLogger(__name__)


def run(settings: Settings, ready_file: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    set_up_logging(settings.logging)
    _check_ready_file(ready_file)
    # Threads that run Python (compaction) must not block the event loop for long.
    sys.setswitchinterval(0.001)
    compression.meter.bytes_max = settings.topics.unpacked_bytes_max
    open_files_max = min(settings.storage.open_files_max, _raise_file_limit() // 2)
    with data_folder(Path(settings.node.data_dir)):
        uvloop.install()
        asyncio.run(_serve(settings, ready_file, open_files_max=open_files_max))
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)


async def _serve(settings: Settings, ready_file: Path | None, *, open_files_max: int) -> None:
    started = time.perf_counter()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    failures: list[GoQueueError] = []

    def unable(error: GoQueueError) -> None:
        failures.append(error)
        stopping.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopping.set)
    disk = LocalDisk(
        str(settings.node.data_dir),
        open_files_max=open_files_max,
        write_piece_bytes=settings.storage.write_chunk_bytes,
    )
    clock = LoopClock(loop)
    try:
        with explained(Path(settings.node.data_dir)):
            node = _Node(loop, settings, disk, clock)
            node.when_unable(unable)
            node.open()
    except Exception:
        # Wait for running work: a thread that outlives the event loop would log errors.
        clock.close()
        raise
    if not await _either(node.ready, stopping):
        await node.close()
        clock.close()
        _raise_first(failures)
        return
    node.become_ready()
    keeper = MemoryKeeper(loop)
    keeper.start()
    _announce(settings, node, ready_file, time.perf_counter() - started)
    await stopping.wait()
    _log.info("stopping")
    keeper.stop()
    await node.close()
    clock.close()
    _log.info("stopped")
    _raise_first(failures)


def _raise_first(failures: list[GoQueueError]) -> None:
    """End the process with the reason, if it was not stopped from outside."""
    if failures:
        raise failures[0]


async def _either(wanted: asyncio.Event, other: asyncio.Event) -> bool:
    """Wait for one of two events; return whether it was the first."""
    waits = [asyncio.ensure_future(one.wait()) for one in (wanted, other)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    return wanted.is_set()


class _Node:
    """A broker, its front ends, and the addresses they listen at."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        disk: LocalDisk,
        clock: LoopClock,
    ) -> None:
        self.addresses: dict[str, str] = {}
        self.ready = asyncio.Event()
        self._settings = settings
        self._support = msgspec.structs.replace(SUPPORT, release=release())
        self._clock = clock
        random, pace = SystemRandom(), Pace(loop)
        tls, client_tls = NodeTls.of(settings.cluster), ClientTls.of(settings)
        credentials: Credentials | None = None
        self._peers: PeerConnections | None = None
        if not settings.cluster.peers and settings.cluster.discovery is None:
            _check_alone(disk, settings)
        else:
            credentials = credentials_of(settings.cluster)
            self._peers = PeerConnections(
                loop,
                clock,
                random,
                hello=self._hello,
                credentials=credentials,
                tls=tls,
                support=self._support,
            )
        self.broker = Broker(
            settings,
            disk,
            clock,
            random,
            peers=self._peers,
            addresses=lambda: self._told_addresses(),
        )
        _audit_to_file(settings.security, self.broker, clock)
        if settings.security.oauth_jwks:
            load = loader_of(settings.security.oauth_jwks)
            self.broker.identities.tokens.load_with(load)
        self._serve_clients(loop, client_tls, pace)
        self._expiry = ExpiryWarnings(loop, _expiries(client_tls, tls))
        self._internal: Listener | None = None
        self._discovery: Discovery | None = None
        if self._peers is not None:
            self._internal = _internal_listener(loop, settings, self._peers, tls, pace)
            self._internal.on_revocations = self._peers.end_revoked
            if settings.cluster.discovery is not None:
                self._discovery = _discovery(
                    loop, settings.cluster.discovery, self.broker.cluster, credentials, tls
                )
        self._measuring = self._measure(loop, client_tls, tls)
        self._export(loop, random)

    def _serve_clients(
        self, loop: asyncio.AbstractEventLoop, tls: ClientTls | None, pace: Pace
    ) -> None:
        """Create the front ends, and the listeners through which clients reach them."""
        settings, broker = self._settings, self.broker
        self._kafka = FrontEnd(broker.local_gate, limits(settings), advertised=self._advertised)
        self._applications = http_applications(settings, broker)
        hosts = Hosts(_names_of(settings))
        for application in self._applications:
            application.hosts = hosts
            application.open_to(
                settings.security.cors_origins,
                is_health_open=settings.security.open_health,
                are_metrics_open=settings.security.open_metrics,
            )
        self._grpc = grpc_bridge(loop, settings, broker, self._clock)
        connect: dict[str, Connect] = {KAFKA: self._kafka.connect, GRPC: self._grpc.connect}
        for name, application in zip(_CARRIED, self._applications, strict=True):
            connect[name] = application.connect
        self._listeners = ClientListeners(loop, settings, connect, tls, pace)
        self._kafka.sending = self._listeners.kafka_turns
        for one in self._listeners.all:
            one.listener.admits = self._admits

    def _export(self, loop: asyncio.AbstractEventLoop, random: SystemRandom) -> None:
        """Create what exports metrics and traces; most nodes export nothing."""
        settings, broker = self._settings, self.broker
        self._metrics_export: MetricsExport | None = None
        if settings.metrics.exports:
            from goqueue.runtime.measuring.metrics_export import ExportedNode, MetricsExport

            node = ExportedNode(settings.node.id, lambda: broker.cluster_id)
            scrape = broker.measuring.scraper.export
            self._metrics_export = MetricsExport(
                loop, self._clock, random, settings.metrics, node, scrape
            )
            self._metrics_export.measure(broker.metrics)
        self._traces: TracesExport | None = None
        if settings.journeys.otlp_endpoint and broker.journeys is not None:
            from goqueue.runtime.measuring.traces_export import TracesExport

            self._traces = TracesExport(loop, self._clock, random, broker)
            broker.metrics.collect(self._traces.collect)

    def _measure(
        self,
        loop: asyncio.AbstractEventLoop,
        client_tls: ClientTls | None,
        tls: NodeTls | None,
    ) -> NodeMeasuring:
        listeners = [one.listener for one in self._listeners.all]
        expiries: dict[str, Callable[[], int]] = {}
        if client_tls is not None:
            encrypted = [one.name for one in self._listeners.all if one.settings.is_encrypted]
            expiries = dict.fromkeys(encrypted, client_tls.not_after_ms)
        if self._internal is not None:
            listeners.append(self._internal)
            if tls is not None:
                expiries[_INTERNAL] = tls.not_after_ms
        gauges: dict[Metric, Callable[[], int]] = {
            metrics.SHARE_SESSIONS: lambda: len(self._kafka.share_sessions),
            metrics.LISTENER_STREAMS: lambda: self._grpc.front.open_streams,
        }
        return NodeMeasuring(loop, self.broker, listeners, expiries, gauges)

    def _admits(self, host: str) -> bool:
        """Whether an address may open one more connection, by its quotas."""
        connected = sum(one.listener.count_of(host) for one in self._listeners.all)
        return self.broker.quotas.admits(host, connected)

    def when_unable(self, unable: Callable[[GoQueueError], None]) -> None:
        """Call `unable` with the reason if this node cannot follow its cluster any more."""
        if self.broker.cluster is not None:
            self.broker.cluster.quorum.on_unable = unable

    def open(self) -> None:
        """Open the data; `ready` resolves when the node can serve."""
        if self.broker.cluster is None:
            # Connections during the recovery of logs should be refused, not kept waiting.
            self.broker.open()
            self._bind()
            self._prepare(then=self._listeners.accept)
            return
        assert self._internal is not None
        self._bind()
        address = self._settings.listeners.internal
        self._listen(_INTERNAL, _INTERNAL, address, self._internal.listen)
        self.broker.open()
        # Clients receive the address of another node, or the reason for the delay.
        self._kafka.is_ready = False
        for application in self._applications:
            application.front.is_ready = False
        self._grpc.front.is_ready = False
        self._listeners.accept()
        self.broker.cluster.when_trusted(self._prepare)
        if self._discovery is not None:
            self._discovery.start()

    def _prepare(self, then: Callable[[], None] = lambda: None) -> None:
        """Create the first user, if it is missing, before clients try to be it."""

        def prepared(_: None, error: Exception | None) -> None:
            if error is not None:
                _log.error("the initial administrator could not be created: %s", error)
            then()
            self.ready.set()

        start(self.broker.identities.create_initial_admin(), prepared)

    def become_ready(self) -> None:
        """Serve all requests, because the node is now an accepted member of its cluster."""
        for application in self._applications:
            application.front.is_ready = True
        self._grpc.front.is_ready = True
        self._kafka.become_ready()
        warn_of_readable_credentials(self._settings)
        self._expiry.start()
        self._measuring.start()
        self.broker.measuring.history.recorder.start()
        if self._metrics_export is not None:
            self._metrics_export.start()
        if self._traces is not None:
            self._traces.start()

    async def close(self) -> None:
        if self.broker.cluster is not None and self.ready.is_set():
            retired = asyncio.Event()
            self.broker.cluster.retire(retired.set)
            await retired.wait()
        self._expiry.stop()
        self._measuring.stop()
        self.broker.measuring.history.recorder.stop()
        if self._metrics_export is not None:
            await self._metrics_export.stop()
        if self._traces is not None:
            await self._traces.stop()
        for one in self._listeners.of(KAFKA):
            one.listener.close()
        if self.ready.is_set():
            for application in self._applications:
                answered = asyncio.Event()
                application.stop(answered.set)
                await answered.wait()
            await self._grpc.stop()
        self._listeners.close()
        closed = asyncio.Event()
        self.broker.close(closed.set)
        await closed.wait()
        if self._discovery is not None:
            self._discovery.stop()
        if self._peers is not None and self._internal is not None:
            self._peers.stop()
            self._internal.close()

    def _bind(self) -> None:
        for one in self._listeners.all:
            self._listen(one.name, one.protocol, one.settings.address, one.listener.bind)

    def _listen(
        self,
        name: str,
        protocol: str,
        address: Address,
        bind: Callable[[str, int], tuple[str, int]],
    ) -> None:
        try:
            self.addresses[name] = _join(*bind(address.host, address.port))
        except OSError as error:
            raise InvalidSettings([_bind_problem(protocol, address, error)]) from error

    def shown_addresses(self) -> dict[str, str]:
        """The bound addresses with their security, by listener."""
        known = {one.name: one.settings for one in self._listeners.all}
        return {
            name: known[name].at(address) if name in known else address
            for name, address in self.addresses.items()
        }

    def _advertised(self, listener: str) -> tuple[str, int]:
        """The address of this node for the clients of a Kafka listener."""
        known = list(self._listeners.of(KAFKA))
        one = next((one for one in known if one.name == listener), known[0])
        host, _, port = self._told(one.name, one.advertised).rpartition(":")
        return host.strip("[]"), int(port)

    def _told_addresses(self) -> dict[str, str]:
        """The addresses of this node for other nodes and their clients, by listener.

        Those with TLS or SASL begin with their security, as in the settings. The first listener of
        a protocol can also be found under the name of the protocol.
        """
        told: dict[str, str] = {}
        for one in self._listeners.all:
            told[one.name] = one.settings.at(self._told(one.name, one.advertised))
        for one in self._listeners.all:
            told.setdefault(one.protocol, told[one.name])
        if _INTERNAL in self.addresses:
            advertised = self._settings.listeners.internal_advertised
            told[_INTERNAL] = self._told(_INTERNAL, advertised)
        return told

    def _told(self, name: str, wanted: Address | None) -> str:
        bound = self.addresses[name]
        if wanted is None:
            return bound
        return _join(wanted.host, wanted.port or int(bound.rpartition(":")[2]))

    def _hello(self) -> Hello:
        return Hello(
            self.broker.cluster_id,
            self.broker.node_id,
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
            support=self._support,
        )


def _audit_to_file(security: SecuritySettings, broker: Broker, clock: LoopClock) -> None:
    """Write the audit log to a file as well, if settings name one."""
    if broker.audit is not None and security.audit_file is not None:
        from goqueue.runtime.audit_file import AuditFile

        file = AuditFile(
            clock,
            security.audit_file,
            bytes_max=security.audit_file_bytes,
            files_max=security.audit_files_max,
        )
        broker.audit.write_to(file)


def _names_of(settings: Settings) -> list[str]:
    """The host names of this node for HTTP; IP addresses need not be listed."""
    listeners, cluster = settings.listeners, settings.cluster
    names = [one.host for one in listeners.all_of_clients()]
    names += [one.address.host for one in listeners.kafka_advertised + listeners.http_advertised]
    other = (listeners.internal_advertised, cluster.discovery)
    names += [one.host for one in other if one is not None]
    names += [peer.partition("@")[2].rpartition(":")[0] for peer in cluster.peers.split(",")]
    return [socket.gethostname(), *names, *listeners.http_hosts.split(",")]


def _bind_problem(name: str, address: Address, error: OSError) -> str:
    """The reason why an address cannot be bound, and what to do."""
    another = f"choose another address with --listen-{name} HOST:PORT"
    if error.errno == errno.EADDRINUSE:
        what = f"{address} is in use by another process; stop that one, or {another}"
    elif error.errno == errno.EADDRNOTAVAIL:
        what = (
            f"{address.host} is not an address of this machine; listen on one that is, or on "
            f"0.0.0.0, and give the address for clients with --advertise-{name}"
        )
    elif error.errno == errno.EACCES:
        what = f"{address} is reserved for privileged users, as ports below 1024 are; {another}"
    else:
        what = f"{address} cannot be bound: {error.strerror}; {another}"
    return f"listeners.{name}: {what}"


def _check_ready_file(ready_file: Path | None) -> None:
    """Check before the start that the ready file can be written."""
    if ready_file is not None and not os.access(ready_file.parent, os.W_OK | os.X_OK):
        raise InvalidSettings(
            [f"--ready-file {ready_file}: the folder {ready_file.parent} cannot be written to"]
        )


def _raise_file_limit() -> int:
    """Raise the limit of file descriptors to the maximum allowed, and return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return sys.maxsize if most == resource.RLIM_INFINITY else most


def _expiries(
    client_tls: ClientTls | None, node_tls: NodeTls | None
) -> dict[str, Callable[[], int]]:
    """When certificates expire, by what they are used for."""
    found: dict[str, Callable[[], int]] = {}
    if client_tls is not None:
        found["the client listeners (security.tls_certificate)"] = client_tls.not_after_ms
    if node_tls is not None:
        found["this node (cluster.tls_certificate)"] = node_tls.not_after_ms
    return found


def _internal_listener(
    loop: asyncio.AbstractEventLoop,
    settings: Settings,
    peers: PeerConnections,
    tls: NodeTls | None,
    pace: Pace,
) -> Listener:
    listeners = settings.listeners
    return Listener(
        loop,
        peers.server.connect,
        ConnectionLimits(
            connections_max=listeners.connections_max,
            connections_per_address_max=listeners.connections_per_address_max,
            idle_timeout_ms=listeners.idle_timeout_ms,
            receive_bytes_total_max=listeners.receive_buffer_bytes_total_max,
        ),
        ListenerRules(_INTERNAL, is_encrypted=tls is not None, must_authenticate=True),
        tls=None
        if tls is None
        else Tls(tls.accept, pace, NODE_HANDSHAKES, revocations=tls.revocations),
        complaints=peers.server.complaints,
    )


def _check_alone(disk: LocalDisk, settings: Settings) -> None:
    """Refuse to run the data of a cluster member as a single node, which lacks later metadata."""
    if belongs_to_cluster(disk):
        raise InvalidSettings(
            [
                f"cluster.peers: {settings.node.data_dir} is the data of a node in a cluster, "
                "which cannot run as a single node; give its peers, or use another folder"
            ]
        )


def _discovery(
    loop: asyncio.AbstractEventLoop,
    name: Address,
    cluster: Clustering | None,
    credentials: Credentials | None,
    tls: NodeTls | None,
) -> Discovery:
    assert cluster is not None
    return Discovery(
        loop,
        name.host,
        name.port,
        found=cluster.discovered,
        is_idle=lambda: cluster.membership.is_trusted,
        credentials=credentials,
        tls=tls,
    )


def _announce(settings: Settings, node: _Node, ready_file: Path | None, seconds: float) -> None:
    if ready_file is not None:
        new = ready_file.with_name(ready_file.name + ".new")
        new.write_text(json.dumps(node.addresses))
        new.replace(ready_file)
    shown = node.shown_addresses()
    shown["data"] = str(Path(settings.node.data_dir).resolve())
    shown["fsync"] = settings.storage.fsync
    width = max(map(len, shown))
    lines = [f"GoQueue is ready after {seconds:.2f} s"]
    lines += [f"  {name:<{width}} {text}" for name, text in shown.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
