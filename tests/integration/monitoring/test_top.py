"""`goqueue top` in a real terminal, at a real node."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from goqueue import Client
from tests.integration.conftest import StartBroker
from tests.integration.process import END_WITH_US, Broker
from tests.integration.waiting import eventually

COLUMNS, LINES = 80, 24
BEGIN, END = "\x1b[?2026h\x1b[H", "\x1b[J\x1b[?2026l"
LEAVE = "\x1b[?25h\x1b[?1049l"
RUN_SECONDS_MAX = 60

pytestmark = pytest.mark.single_node("the view of a cluster is that of its nodes")


class Top:
    """The live view, in a terminal of 80 columns and 24 lines."""

    def __init__(self, *words: str) -> None:
        self._terminal, inside = pty.openpty()
        self.resize(COLUMNS, LINES)
        self.modes = termios.tcgetattr(self._terminal)
        self.process = subprocess.Popen(
            [*END_WITH_US, sys.executable, "-m", "goqueue", "top", "-i", "500ms", *words],
            stdin=inside,
            stdout=inside,
            stderr=subprocess.STDOUT,
            # The size that a shell exports is not that of the terminal after a change.
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
            start_new_session=True,
        )
        os.close(inside)
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # reads end within characters
        self._text = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    @property
    def text(self) -> str:
        """All that was sent to the terminal so far."""
        while select.select([self._terminal], [], [], 0)[0]:
            try:
                data = os.read(self._terminal, 65_536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            self._text += self._decoder.decode(data)
        return self._text

    @property
    def lines(self) -> list[str]:
        """The lines of the last whole frame."""
        whole = self.text.rpartition(END)[0].rpartition(BEGIN)[2]
        return [re.sub(r"\x1b\[[0-9;]*[mK]", "", line) for line in re.split(r"\r+\n", whole)]

    def until(self, seen: Callable[[list[str]], bool], because: str) -> list[str]:
        def look() -> list[str]:
            assert self.process.poll() is None, self.text[-2000:]
            lines = self.lines
            return lines if seen(lines) else []

        return eventually(look, because=because)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)


@pytest.fixture
def node(start_broker: StartBroker) -> Broker:
    return start_broker({"groups.initial_rebalance_delay_ms": 0})


@pytest.fixture
def top(node: Broker) -> Iterator[Top]:
    made = Top("--http", node.http)
    yield made
    made.close()


def run(node: Broker, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "goqueue", "top", *words, "--http", node.http],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


def test_the_view_is_live_and_ends_with_q(node: Broker, top: Top) -> None:
    top.until(lambda lines: lines[0].startswith("goqueue top"), "the first frame")
    top.press("2")
    top.until(lambda lines: "[2 topics]" in lines[1], "the view of topics")
    with Client(node.http) as client:
        client.publish("orders", "hello")
    lines = top.until(lambda lines: any("orders" in line for line in lines), "the new topic")
    assert len(lines) == LINES
    assert max(map(len, lines)) <= COLUMNS
    top.press("q")
    assert top.process.wait(RUN_SECONDS_MAX) == 0
    assert top.text.endswith(LEAVE)


def test_the_terminal_is_as_it_was_when_the_view_is_ended(top: Top) -> None:
    top.until(lambda lines: lines[0].startswith("goqueue top"), "the first frame")
    during = termios.tcgetattr(top._terminal)
    top.process.terminate()
    assert top.process.wait(RUN_SECONDS_MAX) == 0
    assert termios.tcgetattr(top._terminal) == top.modes != during
    assert top.text.endswith(LEAVE)


def test_a_broker_that_goes_away_is_told_and_awaited(node: Broker, top: Top) -> None:
    with Client(node.http) as client:
        client.publish("orders", "hello")
    top.press("2")
    top.until(lambda lines: any("orders" in line for line in lines), "the topic")
    node.kill()
    lines = top.until(lambda lines: "trying again" in lines[2], "the loss is told")
    assert any("orders" in line for line in lines), "the last figures stay"
    node.start()
    top.until(lambda lines: "trying again" not in "".join(lines), "the node is back")


def test_a_broker_that_hangs_does_not_hold_up_keys(node: Broker, top: Top) -> None:
    top.until(lambda lines: "of 1 nodes" in lines[0], "the first frame")
    node.pause()
    try:
        top.until(lambda lines: "takes longer" in lines[2], "the wait is told")
        top.press("5")
        top.until(lambda lines: "[5 nodes]" in lines[1], "the view of nodes")
        top.press("q")
        assert top.process.wait(5) == 0
    finally:
        node.resume()


def test_the_view_follows_the_size_of_the_terminal(top: Top) -> None:
    top.until(lambda lines: len(lines) == LINES, "the first frame")
    top.resize(50, 12)
    lines = top.until(lambda lines: len(lines) == 12, "a smaller frame")
    assert max(map(len, lines)) <= 50


def test_once_prints_rates_as_numbers_for_programs(node: Broker) -> None:
    with Client(node.http) as client:
        client.publish("orders", "hello")
    done = run(node, "--once", "-i", "500ms", "-o", "json")
    assert done.returncode == 0, done.stderr
    tree: dict[str, Any] = json.loads(done.stdout)
    assert tree["cluster_id"]
    assert [row["topic"] for row in tree["topics"]] == ["orders"]
    assert tree["nodes"][0]["address"] == node.http.removeprefix("http://")
    one = json.loads(run(node, "--once", "-i", "500ms", "-o", "json", "--view", "topics").stdout)
    assert list(one) == ["topics"]


def test_once_prints_tables_for_people(node: Broker) -> None:
    done = run(node, "--once", "-i", "500ms")
    assert done.returncode == 0, done.stderr
    assert "Messages in /s" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "needs a terminal; use --once"),
        (("-i", "10ms"), "must be 500ms or longer"),
        (("-o", "json"), "use --once"),
    ],
)
def test_what_cannot_be_shown_is_refused(node: Broker, words: tuple[str, ...], reason: str) -> None:
    done = run(node, *words)
    assert (done.returncode, reason in done.stderr) == (1, True), done.stderr


def test_without_a_broker_the_command_says_what_to_do(node: Broker) -> None:
    node.stop()
    done = run(node, "--once")
    assert done.returncode == 1
    assert "start one with `goqueue serve`" in done.stderr
