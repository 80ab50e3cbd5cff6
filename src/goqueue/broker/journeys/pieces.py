"""What nodes send to the owners of the journal: pieces of the history of a source."""

from __future__ import annotations

import msgspec

from goqueue.model.bounds import LeaderEpoch, PartitionNumber, TopicId
from goqueue.tracing.events import Source

NO_RESET = -1
# The partition numbers of sources that are not the log of a partition; no topic has so many. The
# removal of the oldest records of a partition is a source beside the log of the partition.
REMOVAL_BASE = 1 << 23
OWN_PARTITION = 1 << 24  # of a run of a node

# Results of a piece, and of the question how far the journal is, that are not positions.
WRITTEN = -1  # or it was written before
FENCED = -2  # a newer leader of the source writes
UNKNOWN = -3  # the journal has nothing of the source


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """All events, about the partitions of one journal partition, from a part of a source's log.

    It is accepted if the journal has everything before `first`. With `reset_from`, the log of the
    source was truncated to `first`, and the journal has everything before `reset_from`.
    """

    topic_id: TopicId
    partition: PartitionNumber
    epoch: LeaderEpoch
    first: int
    end: int
    records: list[tuple[bytes, bytes]] = []
    reset_from: int = NO_RESET
    event_count: int = 0  # in the records

    @property
    def source(self) -> Source:
        return Source(self.topic_id, self.partition)

    @property
    def is_own(self) -> bool:
        """Whether its events follow from no log, so that nothing can derive them again."""
        return self.partition == OWN_PARTITION

    @property
    def size(self) -> int:
        return _PIECE_BYTES + sum([len(key) + len(value) for key, value in self.records])


class Write(msgspec.Struct, frozen=True, array_like=True, tag="write"):
    """Append pieces to a partition of the journal; the answer has a result for each."""

    number: PartitionNumber
    pieces: list[Piece]


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Return how far a partition of the journal has these sources, for leaders of these epochs."""

    number: PartitionNumber
    sources: list[tuple[TopicId, PartitionNumber, LeaderEpoch]]


Call = Write | Ask
Results = list[int]

_PIECE_BYTES = 64

encode = msgspec.msgpack.Encoder().encode
decode_call = msgspec.msgpack.Decoder(Call).decode
decode_results = msgspec.msgpack.Decoder(Results).decode
