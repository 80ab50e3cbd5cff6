"""Frames between nodes: bytes in, frames out, and back.

A frame says what it is, which kind of message it carries and to which call it belongs. Its head
is a message in the encoding of whoever sent it. Its body is raw bytes, mostly batches of records,
and is handed on as a view of the receive buffer: whoever needs it later copies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

import msgspec

from goqueue.model.errors import MalformedRequest, RequestTooLarge
from goqueue.wire.parts import Part

PROTOCOL_VERSION = 1
FRAME_BYTES_MAX = 128 << 20
NO_CALL = 0

_HEAD = Struct(">IBBQI")  # length of what follows it, role, kind, call, length of the head
_LENGTH = Struct(">I")
_AFTER_LENGTH = _HEAD.size - _LENGTH.size
_MAGIC = b"GQPR"


class Role(IntEnum):
    """What a frame is to the one who gets it."""

    HELLO = 0
    CALL = 1
    ANSWER = 2
    REFUSAL = 3
    NOTICE = 4


class Frame(NamedTuple):
    role: Role
    kind: int
    call: int
    head: bytes
    body: memoryview


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who speaks. The first frame in each direction, before anything is believed."""

    cluster_id: str
    node_id: int
    version: int = PROTOCOL_VERSION
    magic: bytes = _MAGIC


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """An error as an answer; `detail` is what its class knows besides the text."""

    code: str
    text: str
    detail: dict[str, int | str] = {}


_hello_decoder = msgspec.msgpack.Decoder(Hello)
_refusal_decoder = msgspec.msgpack.Decoder(Refusal)
_encode = msgspec.msgpack.Encoder().encode


def frame_parts(
    role: Role, kind: int, call: int, head: bytes, body: Sequence[Part] = ()
) -> list[Part]:
    """A frame, ready to be sent."""
    length = _AFTER_LENGTH + len(head) + sum(map(len, body))
    if length > FRAME_BYTES_MAX:
        raise RequestTooLarge(f"A frame between nodes has at most {FRAME_BYTES_MAX} bytes.")
    return [_HEAD.pack(length, role, kind, call, len(head)) + head, *body]


def hello_parts(hello: Hello) -> list[Part]:
    return frame_parts(Role.HELLO, 0, NO_CALL, _encode(hello))


def refusal_parts(kind: int, call: int, refusal: Refusal) -> list[Part]:
    return frame_parts(Role.REFUSAL, kind, call, _encode(refusal))


def take_frame(data: memoryview) -> tuple[Frame, int] | None:
    """The frame that `data` begins with and its length, or None while it has not come whole."""
    if len(data) < _HEAD.size:
        if len(data) >= _LENGTH.size:
            _check_length(_LENGTH.unpack_from(data)[0])
        return None
    length, role, kind, call, head_length = _HEAD.unpack_from(data)
    _check_length(length)
    end = _LENGTH.size + length
    head_end = _HEAD.size + head_length
    if head_end > end:
        raise MalformedRequest("A frame between nodes says its head is longer than itself.")
    if len(data) < end:
        return None
    if role not in Role.__members__.values():
        raise MalformedRequest(f"No frame between nodes has the role {role}.")
    head = bytes(data[_HEAD.size : head_end])
    return Frame(Role(role), kind, call, head, data[head_end:end]), end


def wanted_bytes(data: memoryview) -> int:
    """How many bytes the frame at the start of `data` has, as far as that can be told."""
    if len(data) < _LENGTH.size:
        return _LENGTH.size
    return _LENGTH.size + int(_LENGTH.unpack_from(data)[0])


def read_hello(frame: Frame) -> Hello:
    """Who speaks, if the frame says so in a way we understand."""
    if frame.role is not Role.HELLO:
        raise MalformedRequest("A node must say who it is before anything else.")
    try:
        hello = _hello_decoder.decode(frame.head)
    except msgspec.MsgspecError as error:
        raise MalformedRequest(f"This is not how a node says who it is: {error}.") from error
    if hello.magic != _MAGIC:
        raise MalformedRequest("This listener is for other nodes; clients have their own.")
    return hello


def read_refusal(frame: Frame) -> Refusal:
    try:
        return _refusal_decoder.decode(frame.head)
    except msgspec.MsgspecError as error:
        raise MalformedRequest(f"This is not how a node refuses: {error}.") from error


def _check_length(length: int) -> None:
    if length < _AFTER_LENGTH:
        raise MalformedRequest(f"A frame between nodes cannot have {length} bytes.")
    if length > FRAME_BYTES_MAX:
        raise RequestTooLarge(
            f"A frame between nodes has at most {FRAME_BYTES_MAX} bytes, not {length}."
        )
