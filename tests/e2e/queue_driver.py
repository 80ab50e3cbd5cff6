"""A driver of its own, for tests that kill it: a queue group into Parquet files, epoch by epoch.

python -m tests.e2e.queue_driver BOOTSTRAP TOPIC FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

import goqueue.spark
from tests.e2e.conftest import SPARK_SETTINGS

GROUP = "killed-queue"
HELD_EPOCH = 1
HOLD_FILE = "hold"


def main() -> None:
    bootstrap, topic, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    settings = {**SPARK_SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = goqueue.spark.session("local[2]", name="driver", settings=settings)
    rows = (
        spark.readStream.format("goqueue")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("queue.group", GROUP)
        .option("maxMessagesPerTrigger", "1500")
        .load()
    )

    def write(batch: DataFrame, epoch: int) -> None:
        # An epoch that comes again replaces what it wrote: so each message is there once.
        batch.write.mode("overwrite").parquet(str(folder / "out" / f"epoch={epoch}"))
        (folder / f"written-{epoch}").touch()
        # The driver is killed here, where the epoch is written and not committed.
        while epoch == HELD_EPOCH and (folder / HOLD_FILE).exists():
            time.sleep(0.02)

    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
