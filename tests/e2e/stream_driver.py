"""A driver of its own, for tests that kill it: a stream from a topic into Parquet files.

python -m tests.e2e.stream_driver BOOTSTRAP TOPIC FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import goqueue.spark
from tests.e2e.conftest import SPARK_SETTINGS


def main() -> None:
    bootstrap, topic, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    settings = {**SPARK_SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = goqueue.spark.session("local[2]", name="driver", settings=settings)
    rows = (
        spark.readStream.format("goqueue")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "1500")
        .option("group", "killed")
        .load()
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
