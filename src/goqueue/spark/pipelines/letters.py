"""Dead letters: tables by reason, key, time and source, and redrive of a selection.

The tables show the contents of the dead-letter topic, including letters already redriven: a log
keeps its records. The broker performs the redrive and skips letters that it has redriven before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from goqueue.client.http import Client, Redrive
from goqueue.model import dead_letters as headers
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.spark.pipelines.folders import folder_of, write_over

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SUFFIX = ".dlq"
# What letters can be counted by, and the columns for it.
GROUPINGS: dict[str, tuple[str, ...]] = {
    "reason": ("reason",),
    "group": ("group",),
    "key": ("key",),
    "hour": ("hour",),
    "source": ("source_topic", "source_partition"),
}
ROWS_MAX = 1000  # per table
REDRIVE_LETTERS_MAX = 100_000  # per selection
LETTERS_PER_JOB = 1000
FILE_SUFFIX = ".deadletters.json"
_POLL_S = 0.2
_TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999


class RedriveFailed(GoQueueError):
    """The broker could not redrive all letters."""

    code = "redrive_failed"


def dead_letters(records: DataFrame) -> DataFrame:
    """Return the records of a dead-letter topic with the contents of their headers as columns.

    These columns are null for a record that the broker did not write as a dead letter.
    """
    from pyspark.sql.functions import col, date_trunc, timestamp_millis

    return (
        records.withColumn("reason", _text(headers.REASON_HEADER))
        .withColumn("group", _text(headers.GROUP_HEADER))
        .withColumn("attempts", _number(headers.ATTEMPTS_HEADER))
        .withColumn("source_topic", _text(headers.TOPIC_HEADER))
        .withColumn("source_partition", _number(headers.PARTITION_HEADER))
        .withColumn("source_offset", _number(headers.OFFSET_HEADER))
        .withColumn("died_at", timestamp_millis(_time_ms()))
        .withColumn("hour", date_trunc("hour", col("died_at")))
    )


def read_letters(
    spark: SparkSession, bootstrap: str, topic: str, *, access: Mapping[str, str] | None = None
) -> DataFrame:
    """Return the contents of a dead-letter topic now, with the columns of `dead_letters`.

    `access` are options for TLS and credentials, as those of the data source.
    """
    from goqueue.spark.session import enable

    reader = enable(spark).read.format("goqueue")
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "includeHeaders": "true",
        **(access or {}),
    }
    return dead_letters(reader.options(**options).load())


def check_grouping(by: str) -> None:
    if by not in GROUPINGS:
        raise InvalidRequest(f"Letters cannot be counted by {by!r}; give {', '.join(GROUPINGS)}.")


def triage(letters: DataFrame, by: str) -> DataFrame:
    """Count letters by reason, group, key, hour or source; the largest counts first."""
    from pyspark.sql.functions import count, max, min

    check_grouping(by)
    columns = GROUPINGS[by]
    counted = letters.groupBy(*columns).agg(
        count("*").alias("letters"), min("died_at").alias("first"), max("died_at").alias("last")
    )
    return counted.orderBy(counted["letters"].desc(), *columns)


def _text(name: str) -> Column:
    """Return the last header of a name: a redriven message can become a dead letter again."""
    from pyspark.sql.functions import col, element_at, filter, lit, when

    found = filter(col("headers"), lambda one: one["key"] == lit(name))
    return when(found.isNotNull(), element_at(found, -1)["value"]).cast("string")


def _number(name: str) -> Column:
    return _text(name).try_cast("bigint")


def _time_ms() -> Column:
    """Convert a header to a time, if valid: a foreign header could fail the query."""
    from pyspark.sql.functions import when

    number = _number(headers.TIME_HEADER)
    return when(number.between(0, _TIME_MS_MAX), number)


# Tables that the report shows


class TriageRow(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    letters: int
    first_ms: int | None
    last_ms: int | None


class Triage(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one dead-letter topic at one moment."""

    format: str = "goqueue-dead-letters"
    version: int = 1
    topic: str
    time_ms: int
    tables: dict[str, list[TriageRow]]


def collect_triage(letters: DataFrame, topic: str, by: Sequence[str], *, time_ms: int) -> Triage:
    """Return the first ROWS_MAX rows of each table."""
    tables = {}
    kept = letters.select(
        "key", "reason", "group", "hour", "source_topic", "source_partition", "died_at"
    ).persist()
    try:
        for one in by:
            rows = triage(kept, one).limit(ROWS_MAX).collect()
            tables[one] = [_row(row.asDict(), GROUPINGS[one]) for row in rows]
    finally:
        kept.unpersist()
    return Triage(topic=topic, time_ms=time_ms, tables=tables)


def save_triage(folder: str | Path, triage: Triage) -> Path:
    """Save the newest tables of a topic for the report."""
    file = folder_of(folder) / f"{triage.topic}{FILE_SUFFIX}"
    write_over(file, msgspec.json.format(msgspec.json.encode(triage)))
    return file


def read_triages(folder: str | Path) -> list[Triage]:
    files = sorted(folder_of(folder).glob(f"*{FILE_SUFFIX}"))
    try:
        return [msgspec.json.decode(file.read_bytes(), type=Triage) for file in files]
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"Tables in {folder} cannot be read: {error}") from error


def _row(row: dict[str, Any], columns: Sequence[str]) -> TriageRow:
    return TriageRow(
        what="/".join(_shown(row[name]) for name in columns),
        letters=row["letters"],
        first_ms=_ms(row["first"]),
        last_ms=_ms(row["last"]),
    )


def _shown(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, datetime):  # Spark returns times in the zone of this machine.
        return value.astimezone(UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
    return "-" if value is None else str(value)


def _ms(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


# Redrive


@dataclass(frozen=True, slots=True)
class RedriveResult:
    selected: int
    moved: int
    passed_over: int
    jobs: tuple[str, ...]


def redrive(
    letters: DataFrame,
    client: Client,
    topic: str,
    *,
    dead_letter_topic: str | None = None,
    keep_copy: bool = False,
    rate_per_s: int | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> RedriveResult:
    """Redrive these letters through the broker; those redriven before are skipped."""
    positions = [
        (row["partition"], row["offset"])
        for row in letters.select("partition", "offset").limit(REDRIVE_LETTERS_MAX + 1).collect()
    ]
    if len(positions) > REDRIVE_LETTERS_MAX:
        raise InvalidRequest(
            f"More than {REDRIVE_LETTERS_MAX:,} letters are selected; select fewer, or bring all "
            f"of a reason back with `goqueue queue redrive {topic} --reason ...`."
        )
    box = client.dead_letters(topic, dead_letter_topic=dead_letter_topic)
    done: list[Redrive] = []
    for at in range(0, len(positions), LETTERS_PER_JOB):
        some = sorted(positions)[at : at + LETTERS_PER_JOB]
        job = box.redrive(letters=some, keep_copy=keep_copy, rate_per_s=rate_per_s)
        while not job.is_ended:
            time.sleep(_POLL_S)
            job = box.show_redrive(job.id)
        if job.state != "done":
            raise RedriveFailed(f"Redrive {job.id} is {job.state}: {job.problem or 'no reason'}")
        done.append(job)
        if on_progress is not None:
            on_progress(at + len(some), len(positions))
    return RedriveResult(
        selected=len(positions),
        moved=sum(job.moved for job in done),
        passed_over=sum(job.passed_over for job in done),
        jobs=tuple(job.id for job in done),
    )
