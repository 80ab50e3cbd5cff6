"""Runs of the peers' own clients. All of them take the same modes and options.

A queue here is whatever the peer has for the purpose: a queue, a stream of RabbitMQ, NATS or Redis.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.clients.build import Toolbox
from bench.load import GRACE_SECONDS, RUN_SECONDS_MAX, complaint, latency, run
from bench.peers import Peer
from bench.processes import Load, LoadFailed, cpu_seconds, finish_load, start_load
from bench.report import Outcome

# So many messages on their way, or so many bytes, keep every peer busy and none from answering.
DEPTH = 1000
DEPTH_BYTES = 8_000_000
READ_AHEAD = 2000
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of one peer, and the calls of its client."""

    tools: Toolbox
    peer: Peer
    name: str

    def command(self, mode: str, seconds_max: float, **options: object) -> list[str]:
        """The command line of the peer's client."""
        host, port = self.peer.address.rsplit(":", 1)
        command = [
            *self.peer.client(self.tools, mode),
            *("--host", host, "--port", port, "--queue", self.name),
            *("--seconds-max", str(seconds_max)),
        ]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        return command

    def call(self, mode: str, **options: object) -> dict[str, Any]:
        """Run the client to its end."""
        return run(self.command(mode, RUN_SECONDS_MAX, **options))

    def start(self, mode: str, **options: object) -> Load:
        """Start the client; `finish_load` must follow."""
        return start_load(self.command(mode, RUN_SECONDS_MAX, **options))

    def fill(self, *, count: int, size: int) -> dict[str, Any]:
        """Publish so many by one connection; raises when one is not there."""
        filled = self.call("publish", count=count, size=size, depth=depth_for(size))
        if complaint(filled):
            raise LoadFailed(f"the queue could not be filled: {complaint(filled)}")
        return filled

    def create(self) -> None:
        """Make the queue before anybody publishes to it."""
        result = self._administer("create")
        if result.returncode != 0:
            raise LoadFailed(f"the queue could not be made: {result.stderr.strip()[-200:]}")

    def remove(self) -> None:
        """Delete the queue. A failure costs disk space and nothing else, so it is not one."""
        self._administer("remove")

    def _administer(self, mode: str) -> subprocess.CompletedProcess[str]:
        """Run the client apart from what is measured."""
        command = self.command(mode, GRACE_SECONDS)
        return subprocess.run(command, check=False, capture_output=True, text=True)


@contextlib.contextmanager
def fresh_queue(tools: Toolbox, peer: Peer) -> Iterator[Queue]:
    """A new queue, which the first to publish makes; deleted afterwards."""
    queue = new_queue(tools, peer)
    try:
        yield queue
    finally:
        queue.remove()


def new_queue(tools: Toolbox, peer: Peer) -> Queue:
    """A queue that nobody else uses; the caller removes it."""
    return Queue(tools, peer, f"bench-{next(_numbers)}")


def depth_for(size: int) -> int:
    """How many messages one connection has on their way."""
    return max(min(DEPTH, DEPTH_BYTES // size), 1)


def publish_to_peer(
    tools: Toolbox,
    peer: Peer,
    *,
    connections: int,
    depth: int,
    count: int,
    size: int = 1000,
    seconds: float = 0.0,
) -> Outcome:
    """Publish with `depth` outstanding on each connection; for at most so many seconds, if any.

    Every message must be acknowledged and then be there.
    """
    with fresh_queue(tools, peer) as queue:
        before = cpu_seconds(peer.pid)
        result = queue.call(
            "publish",
            connections=connections,
            depth=depth,
            count=count,
            size=size,
            stop_after=seconds,
            # A peer that acknowledges all that is on its way at once is timed from such a moment.
            warmup=max(min(count // 20, 1000), connections * depth),
        )
        broker_cpu = cpu_seconds(peer.pid) - before
    if not result["timed"] and not complaint(result):
        raise LoadFailed("all the time went by before anything was timed")
    per_s = result["timed"] / max(result["seconds"], 1e-9)
    values = latency(result) | {
        "messages_per_s": per_s,
        "requests_per_s": per_s,
        "acked": result["acked"],
        **_cpu(broker_cpu, result),
    }
    return Outcome(values, complaint(result))


def consume_from_peer(
    tools: Toolbox, peer: Peer, *, consumers: int, at_once: int, count: int, size: int
) -> Outcome:
    """Fill a new queue and consume it; each message exactly once, each acknowledged."""
    with fresh_queue(tools, peer) as queue:
        filled = queue.fill(count=count, size=size)
        before = cpu_seconds(peer.pid)
        result = queue.call(
            "consume",
            count=count,
            size=size,
            consumers=consumers,
            batch=at_once,
            prefetch=2 * at_once,
        )
        broker_cpu = cpu_seconds(peer.pid) - before
    values = {
        "messages_per_s": result["acked"] / result["seconds"],
        "publish_per_s": filled["acked"] / filled["seconds"],
        **_cpu(broker_cpu, result),
    }
    return Outcome(values, complaint(result))


def read_from_peer(queue: Queue, *, count: int, size: int) -> Outcome:
    """Read a filled log from its beginning, in order."""
    before = cpu_seconds(queue.peer.pid)
    result = queue.call("read", count=count, size=size, prefetch=READ_AHEAD)
    broker_cpu = cpu_seconds(queue.peer.pid) - before
    values = {
        "messages_per_s": result["timed"] / result["seconds"],
        **_cpu(broker_cpu, result),
    }
    return Outcome(values, complaint(result))


def follow_peer(tools: Toolbox, peer: Peer, *, count: int, size: int) -> Outcome:
    """A reader of what is being published at the same time."""
    with fresh_queue(tools, peer) as queue:
        queue.create()
        reading = queue.start("read", count=count, size=size, prefetch=READ_AHEAD)
        try:
            queue.fill(count=count, size=size)
        finally:
            read = finish_load(reading, RUN_SECONDS_MAX + GRACE_SECONDS)
    values = {"messages_per_s": read["timed"] / read["seconds"]}
    return Outcome(values, complaint(read))


def end_to_end_of_peer(tools: Toolbox, peer: Peer, *, rate: int, seconds: float) -> Outcome:
    """From the moment a message was due to the moment a reader had it."""
    warmup = rate // 2
    with fresh_queue(tools, peer) as queue:
        result = queue.call(
            "endtoend",
            rate=rate,
            count=int(rate * seconds) + warmup,
            warmup=warmup,
            size=1000,
            # Where a queue wants acks, they are one for every few messages.
            batch=10,
            prefetch=READ_AHEAD,
        )
    return Outcome(latency(result), complaint(result))


def delay_on_peer(
    tools: Toolbox, peer: Peer, *, count: int, size: int, seconds_max: float, **due: int
) -> Outcome:
    """Messages that the peer holds back: how fast it takes them in, how late they come."""
    with fresh_queue(tools, peer) as queue:
        command = queue.command("delay", seconds_max, count=count, size=size, **due)
        result = finish_load(start_load(command), seconds_max + GRACE_SECONDS)
    values = {
        "insert_per_s": result["acked"] / result["seconds"],
        "seen_p50_ms": result["p50_ms"],
        "seen_p99_ms": result["p99_ms"],
        "seen_max_ms": result["max_ms"],
    }
    return Outcome(values, complaint(result))


def _cpu(broker_seconds: float, result: dict[str, Any]) -> dict[str, float]:
    count = max(result["acked"], 1)
    return {
        "broker_cpu_us": broker_seconds * 1e6 / count,
        "client_cpu_us": result["cpu_seconds"] * 1e6 / count,
    }
