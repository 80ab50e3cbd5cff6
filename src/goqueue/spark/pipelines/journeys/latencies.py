"""How long each hop of messages took: percentiles by topic, group, tenant and hour."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

HOPS = ("received_stored", "stored_delivered", "delivered_settled", "stored_settled")
RELEASE = "due_released"
PERCENTILES = (0.5, 0.9, 0.99, 0.999)
PERCENTILE_NAMES = ("p50_ms", "p90_ms", "p99_ms", "p999_ms")
BY = {"tenant": "string", "topic": "string", "group": "string", "hour": "timestamp"}
SETS: tuple[tuple[str, ...], ...] = (
    (),
    *((one,) for one in BY),
    ("tenant", "topic", "group"),
    tuple(BY),
)


def with_hops(parts: DataFrame) -> DataFrame:
    """Add the latency of each hop in milliseconds, where the events of a part have it.

    Times of parts are sums over their events; a hop is known where both ends happened once. The
    hop from delivery to settlement is the mean of all deliveries that have ended.
    """
    is_stored = "live_stored = 1"
    held = "(returned_t + ended_t - delivered_t) / (2 * delivered)"
    refused = "(returned_t - delivered_t) / (2 * delivered)"
    hops = {
        "received_stored": _when(
            f"group is null and live_received = 1 and {is_stored}",
            "(live_stored_t - live_received_t) / 2",
        ),
        "stored_delivered": _when(
            f"first_delivered = 1 and {is_stored}", "(first_delivered_t - live_stored_t) / 2"
        ),
        # A rejected message is first returned, and then dead-lettered.
        "delivered_settled": sql.coalesce(
            _when("delivered > 0 and returned = delivered", refused),
            _when("delivered > 0 and returned + ended = delivered", held),
        ),
        "stored_settled": sql.coalesce(
            _when(f"ended = 1 and {is_stored}", "(ended_t - live_stored_t) / 2"),
            _when(
                f"ended = 0 and consumed = 1 and {is_stored}", "(consumed_t - live_stored_t) / 2"
            ),
        ),
    }
    return parts.withColumns({name: _not_negative(hop) for name, hop in hops.items()})


def histogram(parts: DataFrame) -> DataFrame:
    """Count messages by hop and latency, for each topic, group, tenant and hour."""
    pairs = sql.array(
        *(sql.struct(sql.lit(name).alias("hop"), sql.col(name).alias("ms")) for name in HOPS)
    )
    rows = parts.withColumn("_hop", sql.explode(pairs)).where("_hop.ms is not null")
    messages = sql.sum(sql.col("end") - sql.col("first")).alias("messages")
    return rows.groupBy(
        "tenant",
        "topic",
        "group",
        sql.date_trunc("hour", sql.timestamp_millis("received_ms")).alias("hour"),
        sql.col("_hop.hop").alias("hop"),
        sql.col("_hop.ms").alias("ms"),
    ).agg(messages)


def percentiles(counted: DataFrame) -> DataFrame:
    """Return the percentiles of each hop: of everything, and by each of `SETS`.

    The column `by` says which dimensions a row has; the others are null.
    """
    lines = sql.explode(sql.array(*map(_line, SETS)))
    marks = sql.percentile("ms", list(PERCENTILES), sql.col("messages"))
    messages = sql.sum("messages")
    rows = (
        counted.select("hop", lines.alias("_line"), "ms", "messages")
        .groupBy("hop", "_line")
        .agg(
            messages.alias("messages"),
            marks.alias("_marks"),
            sql.max("ms").alias("max_ms"),
            (sql.sum(sql.col("ms") * sql.col("messages")) / messages).alias("mean_ms"),
        )
    )
    names = [sql.col("_marks")[number].alias(name) for number, name in enumerate(PERCENTILE_NAMES)]
    return rows.select("hop", "_line.*", "messages", *names, "max_ms", "mean_ms")


def _line(by: tuple[str, ...]) -> Column:
    """Return the dimensions of a row, and null for those that are not among `by`."""
    dimensions = [
        (sql.col(one) if one in by else sql.lit(None).cast(kind)).alias(one)
        for one, kind in BY.items()
    ]
    return sql.struct(sql.lit("/".join(by)).alias("by"), *dimensions)


def _when(condition: str, value: str) -> Column:
    return sql.when(sql.expr(condition), sql.expr(value))


def _not_negative(hop: Column) -> Column:
    """Clocks of nodes differ, so a hop between nodes may seem to end before it began."""
    return sql.when(hop.isNotNull(), sql.greatest(hop, sql.lit(0.0)))
