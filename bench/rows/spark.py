"""Topics as tables and streams of Spark, beside the same data in Parquet files."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

from bench.plan import PARTITIONS, PAYLOAD_BYTES, PAYLOAD_NAMES
from bench.report import (
    GIGABYTES,
    MESSAGES,
    MILLISECONDS,
    Outcome,
    Section,
    at_most,
    times_at_least,
)
from bench.rows.spark_writes import PAYLOAD, Rows, measure_writes
from bench.session import NONE, Session
from bench.systems import Server, Unavailable
from bench.topics import Topic, end_offsets, fresh_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC, PARQUET = "from a topic", "from Parquet"
# By payload: the share of Parquet's rate that must be reached, and that is aimed at.
TARGETS = {1000: (0.8, 0.95), 100: (0.5, 0.7)}
ARCHIVE_TIMES_MIN = 2  # that of df.write.parquet from the same topic
STREAM_SECONDS_MAX = 600
# Payloads are pieces of so much text, at steps that take long to come round.
POOL_BYTES = 16 << 20
WORDS = 4_000
POOL_STEP = 7919
QUIET_SECONDS = 0.3  # between two records of the latency row: longer than a batch takes


@dataclass(frozen=True, slots=True)
class Bench:
    """What all cases of one payload share."""

    spark: SparkSession
    server: Server
    topic: Topic
    size: int
    rows: int
    folder: Path

    def table(self) -> DataFrame:
        reader = self.spark.read.format("goqueue")
        options = {"kafka.bootstrap.servers": self.server.bootstrap, "subscribe": self.topic.name}
        return reader.options(**options).load()

    @property
    def parquet(self) -> str:
        return str(self.folder / "parquet")


def measure(session: Session) -> None:
    """Both payloads, then the latency of a micro-batch."""
    section = session.section("Spark, 6 partitions, local[*], page cache warm")
    section.notes += [
        "Values are text that zstd halves. Spark reads the same rows from Parquet with "
        "zstd; the two take turns. Noise is what nothing makes smaller, so that Parquet has "
        "nothing to unpack.",
        "The plain loop reads and decodes in one Python process, with no Spark.",
        "A count reads no column; Parquet would answer it from its footers.",
        "Rows that are written come from Parquet and have keys. Parquet beside them is Spark "
        "writing the same rows there, the loop one process that encodes and sends them.",
    ]
    try:
        spark, server = _start(session), session.server(NONE)
    except Unavailable as error:
        section.notes.append(f"Not measured: {error}.")
        return
    for size in PAYLOAD_BYTES:
        with fresh_topic(server, PARTITIONS) as topic:
            _measure_size(session, section, spark, server, topic, size)
    with fresh_topic(server, PARTITIONS) as topic:
        _measure_noise(session, section, spark, server, topic)
    _measure_latency(session, section, spark, server)


def _start(session: Session) -> SparkSession:
    try:
        import pyspark  # noqa: F401

        import goqueue.spark
    except ImportError as error:
        raise Unavailable(f"Spark is not installed ({error}); make setup-spark") from error
    if shutil.which("java") is None:
        raise Unavailable("there is no Java; make setup-spark")
    session.say("starting Spark")
    spark = goqueue.spark.session(
        name="bench",
        settings={
            "spark.driver.memory": "3g",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.sql.warehouse.dir": str(session.work / "warehouse"),
            "spark.sql.parquet.compression.codec": "zstd",
        },
    )
    session.stack.callback(spark.stop)
    return spark


def _measure_size(
    session: Session,
    section: Section,
    spark: SparkSession,
    server: Server,
    topic: Topic,
    size: int,
) -> None:
    name, folder = PAYLOAD_NAMES[size], session.work / f"spark-{size}"
    count = dict(session.plan.spark_messages)[size]
    session.say(f"filling a topic with {name}")
    _fill(server, topic, _text(), count=count, size=size)
    bench = Bench(spark, server, topic, size, sum(end_offsets(server, topic)), folder)
    bench.table().write.parquet(bench.parquet)
    cases: dict[str, Callable[[], Outcome]] = {
        TOPIC: partial(_timed, bench, partial(_discard, bench.table)),
        PARQUET: partial(_timed, bench, partial(_discard, partial(_stored, bench))),
        "count": partial(_timed, bench, partial(_count, bench)),
        "write": partial(_timed, bench, partial(_write, bench, bench.table)),
        "copy": partial(_timed, bench, partial(_write, bench, partial(_stored, bench))),
        "archive": partial(_timed, bench, partial(_archive, bench)),
        "stream": partial(_timed, bench, partial(_stream, bench)),
        "loop": partial(_timed, bench, partial(_loop, bench)),
    }
    runs = session.in_turns(f"Spark, {name}", cases)
    must, aim = TARGETS[size]
    rate = ("messages_per_s", MESSAGES)
    whole = f"{name}, all columns, discarded"
    section.add(whole, runs[TOPIC], *rate, reference=runs[PARQUET], target=times_at_least(must))
    section.add(
        f"{whole} (aim)",
        runs[TOPIC],
        *rate,
        reference=runs[PARQUET],
        target=times_at_least(aim, "aim"),
    )
    section.add(f"{whole}, payload", runs[TOPIC], "gb_per_s", GIGABYTES, reference=runs[PARQUET])
    section.add(f"{whole}, to the loop", runs[TOPIC], *rate, reference=runs["loop"])
    section.add(f"{name}, counted", runs["count"], *rate, reference=runs["loop"])
    section.add(f"{name}, written to Parquet", runs["write"], *rate, reference=runs["copy"])
    section.add(
        f"{name}, archived",
        runs["archive"],
        *rate,
        reference=runs["write"],
        target=times_at_least(ARCHIVE_TIMES_MIN),
    )
    section.add(f"{name}, streamed, discarded", runs["stream"], *rate, reference=runs[TOPIC])
    section.add(f"{name}, streamed, payload", runs["stream"], "mb_per_s", PAYLOAD)
    rows = Rows(spark, server, bench.parquet, bench.rows, size, folder)
    measure_writes(session, section, rows)
    shutil.rmtree(folder, ignore_errors=True)


def _measure_noise(
    session: Session, section: Section, spark: SparkSession, server: Server, topic: Topic
) -> None:
    size, folder = max(PAYLOAD_BYTES), session.work / "spark-noise"
    _fill(server, topic, _noise(), count=dict(session.plan.spark_messages)[size], size=size)
    bench = Bench(spark, server, topic, size, sum(end_offsets(server, topic)), folder)
    bench.table().write.parquet(bench.parquet)
    cases: dict[str, Callable[[], Outcome]] = {
        TOPIC: partial(_timed, bench, partial(_discard, bench.table)),
        PARQUET: partial(_timed, bench, partial(_discard, partial(_stored, bench))),
    }
    runs = session.in_turns("Spark, noise", cases)
    row = f"{PAYLOAD_NAMES[size]} of noise, all columns, discarded"
    section.add(row, runs[TOPIC], "messages_per_s", MESSAGES, reference=runs[PARQUET])
    shutil.rmtree(folder, ignore_errors=True)


def _fill(server: Server, topic: Topic, pool: bytes, *, count: int, size: int) -> None:
    """Records that differ: of those that are alike Parquet keeps one and reads nothing else."""
    from goqueue.client import LogClient

    with LogClient(server.bootstrap) as client, client.producer() as producer:
        for number in range(count):
            start = number * POOL_STEP % (len(pool) - size)
            producer.send(
                topic.name, pool[start : start + size], partition=number % topic.partitions
            )


def _text() -> bytes:
    """Fields with names, words and numbers, as messages have them; zstd halves it."""
    chance = random.Random(7)
    words = ["".join(chance.choices(ascii_lowercase, k=chance.randint(3, 9))) for _ in range(WORDS)]
    fields = [
        f'"{words[min(int(chance.expovariate(0.05)), WORDS - 1)]}":"{chance.choice(words)} '
        f'{chance.choice(words)} {chance.randrange(10**9)}",'
        for _ in range(POOL_BYTES // 30)
    ]
    return "".join(fields).encode()[:POOL_BYTES]


def _noise() -> bytes:
    return random.Random(7).randbytes(POOL_BYTES)


def _timed(bench: Bench, case: Callable[[], int | None]) -> Outcome:
    """Run a case; one that says how many rows it had must have had all of them."""
    begin = time.monotonic()
    found = case()
    rate = bench.rows / (time.monotonic() - begin)
    is_whole = found in (None, bench.rows)
    void = "" if is_whole else f"{bench.rows:,} rows are stored, {found:,} were read"
    payload = rate * bench.size
    figures = {"messages_per_s": rate, "gb_per_s": payload / 1e9, "mb_per_s": payload / 1e6}
    return Outcome(figures, void)


def _stored(bench: Bench) -> DataFrame:
    return bench.spark.read.parquet(bench.parquet)


def _discard(load: Callable[[], DataFrame]) -> None:
    load().write.format("noop").mode("overwrite").save()


def _count(bench: Bench) -> int:
    from pyspark.sql.types import StructType

    reader = bench.spark.read.format("goqueue").schema(StructType([]))
    options = {"kafka.bootstrap.servers": bench.server.bootstrap, "subscribe": bench.topic.name}
    return reader.options(**options).load().count()


def _write(bench: Bench, load: Callable[[], DataFrame]) -> int:
    target = str(bench.folder / "written")
    load().write.mode("overwrite").parquet(target)
    return bench.spark.read.parquet(target).count()


def _archive(bench: Bench) -> int:
    from goqueue.spark.pipelines.archiving import archive

    folder = bench.folder / "archive"
    shutil.rmtree(folder, ignore_errors=True)
    result = archive(bench.spark, bench.server.bootstrap, [bench.topic.name], folder)
    return 0 if result.manifest is None else result.manifest.digest.records


def _stream(bench: Bench) -> int:
    checkpoint = bench.folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    query = (
        _rows(bench.spark, bench.server, bench.topic)
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(STREAM_SECONDS_MAX)
    query.stop()
    return sum(progress.numInputRows for progress in query.recentProgress)


def _rows(spark: SparkSession, server: Server, topic: Topic) -> DataFrame:
    return (
        spark.readStream.format("goqueue")
        .option("kafka.bootstrap.servers", server.bootstrap)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .load()
    )


def _loop(bench: Bench) -> int:
    from goqueue.spark.options import read_options
    from goqueue.spark.schema import table_schema
    from goqueue.spark.source import TableReader

    given = {"kafka.bootstrap.servers": bench.server.bootstrap, "subscribe": bench.topic.name}
    reader = TableReader(
        read_options(given, is_streaming=False), table_schema(has_headers=False, view="records")
    )
    return sum(len(batch) for task in reader.partitions() for batch in reader.read(task))


# The latency of a micro-batch


def _measure_latency(
    session: Session, section: Section, spark: SparkSession, server: Server
) -> None:
    runs = session.in_turns(
        "Spark, micro-batch of one record", {"stream": partial(_latency, session, spark, server)}
    )
    row = "micro-batch of one record, 1 partition, median"
    section.add(row, runs["stream"], "ms", MILLISECONDS, target=at_most(150, "150 ms"))
    aim = at_most(120, "120 ms", "aim")
    section.add(f"{row} (aim)", runs["stream"], "ms", MILLISECONDS, target=aim)


def _latency(session: Session, spark: SparkSession, server: Server) -> Outcome:
    """From planning to commit, as Spark reports it; records come one at a time."""
    from goqueue.client import LogClient

    wanted = session.plan.spark_micro_batches
    checkpoint = session.work / f"latency-{time.monotonic_ns()}"
    with fresh_topic(server, 1) as topic, LogClient(server.bootstrap) as client:
        rows = _rows(spark, server, topic)
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.start()
        try:
            with client.producer() as producer:
                for _ in range(wanted + 1):
                    producer.send(topic.name, b"x").result()
                    query.processAllAvailable()
                    time.sleep(QUIET_SECONDS)
            batches = [each for each in query.recentProgress if each.numInputRows]
        finally:
            query.stop()
    # The first one compiles its code.
    took = [each.durationMs["triggerExecution"] for each in batches[1:]]
    void = "" if len(took) >= wanted // 2 else f"only {len(took)} of {wanted} batches were seen"
    return Outcome({"ms": statistics.median(took)} if took else {}, void)
