"""Records into messages and back: not a byte may change on the way."""

from __future__ import annotations

import base64

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


def test_an_id_names_the_place() -> None:
    assert message_id("a.b-c", 2, 41) == "a.b-c:2:41"
