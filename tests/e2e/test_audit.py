"""The audit log as a table of a real Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from goqueue.client.http import Client
from tests.integration.process import Broker
from tests.integration.waiting import eventually


def test_the_audit_log_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    node = Broker(tmp_path, {"security.audit": "on"})
    try:
        node.start()
        with Client(node.http) as client:
            for number in range(3):
                client.topics.create(f"topic-{number}")
            client.topics.delete("topic-1")
            eventually(lambda: len(client.audit.read().events) == 5, because="events are written")
        options = {"subscribe": "__audit", "view": "audit"}
        reader = spark.read.format("goqueue").options(**options)
        table = reader.option("kafka.bootstrap.servers", node.bootstrap).load()
        table.createOrReplaceTempView("audit")
        rows = spark.sql(
            "select operation, resources[0].name as name, outcome, count from audit "
            "where class = 'API Activity' order by offset"
        ).collect()
        assert [tuple(row) for row in rows] == [
            *(("topics.create", f"topic-{number}", "allowed", 1) for number in range(3)),
            ("topics.delete", "topic-1", "allowed", 1),
        ]
        assert table.count() == 5
        assert table.selectExpr("max(time) > timestamp'2024-01-01'").first() == (True,)
    finally:
        node.close()
