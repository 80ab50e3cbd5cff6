"""Which events cover which offsets: the sums over all ranges that cover each part of a partition.

Where a range begins its values are added, and where it ends they are subtracted; the running sums
along the offsets are then the values of all ranges that cover a part. So the cost is that of
sorting the ends of ranges, whatever the ranges overlap, and no two ranges are ever compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql


def sweep(ranges: DataFrame, keys: Sequence[str], values: Mapping[str, Column]) -> DataFrame:
    """Return the parts between the ends of ranges, with the sum of each value over all that cover
    it.

    Ranges have the columns `first` and `end` (which is not included), and `keys`, which name the
    line that they are on. Values are whole numbers. Parts that nothing covers have sums of zero.
    """
    ends = sql.array(
        sql.struct(sql.col("first").alias("at"), sql.lit(1).alias("sign")),
        sql.struct(sql.col("end").alias("at"), sql.lit(-1).alias("sign")),
    )
    lines = ranges.select(
        *keys, sql.explode(ends).alias("mark"), *(one.alias(name) for name, one in values.items())
    )
    sign = sql.col("mark.sign")
    changes = lines.groupBy(*keys, sql.col("mark.at").alias("first")).agg(
        *(sql.sum(sql.col(name) * sign).alias(name) for name in values)
    )
    along = Window.partitionBy(*keys).orderBy("first")
    so_far = along.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    parts = changes.select(
        *keys,
        "first",
        sql.lead("first").over(along).alias("end"),
        *(sql.sum(name).over(so_far).alias(name) for name in values),
    )
    return parts.where("end is not null")


def joined(parts: DataFrame, keys: Sequence[str], values: Mapping[str, Column]) -> DataFrame:
    """Join adjacent parts with the same keys, and aggregate the values of those joined."""
    along = Window.partitionBy(*keys).orderBy("first")
    is_new = sql.coalesce(sql.lag("end").over(along) != sql.col("first"), sql.lit(True))
    so_far = along.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    numbered = parts.withColumn("_begins", is_new.cast("int")).withColumn(
        "_run", sql.sum("_begins").over(so_far)
    )
    return (
        numbered.groupBy(*keys, "_run")
        .agg(
            sql.min("first").alias("first"),
            sql.max("end").alias("end"),
            sql.sum(sql.col("end") - sql.col("first")).alias("messages"),
            *(one.alias(name) for name, one in values.items()),
        )
        .drop("_run")
    )


def first_of(choices: Sequence[tuple[Column, str]], default: str) -> Column:
    """Return the text of the first condition that holds."""
    return reduce(
        lambda rest, choice: sql.when(choice[0], sql.lit(choice[1])).otherwise(rest),
        reversed(choices),
        sql.lit(default),
    )
