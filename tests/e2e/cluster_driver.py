"""A driver on a cluster: reads a topic, and writes it to another while its writers are held.

spark-submit --master MASTER tests/e2e/cluster_driver.py MASTER BOOTSTRAP TOPIC TOPIC FOLDER

FOLDER gets `read.json` with what was read, one file `writing-N` for each worker N that has begun to
write, and `written` at the end. Writers wait half-way until there is a file `go`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import goqueue.spark
from tests.e2e.conftest import SPARK_SETTINGS, checksums
from tests.e2e.spark_cluster import DRIVER_SETTINGS

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = 8
HELD_AFTER_ROWS = 600  # of a task, which has a thousand: most of them have gone to the broker


def main() -> None:
    master, bootstrap, source, target, folder = (*sys.argv[1:5], Path(sys.argv[5]))
    settings = {**SPARK_SETTINGS, **DRIVER_SETTINGS, "spark.sql.warehouse.dir": str(folder / "w")}
    settings["spark.sql.execution.arrow.maxRecordsPerBatch"] = "100"
    spark = goqueue.spark.session(master, name="cluster driver", settings=settings)
    rows = (
        spark.read.format("goqueue")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("minPartitions", TASKS)
        .load()
    )
    note(folder / "read.json", json.dumps(checksums(rows)))
    held = rows.select("key", "value").mapInArrow(holding(str(folder)), "key binary, value binary")
    writer = held.write.format("goqueue").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", target).mode("append").save()
    note(folder / "written", "")
    spark.stop()


def holding(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Pass batches on, and wait in the middle. Workers get the code alone, so it imports all."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time
        from pathlib import Path

        rows = 0
        for batch in batches:
            yield batch
            rows += batch.num_rows
            if rows >= HELD_AFTER_ROWS:
                Path(folder, f"writing-{os.environ['GOQUEUE_TEST_WORKER']}").touch()
                while not Path(folder, "go").exists():
                    time.sleep(0.02)

    return hold


def note(file: Path, text: str) -> None:
    """Appears with all it holds."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


if __name__ == "__main__":
    main()
