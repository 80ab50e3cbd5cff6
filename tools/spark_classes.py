"""Write down the classes that a session of Spark loads, ready for the next one to map.

`python tools/spark_classes.py FILE` makes an archive for Java's option `-XX:SharedArchiveFile`.
Most of the work of a short session is reading and checking classes, and the tests start many short
sessions. A Java that the archive is not for starts without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

EXIT_SECONDS_MAX = 120


def main() -> None:
    archive = Path(sys.argv[1]).resolve()
    os.environ["SPARK_SUBMIT_OPTS"] = f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:disable'
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        _use(session, Path(folder))
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends with that, and writes the archive last
    gateway.proc.wait(EXIT_SECONDS_MAX)


def _use(session: SparkSession, folder: Path) -> None:
    """A little of all that pipelines do: rows to and from Python, files, groups, a stream."""
    rows = session.range(100).mapInArrow(_as_they_are, "id long")
    rows.write.parquet(str(folder / "rows"))
    written = session.read.parquet(str(folder / "rows"))
    written.groupBy("id").count().orderBy("id").collect()
    stream = session.readStream.format("rate").load().writeStream.format("noop")
    query = stream.option("checkpointLocation", str(folder / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main()
