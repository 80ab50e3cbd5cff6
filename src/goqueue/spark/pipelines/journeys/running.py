"""Runs the pipeline: reads the journal once, and writes its tables and the summary.

audit_journeys(spark, "127.0.0.1:9092", "/audits/journeys")
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import JOURNEYS_TOPIC, SCHEDULED_TOPIC
from goqueue.spark.access import access_of
from goqueue.spark.connecting import connect
from goqueue.spark.pipelines.folders import folder_of, locked
from goqueue.spark.pipelines.jobs import OnProgress, plain_errors, watched
from goqueue.spark.pipelines.journeys.results import (
    DATA,
    JourneysResult,
    read_result,
    remove_other_runs,
    save_result,
    table_path,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from goqueue.client import LogClient

GRACE_MS_DEFAULT = 15 * 60_000
SLOW_MS_DEFAULT = 60_000
_COLUMNS = (
    "tenant string, topic string, topicId string, partition int, firstOffset long, endOffset long, "
    "kind string, time timestamp, lastTime timestamp, dueTime timestamp, group string, "
    "attempt int, linkTenant string, linkTopic string, isRecovered boolean, "
    "journalPartition int, journalOffset long"
)


@dataclass(frozen=True, slots=True)
class JourneysQuery:
    """Which messages a run is about, and when they count as lost or slow."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    from_ms: int | None = None  # when messages were received
    until_ms: int | None = None
    # Messages of which nothing was heard for so long are lost, if their group went past them.
    # Longer than leases and delays, or messages that are held for longer count as lost.
    grace_ms: int = GRACE_MS_DEFAULT
    slow_ms: int = SLOW_MS_DEFAULT
    checks_log: bool = True
    journal: str = JOURNEYS_TOPIC
    now_ms: int = field(default_factory=lambda: int(time.time() * 1000))


