"""Resolves positions to offsets: the ends of partitions, and records by timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from goqueue.client.cluster import Cluster, Node
from goqueue.client.errors import ErrorContext, check
from goqueue.client.positions import Position, PositionKind
from goqueue.model.errors import UnsupportedVersion
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.messages import list_offsets

NO_OFFSET = -1
READER = -1  # the replica id of a client
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
# Special values of the timestamp field. The last one is an extension of GoQueue: the end of the
# records.
_RECORDS_END = -1000
_TIMESTAMPS = {PositionKind.EARLIEST: -2, PositionKind.LATEST: -1, PositionKind.NEWEST: -3}


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A result; `offset` is -1 if no record matches, `timestamp_ms` if the position has no time."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets of a partition: from `start` up to, but not including, `end`."""

    start: int
    end: int


class Offsets:
    """Looks up offsets at the leaders of partitions.

    >>> client.offsets.resolve([TopicPartition("orders", 0)], Position.latest())
    {TopicPartition(topic='orders', partition=0): 42}
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find(
        self,
        positions: Mapping[TopicPartition, Position],
        *,
        is_committed_only: bool = False,
    ) -> dict[TopicPartition, FoundOffset]:
        """Look up each position; an offset is returned unchanged."""
        requested = {
            partition: _TIMESTAMPS.get(position.kind, position.value)
            for partition, position in positions.items()
            if position.kind is not PositionKind.OFFSET
        }
        found = {
            partition: FoundOffset(position.value, -1)
            for partition, position in positions.items()
            if position.kind is PositionKind.OFFSET
        }
        if requested:
            isolation = READ_COMMITTED if is_committed_only else READ_UNCOMMITTED
            found |= self._cluster.retrying(lambda: self._list_offsets(requested, isolation))
        return found

    def resolve(
        self,
        partitions: Iterable[TopicPartition],
        position: Position,
        *,
        is_committed_only: bool = False,
    ) -> dict[TopicPartition, int]:
        """The offset of a position in each partition; a time in the future resolves to the end."""
        wanted = dict.fromkeys(partitions, position)
        found = self.find(wanted, is_committed_only=is_committed_only)
        missing = [partition for partition, each in found.items() if each.offset == NO_OFFSET]
        offsets = {partition: each.offset for partition, each in found.items()}
        if missing:
            ends = self.find(
                dict.fromkeys(missing, Position.latest()), is_committed_only=is_committed_only
            )
            offsets |= {partition: end.offset for partition, end in ends.items()}
        return offsets

    def ranges(
        self, partitions: Iterable[TopicPartition], *, is_committed_only: bool = False
    ) -> dict[TopicPartition, PartitionRange]:
        """The first and the next offset of each partition."""
        wanted = list(partitions)
        # The end is requested first: records deleted in between then cannot move the start beyond
        # it.
        ends = self.resolve(wanted, Position.latest(), is_committed_only=is_committed_only)
        starts = self.resolve(wanted, Position.earliest())
        return {
            partition: PartitionRange(starts[partition], max(starts[partition], ends[partition]))
            for partition in wanted
        }

    def records_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, for lag.

        Transaction markers and aborted records do not count. A broker without this extension, such
        as Apache Kafka, returns the end of the log.
        """
        wanted = list(partitions)
        if not wanted:
            return {}
        requested = dict.fromkeys(wanted, _RECORDS_END)
        try:
            found = self._cluster.retrying(lambda: self._list_offsets(requested, READ_UNCOMMITTED))
        except UnsupportedVersion:
            return self.resolve(wanted, Position.latest())
        return {partition: each.offset for partition, each in found.items()}

    def _list_offsets(
        self, requested: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, FoundOffset]:
        requests = {
            node: _request(topics, requested, isolation)
            for node, topics in self._cluster.by_leader(requested).items()
        }
        return self._answers(requests)

    def _answers(
        self, requests: Mapping[Node, list_offsets.ListOffsetsRequest]
    ) -> dict[TopicPartition, FoundOffset]:
        found = {}
        for response in self._cluster.call_leaders(list_offsets, requests):
            for topic in response.topics:
                for each in topic.partitions:
                    check(each.error_code, None, ErrorContext(topic.name, each.partition_index))
                    partition = TopicPartition(topic.name, each.partition_index)
                    found[partition] = FoundOffset(each.offset, each.timestamp)
        return found


def _request(
    topics: Mapping[str, list[int]], requested: Mapping[TopicPartition, int], isolation: int
) -> list_offsets.ListOffsetsRequest:
    return list_offsets.ListOffsetsRequest(
        replica_id=READER,
        isolation_level=isolation,
        topics=[
            list_offsets.ListOffsetsTopic(
                name,
                [
                    list_offsets.ListOffsetsPartition(
                        index, timestamp=requested[TopicPartition(name, index)]
                    )
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ],
    )
