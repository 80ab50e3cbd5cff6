"""Scheduled messages: whether they were released, and how late."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from goqueue.spark.pipelines.journeys.accounting import PARTITION
from goqueue.spark.pipelines.journeys.latencies import RELEASE
from goqueue.spark.pipelines.journeys.sweeping import first_of, sweep

KINDS = ("scheduled", "released", "cancelled")
# Events this close to each other may be one, with a time between theirs.
TIMES_MS = 10


def schedules_of(events: DataFrame, *, now_ms: int, grace_ms: int) -> DataFrame:
    """Return the parts of the schedule log with their targets, states and lateness."""
    targets = (
        events.where("kind = 'scheduled'")
        .select("linkTenant", "linkTopic")
        .distinct()
        .coalesce(1)
        .withColumn("target", sql.monotonically_increasing_id() + 1)
        .localCheckpoint()  # Numbers must be the same wherever they are used.
    )
    kind = sql.col("kind")
    same = [
        sql.col(f"e.{one}").eqNullSafe(sql.col(f"t.{one}")) for one in ("linkTenant", "linkTopic")
    ]
    rows = (
        events.where(kind.isin(*KINDS))
        .alias("e")
        .join(sql.broadcast(targets).alias("t"), same, "left")
        .select("e.*", "t.target")
    )
    is_scheduled = kind == "scheduled"
    twice = sql.col("time_ms") + sql.col("last_ms")
    parts = sweep(
        rows,
        PARTITION,
        {
            **{name: (kind == name).cast("long") for name in KINDS},
            # A part has one scheduled event, so sums are its values.
            "target": sql.when(is_scheduled, sql.col("target")).otherwise(0),
            "due_ms": sql.when(is_scheduled, sql.col("due_ms")).otherwise(0),
            "scheduled_t": sql.when(is_scheduled, twice).otherwise(0),
            "released_t": sql.when(kind == "released", twice).otherwise(0),
        },
    )
    named = parts.where("scheduled = 1").join(sql.broadcast(targets), "target", "left")
    state = first_of(
        [
            (sql.expr("released > 0"), "released"),
            (sql.expr("cancelled > 0"), "cancelled"),
            (sql.col("due_ms") >= now_ms - grace_ms, "pending"),
        ],
        "overdue",
    )
    late = sql.when(sql.expr("released = 1"), sql.expr("released_t / 2 - due_ms"))
    return named.withColumns(
        {"state": state, "late_ms": late, "received_ms": sql.expr("scheduled_t div 2")}
    )


def schedule_problems(parts: DataFrame, *, slow_ms: int) -> DataFrame:
    found = [
        (sql.col("state") == "overdue", "never_released"),
        (sql.col("late_ms") > slow_ms, "late_release"),
        (sql.col("late_ms") < -TIMES_MS, "early_release"),
        (sql.expr("released > 1"), "released_again"),
    ]
    problems = sql.array(*(sql.when(condition, sql.lit(name)) for condition, name in found))
    return parts.withColumn("problem", sql.explode(sql.array_compact(problems)))


def release_histogram(parts: DataFrame) -> DataFrame:
    """Count released messages by lateness, for each topic that they went to."""
    return (
        parts.where("late_ms is not null")
        .groupBy(
            sql.col("linkTopic").alias("topic"),
            sql.lit(None).cast("string").alias("group"),
            sql.col("linkTenant").alias("tenant"),
            sql.date_trunc("hour", sql.timestamp_millis("due_ms")).alias("hour"),
            sql.lit(RELEASE).alias("hop"),
            sql.greatest("late_ms", sql.lit(0.0)).alias("ms"),
        )
        .agg(sql.sum(sql.col("end") - sql.col("first")).alias("messages"))
    )
