"""Topics as streams of a real Spark, through crashes of the driver and of the broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow.parquet import read_metadata
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from goqueue.client import LogClient
from goqueue.model.errors import UnknownGroup
from goqueue.model.names import TopicPartition
from tests.e2e.conftest import NewTopic, checksum, checksums, write
from tests.integration.process import END_WITH_US, Broker
from tests.integration.waiting import eventually

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120  # a micro-batch takes a second or two on a busy machine
VALUES = [b"value %d" % number for number in range(300)]


class Stream:
    """A stream from a topic into Parquet files, which can be stopped and started again."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self.query: StreamingQuery | None = None

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        rows = (
            self._spark.readStream.format("goqueue")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )
        writer = (
            rows.writeStream.format("parquet")
            .option("path", str(self._folder / "out"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        self.query = writer.start()
        return self.query

    def run(self, **options: str) -> list[int]:
        """Read what is there and return how many rows each micro-batch had."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(PATIENCE_S)
        return [progress.numInputRows for progress in query.recentProgress]

    def found(self) -> dict[int, tuple[int, int, int, int]]:
        return checksums(self._spark.read.parquet(str(self._folder / "out")))

    def count(self) -> int:
        """Rows of the batches that are done, by the notes of the sink: a job would take longer."""
        notes = (self._folder / "out" / "_spark_metadata").glob("[0-9]*")
        lines = [line for note in notes for line in note.read_text().splitlines()[1:]]
        files = {json.loads(line)["path"] for line in lines}  # notes are repeated in summaries
        return sum(read_metadata(file.removeprefix("file://")).num_rows for file in files)

    def batches(self) -> int:
        """How many micro-batches have been planned, in all runs."""
        return len(list((self._folder / "checkpoint" / "offsets").glob("[0-9]*")))

    def offset(self) -> dict[str, object]:
        """The last offset of the checkpoint."""
        files = (self._folder / "checkpoint" / "offsets").glob("[0-9]*")
        last = max(files, key=lambda path: int(path.name))
        offset: dict[str, object] = json.loads(last.read_text().splitlines()[2])
        return offset


NewStream = Callable[[str], Stream]


@pytest.fixture
def new_stream(spark: SparkSession, tmp_path: Path) -> Iterator[NewStream]:
    made: list[Stream] = []

    def make(bootstrap: str) -> Stream:
        made.append(Stream(spark, bootstrap, tmp_path / f"stream-{len(made)}"))
        return made[-1]

    yield make
    for stream in made:
        if stream.query is not None:
            stream.query.stop()


def lags(client: LogClient, group: str) -> dict[TopicPartition, int | None]:
    """What `goqueue group lag` shows."""
    try:
        found = client.groups.lag(group)
    except UnknownGroup:
        return {}
    return {one.partition: one.lag for one in found}


@pytest.mark.slow
def test_each_run_reads_what_is_new(
    client: LogClient, broker: Broker, new_topic: NewTopic, new_stream: NewStream
) -> None:
    topic, stream = new_topic(partitions=2), new_stream(broker.bootstrap)
    for one in range(2):
        write(client, topic, VALUES, partition=one)
    sizes = stream.run(subscribe=topic, maxOffsetsPerTrigger="250")
    assert [size for size in sizes if size] == [250, 250, 100]
    assert stream.query is not None
    shown = [one for one in stream.query.recentProgress if one.numInputRows]
    lags = [json.loads(one.sources[0].latestOffset)["metrics"] for one in shown]
    assert [one["totalOffsetsBehindLatest"] for one in lags] == [350, 100, 0]
    assert [one["maxOffsetsBehindLatest"] for one in lags] == [175, 50, 0]
    # The rate is that since the previous trigger, which the first does not have.
    assert shown[0].sources[0].inputRowsPerSecond == 0
    assert all(one.sources[0].inputRowsPerSecond > 0 for one in shown[1:])
    assert all(one.sources[0].processedRowsPerSecond > 0 for one in shown)
    assert stream.found() == dict.fromkeys(range(2), checksum(VALUES))
    assert sum(stream.run(subscribe=topic)) == 0
    write(client, topic, VALUES, partition=1)
    client.topics.grow(topic, partition_count=3)
    write(client, topic, VALUES[:7], partition=2)
    assert sum(stream.run(subscribe=topic)) == 307
    assert stream.found() == {
        0: checksum(VALUES),
        1: checksum(VALUES * 2),
        2: checksum(VALUES[:7]),
    }


def test_the_broker_shows_how_far_a_query_is(
    client: LogClient, broker: Broker, new_topic: NewTopic, new_stream: NewStream
) -> None:
    topic, stream = new_topic(), new_stream(broker.bootstrap)
    partition = TopicPartition(topic, 0)
    write(client, topic, VALUES)
    stream.run(subscribe=topic)
    group = str(stream.offset()["group"])
    assert group.startswith(f"spark-{topic}")
    eventually(lambda: lags(client, group) == {partition: 0}, because="the query has read it all")
    write(client, topic, VALUES[:20])
    assert lags(client, group) == {partition: 20}
    stream.start(subscribe=topic, group="named")
    eventually(lambda: stream.count() == 320, because="the stream goes on", within=PATIENCE_S)
    eventually(lambda: lags(client, "named") == {partition: 0}, because="its own group is used")
    write(client, topic, VALUES[:5])
    eventually(lambda: stream.count() == 325, because="news are read", within=PATIENCE_S)
    eventually(lambda: lags(client, "named") == {partition: 0}, because="news are committed")


def test_the_last_batch_of_a_query_is_shown_too(
    client: LogClient, broker: Broker, new_topic: NewTopic, spark: SparkSession, tmp_path: Path
) -> None:
    """After it the source is not asked again: this is what the listener is for."""
    topic = new_topic()
    write(client, topic, VALUES)
    rows = spark.readStream.format("goqueue").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic},
        startingOffsets="earliest",
        group=f"once-{topic}",
    )
    query = (
        rows.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 hour")
        .start()
    )
    try:
        eventually(
            lambda: lags(client, f"once-{topic}") == {TopicPartition(topic, 0): 0},
            because="the batch is committed at its end",
            within=PATIENCE_S,
        )
    finally:
        query.stop()


@pytest.mark.slow
def test_removed_records_and_topics_made_again_are_named_or_passed_over(
    client: LogClient, broker: Broker, new_topic: NewTopic, new_stream: NewStream
) -> None:
    topic, stream = new_topic(), new_stream(broker.bootstrap)
    write(client, topic, VALUES)
    stream.run(subscribe=topic)
    write(client, topic, VALUES)
    client.topics.delete_records({TopicPartition(topic, 0): 450})
    with pytest.raises(
        StreamingQueryException, match=r"Offsets 300 to 449 of .* have been removed"
    ):
        stream.run(subscribe=topic)
    assert sum(stream.run(subscribe=topic, failOnDataLoss="false")) == 150
    client.topics.delete(topic)
    client.topics.create(topic, partition_count=1)
    write(client, topic, VALUES[:9])
    with pytest.raises(StreamingQueryException, match="was deleted and created again"):
        stream.run(subscribe=topic)
    assert sum(stream.run(subscribe=topic, failOnDataLoss="false")) == 9
    assert stream.count() == 300 + 150 + 9


@pytest.mark.slow
def test_a_stream_survives_the_death_of_its_broker(new_stream: NewStream, tmp_path: Path) -> None:
    node = Broker(tmp_path, {})
    node.start()
    stream = new_stream(node.bootstrap)
    values = VALUES * 20
    try:
        with LogClient(node.bootstrap) as client:
            client.topics.create("orders", partition_count=2)
            for one in range(2):
                write(client, "orders", values, partition=one)
        stream.start(subscribe="orders", maxOffsetsPerTrigger="2000")
        eventually(lambda: stream.batches() >= 2, because="it is under way", within=PATIENCE_S)
        node.kill()
        # Nothing is asked of Spark here: the tasks that wait for the broker have all its threads.
        assert stream.batches() < 2 * len(values) // 2000, "it was killed too late"
        node.start()
        eventually(
            lambda: stream.count() >= 2 * len(values), because="all is read", within=PATIENCE_S
        )
        assert stream.found() == dict.fromkeys(range(2), checksum(values))
        with LogClient(node.bootstrap) as client:
            group = str(stream.offset()["group"])
            eventually(
                lambda: set(lags(client, group).values()) == {0}, because="the group shows it"
            )
    finally:
        node.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.seeds(1)
def test_a_killed_driver_goes_on_from_its_checkpoint(
    client: LogClient,
    broker: Broker,
    new_topic: NewTopic,
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
) -> None:
    topic = new_topic(partitions=2)
    values = VALUES * 20
    for one in range(2):
        write(client, topic, values, partition=one)
    stream = Stream(spark, broker.bootstrap, tmp_path)
    command = [*END_WITH_US, sys.executable, "-m", "tests.e2e.stream_driver"]
    command += [broker.bootstrap, topic, str(tmp_path)]
    planned = (3, 1, 2, 4)[seed % 4]  # of eight batches; this one is begun, those before are done
    kill_midway(command, lambda: stream.batches() >= planned)
    assert stream.count() < 2 * len(values), "it was killed too late"
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, stderr=subprocess.DEVNULL)
    assert stream.found() == dict.fromkeys(range(2), checksum(values))
    assert set(lags(client, "killed").values()) == {0}


def kill_midway(command: list[str], is_midway: Callable[[], bool]) -> None:
    """Run a driver and kill it, with its JVM and its workers, as soon as it is there."""
    # It has a session of its own, so that all its processes can be named at once.
    driver = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        eventually(
            lambda: is_midway() or driver.poll() is not None,
            because="the driver is under way",
            within=PATIENCE_S,
        )
        assert driver.poll() is None, "the driver ended before it could be killed"
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
