"""`goqueue pipeline` says what there is, and what is wrong before Spark is started."""

from __future__ import annotations

import json
import sys

import pytest
from pyspark.sql import SparkSession

from goqueue.cli.commands import pipeline
from goqueue.cli.commands.pipeline import session
from goqueue.cli.main import main


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["goqueue", "pipeline", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_every_pipeline_that_is_listed_can_be_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "list", "-o", "json") == 0
    listed = [row["pipeline"] for row in json.loads(capsys.readouterr().out)]
    commands = [
        command.name or command.callback.__name__
        for command in pipeline.run.registered_commands
        if command.callback
    ]
    assert listed == commands
    for name in listed:
        assert run(monkeypatch, "run", name, "--help") == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("run", "archive", "a", "--to", "x", "--conf", "memory=1g"), "write spark.NAME=VALUE"),
        (
            ("run", "replay", "--topic", "a", "--to", "b", "--run", "r", "--from", "soon"),
            "'soon' is not a position",
        ),
        (
            ("run", "replay", "--topic", "a", "--to", "b", "--run", "r", "--from", "7"),
            "'7' is not a time",
        ),
        (("run", "lag", "--to", "x", "--window", "long"), "long"),
        (("run", "typed", "--to", "x"), "Give a topic, or an archive"),
        (("report", "--to", "x.html", "--archive", "no-such-folder"), "holds no archive"),
    ],
)
def test_bad_input_is_refused_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    complaint: str,
) -> None:
    def started(_: SparkSession.Builder) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", started)
    assert run(monkeypatch, *words) == 1
    assert complaint in capsys.readouterr().err


def test_a_missing_spark_is_answered_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    assert run(monkeypatch, "run", "archive", "a", "--to", "x") == 1
    assert "pip install goqueue[spark]" in capsys.readouterr().err
