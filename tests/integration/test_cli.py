"""The `goqueue` command against a real broker, as a user types it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import NewTopicName
from .members import COOPERATIVE, Member, settle
from .ports import quiet_port

RUN_SECONDS_MAX = 60


@dataclass(frozen=True)
class Done:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def table(self) -> list[list[str]]:
        """The cells below the headings."""
        return [line.split() for line in self.lines[1:] if line]


GoQueue = Callable[..., Done]


@pytest.fixture
def environment(bootstrap: str, tmp_path: Path) -> dict[str, str]:
    contexts = str(tmp_path / "contexts.yaml")
    return os.environ | {"GOQUEUE_BOOTSTRAP": bootstrap, "GOQUEUE_CLI_CONFIG": contexts}


@pytest.fixture
def goqueue(environment: dict[str, str]) -> GoQueue:
    """Run a command to its end: `goqueue("topic", "list")`."""

    def run(*words: str, stdin: str = "", code: int = 0) -> Done:
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
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def start(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "goqueue", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


# Topics


@pytest.mark.on_cluster
def test_a_topic_is_created_shown_changed_and_deleted(
    goqueue: GoQueue, unique: str, copies: int
) -> None:
    made = goqueue("topic", "create", unique, "-p", "2", "--config", "retention_ms=1h")
    assert made.out == f"Topic {unique} is created, with 2 partitions.\n"
    assert [unique, "2", str(copies), "no"] in goqueue("topic", "list").table
    goqueue(
        "topic", "configure", unique, "--config", "segment.bytes=1MiB", "--unset", "retention_ms"
    )
    goqueue("topic", "grow", unique, "-p", "3")
    found = goqueue("topic", "describe", unique, "-o", "json").json
    assert [each["partition"] for each in found["partitions"]] == [0, 1, 2]
    own = {
        each["setting"]: each["value"] for each in found["settings"] if each["source"] == "topic"
    }
    assert own == {"segment.bytes": "1048576"}
    assert goqueue("topic", "delete", unique, "--yes").out == f"Topic {unique} is deleted.\n"
    assert unique not in goqueue("topic", "list").out


def test_deleting_asks_first(goqueue: GoQueue, topic: str) -> None:
    refused = goqueue("topic", "delete", topic, stdin="n\n", code=1)
    assert f"Delete topic {topic} and its 0 records on cluster " in refused.out
    assert topic in goqueue("topic", "list").out


def test_a_description_for_people_has_partitions_and_settings(
    goqueue: GoQueue, topic: str, copies: int
) -> None:
    goqueue("produce", topic, "-m", "hello")
    lines = goqueue("topic", "describe", topic).lines
    replicas = f"{copies} replica{'s' if copies > 1 else ''}"
    assert lines[0].startswith(f"{topic}: 1 partition, {replicas}, 1 record, ")
    assert lines[2].split()[:2] == ["PARTITION", "LEADER"]
    assert any(line.split() == ["cleanup.policy", "delete", "default"] for line in lines)


def test_internal_topics_are_listed_on_request(goqueue: GoQueue, topic: str, group: str) -> None:
    goqueue("produce", topic, "-m", "a")
    goqueue("consume", topic, "--group", group)
    assert "__consumer_offsets" not in goqueue("topic", "list").out
    assert "__consumer_offsets" in goqueue("topic", "list", "--internal").out


# Messages


def test_a_message_is_told_its_place(goqueue: GoQueue, new_topic: NewTopicName) -> None:
    topic = new_topic(partitions=2)
    done = goqueue("produce", topic, "-m", "hello", "-k", "a", "-p", "1", "-H", "trace=7")
    assert done.out == f"Stored in {topic}/1 at offset 0.\n"
    (found,) = map(json.loads, goqueue("consume", topic, "--format", "json").lines)
    assert (found["partition"], found["offset"]) == (1, 0)
    assert (found["key"], found["value"]) == ("a", "hello")
    assert found["headers"] == [{"name": "trace", "value": "7"}]


def test_lines_with_keys_become_messages(goqueue: GoQueue, topic: str, tmp_path: Path) -> None:
    lines = "".join(f"key-{number}:value-{number}\n" for number in range(20))
    goqueue("produce", topic, "--key-separator", ":", stdin=lines)
    file = tmp_path / "more.txt"
    file.write_text("key-20:value-20\n")
    goqueue("produce", topic, "--key-separator", ":", "-f", str(file), "--compression", "zstd")
    done = goqueue("consume", topic, "--template", r"%k:%s\n")
    assert done.out == lines + "key-20:value-20\n"


def test_a_load_test_reports_its_rate(goqueue: GoQueue, topic: str) -> None:
    done = goqueue("produce", topic, "--count", "5000", "--size", "64", "-o", "yaml")
    report = yaml.safe_load(done.out)
    assert (report["messages"], report["bytes"]) == (5_000, 320_000)
    assert goqueue("consume", topic, "--template", r"%S\n").lines == ["64"] * 5_000


def test_parts_of_a_topic_are_read_by_offset_time_and_count(
    goqueue: GoQueue, new_topic: NewTopicName
) -> None:
    topic = new_topic(**{"retention.ms": "-1"})
    for day, text in enumerate("abcde", start=1):
        goqueue("produce", topic, "-m", text, "--timestamp", f"2020-01-0{day}T00:00:00Z")
    assert goqueue("consume", topic, "--from", "1", "--until", "3").lines == ["b", "c"]
    assert goqueue("consume", topic, "--from", "2020-01-04").lines == ["d", "e"]
    assert goqueue("consume", topic, "--until", "2020-01-02T00:00:00Z").lines == ["a"]
    assert goqueue("consume", topic, "-n", "2").lines == ["a", "b"]
    assert goqueue("consume", topic, "--from", "1h").lines == []


def test_following_prints_what_comes_and_ends_well_on_ctrl_c(
    goqueue: GoQueue, environment: dict[str, str], topic: str
) -> None:
    goqueue("produce", topic, "-m", "first")
    with start(environment, "consume", topic, "--follow", "--from", "earliest") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n"
        goqueue("produce", topic, "-m", "second")
        assert follower.stdout.readline() == "second\n"
        follower.send_signal(signal.SIGINT)
        rest, complaint = follower.communicate(timeout=RUN_SECONDS_MAX)
        assert (rest, complaint, follower.returncode) == ("", "", 0)


def test_a_reader_that_has_seen_enough_is_not_complained_about(
    goqueue: GoQueue, environment: dict[str, str], topic: str
) -> None:
    goqueue("produce", topic, "--count", "20000", "--size", "100")
    with start(environment, "consume", topic, "--format", "json") as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        writer.stdout.readline()
        writer.stdout.close()
        assert writer.stderr.read() == ""
        assert writer.wait(RUN_SECONDS_MAX) == 0


# Groups


def test_a_group_goes_on_where_it_stopped(goqueue: GoQueue, topic: str, group: str) -> None:
    goqueue("produce", topic, stdin="a\nb\nc\nd\n")
    assert goqueue("consume", topic, "--group", group, "-n", "3").lines == ["a", "b", "c"]
    lag = goqueue("group", "lag", group, "-o", "json").json
    assert (lag["total_lag"], lag["partitions"][0]["committed"]) == (1, 3)
    assert goqueue("consume", topic, "--group", group).lines == ["d"]
    assert goqueue("group", "lag", group).lines[-1] == "Total lag: 0"
    assert [group, "stream", "classic", "Empty"] in goqueue("group", "list").table
    assert goqueue("group", "offsets", group).table == [[topic, "0", "4", "-"]]


def test_offsets_are_reset_in_every_way(
    goqueue: GoQueue, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(**{"retention.ms": "-1"})
    for day in range(1, 6):
        goqueue("produce", topic, "-m", str(day), "--timestamp", f"2020-01-0{day}T00:00:00Z")

    def reset(*words: str) -> list[str]:
        (row,) = goqueue(
            "group", "reset-offsets", group, "--topic", topic, *words, "-o", "json"
        ).json
        return [row["before"], row["after"]]

    assert reset("--to-latest") == [None, 5]
    assert reset("--to-earliest", "--dry-run") == [5, 0]
    assert reset("--shift-by", "-2") == [5, 3]
    assert reset("--shift-by", "-99") == [3, 0]
    assert reset("--to-offset", "2", "-p", "0") == [0, 2]
    assert reset("--to-timestamp", "2020-01-04T00:00:00Z") == [2, 3]
    assert reset("--by-duration", "2h") == [3, 5]
    assert reset("--to-offset", "99") == [5, 5]


def test_a_group_with_members_is_not_moved(
    goqueue: GoQueue, bootstrap: str, topic: str, group: str
) -> None:
    sentence = f"Group '{group}' has members; stop them first.\n"
    with Member(bootstrap, group, [topic], COOPERATIVE, client_id="reader") as member:
        settle([member], topic, 1)
        moved = goqueue("group", "reset-offsets", group, "--topic", topic, "--to-latest", code=1)
        assert moved.err == sentence
        assert goqueue("group", "delete", group, "--yes", code=1).err.endswith(sentence)
        assert goqueue("consume", topic, "--group", group, code=1).err == sentence
        described = goqueue("group", "describe", group)
        assert described.lines[0].startswith(f"{group}: stable, classic, assignor")
        assert described.lines[-1].endswith(f"{topic}/0")
        (row,) = goqueue("group", "lag", group, "-o", "json").json["partitions"]
        assert (row["member"], row["host"]) == (member.member_id, "127.0.0.1")


def test_a_group_is_deleted(goqueue: GoQueue, topic: str, group: str) -> None:
    goqueue("produce", topic, "-m", "a")
    goqueue("consume", topic, "--group", group)
    assert goqueue("group", "delete", group, "--yes").out == f"Group {group} is deleted.\n"
    assert goqueue("group", "lag", group, code=1).err == f"Group '{group}' does not exist.\n"


# Errors


def test_a_missing_broker_is_answered_with_what_to_do(goqueue: GoQueue) -> None:
    address = f"127.0.0.1:{quiet_port()}"
    for words in (
        ["topic", "list"],
        ["consume", "t"],
        ["group", "list"],
        ["produce", "t", "-m", "a"],
    ):
        done = goqueue(*words, "-b", address, code=1)
        assert done.out == ""
        assert done.err.startswith(
            f"No broker answers at {address}; start one with `goqueue serve`"
        )
        assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["topic", "describe", "no-such"], "Topic 'no-such' does not exist; create it first."),
        (["consume", "no-such"], "Topic 'no-such' does not exist; create it first."),
        (["topic", "create", "a b"], "Topic name 'a b' is not allowed"),
        (["topic", "create", "ok", "--config", "nope=1"], "nope"),
        (["topic", "configure", "ok"], "Nothing to change"),
        (["group", "describe", "no-such"], "Group 'no-such' does not exist."),
        (["group", "reset-offsets", "g", "--topic", "t"], "Give exactly one of"),
        (["consume", "t", "--from", "then"], "'then' is not a position"),
        (["produce", "t", "--acks", "some"], "--acks some is unknown"),
        (["produce", "t", "-f", "/no/such/file"], "/no/such/file cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_error_is_one_sentence(goqueue: GoQueue, words: list[str], sentence: str) -> None:
    done = goqueue(*words, code=1)
    assert done.out == ""
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.single_node("starts nodes that cannot run")
def test_an_address_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "goqueue", "serve", "--data-dir", str(tmp_path)),
                *("--listen-kafka", f"127.0.0.1:{port}", "--listen-http", "127.0.0.1:0"),
            ],
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"listeners.kafka: 127.0.0.1:{port} is in use by another")
