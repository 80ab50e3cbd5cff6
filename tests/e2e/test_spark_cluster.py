"""A real cluster of two workers and a real broker: the same results, also when a worker dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from goqueue.client import LogClient
from goqueue.spark.pipelines.manifests import load_archive
from tests.e2e.conftest import NewTopic, checksum, write
from tests.e2e.spark_cluster import DRIVER_SETTINGS, SPARK_HOME, Cluster
from tests.e2e.test_sinks import check_nothing_is_open, values_of
from tests.integration.process import END_WITH_US, Broker
from tests.integration.waiting import eventually

ROOT = Path(__file__).parents[2]
STEP_SECONDS_MAX = 240
TEST_SECONDS_MAX = 900  # a minute on two free cores; six JVMs on busy ones take many
# So large that they fill the buffers on their way, and reach the broker while their task goes on.
VALUES = [
    [(b"value %d of %d" % (number, one)).ljust(4_000, b".") for number in range(4_000)]
    for one in range(2)
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path, workers=2)
    try:
        started.start()
        yield started
    finally:
        started.close()
    eventually(lambda: not started.processes_left(), because="all processes are gone")


@pytest.mark.slow
@pytest.mark.timeout(TEST_SECONDS_MAX)
def test_two_workers_archive_read_and_write_once_though_one_is_killed(
    cluster: Cluster, broker: Broker, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(partitions=2), new_topic()
    for one, values in enumerate(VALUES):
        write(client, source, values, partition=one, batch_records_max=250)

    words = ["archive", source, "--to", str(tmp_path / "archive"), "--task-records", "1000"]
    archived = run_pipeline(cluster, broker, [*words, "--verify"])
    assert (archived["records"], archived["verified"], archived["losses"]) == (8_000, True, [])
    assert values_in(tmp_path / "archive") == sorted(VALUES[0] + VALUES[1])

    driver = start_driver(cluster, broker, source, target, tmp_path)
    wait_for(driver, tmp_path / "read.json")
    read = json.loads((tmp_path / "read.json").read_text())
    assert {int(one): tuple(sums) for one, sums in read.items()} == {
        one: checksum(values) for one, values in enumerate(VALUES)
    }

    wait_for(driver, tmp_path / "writing-0")
    wait_for(driver, tmp_path / "writing-1")
    eventually(
        lambda: len(writers_in(client, target)) == 2, because="rows of both are with the broker"
    )
    assert values_of(client, target) == {}
    cluster.kill_worker(0)
    (tmp_path / "go").touch()
    wait_for(driver, tmp_path / "written")
    assert driver.wait(STEP_SECONDS_MAX) == 0

    check_nothing_is_open(client, target)
    seen = values_of(client, target)
    assert sorted(seen) == sorted(VALUES[0] + VALUES[1])
    assert set(seen.values()) == {1}


def run_pipeline(cluster: Cluster, broker: Broker, words: Sequence[str]) -> Any:
    """`goqueue pipeline run ...` on the cluster, and its answer."""
    command = [*END_WITH_US, sys.executable, "-m", "goqueue", "pipeline", "run", *words]
    command += ["--master", cluster.address, "-b", broker.bootstrap, "-o", "json"]
    for name, value in DRIVER_SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    done = subprocess.run(
        command,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{cluster.log_text}"
    return json.loads(done.stdout)


def values_in(archive: Path) -> list[bytes]:
    """What the files of an archive hold, read without Spark."""
    found: list[bytes] = []
    for manifest in load_archive(archive).manifests:
        for file in manifest.files:
            table = pyarrow.parquet.read_table(archive / file.path, columns=["value"])
            found += table.column("value").to_pylist()
    return sorted(found)


def start_driver(
    cluster: Cluster, broker: Broker, source: str, target: str, folder: Path
) -> subprocess.Popen[bytes]:
    """By `spark-submit`, as a job that is not our own command would be."""
    command = [*END_WITH_US, str(SPARK_HOME / "bin" / "spark-submit"), "--driver-memory", "512m"]
    command += ["--master", cluster.address, str(ROOT / "tests" / "e2e" / "cluster_driver.py")]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with (folder / "driver.log").open("wb") as output:
        return subprocess.Popen(
            [*command, cluster.address, broker.bootstrap, source, target, str(folder)],
            env={**cluster.environment, "PYTHONPATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def writers_in(client: LogClient, topic: str) -> set[int]:
    """Producers whose transactions are open in a topic."""
    found = client.transactions.open_in(client.partitions([topic]))
    return {one.producer_id for one in found}


def wait_for(driver: subprocess.Popen[bytes], file: Path) -> None:
    """Until the driver, or a task of it, has written a file."""
    eventually(
        lambda: file.exists() or driver.poll() not in (None, 0),
        because=f"there is {file.name}",
        within=STEP_SECONDS_MAX,
    )
    assert file.exists(), (file.parent / "driver.log").read_text()[-4000:]
