"""Backups: the cut of a cluster, and batches as they are stored."""

from __future__ import annotations

import struct
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body

OFFSET_MAX = (1 << 63) - 1
PIECE_TYPE = "application/vnd.goqueue.batches"

_PIECE_HEAD = struct.Struct(">4sHqq")
_PIECE_MAGIC = b"GQBP"
_PIECE_VERSION = 1

TopicIdText = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]


class TakeCut(Body, kw_only=True):
    """A selection of topics."""

    topics: Annotated[
        Annotated[list[str], Meta(max_length=10_000)] | None,
        Meta(description="Leave out the messages of other topics."),
    ] = None


class PartitionSpan(Answer, kw_only=True):
    """The offsets of a partition at the cut."""

    start: int
    end: int


class TopicCut(Answer, kw_only=True):
    """A topic, and the spans of its partitions by number."""

    name: str
    id: Annotated[str, Meta(description="In hexadecimal.")]
    partitions: list[PartitionSpan]


class BackupCut(Answer, kw_only=True):
    """A consistent cut: the metadata, and up to where to read each partition."""

    cluster_id: str
    cut_ms: Annotated[int, Meta(description="What was acknowledged before is included.")]
    metadata: Annotated[
        bytes,
        Meta(description="Users, rules, settings and topics, as one opaque value in base64."),
    ]
    topics: list[TopicCut]
    feature_level: Annotated[
        int, Meta(description="A release that restores it must support this feature level.")
    ] = 2


class ReadBatches(Body, kw_only=True):
    """Where to read."""

    offset: Offset = 0
    until: Annotated[Offset, Meta(description="The end of the partition in the cut.")]


class Piece(NamedTuple):
    """Whole batches of a partition, and the state of its log when they were read."""

    start: int  # of the log
    cleaned: int  # compaction has removed records below this offset
    data: bytes


def encode_piece(piece: Piece) -> bytes:
    head = _PIECE_HEAD.pack(_PIECE_MAGIC, _PIECE_VERSION, piece.start, piece.cleaned)
    return head + piece.data


def decode_piece(data: bytes) -> Piece:
    """Decode a response; raise `msgspec.DecodeError` if it is none."""
    if len(data) < _PIECE_HEAD.size:
        raise msgspec.DecodeError("it is too short")
    magic, version, start, cleaned = _PIECE_HEAD.unpack_from(data)
    if (magic, version) != (_PIECE_MAGIC, _PIECE_VERSION):
        raise msgspec.DecodeError("it contains no batches")
    return Piece(start, cleaned, data[_PIECE_HEAD.size :])
