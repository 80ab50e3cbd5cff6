"""`python -m bench.neighbours`: what a client notices of another one that floods the node.

A quiet client sends one small message every few milliseconds and waits for each. It is measured
alone, beside a client that writes as fast as it can, and beside the same client with a quota, in
turns, so that a machine whose speed changes affects all three alike. The rate that the flooding
client reaches under its quota is printed too.
"""

from __future__ import annotations

import argparse
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

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.systems import Server, goqueue
from bench.tables import markdown_table

TURNS = 4
TURN_SECONDS = 6.0
PAUSE_SECONDS = 0.005
RATE = 10_000_000
FLOOD_VALUE = b"x" * 10_000
SETTLING_SECONDS = 2.0  # until the burst is used up

_CASES = ("alone", "beside a flood", "beside a flood with a quota")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours", description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seconds", type=float, default=TURN_SECONDS)
    parser.add_argument("--rate", type=int, default=RATE, help="of the quota, in bytes per second")
    parser.add_argument("--flood", metavar="BOOTSTRAP", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.flood:
        return _flood(options.flood)
    with TemporaryDirectory() as work:
        server = goqueue("node", Path(work) / "node", {"storage.fsync": "none"})
        server.start()
        try:
            return _compare(server, options.turns, options.seconds, options.rate)
        finally:
            server.close()


def _compare(server: Server, turns: int, seconds: float, rate: int) -> int:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
    for name in ("quiet", "noisy"):
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    latencies: dict[str, list[list[float]]] = {case: [] for case in _CASES}
    reached: list[float] = []
    for turn in range(turns):
        print(f"turn {turn + 1} of {turns}", file=sys.stderr)
        latencies[_CASES[0]].append(_quiet(server, seconds))
        with _flooding(server):
            latencies[_CASES[1]].append(_quiet(server, seconds))
        _limit(server, rate)
        with _flooding(server) as flood:
            latencies[_CASES[2]].append(_quiet(server, seconds))
            reached.append(_rate_of(flood))
        _limit(server, None)
    lines = [_line(case, latencies[case], latencies[_CASES[0]]) for case in _CASES]
    print("\n".join(markdown_table(("quiet client", "p50, ms", "p99, ms", "to alone"), lines)))
    print(f"The flood reached {statistics.median(reached) / rate:.1%} of its quota of {rate} B/s.")
    return 0


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


def _quiet(server: Server, seconds: float) -> list[float]:
    """The latencies of single messages, in milliseconds."""
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "client.id": "quiet",
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "log_level": 2,
        }
    )
    producer.produce("quiet", b"warm-up")
    producer.flush(30)
    time.sleep(SETTLING_SECONDS)
    latencies = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        producer.produce("quiet", b"x" * 100)
        if producer.flush(30):
            raise KafkaException("a message was not delivered")
        latencies.append((time.perf_counter() - began) * 1_000)
        time.sleep(PAUSE_SECONDS)
    return latencies


@contextmanager
def _flooding(server: Server) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.neighbours", "--flood", server.bootstrap]
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


def _flood(bootstrap: str) -> int:
    """Write as fast as possible; after a line of input, print the rate since the start."""
    import select

    acked = 0

    def delivered(error: object, _: object) -> None:
        nonlocal acked
        acked += len(FLOOD_VALUE) if error is None else 0

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "noisy",
            "compression.type": "none",
            "batch.size": 200_000,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 8 << 10,
            "log_level": 2,
        }
    )
    began, before, is_settled = time.perf_counter(), 0, False
    while True:
        try:
            producer.produce("noisy", FLOOD_VALUE, on_delivery=delivered)
        except BufferError:
            producer.poll(0.005)
            now = time.perf_counter()
            if not is_settled and now - began > SETTLING_SECONDS:
                began, before, is_settled = now, acked, True
            if select.select([sys.stdin], [], [], 0)[0]:
                sys.stdin.readline()
                print((acked - before) / (now - began), flush=True)


def _limit(server: Server, rate: int | None) -> None:
    body = {"entity": {"client-id": "noisy"}, "limits": {"producer_byte_rate": rate}}
    request = urllib.request.Request(
        f"http://{server.http}/v1/quotas",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
        method="PATCH",
    )
    with urllib.request.urlopen(request):
        pass


if __name__ == "__main__":
    sys.exit(main())
