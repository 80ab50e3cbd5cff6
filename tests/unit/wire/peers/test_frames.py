"""Frames between nodes: whole, byte by byte, and random bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import MalformedRequest, NotLeader, RequestTooLarge, UnknownTopic
from goqueue.model.errors.refusals import Refusal, error_of, refusal_of
from goqueue.model.names import TopicPartition
from goqueue.wire.peers.frames import (
    FRAME_BYTES_MAX,
    Frame,
    Hello,
    Role,
    frame_parts,
    hello_parts,
    read_hello,
    read_refusal,
    refusal_parts,
    take_frame,
    wanted_bytes,
)

FRAMES = st.tuples(
    st.sampled_from(Role),
    st.integers(0, 255),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=100),
    st.binary(max_size=200),
)


def written(role: Role, kind: int, call: int, head: bytes, body: bytes) -> bytes:
    parts = frame_parts(role, kind, call, head, [body[:50], memoryview(body)[50:]])
    return b"".join(parts)  # type: ignore[arg-type]


def joined(parts: list[object]) -> memoryview:
    return memoryview(b"".join(parts))  # type: ignore[arg-type]


def taken(data: bytes) -> tuple[Frame, int]:
    found = take_frame(memoryview(data))
    assert found is not None
    return found


@given(FRAMES, st.binary(max_size=20))
def test_a_frame_comes_out_as_it_went_in(
    fields: tuple[Role, int, int, bytes, bytes], after: bytes
) -> None:
    data = written(*fields)
    frame, length = taken(data + after)
    assert length == len(data) == wanted_bytes(memoryview(data))
    assert (frame.role, frame.kind, frame.call, frame.head, bytes(frame.body)) == fields


@given(FRAMES)
def test_a_frame_that_has_not_come_whole_is_waited_for(
    fields: tuple[Role, int, int, bytes, bytes],
) -> None:
    data = written(*fields)
    for length in range(len(data)):
        assert take_frame(memoryview(data)[:length]) is None


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_waited_for(data: bytes) -> None:
    try:
        found = take_frame(memoryview(data))
        if found is not None:
            read_hello(found[0])
    except MalformedRequest:
        pass


@given(st.binary(max_size=60))
def test_a_random_head_is_no_hello_and_no_refusal(head: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_hello(Frame(Role.HELLO, 0, 0, b"\xc1" + head, memoryview(b"")))
    with pytest.raises(MalformedRequest):
        read_refusal(Frame(Role.REFUSAL, 0, 0, b"\xc1" + head, memoryview(b"")))


def test_a_frame_may_not_announce_more_than_is_allowed() -> None:
    with pytest.raises(RequestTooLarge):
        take_frame(memoryview((FRAME_BYTES_MAX + 1).to_bytes(4, "big")))
    with pytest.raises(RequestTooLarge):
        frame_parts(Role.CALL, 1, 1, b"", [memoryview(bytes(FRAME_BYTES_MAX))])


def test_a_node_says_who_it_is() -> None:
    hello = Hello("cluster", 7)
    frame, _ = taken(bytes(joined(hello_parts(hello))))
    assert read_hello(frame) == hello


def test_a_client_that_lost_its_way_is_told_so() -> None:
    hello = Hello("cluster", 7, magic=b"ELSE")
    frame, _ = taken(bytes(joined(hello_parts(hello))))
    with pytest.raises(MalformedRequest, match="for other nodes"):
        read_hello(frame)


def test_errors_keep_their_class_their_words_and_what_they_know() -> None:
    raised = NotLeader(TopicPartition("orders", 3), 2)
    frame, _ = taken(bytes(joined(refusal_parts(4, 9, refusal_of(raised)))))
    error = error_of(read_refusal(frame))
    assert type(error) is NotLeader
    assert str(error) == str(raised)
    assert error.leader == 2
    assert type(error_of(refusal_of(UnknownTopic("orders")))) is UnknownTopic


def test_an_error_of_a_later_version_is_still_one() -> None:
    error = error_of(Refusal("never_heard_of", "Do this instead."))
    assert str(error) == "Do this instead."
    assert error.code == "internal"
