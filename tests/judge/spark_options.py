"""Compares `format("goqueue")` with Spark's own `format("kafka")`, option by option.

    make judge-spark

Both read the same topics of one GoQueue broker. A case passes when both give the same rows, or when
both refuse. Maven fetches the connector, so this is not part of the test suite.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import goqueue.spark
from bench.peers.maven import fetch_jars
from goqueue.client import LogClient
from tests.e2e.conftest import SPARK_SETTINGS
from tests.integration.process import Broker

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
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

Options = Mapping[str, str]
Rows = list[tuple[object, ...]] | str


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
    "groupIdPrefix": {**EARLIEST, "groupIdPrefix": "jobs"},
    "delay in words": {**EARLIEST, "minOffsetsPerTrigger": "7", "maxTriggerDelay": "15m"},
}
# Where the two differ on purpose: a reason for each.
DIFFERENCES = {
    "table: subscribePattern matches nothing": "Kafka's source fails; an empty table is empty here",
    "table: failOnDataLoss false": "Kafka's source never ends; here what is kept is read",
}


def main() -> None:
    failed = 0
    with tempfile.TemporaryDirectory() as folder, _broker(Path(folder)) as bootstrap:
        spark = _session(Path(folder))
        cases = [(f"table: {name}", options, False) for name, options in TABLES.items()]
        cases += [(f"stream: {name}", options, True) for name, options in STREAMS.items()]
        for name, options, is_stream in cases:
            if name in DIFFERENCES:
                continue
            found = {
                source: _outcome(spark, source, bootstrap, options, is_stream, Path(folder))
                for source in ("kafka", "goqueue")
            }
            is_same = _is_same(found["kafka"], found["goqueue"])
            failed += not is_same
            sys.stdout.write(f"{'same  ' if is_same else 'DIFFER'} {name}\n")
            if not is_same:
                for source, rows in found.items():
                    sys.stdout.write(f"    {source}: {str(rows)[:600]}\n")
            sys.stdout.flush()
        spark.stop()
    count = len(TABLES) + len(STREAMS)
    sys.stdout.write(f"{count} cases, {len(DIFFERENCES)} differ as stated, {failed} fail.\n")
    sys.exit(1 if failed else 0)


def _is_same(kafka: Rows, ours: Rows) -> bool:
    if isinstance(kafka, str) or isinstance(ours, str):
        return isinstance(kafka, str) and isinstance(ours, str)
    return kafka == ours


def _outcome(
    spark: SparkSession,
    source: str,
    bootstrap: str,
    options: Options,
    is_stream: bool,
    folder: Path,
) -> Rows:
    given = {"kafka.bootstrap.servers": bootstrap, **options}
    try:
        if is_stream:
            return _read_stream(spark, source, given, folder)
        return _rows(spark.read.format(source).options(**given).load())
    except Exception as error:  # whatever it is, it is a refusal
        return f"{type(error).__name__}: {error}"


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
    if not query.awaitTermination(120):
        query.stop()
        return "does not end"
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
                client.topics.create(topic, partition_count=PARTITIONS)
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
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars": ",".join(map(str, jars.glob("*.jar"))),
    }
    return goqueue.spark.session("local[2]", name="judge", settings=settings)


if __name__ == "__main__":
    main()
