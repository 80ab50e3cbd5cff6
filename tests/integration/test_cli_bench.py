"""`goqueue bench` against a node: figures for people and programs, and nothing left behind."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from goqueue.cli.main import app
from goqueue.client import LogClient


def run(bootstrap: str, *arguments: str) -> list[dict[str, float]]:
    done = CliRunner().invoke(app, ["bench", *arguments, "-b", bootstrap, "-o", "json"])
    assert done.exit_code == 0, done.output
    rows: list[dict[str, float]] = json.loads(done.stdout)
    return rows


def test_produce_and_consume_count_what_was_acknowledged(bootstrap: str) -> None:
    (produced,) = run(bootstrap, "produce", "--count", "2000", "--size", "200")
    assert produced["messages"] == 2_000
    assert produced["messages_per_s"] > 0
    filled, consumed = run(bootstrap, "consume", "--count", "2000", "--size", "200")
    assert (filled["messages"], consumed["messages"]) == (2_000, 2_000)


def test_an_existing_topic_is_read_and_stays(bootstrap: str, topic: str) -> None:
    run(bootstrap, "produce", "--count", "50", "--topic", topic)
    (consumed,) = run(bootstrap, "consume", "--topic", topic)
    assert consumed["messages"] == 50


@pytest.mark.timeout(180)
def test_a_queue_delivers_every_message_once_to_several_consumers(bootstrap: str) -> None:
    published, acknowledged = run(bootstrap, "queue", "--count", "500", "--consumers", "3")
    assert published["messages"] == 500
    assert acknowledged["messages"] == 500


def test_latencies_are_those_of_all_messages(bootstrap: str) -> None:
    rows = run(bootstrap, "latency", "--rate", "100", "--seconds", "1")
    for row in rows:
        assert row["messages"] == 100
        assert 0 < row["min_ms"] <= row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]


def test_topics_of_a_benchmark_are_deleted(bootstrap: str) -> None:
    run(bootstrap, "produce", "--count", "10")
    with LogClient(bootstrap) as client:
        assert not [one for one in client.topics.list_all() if one.name.startswith("bench-")]
