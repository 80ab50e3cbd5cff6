"""One node as a process: open the data, listen, serve, stop cleanly when told to."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import logging
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import uvloop

from goqueue.broker import Broker
from goqueue.config import Settings
from goqueue.model.errors import InvalidSettings
from goqueue.runtime.disk import LocalDisk
from goqueue.runtime.scheduler import LoopScheduler
from goqueue.runtime.sockets import Listener
from goqueue.wire.http.application import Application
from goqueue.wire.http.front_end import FrontEnd as HttpFrontEnd
from goqueue.wire.http.front_end import Limits as HttpLimits
from goqueue.wire.http.operations import OPERATIONS
from goqueue.wire.http.registry_operations import REGISTRY_PREFIX, registry_dialect
from goqueue.wire.kafka.front_end import FrontEnd, Limits

# So many new objects may live before the garbage collector looks for cycles among them. There are
# hardly any, and with Python's own 700 a few requests of a thousand messages each are enough to
# have it visit everything there is, while everybody waits.
GC_ALLOCATIONS = 10_000

_log = logging.getLogger(__name__)


def run(settings: Settings, ready_file: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    _set_up_logging(settings)
    folder = Path(settings.node.data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    # Threads that run Python (compaction) must not keep the event loop waiting for long.
    sys.setswitchinterval(0.001)
    _raise_file_limit()
    with _Lock(folder):
        uvloop.install()
        asyncio.run(_serve(settings, ready_file))
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)


async def _serve(settings: Settings, ready_file: Path | None) -> None:
    started = time.perf_counter()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopping.set)
    disk = LocalDisk(
        str(settings.node.data_dir),
        open_files_max=settings.storage.open_files_max,
        write_piece_bytes=settings.storage.write_chunk_bytes,
    )
    scheduler = LoopScheduler(loop)
    broker = Broker(settings, disk, scheduler, random.SystemRandom())
    broker.open()
    bound: tuple[str, int] = ("", 0)

    def advertised() -> tuple[str, int]:
        wanted = settings.listeners.kafka_advertised
        return (wanted.host, wanted.port or bound[1]) if wanted is not None else bound

    front = FrontEnd(broker, _limits(settings), advertised=advertised)
    listener = Listener(
        loop,
        front.connect,
        connections_max=settings.listeners.connections_max,
        connections_per_address_max=settings.listeners.connections_per_address_max,
        idle_timeout_ms=settings.listeners.idle_timeout_ms,
        receive_bytes_total_max=settings.listeners.receive_buffer_bytes_total_max,
        send_buffer_bytes=settings.listeners.send_buffer_bytes,
    )
    address = settings.listeners.kafka
    bound = listener.listen(address.host, address.port)
    http, registry = _http_applications(settings, broker)
    http_listener = _http_listener(loop, settings, http)
    http_address = settings.listeners.http
    http_bound = http_listener.listen(http_address.host, http_address.port)
    registry_listener = _http_listener(loop, settings, registry)
    registry_address = settings.listeners.registry
    registry_bound = registry_listener.listen(registry_address.host, registry_address.port)
    # What start-up made lives as long as the process; there is no need to visit it ever again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS)
    addresses = {
        "kafka": _join(*bound),
        "http": _join(*http_bound),
        "registry": _join(*registry_bound),
    }
    _announce(settings, addresses, ready_file, time.perf_counter() - started)
    await stopping.wait()
    _log.info("stopping")
    listener.close()
    for application in (http, registry):
        answered = asyncio.Event()
        application.stop(answered.set)
        await answered.wait()
    http_listener.close()
    registry_listener.close()
    closed = asyncio.Event()
    broker.close(closed.set)
    await closed.wait()
    scheduler.close()
    _log.info("stopped")


def _raise_file_limit() -> None:
    """Connections and segment files need descriptors: ask for all that are allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _limits(settings: Settings) -> Limits:
    return Limits(
        request_bytes_max=settings.listeners.request_bytes_max,
        requests_in_flight_max=settings.listeners.requests_in_flight_max,
        fetch_bytes_max=settings.fetch.bytes_max,
        fetch_sessions_max=settings.fetch.sessions_max,
    )


def _http_applications(settings: Settings, broker: Broker) -> tuple[Application, Application]:
    """The API, and the schema registry, which is also a part of it."""
    listeners = settings.listeners
    limits = HttpLimits(
        body_bytes_max=listeners.http_body_bytes_max,
        receiving_bytes_max=listeners.receive_buffer_bytes_total_max,
        receive_ms_max=listeners.http_receive_timeout_ms,
        answer_bytes_max=listeners.http_answer_bytes_max,
    )
    mounted = {REGISTRY_PREFIX.strip("/"): registry_dialect(REGISTRY_PREFIX)}
    http = Application(HttpFrontEnd(broker, limits, OPERATIONS), mounts=mounted)
    return http, Application(HttpFrontEnd(broker, limits, ()), registry_dialect())


def _http_listener(
    loop: asyncio.AbstractEventLoop, settings: Settings, application: Application
) -> Listener:
    listeners = settings.listeners
    return Listener(
        loop,
        application.connect,
        connections_max=listeners.http_connections_max,
        connections_per_address_max=listeners.connections_per_address_max,
        idle_timeout_ms=listeners.http_idle_timeout_ms,
        receive_bytes_total_max=listeners.receive_buffer_bytes_total_max,
    )


def _announce(
    settings: Settings, addresses: dict[str, str], ready_file: Path | None, seconds: float
) -> None:
    if ready_file is not None:
        new = ready_file.with_name(ready_file.name + ".new")
        new.write_text(json.dumps(addresses))
        new.replace(ready_file)
    lines = [f"GoQueue is ready after {seconds:.2f} s"]
    lines += [f"  {name:<8} {address}" for name, address in addresses.items()]
    lines.append(f"  {'data':<8} {Path(settings.node.data_dir).resolve()}")
    lines.append(f"  {'fsync':<8} {settings.storage.fsync}")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _set_up_logging(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if settings.logging.format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        form = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
        handler.setFormatter(logging.Formatter(form))
    logging.basicConfig(level=settings.logging.level.upper(), handlers=[handler], force=True)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _Lock:
    """Keeps a second node off the same data folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise InvalidSettings(
                [
                    f"node.data_dir: {self._path.parent} is in use by another node; "
                    "stop that one or choose another folder."
                ]
            ) from None

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
