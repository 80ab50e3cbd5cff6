"""Rows as tables, JSON and YAML."""

from __future__ import annotations

import json

import pytest
import yaml

from goqueue.cli.output import OutputForm, print_item, render_rows, yaml_text

ROWS = [
    {"topic": "orders", "partitions": 6, "internal": False, "note": None},
    {"topic": "a" * 200, "partitions": 12, "internal": True, "note": "[bold]x"},
]


def test_a_table_in_a_pipe_is_never_cut() -> None:
    lines = render_rows(ROWS, OutputForm.TABLE, width=None).splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "INTERNAL", "NOTE"]
    assert lines[1].split() == ["orders", "6", "no", "-"]
    assert lines[2].split() == ["a" * 200, "12", "yes", "[bold]x"]


def test_a_table_on_a_terminal_fits_it() -> None:
    text = render_rows([{"topic": "a" * 200}], OutputForm.TABLE, width=40)
    assert "…" in text
    assert max(len(line) for line in text.splitlines()[1:]) <= 40


def test_json_and_yaml_hold_the_same_rows() -> None:
    assert json.loads(render_rows(ROWS, OutputForm.JSON, width=None)) == ROWS
    assert yaml.safe_load(render_rows(ROWS, OutputForm.YAML, width=None)) == ROWS


@pytest.mark.parametrize(
    "text", ["a\u0085b", "a\u2028b", "\u2029", "a\nb", "a\r\nb", "\ufeff", "é"]
)
def test_yaml_keeps_every_text_as_it_is(text: str) -> None:
    tree = {text: [text, {"in": text}]}
    assert yaml.safe_load(yaml_text(tree)) == tree


def test_rows_of_a_table_are_in_the_columns_of_the_first() -> None:
    rows: list[dict[str, object]] = [{"id": 1, "fault": "x"}, {"id": 2, "level": 3, "fault": ""}]
    text = render_rows(rows, OutputForm.TABLE, width=None)
    assert [line.split() for line in text.splitlines()] == [["ID", "FAULT"], ["1", "x"], ["2"]]


def test_no_rows_are_an_empty_list_for_programs_and_nothing_for_people() -> None:
    assert render_rows([], OutputForm.TABLE, width=80) == ""
    assert json.loads(render_rows([], OutputForm.JSON, width=None)) == []


def test_one_thing_is_a_line_per_property(capsys: pytest.CaptureFixture[str]) -> None:
    print_item({"topic": "orders", "partitions": 6}, OutputForm.TABLE)
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["topic", "orders"],
        ["partitions", "6"],
    ]
    print_item({"topic": "orders"}, OutputForm.JSON)
    assert json.loads(capsys.readouterr().out) == {"topic": "orders"}
