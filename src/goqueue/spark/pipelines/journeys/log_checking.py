"""Whether messages without an end are still in the log.

Queue groups pass over records that are not there to be delivered, because their transaction was
aborted or compaction removed them, and nothing is written about that. The headers of the batches
of the topic tell such records from lost ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from goqueue.client import LogClient
from goqueue.model.errors import UnknownTopic
from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines.journeys.accounting import LINE, PARTITION
from goqueue.spark.pipelines.journeys.sweeping import sweep

PARTITIONS_MAX = 10_000  # that are looked up; what is lost in others stays so

Bounds = dict[tuple[str, str], dict[int, tuple[int, int]]]  # by topic and its id, by partition


def check_log(
    spark: SparkSession, client: LogClient, lost: DataFrame, options: Mapping[str, str]
) -> DataFrame:
    """Return these parts with `removed` set where the log has no such records.

    Topics of other tenants cannot be read, nor those that are deleted, nor what retention has
    removed: these parts are returned as they are.
    """
    bounds = _bounds(client, _wanted(lost))
    if not bounds:
        return lost
    carried = [name for name, kind in lost.dtypes if kind == "bigint"]
    carried = [name for name in carried if name not in ("first", "end", "removed")]
    logs = _batches(spark, bounds, options).unionByName(_looked_up(spark, bounds))
    lines = sql.broadcast(lost.select(*LINE).distinct())
    marks = ("is_lost", "is_logged", "is_looked_up")
    rows = lost.withColumn("is_lost", sql.lit(1)).unionByName(
        logs.join(lines, list(PARTITION)), allowMissingColumns=True
    )
    values = {name: sql.coalesce(sql.col(name), sql.lit(0)) for name in (*carried, *marks)}
    parts = sweep(rows, LINE, values).where("is_lost > 0")
    is_removed = sql.expr("is_looked_up > 0 and is_logged = 0")
    return parts.withColumn("removed", is_removed.cast("long")).drop(*marks)


def _wanted(lost: DataFrame) -> list[Any]:
    extent = (sql.min("first").alias("begin"), sql.max("end").alias("end"))
    return (
        lost.where("tenant = ''").groupBy(*PARTITION).agg(*extent).limit(PARTITIONS_MAX).collect()
    )


def _bounds(client: LogClient, wanted: Sequence[Any]) -> Bounds:
    """Return which offsets to look up: those that are retained."""
    bounds: Bounds = {}
    for topic, topic_id in sorted({(row.topic, row.topicId) for row in wanted}):
        try:
            view = client.cluster.topic(topic)
        except UnknownTopic:
            continue
        rows = [row for row in wanted if row.topicId == topic_id]
        if view.id.hex() != topic_id:
            continue
        kept = client.offsets.ranges([TopicPartition(topic, row.partition) for row in rows])
        found = {}
        for row in rows:
            of_log = kept[TopicPartition(topic, row.partition)]
            first, end = max(row.begin, of_log.start), min(row.end, of_log.end)
            if first < end:
                found[row.partition] = (first, end)
        if found:
            bounds[topic, topic_id] = found
    return bounds


def _batches(spark: SparkSession, bounds: Bounds, options: Mapping[str, str]) -> DataFrame:
    """Return the ranges of the batches that readers of committed records get."""
    offsets = [
        {
            topic: {str(partition): one[end] for partition, one in its.items()}
            for (topic, _), its in bounds.items()
        }
        for end in (0, 1)
    ]
    named = {
        "view": "batches",
        "assign": json.dumps({topic: sorted(its) for (topic, _), its in bounds.items()}),
        "startingOffsets": json.dumps(offsets[0]),
        "endingOffsets": json.dumps(offsets[1]),
        "failOnDataLoss": "false",
    }
    ids = spark.createDataFrame(list(bounds), "topic string, topicId string")
    batches = spark.read.format("goqueue").options(**options, **named)
    table = batches.schema("topic string, partition int, firstOffset long, lastOffset long").load()
    return table.join(sql.broadcast(ids), "topic").select(
        sql.lit("").alias("tenant"),
        *PARTITION[1:],
        sql.col("firstOffset").alias("first"),
        sql.expr("lastOffset + 1").alias("end"),
        sql.lit(1).alias("is_logged"),
        sql.lit(0).alias("is_looked_up"),
    )


def _looked_up(spark: SparkSession, bounds: Bounds) -> DataFrame:
    rows = [
        ("", *topic, partition, *one, 0, 1)
        for topic, its in bounds.items()
        for partition, one in its.items()
    ]
    kinds = "tenant string, topic string, topicId string, partition int, first long, end long, "
    return spark.createDataFrame(rows, kinds + "is_logged int, is_looked_up int")
