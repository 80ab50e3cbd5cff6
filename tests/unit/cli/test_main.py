"""The command line: settings become a running node, and errors become text and exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

from goqueue.cli.main import COMMANDS, app, main
from goqueue.config import load


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["goqueue", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_every_command_says_what_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert name in text


def options_used_twice(command: Any, path: str) -> Iterator[str]:
    """Name the options that mean two things for a command, or for those below it."""
    names = Counter(name for one in command.params for name in one.opts if name.startswith("-"))
    yield from (f"{path} {name}" for name, count in names.items() if count > 1)
    context = typer.Context(command)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from options_used_twice(command.get_command(context, name), f"{path} {name}")


def test_no_option_means_two_things() -> None:
    assert list(options_used_twice(typer.main.get_command(app), "goqueue")) == []


def test_all_faulty_settings_are_named_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(monkeypatch, "serve", "--fsync", "often", "--set", "fetch.bytes=1", "--set", "nope")
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert [line.split(":")[0] for line in captured.err.splitlines()] == [
        "fetch.bytes",
        "nope",
        "storage.fsync",
    ]


def test_each_flag_reaches_its_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "goqueue.yaml"
    file.write_text("fetch:\n  sessions_max: 5\n")
    flags = {
        "--data-dir": "/srv/queue",
        "--listen-kafka": "0.0.0.0:0",
        "--advertise-kafka": "queue.example:9092",
        "--listen-http": "127.0.0.1:0",
        "--listen-registry": "127.0.0.1:1",
        "--node-id": "7",
        "--fsync": "none",
        "--log-level": "debug",
        "--config": str(file),
        "--set": "topics.partitions=6",
    }
    arguments = [word for flag in flags.items() for word in flag]
    code = run(monkeypatch, "serve", *arguments, "--allow-unauthenticated", "--print-config")
    assert code == 0
    file.write_text(capsys.readouterr().out)
    settings = load(file=file)
    assert settings.node.data_dir == Path("/srv/queue")
    assert str(settings.listeners.kafka[0]) == "0.0.0.0:0"
    assert str(settings.listeners.kafka_advertised[0]) == "queue.example:9092"
    assert str(settings.listeners.http[0]) == "127.0.0.1:0"
    assert str(settings.listeners.registry[0]) == "127.0.0.1:1"
    assert settings.listeners.allow_unauthenticated
    assert settings.node.id == 7
    assert settings.storage.fsync == "none"
    assert settings.logging.level == "debug"
    assert settings.topics.partitions == 6
    assert settings.fetch.sessions_max == 5


def test_serving_does_not_load_what_only_people_need() -> None:
    code = (
        "import sys; sys.argv = ['goqueue', 'serve', '--print-config', '--node-id', '3']\n"
        "from goqueue.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'pydantic', 'yaml', 'goqueue.client'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_an_option_and_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--version") == 0
    by_option = capsys.readouterr().out
    assert run(monkeypatch, "version") == 0
    assert by_option == capsys.readouterr().out == f"{version('goqueue')}\n"
