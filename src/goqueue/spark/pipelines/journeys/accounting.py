"""What became of each message in each group, from the numbers of events that cover it.

No order of events is needed for that: a message that was delivered as often as it was returned is
waiting; delivered once more, it is in flight; acknowledged, it is done. A message is lost if the
journal does not say what became of it, although the group went past it and enough time has passed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from goqueue.spark.pipelines.journeys.sweeping import first_of, sweep

PARTITION = ("tenant", "topic", "topicId", "partition")
LINE = (*PARTITION, "group")  # a row without a group is about the message itself

# Kinds of events by what they mean here. A gap is of the journal itself: messages of which it has
# nothing but that there were some.
GAP = "gap"
OWN = ("received", "arrived", "stored", "retired", "deduplicated", GAP)
RETURNS = ("nacked", "lease_expired", "returned", "rejected")
ENDS = ("acked", "dead_lettered", "expired", "skipped")
OF_GROUPS = ("delivered", "consumed", "recovered", *RETURNS, *ENDS)
# A group that did this was at work.
WORK = ("delivered", "consumed")


def parts_of(events: DataFrame, *, now_ms: int, grace_ms: int) -> DataFrame:
    """Return the parts of partitions that have messages, for each group and for none."""
    own, of_groups = _own(events), _of_groups(events)
    progress = _progress(of_groups)
    everyone = progress.select(*PARTITION[:3], "group").distinct()
    lines = own.join(sql.broadcast(everyone), list(PARTITION[:3])).select(*own.columns, "group")
    none = own.withColumn("group", sql.lit(None).cast("string"))
    rows = lines.unionByName(none).unionByName(of_groups)
    with_progress = _with_progress(rows, progress)
    cut = sql.least(sql.lit(now_ms), sql.coalesce("active_ms", sql.lit(0))) - grace_ms
    parts = sweep(with_progress, LINE, _values(now_ms - grace_ms, cut))
    return _with_progress(parts, progress).where("received + arrived + gap > 0")


def classified(parts: DataFrame) -> DataFrame:
    """Add the state of each part, why it is lost, and its time."""
    is_between = _is("begin_ms is not null and first < end_offset")
    is_lost = sql.col("state") == "lost"
    lost_how = first_of(
        [(_is("delivered > returned"), "never_settled"), (_is("delivered > 0"), "never_repeated")],
        "never_delivered",
    )
    is_before = "first < start_offset and received_ms < begin_ms"
    return (
        parts.withColumn("received_ms", sql.expr("received_t div (2 * (received + arrived + gap))"))
        .withColumn(
            "state",
            first_of(
                [
                    (_is("acked > 0"), "acked"),
                    (_is("dead_lettered > 0"), "dead_lettered"),
                    (_is("expired > 0"), "expired"),
                    (_is("skipped > 0"), "skipped"),
                    (_is("consumed > 0"), "consumed"),
                    (_is("retired > 0"), "retired"),
                    (_is(is_before), "before"),
                    (_is("recovered + gap > 0"), "recovered"),
                    (_is("stored = 0"), "unstored"),
                    (_is("group is null"), "stored"),
                    (_is("delivered > returned and recent > 0"), "in_flight"),
                    (_is("delivered <= returned and recent_of_group > 0"), "waiting"),
                    (_is("removed > 0"), "removed"),
                    (is_between, "lost"),
                ],
                "waiting",
            ),
        )
        .withColumn("lost", sql.when(is_lost, lost_how))
    )


def problems_of(parts: DataFrame, *, now_ms: int, grace_ms: int, slow_ms: int) -> DataFrame:
    """Return the parts with a problem, once for each."""
    is_old = _is("received_ms") < now_ms - grace_ms
    is_message, is_group = _is("group is null"), _is("group is not null")
    found = [
        (sql.col("lost").isNotNull() & (_is("state") == "lost"), sql.col("lost")),
        (is_message & _is("stored = 0 and gap = 0") & is_old, sql.lit("never_stored")),
        (is_message & _is("received > 1"), sql.lit("stored_again")),
        (is_message & _is("deduplicated > 0"), sql.lit("sent_again")),
        (is_message & _is("is_recovered + gap > 0"), sql.lit("recovered")),
        (is_group & _is("delivered > returned + 1"), sql.lit("delivered_again")),
        (is_group & _is("ended > 1"), sql.lit("settled_again")),
        (is_group & _is("consumed > 1"), sql.lit("consumed_again")),
        (_is("stored_delivered") > slow_ms, sql.lit("late_delivery")),
        (_is("delivered_settled") > slow_ms, sql.lit("late_settlement")),
    ]
    problems = sql.array(*(sql.when(condition, name) for condition, name in found))
    return parts.withColumn("problem", sql.explode(sql.array_compact(problems)))


def _is(condition: str) -> Column:
    return sql.expr(condition)


def _own(events: DataFrame) -> DataFrame:
    """Return the events that are about messages whatever the group."""
    kind = sql.col("kind")
    is_gap = (kind == "recovered") & sql.col("group").isNull()
    return (
        events.withColumn("kind", sql.when(is_gap, GAP).otherwise(kind))
        .where(sql.col("kind").isin(*OWN))
        .drop("group")
    )


def _of_groups(events: DataFrame) -> DataFrame:
    return events.where(sql.col("kind").isin(*OF_GROUPS) & sql.col("group").isNotNull())


def _progress(of_groups: DataFrame) -> DataFrame:
    """Return where and when each group began to work on a partition, and how far it came."""
    is_work = sql.col("kind").isin(*WORK)
    return of_groups.groupBy(*LINE).agg(
        sql.min("first").alias("start_offset"),
        sql.max("end").alias("end_offset"),
        sql.min("time_ms").alias("begin_ms"),
        sql.max(sql.when(is_work, sql.col("last_ms"))).alias("active_ms"),
    )


def _with_progress(rows: DataFrame, progress: DataFrame) -> DataFrame:
    """Add the progress of the group of each row; none for those without a group."""
    return rows.join(sql.broadcast(progress), list(LINE), "left")


def _values(recent_ms: int, cut: Column) -> dict[str, Column]:
    """Return what is summed up: numbers of events, and the sums of their times.

    Times are sums of the first and the last time of an event: twice the time in its middle.
    """
    kind, twice = sql.col("kind"), sql.col("time_ms") + sql.col("last_ms")
    latest = sql.greatest("last_ms", "due_ms")

    def count(condition: Column) -> Column:
        return condition.cast("long")

    def time(condition: Column) -> Column:
        return sql.when(condition, twice).otherwise(0)

    is_return, is_end = kind.isin(*RETURNS), kind.isin(*ENDS)
    is_first = (kind == "delivered") & (sql.coalesce("attempt", sql.lit(1)) <= 1)
    is_live = {name: (kind == name) & ~sql.col("isRecovered") for name in ("received", "stored")}
    counted = (*OWN, "delivered", "consumed", "recovered", *ENDS)
    return {
        **{name: count(kind == name) for name in counted},
        "returned": count(is_return),
        "ended": count(is_end),
        "removed": sql.lit(0),
        "recent": count(latest >= recent_ms),
        "recent_of_group": count(latest >= cut),
        "is_recovered": count(kind.isin("received", "stored") & sql.col("isRecovered")),
        "live_received": count(is_live["received"]),
        "live_stored": count(is_live["stored"]),
        "first_delivered": count(is_first),
        "received_t": time(kind.isin("received", "arrived", GAP)),
        "live_received_t": time(is_live["received"]),
        "live_stored_t": time(is_live["stored"]),
        "first_delivered_t": time(is_first),
        "delivered_t": time(kind == "delivered"),
        "returned_t": time(is_return),
        "ended_t": time(is_end),
        "consumed_t": time(kind == "consumed"),
    }
