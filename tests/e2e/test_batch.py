"""Topics as tables of a real Spark, on a real broker."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

import goqueue.spark
from goqueue.client import LogClient, Position
from goqueue.model.compression import Compression
from tests.e2e.conftest import NewTopic, Table, checksum, checksums, write
from tests.e2e.pushing import Pushing
from tests.integration.process import Broker
from tests.integration.waiting import eventually

VALUES = [b"value %d" % number for number in range(500)]


def test_a_topic_is_a_table(client: LogClient, new_topic: NewTopic, table: Table) -> None:
    topic, now_ms = new_topic(partitions=3), round(time.time() * 1000)
    with client.producer() as producer:
        for number in range(90):
            producer.send(
                topic,
                b"v%d" % number if number % 7 else None,
                key=b"k%d" % number if number % 5 else None,
                headers=[("colour", b"red"), ("size", None)] if number % 3 else (),
                timestamp_ms=now_ms + 7 * number,
                partition=number % 3,
            )
    frame = table(subscribe=topic, includeHeaders="true").load()
    assert frame.columns == [
        *("key", "value", "topic", "partition", "offset"),
        *("timestamp", "timestampType", "headers"),
    ]
    rows = {(row.partition, row.offset): row for row in frame.collect()}
    assert sorted(rows) == [(one, offset) for one in range(3) for offset in range(30)]
    reader = client.reader([topic], Position.earliest(), until=Position.latest())
    for record in reader.records():
        row = rows[record.partition, record.offset]
        assert (row.key, row.value, row.topic) == (record.key, record.value, topic)
        assert round(row.timestamp.timestamp() * 1000) == record.timestamp_ms
        headers = [(one.key, one.value) for one in row.headers or ()]
        assert headers == list(record.headers)


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name.lower())
def test_all_codecs_are_read_by_several_tasks(
    client: LogClient, new_topic: NewTopic, table: Table, codec: Compression
) -> None:
    topic = new_topic()
    write(client, topic, VALUES, compression=codec, batch_records_max=60)
    frame = table(subscribe=topic, minPartitions="4").schema("value binary, offset long").load()
    assert frame.rdd.getNumPartitions() == 4
    rows = sorted((row.offset, row.value) for row in frame.collect())
    assert rows == list(enumerate(VALUES))


def test_a_starting_time_after_the_last_record_is_an_error_or_the_end(
    client: LogClient, new_topic: NewTopic, table: Table
) -> None:
    topic = new_topic()
    write(client, topic, VALUES)
    late = {"subscribe": topic, "startingTimestamp": "9999999999999"}
    with pytest.raises(AnalysisException, match="startingOffsetsByTimestampStrategy"):
        table(**late).load().count()
    assert table(**late, startingOffsetsByTimestampStrategy="latest").load().count() == 0


def test_an_empty_topic_is_an_empty_table(new_topic: NewTopic, table: Table) -> None:
    assert table(subscribe=new_topic()).load().count() == 0


def test_counting_needs_no_column(client: LogClient, new_topic: NewTopic, table: Table) -> None:
    topic = new_topic()
    write(client, topic, VALUES)
    assert table(subscribe=topic).schema(StructType([])).load().count() == 500


def test_ranges_are_options_or_predicates(
    client: LogClient, new_topic: NewTopic, table: Table
) -> None:
    topic = new_topic(partitions=2)
    write(client, topic, VALUES, partition=0, batch_records_max=60)
    write(client, topic, VALUES, partition=1, batch_records_max=60)
    frame = table(subscribe=topic, startingOffsets="100", endingOffsets="107").load()
    assert frame.count() == 14
    predicate = "partition = 1 and offset between 100 and 149 and key >= '120'"
    frame = goqueue.spark.read_where(table(subscribe=topic), predicate)
    assert sorted(row.offset for row in frame.collect()) == list(range(120, 150))
    assert frame.rdd.getNumPartitions() == 1
    # A filter that Spark applies by itself leaves the table as it is.
    whole = table(subscribe=topic).load()
    assert whole.where("offset < 100").count() == 200
    assert whole.count() == 1000


def test_a_table_is_a_snapshot(client: LogClient, new_topic: NewTopic, table: Table) -> None:
    topic = new_topic()
    write(client, topic, VALUES[:10])
    frame = table(subscribe=topic).load()
    assert frame.count() == 10
    write(client, topic, VALUES[:5])
    assert frame.count() == 10
    assert table(subscribe=topic).load().count() == 15


def test_batches_can_be_seen_instead_of_records(
    client: LogClient, new_topic: NewTopic, table: Table
) -> None:
    topic = new_topic()
    write(client, topic, VALUES, batch_records_max=60, compression=Compression.ZSTD)
    frame = table(subscribe=topic, view="batches", minPartitions="5").load()
    found = frame.agg(
        sql.sum("records"), sql.min("firstOffset"), sql.max("lastOffset"), sql.first("codec")
    ).first()
    assert found is not None
    assert tuple(found) == (500, 0, 499, "zstd")
    assert frame.select("firstOffset").distinct().count() == frame.count()


def test_a_registered_name_is_enough(
    spark: SparkSession, broker: Broker, client: LogClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    write(client, topic, VALUES[:3])
    other = spark.newSession()  # Nobody has enabled anything here.
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    other.read.format("goqueue").options(**options).load().createOrReplaceTempView("orders")
    assert other.sql("select count(*) from orders").first() == (3,)


def test_what_is_wrong_is_said_to_the_user(new_topic: NewTopic, table: Table) -> None:
    with pytest.raises(AnalysisException, match=r"did you mean 'subscribe'.*includeHeaders is"):
        table(subscribed="a", subscribe="a", includeHeaders="perhaps").load()
    with pytest.raises((AnalysisException, PythonException), match="does not exist"):
        table(subscribe="nowhere").load().count()
    with pytest.raises((AnalysisException, PythonException), match="read it so and cast it"):
        table(subscribe=new_topic()).schema("value string").load().count()


@pytest.mark.slow
def test_a_broker_killed_in_the_middle_of_a_read_is_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    node = Broker(tmp_path, {})
    node.start()
    out, tasks = tmp_path / "out", 16
    values = [b"%d " % number + bytes(1_000) for number in range(20_000)]
    try:
        with LogClient(node.bootstrap) as client:
            client.topics.create("bulk", partition_count=2)
            for one in range(2):
                write(client, "bulk", values, partition=one)
        frame = (
            spark.read.format("goqueue")
            .option("kafka.bootstrap.servers", node.bootstrap)
            .option("subscribe", "bulk")
            .option("minPartitions", str(tasks))
            .load()
        )
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(frame.write.parquet, str(out))
            eventually(lambda: tasks_done(out), because="a task has ended", within=120)
            node.kill()
            assert tasks_done(out) < tasks, "it was killed too late"
            # Not by the other thread: the node would end with the thread that started it.
            node.start()
            job.result()
        assert checksums(spark.read.parquet(str(out))) == dict.fromkeys(range(2), checksum(values))
    finally:
        node.close()


def tasks_done(out: Path) -> int:
    """How many tasks of a job that writes files have ended; Spark moves these at the end."""
    return len(list(out.glob("_temporary/0/task_*")))


def test_only_what_was_committed_is_read(
    client: LogClient, broker: Broker, new_topic: NewTopic, table: Table
) -> None:
    topic = new_topic()
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions()
    for end, value in (
        (producer.commit_transaction, b"kept"),
        (producer.abort_transaction, b"dropped"),
        (producer.commit_transaction, b"kept too"),
    ):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, value, partition=0)
        producer.flush()
        end()
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    producer.flush()
    rows = table(subscribe=topic, minPartitions="3").load().collect()
    assert sorted(row.value for row in rows) == [b"kept"] * 3 + [b"kept too"] * 3
    everything = table(subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"}).load()
    assert everything.count() == 10
    producer.abort_transaction()


def test_spark_still_mixes_up_filters_that_are_pushed_down(spark: SparkSession) -> None:
    """The day this fails, ranges can be taken from filters instead of options."""
    spark.dataSource.register(Pushing)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("pushing").load()
        assert frame.where("number < 3").count() == 3
        assert frame.count() == 3, "Spark has mended it: 10 is right"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
