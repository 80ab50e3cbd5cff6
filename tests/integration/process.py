"""One `goqueue serve` process with a data directory of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .ports import quiet_port
from .waiting import eventually

START_SECONDS_MAX = 60  # generous: many of them may start at the same time
STOP_SECONDS_MAX = 30
CLOCK_AHEAD = Path(__file__).with_name("clock_ahead.py")
# Fixtures end their nodes. When the test process itself is killed, the kernel does.
END_WITH_US = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


class Broker:
    """A node that can be stopped, killed and started again on the same port and data."""

    scheme = "http"  # of all listeners that carry HTTP
    python = sys.executable  # of the environment that the node is installed in

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.settings = dict(settings)
        self._output = directory / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = quiet_port()
        self.http_port = quiet_port()
        self._registry_port = quiet_port()
        self._sqs_port = quiet_port()
        self.start_seconds_max: float = START_SECONDS_MAX
        self.environ: dict[str, str] = {}  # besides that of the test, from the next start on
        # How far the clock of the node is ahead of the machine's, from its next start on.
        self.clock_ahead_seconds = 0

    @property
    def bootstrap(self) -> str:
        """The address to give to a Kafka client."""
        return f"127.0.0.1:{self._port}"

    @property
    def http(self) -> str:
        """Where the HTTP API begins."""
        return f"{self.scheme}://127.0.0.1:{self.http_port}"

    @property
    def registry(self) -> str:
        """Where the schema registry begins."""
        return f"{self.scheme}://127.0.0.1:{self._registry_port}"

    @property
    def sqs(self) -> str:
        """The endpoint to give to an AWS SDK."""
        return f"{self.scheme}://127.0.0.1:{self._sqs_port}"

    @property
    def grpc(self) -> str:
        """The address to give to a gRPC client; it needs the setting `listeners.grpc`."""
        addresses = json.loads((self.directory / "ready.json").read_text())
        return str(addresses["grpc"])

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        assert self._process is not None, "the node is not running"
        return self._process.pid

    @property
    def ended_with(self) -> int | None:
        """The code with which the node has ended by itself; None while it runs."""
        assert self._process is not None, "the node was not started"
        return self._process.poll()

    @property
    def rss_bytes(self) -> int:
        """Memory the node holds now."""
        fields = Path(f"/proc/{self.pid}/status").read_text().split("VmRSS:")[1].split()
        return int(fields[0]) * 1024

    @property
    def log_text(self) -> str:
        """All the node has printed, over all its lives."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def until_logged(self, text: str) -> None:
        """Wait for a line of the log: a client may notice the end of its connection before it."""
        eventually(lambda: text in self.log_text, because=text)

    def start(self) -> None:
        """Start the node and wait until it serves."""
        self.launch()
        self.until_ready()

    def launch(self) -> None:
        """Start the node."""
        ready_file = self.directory / "ready.json"
        ready_file.unlink(missing_ok=True)
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command(ready_file),
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environ},
            )

    def until_ready(self) -> None:
        """Wait until the node serves."""
        ready_file = self.directory / "ready.json"
        eventually(
            lambda: ready_file.exists() or self._process_ended(),
            because="the node wrote its ready file",
            within=self.start_seconds_max,
        )
        addresses = json.loads(ready_file.read_text())
        assert addresses["kafka"] == self.bootstrap
        assert addresses["http"].endswith(f":{self.http_port}")
        assert f"{self.scheme}://{addresses['registry']}" == self.registry
        assert f"{self.scheme}://{addresses['sqs']}" == self.sqs

    def stop(self) -> None:
        """Ask the node to end, and expect it to end well."""
        self.ask_to_stop()
        self.until_stopped()

    def ask_to_stop(self) -> None:
        """Ask the node to end."""
        assert self._process is not None, "the node is not running"
        self._process.send_signal(signal.SIGTERM)

    def until_stopped(self) -> None:
        """Wait until the node has ended, and expect it to have ended well."""
        code = self._wait("SIGTERM")
        assert code == 0, f"the node ended with code {code}:\n{self.log_text[-4000:]}"

    def kill(self) -> None:
        """End the node as a crash would."""
        assert self._process is not None, "the node is not running"
        self._process.kill()
        self._wait("SIGKILL")

    def pause(self) -> None:
        """Stop the node where it is; it keeps its memory and its connections."""
        assert self._process is not None, "the node is not running"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused node go on."""
        assert self._process is not None, "the node is not running"
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop the node in order and start it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Leave no process behind."""
        if self._process is not None:
            self.kill()

    def _command(self, ready_file: Path) -> list[str]:
        program = ["-m", "goqueue"]
        if self.clock_ahead_seconds:
            program = [str(CLOCK_AHEAD), str(self.clock_ahead_seconds)]
        command = [*END_WITH_US, self.python, *program, "serve"]
        command += ["--data-dir", str(self.data_dir), "--listen-kafka", self.bootstrap]
        command += ["--listen-http", f"127.0.0.1:{self.http_port}"]
        command += ["--listen-registry", f"127.0.0.1:{self._registry_port}"]
        command += ["--listen-sqs", f"127.0.0.1:{self._sqs_port}"]
        command += ["--ready-file", str(ready_file)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _process_ended(self) -> bool:
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"the node ended with code {code} at start:\n{self.log_text[-4000:]}"
        return False

    def _wait(self, told: str) -> int:
        process, self._process = self._process, None
        assert process is not None, "the node is not running"
        try:
            return process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the node ignored {told}:\n{self.log_text[-4000:]}") from None
