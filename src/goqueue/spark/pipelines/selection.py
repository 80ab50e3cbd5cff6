"""Selects records by time, key, header, or an SQL expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that must all hold; without any, every record is selected."""

    from_ms: int | None = None
    until_ms: int | None = None  # exclusive
    keys: tuple[bytes, ...] = ()
    header_name: str | None = None
    header_value: bytes | None = None  # None: any value
    where: str | None = None  # a Spark SQL expression over the columns

    def __post_init__(self) -> None:
        if self.from_ms is not None and self.until_ms is not None and self.from_ms >= self.until_ms:
            raise InvalidRequest("The time to begin with is not before the time to end with.")
        if self.header_value is not None and self.header_name is None:
            raise InvalidRequest("A header's value needs its name.")


def select(records: DataFrame, selection: Selection) -> DataFrame:
    """Return the selected records."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql.functions import col, exists, lit, timestamp_millis

    found = records
    if selection.from_ms is not None:
        found = found.where(col("timestamp") >= timestamp_millis(lit(selection.from_ms)))
    if selection.until_ms is not None:
        found = found.where(col("timestamp") < timestamp_millis(lit(selection.until_ms)))
    if selection.keys:
        found = found.where(col("key").isin([lit(key) for key in selection.keys]))
    if selection.header_name is not None:
        name, value = selection.header_name, selection.header_value
        found = found.where(
            exists(
                "headers",
                lambda one: (
                    (one["key"] == lit(name))
                    & (lit(True) if value is None else one["value"] == lit(value))
                ),
            )
        )
    if selection.where is not None:
        try:
            found = found.where(selection.where)
        except (AnalysisException, ParseException) as error:
            reason = str(error).strip().splitlines()[0]
            raise InvalidRequest(
                f"The expression {selection.where!r} is not understood: {reason}"
            ) from error
    return found
