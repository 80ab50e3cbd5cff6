"""Records into messages and back: not a byte may change on the way."""

from __future__ import annotations

import base64
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.batch import Record
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies.messages import Message, PublishOne
from goqueue.wire.http.fields import Encoding
from goqueue.wire.http.messages import message_id, to_message, to_record

CONTENT = st.none() | st.binary(max_size=60) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(min_size=1, max_size=8), CONTENT), max_size=4).map(tuple)
RECORDS = st.builds(
    Record,
    key=CONTENT,
    value=CONTENT,
    headers=HEADERS,
    timestamp_ms=st.integers(0, (1 << 63) - 1),
    offset=st.integers(0, (1 << 63) - 1),
)


def published_again(message: Message) -> PublishOne:
    """What a client sends that copies a message, field by field, through JSON."""
    read = msgspec.json.decode(msgspec.json.encode(message))
    copied = {
        name: read[name] for name in ("key", "value", "key_encoding", "value_encoding", "headers")
    }
    copied["timestamp"] = read["timestamp"]
    return msgspec.json.decode(msgspec.json.encode(copied), type=PublishOne)


@given(record=RECORDS, encoding=st.sampled_from(["utf8", "base64"]))
def test_a_message_that_is_read_and_published_again_is_the_same(
    record: Record, encoding: Encoding
) -> None:
    if any(name.startswith("goqueue-") for name, _ in record.headers):
        return
    message = to_message("orders", 3, record, encoding)
    again = to_record(published_again(message), now_ms=0)
    assert again == record._replace(offset=-1)


@given(content=st.binary(max_size=50))
def test_bytes_are_text_when_they_can_be_and_say_so_when_they_cannot(content: bytes) -> None:
    message = to_message("orders", 0, Record(None, content, offset=0), "utf8")
    assert message.value is not None
    if message.value_encoding == "utf8":
        assert message.value.encode() == content
    else:
        assert base64.b64decode(message.value) == content
        with pytest.raises(UnicodeDecodeError):
            content.decode()


def test_a_null_stays_a_null_and_an_empty_value_stays_empty() -> None:
    tombstone = to_message("orders", 0, Record(b"k", None, offset=0), "utf8")
    empty = to_message("orders", 0, Record(b"k", b"", offset=0), "base64")
    assert (tombstone.value, empty.value) == (None, "")


@pytest.mark.parametrize("text", ["a", "====", "not base64!", "YQ", "é"])
def test_what_is_not_base64_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidField, match="'value'") as caught:
        to_record(PublishOne(value=text, value_encoding="base64"), now_ms=0)
    assert caught.value.field == "value"


def test_what_a_message_asks_for_becomes_headers() -> None:
    body = PublishOne(value="v", priority="high", ttl_ms=500, delay_ms=20)
    assert to_record(body, now_ms=7).headers == (
        ("goqueue-priority", b"high"),
        ("goqueue-delay-ms", b"20"),
        ("goqueue-ttl-ms", b"500"),
    )


def test_an_attribute_given_as_field_and_as_header_is_refused() -> None:
    body = msgspec.convert(
        {
            "value": "v",
            "priority": "low",
            "headers": [{"name": "goqueue-priority", "value": "high"}],
        },
        PublishOne,
    )
    with pytest.raises(InvalidField, match="goqueue-priority"):
        to_record(body, now_ms=0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def read_body(text: bytes) -> Record:
    return to_record(msgspec.json.decode(text, type=PublishOne), now_ms=0)


@given(content=JSON, indent=st.none() | st.integers(0, 3), is_ascii=st.booleans())
def test_json_is_stored_compact_whatever_its_spacing(
    content: object, indent: int | None, is_ascii: bool
) -> None:
    try:
        spaced = json.dumps(content, indent=indent, ensure_ascii=is_ascii).encode()
        compact = json.dumps(content, separators=(",", ":"), ensure_ascii=is_ascii).encode()
    except UnicodeEncodeError:
        return  # half of a surrogate pair
    record = read_body(b'{"json": ' + spaced + b', "key_json":\n' + spaced + b"}")
    assert (record.value, record.key) == (compact, compact)


@pytest.mark.parametrize(
    "text",
    [
        "123456789012345678901234567890",
        "-0",
        "1.10",
        "0.1000000000000000055511151231257827",
        "1e400",
        "6.02E+23",
        '{"b":1,"a":2,"b":3}',
        r'"\u00e9\/é"',
        '" spaced , text "',
        "null",
    ],
)
def test_what_json_says_is_stored_as_it_is_written(text: str) -> None:
    assert read_body(b'{"json": ' + text.encode() + b" }").value == text.encode()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{}", "value"),
        (b'{"value": "v", "json": 1}', "json"),
        (b'{"value": null, "json": 1}', "json"),
        (b'{"value_encoding": "base64", "json": "AA=="}', "json"),
        (b'{"value": "v", "key": "k", "key_json": 1}', "key_json"),
        (b'{"value": "v", "key_encoding": "base64", "key_json": 1}', "key_json"),
        (b'{"json": "\xff"}', "json"),
        (b'{"value": "v", "key_json": {"\xc3": 1}}', "key_json"),
    ],
)
def test_a_value_that_is_given_twice_or_never_or_is_not_text_is_refused(
    body: bytes, field: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        read_body(body)
    assert caught.value.field == field


def test_an_id_names_the_place() -> None:
    assert message_id("a.b-c", 2, 41) == "a.b-c:2:41"
