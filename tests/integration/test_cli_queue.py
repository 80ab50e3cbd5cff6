"""`goqueue queue`, `schedule` and the attributes of `produce`, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from goqueue import Client
from goqueue.model.errors import UnknownTopic

from .ports import quiet_port
from .process import Broker
from .waiting import eventually

RUN_SECONDS_MAX = 60
Run = Callable[..., str]


@pytest.fixture
def api(broker: Broker) -> Iterator[Client]:
    with Client(broker.http) as client:
        yield client


@pytest.fixture
def topic(api: Client, unique: str) -> Iterator[str]:
    api.topics.create(unique)
    yield unique
    api.topics.delete(unique)


@pytest.fixture
def goqueue(broker: Broker, tmp_path: Path) -> Run:
    """Run a command to its end; what it printed, or with another code what it complained about."""
    environment = os.environ | {
        "GOQUEUE_BOOTSTRAP": broker.bootstrap,
        "GOQUEUE_HTTP": broker.http,
        "GOQUEUE_CLI_CONFIG": str(tmp_path / "contexts.yaml"),
    }

    def run(*words: str, code: int = 0, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "goqueue", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return run


def rows(text: str) -> list[dict[str, Any]]:
    parsed: list[dict[str, Any]] = json.loads(text)
    return parsed


def test_messages_are_received_and_settled(goqueue: Run, topic: str, group: str) -> None:
    assert goqueue("queue", "receive", topic, "-g", group) == "No message is available now.\n"
    goqueue("produce", topic, *(word for number in range(5) for word in ("-m", str(number))))
    received = rows(goqueue("queue", "receive", topic, "-g", group, "--wait", "5s", "-o", "json"))
    assert [one["value"] for one in received] == ["0", "1", "2", "3", "4"]
    receipts = [one["receipt"] for one in received]
    out = goqueue("queue", "ack", receipts[0], receipts[1], "-g", group)
    assert out == "Acknowledged 2 messages.\n"
    assert goqueue("queue", "nack", receipts[2], "-g", group, "--delay", "0s") == (
        "Returned 1 message.\n"
    )
    assert goqueue("queue", "extend", receipts[3], "-g", group, "--visibility", "1m") == (
        "Extended 1 message.\n"
    )
    assert goqueue("queue", "reject", receipts[4], "-g", group, "--reason", "torn") == (
        "Rejected 1 message.\n"
    )
    assert goqueue("queue", "ack", receipts[0], "-g", group) == "Acknowledged 1 message.\n"
    error = goqueue("queue", "ack", receipts[2], "-g", group, code=1)
    assert "no longer leased under this receipt" in error
    again = goqueue("queue", "receive", topic, "-g", group, "--ack", "--wait", "5s")
    assert again.splitlines()[-1] == "Acknowledged 1 message."


def test_a_queue_is_looked_at_rewound_and_purged(goqueue: Run, topic: str, group: str) -> None:
    goqueue("produce", topic, "-m", "one", "-m", "two")
    goqueue("queue", "receive", topic, "-g", group, "-n", "1", "--consumer", "me", "--wait", "5s")
    peeked = rows(goqueue("queue", "peek", topic, "-g", group, "-o", "json"))
    assert [(one["value"], one["state"], one["consumer"]) for one in peeked] == [
        ("one", "leased", "me"),
        ("two", "ready", None),
    ]
    stats = yaml.safe_load(goqueue("queue", "stats", topic, "-g", group, "-o", "yaml"))
    assert (stats["ready"], stats["in_flight"], stats["totals"]["delivered"]) == (1, 1, 1)
    shown = goqueue("queue", "stats", topic, "-g", group)
    assert shown.startswith(f"{group} in {topic}: 1 ready, 1 in flight")
    moved = goqueue("queue", "rewind", topic, "-g", group, "--offset", "0:1", "-o", "json")
    assert rows(moved) == [{"partition": 0, "goes_on_at": 1}]
    goqueue("queue", "rewind", topic, "-g", group, "--to", "earliest")
    assert "Give the target" in goqueue("queue", "rewind", topic, "-g", group, code=1)
    assert "Aborted" in goqueue("queue", "purge", topic, "-g", group, stdin="n\n", code=1)
    goqueue("queue", "purge", topic, "-g", group, "--yes")
    assert goqueue("queue", "receive", topic, "-g", group) == "No message is available now.\n"


def test_dead_letters_are_shown_and_brought_back(
    goqueue: Run, api: Client, topic: str, group: str
) -> None:
    assert "has no dead letters" in goqueue("queue", "dead-letters", topic)
    assert goqueue("queue", "redrive", topic) == f"Topic {topic} has no dead letters.\n"
    with pytest.raises(UnknownTopic, match="created with the first dead letter"):
        api.dead_letters(topic).redrive()
    api.publish_many(topic, ["a", "b", "c"])
    queue = api.queue(topic, group=group)
    for message in queue.receive(10, wait=5):
        queue.reject(message, reason="odd" if message.text == "b" else "torn")
    eventually(lambda: api.dead_letters(topic).list_page().total == 3, because="all three are dead")
    letters = rows(goqueue("queue", "dead-letters", topic, "--reason", "torn", "-o", "json"))
    assert [(one["value"], one["group"]) for one in letters] == [("a", group), ("c", group)]
    found = goqueue("queue", "redrive", topic, "--reason", "torn", "--dry-run", "-o", "json")
    assert json.loads(found)["matching"] == 2
    out = goqueue("queue", "redrive", topic, "--reason", "torn")
    assert out.endswith("is done: 2 messages moved back.\n")
    jobs = rows(goqueue("queue", "redrives", topic, "-o", "json"))
    assert [(one["state"], one["moved"]) for one in jobs] == [("done", 2)]
    assert "has ended" in goqueue("queue", "cancel-redrive", topic, jobs[0]["id"], code=1)
    assert {one.text for one in queue.receive(10, wait=5)} == {"a", "c"}
    api.topics.delete(f"{topic}.dlq")


def test_groups_and_lanes(goqueue: Run, topic: str, group: str) -> None:
    settings = goqueue(
        "queue",
        "configure",
        group,
        "--config",
        "visibility_ms=1m",
        "--config",
        "key_order=true",
        "-o",
        "json",
    )
    made = json.loads(settings)["settings"]
    assert (made["visibility_ms"], made["key_order"]) == (60_000, True)
    error = goqueue("queue", "configure", group, "--config", "visibility_ms=0", code=1)
    assert "visibility_ms" in error
    goqueue("produce", topic, "-m", "now", "--priority", "critical", "--ttl", "1h")
    goqueue("queue", "receive", topic, "--group", group)
    shown = json.loads(goqueue("queue", "lanes", topic, "-o", "json"))
    assert {one["lane"]: one["stored"] for one in shown["lanes"]}["critical"] == 1
    (figures,) = (one["lanes"] for one in shown["groups"] if one["group"] == group)
    assert {one["lane"]: one["out_per_second"] > 0 for one in figures}["critical"]
    table = goqueue("queue", "lanes", topic)
    assert group in table
    assert "OUT_PER_SECOND" in table


def test_a_message_is_scheduled_shown_moved_and_cancelled(
    goqueue: Run, api: Client, topic: str
) -> None:
    out = goqueue("produce", topic, "-m", "later", "-k", "key", "--delay", "1h")
    assert out.startswith(f"Scheduled for {topic}, at ")
    goqueue("produce", topic, "-m", "much later", "--at", "2040-01-01T00:00:00Z")
    listed = rows(goqueue("schedule", "list", "--topic", topic, "-o", "json"))
    assert [one["deliver_at"] for one in listed][1] == "2040-01-01T00:00:00.000Z"
    assert goqueue("schedule", "count", "--topic", topic) == "2\n"
    assert goqueue("schedule", "count", "--topic", topic, "--until", "2h") == "1\n"
    first = listed[0]["id"]
    shown = json.loads(goqueue("schedule", "show", first, "-o", "json"))
    assert (shown["value"], shown["key"], shown["topic"]) == ("later", "key", topic)
    moved = goqueue("schedule", "reschedule", first, "--at", "2041-01-01T00:00:00Z")
    assert moved == f"Schedule {first} is due at 2041-01-01T00:00:00.000Z.\n"
    assert "Give the new time" in goqueue("schedule", "reschedule", first, code=1)
    both = [one["id"] for one in listed]
    assert goqueue("schedule", "cancel", *both).count("is cancelled.") == 2
    assert "No message is scheduled" in goqueue("schedule", "show", first, code=1)
    assert "cancelled" in goqueue("schedule", "stats")
    assert list(api.read(topic)) == []


def test_attributes_reach_the_message(goqueue: Run, api: Client, topic: str, group: str) -> None:
    queue = api.queue(topic, group=group)
    assert queue.receive(1) == []  # The group is there from now on.
    goqueue("produce", topic, "-m", "low", "--priority", "low")
    goqueue("produce", topic, "-m", "high", "--priority", "high", "--ttl", "1h", "-H", "a=b")
    eventually(lambda: queue.stats().ready == 2)
    first = queue.receive(1, wait=5)[0]
    assert (first.text, first.priority) == ("high", "high")
    assert dict(first.headers) == {
        "a": b"b",
        "goqueue-priority": b"high",
        "goqueue-ttl-ms": b"3600000",
    }


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--priority", "urgent"), "send one of critical, high"),
        (("--delay", "1h", "--at", "2040-01-01T00:00:00Z"), "--delay or --at, not both"),
        (("--delay", "soon"), "soon"),
    ],
)
def test_attributes_that_make_no_sense_are_refused(
    goqueue: Run, topic: str, words: tuple[str, ...], complaint: str
) -> None:
    assert complaint in goqueue("produce", topic, "-m", "x", *words, code=1)


def test_a_missing_broker_is_answered_with_what_to_do(goqueue: Run) -> None:
    address = f"127.0.0.1:{quiet_port()}"
    error = goqueue("schedule", "count", "--http", address, code=1)
    assert error == (
        f"No broker answers HTTP at {address}; start one with `goqueue serve` (or `make serve`), "
        "or name another with --http HOST:PORT.\n"
    )


@pytest.mark.on_cluster
def test_the_address_of_a_context_is_used(goqueue: Run, broker: Broker, topic: str) -> None:
    goqueue("config", "set-context", "here", "--http", broker.http)
    assert goqueue("schedule", "count", "-c", "here", "--topic", topic) == "0\n"
