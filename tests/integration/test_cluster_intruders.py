"""A cluster whose internal ports somebody reaches who does not belong to it, or means it harm."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from goqueue.cluster.raft.messages import Append, Position, Vote, encode
from goqueue.loop.peers import PeerKind
from goqueue.model.errors import MalformedRequest
from goqueue.wire.peers.frames import Hello, hello_parts
from tests.credentials import OTHER_SECRET, SECRET, new_credentials

from .cluster import Cluster
from .intruder import Intruder
from .waiting import eventually

TERM_HUGE = (1 << 63) - 1
LINES_MAX = 25  # of one node's log about strangers, in all of these tests together

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("intruders"))
    try:
        cluster.start()
        first = cluster.nodes[1]
        httpx.post(f"{first.http}/v1/topics", json={"name": "orders"}).raise_for_status()
        yield cluster
    finally:
        cluster.close()


def check_serves(cluster: Cluster) -> None:
    """Every node stores and reads, as if nothing had happened."""
    for node in cluster.nodes.values():
        told = httpx.post(
            f"{node.http}/v1/topics/orders/publish", json={"value": "fine"}, timeout=30
        )
        told.raise_for_status()
        health = httpx.get(f"{node.http}/v1/admin/cluster/health", timeout=30).json()
        assert health["status"] == "ok", health


def until_well(cluster: Cluster) -> None:
    def are_well() -> bool:
        paths = [f"{node.http}/v1/admin/cluster/health" for node in cluster.nodes.values()]
        return all(httpx.get(path, timeout=30).json()["status"] == "ok" for path in paths)

    eventually(are_well, because="every node finds the cluster well")


def forged(node: int, term: int) -> list[bytes]:
    """What would have a voter take this term for its own."""
    start = Position(0, 0)
    return [
        encode(Append(1 if node != 1 else 2, node, term, start, [], 0, 0)),
        encode(Vote(1 if node != 1 else 2, node, term, Position(term, term), True)),
    ]


def test_who_has_no_secret_is_not_heard(cluster: Cluster) -> None:
    for number, node in cluster.nodes.items():
        for name in (9, 1 if number != 1 else 2):
            with Intruder(node.internal_port) as intruder:
                intruder.send_parts(hello_parts(Hello("", name)))
                for message in forged(number, TERM_HUGE):
                    intruder.notify(PeerKind.QUORUM, message)
                assert intruder.is_turned_away()
        node.until_logged("127.0.0.1: turned away: It has no secret of the cluster")
    check_serves(cluster)


def test_who_has_another_secret_is_not_heard(cluster: Cluster) -> None:
    for number, node in cluster.nodes.items():
        with Intruder(node.internal_port) as intruder:
            with pytest.raises(MalformedRequest, match="another secret"):
                intruder.shake_hands(new_credentials(OTHER_SECRET), Hello("", 9), number)
            assert intruder.is_turned_away()
    check_serves(cluster)


def test_a_recorded_handshake_opens_nothing(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    with Intruder(node.internal_port) as one_of_us:
        met = one_of_us.shake_hands(new_credentials(), Hello("", 9), 1)
        assert met.node_id == 1
        recorded = one_of_us.sent
    with Intruder(node.internal_port) as intruder:
        intruder.send(recorded)
        intruder.frame()  # a challenge, which the recorded proof does not meet
        assert intruder.is_turned_away()
    check_serves(cluster)


def test_silence_and_garbage_keep_nobody_else_out(cluster: Cluster) -> None:
    """A node starts again while others hold and flood the ports of all."""
    source = random.Random(1)
    with ExitStack() as held:
        for node in cluster.nodes.values():
            for _ in range(80):
                slow = held.enter_context(Intruder(node.internal_port))
                slow.send(b"\0")
        for node in cluster.nodes.values():
            for _ in range(100):
                with Intruder(node.internal_port) as intruder:
                    intruder.send(source.randbytes(source.randrange(1, 500)))
        began = time.monotonic()
        cluster.nodes[3].restart()
        assert time.monotonic() - began < 60
        until_well(cluster)
        check_serves(cluster)
    for node in cluster.nodes.values():
        lines = [
            line for line in node.log_text.splitlines() if "127.0.0.1" in line and "turned" in line
        ]
        assert 1 <= len(lines) <= LINES_MAX, lines


def test_a_slow_stranger_is_disconnected_in_time(cluster: Cluster) -> None:
    with socket.create_connection(("127.0.0.1", cluster.nodes[2].internal_port)) as slow:
        slow.settimeout(30)
        began = time.monotonic()
        slow.sendall(b"\0\0")
        assert slow.recv(1) == b""
        assert time.monotonic() - began < 25


def test_not_even_a_node_may_have_terms_jump(cluster: Cluster) -> None:
    """One of us with a fault, or an enemy with the secret, cannot end the cluster for good."""
    for number, node in cluster.nodes.items():
        for message in forged(number, TERM_HUGE):
            with Intruder(node.internal_port) as intruder:
                sender = 1 if number != 1 else 2
                intruder.shake_hands(new_credentials(), Hello("", sender), number)
                intruder.notify(PeerKind.QUORUM, message)
        eventually(
            lambda node=node: node.log_text.count("quorum message cannot be decoded") >= 2,  # type: ignore[misc]
            because="both messages were refused",
        )
    check_serves(cluster)


def test_the_secret_is_changed_by_a_rolling_restart(cluster: Cluster) -> None:
    """Every voter also reads back what it has written, whatever it was sent before."""
    for node in cluster.nodes.values():
        node.settings |= {"cluster.secret": OTHER_SECRET, "cluster.secret_previous": SECRET}
        node.restart()
        until_well(cluster)
    first = cluster.nodes[1]
    first.settings["cluster.secret_previous"] = ""
    first.restart()
    until_well(cluster)
    check_serves(cluster)
    refused = pytest.raises(MalformedRequest, match="another secret")
    with Intruder(first.internal_port) as intruder, refused:
        intruder.shake_hands(new_credentials(SECRET), Hello("", 9), 1)


def test_a_node_without_a_secret_does_not_start(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, count=1, settings={"cluster.secret": ""})
    node = cluster.nodes[1]
    node.launch()
    try:
        eventually(lambda: "goqueue cluster secret" in node.log_text, because="it says what to do")
    finally:
        node.close()
    assert "Traceback" not in node.log_text
