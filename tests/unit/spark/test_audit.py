"""The audit log as a table: typed columns of what the broker writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from goqueue.client import RawBatch
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.batch import Record, encode_batch, read_header
from goqueue.model.errors import AuthenticationFailed
from goqueue.model.names import AUDIT_TOPIC, TopicPartition
from goqueue.model.session import Session
from goqueue.spark.audit import PATHS, audit_batches
from goqueue.spark.planning import OffsetRange
from goqueue.spark.schema import AUDIT_COLUMNS, arrow_schema, table_schema
from goqueue.tenancy.audit import events
from goqueue.tenancy.audit.merging import Merged
from goqueue.tenancy.audit.ocsf import Reporter, encode

PARTITION = TopicPartition(AUDIT_TOPIC, 0)
ALL = table_schema(has_headers=False, view="audit")
ALICE = Session("kafka", "User:alice", "acme", "app", "10.0.0.7", mechanism="password")
ORDERS = Resource(ResourceKind.TOPIC, "orders")
TIME_MS = 1_700_000_000_123


def texts() -> list[bytes]:
    denied = events.denied(ALICE, Action.READ, ORDERS, operation="partitions")
    logon = events.authenticated(Session("http"), "bob", "bearer", AuthenticationFailed())
    start = events.of_node(events.START, serial=1)
    return [
        encode(Merged(one, times, TIME_MS - 5, TIME_MS), Reporter(7, "c", "1"), f"u{times}")
        for one, times in ((denied, 5), (logon, 1), (start, 1))
    ]


def rows(schema: StructType = ALL, *, values: list[bytes] | None = None) -> list[dict[str, Any]]:
    records = [Record(None, one, timestamp_ms=TIME_MS) for one in values or texts()]
    data = encode_batch(records)
    batch = RawBatch(AUDIT_TOPIC, 0, read_header(data), memoryview(data))
    arrow = arrow_schema(schema, view="audit")
    found = list(audit_batches([batch], OffsetRange(PARTITION, 0, 100), arrow))
    return pa.Table.from_batches(found, schema=arrow if schema.fields else None).to_pylist()


def test_the_columns_are_those_that_spark_expects() -> None:
    expected = to_arrow_schema(ALL, timezone="UTC")
    assert arrow_schema(ALL, view="audit").equals(expected)
    assert set(PATHS) | {"partition", "offset", "timestamp"} == set(AUDIT_COLUMNS)


def test_a_row_has_the_attributes_of_its_event() -> None:
    denied, logon, start = rows()
    time = datetime.fromtimestamp(TIME_MS / 1000, UTC)
    assert denied == {
        "time": time,
        "class": "API Activity",
        "activity": "Read",
        "severity": "Low",
        "user": "alice",
        "tenant": "acme",
        "address": "10.0.0.7",
        "listener": "kafka",
        "node": "node 7",
        "clientId": "app",
        "operation": "partitions",
        "action": "READ",
        "resources": [{"type": "topic", "name": "orders"}],
        "outcome": "denied",
        "status": "Failure",
        "statusCode": "access_denied",
        "statusDetail": "READ on topic 'orders' is not allowed",
        "count": 5,
        "startTime": datetime.fromtimestamp((TIME_MS - 5) / 1000, UTC),
        "endTime": time,
        "uid": "u5",
        "partition": 0,
        "offset": 0,
        "timestamp": time,
    }
    assert (logon["class"], logon["user"], logon["count"]) == ("Authentication", "bob", 1)
    assert (start["class"], start["user"], start["resources"]) == (
        "Application Lifecycle",
        None,
        None,
    )


def test_some_columns_or_none() -> None:
    few = StructType([one for one in ALL.fields if one.name in ("offset", "user")])
    assert rows(few) == [
        {"user": "alice", "offset": 0},
        {"user": "bob", "offset": 1},
        {"user": None, "offset": 2},
    ]


def test_an_event_with_further_attributes_is_read() -> None:
    [row] = rows(values=[b'{"time": 1, "new": {"a": [1]}, "api": {"operation": "x", "y": 2}}'])
    assert (row["operation"], row["count"], row["user"]) == ("x", 1, None)
