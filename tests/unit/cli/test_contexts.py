"""Contexts: named brokers, and which one a command talks to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from goqueue.cli.commands import config
from goqueue.cli.context import (
    BOOTSTRAP_DEFAULT,
    Call,
    Context,
    Contexts,
    Named,
    add_shared_options,
    contexts_file,
    load_contexts,
    save_contexts,
)
from goqueue.cli.output import OutputForm
from goqueue.model.errors import InvalidRequest


class Shell:
    """Calls `goqueue config ...` with a file of contexts of its own."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = file
        self.capsys = capsys

    def __call__(self, *arguments: str) -> str:
        command = typer.main.get_command(config.app)
        add_shared_options(command)
        call = Call(environ={"GOQUEUE_CLI_CONFIG": str(self.file)})
        command.main(list(arguments), standalone_mode=False, obj=call)
        return self.capsys.readouterr().out


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "config.yaml"


@pytest.fixture
def shell(file: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(file, capsys)


def test_the_first_context_is_used_at_once(shell: Shell, file: Path) -> None:
    shell("set-context", "here", "-b", "one:9092")
    shell("set-context", "there", "-b", "two:9092", "-o", "json")
    assert load_contexts(file) == Contexts(
        "here", {"here": Context("one:9092"), "there": Context("two:9092", OutputForm.JSON)}
    )


def test_a_context_is_changed_in_part(shell: Shell, file: Path) -> None:
    shell("set-context", "here", "-b", "one:9092")
    shell("set-context", "here", "-o", "yaml")
    assert load_contexts(file).get("here") == Context("one:9092", OutputForm.YAML)


def test_using_and_deleting_a_context(shell: Shell, file: Path) -> None:
    shell("set-context", "here")
    shell("set-context", "there")
    shell("use-context", "there")
    assert load_contexts(file).current == "there"
    shell("delete-context", "there")
    assert load_contexts(file) == Contexts("", {"here": Context()})


def test_the_list_marks_the_context_in_use(shell: Shell) -> None:
    shell("set-context", "here", "-b", "one:9092")
    lines = shell("get-contexts").splitlines()
    assert lines[0].split() == ["CURRENT", "NAME", "BOOTSTRAP", "HTTP", "LOGIN", "TLS", "OUTPUT"]
    assert lines[1].split() == ["*", "here", "one:9092", "-", "-", "no", "table"]


def test_options_are_taken_before_and_after_the_command(shell: Shell) -> None:
    shell("set-context", "here")
    before, after = shell("-o", "json", "get-contexts"), shell("get-contexts", "-o", "json")
    assert json.loads(before) == json.loads(after) != []


@pytest.mark.parametrize("command", ["use-context", "delete-context"])
def test_an_unknown_context_is_refused_by_name(shell: Shell, command: str) -> None:
    shell("set-context", "here")
    with pytest.raises(InvalidRequest, match="no context 'hree'; existing contexts: here"):
        shell(command, "hree")


def test_the_broker_is_chosen_by_flag_context_environment_and_default(file: Path) -> None:
    save_contexts(file, Contexts("here", {"here": Context("one:1"), "there": Context("two:2")}))
    environ = {"GOQUEUE_CLI_CONFIG": str(file)}
    assert Call(environ).named == Named("one:1", context="here")
    assert Call({**environ, "GOQUEUE_BOOTSTRAP": "env:3"}).named == Named("env:3")
    named = Call({**environ, "GOQUEUE_BOOTSTRAP": "env:3"}, context_given="there")
    assert named.named == Named("two:2", context="there")
    named.bootstrap_given = "flag:4"
    assert named.named == Named("flag:4")
    file.unlink()
    assert Call(environ).named == Named(BOOTSTRAP_DEFAULT)


def test_the_source_that_names_one_address_decides_both(file: Path) -> None:
    contexts = {
        "here": Context("one:1", http="one:80"),
        "there": Context("two:2"),
        "web": Context("", http="web:80"),
    }
    save_contexts(file, Contexts("here", contexts))
    assert load_contexts(file).by_name == contexts
    environ = {"GOQUEUE_CLI_CONFIG": str(file)}
    assert Call(environ).named == Named("one:1", "one:80", "here")
    assert Call(environ, context_given="there").named == Named("two:2", None, "there")
    assert Call(environ, context_given="web").named == Named(None, "web:80", "web")
    by_variable = {**environ, "GOQUEUE_HTTP": "env:3"}
    assert Call(by_variable).named == Named(None, "env:3")
    assert Call(by_variable, bootstrap_given="flag:4").named == Named("flag:4")
    assert Call(by_variable, context_given="here").named == Named("one:1", "one:80", "here")
    assert Call(environ, http_given="flag:4").named == Named(None, "flag:4")


def test_an_address_that_is_set_replaces_both(shell: Shell, file: Path) -> None:
    shell("set-context", "here", "-b", "one:1", "--http", "one:80", "-o", "json")
    shell("set-context", "here", "-b", "two:1")
    assert load_contexts(file).get("here") == Context("two:1", OutputForm.JSON)
    shell("set-context", "here", "--http", "two:80")
    assert load_contexts(file).get("here") == Context("", OutputForm.JSON, "two:80")


@pytest.mark.parametrize(
    "text", ["contexts: 5", "contexts: {a: 5}", "- a", "contexts: {a: {output: loud}}", "a: b: c"]
)
def test_a_broken_file_is_named(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=r"config\.yaml cannot be read"):
        load_contexts(file)


def test_the_file_lies_where_the_desktop_keeps_such_files() -> None:
    assert contexts_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/goqueue/config.yaml")
    assert contexts_file({}) == Path.home() / ".config" / "goqueue" / "config.yaml"


def test_a_user_without_a_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)  # of nobody
    with pytest.raises(RuntimeError):
        Path.home()
    assert load_contexts(contexts_file({})) == Contexts()
