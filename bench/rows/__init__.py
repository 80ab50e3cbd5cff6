"""The rows of the benchmark, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from bench.rows import (
    cluster,
    consume,
    durable,
    endtoend,
    growth,
    http,
    limits,
    memory,
    produce,
    publish,
    queues,
    receive,
    schedules,
    schemas,
    single,
    spark,
    sqs,
    startup,
)
from bench.session import Session

ROWS: dict[str, Callable[[Session], None]] = {
    "limits": limits.measure,
    "produce": produce.measure,
    "durable": durable.measure,
    "consume": consume.measure,
    "single": single.measure,
    "publish": publish.measure,
    "endtoend": endtoend.measure,
    "http": http.measure,
    "receive": receive.measure,
    "queues": queues.measure,
    "sqs": sqs.measure,
    "schedules": schedules.measure,
    "schemas": schemas.measure,
    "spark": spark.measure,
    "cluster": cluster.measure,
    "growth": growth.measure,
    "memory": memory.measure,
    "startup": startup.measure,
}

__all__ = ["ROWS"]
