"""The code of docs/spark.md runs as it stands, from the top to the bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from goqueue.client import LogClient
from tests.e2e import typed_topics
from tests.e2e.conftest import write
from tests.integration.process import Broker

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
# Whatever reads or writes is told where the broker of the test is.
PLACES = re.compile(r'\.option\("(?:subscribe|topic|view)", "\w+"\)')


def test_the_code_of_the_page_runs(
    spark: SparkSession, broker: Broker, client: LogClient, tmp_path: Path
) -> None:
    for topic in ("orders", "copies", "streamed", "users"):
        client.topics.create(topic, partition_count=3)
    for one in range(3):
        write(client, "orders", [b"%d" % number for number in range(2_000)], partition=one)
    user = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
    typed_topics.send(broker, "users", [{"name": "Ada"}, None], typed_topics.avro(broker, user))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    address = f'.option("kafka.bootstrap.servers", "{broker.bootstrap}")'
    code = PLACES.sub(lambda found: found[0] + address, "\n".join(blocks))
    found: dict[str, Any] = {}
    code = code.replace("http://127.0.0.1:8081", broker.registry)
    exec(code.replace("/data", str(tmp_path)), found)
    assert len(blocks) == 8
    assert found["spark"] is spark
    assert found["orders"].count() == 6_000
    assert found["query"].awaitTermination(120)
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 6_000
    assert found["copying"].awaitTermination(120)
    for topic in ("copies", "streamed"):
        written = spark.read.format("goqueue").option("subscribe", topic)
        assert written.option("kafka.bootstrap.servers", broker.bootstrap).load().count() == 6_000
    assert [row.name for row in found["users"].select("value.name").collect()] == ["Ada", None]
    rows = found["goqueue"].spark.read_where(found["table"](), found["predicate"])
    assert rows.where("partition = 2").count() == 1_000
