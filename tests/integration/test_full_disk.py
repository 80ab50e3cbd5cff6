"""A node that was killed with no free byte on its disk starts, serves reads and recovers.

The disks are small file systems in memory, which only root can make.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from .clients import Confluent, Message
from .cluster import Cluster
from .process import Broker
from .waiting import eventually

DISK_BYTES = 48 << 20
SETTINGS: dict[str, object] = {"storage.free_bytes_min": "2MiB", "storage.reserve_bytes": "4MiB"}
FILLER = "filler"
KEPT = [b"kept %d" % number for number in range(50)]


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "goqueue-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a file system of its own can be made by root only")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no byte free."""
    with (folder / FILLER).open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    assert os.statvfs(folder).f_bavail == 0


def reserve_of(folder: Path) -> int:
    path = folder / ".reserve"
    return path.stat().st_size if path.exists() else 0


def check_refused_and_recovered(node: Broker, bootstrap: str) -> None:
    """What was stored is read; a write is refused, and taken when there is room again."""
    client = Confluent(bootstrap)
    assert [one.value for one in client.read("orders", len(KEPT))] == KEPT
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 2_000})
    failures: list[object] = []
    producer.produce("orders", b"refused", on_delivery=lambda error, _: failures.append(error))
    producer.flush(30)
    assert failures[0] is not None
    (node.data_dir / FILLER).unlink()

    def is_taken() -> bool:
        try:
            client.write("orders", [Message(b"taken")])
        except (KafkaException, AssertionError):
            return False
        return True

    eventually(is_taken, because="there is room again", within=60)
    eventually(
        lambda: reserve_of(node.data_dir) == 4 << 20, because="the reserve is whole", within=60
    )


def test_a_node_that_is_alone(tmp_path: Path) -> None:
    node = Broker(tmp_path, SETTINGS)
    with small_disk(node.data_dir):
        try:
            node.start()
            Confluent(node.bootstrap).write("orders", [Message(value) for value in KEPT])
            eventually(lambda: reserve_of(node.data_dir) > 0, because="space is held back")
            for _ in range(2):
                node.kill()
                fill(node.data_dir)
                node.start()
            assert "the start uses the" in node.log_text
            check_refused_and_recovered(node, node.bootstrap)
        finally:
            node.close()


@pytest.mark.timeout(240)
def test_a_node_of_a_cluster(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, count=1, settings=SETTINGS)
    node = cluster.nodes[1]
    with small_disk(node.data_dir):
        try:
            cluster.start()
            Confluent(cluster.bootstrap).write("orders", [Message(value) for value in KEPT])
            eventually(lambda: reserve_of(node.data_dir) > 0, because="space is held back")
            for _ in range(2):
                node.kill()
                fill(node.data_dir)
                node.start()
            assert "the start uses the" in node.log_text
            check_refused_and_recovered(node, cluster.bootstrap)
        finally:
            cluster.close()


def test_without_a_reserve_the_error_says_what_to_do(tmp_path: Path) -> None:
    settings = SETTINGS | {"storage.reserve_bytes": 0}
    cluster = Cluster(tmp_path, count=1, settings=settings)
    node = cluster.nodes[1]
    with small_disk(node.data_dir):
        try:
            cluster.start()
            node.kill()
            fill(node.data_dir)
            with pytest.raises(AssertionError):
                node.start()
            assert "free space on the disk" in node.log_text
            assert "Traceback" not in node.log_text
        finally:
            cluster.close()
