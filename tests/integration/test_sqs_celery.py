"""Celery runs a task queue on the SQS listener, with a real worker process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from . import celery_tasks
from .conftest import StartBroker
from .process import END_WITH_US, STOP_SECONDS_MAX
from .sqs import ATTEMPTS_AFTER_CRASH, Queue, connect
from .waiting import eventually

ROOT = Path(__file__).parents[2]
TASKS = "tests.integration.celery_tasks"
QUEUE = "celery"  # what Celery calls the queue of those who do not say
HOUR_SECONDS = 3600

NewWorker = Callable[[str], "Worker"]


class Worker:
    """`celery worker`, what its tasks have noted, and an application that gives it more."""

    def __init__(self, directory: Path, endpoint: str) -> None:
        self._app = celery_tasks.make_app(endpoint)
        self._notes = directory / "notes"
        self._output = directory / "worker-output"
        self._environment = {
            **os.environ,
            celery_tasks.ENDPOINT: endpoint,
            celery_tasks.NOTES: str(self._notes),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        command = [*END_WITH_US, sys.executable, "-m", "celery", "-A", TASKS]
        command += ["worker", "--pool", "solo", "--loglevel", "warning"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=ROOT,
            )

    def kill(self) -> None:
        """End the process as a crash would."""
        assert self._process is not None, "the worker is not running"
        self._process.kill()
        self._process.wait(STOP_SECONDS_MAX)
        self._process = None

    def restart(self) -> None:
        """Kill the process and start another one.

        A worker of kombu 5.7 ends when the broker does not answer a receive, and is meant to be
        started again by what watches over it.
        """
        self.kill()
        self.start()

    def ask(self, text: str, **more: Any) -> None:
        """Let a task note a text."""
        self._app.send_task(celery_tasks.TASK, [text], **more)

    def notes(self) -> Counter[str]:
        """How often each text was noted."""
        assert self._process is not None, "the worker is not running"
        assert self._process.poll() is None, self._output.read_text(errors="replace")[-4000:]
        return Counter(self._notes.read_text().split()) if self._notes.exists() else Counter()

    def until_noted(self, texts: set[str]) -> Counter[str]:
        """Wait until all of them ran."""
        eventually(lambda: texts <= self.notes().keys(), because=f"{len(texts)} tasks ran")
        return self.notes()

    def close(self) -> None:
        self._app.close()
        if self._process is not None:
            self.kill()


@pytest.fixture
def new_worker(tmp_path: Path) -> Iterator[NewWorker]:
    workers: list[Worker] = []

    def make(endpoint: str) -> Worker:
        workers.append(Worker(tmp_path, endpoint))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def test_tasks_survive_a_crash_of_the_broker(
    start_broker: StartBroker, new_worker: NewWorker
) -> None:
    node = start_broker()
    worker = new_worker(node.sqs)
    before = {f"before-{n}" for n in range(60)}
    for text in sorted(before):
        worker.ask(text)
    worker.start()
    eventually(worker.notes, because="the first of many tasks ran")

    node.kill()
    node.start()
    worker.restart()

    after = {f"after-{n}" for n in range(10)}
    for text in sorted(after):
        worker.ask(text)
    worker.until_noted(before | after)
    queue = _queue(node.sqs)
    eventually(lambda: queue.counts() == (0, 0, 0), because="every task is acknowledged")


def test_a_task_of_later_waits_at_the_broker(
    start_broker: StartBroker, new_worker: NewWorker
) -> None:
    node = start_broker({"sqs.long_delays": "true"})
    worker = new_worker(node.sqs)
    worker.ask("later", eta=datetime.now(UTC) + timedelta(seconds=HOUR_SECONDS))
    worker.ask("now")
    worker.start()
    worker.until_noted({"now"})
    queue = _queue(node.sqs)
    eventually(lambda: queue.counts() == (0, 0, 1), because="one task waits for its time")

    node.kill()
    node.clock_ahead_seconds = HOUR_SECONDS
    node.start()
    worker.restart()

    assert worker.until_noted({"later"}) == {"now": 1, "later": 1}
    eventually(lambda: queue.counts() == (0, 0, 0), because="every task is acknowledged")


def _queue(endpoint: str) -> Queue:
    client = connect(endpoint, attempts_max=ATTEMPTS_AFTER_CRASH)
    return Queue(client, client.get_queue_url(QueueName=QUEUE)["QueueUrl"])
