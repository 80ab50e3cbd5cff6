"""Several nodes on one machine, so that a broker can use all its cores.

A node is one process with one event loop. This parent process starts several of them, which form or
join a cluster, restarts those that fail, and stops all of them on a signal.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from goqueue.config import SETTINGS, Address, ListenerSettings, Settings
from goqueue.config.listener_kinds import INTERNAL, NamedAddress
from goqueue.model.errors import InvalidSettings
from goqueue.runtime.cluster_secret import credentials_of, has_credentials, make_secret_file
from goqueue.runtime.logs import set_up_logging
from goqueue.runtime.tls.clients import ClientTls
from goqueue.runtime.tls.nodes import NodeTls

SHARDS_MAX = 64
LOOK_SECONDS = 0.05
RESTART_SECONDS = 1.0
STOP_SECONDS_MAX = 60.0
SECRET_FILE = "cluster-secret"

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shard:
    """The settings in which one node differs from the others."""

    node_id: int
    data_dir: Path
    ready_file: Path
    settings: Mapping[str, str]  # by path

    def arguments(self) -> list[str]:
        own = {"node.id": self.node_id, "node.data_dir": self.data_dir, **self.settings}
        words = ["--ready-file", str(self.ready_file)]
        for path, text in own.items():
            words += ["--set", f"{path}={text}"]
        return words


def plan(settings: Settings, count: int) -> list[Shard]:
    """The nodes and their addresses: the first as in the settings, the others on further ports."""
    if not 1 <= count <= SHARDS_MAX:
        raise InvalidSettings([f"--shards: {count} is not from 1 to {SHARDS_MAX}"])
    root = Path(settings.node.data_dir)
    if (root / "meta").exists():
        raise InvalidSettings(
            [
                f"node.data_dir: {root} is the data of one node; choose another folder for shards, "
                "which can then join it as further nodes of a cluster"
            ]
        )
    ports = list(_ports(settings, count))
    ids = [settings.node.id + at for at in range(count)]
    shards = []
    for node, listening in zip(ids, ports, strict=True):
        own = {f"listeners.{name}": text for name, text in listening.items()}
        if not settings.cluster.peers and settings.cluster.discovery is None:
            others = zip(ids, ports, strict=True)
            own["cluster.peers"] = ",".join(f"{one}@{at['internal']}" for one, at in others)
        if not has_credentials(settings.cluster):
            own["cluster.secret_file"] = str(root / SECRET_FILE)
        number = node - settings.node.id + 1
        name = f"shard-{number}"
        shards.append(Shard(node, root / name, root / f"{name}.ready", own))
    return shards


def run_shards(
    settings: Settings, count: int, arguments: list[str], ready_file: Path | None = None
) -> int:
    """Run the nodes until SIGTERM or SIGINT, each with the same `arguments`.

    Returns the exit code: that of a node that could not start, or 0.
    """
    shards = plan(settings, count)
    # Report problems once instead of by every node.
    NodeTls.of(settings.cluster)
    ClientTls.of(settings)
    root = Path(settings.node.data_dir)
    root.mkdir(parents=True, exist_ok=True)
    set_up_logging(settings.logging)
    _share_secret(settings, root / SECRET_FILE)
    return asyncio.run(_Supervisor(shards, arguments, ready_file).run())


def _share_secret(settings: Settings, path: Path) -> None:
    """Provide the secret of the nodes; generate one if the cluster consists of these nodes only."""
    cluster = settings.cluster
    is_joining = bool(cluster.peers) or cluster.discovery is not None
    if not is_joining and not has_credentials(cluster):
        try:
            is_new = make_secret_file(path)
        except OSError as error:
            raise InvalidSettings(
                [f"cluster.secret_file: {path} cannot be created: {error.strerror}"]
            ) from None
        if is_new:
            _log.info(
                "created the secret of a new cluster in %s; nodes on other machines need it too",
                path,
            )
    elif not path.exists() or has_credentials(cluster):
        credentials_of(cluster)


class _Supervisor:
    def __init__(self, shards: list[Shard], arguments: list[str], ready_file: Path | None) -> None:
        self._shards = shards
        self._arguments = arguments
        self._ready_file = ready_file
        self._stopping = asyncio.Event()
        self._ready: dict[int, dict[str, str]] = {}
        self._code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        await asyncio.gather(*(self._keep(shard) for shard in self._shards))
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)
        return self._code

    async def _keep(self, shard: Shard) -> None:
        """Run one node, and restart it when it fails, until all are stopped."""
        while not self._stopping.is_set():
            shard.ready_file.unlink(missing_ok=True)
            process = await self._launch(shard)
            ended = asyncio.ensure_future(process.wait())
            is_ready = await self._until_ready(shard, ended)
            await self._first(ended, self._stopping.wait())
            if not ended.done():
                await self._end(process, ended)
                return
            if self._stopping.is_set():
                return
            if not is_ready:
                _log.error("node %d cannot start; stopping all", shard.node_id)
                self._code = process.returncode or 1
                self._stopping.set()
                return
            _log.error(
                "node %d has exited with code %s; restarting it",
                shard.node_id,
                process.returncode,
            )
            await self._first(asyncio.sleep(RESTART_SECONDS), self._stopping.wait())

    async def _launch(self, shard: Shard) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "goqueue", "serve", *self._arguments]
        # In its own session, so that Ctrl-C reaches only this process, which stops the nodes.
        return await asyncio.create_subprocess_exec(
            *command, *shard.arguments(), start_new_session=True, preexec_fn=_die_with(os.getpid())
        )

    async def _until_ready(self, shard: Shard, ended: asyncio.Future[int]) -> bool:
        while not shard.ready_file.exists():
            if ended.done() or self._stopping.is_set():
                return False
            await asyncio.sleep(LOOK_SECONDS)
        self._ready[shard.node_id] = json.loads(shard.ready_file.read_text())
        if len(self._ready) == len(self._shards):
            self._announce()
        return True

    async def _end(self, process: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await ended
        except TimeoutError:
            _log.error("process %d does not stop; killing it", process.pid)
            process.kill()
            await process.wait()

    async def _first(self, *waits: object) -> None:
        tasks = [asyncio.ensure_future(one) for one in waits]  # type: ignore[call-overload]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task, wait in zip(tasks, waits, strict=True):
            if task is not wait:
                task.cancel()

    def _announce(self) -> None:
        """Print the addresses of all nodes, joined per listener for use by clients."""
        nodes = [self._ready[one] for one in sorted(self._ready)]
        together = {name: ",".join(node[name] for node in nodes) for name in nodes[0]}
        if self._ready_file is not None:
            new = self._ready_file.with_name(self._ready_file.name + ".new")
            new.write_text(json.dumps(together))
            new.replace(self._ready_file)
        lines = [f"{len(nodes)} nodes are ready; Ctrl-C stops them all"]
        width = max(map(len, together))
        lines += [f"  {name:<{width}} {addresses}" for name, addresses in together.items()]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def _ports(settings: Settings, count: int) -> Iterator[dict[str, str]]:
    """The settings of the listeners of each node; ports of other listeners are skipped."""
    listeners = settings.listeners
    base = {one.name: one.address for one in listeners.all_of_clients()}
    base[INTERNAL] = listeners.internal
    taken = {address.port for address in base.values() if address.port}
    known = _known_addresses(settings)
    latest = {name: address.port for name, address in base.items()}
    for at in range(count):
        ports: dict[str, int] = {}
        for name, address in base.items():
            port = latest[name]
            if name == INTERNAL and settings.node.id + at in known:
                port = known[settings.node.id + at]
            elif port == 0:
                # The other nodes need the port before it is bound.
                port = _free_port(address.host) if name == INTERNAL else 0
            elif at:
                while port in taken:
                    port += 1
            taken.add(port)
            if address.port:
                latest[name] = port
            ports[name] = port
        yield _moved(listeners, ports)


def _moved(listeners: ListenerSettings, ports: Mapping[str, int]) -> dict[str, str]:
    """The settings of listeners, bound to other ports; advertised ports move along."""
    moved: dict[str, object] = {INTERNAL: replace(listeners.internal, port=ports[INTERNAL])}
    for protocol, of_protocol in listeners.of_clients().items():
        moved[protocol] = tuple(
            replace(one, address=replace(one.address, port=ports[one.name])) for one in of_protocol
        )
    for protocol in ("kafka", "http"):
        moved[f"{protocol}_advertised"] = tuple(
            NamedAddress(one.name if at else "", _shifted(advertised, one.address, ports[one.name]))
            for at, one in enumerate(listeners.of_clients()[protocol])
            if (advertised := listeners.advertised(one)) is not None
        )
    if listeners.internal_advertised is not None:
        advertised = listeners.internal_advertised
        moved["internal_advertised"] = _shifted(advertised, listeners.internal, ports[INTERNAL])
    return {
        name: SETTINGS[f"listeners.{name}"].about.kind.show(value)
        for name, value in moved.items()
        if value
    }


def _shifted(advertised: Address, bound: Address, port: int) -> Address:
    """An advertised address, as far from the bound port as that of the first node."""
    return replace(advertised, port=advertised.port + (port - bound.port if bound.port else 0))


def _known_addresses(settings: Settings) -> dict[int, int]:
    """The ports of the nodes in the list of peers."""
    pairs = (one.partition("@") for one in settings.cluster.peers.split(",") if one)
    return {int(node): int(address.rpartition(":")[2]) for node, _, address in pairs}


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with(parent: int) -> Callable[[], None] | None:
    """A step before a child starts: it receives SIGTERM when this process is killed."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_DIE_WITH_PARENT, signal.SIGTERM)
        if os.getppid() != parent:  # The parent was killed before this call.
            os.kill(os.getpid(), signal.SIGTERM)

    return ask
