"""How payloads name their schema, held against the stock serializers."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.schema_registry.protobuf import _create_index_array
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from goqueue.schemas.formats import SchemaViolation
from goqueue.schemas.formats.framing import (
    frame_in_headers,
    frame_of,
    message_frame,
    read_message_frame,
    schema_in,
)

INDEXES = st.lists(st.integers(0, 2**20), min_size=1, max_size=64).map(tuple)


@given(indexes=INDEXES, rest=st.binary(max_size=5))
def test_the_indexes_of_a_message_come_back(indexes: tuple[int, ...], rest: bytes) -> None:
    frame = message_frame(indexes)
    assert read_message_frame(frame + rest) == (indexes, len(frame))


def test_nested_messages_have_the_indexes_that_the_stock_serializer_writes() -> None:
    descriptor = descriptor_pb2.DescriptorProto.ExtensionRange.DESCRIPTOR
    assert message_frame(_create_index_array(descriptor)) == b"\x04\x04\x00"
    assert message_frame((0,)) == b"\x00"


@given(data=st.binary(max_size=20))
def test_any_bytes_have_indexes_or_are_refused(data: bytes) -> None:
    try:
        indexes, end = read_message_frame(data)
    except SchemaViolation:
        return
    assert 0 < len(indexes) <= 64
    assert min(indexes) >= 0
    assert end <= len(data)


def test_a_header_names_a_schema_by_id_or_guid() -> None:
    guid = uuid.uuid4()
    by_guid = b"\x01" + guid.bytes
    headers = (("a", b"1"), ("__value_schema_id", by_guid), ("__key_schema_id", frame_of(7)))
    assert frame_in_headers("value", headers) == by_guid
    assert schema_in(by_guid) == str(guid)
    assert schema_in(frame_in_headers("key", headers) or b"") == 7
    assert frame_in_headers("key", headers[:2]) is None


@pytest.mark.parametrize("content", [None, b"", b"\0\0\0\0", b"\1" * 5, b"\0" * 17])
def test_a_header_of_another_form_names_none(content: bytes | None) -> None:
    assert frame_in_headers("value", [("__value_schema_id", content)]) is None
