"""Machines for nodes, made of network namespaces, a small file system and a clock to be wrong."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.credentials import SECRET
from tests.integration.cluster import ClusterBroker
from tests.integration.process import END_WITH_US

FAKETIME_LIBRARIES = "**/faketime/libfaketime.so.1"
DISK_BYTES = 64 << 20
FILL_CHUNK_BYTES = 1 << 16
KAFKA_PORT, HTTP_PORT, REGISTRY_PORT, INTERNAL_PORT, SQS_PORT = 9092, 8080, 8081, 7000, 9324
GRPC_PORT = 9000
SQS_KEY, SQS_SECRET = "campaign", "a-long-secret"
# A link that is slow: packets are late where the kernel can do that, else there is little room.
SLOW_LINKS = (
    "netem delay 120ms 60ms distribution normal",
    "tbf rate 800kbit burst 16kb latency 300ms",
)


def why_not() -> str:
    """What keeps this machine from making others; empty when nothing does."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    for tool, package in (("ip", "iproute2"), ("nft", "nftables"), ("mount", "mount")):
        if shutil.which(tool) is None:
            return f"`{tool}` is not installed (on Debian: apt-get install {package})"
    probe = subprocess.run(
        ["unshare", "--net", "nft", "add", "table", "inet", "probe"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"nftables does not work here: {probe.stderr.strip()}" if probe.returncode else ""


def faketime_library() -> Path | None:
    """The library that gives a process a clock of its own, if it is installed."""
    found = [*Path("/usr/lib").glob(FAKETIME_LIBRARIES)]
    return found[0] if found else None


def run(*command: str, text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"


def slow_link() -> str:
    """How this machine can slow down a link; empty when it cannot."""
    if shutil.which("tc") is None:
        return ""
    for discipline in SLOW_LINKS:
        script = f"ip link set lo up && tc qdisc add dev lo root {discipline}"
        probe = subprocess.run(
            ["unshare", "--net", "sh", "-c", script], capture_output=True, check=False
        )
        if probe.returncode == 0:
            return discipline
    return ""


class Network:
    """A bridge with one namespace for each machine; the test itself sits at the bridge."""

    def __init__(self, count: int) -> None:
        self.tag = f"{random.randrange(1 << 20):05x}"
        self.subnet = f"10.{random.randrange(64, 250)}.{random.randrange(250)}"
        self.numbers = range(1, count + 1)
        self._bridge = f"gqb{self.tag}"
        self._slow: set[int] = set()

    def namespace(self, number: int) -> str:
        return f"gq{self.tag}-{number}"

    def address(self, number: int) -> str:
        return f"{self.subnet}.{number}"

    def make(self) -> None:
        run("ip", "link", "add", "name", self._bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self.subnet}.254/24", "dev", self._bridge)
        run("ip", "link", "set", self._bridge, "up")
        for number in self.numbers:
            name, outside, inside = self.namespace(number), self._port(number), "eth0"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
            run("ip", "link", "set", outside, "master", self._bridge, "up")
            run("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", inside)
            run("ip", "-n", name, "link", "set", inside, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Leave nothing behind, however little was made."""
        for number in self.numbers:
            self._try("ip", "link", "del", self._port(number))
            self._try("ip", "netns", "del", self.namespace(number))
        self._try("ip", "link", "del", self._bridge)

    # Faults

    def cut(self, pairs: Iterable[tuple[int, int]], *, loss_percent: int = 0) -> None:
        """Let nothing pass from the first to the second of each pair, as from now on.

        Of all else so many packets get lost. What a node says to clients always passes.
        """
        dropped: dict[int, list[int]] = {number: [] for number in self.numbers}
        for source, target in pairs:
            dropped[target].append(source)
        for number, sources in dropped.items():
            rules = [f"ip saddr {self.address(source)} drop" for source in sources]
            if loss_percent:
                nodes = ", ".join(self.address(one) for one in self.numbers)
                rules.append(f"ip saddr {{ {nodes} }} numgen random mod 100 < {loss_percent} drop")
            self._apply(number, rules)

    def slow_down(self, number: int, discipline: str) -> None:
        """Let everything to and from a machine pass slowly."""
        run("tc", "qdisc", "replace", "dev", self._port(number), "root", *discipline.split())
        inside = ("ip", "netns", "exec", self.namespace(number), "tc", "qdisc", "replace")
        run(*inside, "dev", "eth0", "root", *discipline.split())
        self._slow.add(number)

    def heal(self) -> None:
        self.cut(())
        for number in self._slow:
            self._try("tc", "qdisc", "del", "dev", self._port(number), "root")
            inside = ("ip", "netns", "exec", self.namespace(number), "tc", "qdisc", "del")
            self._try(*inside, "dev", "eth0", "root")
        self._slow.clear()

    def _apply(self, number: int, rules: list[str]) -> None:
        lines = "\n".join(rules)
        table = (
            "table inet faults\ndelete table inet faults\n"
            "table inet faults {\nchain incoming {\ntype filter hook input priority 0;\n"
            f"{lines}\n}}\n}}\n"
        )
        run("ip", "netns", "exec", self.namespace(number), "nft", "-f", "-", text=table)

    def _port(self, number: int) -> str:
        return f"gqv{self.tag}{number}"

    def _try(self, *command: str) -> None:
        subprocess.run(command, capture_output=True, check=False)


class MachineBroker(ClusterBroker):
    """A node on a machine of its own."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        *,
        node_id: int,
        network: Network,
        disk_bytes: int = DISK_BYTES,
    ) -> None:
        peers = ",".join(f"{one}@{network.address(one)}:{INTERNAL_PORT}" for one in network.numbers)
        super().__init__(
            directory, settings, node_id=node_id, internal_port=INTERNAL_PORT, peers=peers
        )
        self.http_port = HTTP_PORT
        self.network = network
        self.is_stopped = False
        self.clock_offset = 0
        self._host = network.address(node_id)
        self._disk_bytes = disk_bytes
        self._has_lost_data = False
        self._clock_file = directory / "clock"
        self._ballast = self.data_dir / "ballast"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def bootstrap(self) -> str:
        return f"{self._host}:{KAFKA_PORT}"

    @property
    def http(self) -> str:
        return f"http://{self._host}:{HTTP_PORT}"

    @property
    def registry(self) -> str:
        return f"http://{self._host}:{REGISTRY_PORT}"

    @property
    def sqs(self) -> str:
        return f"http://{self._host}:{SQS_PORT}"

    @property
    def grpc(self) -> str:
        return f"{self._host}:{GRPC_PORT}"

    @property
    def is_alive(self) -> bool:
        """Whether the process runs; one that ended by itself does not."""
        return self._process is not None and self._process.poll() is None

    # Disk

    def mount(self) -> None:
        """Give the node a small disk."""
        self.data_dir.mkdir()
        size = f"size={self._disk_bytes}"
        run("mount", "-t", "tmpfs", "-o", size, "goqueue-test", str(self.data_dir))

    def unmount(self) -> None:
        if os.path.ismount(self.data_dir):
            run("umount", "--lazy", str(self.data_dir))

    def fill_disk(self) -> None:
        """Take all room there is."""
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while True:
                ballast.write(bytes(FILL_CHUNK_BYTES))
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while True:
                ballast.write(b"0")

    def empty_disk(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def lose_data(self) -> None:
        """Empty the disk of a node that does not run; it joins its cluster again."""
        assert not self.is_running
        for entry in self.data_dir.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        self._has_lost_data = True

    def damage(self, chance: random.Random, *, files: int) -> list[str]:
        """Flip a byte in some segments of a node that does not run; which ones."""
        assert not self.is_running
        segments = [one for one in self.segments() if one.stat().st_size]
        done = []
        for segment in chance.sample(segments, min(files, len(segments))):
            at = chance.randrange(segment.stat().st_size)
            with segment.open("r+b") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ (1 << chance.randrange(8))]))
            done.append(f"{segment.relative_to(self.data_dir / 'logs')} byte {at}")
        return done

    def segments(self) -> list[Path]:
        """Files of the logs of this node, in order."""
        return sorted((self.data_dir / "logs").rglob("*.log"))

    # Process and clock

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.is_stopped = True

    def resume(self) -> None:
        if self.is_stopped and self.is_running:
            os.kill(self.pid, signal.SIGCONT)
        self.is_stopped = False

    def kill(self) -> None:
        super().kill()
        self.is_stopped = False

    def skew(self, seconds: int) -> None:
        """Set the clock wrong by so much; it is noticed at once."""
        self.clock_offset = seconds
        replaced = self._clock_file.with_suffix(".new")
        replaced.write_text(f"{seconds:+d}s\n")
        replaced.rename(self._clock_file)

    def _command(self, ready_file: Path) -> list[str]:
        command = ["ip", "netns", "exec", self.network.namespace(self.node_id)]
        library = faketime_library()
        if library is not None:
            if not self._clock_file.exists():
                self.skew(0)
            command += [
                "env",
                f"LD_PRELOAD={library}",
                f"FAKETIME_TIMESTAMP_FILE={self._clock_file}",
                "FAKETIME_NO_CACHE=1",
                "FAKETIME_DONT_FAKE_MONOTONIC=1",
                "FAKETIME_DONT_RESET=1",
            ]
        command += [*END_WITH_US, sys.executable, "-m", "goqueue", "serve"]
        command += ["--data-dir", str(self.data_dir), "--ready-file", str(ready_file)]
        command += ["--listen-kafka", self.bootstrap, "--allow-unauthenticated"]
        command += ["--listen-http", f"{self._host}:{HTTP_PORT}"]
        command += ["--listen-registry", f"{self._host}:{REGISTRY_PORT}"]
        command += ["--listen-sqs", f"{self._host}:{SQS_PORT}"]
        command += ["--listen-grpc", self.grpc]
        command += ["--set", f"sqs.access_keys={SQS_KEY}:{SQS_SECRET}"]
        command += ["--join"] if self._has_lost_data else []
        command += ["--listen-internal", f"{self._host}:{INTERNAL_PORT}"]
        command += ["--node-id", str(self.node_id), "--peers", self._peers]
        command += ["--set", f"cluster.secret={SECRET}"]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command
