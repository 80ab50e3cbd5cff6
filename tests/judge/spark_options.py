"""Compares `format("goqueue")` with Spark's own `format("kafka")`, option by option.

    make judge-spark

Both read the same topics of one GoQueue broker, and write the same rows to topics of their own,
which are read back. A case passes when both give the same rows, or when both refuse. What takes
longer than `CASE_SECONDS_MAX` is abandoned and has not ended; so the
whole takes a few minutes and at most `CASE_SECONDS_MAX` for each case and source. Maven fetches the
connector, so this is not part of the test suite. ARGS="name" runs the cases whose names contain it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import goqueue.spark
from bench.peers.maven import fetch_jars
from goqueue.client import LogClient
from tests.e2e.conftest import SPARK_SETTINGS
from tests.integration.process import Broker
from tests.judge.spark_sinks import SINK_DIFFERENCES, Rows, Work, sink_cases

# The newest versions there are of the connector and of what it needs; they run on newer versions
# of Spark as well.
CONNECTOR_VERSION = "4.2.0"
_POM = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>goqueue</groupId><artifactId>judge</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>4.2.0</version>
      <exclusions><exclusion>
        <groupId>org.apache.spark</groupId>
        <artifactId>spark-token-provider-kafka-0-10_2.13</artifactId>
      </exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-token-provider-kafka-0-10_2.13</artifactId>
      <version>4.0.0</version>
    </dependency>
  </dependencies>
</project>
"""
PARTITIONS = 2
RECORDS = 20  # of each partition, a second apart
BEGAN_MS = 1_700_000_000_000
CASE_SECONDS_MAX = 60
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refused:
    """The read was refused, with this error."""

    error: str


@dataclass(frozen=True, slots=True)
class NotEnded:
    """The read was abandoned after `CASE_SECONDS_MAX`."""


Outcome = Rows | Refused | NotEnded


def _json(**topics: Mapping[str, object]) -> str:
    return json.dumps(topics)


def _at(second: int) -> str:
    return str(BEGAN_MS + second * 1000)


