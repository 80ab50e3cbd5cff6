"""How `goqueue consume` prints a message."""

from __future__ import annotations

import base64
import json

import pytest

from goqueue.cli.formats import Format, compile_template, rendering
from goqueue.client import ReadRecord
from goqueue.model.errors import InvalidRequest

RECORD = ReadRecord("orders", 2, 17, 1_769_860_800_250, b"k\xc3\xa9", b"hello", (("h", b"1"),))
BINARY = RECORD._replace(key=None, value=b"\xff\x00", headers=(("h", b"\xfe"), ("n", None)))


def show(record: ReadRecord, form: Format) -> bytes:
    return rendering(form, None)(record)


def test_text_is_one_value_per_line() -> None:
    assert show(RECORD, Format.TEXT) == b"hello\n"
    assert show(BINARY, Format.TEXT) == b"\\xff\x00\n"
    assert show(RECORD._replace(value=None), Format.TEXT) == b"\n"


def test_raw_is_the_value_and_nothing_else() -> None:
    assert show(BINARY, Format.RAW) == b"\xff\x00"
    assert show(BINARY._replace(value=None), Format.RAW) == b""


def test_json_carries_text_as_text() -> None:
    line = show(RECORD, Format.JSON)
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 2,
        "offset": 17,
        "timestamp": "2026-01-31T12:00:00.250Z",
        "timestamp_ms": 1_769_860_800_250,
        "key": "ké",
        "value": "hello",
        "headers": [{"name": "h", "value": "1"}],
    }


def test_json_marks_what_is_not_text() -> None:
    tree = json.loads(show(BINARY, Format.JSON))
    assert tree["key"] is None
    assert "value" not in tree
    assert base64.b64decode(tree["value_base64"]) == b"\xff\x00"
    assert tree["headers"] == [{"name": "h", "value_base64": "/g=="}, {"name": "n", "value": None}]


def test_a_template_fills_in_what_kcat_would() -> None:
    render = compile_template(r"%t/%p@%o %k(%K)=%s(%S) %h %T%%\n\x41\t")
    assert render(RECORD) == ("orders/2@17 ké(3)=hello(5) h=1 1769860800250%\nA\t".encode())
    assert compile_template("%k|%K|%s|%S")(BINARY._replace(value=None)) == b"|-1||-1"


@pytest.mark.parametrize("template", ["%z", r"\q", "50%"])
def test_letters_without_a_meaning_are_refused(template: str) -> None:
    with pytest.raises(InvalidRequest, match="is unknown in a template"):
        compile_template(template)
