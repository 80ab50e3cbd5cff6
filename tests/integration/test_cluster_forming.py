"""Real nodes that form a cluster, grow from one, lose what they had, stop and stand still."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.certificates import Authority

from .cluster import CLUSTER_SETTINGS, Cluster, ClusterBroker
from .ports import quiet_port
from .process import END_WITH_US, Broker
from .test_cluster import Writer, check, create, read_all
from .waiting import eventually
from .wire import METADATA, connect

pytestmark = pytest.mark.timeout(240)


class GrowingCluster(Cluster):
    """One node that was alone, and what joins it."""

    def __init__(self, directory: Path) -> None:
        self.nodes = {}
        self._directory = directory
        self._port = quiet_port()
        home = directory / "node-1"
        home.mkdir()
        self.alone = Broker(home, CLUSTER_SETTINGS)

    def make_first(self) -> None:
        """The same node, data and addresses, with the setting that makes it the first of many."""
        first = self._node(1, self._port)
        for name in ("_port", "http_port", "_registry_port"):
            setattr(first, name, getattr(self.alone, name))
        self.nodes[1] = first
        first.start()

    def join(self, number: int) -> None:
        (self._directory / f"node-{number}").mkdir()
        self.nodes[number] = self._node(number, quiet_port())
        self.nodes[number].start()

    def _node(self, number: int, port: int) -> ClusterBroker:
        return ClusterBroker(
            self._directory / f"node-{number}",
            CLUSTER_SETTINGS,
            node_id=number,
            internal_port=port,
            peers=f"1@127.0.0.1:{self._port}",
        )


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingCluster]:
    cluster = GrowingCluster(tmp_path)
    try:
        yield cluster
    finally:
        cluster.alone.close()
        cluster.close()


def test_a_single_node_grows_to_three_under_a_producer_and_loses_nothing(
    growing: GrowingCluster,
) -> None:
    alone = growing.alone
    alone.start()
    admin = AdminClient({"bootstrap.servers": alone.bootstrap, "log_level": 2})
    for future in admin.create_topics([NewTopic("orders", num_partitions=3)]).values():
        future.result(timeout=30)
    writer = Writer(alone, "orders")  # type: ignore[arg-type]
    writer.until_acked(500)
    alone.stop()
    growing.make_first()
    writer.until_acked(200)
    growing.join(2)
    growing.join(3)
    writer.until_acked(200)
    eventually(
        lambda: all(
            len(one.isrs) == 3
            for one in growing.admin.list_topics("__consumer_offsets", timeout=20)
            .topics["__consumer_offsets"]
            .partitions.values()
        ),
        because="the internal topics have a copy on each node",
        within=60,
    )
    writer.finish()
    assert writer.errors == []
    assert set(growing.admin.list_topics(timeout=20).brokers) == {1, 2, 3}
    check(growing, "orders", writer)
    # The data belongs to a cluster now, whose later decisions a node alone would not know.
    growing.nodes[1].stop()
    alone.launch()
    eventually(
        lambda: "cannot run as a single node" in alone.log_text,
        because="a node of a cluster refuses to run alone",
    )


def test_a_leader_that_stood_still_acknowledges_nothing_on_what_it_used_to_know(
    cluster: Cluster,
) -> None:
    create(cluster, "orders", partitions=1)
    # A node that stands still keeps its connections, so only time tells the client.
    writer = Writer(cluster, "orders", request_timeout_ms=3_000, socket_timeout_ms=3_000)
    writer.until_acked(200)
    old = cluster.leader_of("orders")
    os.kill(cluster.nodes[old].pid, signal.SIGSTOP)
    try:
        writer.until_acked(500)
    finally:
        os.kill(cluster.nodes[old].pid, signal.SIGCONT)
    writer.until_acked(200)
    eventually(
        lambda: (
            cluster.nodes[old].log_text.count("orders/0: leading") == 1
            and any(
                "orders/0: leading" in one.log_text
                for number, one in cluster.nodes.items()
                if number != old
            )
        ),
        because="another has led, and the old leader knows it",
    )
    cluster.until_in_sync("orders")
    writer.finish()
    assert writer.errors == []
    check(cluster, "orders", writer)


def test_the_controller_is_handed_over_when_its_node_stops(cluster: Cluster) -> None:
    controller = cluster.admin.list_topics(timeout=20).controller_id
    node = cluster.nodes[controller]
    node.stop()
    others = [one for one in cluster.nodes.values() if one is not node]
    successors = [one for one in others if "is the controller of term 2" in one.log_text]
    assert len(successors) == 1, "the next term has begun before the node had ended"


class Shards(Broker):
    """Several nodes as one command."""

    def __init__(self, directory: Path, count: int) -> None:
        super().__init__(directory, CLUSTER_SETTINGS)
        self._count = count

    @property
    def addresses(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.directory / "ready.json").read_text())
        return found

    def until_ready(self) -> None:
        ready_file = self.directory / "ready.json"
        eventually(
            lambda: ready_file.exists() or self._process_ended(),
            because="all nodes serve",
            within=60,
        )

    def _command(self, ready_file: Path) -> list[str]:
        internal = ["--listen-internal", "127.0.0.1:0"]
        return [*super()._command(ready_file), *internal, "--shards", str(self._count)]


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    nodes = Shards(tmp_path, 3)
    # What is said between them goes through the same settings as everything else.
    nodes.settings.update(Authority(tmp_path).sign("shards", "127.0.0.1").settings)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


def test_shards_are_brokers_of_one_cluster_that_stop_together(shards: Shards) -> None:
    bootstrap = shards.addresses["kafka"]
    assert len(bootstrap.split(",")) == 3
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    eventually(
        lambda: set(admin.list_topics(timeout=20).brokers) == {1, 2, 3},
        because="clients see three brokers",
    )
    for future in admin.create_topics([NewTopic("orders", num_partitions=6)]).values():
        future.result(timeout=30)
    writer = Writer(shards, "orders")  # type: ignore[arg-type]
    writer.until_acked(200)
    writer.finish()
    pids = [_pid_of(shards, number) for number in (1, 2, 3)]
    # One that ends by accident comes back by itself.
    os.kill(pids[1], signal.SIGKILL)
    eventually(
        lambda: "restarting it" in shards.log_text and _pid_of(shards, 2) != pids[1],
        because="the node that was killed runs again",
    )
    assert len(read_all(shards, "orders", len(writer.acked))) == len(writer.acked)  # type: ignore[arg-type]
    shards.stop()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def _pid_of(shards: Shards, number: int) -> int:
    """The process that serves a shard's data folder."""
    wanted = f"node.data_dir={shards.data_dir}/shard-{number}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "cmdline").read_bytes().split(b"\0"):
                return int(folder.name)
        except OSError:
            continue  # It has ended meanwhile.
    return -1