TOPIC = {"subscribe": "orders"}
LATE = _at(10 * RECORDS)
# Options of a table, beside the address.
TABLES: dict[str, Options] = {
    "subscribe": TOPIC,
    "subscribe several": {"subscribe": "orders, payments"},
    "subscribe nothing": {"subscribe": " , "},
    "subscribe what is not there": {"subscribe": "nothing"},
    "subscribePattern": {"subscribePattern": "ord.*"},
    "subscribePattern matches nothing": {"subscribePattern": "zzz.*"},
    "assign": {"assign": '{"orders": [1]}'},
    "assign no JSON": {"assign": "orders"},
    "assign with offsets of it": {
        "assign": '{"orders": [1]}',
        "startingOffsets": _json(orders={"1": 15}),
    },
    "assign with offsets of another": {
        "assign": '{"orders": [1]}',
        "startingOffsets": _json(orders={"0": 15, "1": 15}),
    },
    "two ways to name topics": {"subscribe": "orders", "assign": '{"orders": [1]}'},
    "no topics": {},
    "startingOffsets earliest": {**TOPIC, "startingOffsets": "earliest"},
    "startingOffsets latest": {**TOPIC, "startingOffsets": "latest"},
    "startingOffsets": {**TOPIC, "startingOffsets": _json(orders={"0": 15, "1": -2})},
    "startingOffsets partial": {**TOPIC, "startingOffsets": _json(orders={"0": 15})},
    "startingOffsets -1": {**TOPIC, "startingOffsets": _json(orders={"0": -1, "1": 3})},
    "startingOffsets beyond": {**TOPIC, "startingOffsets": _json(orders={"0": 999, "1": 3})},
    "endingOffsets": {**TOPIC, "endingOffsets": _json(orders={"0": 5, "1": -1})},
    "endingOffsets partial": {**TOPIC, "endingOffsets": _json(orders={"0": 5})},
    "endingOffsets -2": {**TOPIC, "endingOffsets": _json(orders={"0": -2, "1": 3})},
    "endingOffsets earliest": {**TOPIC, "endingOffsets": "earliest"},
    "startingTimestamp": {**TOPIC, "startingTimestamp": _at(15)},
    "startingTimestamp late": {**TOPIC, "startingTimestamp": LATE},
    "startingTimestamp late, latest": {
        **TOPIC,
        "startingTimestamp": LATE,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "strategy unknown": {**TOPIC, "startingOffsetsByTimestampStrategy": "first"},
    "endingTimestamp": {**TOPIC, "endingTimestamp": _at(5)},
    "endingTimestamp late": {**TOPIC, "endingTimestamp": LATE},
    "startingOffsetsByTimestamp": {
        **TOPIC,
        "startingOffsetsByTimestamp": _json(orders={"0": int(_at(15)), "1": int(_at(18))}),
    },
    "startingOffsetsByTimestamp partial": {
        **TOPIC,
        "startingOffsetsByTimestamp": _json(orders={"0": int(_at(15))}),
    },
    "endingOffsetsByTimestamp": {
        **TOPIC,
        "endingOffsetsByTimestamp": _json(orders={"0": int(_at(5)), "1": int(LATE)}),
    },
    "timestamp before offsets": {
        **TOPIC,
        "startingTimestamp": _at(18),
        "startingOffsetsByTimestamp": _json(orders={"0": int(_at(1)), "1": int(_at(1))}),
        "startingOffsets": "earliest",
        "endingTimestamp": _at(19),
        "endingOffsets": _json(orders={"0": 1, "1": 1}),
    },
    "times before offsets": {
        **TOPIC,
        "startingOffsetsByTimestamp": _json(orders={"0": int(_at(17)), "1": int(_at(18))}),
        "startingOffsets": _json(orders={"0": 1, "1": 1}),
    },
    "includeHeaders": {**TOPIC, "includeHeaders": "true"},
    "failOnDataLoss false": {
        **TOPIC,
        "failOnDataLoss": "false",
        "startingOffsets": _json(orders={"0": 999, "1": 3}),
    },
    "minPartitions": {**TOPIC, "minPartitions": "7"},
    "minPartitions 0": {**TOPIC, "minPartitions": "0"},
    "maxRecordsPerPartition": {**TOPIC, "maxRecordsPerPartition": "3"},
    "group and its prefix": {**TOPIC, "groupIdPrefix": "a", "kafka.group.id": "b"},
    "patience": {
        **TOPIC,
        "kafkaConsumer.pollTimeoutMs": "60000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "20",
    },
    "trigger options on a table": {
        **TOPIC,
        "maxOffsetsPerTrigger": "5",
        "minOffsetsPerTrigger": "1",
        "maxTriggerDelay": "15min",
    },
    "auto.offset.reset": {**TOPIC, "kafka.auto.offset.reset": "earliest"},
    "key.deserializer": {**TOPIC, "kafka.key.deserializer": "x"},
    "enable.auto.commit": {**TOPIC, "kafka.enable.auto.commit": "false"},
}
EARLIEST = {**TOPIC, "startingOffsets": "earliest"}
# Options of a stream; what it reads until everything is read.
STREAMS: dict[str, Options] = {
    "all": EARLIEST,
    "latest by default": TOPIC,
    "maxOffsetsPerTrigger": {**EARLIEST, "maxOffsetsPerTrigger": "7"},
    "minOffsetsPerTrigger": {**EARLIEST, "minOffsetsPerTrigger": "7", "maxTriggerDelay": "15min"},
    "minimum above maximum": {
        **EARLIEST,
        "minOffsetsPerTrigger": "8",
        "maxOffsetsPerTrigger": "7",
    },
    "offsets": {**TOPIC, "startingOffsets": _json(orders={"0": 15, "1": -1})},
    "offsets partial": {**TOPIC, "startingOffsets": _json(orders={"0": 15})},
    "startingTimestamp": {**TOPIC, "startingTimestamp": _at(15)},
    "startingTimestamp late": {**TOPIC, "startingTimestamp": LATE},
    "endingOffsets": {**EARLIEST, "endingOffsets": "latest"},
    "endingTimestamp": {**EARLIEST, "endingTimestamp": LATE},
    "subscribePattern": {"subscribePattern": "ord.*", "startingOffsets": "earliest"},
    "assign": {"assign": '{"orders": [1]}', "startingOffsets": "earliest"},
    "includeHeaders": {**EARLIEST, "includeHeaders": "true"},
    "groupIdPrefix": {**EARLIEST, "groupIdPrefix": "jobs"},
    "delay in words": {**EARLIEST, "minOffsetsPerTrigger": "7", "maxTriggerDelay": "15m"},
}
# Where the two differ on purpose: a reason for each.
DIFFERENCES = {
    **SINK_DIFFERENCES,
    "stream: endingTimestamp": "Kafka's source ignores it; here it is refused, as endingOffsets is",
    "table: failOnDataLoss false": "Kafka's source fails at a start beyond the end; here that "
    "partition has no rows",
}


def main() -> None:
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    failed = 0
    with tempfile.TemporaryDirectory() as folder, _broker(Path(folder)) as bootstrap:
        spark = _session(Path(folder))
        cases = _cases(spark, bootstrap, Path(folder))
        # What is stated to differ comes last: a read that does not end may keep a core busy.
        names = sorted(cases, key=lambda name: name in DIFFERENCES)
        names = [name for name in names if chosen in name]
        for name in names:
            failed += not _Judge(spark, cases[name]).is_as_stated(name)
        sys.stdout.write(f"{len(names)} cases, {failed} not as stated.\n")
        sys.stdout.flush()
        stopping = threading.Thread(target=spark.stop, daemon=True)
        stopping.start()
        stopping.join(CASE_SECONDS_MAX)
    # Threads that wait for abandoned reads would keep an ordinary exit from happening.
    os._exit(1 if failed else 0)


def _cases(spark: SparkSession, bootstrap: str, folder: Path) -> dict[str, Work]:
    """What is done with each format, by the name of the case."""

    def reading(options: Options, *, is_stream: bool) -> Work:
        given = {"kafka.bootstrap.servers": bootstrap, **options}

        def read(source: str) -> Rows:
            if is_stream:
                return _read_stream(spark, source, given, folder)
            return _rows(spark.read.format(source).options(**given).load())

        return read

    found = {f"table: {name}": reading(one, is_stream=False) for name, one in TABLES.items()}
    found |= {f"stream: {name}": reading(one, is_stream=True) for name, one in STREAMS.items()}
    return found | sink_cases(spark, bootstrap, folder)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Does something with both formats, and compares."""

    spark: SparkSession
    work: Work

    def is_as_stated(self, name: str) -> bool:
        """Whether both sources agree, or differ as is stated; prints what was found."""
        began = time.monotonic()
        kafka, ours = self._outcome("kafka"), self._outcome("goqueue")
        is_same = _is_same(kafka, ours)
        is_as_stated = is_same == (name not in DIFFERENCES)
        seconds = time.monotonic() - began
        word = "same   " if is_same else "differs"
        verdict = "ok  " if is_as_stated else "FAIL"
        sys.stdout.write(f"{verdict} {word} {seconds:5.1f} s  {name}: {_brief(kafka)}\n")
        if not is_same:
            sys.stdout.write(f"    goqueue: {_brief(ours)}\n")
        if not is_as_stated:
            sys.stdout.write(f"    kafka:   {str(kafka)[:1500]}\n    goqueue: {str(ours)[:1500]}\n")
        sys.stdout.flush()
        return is_as_stated

    def _outcome(self, source: str) -> Outcome:
        """What it comes to; what does not end is left to itself."""
        found = _within(CASE_SECONDS_MAX, lambda: self.work(source))
        if isinstance(found, NotEnded):
            for query in self.spark.streams.active:
                _within(CASE_SECONDS_MAX, query.stop)
            self.spark.sparkContext.cancelAllJobs()
        return found


def _within(seconds: float, work: Callable[[], Rows | None]) -> Outcome:
    found: list[Outcome] = []

    def run() -> None:
        try:
            found.append(work() or [])
        except Exception as error:  # whatever it is, it is a refusal
            found.append(Refused(f"{type(error).__name__}: {error}"))

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(seconds)
    return found[0] if found else NotEnded()


def _is_same(kafka: Outcome, ours: Outcome) -> bool:
    if isinstance(kafka, Refused):
        return isinstance(ours, Refused)
    return kafka == ours and not isinstance(kafka, NotEnded)


def _brief(outcome: Outcome) -> str:
    if isinstance(outcome, NotEnded):
        return f"not ended after {CASE_SECONDS_MAX} s"
    if isinstance(outcome, Refused):
        return f"refused: {_reason(outcome.error)[:150]}"
    return f"{len(outcome)} rows"


def _reason(error: str) -> str:
    """The line of an error that says why, without the words of Py4J around it."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    is_wrapped = lines[0].startswith("Py4JJavaError") and len(lines) > 1
    return lines[1] if is_wrapped else lines[0]


def _read_stream(spark: SparkSession, source: str, options: Options, folder: Path) -> Rows:
    place = Path(tempfile.mkdtemp(dir=folder))
    rows = spark.readStream.format(source).options(**options).load()
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(place / "out"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return _rows(spark.read.schema(rows.schema).parquet(str(place / "out")))


def _rows(frame: DataFrame) -> Rows:
    columns = [*COLUMNS, *(["headers"] if "headers" in frame.columns else [])]
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=repr)


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    broker = Broker(folder / "node", {})
    (folder / "node").mkdir()
    broker.start()
    try:
        with LogClient(broker.bootstrap) as client:
            for topic in ("orders", "payments"):
                # The records are years old: with the default retention they would be deleted.
                client.topics.create(
                    topic, partition_count=PARTITIONS, settings={"retention.ms": "-1"}
                )
                with client.producer() as producer:
                    for number in range(PARTITIONS * RECORDS):
                        producer.send(
                            topic,
                            b"v%d" % number,
                            key=b"k%d" % number,
                            headers=[("h", b"%d" % number)],
                            partition=number % PARTITIONS,
                            timestamp_ms=BEGAN_MS + number // PARTITIONS * 1000,
                        )
        yield broker.bootstrap
    finally:
        broker.close()


def _session(folder: Path) -> SparkSession:
    jars = fetch_jars("spark-sql-kafka", CONNECTOR_VERSION, _POM)
    settings = {
        **SPARK_SETTINGS,
        "spark.log.level": "OFF",  # refusals are part of it
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars": ",".join(map(str, jars.glob("*.jar"))),
    }
    return goqueue.spark.session("local[2]", name="judge", settings=settings)


if __name__ == "__main__":
    main()
