"""A driver of its own, for tests that kill it: a stream from one topic into another, exactly once.

python -m tests.e2e.sink_driver BOOTSTRAP TOPIC TOPIC FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import goqueue.spark
from tests.e2e.conftest import SPARK_SETTINGS


def main() -> None:
    bootstrap, source, target, folder = (*sys.argv[1:4], Path(sys.argv[4]))
    settings = {**SPARK_SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = goqueue.spark.session("local[2]", name="driver", settings=settings)
    rows = (
        spark.readStream.format("goqueue")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "1500")
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("goqueue")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
