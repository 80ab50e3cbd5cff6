"""Groups of both kinds in the command line: one name space, and no setting is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from goqueue import Client
from goqueue.model.errors import UnknownGroup

from .process import Broker
from .sharing import share_consumer
from .waiting import eventually

RUN_SECONDS_MAX = 60


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


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
    environment = os.environ | {
        "GOQUEUE_BOOTSTRAP": broker.bootstrap,
        "GOQUEUE_CLI_CONFIG": str(tmp_path / "contexts.yaml"),
    }
    environment.pop("GOQUEUE_HTTP", None)

    def run(*words: str, stdin: str = "") -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "goqueue", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def queue_group(api: Client, topic: str, group: str) -> Iterator[str]:
    """A queue group with one message in flight and one ready."""
    api.publish_many(topic, ["a", "b"])
    api.queue(topic, group=group).receive(1, wait=5)
    yield group
    if group in [one.name for one in api.groups.list_all()]:
        api.groups.delete(group)


@pytest.fixture
def stream_group(api: Client, topic: str, group: str) -> str:
    """A stream group that has still to read two records."""
    api.publish_many(topic, ["a", "b"])
    api.groups.put_stream(group, [topic])
    return group


def test_configuring_changes_what_is_named_and_shows_the_result(goqueue: Run, group: str) -> None:
    made = goqueue("queue", "configure", group, "--config", "visibility_ms=90s")
    assert made.code == 0, made.err
    goqueue("queue", "configure", group, "--config", "deliveries_max=7")
    shown = goqueue("queue", "configure", group, "--config", "start=latest", "-o", "json")
    settings = json.loads(shown.out)["settings"]
    assert (settings["visibility_ms"], settings["deliveries_max"]) == (90_000, 7)
    assert settings["start"] == "latest"
    back = goqueue("queue", "configure", group, "--unset", "deliveries_max")
    lines = [line.split() for line in back.out.splitlines()]
    assert ["deliveries_max", "3"] in lines
    assert ["visibility_ms", "90000"] in lines
    described = json.loads(goqueue("queue", "describe", group, "-o", "json").out)
    assert described["settings"]["visibility_ms"] == 90_000
    assert goqueue("queue", "delete", group, "--yes").code == 0


def test_a_setting_that_is_wrong_changes_nothing(goqueue: Run, api: Client, group: str) -> None:
    goqueue("queue", "configure", group, "--config", "visibility_ms=90s")
    for words, text in (
        (["--config", "start=never"], "earliest, latest"),
        (["--config", "visibilty_ms=1s"], "visibility_ms"),
        (["--unset", "visibilty_ms"], "visibility_ms"),
        (["--config", "visibility_ms=50h"], "43200000"),
    ):
        refused = goqueue("queue", "configure", group, *words)
        assert refused.code == 1
        assert text in refused.err
        assert "Traceback" not in refused.err
    found = api.groups.describe(group)
    assert found.settings.visibility_ms == 90_000  # type: ignore[union-attr]
    api.groups.delete(group)


def test_changes_at_the_same_time_are_all_kept(api: Client, group: str) -> None:
    api.groups.put_queue(group, {"delay_ms": 5})
    changes = {
        "visibility_ms": 61_000,
        "deliveries_max": 9,
        "backoff_ms": 11,
        "unacked_max": 12,
        "retrying_max": 13,
        "parked_max": 14,
        "key_order": True,
        "dead_letter_topic": "aside",
    }
    with ThreadPoolExecutor(len(changes)) as pool:
        for done in [pool.submit(api.groups.configure_queue, group, {one: value})
                     for one, value in changes.items()]:  # fmt: skip
            done.result()
    found = api.groups.put_queue(group)  # without settings it changes nothing
    assert {one: getattr(found.settings, one) for one in changes} == changes
    assert found.settings.delay_ms == 5
    back = api.groups.configure_queue(group, {"visibility_ms": None})
    assert (back.settings.visibility_ms, back.settings.backoff_ms) == (30_000, 11)
    with pytest.raises(UnknownGroup):
        api.groups.configure_queue(f"{group}-other", {"delay_ms": 5})
    api.groups.delete(group)


def test_queue_groups_are_listed_described_and_deleted(
    goqueue: Run, api: Client, topic: str, queue_group: str
) -> None:
    listed = goqueue("queue", "list")
    assert listed.code == 0, listed.err
    assert [queue_group, topic, "2"] in [line.split() for line in listed.out.splitlines()]
    described = goqueue("queue", "describe", queue_group)
    assert described.code == 0, described.err
    assert "deliveries_max" in described.out
    assert [topic, "1", "1", "0", "0", "0"] in [line.split() for line in described.out.splitlines()]
    asked = goqueue("queue", "delete", queue_group, stdin="n\n")
    assert asked.code == 1
    assert "2 unsettled messages" in asked.out
    assert goqueue("queue", "delete", queue_group, "--yes").code == 0
    assert queue_group not in [one.name for one in api.groups.list_all()]
    gone = goqueue("queue", "delete", queue_group, "--yes")
    assert (gone.code, gone.err.splitlines()[-1]) == (1, f"Group '{queue_group}' does not exist.")


def test_group_commands_know_queue_groups(
    goqueue: Run, api: Client, topic: str, queue_group: str
) -> None:
    rows = json.loads(goqueue("group", "list", "-o", "json").out)
    assert {"group": queue_group, "kind": "queue", "state": None} in [
        {name: row[name] for name in ("group", "kind", "state")} for row in rows
    ]
    assert "queue group" in goqueue("group", "describe", queue_group).out
    lag = json.loads(goqueue("group", "lag", queue_group, "-o", "json").out)
    assert (lag["kind"], lag["total_lag"]) == ("queue", 2)
    assert goqueue("group", "lag", queue_group).out.splitlines()[-1] == "Total lag: 2"
    assert goqueue("group", "delete", queue_group, "--yes").code == 0
    assert queue_group not in [one.name for one in api.groups.list_all()]


def test_every_group_is_listed_once_with_its_kind(
    goqueue: Run, api: Client, topic: str, queue_group: str
) -> None:
    stream_group = f"{queue_group}-stream"
    api.groups.put_stream(stream_group, [topic])
    rows = json.loads(goqueue("group", "list", "-o", "json").out)
    kinds = [(row["group"], row["kind"]) for row in rows]
    assert len(kinds) == len({name for name, _ in kinds})
    assert {(queue_group, "queue"), (stream_group, "stream")} <= set(kinds)


def test_share_consumers_are_shown_with_their_group(
    goqueue: Run, broker: Broker, topic: str, group: str
) -> None:
    def listed() -> dict[str, object]:
        rows = json.loads(goqueue("group", "list", "-o", "json").out)
        [found] = [row for row in rows if row["group"] == group]
        return dict(found)

    with share_consumer(broker.bootstrap, group, topic, client_id="till-4") as consumer:
        eventually(lambda: consumer.poll(0.2) or goqueue("group", "describe", group).code == 0)
        assert listed() == {"group": group, "kind": "queue", "protocol": "share", "state": "Stable"}
        tree = json.loads(goqueue("group", "describe", group, "-o", "json").out)
        assert (tree["kind"], tree["state"]) == ("queue", "Stable")
        [member] = tree["members"]
        assert (member["client"], member["partitions"]) == ("till-4", [f"{topic}/0"])
        table = goqueue("group", "describe", group).out
        assert f"{group}: queue group, 1 topic, stable, 1 share consumer" in table
        assert f"{topic}/0" in table
        assert "till-4" in goqueue("queue", "describe", group).out
    assert listed() == {"group": group, "kind": "queue", "protocol": None, "state": None}
    tree = json.loads(goqueue("group", "describe", group, "-o", "json").out)
    assert (tree["state"], tree["members"]) == (None, [])


def test_the_wrong_kind_is_answered_with_the_right_command(
    goqueue: Run, api: Client, topic: str, queue_group: str
) -> None:
    before = api.queue(topic, group=queue_group).stats().totals
    for words, instead in (
        (["group", "reset", queue_group, "--topic", topic, "--to-earliest"], "queue rewind"),
        (["group", "reset-offsets", queue_group, "--topic", topic, "--to-latest"], "queue rewind"),
        (["group", "offsets", queue_group], "queue stats"),
        (["consume", topic, "--group", queue_group], "queue receive"),
    ):
        refused = goqueue(*words)
        assert refused.code == 1
        assert f"{queue_group!r} is a queue group" in refused.err
        assert f"goqueue {instead}" in refused.err
    assert api.queue(topic, group=queue_group).stats().totals == before


def test_queue_commands_refuse_stream_groups(
    goqueue: Run, api: Client, topic: str, stream_group: str
) -> None:
    for words, instead in (
        (["queue", "receive", topic, "-g", stream_group], "goqueue consume"),
        (["queue", "configure", stream_group, "--config", "visibility_ms=1s"], "another name"),
        (["queue", "describe", stream_group], "goqueue group describe"),
        (["queue", "delete", stream_group, "--yes"], "goqueue group delete"),
        (["queue", "stats", topic, "-g", stream_group], "goqueue group lag"),
        (["queue", "purge", topic, "-g", stream_group, "--yes"], "goqueue group reset"),
        (["queue", "rewind", topic, "-g", stream_group, "--to", "latest"], "goqueue group reset"),
    ):
        refused = goqueue(*words)
        assert refused.code == 1
        assert f"{stream_group!r} is a stream group" in refused.err
        assert instead in refused.err
    lag = json.loads(goqueue("group", "lag", stream_group, "-o", "json").out)
    assert (lag["kind"], lag["total_lag"]) == ("stream", 2)
    assert api.groups.lag(stream_group).lag == 2
