"""Spark writing topics, with each promise, beside Parquet files and a loop without Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.plan import PARTITIONS, PAYLOAD_NAMES
from bench.report import MESSAGES, Outcome, Section, Unit, times_at_least
from bench.session import Session
from bench.systems import Server
from bench.topics import Topic, fresh_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
STREAM, PARQUET, LOOP = "stream", "to Parquet", "loop"
PAYLOAD = Unit("MB/s", lambda value: f"{value:.0f} MB/s")
EXACTLY_ONCE_SHARE = 0.8  # of the rate of at least once
STREAM_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in Parquet files, which are written to topics."""

    spark: SparkSession
    server: Server
    parquet: str
    count: int
    size: int
    folder: Path

    def load(self) -> DataFrame:
        """Keys for all rows, as most topics have them: the partition follows from the key."""
        from pyspark.sql import functions as sql

        number = sql.hash("value").cast("string").cast("binary")
        return self.spark.read.parquet(self.parquet).select(number.alias("key"), "value")


def measure_writes(session: Session, section: Section, rows: Rows) -> None:
    """Each promise, a stream, and what they are compared with."""
    cases: dict[str, Callable[[], Outcome]] = {
        AT_LEAST_ONCE: partial(_into_topic, rows, partial(_save, rows, AT_LEAST_ONCE)),
        EXACTLY_ONCE: partial(_into_topic, rows, partial(_save, rows, EXACTLY_ONCE)),
        STREAM: partial(_into_topic, rows, partial(_stream, rows)),
        PARQUET: partial(_into_files, rows),
        LOOP: partial(_into_topic, rows, partial(_loop, rows)),
    }
    name = PAYLOAD_NAMES[rows.size]
    runs = session.in_turns(f"Spark writing, {name}", cases)
    rate = ("messages_per_s", MESSAGES)
    least, once = runs[AT_LEAST_ONCE], runs[EXACTLY_ONCE]
    title = f"{name}, written to a topic"
    section.add(f"{title}, at least once", least, *rate, reference=runs[PARQUET])
    section.add(f"{title}, at least once, payload", least, "mb_per_s", PAYLOAD)
    section.add(f"{title}, at least once, to the loop", least, *rate, reference=runs[LOOP])
    section.add(
        f"{title}, exactly once",
        once,
        *rate,
        reference=least,
        target=times_at_least(EXACTLY_ONCE_SHARE, "aim"),
    )
    section.add(f"{title}, exactly once, payload", once, "mb_per_s", PAYLOAD)
    section.add(f"{title} as a stream, exactly once", runs[STREAM], *rate, reference=least)


def _into_topic(rows: Rows, write: Callable[[Topic], None]) -> Outcome:
    with fresh_topic(rows.server, PARTITIONS) as topic:
        begin = time.monotonic()
        write(topic)
        seconds = time.monotonic() - begin
        return _outcome(rows, seconds, _stored(rows, topic))


def _into_files(rows: Rows) -> Outcome:
    target = str(rows.folder / "written-again")
    begin = time.monotonic()
    rows.load().write.mode("overwrite").parquet(target)
    seconds = time.monotonic() - begin
    return _outcome(rows, seconds, rows.spark.read.parquet(target).count())


def _outcome(rows: Rows, seconds: float, found: int) -> Outcome:
    rate = rows.count / seconds
    void = "" if found == rows.count else f"{rows.count:,} rows were written, {found:,} are there"
    return Outcome({"messages_per_s": rate, "mb_per_s": rate * rows.size / 1e6}, void)


def _stored(rows: Rows, topic: Topic) -> int:
    """What can be read afterwards, which is no part of the time."""
    from pyspark.sql.types import StructType

    reader = rows.spark.read.format("goqueue").schema(StructType([]))
    options = {"kafka.bootstrap.servers": rows.server.bootstrap, "subscribe": topic.name}
    return reader.options(**options).load().count()


def _save(rows: Rows, delivery: str, topic: Topic) -> None:
    writer = rows.load().write.format("goqueue").options(**_target(rows, topic))
    writer.option("delivery", delivery).mode("append").save()


def _stream(rows: Rows, topic: Topic) -> None:
    """A stream of the same files; it appears epoch by epoch."""
    from pyspark.sql import functions as sql

    checkpoint = rows.folder / "writing-checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    schema = rows.spark.read.parquet(rows.parquet).schema
    files = rows.spark.readStream.schema(schema).parquet(rows.parquet)
    number = sql.hash("value").cast("string").cast("binary")
    query = (
        files.select(number.alias("key"), "value")
        .writeStream.format("goqueue")
        .options(**_target(rows, topic))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(STREAM_SECONDS_MAX)
    query.stop()


def _loop(rows: Rows, topic: Topic) -> None:
    """One Python process: Arrow from the files, encoded and sent, with no Spark."""
    import pyarrow.dataset

    from goqueue.client import LogClient
    from goqueue.spark.sink.row_batches import RowWriter

    files = pyarrow.dataset.dataset(rows.parquet, format="parquet")
    with LogClient(rows.server.bootstrap) as client, client.producer() as producer:
        writer = RowWriter(producer, topic.name)
        for batch in files.to_batches(columns=["key", "value"]):
            writer.write(batch)
        writer.push()


def _target(rows: Rows, topic: Topic) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": rows.server.bootstrap,
        "http.address": rows.server.http,  # the broker was told to take any port
        "topic": topic.name,
    }
