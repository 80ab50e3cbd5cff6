"""`python -m bench.neighbours`: what a tenant notices of another one that floods the nodes.

Two tenants have a user and a topic each, on one node and on three. The quiet one sends one small
message every few milliseconds and waits for each. It is measured alone, beside the other one,
which writes as fast as it can, and beside the same with a quota of its tenant, in turns, so that a
machine whose speed changes affects all alike. The control is a neighbour without a quota that sends
no faster than the quota by itself, in batches of the same size: what that one costs is not due to
the quota. The rate that the flooding tenant reaches under its quota is printed too.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.clusters import GoQueueNode, goqueue_cluster
from bench.peers import free_ports
from bench.systems import goqueue
from bench.tables import markdown_table

TURNS = 4
TURN_SECONDS = 6.0
PAUSE_SECONDS = 0.005
RATE = 10_000_000
FLOOD_VALUE = b"x" * 10_000
BATCH_BYTES = 200_000  # of the flooding tenant
SETTLING_SECONDS = 3.0  # until bursts are used up, and nodes have the shares that they need
CREATE_SECONDS_MAX = 60.0
QUIET, NOISY = "quiet", "noisy"  # tenants, each with a user and a topic of the same name
PASSWORD = "neighbours-password"
OPERATOR = "operator"
SETTINGS = {"storage.fsync": "none", "security.initial_admin": f"{OPERATOR}:{PASSWORD}"}

_ALONE, _FLOOD, _QUOTA, _PACED = _CASES = (
    "alone",
    "beside a flood",
    "beside a flood with a quota",
    "beside that rate without a quota",
)


class Place(NamedTuple):
    """Where the tenants are served."""

    name: str
    bootstrap: str  # of the listeners for users with passwords
    http: str  # of the listener for operators
    partition_count: int  # of each topic: one for each node


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours", description=__doc__)
    parser.add_argument("--nodes", type=int, choices=(1, 3), help="by default one, and then three")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seconds", type=float, default=TURN_SECONDS)
    parser.add_argument("--rate", type=int, default=RATE, help="of the quota, in bytes per second")
    parser.add_argument("--flood", metavar="BOOTSTRAP", help=argparse.SUPPRESS)
    parser.add_argument("--pace", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.flood:
        return _flood(options.flood, options.pace)
    for count in (1, 3) if options.nodes is None else (options.nodes,):
        with TemporaryDirectory() as work, (_one_node if count == 1 else _three_nodes)(work) as at:
            _compare(at, options.turns, options.seconds, options.rate)
    return 0


@contextmanager
def _one_node(work: str) -> Iterator[Place]:
    open_port, sasl_port = free_ports(2)
    listeners = f"127.0.0.1:{open_port},sasl_plaintext://127.0.0.1:{sasl_port}"
    server = goqueue("node", Path(work) / "node", SETTINGS, kafka=listeners)
    server.start()
    try:
        yield Place("one node", f"127.0.0.1:{sasl_port}", server.http, 1)
    finally:
        server.close()


@contextmanager
def _three_nodes(work: str) -> Iterator[Place]:
    cluster = goqueue_cluster(Path(work), has_users=True, settings=SETTINGS)
    try:
        cluster.start()
        nodes = [one for one in cluster.nodes.values() if isinstance(one, GoQueueNode)]
        bootstrap = ",".join(one.sasl for one in nodes)
        yield Place("three nodes", bootstrap, nodes[0].http, len(nodes))
    finally:
        cluster.close()


def _compare(at: Place, turns: int, seconds: float, rate: int) -> None:
    for tenant in (QUIET, NOISY):
        _create_tenant(at, tenant)
    latencies: dict[str, list[list[float]]] = {case: [] for case in _CASES}
    reached: list[float] = []
    for turn in range(turns):
        print(f"{at.name}: turn {turn + 1} of {turns}", file=sys.stderr)
        latencies[_ALONE].append(_quiet(at, seconds))
        with _flooding(at):
            latencies[_FLOOD].append(_quiet(at, seconds))
        _limit(at, rate)
        with _flooding(at) as flood:
            latencies[_QUOTA].append(_quiet(at, seconds))
            reached.append(_rate_of(flood))
        _limit(at, None)
        with _flooding(at, pace=rate):
            latencies[_PACED].append(_quiet(at, seconds))
    lines = [_line(case, latencies[case], latencies[_ALONE]) for case in _CASES]
    head = (f"quiet tenant, {at.name}", "p50, ms", "p99, ms", "p99 to alone")
    print("\n".join(markdown_table(head, lines)))
    held = statistics.median(reached) / rate
    print(f"On {at.name} the flood reached {held:.1%} of its quota of {rate} B/s.\n", flush=True)


def _line(
    case: str, turns: Sequence[Sequence[float]], alone: Sequence[Sequence[float]]
) -> tuple[str, ...]:
    """The medians over all turns."""
    p50 = statistics.median(_percentile(one, 0.5) for one in turns)
    p99 = statistics.median(_percentile(one, 0.99) for one in turns)
    base = statistics.median(_percentile(one, 0.99) for one in alone)
    return case, f"{p50:.2f}", f"{p99:.2f}", f"{p99 / base:.2f}"


def _percentile(values: Sequence[float], share: float) -> float:
    in_order = sorted(values)
    return in_order[min(len(in_order) - 1, int(share * len(in_order)))]


# Tenants


def _create_tenant(at: Place, tenant: str) -> None:
    """Create a tenant with a user and a topic, all of the same name."""
    _send(at, "POST", "/v1/tenants", {"name": tenant, "admin": tenant})
    _send(at, "POST", "/v1/users", {"name": tenant, "password": PASSWORD, "tenant": tenant})
    admin = AdminClient(_client(at.bootstrap, tenant))
    topic = NewTopic(tenant, at.partition_count, at.partition_count)
    deadline = time.monotonic() + CREATE_SECONDS_MAX
    while True:
        try:
            admin.create_topics([topic])[tenant].result(CREATE_SECONDS_MAX)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)  # Not all nodes have joined yet.
        else:
            return


def _limit(at: Place, rate: int | None) -> None:
    body = {"entity": {"tenant": NOISY}, "limits": {"producer_byte_rate": rate}}
    _send(at, "PATCH", "/v1/quotas", body)


def _send(at: Place, method: str, path: str, body: object) -> None:
    credentials = base64.b64encode(f"{OPERATOR}:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(
        f"http://{at.http}{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Basic {credentials}"},
        method=method,
    )
    with urllib.request.urlopen(request):
        pass


def _client(bootstrap: str, user: str) -> dict[str, Any]:
    """The settings of a client of a user."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": user,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        "log_level": 2,
    }


