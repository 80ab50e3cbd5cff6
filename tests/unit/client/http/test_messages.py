"""Messages come back byte for byte, whatever they hold."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.client.http.messages import (
    Json,
    Message,
    Outgoing,
    batch_body,
    encoded,
    message_of,
    publish_body,
    published_of,
)
from goqueue.model.errors import InvalidRequest
from goqueue.wire.http.bodies import messages as bodies
from goqueue.wire.http.messages import to_message, to_record

quickly = settings(max_examples=200, derandomize=True, deadline=None, database=None)
data = st.none() | st.binary(max_size=60) | st.text(max_size=60)
names = st.text(min_size=1, max_size=10)


def as_bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def through_the_broker(message: Outgoing) -> Message:
    """What a reader gets of a message, by the broker's own code."""
    publish = msgspec.json.decode(publish_body(message, "all"), type=bodies.PublishOne)
    record = to_record(publish, now_ms=5)._replace(offset=7)
    shown = msgspec.json.encode(to_message("orders", 3, record, "utf8"))
    return message_of(msgspec.json.decode(shown, type=bodies.Message))


@quickly
@given(value=data, key=data, headers=st.lists(st.tuples(names, data), max_size=3))
def test_every_byte_comes_back(
    value: bytes | str | None,
    key: bytes | str | None,
    headers: list[tuple[str, bytes | str | None]],
) -> None:
    read = through_the_broker(Outgoing(value, key, headers))
    assert read.value == as_bytes(value)
    assert read.key == as_bytes(key)
    assert read.headers == tuple((name, as_bytes(content)) for name, content in headers)
    assert (read.id, read.partition, read.offset, read.timestamp_ms) == ("orders:3:7", 3, 7, 5)


def test_what_is_not_asked_for_is_not_sent() -> None:
    assert publish_body(Outgoing("hello"), "all") == b'{"value":"hello"}'
    assert encoded(Outgoing(None, key="k")) == b'{"value":null,"key":"k"}'


def test_a_batch_is_made_of_messages_that_were_encoded_before() -> None:
    body = batch_body([encoded(Outgoing("a", delay=1)), encoded(Outgoing(b"\xff"))], "leader")
    decoded = msgspec.json.decode(body, type=bodies.PublishMany)
    assert decoded.acks == "leader"
    assert [one.value for one in decoded.messages] == ["a", "/w=="]
    assert decoded.messages[0].delay_ms == 1000


def test_a_value_that_is_neither_bytes_nor_text_is_refused_with_advice() -> None:
    with pytest.raises(InvalidRequest, match=r"goqueue\.Json"):
        publish_body(Outgoing({"total": 12}), "all")  # type: ignore[arg-type]


def test_json_is_sent_as_it_is_and_comes_back() -> None:
    total = {
        "total": 10**30,
        "price": Decimal("1.10"),
        "name": "é",
        "at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    message = through_the_broker(Outgoing(Json(total), key=Json([7])))
    compact = '{"total":1' + "0" * 30 + ',"price":1.10,"name":"é","at":"2026-01-01T00:00:00Z"}'
    assert message.value == compact.encode()
    assert message.key == b"[7]"
    assert encoded(Outgoing(Json(None))) == b'{"json":null}'


@pytest.mark.parametrize("content", [object(), {"a": {1, object()}}, "\ud800"])
def test_what_cannot_be_json_is_refused(content: object) -> None:
    with pytest.raises(InvalidRequest, match="The value of a message cannot be JSON"):
        publish_body(Outgoing(Json(content)), "all")


def test_a_message_is_read_as_text_json_and_header() -> None:
    message = through_the_broker(Outgoing('{"a": 1}', headers=[("h", "1"), ("h", "2")]))
    assert message.text == '{"a": 1}'
    assert message.json() == {"a": 1}
    assert message.header("h") == b"2"
    assert message.header("other") is None


def test_a_delayed_message_has_an_id_to_ask_for_instead_of_a_place() -> None:
    answer = bodies.Published(topic="orders", schedule_id="abc", deliver_at=9)
    published = published_of(msgspec.json.decode(msgspec.json.encode(answer), type=type(answer)))
    assert published.is_scheduled
    assert (published.schedule_id, published.deliver_at_ms) == ("abc", 9)
    assert published.offset is None
