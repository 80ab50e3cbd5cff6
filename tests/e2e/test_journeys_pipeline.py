"""The pipeline `journeys`: what was dropped, repeated and delayed is found, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from goqueue import Client
from goqueue.cli.main import main
from goqueue.client import LogClient
from goqueue.spark import pipelines
from goqueue.spark.pipelines import JourneysQuery
from goqueue.tracing.encoding import encode_events
from goqueue.tracing.events import Details, Event, Kind, Place, Source, Span
from tests.e2e import journal_faults
from tests.e2e.conftest import NewTopic
from tests.e2e.journal_faults import Journal
from tests.integration.process import Broker
from tests.integration.waiting import eventually

MESSAGES = 100_000


def test_all_faults_among_many_messages_are_found(
    spark: SparkSession, broker: Broker, client: LogClient, unique: str, tmp_path: Path
) -> None:
    journal = Journal(MESSAGES, partitions=2, faults=8, seed=7)
    journal.write(client, unique)
    query = journal_faults.query_of(unique)
    result = pipelines.audit_journeys(spark, broker.bootstrap, tmp_path, query)
    assert journal_faults.check(spark, journal, result, tmp_path) > 0
    assert result.parts < journal.events
    hops = {one.hop: one for one in result.latencies if not one.by}
    assert hops["received_stored"].p99_ms == 4
    assert hops["received_stored"].messages == journal.messages
    assert 20 < hops["stored_delivered"].p50_ms < 32
    assert hops["stored_delivered"].max_ms > journal_faults.DELAY_MS
    assert hops["delivered_settled"].p50_ms == 30
    assert hops["due_released"].p50_ms < 50 < hops["due_released"].max_ms
    assert max(result.slowest[0].hops.values()) > journal_faults.DELAY_MS


def test_what_is_received_twice_uncommitted_or_recovered_is_named(
    spark: SparkSession, broker: Broker, client: LogClient, unique: str, tmp_path: Path
) -> None:
    now_ms = 1_767_225_600_000
    old_ms = now_ms - 3_600_000
    place = Place("~acme~orders", b"t" * 16, 1)
    received, stored = Details(Kind.RECEIVED, 1), Details(Kind.STORED, 1)
    acked = Details(Kind.ACKED, 1, "~acme~workers")
    lost = Details(Kind.RECOVERED, 1, reason="too many", is_recovered=True)

    def event(details: Details, first: int, end: int) -> Event:
        return Event(details, first, end, old_ms, old_ms)

    events = [
        event(received, 0, 50),
        event(received, 20, 30),
        event(stored, 0, 40),
        event(received._replace(is_recovered=True), 50, 60),
        event(stored._replace(is_recovered=True), 50, 60),
        event(lost, 60, 80),
        event(acked, 0, 35),
        event(Details(Kind.RETIRED, 1), 35, 40),
    ]
    client.topics.create(unique, settings={"retention.ms": "-1"})
    span = Span(Source(b"s" * 16, 0), 0, 0, 1)
    with client.producer() as producer:
        key, value = encode_events(place, span, events)
        producer.send(unique, value, key=key, partition=0)
    query = JourneysQuery(journal=unique, now_ms=now_ms)
    result = pipelines.audit_journeys(spark, broker.bootstrap, tmp_path, query)
    found = {(one.problem, one.group, one.first, one.end) for one in result.problems}
    assert found == {
        ("stored_again", None, 20, 30),
        ("never_stored", None, 40, 50),
        ("recovered", None, 50, 80),
    }
    itself, workers = result.accounts
    assert (itself.tenant, itself.topic, itself.messages) == ("acme", "orders", 80)
    assert itself.states == {"stored": 45, "retired": 5, "unstored": 10, "recovered": 20}
    assert workers.group == "workers"
    assert workers.states == {
        "acked": 35,
        "retired": 5,
        "unstored": 10,
        "waiting": 10,
        "recovered": 20,
    }


def test_messages_of_a_real_broker_are_accounted_for(
    spark: SparkSession,
    broker: Broker,
    new_topic: NewTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = new_topic()
    with Client(broker.http) as http:
        queue = http.queue(topic, group="workers")
        http.publish(topic, "message 0")
        with http.transaction() as transaction:
            transaction.publish(topic, "aborted")
            transaction.abort()
        for number in range(1, 6):
            http.publish(topic, f"message {number}")
        http.publish(topic, "scheduled", delay=0.2)
        seen = 0
        while seen < 7:
            for message in queue.receive(max_messages=7, wait=10):
                seen += 1
                if message.text == "message 3":
                    queue.reject(message, reason="bad")
                else:
                    queue.ack(message)
        http.publish(topic, "waiting")

    def run(*words: str) -> dict[str, object]:
        argv = ["goqueue", "pipeline", *words, "-b", broker.bootstrap, "-o", "json"]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        assert not caught.value.code, captured.err
        found: dict[str, object] = json.loads(captured.out)
        return found

    folder = str(tmp_path / "audit")
    words = ("run", "journeys", "--to", folder, "--topic", topic, "--grace", "0s")
    options = {"view": "journeys", "journeys.topics": topic, "journeys.kinds": "received,acked"}
    table = spark.read.format("goqueue").option("kafka.bootstrap.servers", broker.bootstrap)

    def events() -> int:
        return int(table.options(**options).load().selectExpr("sum(count)").first()[0] or 0)

    eventually(lambda: events() == 9 + 6, because="all events are written")
    for _ in range(2):
        accounts = run(*words)["accounts"]
        assert isinstance(accounts, list)
        [found] = [one for one in accounts if one["group"] == "workers"]
        expected = {"acked": 6, "dead_lettered": 1, "removed": 1, "waiting": 1}
        assert {state: found.get(state) for state in expected} == expected
        assert found["messages"] == 9
    result = pipelines.read_journeys(folder)
    assert result.problem_counts == []
    assert [one.states for one in result.schedules] == [{"released": 1}]
    assert {path.name for path in (tmp_path / "audit" / "data").iterdir()} == {result.run}
    assert pipelines.journeys_table(spark, folder, "parts").count() == result.parts
    page = tmp_path / "report.html"
    run("report", "--to", str(page), "--journeys", folder)
    assert "due to released" in page.read_text()
