"""The first rows of the tables, and their sums, for the summary of a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from goqueue.spark.pipelines.journeys import accounting
from goqueue.spark.pipelines.journeys.latencies import HOPS
from goqueue.spark.pipelines.journeys.results import (
    SCHEDULE_STATES,
    STATES,
    Account,
    JournalRange,
    Latency,
    Problem,
    ProblemCount,
    Slow,
)
from goqueue.spark.pipelines.journeys.sweeping import joined

ACCOUNTS_MAX = 1000
PROBLEMS_MAX = 100  # of each problem; the largest
LATENCIES_MAX = 2000
SLOWEST_MAX = 50


def joined_problems(found: DataFrame, late: DataFrame) -> DataFrame:
    """Return all problems, those of adjacent messages as one row."""
    keys = ("problem", *accounting.LINE)
    longest = sql.greatest(*HOPS).alias("latency_ms")
    of_messages = found.select(*keys, "first", "end", "received_ms", longest)
    # A scheduled message is named by its place in the schedule log, and its topic by the target.
    of_schedules = late.select(
        "problem",
        sql.col("linkTenant").alias("tenant"),
        sql.col("linkTopic").alias("topic"),
        "topicId",
        "partition",
        sql.lit(None).cast("string").alias("group"),
        "first",
        "end",
        "received_ms",
        sql.col("late_ms").alias("latency_ms"),
    )
    values = {
        "received_ms": sql.min("received_ms"),
        "latency_ms": sql.max("latency_ms"),
    }
    return joined(of_messages.unionByName(of_schedules), keys, values)


def journal_ranges(events: DataFrame) -> list[JournalRange]:
    rows = events.groupBy("journalPartition").agg(
        sql.min("journalOffset").alias("first"), sql.max("journalOffset").alias("last")
    )
    return [
        JournalRange(partition=row.journalPartition, first=row["first"], end=row["last"] + 1)
        for row in rows.orderBy("journalPartition").collect()
    ]


def accounts(parts: DataFrame) -> list[Account]:
    """Return how many messages stand how, for each topic and group."""
    redelivered = _sum(sql.col("delivered") > 1).alias("redelivered")
    rows = _accounts(parts, ("tenant", "topic", "group"), STATES, redelivered)
    return [_account(row, row["tenant"], row["topic"], STATES, row["redelivered"]) for row in rows]


def schedule_accounts(parts: DataFrame) -> list[Account]:
    """Return how many scheduled messages stand how, for each topic that they are for."""
    rows = _accounts(
        parts.withColumn("group", sql.lit(None).cast("string")),
        ("linkTenant", "linkTopic", "group"),
        SCHEDULE_STATES,
    )
    return [
        _account(row, row["linkTenant"], row["linkTopic"] or "", SCHEDULE_STATES) for row in rows
    ]


def problem_counts(problems: DataFrame) -> list[ProblemCount]:
    rows = problems.groupBy("problem").agg(
        sql.sum("messages").alias("messages"), sql.count("*").alias("ranges")
    )
    return [
        ProblemCount(problem=row["problem"], messages=row["messages"], ranges=row["ranges"])
        for row in rows.orderBy("problem").collect()
    ]


def first_problems(problems: DataFrame) -> list[Problem]:
    order = (sql.desc("messages"), "topic", "partition", "first")
    rank = sql.row_number().over(Window.partitionBy("problem").orderBy(*order))
    rows = problems.withColumn("_rank", rank).where(sql.col("_rank") <= PROBLEMS_MAX)
    return [
        Problem(
            problem=row["problem"],
            tenant=row["tenant"],
            topic=row["topic"] or "",
            partition=row["partition"],
            group=row["group"],
            first=row["first"],
            end=row["end"],
            messages=row["messages"],
            received_ms=row["received_ms"],
            latency_ms=row["latency_ms"],
        )
        for row in rows.orderBy("problem", "_rank").collect()
    ]


def first_latencies(latencies: DataFrame) -> list[Latency]:
    """Return the percentiles without those by all dimensions, which can be many."""
    rows = latencies.where("by != 'tenant/topic/group/hour'")
    ordered = rows.orderBy("by", sql.desc("messages")).limit(LATENCIES_MAX)
    return [_latency(row.asDict()) for row in ordered.collect()]


def slowest(parts: DataFrame) -> list[Slow]:
    longest = sql.greatest(*HOPS)
    rows = parts.where(longest.isNotNull()).orderBy(longest.desc()).limit(SLOWEST_MAX)
    names = ("tenant", "topic", "partition", "group", "first", "end", "received_ms")
    return [
        Slow(
            **{name: row[name] for name in names},
            hops={hop: row[hop] for hop in HOPS if row[hop] is not None},
        )
        for row in rows.select(*names, *HOPS).collect()
    ]


def _sum(condition: Column) -> Column:
    return sql.sum(sql.when(condition, sql.col("end") - sql.col("first")).otherwise(0))


def _accounts(
    parts: DataFrame, by: Sequence[str], states: Sequence[str], *others: Column
) -> list[Any]:
    counted = parts.groupBy(*by).agg(
        sql.sum(sql.col("end") - sql.col("first")).alias("messages"),
        *(_sum(sql.col("state") == state).alias(f"_{state}") for state in states),
        *others,
    )
    return counted.orderBy(*by).limit(ACCOUNTS_MAX).collect()


def _account(
    row: Any, tenant: str, topic: str, states: Sequence[str], redelivered: int = 0
) -> Account:
    return Account(
        tenant=tenant or "",
        topic=topic,
        group=row["group"],
        messages=row["messages"],
        redelivered=redelivered,
        states={state: row[f"_{state}"] for state in states if row[f"_{state}"]},
    )


def _latency(row: dict[str, Any]) -> Latency:
    hour: datetime | None = row.pop("hour")
    # Spark returns times in the zone of this machine.
    hour_ms = None if hour is None else round(hour.astimezone(UTC).timestamp() * 1000)
    return Latency(**row, hour_ms=hour_ms)
