"""A queue group as a stream of a real Spark, through crashes of the driver and of the broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from goqueue.client import LogClient
from goqueue.client.http import Client, QueueStats
from goqueue.spark.queues.offsets import read_queue_offset
from tests.e2e.conftest import NewTopic, checksum, checksums, write
from tests.e2e.queue_driver import GROUP as KILLED_GROUP
from tests.e2e.queue_driver import HELD_EPOCH, HOLD_FILE
from tests.e2e.test_streaming import PATIENCE_S, ROOT, kill_midway
from tests.integration.process import END_WITH_US, Broker
from tests.integration.waiting import eventually

PAGE = ROOT / "docs" / "spark.md"
VALUES = [b"value %d" % number for number in range(300)]
GROUP = "workers"


class QueueStream:
    """A queue into Parquet files, an epoch each, which can be stopped and started again."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self.query: StreamingQuery | None = None
        self.before_write: Callable[[int], None] = lambda _: None

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        rows = (
            self._spark.readStream.format("goqueue")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("queue.group", GROUP)
            .options(**options)
            .load()
        )
        writer = rows.writeStream.foreachBatch(self._write).option(
            "checkpointLocation", str(self._folder / "checkpoint")
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        self.query = writer.start()
        return self.query

    def _write(self, batch: DataFrame, epoch: int) -> None:
        self.before_write(epoch)
        batch.write.mode("overwrite").parquet(str(self._folder / "out" / f"epoch={epoch}"))

    def run(self, **options: str) -> list[int]:
        """Process what is there and return how many rows each micro-batch had."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(PATIENCE_S)
        return [progress.numInputRows for progress in query.recentProgress]

    def rows(self) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / "out"))


NewQueueStream = Callable[[str], QueueStream]


@pytest.fixture
def new_stream(spark: SparkSession, tmp_path: Path) -> Iterator[NewQueueStream]:
    made: list[QueueStream] = []

    def make(bootstrap: str) -> QueueStream:
        made.append(QueueStream(spark, bootstrap, tmp_path / f"stream-{len(made)}"))
        return made[-1]

    yield make
    for stream in made:
        if stream.query is not None:
            stream.query.stop()


@pytest.fixture
def http(broker: Broker) -> Iterator[Client]:
    with Client(broker.http) as client:
        client.groups.put_queue(GROUP)
        yield client


def is_done(stats: QueueStats) -> bool:
    """Whether nothing is left to be acknowledged."""
    left = (stats.ready, stats.in_flight, stats.retrying, stats.prepared, stats.dead_lettering)
    return not any(left)


def test_every_message_is_processed_once_and_acknowledged(
    client: LogClient,
    http: Client,
    broker: Broker,
    new_topic: NewTopic,
    new_stream: NewQueueStream,
) -> None:
    topic, stream = new_topic(partitions=2), new_stream(broker.bootstrap)
    for one in range(2):
        write(client, topic, VALUES, partition=one)
    sizes = stream.run(subscribe=topic, maxMessagesPerTrigger="250", minPartitions="4")
    assert [size for size in sizes if size] == [250, 250, 100]
    assert checksums(stream.rows()) == dict.fromkeys(range(2), checksum(VALUES))
    kinds = stream.rows().select("deliveryCount", "priority").distinct().collect()
    assert [tuple(row) for row in kinds] == [(1, "normal")]
    assert is_done(http.queue(topic, group=GROUP).stats())
    assert sum(stream.run(subscribe=topic)) == 0
    write(client, topic, VALUES[:7], partition=1)
    assert sum(stream.run(subscribe=topic)) == 7
    assert is_done(http.queue(topic, group=GROUP).stats())


@pytest.mark.slow
def test_the_last_epoch_is_acknowledged_before_another_begins(
    client: LogClient,
    http: Client,
    broker: Broker,
    new_topic: NewTopic,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """The source is not asked again for an hour: this is what the listener is for."""
    topic = new_topic()
    write(client, topic, VALUES)
    rows = spark.readStream.format("goqueue").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "queue.group": GROUP}
    )
    query = (
        rows.schema("deliveryCount int")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 hour")
        .start()
    )
    queue = http.queue(topic, group=GROUP)
    try:
        eventually(
            lambda: bool(query.recentProgress) and is_done(queue.stats()),
            because="the epoch is acknowledged at its end",
            within=PATIENCE_S,
        )
    finally:
        query.stop()


@pytest.mark.slow
def test_poison_is_buried_and_a_failed_epoch_is_repeated_as_it_was(
    http: Client,
    broker: Broker,
    new_topic: NewTopic,
    new_stream: NewQueueStream,
) -> None:
    topic, stream = new_topic(), new_stream(broker.bootstrap)
    queue = http.queue(topic, group=GROUP)
    http.publish(topic, "late", ttl=0.001)
    http.publish(topic, "poison")
    for attempt in (1, 2, 3):  # as often as the group lets a message come
        (message,) = queue.receive(wait=5)
        assert (message.text, message.attempt) == ("poison", attempt)
        queue.nack(message, delay=0)
    http.publish(topic, "tried", priority="high")
    (message,) = queue.receive(wait=5)
    queue.nack(message, delay=0)
    http.publish(topic, "plain")

    def fail(_: int) -> None:
        raise ValueError("a bug in the job")

    stream.before_write = fail
    with pytest.raises(StreamingQueryException, match="a bug in the job"):
        stream.run(subscribe=topic)
    assert queue.receive() == [], "the epoch is kept for its query"
    assert queue.stats().prepared == 2
    stream.before_write = lambda _: None
    http.publish(topic, "news")
    stream.run(subscribe=topic)
    columns = ("epoch", "cast(value as string)", "deliveryCount", "priority")
    found = sorted(tuple(row) for row in stream.rows().selectExpr(*columns).collect())
    assert found == [
        (0, "plain", 1, "normal"),
        (0, "tried", 2, "high"),
        (1, "news", 1, "normal"),
    ]
    assert is_done(queue.stats())
    assert [one.text for one in http.read(f"{topic}.dlq")] == ["poison"]


@pytest.mark.slow
def test_the_example_of_the_page_runs(
    http: Client, broker: Broker, client: LogClient, spark: SparkSession, tmp_path: Path
) -> None:
    client.topics.create("worked", partition_count=1)
    write(client, "worked", VALUES)
    section = PAGE.read_text(encoding="utf-8").split("## Reading as a queue")[1].split("\n## ")[0]
    (block,) = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    address = f'"worked").option("kafka.bootstrap.servers", "{broker.bootstrap}")'
    found: dict[str, Any] = {"spark": spark}
    exec(block.replace('"orders")', address).replace("/data", str(tmp_path)), found)
    assert found["work"].awaitTermination(PATIENCE_S)
    assert spark.read.parquet(str(tmp_path / "worked")).count() == len(VALUES)
    assert is_done(http.queue("worked", group=GROUP).stats())


@pytest.mark.slow
def test_mistakes_are_said_when_a_query_starts(
    http: Client, broker: Broker, new_topic: NewTopic, new_stream: NewQueueStream
) -> None:
    topic = new_topic()
    http.groups.put_queue("ordered", {"key_order": True})
    for options, sentence in (
        ({"queue.group": "nobody"}, "There is no queue group 'nobody'"),
        ({"queue.group": "ordered"}, "keeps the order of keys"),
        ({"startingOffsets": "earliest"}, "startingOffsets does not go with queue.group"),
    ):
        with pytest.raises((StreamingQueryException, AnalysisException), match=sentence):
            new_stream(broker.bootstrap).run(subscribe=topic, **options)


@pytest.mark.slow
def test_a_queue_survives_the_death_of_its_broker(
    new_stream: NewQueueStream, tmp_path: Path
) -> None:
    node = Broker(tmp_path, {})
    node.start()
    stream = new_stream(node.bootstrap)
    values = VALUES * 10
    kills: list[int] = []

    def kill_in_the_middle(epoch: int) -> None:
        if epoch == 1 and not kills:
            kills.append(epoch)
            node.kill()
            node.start()

    stream.before_write = kill_in_the_middle
    try:
        with LogClient(node.bootstrap) as client, Client(node.http) as http:
            http.groups.put_queue(GROUP)
            client.topics.create("orders", partition_count=2)
            for one in range(2):
                write(client, "orders", values, partition=one)
            stream.run(subscribe="orders", maxMessagesPerTrigger="2500")
            assert kills == [1]
            assert checksums(stream.rows()) == dict.fromkeys(range(2), checksum(values))
            rows = stream.rows().select("deliveryCount").distinct().collect()
            assert [tuple(row) for row in rows] == [(1,)], "none was handed out twice"
            assert is_done(http.queue("orders", group=GROUP).stats())
    finally:
        node.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_driver_repeats_its_epoch_and_acknowledges_it(
    client: LogClient,
    http: Client,
    broker: Broker,
    new_topic: NewTopic,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    topic, values = new_topic(partitions=2), VALUES * 7
    for one in range(2):
        write(client, topic, values, partition=one)
    http.groups.put_queue(KILLED_GROUP)
    queue = http.queue(topic, group=KILLED_GROUP)
    command = [*END_WITH_US, sys.executable, "-m", "tests.e2e.queue_driver"]
    command += [broker.bootstrap, topic, str(tmp_path)]
    hold = tmp_path / HOLD_FILE
    hold.touch()
    kill_midway(command, lambda: (tmp_path / f"written-{HELD_EPOCH}").exists())
    hold.unlink()
    planned = epoch_messages(tmp_path / "checkpoint", 1)
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists(), "it was killed too late"
    assert queue.stats().prepared == planned == 1500
    subprocess.run(command, cwd=ROOT, check=True, timeout=400, stderr=subprocess.DEVNULL)
    assert epoch_messages(tmp_path / "checkpoint", 1) == planned
    rows = spark.read.parquet(str(tmp_path / "out"))
    assert checksums(rows) == dict.fromkeys(range(2), checksum(values))
    assert is_done(queue.stats())


def epoch_messages(checkpoint: Path, epoch: int) -> int:
    """How many messages an epoch of a checkpoint names."""
    text = (checkpoint / "offsets" / str(epoch)).read_text().splitlines()[2]
    return read_queue_offset(json.loads(text)).count
