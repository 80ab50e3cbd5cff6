"""Messages between followers and leaders, and their encoding.

Fetches of a follower and answers of a leader for many partitions share a notice; each is
independent. The batches follow a notice, in the order of the answers. Data that is not a notice, or
has numbers that no log can have, raises `MalformedRequest`.
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
# -1 means none in each of these.
Number = Offset
Epoch = LeaderEpoch


class FetchStatus(IntEnum):
    """Why an answer has batches or has none."""

    OK = 0
    DIVERGING = 1  # The leader lacks records of the follower; `diverging_*` give the agreed end.
    BELOW_START = 2  # The leader's log starts after the follower's ends.
    FENCED_EPOCH = 3  # The follower names an earlier leader epoch.
    UNKNOWN_EPOCH = 4  # The follower names a later leader epoch.
    NOT_LEADER = 5
    UNKNOWN_REPLICA = 6  # Not a replica, or not in the incarnation that the leader's metadata has.
    DAMAGED = 7  # The leader cannot read its own log there.


class ReplicaFetch(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A follower's request for what follows the end of its log, with its progress."""

    topic_id: TopicId
    partition: Number
    request: Number  # repeated in the answer
    leader_epoch: Epoch
    last_epoch: Epoch  # of the last batch before `offset`; -1 if there is none
    offset: Number
    durable_offset: Number
    start_offset: Number
    bytes_max: Number
    version: Number = 0  # of the partition, in the follower's metadata
    is_eager: bool = False  # return the high watermark at once: consumers wait for messages there

    def answered(
        self,
        status: FetchStatus,
        *,
        high_watermark: int = -1,
        start_offset: int = -1,
        diverging_epoch: int = -1,
        diverging_end: int = -1,
        restart_offset: int = -1,
        batches_bytes: int = 0,
    ) -> ReplicaFetched:
        """Return the answer to this fetch."""
        return ReplicaFetched(
            topic_id=self.topic_id,
            partition=self.partition,
            request=self.request,
            leader_epoch=self.leader_epoch,
            last_epoch=self.last_epoch,
            offset=self.offset,
            status=status,
            high_watermark=high_watermark,
            start_offset=start_offset,
            diverging_epoch=diverging_epoch,
            diverging_end=diverging_end,
            restart_offset=restart_offset,
            batches_bytes=batches_bytes,
        )


class ReplicaFetched(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The leader's answer. `request`, `last_epoch` and `offset` repeat those of the fetch."""

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
    # Where a follower with no common history starts: the leader's first batch.
    restart_offset: Number = -1
    batches_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 0


class ReplicaReport(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Reports that a follower has made more durable while its next fetch is already in flight."""

    topic_id: TopicId
    partition: Number
    leader_epoch: Epoch
    durable_offset: Number
    version: Number = 0


class FollowerNotice(msgspec.Struct, frozen=True, array_like=True):
    """What a follower sends to one leader at one time."""

    incarnation: Incarnation
    fetches: list[ReplicaFetch] = []
    reports: list[ReplicaReport] = []


class Served(NamedTuple):
    """A leader's answer and its batches."""

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
    """Encode the head of a leader's notice; its body is the batches of all answers in order."""
    return bytes((VERSION,)) + _encoder.encode(answers)


def decode_answers(head: bytes, body: memoryview) -> Iterator[Served]:
    """Decode the answers of a leader's notice, each with its batches."""
    answers = _decode(head, _leader_decoder)
    if sum(answer.batches_bytes for answer in answers) != len(body):
        raise MalformedRequest("The answers of a leader do not match the size of their batches.")
    return _with_batches(answers, body)


def _with_batches(answers: list[ReplicaFetched], body: memoryview) -> Iterator[Served]:
    at = 0
    for answer in answers:
        yield Served(answer, bytes(body[at : at + answer.batches_bytes]))
        at += answer.batches_bytes


def _decode(data: bytes, decoder: msgspec.msgpack.Decoder[NoticeT]) -> NoticeT:
    if data[:1] != bytes((VERSION,)):
        raise MalformedRequest("A replication message has an unknown version; upgrade all nodes.")
    try:
        return decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"A replication message cannot be decoded: {error}.") from error
