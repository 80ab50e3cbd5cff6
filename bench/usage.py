"""Processor time and memory of server and client while a run is measured.

A run may fill a topic before it reads it. So it is cut into stretches: one begins when a load
generator starts while no other runs, and ends with the last of them. Each is known by what its load
generator did, and of equal ones the last counts, because what comes before prepares it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.processes import (
    Load,
    children,
    cpu_seconds,
    forget_peak,
    own_peak_bytes,
    peak_bytes,
    watching_loads,
)


class Process(Protocol):
    """Anything that is one process with its children."""

    @property
    def pid(self) -> int: ...


class Restartable(Process, Protocol):
    """A server that is not always there."""

    @property
    def is_running(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Usage:
    """What one stretch took. A peak is the sum of the peaks of all processes of that side."""

    what: str
    messages: int
    server_cpu_s: float
    server_peak_bytes: int
    client_cpu_s: float
    client_peak_bytes: int

    def server_us(self) -> float | None:
        """Processor time of the server for one message."""
        return self.server_cpu_s * 1e6 / self.messages if self.messages else None

    def client_us(self) -> float | None:
        """Processor time of the client for one message."""
        return self.client_cpu_s * 1e6 / self.messages if self.messages else None

    def to_data(self) -> dict[str, Any]:
        """As it is kept with the results."""
        return dataclasses.asdict(self)


@dataclass(slots=True)
class _Stretch:
    what: str
    messages: int = 0
    client_cpu_s: float = 0.0
    client_peak_bytes: int = 0
    running: list[Load] = field(default_factory=list)


@dataclass(slots=True)
class Meter:
    """Watches the load generators of a run, and the servers that the run says it uses."""

    _kept: list[Restartable] = field(default_factory=list)
    _used: list[Process] = field(default_factory=list)
    _known: set[int] = field(default_factory=set)
    _marks: dict[int, float] = field(default_factory=dict)
    _usages: dict[str, Usage] = field(default_factory=dict)
    _stretch: _Stretch | None = None

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """One run: `usages` then tells what it took."""
        self._used.clear()
        self.forget()
        self._mark()
        before = self._own_cpu()
        with watching_loads(self):
            yield
        if not self._usages and self._pids():
            # No load generator: the client is this process, with what it started for itself.
            after = self._own_cpu()
            taken = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
            peak = own_peak_bytes() + sum(peak_bytes(pid) for pid in after if pid != os.getpid())
            self._usages[""] = self._close(_Stretch("", 0, taken, peak))

    def usages(self) -> tuple[Usage, ...]:
        """Of the last run, in order."""
        return tuple(self._usages.values())

    def forget(self) -> None:
        """What was seen so far is no part of the run."""
        self._usages.clear()
        self._stretch = None

    def keep(self, server: Restartable) -> None:
        """Count this server in every run during which it is up."""
        self._kept.append(server)

    def use(self, *servers: Process) -> None:
        """Count these servers in this run; a new one has been warmed up just now."""
        for server in servers:
            if server.pid not in self._known:
                self._known.add(server.pid)
                self.forget()
            if server not in self._used:
                self._used.append(server)
                self._marks.setdefault(server.pid, cpu_seconds(server.pid))

    def load_started(self, load: Load) -> None:
        """Begin a stretch, unless another load generator has begun it."""
        if self._stretch is None:
            self._stretch = _Stretch(load.what)
            self._mark()
        self._stretch.running.append(load)

    def load_ended(self, load: Load, result: dict[str, Any]) -> None:
        """End the stretch with its last load generator."""
        stretch = self._stretch
        if stretch is None or load not in stretch.running:
            return
        stretch.running.remove(load)
        stretch.messages = max(stretch.messages, int(result.get("acked", 0)))
        stretch.client_cpu_s += load.cpu_s
        stretch.client_peak_bytes += load.peak_bytes
        if not stretch.running:
            self._usages.pop(stretch.what, None)  # so that it comes last
            self._usages[stretch.what] = self._close(stretch)
            self._stretch = None

    def _mark(self) -> None:
        self._marks = {pid: cpu_seconds(pid) for pid in self._pids()}
        for pid in self._marks:
            forget_peak(pid)

    def _close(self, stretch: _Stretch) -> Usage:
        pids = self._pids()
        # A server that was started meanwhile had used nothing before; one that has ended tells
        # nothing any more.
        taken = [max(cpu_seconds(pid) - self._marks.get(pid, 0.0), 0.0) for pid in pids]
        return Usage(
            what=stretch.what,
            messages=stretch.messages,
            server_cpu_s=sum(taken),
            server_peak_bytes=sum(peak_bytes(pid) for pid in pids),
            client_cpu_s=stretch.client_cpu_s,
            client_peak_bytes=stretch.client_peak_bytes,
        )

    def _pids(self) -> list[int]:
        running = [server for server in self._kept if server.is_running]
        return list(dict.fromkeys(server.pid for server in (*self._used, *running)))

    def _own_cpu(self) -> dict[int, float]:
        servers = self._known.union(self._pids())
        helpers = [pid for pid in children(os.getpid()) if pid not in servers]
        return {os.getpid(): time.process_time()} | {pid: cpu_seconds(pid) for pid in helpers}


def chosen(usages: Iterable[Usage], metric: str) -> Usage | None:
    """The stretch that a figure tells of: `send_per_s` of the sending, others of the last."""
    found = list(usages)
    kind = metric.split("_", 1)[0]
    named = [usage for usage in found if usage.what == kind]
    return (named or found)[-1] if found else None
