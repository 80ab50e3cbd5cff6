"""The processes that drain a queue, and what they have reported."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Producer

from tests.integration.process import END_WITH_US
from tests.integration.waiting import eventually

END_SECONDS_MAX = 60
PRODUCE_SECONDS_MAX = 60

Command = Sequence[str]


def python_worker(kind: str, addresses: str, queue: str) -> Command:
    return [sys.executable, "-m", "tests.integration.mixed.worker", kind, addresses, queue]


class Reports:
    """What consumers have printed, in the order in which it was read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.received: Counter[int] = Counter()
        self.settled: dict[int, str] = {}  # by which consumer each was settled
        self.by_kind: Counter[str] = Counter()
        self.by_consumer: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.wrong: list[str] = []

    def read(self, kind: str, consumer: str, line: str) -> None:
        what, _, value = line.strip().partition(" ")
        with self.lock:
            if what == "got":
                self._got(consumer, int(value))
            elif what == "settled":
                self._settled(kind, consumer, int(value))
            else:
                self.failures[f"{kind}: {line.strip()[:200]}"] += 1

    def _got(self, consumer: str, number: int) -> None:
        if number in self.settled:
            self.wrong.append(
                f"{number} came to {consumer} after {self.settled[number]} had settled it"
            )
        self.received[number] += 1

    def _settled(self, kind: str, consumer: str, number: int) -> None:
        if number in self.settled:
            self.wrong.append(f"{number} was settled by {self.settled[number]} and {consumer}")
        self.settled[number] = consumer
        self.by_kind[kind] += 1
        self.by_consumer[consumer] += 1


class Feed:
    """Produces numbers as fast as they are received, until it may end."""

    def __init__(
        self, bootstrap: str, topic: str, reports: Reports, *, count: int, partitions: int
    ) -> None:
        """`count` is the least; there are more if consumers are still to be killed."""
        self.produced = 0
        self._failed: list[object] = []
        self._topic = topic
        self._reports = reports
        self._count = count
        self._partitions = partitions
        self._may_end = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2}
        )
        self._thread = threading.Thread(target=self._produce)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._may_end.set()
        self._thread.join()
        assert self._producer.flush(PRODUCE_SECONDS_MAX) == 0
        assert not self._failed

    def _produce(self) -> None:
        backlog_max = max(200, self._count // 10)
        while not self._may_end.is_set():
            while self.produced < len(self._reports.received) + backlog_max:
                self._produce_one()
            self._producer.poll(0.01)
        while self.produced < self._count:
            self._produce_one()

    def _produce_one(self) -> None:
        self._producer.produce(
            self._topic,
            str(self.produced).encode(),
            partition=self.produced % self._partitions,
            on_delivery=lambda error, _: self._failed.append(error) if error else None,
        )
        self.produced += 1
        self._producer.poll(0)


class Drain:
    """Consumers of several kinds, each a process that is replaced when it is killed."""

    def __init__(self, commands: Mapping[str, Command]) -> None:
        """`commands` has one for each consumer, by its kind."""
        self.reports = Reports()
        self._commands = commands
        self._running: dict[str, tuple[str, subprocess.Popen[str]]] = {}
        self._threads: list[threading.Thread] = []
        self._count = 0

    @property
    def kinds(self) -> list[str]:
        return list(self._commands)

    def __enter__(self) -> Self:
        for kind in self._commands:
            self._start(kind)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _, process in self._running.values():
            assert process.stdin is not None
            process.stdin.close()
        for _, process in self._running.values():
            try:
                process.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for thread in self._threads:
            thread.join()

    def kill(self, kind: str) -> None:
        """Kill the consumer of a kind while it holds messages, and start another one."""
        name, process = self._running[kind]
        # One that has only started would hold nothing.
        eventually(
            lambda: self.reports.by_consumer[name],
            because=f"{name} has settled something",
            within=120,
        )
        process.kill()
        process.wait()
        self._start(kind)

    def _start(self, kind: str) -> None:
        self._count += 1
        name = f"{kind} {self._count}"
        process = subprocess.Popen(
            [*END_WITH_US, *self._commands[kind]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._running[kind] = name, process
        thread = threading.Thread(target=self._read, args=(kind, name, process))
        thread.start()
        self._threads.append(thread)

    def _read(self, kind: str, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):  # the last line of a consumer that was killed may be cut off
                self.reports.read(kind, name, line)
