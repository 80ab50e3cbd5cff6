"""`goqueue trace` at a real node, as a user types it: into a pipe, and in a terminal."""

from __future__ import annotations

import codecs
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from goqueue import Client

from .process import END_WITH_US, Broker
from .waiting import eventually

RUN_SECONDS_MAX = 60
TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
COLOR = re.compile(r"\x1b\[[0-9;]*m")
Run = Callable[..., str]


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, broker: Broker, *words: str) -> None:
        self._outside, inside = pty.openpty()
        self.process = subprocess.Popen(
            [*END_WITH_US, sys.executable, "-m", "goqueue", "trace", *words],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**os.environ, "TERM": "xterm", "GOQUEUE_HTTP": broker.http, "COLUMNS": "100"},
            start_new_session=True,
        )
        os.close(inside)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""

    @property
    def text(self) -> str:
        """All that was written to the terminal so far."""
        while select.select([self._outside], [], [], 0)[0]:
            try:
                data = os.read(self._outside, 65_536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            self._text += self._decoder.decode(data)
        return self._text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._outside)


@pytest.fixture
def trace(broker: Broker) -> Run:
    """Run a command to its end; what it printed."""

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "goqueue", "trace", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "GOQUEUE_HTTP": broker.http},
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def handled(broker: Broker, unique: str) -> Iterator[str]:
    """A topic with three messages: acknowledged, a dead letter, and waiting."""
    with Client(broker.http) as client:
        client.topics.create(unique, partitions=1)
        client.publish(unique, "12 apples", key="customer-7", headers=HEADERS)
        client.publish(unique, "bad", key="customer-8")
        client.publish(unique, "later", key="customer-7")
        queue = client.queue(unique, group=unique)
        done, bad = queue.receive(2, wait=20)
        queue.ack(done)
        queue.reject(bad, reason="torn")

        def is_recorded() -> bool:
            outcomes = {
                one.outcome
                for offset in range(2)
                for one in client.journeys.get(f"{unique}:0:{offset}").outcomes
            }
            return outcomes == {"acked", "dead"}

        eventually(is_recorded, because="the journeys are recorded")
        yield unique
        client.topics.delete(unique)


def rows(text: str) -> list[dict[str, Any]]:
    parsed: list[dict[str, Any]] = json.loads(text)
    return parsed


def test_messages_are_listed_by_group_and_outcome(trace: Run, handled: str) -> None:
    def listed(*words: str) -> list[str]:
        found = rows(trace("list", "-t", handled, *words, "--output", "json"))
        return [one["message"].rpartition(":")[2] for one in found]

    assert listed() == ["0", "1", "2"]
    assert listed("--group", handled, "--outcome", "acked") == ["0"]
    assert listed("--group", handled, "--outcome", "dead") == ["1"]
    assert listed("--group", "nobody", "--outcome", "acked") == []
    assert listed("--from", "1h", "-n", "1") == ["0"]
    assert listed("--until", "1h") == []
    table = trace("list", "-t", handled, "-g", handled, "--outcome", "dead")
    assert f"{handled}:0:1" in table
    assert "dead" in table


def test_messages_are_found_by_what_is_in_them(trace: Run, handled: str) -> None:
    def found(*words: str) -> list[str]:
        return [one["value"] for one in rows(trace("search", handled, *words, "--output", "json"))]

    assert found("--key", "customer-7") == ["12 apples", "later"]
    assert found("--trace-id", TRACE) == ["12 apples"]
    assert found("--header", f"traceparent={HEADERS['traceparent']}") == ["12 apples"]
    assert found("--header", "traceparent") == ["12 apples"]
    assert found("--text", "app", "--from", "1h") == ["12 apples"]
    assert found("--key", "nobody") == []


def test_events_are_counted_and_one_journey_is_shown(trace: Run, handled: str) -> None:
    counts = {
        (one["what"], one["group"]): one["messages"]
        for one in rows(trace("stats", handled, "--output", "json"))
    }
    assert counts["received", ""] == counts["stored", ""] == 3
    assert counts["acked", handled] == counts["dead lettered", handled] == 1
    journey = json.loads(trace("get", f"{handled}:0:1", "--output", "json"))
    kinds = [one["kind"] for one in journey["entries"]]
    assert kinds[:5] == ["received", "stored", "delivered", "rejected", "dead_lettered"]
    plain = trace("get", f"{handled}:0:1")
    assert "torn" in plain
    assert "\x1b" not in plain


def test_a_terminal_gets_a_timeline_in_colors(broker: Broker, handled: str) -> None:
    terminal = Terminal(broker, "get", f"{handled}:0:0")
    try:
        assert terminal.process.wait(RUN_SECONDS_MAX) == 0
        drawn = terminal.text
    finally:
        terminal.close()
    assert COLOR.search(drawn)
    lines = COLOR.sub("", drawn).splitlines()
    assert lines[0] == f"{handled}:0:0"
    for what in ("received", "stored", "delivered", "acked"):
        assert any(what in line for line in lines), what


def test_what_happens_is_followed_until_ctrl_c(broker: Broker, handled: str) -> None:
    terminal = Terminal(broker, "follow", "--topic", handled)
    try:
        with Client(broker.http) as client:

            def is_shown() -> bool:
                client.publish(handled, "more")
                assert terminal.process.poll() is None, terminal.text
                return "received" in terminal.text

            eventually(is_shown, because="an event is shown as it is recorded")
        assert f"{handled}:0:" in terminal.text
        terminal.process.send_signal(signal.SIGINT)
        terminal.process.wait(RUN_SECONDS_MAX)
        assert "Traceback" not in terminal.text
    finally:
        terminal.close()
