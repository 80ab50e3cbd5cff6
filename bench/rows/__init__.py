"""The rows of the benchmark, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from bench.rows import (
    catchup,
    cluster,
    connections,
    consume,
    durable,
    endtoend,
    growth,
    grpc,
    http,
    limits,
    memory,
    pipelined,
    produce,
    publish,
    queues,
    receive,
    schedules,
    schemas,
    shares,
    single,
    spark,
    sqs,
    startup,
    tls,
)
from bench.session import Session

ROWS: dict[str, Callable[[Session], None]] = {
    "limits": limits.measure,
    "receive": receive.measure,
    "produce": produce.measure,
    "durable": durable.measure,
    "consume": consume.measure,
    "tls": tls.measure,
    "single": single.measure,
    "http": http.measure,
    "publish": publish.measure,
    "endtoend": endtoend.measure,
    "connections": connections.measure,
    "pipelined": pipelined.measure,
    "catchup": catchup.measure,
    "queues": queues.measure,
    "shares": shares.measure,
    "grpc": grpc.measure,
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
