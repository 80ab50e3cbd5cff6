"""Messages of the quorum: the same after the way over the wire, and refused when they are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.cluster.raft import Entry, EntryKind, Members, Message, Position, decode, encode
from goqueue.cluster.raft.messages import (
    COUNTER_MAX,
    Append,
    AppendAnswer,
    PreVote,
    PreVoteAnswer,
    SnapshotAnswer,
    SnapshotChunk,
    StandNow,
    Vote,
    VoteAnswer,
    decode_members,
    encode_members,
)
from goqueue.model.errors import MalformedRequest

MEMBERS = Members((0, 1, 2), (7,))
MESSAGES: list[Message] = [
    PreVote(1, 2, 9, Position(4, 3)),
    PreVoteAnswer(2, 1, 9, 9, True),
    Vote(1, 2, 10, Position(4, 3), True),
    VoteAnswer(2, 1, 10, False),
    Append(
        1,
        2,
        COUNTER_MAX,
        Position(4, 3),
        [
            Entry(5, 3, EntryKind.PAYLOAD, bytes(range(256))),
            Entry(6, 10, EntryKind.NOTHING, b""),
            Entry(7, 10, EntryKind.MEMBERS, encode_members(MEMBERS)),
        ],
        4,
        77,
    ),
    AppendAnswer(2, 1, 10, 77, False, 0, 4, Position(3, 2)),
    SnapshotChunk(1, 2, 10, Position(50, 9), MEMBERS, 30, 10, b"x" * 20),
    SnapshotAnswer(2, 1, 10, Position(50, 9), 30),
    StandNow(1, 2, 10),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    data = encode(message)
    assert decode(data) == message
    assert decode(memoryview(data)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_message_without_its_end_is_refused(message: Message) -> None:
    data = encode(message)
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode(data[:end])
    with pytest.raises(MalformedRequest):
        decode(data + b"\0")


@given(st.binary(max_size=200))
def test_random_bytes_are_a_message_or_malformed(data: bytes) -> None:
    for candidate in (data, b"\x01" + data):
        try:
            decode(candidate)
        except MalformedRequest:
            pass


@given(st.sampled_from(MESSAGES), st.integers(0, 2_000), st.integers(0, 255))
def test_a_changed_byte_gives_a_message_or_malformed(message: Message, at: int, byte: int) -> None:
    data = bytearray(encode(message))
    data[at % len(data)] = byte
    try:
        again = decode(bytes(data))
    except MalformedRequest:
        return
    assert decode(encode(again)) == again


def test_another_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(MalformedRequest, match="same release"):
        decode(b"\x02" + encode(MESSAGES[0])[1:])


@pytest.mark.parametrize(
    "entries",
    [
        [Entry(6, 3, EntryKind.PAYLOAD, b"")],
        [Entry(5, 2, EntryKind.PAYLOAD, b"")],
        [Entry(5, 11, EntryKind.PAYLOAD, b"")],
        [Entry(5, 3, EntryKind.PAYLOAD, b""), Entry(5, 3, EntryKind.PAYLOAD, b"")],
        [Entry(5, 3, EntryKind.MEMBERS, b"nobody")],
        [Entry(5, 3, EntryKind.MEMBERS, encode_members(Members((1, 1))))],
    ],
)
def test_entries_that_cannot_stand_in_a_log_are_refused(entries: list[Entry]) -> None:
    message = Append(1, 2, 10, Position(4, 3), entries, 4, 0)
    with pytest.raises(MalformedRequest):
        decode(encode(message))


def test_a_chunk_beyond_its_snapshot_or_of_a_later_term_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="beyond"):
        decode(encode(SnapshotChunk(1, 2, 10, Position(5, 9), MEMBERS, 10, 8, b"abc")))
    with pytest.raises(MalformedRequest, match="newer"):
        decode(encode(SnapshotChunk(1, 2, 8, Position(5, 9), MEMBERS, 3, 0, b"abc")))


def test_members_are_read_back_and_no_node_is_named_twice() -> None:
    assert decode_members(encode_members(MEMBERS)) == MEMBERS
    assert [Members(tuple(range(count))).majority for count in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    with pytest.raises(MalformedRequest, match="twice"):
        decode_members(encode_members(Members((1, 2), (2,))))
