"""Writing topics with a real Spark: whole or not at all, and once, whatever is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from goqueue.client import LogClient, Position, ReaderSettings
from goqueue.model.names import TopicPartition
from tests.e2e.conftest import NewTopic, Table, write
from tests.e2e.test_streaming import PATIENCE_S, ROOT, kill_midway
from tests.integration.process import END_WITH_US, Broker
from tests.integration.waiting import eventually

Save = Callable[..., None]


@pytest.fixture
def save(broker: Broker) -> Save:
    """Write a table to the shared node: `save(rows, topic=name)`."""

    def save(rows: DataFrame, **options: str) -> None:
        writer = rows.write.format("goqueue").option("kafka.bootstrap.servers", broker.bootstrap)
        writer.options(**options).mode("append").save()

    return save


def values_of(client: LogClient, topic: str) -> Counter[bytes | None]:
    """How often each value can be seen by those who want only what is committed."""
    reader = client.reader(
        [topic],
        Position.earliest(),
        until=Position.latest(),
        settings=ReaderSettings(is_committed_only=True),
    )
    return Counter(record.value for record in reader.records())


def check_nothing_is_open(client: LogClient, topic: str) -> None:
    partitions = client.partitions([topic])
    eventually(
        lambda: client.transactions.open_in(partitions) == [], because="abandoned ones are aborted"
    )


def numbered(count: int) -> Counter[bytes | None]:
    return Counter(b"value %d" % number for number in range(count))


# Tables


def test_a_table_is_written_and_read_again(
    spark: SparkSession, save: Save, table: Table, client: LogClient, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=3)
    moment = datetime.now(UTC).replace(microsecond=0)  # retention looks at it
    rows = spark.range(0, 1000, 1, 4).select(
        sql.concat(sql.lit("key "), sql.col("id").cast("string")).alias("key"),
        sql.col("id").cast("string").cast("binary").alias("value"),
        (sql.col("id") % 3).cast("int").alias("partition"),
        sql.lit(moment).alias("timestamp"),
        sql.array(
            sql.struct(sql.lit("trace").alias("key"), sql.lit(b"\x00\xff").alias("value"))
        ).alias("headers"),
        sql.when(sql.col("id") < 10, "high").alias("priority"),
    )
    save(rows, topic=topic, **{"kafka.compression.type": "zstd"})
    found = table(subscribe=topic, includeHeaders="true").load().orderBy("partition", "offset")
    read = {int(row.value): row for row in found.collect()}
    assert sorted(read) == list(range(1000))
    assert all(row.partition == number % 3 for number, row in read.items())
    assert {row.key for row in read.values()} == {b"key %d" % number for number in range(1000)}
    assert {row.timestamp.astimezone(UTC).replace(tzinfo=UTC) for row in read.values()} == {moment}
    plain, high = [("trace", b"\x00\xff")], [("trace", b"\x00\xff"), ("goqueue-priority", b"high")]
    for number, row in read.items():
        assert [tuple(one) for one in row.headers] == (high if number < 10 else plain)
    check_nothing_is_open(client, topic)
    assert not [
        one for one in client.transactions.list_all() if one.transactional_id.startswith("__query")
    ]


def test_rows_may_name_their_topics_and_times(
    spark: SparkSession, save: Save, client: LogClient, new_topic: NewTopic
) -> None:
    topics = [new_topic(), new_topic()]
    chosen = sql.when(sql.col("id") % 2 == 0, topics[0]).otherwise(topics[1])
    rows = spark.range(0, 100, 1, 2).select(
        chosen.alias("topic"), sql.format_string("value %d", "id").alias("value")
    )
    late = rows.withColumn("deliver_at", sql.expr("current_timestamp() + interval 1 hour"))
    for delivery in ("exactly-once", "at-least-once"):
        save(rows, delivery=delivery)
        save(late, delivery=delivery)
    seen = values_of(client, topics[0]) + values_of(client, topics[1])
    assert seen == numbered(100) + numbered(100), "what is due later is not there yet"


def test_a_job_that_fails_leaves_nothing(
    spark: SparkSession, save: Save, client: LogClient, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    rows = spark.range(0, 20_000, 1, 4).select(sql.format_string("value %d", "id").alias("value"))
    # The last task fails at its end, when the others are prepared and it has written itself.
    broken = spark.range(0, 20_000, 1, 4).select(
        sql.when(sql.col("id") < 19_999, sql.format_string("value %d", "id"))
        .otherwise(sql.raise_error(sql.lit("a row that cannot be made")))
        .alias("value")
    )
    with pytest.raises(PySparkException, match="cannot be made"):
        save(broken, topic=topic)
    assert values_of(client, topic) == Counter()
    check_nothing_is_open(client, topic)
    save(rows, topic=topic)
    assert values_of(client, topic) == numbered(20_000)


def test_what_cannot_be_written_is_said_before_anything_is(
    spark: SparkSession, save: Save, client: LogClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    rows = spark.range(3).select(sql.col("id").alias("value"), sql.lit(1).alias("prority"))
    with pytest.raises(PySparkException) as refused:
        save(rows)
    for part in ("'value' is bigint", "no column 'prority'", "option topic"):
        assert part in str(refused.value)
    text = spark.range(3).select(sql.lit("a").alias("value"))
    with pytest.raises(PySparkException, match="deliverie"):
        save(text, topic=topic, deliverie="at-least-once")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        text.write.format("goqueue").option("topic", topic).mode("overwrite").save()
    assert values_of(client, topic) == Counter()


def test_what_was_read_is_written_as_it_is(
    save: Save, table: Table, client: LogClient, new_topic: NewTopic
) -> None:
    source, target = new_topic(partitions=2), new_topic(partitions=2)
    with client.producer() as producer:
        for number in range(10):
            producer.send(
                source,
                b"v%d" % number,
                key=b"k%d" % number,
                headers=[("h", b"%d" % number)],
                partition=number % 2,
                timestamp_ms=time.time_ns() // 1_000_000 - number,
            )
    read = table(subscribe=source, includeHeaders="true").load()
    save(read, topic=target, includeHeaders="true")
    names = ["key", "value", "partition", "offset", "timestamp", "headers"]
    copied = table(subscribe=target, includeHeaders="true").load().select(*names)
    assert sorted(copied.collect(), key=repr) == sorted(read.select(*names).collect(), key=repr)


# Streams


class Copy:
    """A stream from one topic into another, which can be stopped and started again."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, source: str, target: str, folder: Path
    ) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self.checkpoint = folder / "checkpoint"

    def count_by_key(self) -> None:
        """Write the count of each key in the mode complete."""
        rows = (
            self._spark.readStream.format("goqueue")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", self._source)
            .option("startingOffsets", "earliest")
            .load()
        )
        counts = rows.groupBy("key").count()
        (
            counts.select("key", sql.format_string("value %d", "count").alias("value"))
            .writeStream.format("goqueue")
            .outputMode("complete")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("topic", self._target)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    def start(self, *, available_now: bool = True, **options: str) -> StreamingQuery:
        rows = (
            self._spark.readStream.format("goqueue")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", self._source)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )
        writer = (
            rows.select("key", "value")
            .writeStream.format("goqueue")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("topic", self._target)
            .option("checkpointLocation", str(self.checkpoint))
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def run(self, **options: str) -> None:
        self.start(**options).awaitTermination()

    @property
    def epochs(self) -> int:
        """How many Spark knows to be committed."""
        commits = self.checkpoint / "commits"
        return len([one for one in commits.glob("*") if one.name.isdigit()])

    def forget_last_commit(self) -> None:
        """As if the driver had died after the broker's commit and before its own note of it."""
        commits = self.checkpoint / "commits"
        last = max(int(one.name) for one in commits.glob("*") if one.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


def test_a_stream_in_the_mode_complete_appends_its_whole_result_each_epoch(
    spark: SparkSession, client: LogClient, broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    copy = Copy(spark, broker.bootstrap, source, target, tmp_path)
    for count in (1, 2):
        with client.producer() as producer:
            for key in (b"a", b"b"):
                producer.send(source, b"", key=key)
        copy.count_by_key()
        assert values_of(client, target)[b"value %d" % count] == 2


def test_an_epoch_that_is_repeated_with_other_tasks_appears_once(
    spark: SparkSession, broker: Broker, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic(partitions=2)
    write(client, source, [b"value %d" % number for number in range(1000)])
    copy = Copy(spark, broker.bootstrap, source, target, tmp_path)
    copy.run(maxOffsetsPerTrigger="400")
    assert copy.epochs == 3
    assert values_of(client, target) == numbered(1000)
    copy.forget_last_commit()
    copy.run(maxOffsetsPerTrigger="400", minPartitions="4")
    assert copy.epochs == 3, "it was repeated"
    assert values_of(client, target) == numbered(1000)
    check_nothing_is_open(client, target)
    write(client, source, [b"value %d" % number for number in range(1000, 1100)])
    copy.run()
    assert values_of(client, target) == numbered(1100)


def test_a_second_driver_turns_the_first_away(
    spark: SparkSession, broker: Broker, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    write(client, source, [b"value %d" % number for number in range(10)])
    copy = Copy(spark, broker.bootstrap, source, target, tmp_path)
    first = copy.start(available_now=False)
    try:
        eventually(lambda: copy.epochs == 1, because="the first runs", within=PATIENCE_S)
        # Another driver with the same checkpoint. Only one of them can go on.
        from goqueue.client.http import Client

        with Client(broker.http) as api:
            assert api.queries.open(first.id, run_name="another").run == 2
        write(client, source, [b"value %d" % number for number in range(10, 20)])
        with pytest.raises(StreamingQueryException, match="another driver"):
            first.awaitTermination(PATIENCE_S)
    finally:
        first.stop()
    assert values_of(client, target) == numbered(10)
    check_nothing_is_open(client, target)
    copy.run()  # a third run takes over, and repeats what the first could not commit
    assert values_of(client, target) == numbered(20)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.seeds(1)
def test_a_stream_loses_and_repeats_nothing_when_its_driver_is_killed(
    broker: Broker, client: LogClient, new_topic: NewTopic, tmp_path: Path, seed: int
) -> None:
    source, target = new_topic(partitions=2), new_topic(partitions=3)
    count = 12_000
    values = [b"value %d" % number for number in range(count)]
    for one in range(2):
        write(client, source, values[one::2], partition=one)
    command = [*END_WITH_US, sys.executable, "-m", "tests.e2e.sink_driver"]
    command += [broker.bootstrap, source, target, str(tmp_path)]
    offsets = [TopicPartition(target, number) for number in range(3)]

    def stored() -> int:
        return sum(one.end for one in client.offsets.ranges(offsets).values())

    # While an epoch of 1,500 is being written: some of it is stored. Those before are committed.
    wanted = (3_100, 1, 1_600, 4_600)[seed % 4]
    kill_midway(command, lambda: stored() >= wanted)
    seen = values_of(client, target)
    assert not seen or set(seen.values()) == {1}
    assert sum(seen.values()) < count, "it was killed too late"
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, stderr=subprocess.DEVNULL)
    assert values_of(client, target) == numbered(count)
    check_nothing_is_open(client, target)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stream_loses_and_repeats_nothing_when_the_broker_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    node = Broker(tmp_path / "node", {})
    (tmp_path / "node").mkdir()
    node.start()
    count = 12_000
    try:
        with LogClient(node.bootstrap) as client:
            client.topics.create("in", partition_count=2)
            client.topics.create("out", partition_count=3)
            values = [b"value %d" % number for number in range(count)]
            for one in range(2):
                write(client, "in", values[one::2], partition=one)
        copy = Copy(spark, node.bootstrap, "in", "out", tmp_path)
        query = copy.start(maxOffsetsPerTrigger="1500")
        for wanted in (1, 3):
            eventually(lambda: copy.epochs >= wanted, because="under way", within=PATIENCE_S)  # noqa: B023
            node.kill()
            node.start()
        assert copy.epochs < count // 1500, "it was killed too late"
        try:
            query.awaitTermination()
        except StreamingQueryException:
            copy.run(maxOffsetsPerTrigger="1500")  # as whoever watches over it would do
        with LogClient(node.bootstrap) as client:
            assert values_of(client, "out") == numbered(count)
            check_nothing_is_open(client, "out")
    finally:
        node.close()
