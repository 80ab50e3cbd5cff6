"""Batches of Arrow as the data source makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from goqueue.spark.pipelines.archiving import archive_schema


def batch(rows: Sequence[dict[str, Any]], **common: Any) -> pa.RecordBatch:
    """Rows with what they do not say filled in; times are milliseconds."""
    full = []
    for number, row in enumerate(rows):
        one = {
            "key": b"key",
            "value": b"value",
            "topic": "orders",
            "partition": 0,
            "offset": number,
            "timestamp": 0,
            "timestampType": 0,
            "headers": None,
            **common,
            **row,
        }
        one["timestamp"] *= 1000
        full.append(one)
    return pa.RecordBatch.from_pylist(full, schema=archive_schema())
