"""Thousands of members, and more topics than there may be: bounded work, memory and latency."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from .abuse import prompt
from .conftest import StartBroker
from .process import Broker
from .topics import create_topic
from .wire import METADATA, connect, frame, metadata_v1, string

CONSUMER_GROUP_HEARTBEAT, FIND_COORDINATOR, JOIN_GROUP = 68, 10, 11
POLICY_VIOLATION = 44
MEMBERS, CONNECTIONS = 3500, 100
CPU_SECONDS_MAX = 10.0  # joins that each looked at all members took several times as much
GROWTH_BYTES_MAX = 100 << 20
TOPICS = 3000


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _joining(member: str) -> bytes:
    """The body of a ConsumerGroupHeartbeat of a new member, version 0."""
    start = _compact("crowd") + _compact(member) + struct.pack(">i", 0) + b"\0\0"
    return start + struct.pack(">i", 60_000) + b"\x02" + _compact("orders") + b"\0\x01\0"


def _cpu_seconds(node: Broker) -> float:
    fields = Path(f"/proc/{node.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _heartbeat(number: int) -> bytes:
    header = struct.pack(">hhi", CONSUMER_GROUP_HEARTBEAT, 0, number) + string("x")
    return header + b"\0" + _joining(f"m{number}")


def _join(number: int) -> bytes:
    """A JoinGroup of a new member, version 1."""
    header = struct.pack(">hhi", JOIN_GROUP, 1, number) + string("x")
    times = struct.pack(">ii", 45_000, 60_000)
    subscription = struct.pack(">hi", 0, 1) + string("orders") + struct.pack(">i", 0)
    protocols = struct.pack(">i", 1) + string("range")
    protocols += struct.pack(">i", len(subscription)) + subscription
    return header + string("crowd") + times + string("") + string("consumer") + protocols


@pytest.mark.parametrize(
    ("request_of", "error_at"), [(_heartbeat, 5), (_join, 0)], ids=["consumer", "classic"]
)
def test_members_that_join_at_once_cost_little_and_nobody_waits(
    start_broker: StartBroker, request_of: Callable[[int], bytes], error_at: int
) -> None:
    node = start_broker()
    create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), "orders", partitions=32)
    with ExitStack() as stack:
        wires = [stack.enter_context(connect(node.bootstrap)) for _ in range(CONNECTIONS)]
        _until_coordinated(node)
        cpu, memory = _cpu_seconds(node), node.rss_bytes
        with prompt(node):
            for number in range(MEMBERS):
                wires[number % CONNECTIONS].send(frame(request_of(number)))
            for number in range(MEMBERS):
                _, body = wires[number % CONNECTIONS].answer()
                assert struct.unpack_from(">h", body, error_at)[0] == 0
        assert _cpu_seconds(node) - cpu < CPU_SECONDS_MAX
        assert node.rss_bytes - memory < GROWTH_BYTES_MAX


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
        with prompt(node):
            wire.request(METADATA, 1, metadata_v1(*names))
            wire.answer()
        wire.request(METADATA, 1, metadata_v1("one-more"))
        _, body = wire.answer()
    (code,) = struct.unpack_from(">h", body, len(body) - 2 - 2 - len("one-more") - 1 - 4)
    assert code == POLICY_VIOLATION
    assert node.rss_bytes - memory < GROWTH_BYTES_MAX
    listed = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics
    assert len([name for name in listed if not name.startswith("__")]) == 50


def test_topics_that_are_made_in_bulk_at_their_first_use_keep_nobody_waiting(
    start_broker: StartBroker,
) -> None:
    node = start_broker()
    names = [f"t{number}" for number in range(TOPICS)]
    with connect(node.bootstrap) as wire, prompt(node):
        for first in range(0, TOPICS, 500):
            wire.request(METADATA, 1, metadata_v1(*names[first : first + 500]))
            wire.answer()
    listed = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics
    assert len([name for name in listed if not name.startswith("__")]) == TOPICS
