"""The options of the sinks."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from goqueue.client import Address, reachable
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidRequest
from goqueue.spark.sink.options import WriteOptions, located, write_options
from goqueue.spark.sink.writers import TableWriter


def test_a_sink_is_exactly_once_unless_it_is_told_otherwise() -> None:
    assert write_options({}) == WriteOptions("127.0.0.1:9092")
    assert write_options(
        {
            "kafka.bootstrap.servers": "a:1",
            "topic": "orders",
            "delivery": "AT-LEAST-ONCE",
            "kafka.compression.type": "ZSTD",
            "transactiontimeout": "90s",
            "http.address": "a:2",
            "checkpointlocation": "/x",
            "kafka.acks": "all",
            "includeHeaders": "true",
            "kafka.auto.offset.reset": "latest",
        }
    ) == WriteOptions(
        bootstrap="a:1",
        http="a:2",
        topic="orders",
        is_exactly_once=False,
        compression=Compression.ZSTD,
        timeout_ms=90_000,
    )


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidRequest) as refused:
        write_options(
            {
                "topic": "a b",
                "delivery": "twice",
                "compression": "rar",
                "topik": "x",
                "includeHeaders": "some",
                "kafka.value.serializer": "x",
            }
        )
    for part in (
        "includeHeaders is 'some'",
        "kafka.value.serializer is not supported",
        "'a b'",
        "'twice'",
        "'rar'",
        "did you mean 'topic'",
    ):
        assert part in str(refused.value)


def test_the_broker_is_not_asked_where_its_api_is_when_that_is_known_or_not_needed() -> None:
    for options in (
        WriteOptions("nowhere:1", http="a:2"),
        WriteOptions("nowhere:1", is_exactly_once=False),
    ):
        assert located(options) == options


def test_an_api_that_listens_everywhere_is_met_where_the_broker_is() -> None:
    met = Address("broker.example", 9092)
    assert reachable(Address("0.0.0.0", 8080), met) == Address("broker.example", 8080)
    assert reachable(Address("::", 8080), met) == Address("broker.example", 8080)
    assert reachable(Address("10.0.0.1", 8080), met) == Address("10.0.0.1", 8080)
    assert reachable(Address("api.example", 80), met) == Address("api.example", 80)


def test_a_topic_cannot_be_overwritten() -> None:
    schema = StructType([StructField("value", BinaryType())])
    with pytest.raises(InvalidRequest, match="append"):
        TableWriter(WriteOptions("nowhere:1", topic="orders"), schema, is_overwriting=True)
