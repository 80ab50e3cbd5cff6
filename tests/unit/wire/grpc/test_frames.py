"""What a connection holds of incomplete messages, from its frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import MalformedRequest
from goqueue.wire.grpc import frames
from goqueue.wire.grpc.frames import PREFACE, Frames, PartialMessages

DATA, HEADERS, RESET, SETTINGS, PING = 0, 1, 3, 4, 6
END_STREAM, PADDED = 0x1, 0x8


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def message(size: int) -> bytes:
    return b"\0" + size.to_bytes(4, "big") + b"x" * size


class Line:
    """Both directions of a connection."""

    def __init__(self) -> None:
        self.held = PartialMessages()
        self.client = Frames(self.held, is_client=True)
        self.server = Frames(self.held, is_client=False)
        self.client.feed(memoryview(PREFACE))

    def sends(self, *parts: bytes) -> int:
        for part in parts:
            self.client.feed(memoryview(part))
        return self.held.bytes_held

    def answers(self, *parts: bytes) -> int:
        for part in parts:
            self.server.feed(memoryview(part))
        return self.held.bytes_held


def test_complete_messages_are_not_held() -> None:
    line = Line()
    assert line.sends(frame(SETTINGS, 0, b"123456"), frame(HEADERS, 1, b"head")) == 0
    assert line.sends(frame(DATA, 1, message(100))) == 0
    assert line.sends(frame(DATA, 1, message(0) + message(7) + message(0))) == 0


def test_the_part_of_a_message_that_has_come_is_held_until_the_rest_comes() -> None:
    line, whole = Line(), message(100)
    assert line.sends(frame(DATA, 1, whole[:60])) == 60
    assert line.sends(frame(PING, 0, b"12345678"), frame(DATA, 3, whole[:3])) == 63
    assert line.sends(frame(DATA, 1, whole[60:])) == 3
    assert line.sends(frame(DATA, 3, whole[3:] + whole[:10])) == 10


@pytest.mark.parametrize(
    "last",
    [frame(RESET, 1, b"\0\0\0\x08"), frame(DATA, 1, b"", END_STREAM), frame(HEADERS, 1, b"t", 1)],
    ids=["reset", "data", "trailers"],
)
def test_a_stream_that_ends_holds_nothing(last: bytes) -> None:
    line = Line()
    assert line.sends(frame(DATA, 1, message(100)[:50])) == 50
    assert line.sends(last) == 0


@pytest.mark.parametrize(
    "last", [frame(RESET, 1, b"\0\0\0\0"), frame(HEADERS, 1, b"trailers", END_STREAM)]
)
def test_a_stream_that_the_server_ends_holds_nothing(last: bytes) -> None:
    line = Line()
    line.sends(frame(DATA, 1, message(100)[:50]))
    assert line.answers(frame(DATA, 1, message(30)[:20])) == 50, "responses are not counted"
    assert line.answers(last) == 0


def test_padding_is_no_part_of_a_message() -> None:
    line = Line()
    payload = bytes((4,)) + message(10) + b"\0" * 4
    assert line.sends(frame(DATA, 1, payload, PADDED)) == 0
    assert line.sends(frame(DATA, 1, bytes((2,)) + message(10)[:8] + b"\0\0", PADDED)) == 8
    assert line.sends(frame(DATA, 1, bytes((200, 1, 2)), PADDED)) == 8, "more padding than payload"


def test_a_connection_cannot_have_any_number_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "STREAMS_MAX", 3)
    line = Line()
    line.sends(*(frame(DATA, number, b"\0") for number in (1, 3, 5)))
    with pytest.raises(MalformedRequest, match="too many streams"):
        line.sends(frame(DATA, 7, b"\0"))


@given(st.data())
def test_it_does_not_matter_where_the_pieces_are_cut(data: st.DataObject) -> None:
    streams = st.sampled_from([1, 3, 5])
    cut = data.draw(st.lists(st.tuples(streams, st.integers(0, 40)), max_size=8))
    sent = b"".join(frame(DATA, stream, message(30)[:size]) for stream, size in cut)
    whole, pieces = Line(), Line()
    whole.sends(sent)
    at = 0
    while at < len(sent):
        count = data.draw(st.integers(1, 20))
        pieces.sends(sent[at : at + count])
        at += count
    assert pieces.held.bytes_held == whole.held.bytes_held


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_any_bytes_are_read_without_harm(pieces: list[bytes]) -> None:
    line = Line()
    line.sends(*pieces)
    assert 0 <= line.held.bytes_held <= sum(map(len, pieces))
