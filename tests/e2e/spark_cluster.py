"""A standalone cluster of Spark on this machine, from what PySpark itself brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark

from tests.e2e.java import java_options
from tests.e2e.processes import kill_processes_with, processes_with
from tests.integration.ports import quiet_port
from tests.integration.process import END_WITH_US
from tests.integration.waiting import eventually

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS_MAX = 90
WORKER_MEMORY = "768m"
# Every process that the cluster starts, however indirectly, inherits the first of these.
MARK = "GOQUEUE_TEST_CLUSTER"
WORKER = "GOQUEUE_TEST_WORKER"

# For drivers of the cluster: small, and at addresses that exist without a network.
DRIVER_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": java_options(),
}


class Cluster:
    """A master, and workers of one core each that can be killed with all they have started."""

    def __init__(self, folder: Path, *, workers: int) -> None:
        self._folder = folder
        self._port, self._web_port = quiet_port(), quiet_port()
        self._mark = uuid.uuid4().hex
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._workers_wanted = workers

    @property
    def address(self) -> str:
        """What `--master` is told."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """For drivers: their Python is that of the workers."""
        own = {
            MARK: self._mark,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "true",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
            "PYSPARK_PYTHON": sys.executable,
        }
        return {**os.environ, **own}

    @property
    def log_text(self) -> str:
        """The end of what each process has printed."""
        logs = sorted(self._folder.glob("*.log")) + sorted(self._folder.glob("work-*/*/*/stderr"))
        return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs)

    def start(self) -> None:
        """Start the processes, and wait until the master knows all workers."""
        at = ["--host", "127.0.0.1"]
        ports = ["--port", str(self._port), "--webui-port", str(self._web_port)]
        self._master = self._launch("master", "master.Master", [*at, *ports])
        for number in range(self._workers_wanted):
            share = ["--cores", "1", "--memory", WORKER_MEMORY, "--webui-port", "0"]
            folder = ["--work-dir", str(self._folder / f"work-{number}")]
            self._workers.append(
                self._launch(
                    f"worker-{number}",
                    "worker.Worker",
                    [*at, *share, *folder, self.address],
                    {WORKER: str(number)},
                )
            )
        eventually(
            lambda: self.alive_workers() == self._workers_wanted,
            because=f"the workers have found their master\n{self.log_text}",
            within=START_SECONDS_MAX,
        )

    def alive_workers(self) -> int:
        """How many workers the master counts on."""
        ended = [one.args for one in (self._master, *self._workers) if one and one.poll()]
        assert not ended, f"{ended} ended:\n{self.log_text}"
        try:
            address = f"http://127.0.0.1:{self._web_port}/json/"
            with urllib.request.urlopen(address, timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return 0  # it is not up yet, or answers this too with a page for people
        return int(state["aliveworkers"])

    def kill_worker(self, number: int) -> None:
        """A machine is gone: the worker, its executors and their Python, at once."""
        kill_processes_with({MARK: self._mark, WORKER: str(number)})
        self._workers[number].wait()
        del self._workers[number]

    def close(self) -> None:
        """Leave no process behind, not even one that a worker has started."""
        for process in (self._master, *self._workers):
            if process is not None:
                process.kill()
                process.wait()
        self._master = None
        self._workers.clear()
        kill_processes_with({MARK: self._mark})

    def processes_left(self) -> list[int]:
        """Those of the cluster and of its drivers that still run."""
        return processes_with({MARK: self._mark})

    def _launch(
        self, name: str, of: str, words: list[str], extra: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [*END_WITH_US, str(SPARK_HOME / "bin" / "spark-class")]
        with (self._folder / f"{name}.log").open("wb") as output:
            return subprocess.Popen(
                [*command, f"org.apache.spark.deploy.{of}", *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**self.environment, **(extra or {})},
                cwd=self._folder,
            )
