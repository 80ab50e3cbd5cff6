"""The codec of frames between nodes.

A frame has a role, the kind of its message and the number of its call. Its head is a message in the
encoding of its sender. Its body is raw bytes, mostly record batches, and is passed on as a view of
the receive buffer, so it must be copied to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from goqueue.model.errors import MalformedRequest, RequestTooLarge
from goqueue.model.errors.refusals import Refusal
from goqueue.model.support import UNKNOWN, Support
from goqueue.wire.parts import Part

HANDSHAKE_VERSION = 1  # of the frames of the handshake itself, which must not change
# The versions of the protocol between nodes that this release speaks.
PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
FRAME_BYTES_MAX = 128 << 20
HANDSHAKE_FRAME_BYTES_MAX = 2_048  # of a frame of an unauthenticated peer
NO_CALL = 0
# Used by discovery, which identifies nodes and may reach its own address.
ASKING_ID = -1
NONCE_BYTES = 32
PROOF_BYTES = 32

_HEAD = Struct(">IBBQI")  # length of what follows it, role, kind, call, length of the head
_LENGTH = Struct(">I")
_AFTER_LENGTH = _HEAD.size - _LENGTH.size
_MAGIC = b"GQPR"


class Role(IntEnum):
    """The role of a frame for its receiver."""

    HELLO = 0
    CALL = 1
    ANSWER = 2
    REFUSAL = 3
    NOTICE = 4
    CHALLENGE = 5
    PROOF = 6


class Frame(NamedTuple):
    role: Role
    kind: int
    call: int
    head: bytes
    body: memoryview


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a node; the first frame in each direction, before authentication."""

    cluster_id: Annotated[str, Meta(max_length=256)]
    node_id: Annotated[int, Meta(ge=ASKING_ID, le=(1 << 31) - 1)]
    version: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] = HANDSHAKE_VERSION
    magic: bytes = _MAGIC
    # If nodes authenticate by a secret; see `handshake`.
    nonce: Annotated[bytes, Meta(max_length=NONCE_BYTES)] = b""
    key_ids: Annotated[list[bytes], Meta(max_length=16)] = []
    proof: Annotated[bytes, Meta(max_length=PROOF_BYTES)] = b""
    callee_id: int = ASKING_ID  # the node that the caller expects
    # Releases from before these fields ignore them, and leave them out: they speak version 1.
    protocol_min: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] = 1
    protocol_max: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] = 1
    support: Support = UNKNOWN


class Challenge(msgspec.Struct, frozen=True, array_like=True):
    """The challenge of the callee, by which the caller proves that it has the secret."""

    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    key_id: Annotated[bytes, Meta(max_length=NONCE_BYTES)]


_hello_decoder = msgspec.msgpack.Decoder(Hello)
_challenge_decoder = msgspec.msgpack.Decoder(Challenge)
_refusal_decoder = msgspec.msgpack.Decoder(Refusal)
_encode = msgspec.msgpack.Encoder().encode


def frame_parts(
    role: Role, kind: int, call: int, head: bytes, body: Sequence[Part] = ()
) -> list[Part]:
    """Encode a frame."""
    length = _AFTER_LENGTH + len(head) + sum(map(len, body))
    if length > FRAME_BYTES_MAX:
        raise RequestTooLarge(f"A frame between nodes has at most {FRAME_BYTES_MAX} bytes.")
    return [_HEAD.pack(length, role, kind, call, len(head)) + head, *body]


def hello_parts(hello: Hello) -> list[Part]:
    return frame_parts(Role.HELLO, 0, NO_CALL, _encode(hello))


def challenge_parts(nonce: bytes, key_id: bytes) -> list[Part]:
    return frame_parts(Role.CHALLENGE, 0, NO_CALL, _encode(Challenge(nonce, key_id)))


def proof_parts(proof: bytes) -> list[Part]:
    return frame_parts(Role.PROOF, 0, NO_CALL, proof)


def refusal_parts(kind: int, call: int, refusal: Refusal) -> list[Part]:
    return frame_parts(Role.REFUSAL, kind, call, _encode(refusal))


def take_frame(data: memoryview, bytes_max: int = FRAME_BYTES_MAX) -> tuple[Frame, int] | None:
    """The frame at the start of `data` and its length, or None if it is incomplete."""
    if len(data) < _HEAD.size:
        if len(data) >= _LENGTH.size:
            _check_length(_LENGTH.unpack_from(data)[0], bytes_max)
        return None
    length, role, kind, call, head_length = _HEAD.unpack_from(data)
    _check_length(length, bytes_max)
    end = _LENGTH.size + length
    head_end = _HEAD.size + head_length
    if head_end > end:
        raise MalformedRequest("The head of a frame between nodes is longer than the frame.")
    if len(data) < end:
        return None
    if role not in Role.__members__.values():
        raise MalformedRequest(f"No frame between nodes has the role {role}.")
    head = bytes(data[_HEAD.size : head_end])
    return Frame(Role(role), kind, call, head, data[head_end:end]), end


def wanted_bytes(data: memoryview) -> int:
    """The length of the frame at the start of `data`, if enough of it was received."""
    if len(data) < _LENGTH.size:
        return _LENGTH.size
    return _LENGTH.size + int(_LENGTH.unpack_from(data)[0])


def read_hello(frame: Frame) -> Hello:
    """Decode the identity of a node."""
    if frame.role is not Role.HELLO:
        raise MalformedRequest("The first frame of a node must be its identity.")
    try:
        hello = _hello_decoder.decode(frame.head)
    except msgspec.MsgspecError as error:
        raise MalformedRequest(f"The identity of a node cannot be decoded: {error}.") from error
    if hello.magic != _MAGIC:
        raise MalformedRequest("This listener is for other nodes; clients have their own.")
    return hello


def read_challenge(frame: Frame) -> Challenge:
    try:
        return _challenge_decoder.decode(frame.head)
    except msgspec.MsgspecError as error:
        raise MalformedRequest(f"The challenge of a node cannot be decoded: {error}.") from error


def read_proof(frame: Frame) -> bytes:
    if frame.role is not Role.PROOF or len(frame.head) != PROOF_BYTES:
        raise MalformedRequest("A node must prove that it has the secret of the cluster.")
    return frame.head


def read_refusal(frame: Frame) -> Refusal:
    try:
        return _refusal_decoder.decode(frame.head)
    except msgspec.MsgspecError as error:
        raise MalformedRequest(f"The refusal of a node cannot be decoded: {error}.") from error


def _check_length(length: int, bytes_max: int) -> None:
    if length < _AFTER_LENGTH:
        raise MalformedRequest(f"A frame between nodes cannot have {length} bytes.")
    if length > bytes_max:
        raise RequestTooLarge(f"A frame between nodes has at most {bytes_max} bytes, not {length}.")
