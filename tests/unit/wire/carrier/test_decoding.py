"""Bodies and queries into structs, and the sentences for those who send something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.calls import BodyDecoder, QueryDecoder
from goqueue.wire.carrier.problems import InvalidField, MalformedJson
from goqueue.wire.http.bodies.messages import PublishMany, PublishOne, Read

publish = BodyDecoder(PublishOne)
publish_many = BodyDecoder(PublishMany)
read = QueryDecoder(Read)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b'{"valeu": "x"}', "valeu", "known fields: value, json, key,"),
        (b'{"value": 1}', "value", "Expected `str | null`, got `int`"),
        (b'{"value": "x", "priority": "urgent"}', "priority", "one of background, critical,"),
        (b'{"value": "x", "delay_ms": -1}', "delay_ms", ">= 0"),
        (b'{"value": "x", "headers": [{"name": "a", "value": 5}]}', "headers[0].value", "str"),
        (
            b'{"value": "x", "headers": [{"nam": "a"}]}',
            "headers[0].nam",
            "known fields: name, value",
        ),
        (b'{"value": "x", "headers": [{"value": "a"}]}', "headers[0]", "required field `name`"),
        (b"[]", "", "Expected `object`, got `array`"),
    ],
)
def test_a_wrong_field_is_named(body: bytes, field: str, words: str) -> None:
    with pytest.raises(InvalidField) as caught:
        publish(body)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_an_unknown_field_deep_inside_is_told_its_neighbours() -> None:
    with pytest.raises(InvalidField) as caught:
        publish_many(b'{"messages": [{"value": "a"}, {"value": "b", "prio": 1}]}')
    assert caught.value.field == "messages[1].prio"
    assert "priority" in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b'{"value":"x"} 1', b'{"value": "\\ud800"}', b"nul"]
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedJson):
        publish(body)


def test_deep_nesting_is_refused_and_does_no_harm() -> None:
    with pytest.raises((MalformedJson, InvalidField)):
        publish(b'{"value": ' + b"[" * 100_000)


@given(st.binary(max_size=40))
def test_random_bytes_raise_nothing_but_refusals(data: bytes) -> None:
    for decode in (publish, read):
        try:
            decode(data)
        except GoQueueError:
            pass


def test_a_query_is_typed() -> None:
    query = read(b"partition=3&offset=9&limit=7&wait_ms=50&encoding=base64")
    assert query == Read(partition=3, offset=9, limit=7, wait_ms=50, encoding="base64")
    assert read(b"from=2h") == Read(from_="2h")
    assert read(b"") == Read()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (b"partiton=3", "partiton"),
        (b"partition=three", "partition"),
        (b"limit=0", "limit"),
        (b"limit=1&limit=2", "limit"),
        (b"encoding=latin1", "encoding"),
        (b"partition=", "partition"),
        (b"cursor=1", "cursor"),
    ],
)
def test_a_wrong_query_is_refused_by_name(query: bytes, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read(query)
    assert caught.value.field == field


def test_a_query_with_endless_fields_is_refused() -> None:
    with pytest.raises(InvalidField, match="cannot be read"):
        read(b"&".join(b"f%d=1" % number for number in range(1000)))


def test_escaped_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidField):
        read(b"from=%ff%fe")
