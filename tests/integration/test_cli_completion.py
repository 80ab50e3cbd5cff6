"""`goqueue completion`: bash completes commands, and names that the broker knows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue import Client

from .process import Broker

RUN_SECONDS_MAX = 60
# Calls the function that `complete` has registered, as bash does when the tabulator is pressed.
PRESS = r"""
set -euo pipefail
eval "$(goqueue completion bash)"
function_of() { complete -p goqueue | sed -E 's/.* -F ([^ ]+) .*/\1/'; }
read -ra COMP_WORDS <<<"$1"
[ "${1: -1}" != ' ' ] || COMP_WORDS+=("")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
"$(function_of)" goqueue
printf '%s\n' "${COMPREPLY[@]}"
"""

pytestmark = pytest.mark.single_node("completes for one node")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    node = Broker(tmp_path_factory.mktemp("completion"), {})
    try:
        node.start()
        with Client(node.http) as client:
            client.publish("orders", "a harp")
            client.publish("ordinary", "a lamp")
            client.groups.put_queue("billing")
        yield node
    finally:
        node.close()


@pytest.fixture
def contexts(tmp_path: Path) -> Path:
    file = tmp_path / "contexts.yaml"
    file.write_text("contexts:\n  staging: {bootstrap: '127.0.0.1:1'}\n  local: {}\n")
    return file


def press(line: str, contexts: Path, bootstrap: str = "127.0.0.1:1") -> set[str]:
    """What bash offers for a line that is being typed."""
    done = subprocess.run(
        ["bash", "-c", PRESS, "bash", line],
        env={
            **{name: text for name, text in os.environ.items() if "GOQUEUE" not in name},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "GOQUEUE_BOOTSTRAP": bootstrap,
            "GOQUEUE_CLI_CONFIG": str(contexts),
        },
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return {name for name in done.stdout.splitlines() if name}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("goqueue sch", {"schedule", "schema"}),
        ("goqueue topic d", {"describe", "delete"}),
        ("goqueue topic describe --he", {"--help"}),
        ("goqueue -c st", {"staging"}),
        ("goqueue config use-context ", {"staging", "local"}),
    ],
)
def test_commands_options_and_contexts_are_completed(
    line: str, offered: set[str], contexts: Path
) -> None:
    assert press(line, contexts) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("goqueue topic describe or", {"orders", "ordinary"}),
        ("goqueue consume orde", {"orders"}),
        ("goqueue queue receive orders --group bi", {"billing"}),
        ("goqueue group lag ", {"billing"}),
    ],
)
def test_names_of_the_broker_are_completed(
    line: str, offered: set[str], node: Broker, contexts: Path
) -> None:
    assert press(line, contexts, node.bootstrap) == offered


def test_the_address_on_the_line_is_the_one_that_is_asked(node: Broker, contexts: Path) -> None:
    line = f"goqueue topic describe -b {node.bootstrap} orde"
    assert press(line, contexts) == {"orders"}


def test_nothing_is_offered_or_printed_without_a_broker(contexts: Path) -> None:
    assert press("goqueue topic describe or", contexts) == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one(shell: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "goqueue", "completion", shell]
    script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "_GOQUEUE_COMPLETE" in script
    if shutil.which(shell) is not None:
        file = tmp_path / "script"
        file.write_text(script)
        done = subprocess.run([shell, "-n", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
