"""Digests as AWS has answered them."""

from __future__ import annotations

import pytest

from goqueue.wire.sqs import digests
from goqueue.wire.sqs.shapes import AttributeValue

TRACE = "traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"


def text(value: str, data_type: str = "String") -> AttributeValue:
    return AttributeValue(string_value=value, data_type=data_type)


def raw(value: bytes, data_type: str = "Binary") -> AttributeValue:
    return AttributeValue(binary_value=value, data_type=data_type)


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        ({"Foo": text("Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
        ({"MyAttribute": text("foobar")}, "adb59cd4678ea5a855436b949cd07ab6"),
        ({"attr1": raw(TRACE.encode())}, "8cbe4db156db8a94db8b801b7addb984"),
    ],
)
def test_attributes_have_the_digest_that_aws_gave(
    attributes: dict[str, AttributeValue], digest: str
) -> None:
    assert digests.of_attributes(attributes) == digest


def test_bodies_have_the_digest_that_aws_gave() -> None:
    assert digests.of_body(b"message-1") == "3d6b824fd8c1520e9a047d21fee6fb1f"


def test_the_order_of_attributes_does_not_matter() -> None:
    one = {"a": text("1", "Number"), "B": raw(b"\0"), "é": text("x")}
    assert digests.of_attributes(one) == digests.of_attributes(dict(reversed(one.items())))


def test_each_part_of_an_attribute_counts() -> None:
    several = [
        {"a": text("1")},
        {"b": text("1")},
        {"a": text("2")},
        {"a": text("1", "Number")},
        {"a": raw(b"1", "String")},
    ]
    assert len({digests.of_attributes(one) for one in several}) == len(several)


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_attributes_have_no_digest(nothing: dict[str, AttributeValue] | None) -> None:
    assert digests.of_attributes(nothing) is None
