"""What followers and leaders say to each other, and the notices in which it travels.

A follower's questions and a leader's answers about many partitions share a notice; each of them
stands for itself. The bytes of batches travel beside a notice, in the order of the answers. What is
not a notice, or has numbers that no log can have, raises `MalformedRequest` here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from goqueue.model.bounds import LeaderEpoch, Offset
from goqueue.model.errors import MalformedRequest

VERSION = 1

TopicId = Annotated[bytes, Meta(max_length=16)]
Incarnation = Annotated[bytes, Meta(max_length=64)]
# In each of these, -1 stands for none.
Number = Offset
Epoch = LeaderEpoch


class FetchStatus(IntEnum):
    """Why an answer has batches or has none."""

    OK = 0
    DIVERGING = 1  # The follower has what the leader has not; `diverging_*` say up to where.
    BELOW_START = 2  # The leader's log begins later than the follower's ends.
    FENCED_EPOCH = 3  # The follower believes in an earlier leader.
    UNKNOWN_EPOCH = 4  # The follower knows of a later leader.
    NOT_LEADER = 5
    UNKNOWN_REPLICA = 6  # Not a replica, or in another incarnation than the leader knows of.
    DAMAGED = 7  # The leader cannot read its own log there.


class ReplicaFetch(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A follower asks for what comes after the end of its log, and says how far it has come."""

    topic_id: TopicId
    partition: Number
    request: Number  # the answer repeats it
    leader_epoch: Epoch
    last_epoch: Epoch  # of the last batch before `offset`; -1 when there is none
    offset: Number
    durable_offset: Number
    start_offset: Number
    bytes_max: Number
    version: Number = 0  # of the partition, as the follower knows it
    is_eager: bool = False  # to know the high watermark: somebody there waits for messages


class ReplicaFetched(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The leader's answer. `request`, `last_epoch` and `offset` are those of the question."""

    topic_id: TopicId
    partition: Number
    request: Number
    leader_epoch: Epoch
    last_epoch: Epoch
    offset: Number
    status: FetchStatus
    high_watermark: Number
    start_offset: Number
    diverging_epoch: Epoch = -1
    diverging_end: Number = -1
    # Where a follower that shares nothing begins: the leader's first batch.
    restart_offset: Number = -1
    batches_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 0


class ReplicaReport(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A follower has made durable what it was sent; said when its next question is already out."""

    topic_id: TopicId
    partition: Number
    leader_epoch: Epoch
    durable_offset: Number
    version: Number = 0


class FollowerNotice(msgspec.Struct, frozen=True, array_like=True):
    """What a follower has to say to one leader at one time."""

    incarnation: Incarnation
    fetches: list[ReplicaFetch] = []
    reports: list[ReplicaReport] = []


class Served(NamedTuple):
    """A leader's answer, and the batches that go with it."""

    answer: ReplicaFetched
    batches: bytes = b""


NoticeT = TypeVar("NoticeT")

_encoder = msgspec.msgpack.Encoder()
_follower_decoder = msgspec.msgpack.Decoder(FollowerNotice)
_leader_decoder = msgspec.msgpack.Decoder(list[ReplicaFetched])


def encode_follower_notice(notice: FollowerNotice) -> bytes:
    return bytes((VERSION,)) + _encoder.encode(notice)


def decode_follower_notice(data: bytes) -> FollowerNotice:
    return _decode(data, _follower_decoder)


def encode_answers(answers: Sequence[ReplicaFetched]) -> bytes:
    """The head of a leader's notice; the body is the batches of all answers in their order."""
    return bytes((VERSION,)) + _encoder.encode(answers)


def decode_answers(head: bytes, body: memoryview) -> Iterator[Served]:
    """The answers of a leader's notice, each with its batches."""
    answers = _decode(head, _leader_decoder)
    if sum(answer.batches_bytes for answer in answers) != len(body):
        raise MalformedRequest("The answers of a leader do not account for the batches with them.")
    return _with_batches(answers, body)


def _with_batches(answers: list[ReplicaFetched], body: memoryview) -> Iterator[Served]:
    at = 0
    for answer in answers:
        yield Served(answer, bytes(body[at : at + answer.batches_bytes]))
        at += answer.batches_bytes


def _decode(data: bytes, decoder: msgspec.msgpack.Decoder[NoticeT]) -> NoticeT:
    if data[:1] != bytes((VERSION,)):
        raise MalformedRequest("A notice between replicas is of a version that is not known here.")
    try:
        return decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"A notice between replicas cannot be read: {error}.") from error
