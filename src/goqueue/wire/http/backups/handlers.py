"""Backups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.wire.carrier.calls import Raw
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies import backups as bodies

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

_PARTITIONS_MAX = 1 << 20
_ID_BYTES = 16


async def cut(front: FrontEnd, call: Call, body: bodies.TakeCut) -> bodies.BackupCut:
    taken = await front.gate.backups.cut(call.session, topics=body.topics)
    return bodies.BackupCut(
        cluster_id=taken.cluster_id,
        cut_ms=taken.began_ms,
        metadata=taken.metadata,
        feature_level=taken.feature_level,
        topics=[
            bodies.TopicCut(
                name=topic.name,
                id=topic.id.hex(),
                partitions=[
                    bodies.PartitionSpan(start=one.start, end=one.end) for one in topic.spans
                ],
            )
            for topic in taken.topics
        ],
    )


async def read(front: FrontEnd, call: Call, query: bodies.ReadBatches) -> Raw:
    piece = await front.gate.backups.read(
        call.session,
        topic_id=_topic_id(call.text("topic_id")),
        number=call.number("partition", most=_PARTITIONS_MAX),
        offset=query.offset,
        until=query.until,
    )
    shown = bodies.Piece(piece.start, piece.cleaned, piece.data)
    return Raw(bodies.encode_piece(shown), bodies.PIECE_TYPE.encode())


def _topic_id(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != _ID_BYTES:
        raise InvalidField(f"{text[:100]!r} is not a topic id in hexadecimal.", field="topic_id")
    return found
