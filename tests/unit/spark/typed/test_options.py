"""Options that make key and value typed."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.options import ReadOptions, read_options
from goqueue.spark.typed.options import ColumnTyping

URL = "http://127.0.0.1:8081"


def read(**options: str) -> ReadOptions:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return read_options({"subscribe": "orders", **named}, is_streaming=False)


def test_without_a_registry_nothing_is_typed() -> None:
    assert read().typing is None


def test_the_subject_is_that_of_the_topic() -> None:
    typing = read(schema_registry=f"{URL}/").typing
    assert typing is not None
    assert typing.registry == URL
    assert typing.columns == {"value": ColumnTyping("orders-value")}
    assert not typing.keeps_errors


def test_subjects_versions_and_messages_are_named() -> None:
    typing = read(
        schema_registry=URL,
        schema_subject="shop",
        schema_version="3",
        schema_message="shop.Order",
        schema_key="true",
        schema_key_version="latest",
        schema_errors="null",
    ).typing
    assert typing is not None
    assert typing.columns == {
        "key": ColumnTyping("orders-key", option_prefix="schema.key"),
        "value": ColumnTyping("shop", 3, "shop.Order"),
    }
    assert typing.keeps_errors


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"schema_subject": "s"}, "schema.subject is of use only with schema.registry"),
        ({"schema_registry": "127.0.0.1:8081"}, "give an address such as http://"),
        ({"schema_registry": URL, "schema_errors": "skip"}, "give one of fail, null"),
        ({"schema_registry": URL, "schema_version": "old"}, "schema.version is 'old'"),
        ({"schema_registry": URL, "schema_value": "false"}, "types nothing"),
        ({"schema_registry": URL, "view": "batches"}, "Only records have schemas"),
        ({"schema_registry": URL, "subscribe": "a,b"}, "name a subject with schema.subject"),
        ({"schema_registri": URL}, "did you mean 'schema.registry'?"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(**options)
    assert complaint in str(caught.value)


def test_several_topics_may_share_a_subject() -> None:
    typing = read(schema_registry=URL, subscribe="a,b", schema_subject="shared").typing
    assert typing is not None
    assert typing.columns["value"].subject == "shared"
