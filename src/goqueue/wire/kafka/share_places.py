"""Partitions in requests and responses of share consumers: topics by id, acknowledgements, errors.

Clients fail on error codes that they do not expect from a partition, so those are translated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    NotLeader,
    UnknownTopicId,
)
from goqueue.model.share_groups import AckBatch, AckType, ShareAcks
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.share_sessions import PartitionRef
from goqueue.wire.kafka.topic_ids import find_name

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

# What clients expect of a partition that they fetch from; anything else is fatal to some.
_FETCH_CODES: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

Place = tuple[str, int]  # the name of a topic and the number of a partition


class AckedRange(Protocol):
    """A range of offsets and what became of them, as either API sends it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class AckedPartition(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[AckedRange]: ...


class AckedTopic(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[AckedPartition]: ...


class Places:
    """The partitions of one request, found by the ids of their topics."""

    __slots__ = ("_call", "_front", "_names")

    def __init__(self, front: FrontEnd, call: Call) -> None:
        self._front = front
        self._call = call
        self._names = call.connection.grants.topic_names

    def find(self, place: PartitionRef) -> Place | None:
        """Return the partition; None if its topic does not exist, or the client may not see it."""
        topic_id, number = place
        name = self._names.get(topic_id)
        if name is None:
            name = find_name(self._front, self._call, topic_id)
            if name is None:
                return None
            self._names[topic_id] = name
        return name, number

    def leader(self, place: Place) -> tuple[int, int]:
        """Return the leader of a partition and its epoch."""
        name, number = place
        (placement,) = self._front.gate.topics.placements(
            self._call.session, topic=name, first=number, last=number + 1
        )
        return placement.leader, placement.leader_epoch

    def endpoints(self, nodes: Iterable[int]) -> Iterator[tuple[int, str, int, str | None]]:
        """Return where nodes are reached: id, host, port and rack."""
        session = self._call.session
        brokers, racks = self._front.brokers(session), self._front.racks(session)
        for node in nodes:
            if node in brokers:
                yield node, *brokers[node], racks.get(node) or None


class Acks:
    """The acknowledgements of a request, and what becomes of each partition's."""

    __slots__ = ("_named", "errors", "wanted")

    def __init__(self, places: Places, topics: Iterable[AckedTopic], *, may_renew: bool) -> None:
        self.wanted: list[ShareAcks] = []
        self.errors: dict[PartitionRef, GoQueueError | None] = {}
        self._named: list[PartitionRef] = []
        for ref, ranges in _ranges(topics).items():
            place = places.find(ref)
            if place is None:
                self.errors[ref] = UnknownTopicId(ref[0].hex())
            elif not may_renew and any(AckType.RENEW in one.acknowledge_types for one in ranges):
                self.errors[ref] = InvalidRequest("This request does not announce renewals.")
            else:
                self._named.append(ref)
                self.wanted.append(ShareAcks(*place, tuple(map(_batch, ranges))))

    def settled(self, outcomes: Iterable[GoQueueError | None]) -> None:
        """Set what has become of those that were wanted, in order."""
        self.errors.update(zip(self._named, outcomes, strict=True))

    def failed(self, error: GoQueueError) -> None:
        """None of those that were wanted could be applied."""
        self.settled([error] * len(self._named))


def _ranges(topics: Iterable[AckedTopic]) -> Mapping[PartitionRef, list[AckedRange]]:
    """The ranges of each partition that has some, also if it is named more than once."""
    found: dict[PartitionRef, list[AckedRange]] = {}
    for topic in topics:
        for one in topic.partitions:
            if one.acknowledgement_batches:
                ranges = found.setdefault((topic.topic_id, one.partition_index), [])
                ranges += one.acknowledgement_batches
    return found


def _batch(one: AckedRange) -> AckBatch:
    # A byte that is no type is refused with the others, so its sign does not matter.
    types = bytes(kind & 0xFF for kind in one.acknowledge_types)
    return AckBatch(one.first_offset, one.last_offset, types)


def fetch_code(error: GoQueueError) -> int:
    """The code for a partition that cannot be fetched from now."""
    code = code_of(error)
    if code in _FETCH_CODES:
        return code
    # A client asks again anyway, so for what will pass it is enough to return no records.
    return ErrorCode.NONE if error.retryable else ErrorCode.UNKNOWN_SERVER_ERROR


class Leaders:
    """The leaders that a response names, because its client asked another node."""

    __slots__ = ("_nodes", "_places")

    def __init__(self, places: Places) -> None:
        self._places = places
        self._nodes: set[int] = set()

    def name_in(self, data: Any, ref: PartitionRef, error: GoQueueError) -> None:
        """Set the current leader in the response for a partition, if the error is that."""
        place = self._places.find(ref) if isinstance(error, NotLeader) else None
        if place is not None:
            data.current_leader.leader_id, data.current_leader.leader_epoch = self._places.leader(
                place
            )
            self._nodes.add(data.current_leader.leader_id)

    def endpoints(self) -> list[tuple[int, str, int, str | None]]:
        return list(self._places.endpoints(sorted(self._nodes))) if self._nodes else []
