"""Share consumers of Java and of Go, and Kafka's own tool for share groups."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from bench.peers import PeerUnavailable
from tests.judge.share_clients import CLIENTS
from tests.judge.tools import run_tool

from .conftest import NewTopicName
from .sharing import commit, configure, fill, received, share_consumer
from .waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "GOQUEUE_TEST_TOOLS" not in os.environ,
        reason="`make judge-share` runs these clients, which Maven and Go fetch",
    ),
]
STORY_SECONDS_MAX = 90


@pytest.mark.parametrize("name", CLIENTS)
def test_records_are_settled_in_every_way(
    name: str, bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    try:
        command = CLIENTS[name]()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    topic = new_topic()
    configure(bootstrap, unique, share_auto_offset_reset="earliest")
    fill(bootstrap, topic, [str(number) for number in range(10)])
    done = subprocess.run(
        [*command, bootstrap, unique, topic, "story"],
        check=False,
        capture_output=True,
        text=True,
        timeout=STORY_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert json.loads(done.stdout) == {
        "first": {str(number): 1 for number in range(10)},
        "second": {"5": 2, "6": 2, "7": 2},
        "refused": 0,
    }


def share_groups(bootstrap: str, *arguments: str) -> str:
    done = run_tool("kafka-share-groups", "--bootstrap-server", bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tool_lists_describes_moves_and_deletes_groups(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    configure(bootstrap, unique, share_auto_offset_reset="earliest")
    fill(bootstrap, topic, ["a", "b", "c"])
    named = ("--group", unique)
    with share_consumer(bootstrap, unique, topic) as consumer:
        for one in eventually(lambda: received(consumer)):
            consumer.acknowledge(one)
        commit(consumer)
        assert unique in share_groups(bootstrap, "--list").split()
        assert "Stable" in share_groups(bootstrap, "--describe", "--state", *named)
        assert f"{topic}:0" in share_groups(bootstrap, "--describe", "--members", *named)
        offsets = share_groups(bootstrap, "--describe", "--offsets", *named)
        assert topic in offsets
    moved = share_groups(
        bootstrap, "--reset-offsets", "--to-earliest", "--topic", topic, "--execute", *named
    )
    assert topic in moved
    with share_consumer(bootstrap, unique, topic) as consumer:
        again = eventually(lambda: received(consumer))
        assert len(again) == 3
        for one in again:
            consumer.acknowledge(one)
        commit(consumer)
    assert topic in share_groups(bootstrap, "--delete-offsets", "--topic", topic, *named)
    share_groups(bootstrap, "--delete", *named)
    assert unique not in share_groups(bootstrap, "--list").split()


def test_the_tool_sets_and_shows_the_settings_of_a_group(bootstrap: str, unique: str) -> None:
    entity = ("--entity-type", "groups", "--entity-name", unique)
    change = ("--alter", "--add-config", "share.record.lock.duration.ms=20000")
    for arguments in (change, ("--describe",)):
        done = run_tool("kafka-configs", "--bootstrap-server", bootstrap, *entity, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "share.record.lock.duration.ms=20000" in done.stdout