def audit_journeys(
    spark: SparkSession,
    bootstrap: str,
    folder: str | Path,
    query: JourneysQuery | None = None,
    *,
    access: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> JourneysResult:
    """Account for all messages in the journal of journeys, and measure their hops.

    The tables of a previous run are replaced when those of this run are complete. `access` are
    options for TLS and credentials, as those of the data source.
    """
    query = query or JourneysQuery()
    options = {"kafka.bootstrap.servers": bootstrap, **(access or {})}
    path = folder_of(folder)
    with locked(path), plain_errors(), watched(spark, on_progress):
        remove_other_runs(path, _current_run(path))
        run = uuid.uuid4().hex
        job = _Job(spark, query, options, path / DATA / run)
        with connect(bootstrap, access_of(access)) as client:
            result = job.result(run, partial(job.check_log, client))
        save_result(path, result)
    return result


def journeys_table(spark: SparkSession, folder: str | Path, table: str) -> DataFrame:
    """Return a table of the last run: `parts`, `problems`, `latencies` or `schedules`."""
    return spark.read.parquet(table_path(folder, table))


def _current_run(folder: Path) -> str | None:
    try:
        return read_result(folder).run
    except InvalidRequest:
        return None


class _Job:
    """One run. Tables that are used several times are written first, and read from their files."""

    def __init__(
        self, spark: SparkSession, query: JourneysQuery, options: Mapping[str, str], folder: Path
    ) -> None:
        self._spark = spark
        self._query = query
        self._options = options
        self._folder = folder

    def result(self, run: str, checked: Callable[[DataFrame], DataFrame]) -> JourneysResult:
        """Write the tables; `checked` looks up lost parts in the log."""
        from goqueue.spark.pipelines.journeys import summarizing
        from goqueue.spark.pipelines.journeys.accounting import problems_of
        from goqueue.spark.pipelines.journeys.latencies import histogram, percentiles
        from goqueue.spark.pipelines.journeys.schedules import (
            release_histogram,
            schedule_problems,
            schedules_of,
        )

        query = self._query
        events = self._written("events", self._events())
        parts = self._written("parts", self._parts(events, checked))
        schedules = self._written(
            "schedules",
            self._of_time(
                schedules_of(events, now_ms=query.now_ms, grace_ms=query.grace_ms), "linkTopic"
            ),
        )
        found = problems_of(
            parts, now_ms=query.now_ms, grace_ms=query.grace_ms, slow_ms=query.slow_ms
        )
        late = schedule_problems(schedules, slow_ms=query.slow_ms)
        problems = self._written("problems", summarizing.joined_problems(found, late))
        counted = histogram(parts).unionByName(release_histogram(schedules))
        latencies = self._written("latencies", percentiles(counted.localCheckpoint()))
        result = JourneysResult(
            run=run,
            time_ms=query.now_ms,
            from_ms=query.from_ms,
            until_ms=query.until_ms,
            grace_ms=query.grace_ms,
            slow_ms=query.slow_ms,
            events=events.count(),
            parts=parts.count(),
            journal=summarizing.journal_ranges(events),
            accounts=summarizing.accounts(parts),
            schedules=summarizing.schedule_accounts(schedules),
            problem_counts=summarizing.problem_counts(problems),
            problems=summarizing.first_problems(problems),
            latencies=summarizing.first_latencies(latencies),
            slowest=summarizing.slowest(parts),
        )
        shutil.rmtree(self._folder / "events")
        return result

    def check_log(self, client: LogClient, lost: DataFrame) -> DataFrame:
        from goqueue.spark.pipelines.journeys.log_checking import check_log

        return check_log(self._spark, client, lost, self._options)

    def _events(self) -> DataFrame:
        """Return the events that are needed, with times in milliseconds."""
        from pyspark.sql import functions as sql

        query = self._query
        options = {"view": "journeys", "subscribe": query.journal, **self._options}
        if query.topics:
            options["journeys.topics"] = ",".join((*query.topics, SCHEDULED_TOPIC))
        if query.from_ms is not None:
            options["journeys.from"] = str(query.from_ms)
        events = self._spark.read.format("goqueue").options(**options).schema(_COLUMNS).load()
        if query.groups:
            events = events.where(sql.col("group").isNull() | sql.col("group").isin(*query.groups))
        return events.select(
            sql.coalesce("tenant", sql.lit("")).alias("tenant"),
            "topic",
            "topicId",
            "partition",
            sql.col("firstOffset").alias("first"),
            sql.col("endOffset").alias("end"),
            "kind",
            sql.unix_millis("time").alias("time_ms"),
            sql.unix_millis("lastTime").alias("last_ms"),
            sql.coalesce(sql.unix_millis("dueTime"), sql.lit(0)).alias("due_ms"),
            "group",
            "attempt",
            sql.coalesce("linkTenant", sql.lit("")).alias("linkTenant"),
            "linkTopic",
            "isRecovered",
            "journalPartition",
            "journalOffset",
        )

    def _parts(self, events: DataFrame, checked: Callable[[DataFrame], DataFrame]) -> DataFrame:
        from goqueue.spark.pipelines.journeys.accounting import classified, parts_of
        from goqueue.spark.pipelines.journeys.latencies import with_hops

        query = self._query
        sums = parts_of(events, now_ms=query.now_ms, grace_ms=query.grace_ms)
        if query.checks_log:
            draft = self._written("draft", classified(sums))
            lost = draft.where("state = 'lost'")
            sums = draft.drop("state", "lost")
            if not lost.isEmpty():
                rest = draft.where("state != 'lost'").drop("state", "lost")
                sums = rest.unionByName(checked(lost.drop("state", "lost")))
        return self._of_time(with_hops(classified(sums)), "topic")

    def _of_time(self, parts: DataFrame, topic: str) -> DataFrame:
        """Keep what the query is about."""
        from pyspark.sql import functions as sql

        query = self._query
        if query.from_ms is not None:
            parts = parts.where(sql.col("received_ms") >= query.from_ms)
        if query.until_ms is not None:
            parts = parts.where(sql.col("received_ms") < query.until_ms)
        return parts.where(sql.col(topic).isin(*query.topics)) if query.topics else parts

    def _written(self, name: str, table: DataFrame) -> DataFrame:
        path = (self._folder / name).as_uri()
        table.write.parquet(path, compression="zstd")
        return self._spark.read.parquet(path)
