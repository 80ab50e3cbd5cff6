"""The pipeline `typed`: a topic or an archive as a table, of any number of runs and crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from goqueue.cli.main import main
from goqueue.client import LogClient
from goqueue.model.errors import InvalidRequest
from goqueue.spark import pipelines
from goqueue.spark.pipelines.typing_manifests import load_table
from tests.e2e import typed_topics
from tests.e2e.conftest import NewTopic
from tests.integration.process import END_WITH_US, Broker
from tests.integration.waiting import eventually

FIRST = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "id", "type": "int"}, {"name": "place", "type": "string"}],
}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "id", "type": "long"},
        FIRST["fields"][1],
        {"name": "heat", "type": ["null", "double"], "default": None},
    ],
}
BAD = b"no schema at all"


def readings(start: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "place": f"p{number % 7}"} for number in range(start, start + count)]


def found(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    rows = pipelines.read_typed(spark, folder).select("value.*").orderBy("id").collect()
    return [tuple(row) for row in rows]


def test_runs_append_what_is_new_and_columns_grow(
    spark: SparkSession, broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)

    def run() -> pipelines.TypedResult:
        return pipelines.typed(
            spark,
            tmp_path,
            registry=broker.registry,
            bootstrap=broker.bootstrap,
            topic=topic,
            records_per_task_max=150,
        )

    to_bytes = typed_topics.avro(broker, FIRST)
    for one in range(2):
        values = readings(200 * one, 200)
        typed_topics.send(broker, topic, values, to_bytes, partition=one)
    typed_topics.send(broker, topic, [BAD, None], None, partition=1)
    first = run().manifest
    assert first is not None
    assert (first.digest.records, first.rows, first.undecodable_rows) == (402, 401, 1)
    assert len(first.pieces) == 4
    assert run().manifest is None
    written = [(one["id"], one["place"]) for one in readings(0, 400)]
    assert found(spark, tmp_path) == [(None, None), *written]

    values = [{**one, "heat": one["id"] / 2} for one in readings(400, 100)]
    typed_topics.send(broker, topic, values, typed_topics.avro(broker, SECOND))
    second = run().manifest
    assert second is not None
    assert (second.rows, second.schemas["value"].version) == (100, 2)
    new = [(one["id"], one["place"], one["heat"]) for one in values]
    assert found(spark, tmp_path) == [(None,) * 3, *((*one, None) for one in written), *new]

    letters = pipelines.read_undecodable(spark, tmp_path).collect()
    assert [(bytes(row.value), row.partition, row.offset) for row in letters] == [(BAD, 1, 200)]
    assert "zero byte" in letters[0].reason
    assert pipelines.verify_typed(spark, tmp_path) == 502


def test_a_crashed_run_leaves_nothing_and_damage_is_found(
    spark: SparkSession, broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    typed_topics.send(broker, topic, readings(0, 50), typed_topics.avro(broker, FIRST))
    options: dict[str, Any] = {"registry": broker.registry, "bootstrap": broker.bootstrap}
    for place in ("data", "undecodable"):
        stray = tmp_path / place / f"topic={topic}" / "partition=0" / "00000-stray.parquet"
        stray.parent.mkdir(parents=True)
        stray.write_bytes(b"half a file")
    done = pipelines.typed(spark, tmp_path, topic=topic, **options)
    assert (done.strays_removed, pipelines.verify_typed(spark, tmp_path)) == (2, 50)
    assert done.manifest is not None
    file = tmp_path / done.manifest.files[0].path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Exception, match="has other bytes than were written"):
        pipelines.verify_typed(spark, tmp_path)
    with pytest.raises(InvalidRequest, match="is a table of the topic"):
        pipelines.typed(spark, tmp_path, topic=new_topic(), **options)


def test_an_archive_is_typed_run_by_run(
    spark: SparkSession,
    broker: Broker,
    client: LogClient,
    new_topic: NewTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, other = new_topic(2), new_topic()
    archive, table = tmp_path / "archive", tmp_path / "table"

    def run(*words: str) -> Any:
        argv = ["goqueue", "pipeline", "run", "typed", *words, "-o", "json"]
        monkeypatch.setattr(sys, "argv", [*argv, "-b", broker.bootstrap, "--http", broker.http])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return captured.err if caught.value.code else json.loads(captured.out)

    to_bytes = typed_topics.avro(broker, FIRST)
    for start in (0, 100):
        typed_topics.send(broker, topic, readings(start, 100), to_bytes, partition=start // 100)
        typed_topics.send(broker, other, [b"x"], None)
        pipelines.archive(spark, broker.bootstrap, [topic, other], archive)
        told = run(topic, "--archive", str(archive), "--to", str(table), "--verify")
        assert (told["records"], told["rows"], told["verified"]) == (100, 100, True)
        assert told["schemas"] == [f"{topic}-value version 1"]
    assert found(spark, table) == [(one["id"], one["place"]) for one in readings(0, 200)]
    assert run(topic, "--archive", str(archive), "--to", str(table))["records"] == 0
    assert "name one of them" in run("--archive", str(archive), "--to", str(tmp_path / "b"))
    assert "from an archive" in run(topic, "--to", str(table))
    client.topics.delete(topic)
    assert len(found(spark, table)) == 200


@pytest.mark.slow
def test_a_driver_killed_in_the_middle_is_run_again(
    spark: SparkSession, broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, count = new_topic(4), 20_000
    to_bytes = typed_topics.avro(broker, FIRST)
    for one in range(4):
        values = readings(one * count, count)
        typed_topics.send(broker, topic, values, to_bytes, partition=one)
    table = tmp_path / "table"
    words = ["run", "typed", topic, "--to", str(table), "--task-records", "2000"]
    command = [*END_WITH_US, sys.executable, "-m", "goqueue", "pipeline", *words]
    command += ["-b", broker.bootstrap, "--http", broker.http, "--master", "local[1]"]
    output_file = tmp_path / "output"
    with output_file.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    eventually(
        lambda: process.poll() is not None or len(list(table.rglob("*.parquet"))) >= 3,
        because="the run has written some files",
        within=240,
    )
    assert process.poll() is None, output_file.read_text()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert load_table(table).manifests == ()
    done = pipelines.typed(
        spark, table, registry=broker.registry, bootstrap=broker.bootstrap, topic=topic
    )
    assert done.strays_removed >= 3
    assert pipelines.verify_typed(spark, table) == 4 * count
    ids = [row.id for row in pipelines.read_typed(spark, table).select("value.id").collect()]
    assert sorted(ids) == list(range(4 * count))
