"""Thousands of members, and more topics than there may be: bounded work, memory and latency."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from .conftest import StartBroker
from .process import Broker
from .topics import create_topic
from .wire import METADATA, connect, frame, metadata_v1, string

CONSUMER_GROUP_HEARTBEAT, FIND_COORDINATOR = 68, 10
POLICY_VIOLATION = 44
MEMBERS, CONNECTIONS = 1500, 20
CPU_SECONDS_MAX = 1.8  # joins that each looked at all members took twice as much and more
LATENCY_SECONDS_MAX = 8.0
GROWTH_BYTES_MAX = 100 << 20


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _joining(member: str) -> bytes:
    """The body of a ConsumerGroupHeartbeat of a new member, version 0."""
    start = _compact("crowd") + _compact(member) + struct.pack(">i", 0) + b"\0\0"
    return start + struct.pack(">i", 60_000) + b"\x02" + _compact("orders") + b"\0\x01\0"


def _cpu_seconds(node: Broker) -> float:
    fields = Path(f"/proc/{node.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def another_client(bootstrap: str) -> Iterator[list[float]]:
    """Asks again and again, and notes how long each answer took."""
    waits, is_over = [0.0], threading.Event()

    def ask() -> None:
        with connect(bootstrap) as wire:
            while not is_over.wait(0.005):
                began = time.monotonic()
                wire.request(METADATA, 1, metadata_v1("orders"))
                wire.answer()
                waits.append(time.monotonic() - began)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield waits
    finally:
        is_over.set()
        asking.join()


def test_members_that_join_at_once_cost_little_and_nobody_waits(start_broker: StartBroker) -> None:
    node = start_broker()
    create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), "orders", partitions=32)
    with ExitStack() as stack:
        wires = [stack.enter_context(connect(node.bootstrap)) for _ in range(CONNECTIONS)]
        _until_coordinated(node)
        cpu, memory = _cpu_seconds(node), node.rss_bytes
        with another_client(node.bootstrap) as waits:
            for number in range(MEMBERS):
                header = struct.pack(">hhi", CONSUMER_GROUP_HEARTBEAT, 0, number) + string("x")
                wires[number % CONNECTIONS].send(frame(header + b"\0" + _joining(f"m{number}")))
            for number in range(MEMBERS):
                _, body = wires[number % CONNECTIONS].answer()
                assert struct.unpack_from(">h", body, 5)[0] == 0
        assert _cpu_seconds(node) - cpu < CPU_SECONDS_MAX
        assert node.rss_bytes - memory < GROWTH_BYTES_MAX
        assert max(waits) < LATENCY_SECONDS_MAX


def _until_coordinated(node: Broker) -> None:
    """The first question makes the topic of groups; ask until there is a coordinator."""
    with connect(node.bootstrap) as wire:
        while True:
            wire.request(FIND_COORDINATOR, 0, string("crowd"))
            if struct.unpack_from(">h", wire.answer()[1])[0] == 0:
                return


def test_topics_beyond_the_limit_are_refused(start_broker: StartBroker) -> None:
    node = start_broker({"topics.topics_max": 50})
    names = [f"t{number}" for number in range(200)]
    memory = node.rss_bytes
    with connect(node.bootstrap) as wire:
        wire.request(METADATA, 1, metadata_v1(*names))
        wire.answer()
        wire.request(METADATA, 1, metadata_v1("one-more"))
        _, body = wire.answer()
    (code,) = struct.unpack_from(">h", body, len(body) - 2 - 2 - len("one-more") - 1 - 4)
    assert code == POLICY_VIOLATION
    assert node.rss_bytes - memory < GROWTH_BYTES_MAX
    listed = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics
    assert len([name for name in listed if not name.startswith("__")]) == 50
