"""What is written with `format("goqueue")` and with Spark's own Kafka sink, case by case.

Each case makes a table or a stream and writes it with both formats, to topics of their own. Both
are read back with one reader and compared without offsets, which transactions leave gaps in.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from goqueue.client import LogClient

Rows = list[tuple[object, ...]]
Work = Callable[[str], Rows]  # given the name of the format

ROWS = 12
SINK_PARTITIONS = 3
TIME = "timestamp_micros(1700000000000000 + id * 1000999)"
HEADERS = "array(named_struct('key', 'h', 'value', cast('1' as binary)))"
MIXED = "if(id % 2 = 0, array(named_struct('key', 'h', 'value', cast(null as binary))), null)"
KEYED = ("concat('k', id) as key", "concat('v', id) as value")


@dataclass(frozen=True, slots=True)
class Sink:
    """What is written: columns of a range, or topics as they were read."""

    columns: tuple[str, ...] = KEYED
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = "append"  # None: none is named
    has_topic: bool = True  # as an option
    shows_time: bool = False
    is_stream: bool = False
    copies: Mapping[str, str] | None = None  # the options of the source of a copy


def _keyed(*columns: str, **settings: object) -> Sink:
    return Sink((*KEYED, *columns), **settings)  # type: ignore[arg-type]


# A topic without a name: the one of the case.
TO_TOPIC = "'{topic}'"
SINKS: dict[str, Sink] = {
    "key and value": Sink(),
    "bytes": Sink(("cast(concat('b', id) as binary) as key", "cast('v' as binary) as value")),
    "nulls": Sink(("concat('k', id) as key", "if(id % 2 = 0, null, 'v') as value")),
    "no value": Sink(("'k' as key",)),
    "value is a number": Sink(("id as value",)),
    "key is a number": Sink(("id as key", "'v' as value")),
    "topic column": _keyed(f"{TO_TOPIC} as topic", has_topic=False),
    "topic option over the column": _keyed("'elsewhere' as topic"),
    "no topic": Sink(has_topic=False),
    "null topic": _keyed("cast(null as string) as topic", has_topic=False),
    "headers": _keyed(f"{HEADERS} as headers"),
    "headers, includeHeaders": _keyed(f"{HEADERS} as headers", options={"includeHeaders": "true"}),
    "headers not included": _keyed(f"{HEADERS} as headers", options={"includeHeaders": "false"}),
    "headers with nulls": _keyed(f"{MIXED} as headers"),
    "headers as a map": _keyed("map('h', '1') as headers"),
    "partition": _keyed("cast(id % 2 as int) as partition"),
    "partition null": _keyed("cast(if(id < 4, 0, null) as int) as partition"),
    "partition long": _keyed("id % 2 as partition"),
    "partition beyond": _keyed(
        "cast(99 as int) as partition", options={"kafka.max.block.ms": "2000"}
    ),
    "timestamp": _keyed(f"{TIME} as timestamp", shows_time=True),
    "timestamp double": _keyed("1700000000.0019d + id as timestamp", shows_time=True),
    "timestamp long": _keyed("1700000000000 + id as timestamp", shows_time=True),
    "timestamp text": _keyed("'2026-01-01' as timestamp", shows_time=True),
    "other columns": _keyed("id as offset", "0 as timestampType", "id as colour"),
    "priority": _keyed("'high' as priority"),
    "deliver_at": _keyed("timestamp_millis(1) as deliver_at"),
    "no mode": Sink(mode=None),
    "mode error": Sink(mode="error"),
    "mode overwrite": Sink(mode="overwrite"),
    "mode ignore": Sink(mode="ignore"),
    "options of a producer": Sink(
        options={
            "kafka.acks": "all",
            "kafka.linger.ms": "5",
            "kafka.compression.type": "gzip",
            "kafka.auto.offset.reset": "latest",
        }
    ),
    "key.serializer": Sink(options={"kafka.key.serializer": "x"}),
    "option unknown": Sink(options={"colour": "red"}),
    "copy of a topic": Sink(copies={"subscribe": "orders"}),
    "copy with headers": Sink(copies={"subscribe": "orders", "includeHeaders": "true"}),
    "copy as a stream": Sink(
        copies={"subscribe": "orders", "startingOffsets": "earliest"},
        is_stream=True,
        mode=None,
    ),
    "copy as a stream, append": Sink(
        copies={
            "subscribe": "orders",
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": "7",
        },
        is_stream=True,
    ),
    "stream, update": Sink(
        ("key", "cast(count as string) as value"),
        copies={"subscribe": "orders", "startingOffsets": "earliest"},
        is_stream=True,
        mode="update",
    ),
    "stream, complete": Sink(
        ("key", "cast(count as string) as value"),
        copies={"subscribe": "orders", "startingOffsets": "earliest"},
        is_stream=True,
        mode="complete",
    ),
}
SINK_DIFFERENCES = {
    "sink: no mode": "Spark itself refuses every sink of Python without append or overwrite",
    "sink: mode error": "as without a mode",
    "sink: partition long": "accepted here",
    "sink: timestamp": "the time of the record here; Kafka's sink ignores it up to Spark 4.2",
    "sink: timestamp double": "as a timestamp",
    "sink: timestamp long": "as a timestamp, in milliseconds",
    "sink: timestamp text": "refused here; Kafka's sink ignores it up to Spark 4.2",
    "sink: stream, update": "Spark itself allows no sink of Python this mode",
    "sink: priority": "the priority of a message here; Kafka's sink ignores the column",
    "sink: deliver_at": "a delay here; Kafka's sink ignores the column",
    "sink: option unknown": "refused here, so that a misspelled one has no silent effect",
}


def sink_cases(spark: SparkSession, bootstrap: str, folder: Path) -> dict[str, Work]:
    """What is written with each format, and then read back."""

    def writing(sink: Sink) -> Work:
        return lambda form: _written(spark, bootstrap, folder, sink, form)

    return {f"sink: {name}": writing(sink) for name, sink in SINKS.items()}


def _written(spark: SparkSession, bootstrap: str, folder: Path, sink: Sink, form: str) -> Rows:
    # In a thread of its own a writer finds no source of Python before a session was used there.
    spark.createDataFrame([], "id int")
    topic = f"written-{uuid.uuid4().hex[:8]}"
    with LogClient(bootstrap) as client:
        client.topics.create(
            topic, partition_count=SINK_PARTITIONS, settings={"retention.ms": "-1"}
        )
    options = {"kafka.bootstrap.servers": bootstrap, **sink.options}
    if sink.has_topic:
        options["topic"] = topic
    rows = _rows_to_write(spark, bootstrap, sink, form, topic)
    if sink.is_stream:
        _write_stream(rows, form, options, sink.mode, Path(tempfile.mkdtemp(dir=folder)))
    else:
        writer = rows.write.format(form).options(**options)
        (writer if sink.mode is None else writer.mode(sink.mode)).save()
    return _read_back(spark, bootstrap, topic, shows_time=sink.shows_time)


def _rows_to_write(
    spark: SparkSession, bootstrap: str, sink: Sink, form: str, topic: str
) -> DataFrame:
    if sink.copies is None:
        columns = [one.replace("{topic}", topic) for one in sink.columns]
        return spark.range(0, ROWS, 1, 2).selectExpr(*columns)
    given = {"kafka.bootstrap.servers": bootstrap, **sink.copies}
    source = (spark.readStream if sink.is_stream else spark.read).format(form)
    copied = source.options(**given).load()
    if sink.columns is KEYED:
        return copied
    return (
        copied.groupBy((sql.col("offset") % 3).cast("string").alias("key"))
        .count()
        .selectExpr(*sink.columns)
    )


def _write_stream(
    rows: DataFrame, form: str, options: Mapping[str, str], mode: str | None, place: Path
) -> None:
    writer = rows.writeStream.format(form).options(**options)
    writer = writer.option("checkpointLocation", str(place)).trigger(availableNow=True)
    (writer if mode is None else writer.outputMode(mode)).start().awaitTermination()


def _read_back(spark: SparkSession, bootstrap: str, topic: str, *, shows_time: bool) -> Rows:
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "includeHeaders": "true",
    }
    found = spark.read.format("goqueue").options(**given).load()
    columns = ["key", "value", "partition", "headers", *(["timestamp"] if shows_time else [])]
    return sorted((tuple(row) for row in found.select(*columns).collect()), key=repr)