# Load


def _quiet(at: Place, seconds: float) -> list[float]:
    """The latencies of single messages, in milliseconds; the partitions take turns."""
    settings = {"linger.ms": 0, "socket.nagle.disable": True}
    producer = Producer({**_client(at.bootstrap, QUIET), **settings})
    for partition in range(at.partition_count):
        producer.produce(QUIET, b"warm-up", partition=partition)
    producer.flush(30)
    time.sleep(SETTLING_SECONDS)
    latencies: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        producer.produce(QUIET, b"x" * 100, partition=len(latencies) % at.partition_count)
        if producer.flush(30):
            raise KafkaException("a message was not delivered")
        latencies.append((time.perf_counter() - began) * 1_000)
        time.sleep(PAUSE_SECONDS)
    return latencies


@contextmanager
def _flooding(at: Place, pace: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.neighbours", "--flood", at.bootstrap]
    command += ["--pace", str(pace)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _rate_of(flood: subprocess.Popen[str]) -> float:
    """The bytes per second that the other process has reached since its burst."""
    assert flood.stdin is not None
    assert flood.stdout is not None
    flood.stdin.write("\n")
    flood.stdin.flush()
    return float(json.loads(flood.stdout.readline()))


def _flood(bootstrap: str, pace: int) -> int:
    """Write as fast as possible, or a batch at a time at a pace in bytes per second.

    After a line of input, print the rate since the start.
    """
    import select

    acked = 0

    def delivered(error: object, _: object) -> None:
        nonlocal acked
        acked += len(FLOOD_VALUE) if error is None else 0

    settings = {
        "compression.type": "none",
        "batch.size": BATCH_BYTES,
        "linger.ms": 5,
        "queue.buffering.max.kbytes": 8 << 10,
        # The partitions take turns message by message, so that all nodes get the same load.
        "sticky.partitioning.linger.ms": 0,
    }
    producer = Producer({**_client(bootstrap, NOISY), **settings})
    began, before, is_settled = time.perf_counter(), 0, False
    if pace:
        _write_paced(producer, pace)
    while True:
        try:
            producer.produce(NOISY, FLOOD_VALUE, on_delivery=delivered)
        except BufferError:
            producer.poll(0.005)
            now = time.perf_counter()
            if not is_settled and now - began > SETTLING_SECONDS:
                began, before, is_settled = now, acked, True
            if select.select([sys.stdin], [], [], 0)[0]:
                sys.stdin.readline()
                print((acked - before) / (now - began), flush=True)


def _write_paced(producer: Producer, pace: int) -> NoReturn:
    """Write a batch to the next partition, and wait until the following one is due."""
    partitions = itertools.cycle(producer.list_topics(NOISY).topics[NOISY].partitions)
    due = time.perf_counter()
    for partition in partitions:
        for _ in range(BATCH_BYTES // len(FLOOD_VALUE)):
            producer.produce(NOISY, FLOOD_VALUE, partition=partition)
        # What is late is not made up for.
        due = max(time.perf_counter(), due + BATCH_BYTES / pace)
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)  # It returns early when it has reported a delivery.


if __name__ == "__main__":
    sys.exit(main())
