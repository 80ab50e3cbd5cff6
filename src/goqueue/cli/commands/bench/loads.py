"""The loads: each writes or reads numbered messages and returns what it measured."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from goqueue.cli.commands.bench.figures import (
    BYTES_MIN,
    Arrivals,
    due_ns,
    numbered,
    rate_row,
    read_numbered,
)
from goqueue.client import LogClient, Position, ProducerSettings, Reader
from goqueue.client.http import Client

Row = dict[str, object]
Tick = Callable[[int], object]

PROGRESS_STEP = 1_000
PUBLISH_AT_ONCE = 500  # messages in a request of the queue load
RECEIVE_AT_ONCE = 100
RECEIVE_WAIT_SECONDS = 1
POLL_MS = 200
# How long after the last message arrivals are waited for; then they count as lost.
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What all loads have in common."""

    topic: str
    size: int  # bytes of a value
    count: int

    def value(self, number: int, due: int = 0) -> bytes:
        return numbered(number, due, self.padding)

    @property
    def padding(self) -> bytes:
        """Random, so that compression has as little effect as on encrypted data."""
        return random.Random(self.size).randbytes(max(self.size - BYTES_MIN, 0))


def produce(client: LogClient, load: Load, settings: ProducerSettings, tick: Tick) -> Row:
    """Write all messages as fast as they are acknowledged."""
    padding = load.padding
    started = time.monotonic()
    with client.producer(settings) as producer:
        for number in range(load.count):
            producer.send(load.topic, numbered(number, 0, padding))
            if number % PROGRESS_STEP == 0:
                tick(number)
        producer.flush()  # raises the error of the first message that was not stored
        tick(load.count)
    return rate_row("produce", load.count, load.count * load.size, time.monotonic() - started)


def consume(client: LogClient, topic: str, arrivals: Arrivals | None, tick: Tick) -> Row:
    """Read the topic from its beginning to its present end, and check its messages."""
    started = time.monotonic()
    count = byte_count = 0
    reader = client.reader([topic], Position.earliest(), until=Position.latest())
    for record in reader.records():
        count += 1
        byte_count += len(record.value or b"")
        if arrivals is not None and (found := read_numbered(record.value)) is not None:
            arrivals.add(found[0])
        if count % PROGRESS_STEP == 0:
            tick(count)
    seconds = time.monotonic() - started
    if arrivals is not None:
        arrivals.check(where=f"in {topic}")
    return rate_row("consume", count, byte_count, seconds)


def queue(client: Client, load: Load, group: str, consumers: int, tick: Tick) -> list[Row]:
    """Publish messages, then receive and acknowledge each, with several consumers at a time."""
    client.groups.put_queue(group)
    started = time.monotonic()
    for first in range(0, load.count, PUBLISH_AT_ONCE):
        numbers = range(first, min(first + PUBLISH_AT_ONCE, load.count))
        client.publish_many(load.topic, [load.value(number) for number in numbers])
        tick(numbers.stop // 2)
    published = time.monotonic()
    work = _Work(Arrivals(load.count), tick, published)
    with ThreadPoolExecutor(consumers) as pool:
        for done in [pool.submit(work.run, client, load, group) for _ in range(consumers)]:
            done.result()
    work.arrivals.check(where=f"at {group}")
    size = load.count * load.size
    row = rate_row("receive and ack", load.count, size, work.last_at - published)
    publish_row = rate_row("publish", load.count, size, published - started)
    return [one | {"duplicates": work.arrivals.duplicates} for one in (publish_row, row)]


@dataclass(slots=True)
class _Work:
    """What several consumers of a queue do together."""

    arrivals: Arrivals
    tick: Tick
    last_at: float  # when the last message was acknowledged
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, client: Client, load: Load, group: str) -> None:
        own = client.queue(load.topic, group=group)
        while self._is_open():
            received = own.receive(RECEIVE_AT_ONCE, wait=RECEIVE_WAIT_SECONDS)
            if not received:
                continue
            outcomes = own.ack_many(received)
            with self._lock:
                for message, error in zip(received, outcomes, strict=True):
                    found = read_numbered(message.value)
                    if error is None and found is not None:
                        self.arrivals.add(found[0])
                self.last_at = time.monotonic()
                self.tick(load.count - len(self.arrivals.missing) // 2)

    def _is_open(self) -> bool:
        with self._lock:
            is_late = time.monotonic() - self.last_at > PATIENCE_SECONDS
            return bool(self.arrivals.missing) and not is_late


@dataclass(slots=True)
class Latencies:
    """In milliseconds, from when each message was due."""

    acknowledged: list[float] = field(default_factory=list)
    received: list[float] = field(default_factory=list)


def latency(
    client: LogClient,
    load: Load,
    rate: float,
    settings: ProducerSettings,
    reading: Callable[[], LogClient],
    tick: Tick,
) -> Latencies:
    """Send messages when they are due, and read them at the same time in another thread."""
    found = Latencies()
    with reading() as other, ThreadPoolExecutor(1) as pool:
        reader = other.reader([load.topic], Position.latest())
        stopped = threading.Event()
        arrivals = Arrivals(load.count)
        arriving = pool.submit(_read, reader, arrivals, found.received, stopped)
        try:
            _send_when_due(client, load, rate, settings, found.acknowledged, tick)
        except BaseException:
            stopped.set()
            raise
        arriving.result()
    arrivals.check(where=f"in {load.topic}")
    return found


def _send_when_due(
    client: LogClient,
    load: Load,
    rate: float,
    settings: ProducerSettings,
    acknowledged: list[float],
    tick: Tick,
) -> None:
    padding = load.padding
    with client.producer(settings) as producer:
        started = time.monotonic_ns()
        number = 0
        while number < load.count:
            wait_ns = due_ns(started, number, rate) - time.monotonic_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / 1e9)
            sent: list[int] = []
            while number < load.count and (due := due_ns(started, number, rate)) <= (
                time.monotonic_ns()
            ):
                producer.send(load.topic, numbered(number, due, padding))
                sent.append(due)
                number += 1
            producer.flush()
            now = time.monotonic_ns()
            acknowledged += [(now - due) / 1e6 for due in sent]
            tick(number)


def _read(
    reader: Reader, arrivals: Arrivals, received: list[float], stopped: threading.Event
) -> None:
    """Read until everything has arrived, or nothing has for a while."""
    last = time.monotonic()
    while arrivals.missing and not stopped.is_set():
        for record in reader.poll(wait_ms=POLL_MS):
            now = time.monotonic_ns()
            found = read_numbered(record.value)
            if found is not None and arrivals.add(found[0]):
                received.append((now - found[1]) / 1e6)
                last = time.monotonic()
        if time.monotonic() - last > PATIENCE_SECONDS:
            return
