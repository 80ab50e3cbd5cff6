"""Journeys as a table and a stream of a real Spark, as a real broker writes them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from goqueue import Client
from tests.e2e.conftest import NewTopic
from tests.integration.process import Broker
from tests.integration.waiting import eventually


def test_the_journal_of_journeys_is_a_table_and_a_stream(
    spark: SparkSession, broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "view": "journeys",
        "journeys.topics": topic,
    }
    with Client(broker.http) as http:
        for number in range(5):
            http.publish(topic, f"message {number}")
        queue = http.queue(topic, group="workers")
        for message in queue.receive(max_messages=5, wait=10):
            (queue.nack if message.offset == 2 else queue.ack)(message)

    def counts() -> dict[str, int]:
        table = spark.read.format("goqueue").options(**options).load()
        return {row[0]: row[1] for row in table.groupBy("kind").agg({"count": "sum"}).collect()}

    expected = {"received": 5, "stored": 5, "delivered": 5, "acked": 4, "nacked": 1}
    eventually(lambda: counts() == expected, because="all events are written")
    table = spark.read.format("goqueue").options(**options).load()
    [nacked] = table.where("kind = 'nacked'").collect()
    assert (nacked.topic, nacked.firstOffset, nacked.group) == (topic, 2, "workers")
    assert nacked.dueTime is None or nacked.dueTime >= nacked.time

    target = str(tmp_path / "events")
    stream = spark.readStream.format("goqueue").options(**options)
    query = (
        stream.option("startingOffsets", "earliest")
        .option("journeys.kinds", "acked,nacked")
        .load()
        .writeStream.format("parquet")
        .option("path", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert spark.read.parquet(target).selectExpr("sum(count)").first() == (5,)
