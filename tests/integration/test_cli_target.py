"""Which cluster a command acts on: one, whichever of its addresses is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from goqueue import Client

from .ports import quiet_port
from .process import Broker
from .waiting import eventually

RUN_SECONDS_MAX = 60
TOPIC, GROUP = "orders", "billing"


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    """Two brokers that have nothing to do with each other."""
    nodes = (
        Broker(tmp_path_factory.mktemp("one"), {"node.cluster_id": "cluster-one"}),
        Broker(tmp_path_factory.mktemp("two"), {"node.cluster_id": "cluster-two"}),
    )
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        for node in nodes:
            node.close()


@pytest.fixture
def goqueue(tmp_path: Path) -> Run:
    def run(*words: str, stdin: str = "", **environment: str) -> Done:
        clean = {name: text for name, text in os.environ.items() if "GOQUEUE" not in name}
        done = subprocess.run(
            [sys.executable, "-m", "goqueue", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=clean | {"GOQUEUE_CLI_CONFIG": str(tmp_path / "contexts.yaml")} | environment,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def filled(pair: tuple[Broker, Broker]) -> Iterator[tuple[Broker, Broker]]:
    """The same topic and queue group on both, with three messages each."""
    for node in pair:
        with Client(node.http) as client:
            client.topics.create(TOPIC)
            client.groups.put_queue(GROUP)
            client.publish_many(TOPIC, ["a", "b", "c"])
            client.queue(TOPIC, group=GROUP).receive(1, wait=5)
    yield pair
    for node in pair:
        with Client(node.http) as client:
            client.groups.delete(GROUP)
            client.topics.delete(TOPIC)


def left(node: Broker) -> int:
    with Client(node.http) as client:
        found = client.queue(TOPIC, group=GROUP).stats()
    return found.ready + found.in_flight


def address(url: str) -> str:
    return url.removeprefix("http://")


def test_the_broker_of_b_is_purged_and_no_other(
    goqueue: Run, filled: tuple[Broker, Broker]
) -> None:
    one, two = filled
    # Somebody who works with `one` names `two` for a single command.
    done = goqueue(
        *("queue", "purge", TOPIC, "-g", GROUP, "--yes", "-b", two.bootstrap),
        GOQUEUE_BOOTSTRAP=one.bootstrap,
        GOQUEUE_HTTP=one.http,
    )
    assert done.code == 0, done.err
    assert (left(one), left(two)) == (3, 0)
    assert "cluster-two" in done.err
    assert address(two.http) in done.err


def test_the_context_of_another_broker_does_not_matter_either(
    goqueue: Run, filled: tuple[Broker, Broker]
) -> None:
    one, two = filled
    goqueue("config", "set-context", "one", "-b", one.bootstrap, "--http", one.http)
    done = goqueue("queue", "purge", TOPIC, "-g", GROUP, "--yes", "-b", two.bootstrap)
    assert done.code == 0, done.err
    assert (left(one), left(two)) == (3, 0)


def test_a_broker_that_is_named_by_http_alone_is_the_one_for_kafka_too(
    goqueue: Run, filled: tuple[Broker, Broker]
) -> None:
    one, two = filled
    done = goqueue(
        *("topic", "delete", TOPIC, "--yes", "--http", two.http), GOQUEUE_BOOTSTRAP=one.bootstrap
    )
    assert done.code == 0, done.err
    assert "cluster-two" in done.err
    with Client(one.http) as client:
        assert client.topics.describe(TOPIC).name == TOPIC
    with Client(two.http) as client:
        assert client.topics.list_all() == []
        client.topics.create(TOPIC)  # for the end of the test


def test_addresses_of_two_clusters_are_refused_before_anything_is_done(
    goqueue: Run, filled: tuple[Broker, Broker]
) -> None:
    one, two = filled
    purge = ("queue", "purge", TOPIC, "-g", GROUP, "--yes")
    done = goqueue(*purge, "-b", one.bootstrap, "--http", two.http)
    assert done.code == 1
    assert "cluster-one" in done.err
    assert "cluster-two" in done.err
    assert "give only one of the two" in done.err
    goqueue("config", "set-context", "both", "-b", one.bootstrap, "--http", two.http)
    assert goqueue(*purge).code == 1
    assert goqueue(*purge, "-c", "both").code == 1
    assert (left(one), left(two)) == (3, 3)


def test_the_question_says_which_cluster_is_meant(
    goqueue: Run, filled: tuple[Broker, Broker]
) -> None:
    one, two = filled
    goqueue("config", "set-context", "second", "-b", two.bootstrap)
    asked = goqueue("topic", "delete", TOPIC, stdin="n\n")
    assert asked.code == 1
    assert f"cluster cluster-two at {two.bootstrap} (context second)" in asked.out
    asked = goqueue("queue", "purge", TOPIC, "-g", GROUP, stdin="n\n", GOQUEUE_HTTP=one.http)
    assert asked.code == 1
    assert f"cluster cluster-one at {address(one.http)}" in asked.out
    assert (left(one), left(two)) == (3, 3)


def test_a_broker_that_is_not_there_is_named(goqueue: Run) -> None:
    nowhere = f"127.0.0.1:{quiet_port()}"
    done = goqueue("queue", "lanes", "orders", "-b", nowhere)
    assert done.code == 1
    assert nowhere in done.err
    assert "goqueue serve" in done.err
    assert "Traceback" not in done.err


def test_a_broker_with_any_port_says_which_it_took(goqueue: Run, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    listen = [word for name in ("kafka", "http", "registry", "sqs")
              for word in (f"--listen-{name}", "127.0.0.1:0")]  # fmt: skip
    node = subprocess.Popen(
        [sys.executable, "-m", "goqueue", "serve", "--data-dir", str(tmp_path / "data"), *listen,
         "--ready-file", str(ready)],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(ready.exists, because="the node serves", within=60)
        found = json.loads(ready.read_text())
        done = goqueue("cluster", "info", "-o", "json", "-b", found["kafka"])
        assert done.code == 0, done.err
        assert json.loads(done.out)["nodes"] == 1
    finally:
        node.kill()
        node.wait()
