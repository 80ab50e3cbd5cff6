"""A real broker and a real session of Spark for each process of the tests."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.readwriter import DataFrameReader

import goqueue.spark
from goqueue.client import LogClient, ProducerSettings
from goqueue.model.compression import Compression
from goqueue.model.names import TopicPartition
from tests.e2e.java import java_options
from tests.integration.process import Broker

TEST_SECONDS_MAX = 300
# Small, so that several sessions fit beside one another.
SPARK_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    # A stream that has nothing to do asks ten times a second, not a hundred times.
    "spark.sql.streaming.pollingDelay": "100ms",
}

# For every session that a test starts, in this process or another.
os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())

NewTopic = Callable[..., str]
Table = Callable[..., DataFrameReader]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of a process: it takes some ten seconds to start."""
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    settings = {**SPARK_SETTINGS, "spark.sql.warehouse.dir": warehouse}
    session = goqueue.spark.session("local[2]", name="tests", settings=settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The shared node."""
    node = Broker(tmp_path_factory.mktemp("node"), {})
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[LogClient]:
    with LogClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name that no other test and no other run has."""
    claim: str = request.node.originalname.removeprefix("test_")
    return f"{claim[:50]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def new_topic(client: LogClient, unique: str) -> NewTopic:
    """Create topics on the shared node."""
    made: list[str] = []

    def create(partitions: int = 1) -> str:
        name = f"{unique}-{len(made)}"
        made.append(name)
        client.topics.create(name, partition_count=partitions)
        return name

    return create


@pytest.fixture
def table(spark: SparkSession, broker: Broker) -> Table:
    """A reader of the shared node: `table(subscribe=topic, includeHeaders="true")`."""

    def read(**options: str) -> DataFrameReader:
        reader = spark.read.format("goqueue").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.options(**options)

    return read


def write(
    client: LogClient,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int = 0,
    compression: Compression = Compression.NONE,
    batch_records_max: int = 10_000,
) -> None:
    """Values with their number as the key, all in one partition."""
    settings = ProducerSettings(compression=compression, batch_records_max=batch_records_max)
    with client.producer(settings) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, key=b"%d" % number, partition=partition)


def checksums(frame: DataFrame) -> dict[int, tuple[int, int, int, int]]:
    """Of each partition: rows, offsets, the sum of these, and a sum over what the records hold."""
    found = frame.groupBy("partition").agg(
        sql.count("*"), sql.countDistinct("offset"), sql.sum("offset"), sql.sum(sql.crc32("value"))
    )
    return {row[0]: tuple(row)[1:] for row in found.collect()}


def checksum(values: Sequence[bytes]) -> tuple[int, int, int, int]:
    """What `checksums` must find of a partition that holds these values, each once."""
    count = len(values)
    return count, count, count * (count - 1) // 2, sum(map(zlib.crc32, values))


def end_of(client: LogClient, topic: str, partition: int = 0) -> int:
    one = TopicPartition(topic, partition)
    return client.offsets.ranges([one])[one].end