def test_shards_refuse_the_folder_of_a_single_node(tmp_path: Path) -> None:
    (tmp_path / "data" / "meta").mkdir(parents=True)
    command = [*END_WITH_US, sys.executable, "-m", "goqueue", "serve", "--shards", "2"]
    ended = subprocess.run(
        [*command, "--data-dir", str(tmp_path / "data")], capture_output=True, timeout=60
    )
    assert ended.returncode != 0
    assert b"choose another folder for shards" in ended.stderr + ended.stdout


def test_two_of_three_found_a_cluster_and_say_for_whom_they_wait_before(tmp_path: Path) -> None:
    nodes = Cluster(tmp_path)
    first, second, third = nodes.nodes.values()
    try:
        first.launch()
        health = eventually(
            lambda: _answer(first, "/v1/admin/cluster/health"), because="the node answers"
        )
        assert health["status"] == "down"
        assert "have not answered: 2, 3. A new cluster needs 2 of the" in health["problems"][0]
        ready = _answer(first, "/readyz")
        assert ready is not None
        assert ready["problems"] == health["problems"]
        refused = _answer(first, "/v1/topics")
        assert refused is not None
        assert (refused["code"], refused["status"]) == ("node_starting", 503)
        with connect(first.bootstrap) as wire:
            wire.request(METADATA, 1, struct.pack(">i", -1))
            _, told = wire.answer()
        assert struct.unpack_from(">i", told) == (0,), "no node that clients could be sent to"
        second.launch()
        for node in (first, second):
            node.until_ready()
        create_topic(first, "orders")
        third.start()
        eventually(
            lambda: (_answer(third, "/v1/admin/cluster/health") or {}).get("status") == "ok",
            because="the third has joined and has its copies",
        )
        ready = _answer(third, "/readyz")
        assert ready is not None
        assert (ready["status"], ready["problems"]) == ("ok", [])
        cluster = _answer(third, "/v1/admin/cluster")
        assert cluster is not None
        assert cluster["voters"] == [1, 2, 3]
        # Now the third counts: with it, the second can be done without.
        second.kill()
        create_topic(third, "invoices")
    finally:
        nodes.close()


def create_topic(node: Broker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    for future in admin.create_topics([NewTopic(name, num_partitions=1)]).values():
        future.result(timeout=30)


def _answer(node: Broker, path: str) -> dict[str, Any] | None:
    """What a node answers over HTTP, whatever the status; None while it does not listen."""
    try:
        with urlopen(node.http + path, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
    except HTTPError as error:
        found = json.load(error)
    except URLError:
        return None
    return found
