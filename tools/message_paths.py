"""`python -m tools.message_paths`: the files and functions that one message visits.

It starts real nodes (`fsync: every`), warms them up so that topics, groups and connections exist,
and records what one message calls: produce, receive and ack on a single node, and a delayed message
through three nodes, one of which has its schedule and another its partition.

On a single node, a path is what each of several messages visits until it is answered: neither what
else the node does meanwhile, nor what it does later. What a cluster calls while nothing happens is
recorded first and left out. Observers (metrics, journeys) and quotas are counted apart.
docs/ARCHITECTURE.md has the result.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Consumer, Producer

from tests.integration.cluster import Cluster
from tests.integration.process import Broker
from tests.integration.waiting import eventually

Call = tuple[str, str]  # file and function
Calls = list[Call]  # in the order of the first call
Visited = dict[str, list[str]]  # the same by file

TRACED_NODE = Path(__file__).with_name("traced_node.py")
# Files of observers and quotas, which are told of ranges of messages and take no part in them.
OBSERVERS = (
    "broker/journeys/",
    "broker/metrics/",
    "broker/quotas/",
    "metrics/",
    "model/observer.py",
    "partition/run_reports.py",
)
ANSWER = ("runtime/sockets.py", "SocketConnection._transmit")
MESSAGES = 5  # of each path
IDLE_SECONDS = 3
DELAY_MS = 2_000
TOPIC = "orders"
GROUP = "workers"


class Trace:
    """Records several nodes at once."""

    def __init__(self, nodes: Iterable[Broker]) -> None:
        self._nodes = list(nodes)
        self._idle: set[tuple[str, str]] = set()

    def record(self, act: Callable[[], object]) -> list[Visited]:
        """Return what each node called during `act`, and not while it was idle."""
        return [_by_file(calls) for calls in self._record(act)]

    def record_answered(self, act: Callable[[], object]) -> Visited:
        """Return what the only node called until it answered, in every one of several `act`."""
        answered = [_until_answered(calls) for _ in range(MESSAGES) for calls in self._record(act)]
        first, *others = answered
        return _by_file(one for one in first if all(one in other for other in others))

    def learn_idle(self) -> None:
        """Find out what the nodes call by themselves."""
        for calls in self._record(lambda: time.sleep(IDLE_SECONDS)):
            self._idle.update(calls)

    def _record(self, act: Callable[[], object]) -> list[Calls]:
        for node in self._nodes:
            _signal(node, signal.SIGUSR1)
        act()
        return [self._end(node) for node in self._nodes]

    def _end(self, node: Broker) -> Calls:
        target = _target(node)
        target.unlink(missing_ok=True)
        _signal(node, signal.SIGUSR2)
        eventually(target.exists, because="the node has written its recording")
        pairs = (line.partition("\t") for line in target.read_text().splitlines())
        calls = [(file, name) for file, _, name in pairs]
        return [one for one in calls if one not in self._idle]


def _until_answered(calls: Calls) -> Calls:
    """Leave out what a node does after the response, such as the sync of a lease."""
    return calls[: calls.index(ANSWER) + 1]


def _by_file(calls: Iterable[Call]) -> Visited:
    visited: Visited = {}
    for file, name in calls:
        visited.setdefault(file, []).append(name)
    return visited


def _signal(node: Broker, number: signal.Signals) -> None:
    os.kill(node.pid, number)


def _target(node: Broker) -> Path:
    return node.directory / "recording"


def _traced(node: Broker) -> Broker:
    """Let a node that has not started yet run under the recorder."""
    plain = node._command

    def command(ready_file: Path) -> list[str]:
        words = plain(ready_file)
        at = words.index("-m")
        return [*words[:at], str(TRACED_NODE), str(_target(node)), *words[at + 2 :]]

    node._command = command  # type: ignore[method-assign]
    return node


def single_node(home: Path) -> dict[str, Visited]:
    """The paths on one node."""
    node = _traced(Broker(home, {}))
    node.start()
    try:
        trace = Trace([node])
        plain = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
        idempotent = Producer(
            {"bootstrap.servers": node.bootstrap, "linger.ms": 0, "enable.idempotence": True}
        )
        found = {}
        for name, producer in (("produce, plain", plain), ("produce, idempotent", idempotent)):
            for _ in range(3):
                _send(producer)
            found[name] = trace.record_answered(partial(_send, producer))
        worker = Worker(node.http.removeprefix("http://"))
        for _ in range(2 * (MESSAGES + 3)):
            worker.ack(worker.receive())
        for _ in range(MESSAGES + 1):
            _send(plain)
        worker.ack(worker.receive())
        received: list[list[str]] = []
        found["receive"] = trace.record_answered(lambda: received.append(worker.receive()))
        found["ack"] = trace.record_answered(lambda: worker.ack(received.pop(0)))
        return found
    finally:
        node.close()


def three_nodes(home: Path) -> dict[str, Visited]:
    """A delayed message, whose partition and schedule are led by different nodes."""
    cluster = Cluster(home)
    for node in cluster.nodes.values():
        _traced(node)
    cluster.start()
    try:
        trace = Trace(cluster.nodes.values())
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "enable.idempotence": True}
        )
        for _ in range(6):
            _send(producer, delay_ms=100)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "watch",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC])
        for _ in range(6):
            assert consumer.poll(30) is not None
        consumer.close()
        trace.learn_idle()
        send = trace.record(lambda: _send(producer, delay_ms=DELAY_MS))
        release = trace.record(lambda: time.sleep(DELAY_MS / 1000 + 1))
        return {
            "delayed send": _joined(send),
            "delayed release": _joined(release),
        }
    finally:
        cluster.close()


def counts(visited: Visited) -> tuple[int, int]:
    """Count the files of a path without those of observers and quotas, and these."""
    observers = sum(file.startswith(OBSERVERS) for file in visited)
    return len(visited) - observers, observers


def _joined(of_nodes: Iterable[Visited]) -> Visited:
    joined: Visited = {}
    for visited in of_nodes:
        for file, names in visited.items():
            known = joined.setdefault(file, [])
            known += [name for name in names if name not in known]
    return joined


def _send(producer: Producer, *, delay_ms: int = 0) -> None:
    errors: list[Any] = []
    headers = [("goqueue-delay-ms", str(delay_ms))] if delay_ms else None
    producer.produce(
        TOPIC,
        b"value",
        partition=0,
        headers=headers,
        on_delivery=lambda error, _: errors.append(error),
    )
    producer.flush()
    assert errors == [None], errors


class Worker:
    """A consumer of a queue group, on one connection."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address)
        self._call("PUT", f"/v1/groups/{GROUP}", {"kind": "queue"})

    def receive(self) -> list[str]:
        """Receive one message; return its receipt."""
        body = {"topic": TOPIC, "max_messages": 1}
        answer = self._call("POST", f"/v1/groups/{GROUP}/receive", body)
        receipts = [one["receipt"] for one in answer["messages"]]
        assert receipts, "a message was received"
        return receipts

    def ack(self, receipts: list[str]) -> None:
        self._call("POST", f"/v1/groups/{GROUP}/ack", {"receipts": receipts})

    def _call(self, method: str, path: str, body: object) -> Any:
        headers = {"content-type": "application/json"}
        self._connection.request(method, path, json.dumps(body), headers)
        return json.load(self._connection.getresponse())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.message_paths", description=__doc__)
    parser.add_argument("--functions", action="store_true", help="list the functions too")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "single").mkdir()
        paths = {**single_node(home / "single"), **three_nodes(home / "cluster")}
    for name, visited in paths.items():
        files, observers = counts(visited)
        print(f"{name}: {files} files, and {observers} of observers and quotas")
        if options.functions:
            for file, names in visited.items():
                print(f"  {file}: {', '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
