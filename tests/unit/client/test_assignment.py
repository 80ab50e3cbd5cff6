"""The assignment of a classic member."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from goqueue.client.assignment import read_assignment
from goqueue.model.errors import MalformedRequest
from goqueue.model.names import TopicPartition


def test_an_assignment_of_another_library_is_read() -> None:
    data = ConsumerProtocolMemberAssignment(0, [("orders", [0, 2]), ("payments", [1])], b"x")
    assert read_assignment(data.encode()) == [
        TopicPartition("orders", 0),
        TopicPartition("orders", 2),
        TopicPartition("payments", 1),
    ]


def test_a_member_may_have_none_yet() -> None:
    assert read_assignment(b"") == []


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\0\0\5", b"\0\0\x7f\xff\xff\xff"])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_assignment(data)
