"""Access to partitions wherever they are: the leader to write to, the nearest replica to read from.

Parts of the broker write to partitions of other topics: due delayed messages, dead letters, and
transaction markers. They do not depend on where such a partition is led. A write whose answer is
lost is repeated until it is confirmed, so every writer must be an idempotent producer, by which the
leader recognises a duplicate batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, Answered, Handler, PeerKind, read_answer
from goqueue.loop.promise import Promise
from goqueue.model.batch import read_header
from goqueue.model.bounds import (
    LeaderEpoch,
    Name,
    PartitionNumber,
    ProducerEpoch,
    ProducerId,
    TopicId,
    Version,
)
from goqueue.model.errors import GoQueueError, NotLeader, StorageFull, UnknownTopicId
from goqueue.model.names import TopicPartition
from goqueue.model.session import Senders, Session
from goqueue.partition import Appended, Partition

CALL_TIMEOUT_MS = 10_000  # per attempt
RETRY_MS = 100
SENDERS_MAX = 100  # of one batch; those of a batch with more are not named
SENDER_NAME_CHARS_MAX = 255

_NO_LEADER = -1
_encode = msgspec.msgpack.Encoder().encode


class _Sender(msgspec.Struct, frozen=True, array_like=True):
    """Who sent some of the records of a batch, as far as observers want to know."""

    count: Annotated[int, Meta(ge=0, le=1 << 31)]
    listener: Name
    principal: Name
    client_id: Name


class _Place(msgspec.Struct, frozen=True, array_like=True):
    topic_id: TopicId
    number: PartitionNumber
    is_checked: bool = False  # the limits of producers' batches do not apply
    senders: Annotated[tuple[_Sender, ...], Meta(max_length=SENDERS_MAX)] = ()


class Marker(msgspec.Struct, frozen=True, array_like=True):
    """The end of a producer's transaction in a partition."""

    topic_id: TopicId
    number: PartitionNumber
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    coordinator_epoch: LeaderEpoch
    turn: Version  # sequence number among the transactions that this coordinator ends
    leader_epoch: LeaderEpoch  # of the partition: fences other leaders


_place_decoder = msgspec.msgpack.Decoder(_Place)
_marker_decoder = msgspec.msgpack.Decoder(Marker)
_appended_decoder = msgspec.msgpack.Decoder(tuple[int, int, int])


class Leaders:
    """Finds the leaders of partitions and writes to them. A single node leads everything."""

    is_alone: ClassVar[bool] = True

    def __init__(self, node_id: int, topics: Topics, clock: Clock) -> None:
        self.node_id = node_id
        self._topics = topics
        self._clock = clock
        self.is_full: Callable[[], bool] = lambda: False  # of this node's disk
        # Ends transactions in partitions that are led here.
        self.mark: Callable[[Partition, Marker], Promise[Appended]]

    # Location

    def node_of(self, topic: Topic, number: int) -> int:
        """Return the node that leads a partition; -1 if none does."""
        return self.node_id

    def epoch_of(self, topic: Topic, number: int) -> int:
        """Return the leader epoch of the leader that `node_of` returns."""
        return topic.partition(number).leader_epoch

    def copies_of(self, topic: Topic) -> int:
        """Return the replication factor of a topic; the largest, if its partitions differ."""
        return 1

    def in_sync_count(self, topic_id: bytes, number: int) -> int:
        """Return how many replicas of a partition are in sync."""
        return 1

    def is_here(self, topic: Topic, number: int) -> bool:
        return True

    def has_replica(self, topic: Topic, number: int) -> bool:
        """Return whether this node leads or follows a partition."""
        return True

    def other_nodes(self) -> list[int]:
        """Return the other nodes of the cluster that are not fenced."""
        return []

    def is_unfit(self, topic_id: bytes, number: int) -> bool:
        """Return whether a partition is led here with a gap that another replica may not have."""
        return False

    def is_curable(self, topic_id: bytes, number: int) -> bool:
        """Return whether corrupted records are recoverable from another replica."""
        return False

    # Calls

    def serve(self, kind: PeerKind, handler: Handler) -> None:
        """Register a handler for calls of other nodes, if there are any."""

    def call(
        self,
        topic: Topic,
        number: int,
        kind: PeerKind,
        head: bytes,
        *,
        body: bytes = b"",
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> Promise[Answered]:
        """Call the node that leads a partition, which must be another node, once."""
        refused: Promise[Answered] = Promise()
        refused.reject(NotLeader(TopicPartition(topic.name, number), _NO_LEADER))
        return refused

    def ask(self, node: int, kind: PeerKind, head: bytes, *, timeout_ms: int) -> Promise[Answered]:
        """Call a node about partitions that it leads, once."""
        raise AssertionError("A single node has no other to call.")

    # Writes

    def append(
        self,
        topic: Topic,
        number: int,
        batch: bytes,
        *,
        timeout_ms: int,
        is_checked: bool = False,
        senders: Senders = (),
    ) -> Promise[Appended]:
        """Append a batch on the leader of the partition; resolves when it is committed.

        It is retried until `timeout_ms` have passed; afterwards it is unknown whether it was
        stored, unless the error was raised by the leader itself. A batch that `is_checked` holds
        messages that were accepted before, and the topic's limits do not apply to it.
        """
        head = _encode(_Place(topic.id, number, is_checked, _packed(senders)))
        return self._persist(topic, number, PeerKind.APPEND, head, batch, timeout_ms)

    def end_transaction(
        self, topic: Topic, marker: Marker, *, timeout_ms: int
    ) -> Promise[Appended]:
        """Write a marker on the leader of the partition; resolves when it is committed."""
        head = _encode(marker)
        return self._persist(topic, marker.number, PeerKind.MARKER, head, b"", timeout_ms)

    def _persist(
        self,
        topic: Topic,
        number: int,
        kind: PeerKind,
        head: bytes,
        body: bytes,
        timeout_ms: int,
    ) -> Promise[Appended]:
        promise: Promise[Appended] = Promise()
        deadline_ms = self._clock.now_ms() + timeout_ms

        def attempt() -> None:
            self._once(topic, number, kind, head, body).then(done)

        def done(appended: Appended | None, error: Exception | None) -> None:
            is_passing = isinstance(error, GoQueueError) and error.retryable
            if is_passing and self._clock.now_ms() < deadline_ms:
                self._clock.call_later(RETRY_MS, attempt)
            else:
                promise.settle(appended, error)

        attempt()
        return promise

    def _once(
        self, topic: Topic, number: int, kind: PeerKind, head: bytes, body: bytes
    ) -> Promise[Appended]:
        if self.is_here(topic, number):
            here = self._append_here if kind is PeerKind.APPEND else self._mark_here
            try:
                return here(head, body)
            except GoQueueError as error:
                refused: Promise[Appended] = Promise()
                refused.reject(error)
                return refused
        called = self.call(topic, number, kind, head, body=body)
        return read_answer(called, lambda answer: Appended(*_appended_decoder.decode(answer.head)))

    # Writes on this node

    def _append_here(self, head: bytes, batch: bytes | memoryview) -> Promise[Appended]:
        place = _place_decoder.decode(head)
        partition = self._leading(place.topic_id, place.number)
        if self.is_full():
            raise StorageFull("The disk of the leader is full; free space there, then retry.")
        # The partition stamps what it stores, so append a copy of the caller's bytes.
        own, now_ms = memoryview(bytearray(batch)), self._clock.wall_ms()
        if place.is_checked:
            appended = _append_checked(partition, own, now_ms)
        else:
            senders = _unpacked(place.senders)
            appended = partition.append(own, now_ms=now_ms, senders=senders)
        stored: Promise[Appended] = Promise()
        partition.when_committed(
            appended.last_offset, lambda error: stored.settle(None if error else appended, error)
        )
        return stored

    def _mark_here(self, head: bytes, _: bytes | memoryview) -> Promise[Appended]:
        marker = _marker_decoder.decode(head)
        return self.mark(self._leading(marker.topic_id, marker.number), marker)

    def _leading(self, topic_id: bytes, number: int) -> Partition:
        topic = self._topics.find_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(topic_id.hex())
        partition = topic.partition(number)
        partition.check_leading()
        if partition.shortage is not None:
            raise partition.shortage
        return partition


def _packed(senders: Senders) -> tuple[_Sender, ...]:
    if len(senders) > SENDERS_MAX:
        return ()
    return tuple(
        _Sender(
            count,
            sender.listener,
            sender.principal[:SENDER_NAME_CHARS_MAX],
            sender.client_id[:SENDER_NAME_CHARS_MAX],
        )
        if sender is not None
        else _Sender(count, "", "", "")
        for count, sender in senders
    )


def _unpacked(senders: Sequence[_Sender]) -> Senders:
    return [
        (one.count, Session(one.listener, one.principal, client_id=one.client_id))
        if one.principal
        else (one.count, None)
        for one in senders
    ]


def _append_checked(partition: Partition, batch: memoryview, now_ms: int) -> Appended:
    """Append a batch of messages that were accepted before; a duplicate is not appended again."""
    if partition.failure is not None:
        raise partition.failure
    earlier = partition.producers.check(read_header(batch))
    if earlier is not None:
        return Appended(earlier.base_offset, earlier.last_offset, -1)
    is_append_time = partition.settings.is_append_time
    return partition.write(batch, now_ms=now_ms, is_append_time=is_append_time)


class ClusterLeaders(Leaders):
    """Finds the leaders in the metadata of the cluster, and calls those on other nodes."""

    is_alone = False

    def __init__(self, cluster: Clustering, topics: Topics, clock: Clock) -> None:
        super().__init__(cluster.node_id, topics, clock)
        self._cluster = cluster
        self._metadata = cluster.quorum.metadata
        self._peers = cluster.peers
        self._peers.serve(PeerKind.APPEND, self._serve_append)
        self._peers.serve(PeerKind.MARKER, self._serve_marker)

    def node_of(self, topic: Topic, number: int) -> int:
        fact = self._metadata.partitions.get(topic.id, number)
        return _NO_LEADER if fact is None else fact.leader

    def epoch_of(self, topic: Topic, number: int) -> int:
        fact = self._metadata.partitions.get(topic.id, number)
        return _NO_LEADER if fact is None else fact.leader_epoch

    def copies_of(self, topic: Topic) -> int:
        facts = self._metadata.partitions.of_topic(topic.id)
        return max((len(fact.replicas) for fact in facts), default=1)

    def in_sync_count(self, topic_id: bytes, number: int) -> int:
        fact = self._metadata.partitions.get(topic_id, number)
        return 1 if fact is None else len(fact.in_sync)

    def is_here(self, topic: Topic, number: int) -> bool:
        return self._cluster.replicas.leads(topic.id, number)

    def has_replica(self, topic: Topic, number: int) -> bool:
        fact = self._cluster.quorum.metadata.partitions.get(topic.id, number)
        return fact is not None and self.node_id in fact.members

    def other_nodes(self) -> list[int]:
        return [node.id for node in self._cluster.nodes() if node.id != self.node_id]

    def is_unfit(self, topic_id: bytes, number: int) -> bool:
        return self._cluster.integrity.is_unfit(topic_id, number)

    def is_curable(self, topic_id: bytes, number: int) -> bool:
        return self._cluster.integrity.is_curable(topic_id, number)

    def serve(self, kind: PeerKind, handler: Handler) -> None:
        self._peers.serve(kind, handler)

    def call(
        self,
        topic: Topic,
        number: int,
        kind: PeerKind,
        head: bytes,
        *,
        body: bytes = b"",
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> Promise[Answered]:
        node = self.node_of(topic, number)
        if node in (_NO_LEADER, self.node_id):
            return super().call(topic, number, kind, head, body=body)
        return self._peers.call(node, kind, head, [body] if body else (), timeout_ms=timeout_ms)

    def ask(self, node: int, kind: PeerKind, head: bytes, *, timeout_ms: int) -> Promise[Answered]:
        return self._peers.call(node, kind, head, timeout_ms=timeout_ms)

    def _serve_append(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        return _answer(self._append_here(head, body))

    def _serve_marker(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        return _answer(self._mark_here(head, body))


def _answer(stored: Promise[Appended]) -> Promise[Answer]:
    answer: Promise[Answer] = Promise()

    def done(appended: Appended | None, error: Exception | None) -> None:
        answer.settle(None if appended is None else Answer(_encode(tuple(appended))), error)

    stored.then(done)
    return answer


class NearestReplicas:
    """Chooses the follower that serves a consumer. A single node has none."""

    def racks(self, rack: str) -> Mapping[int, str]:
        """Return the racks of nodes to redirect a consumer to; none if it is in this rack."""
        return {}

    def find(self, topic: Topic, number: int, racks: Mapping[int, str]) -> int | None:
        """Return the follower that a consumer should read from instead of this leader, or None."""
        return None

    def may_serve(self, topic: Topic, number: int) -> bool:
        """Return whether this node, a follower, may serve consumers."""
        return False


class NearestInCluster(NearestReplicas):
    """Redirects consumers to an in-sync follower in the rack that they name.

    Such a follower has everything that is committed, so no offset that the leader returns is out of
    its range.
    """

    def __init__(self, cluster: Clustering, rack: str) -> None:
        """`rack` is that of this node."""
        self._cluster = cluster
        self._metadata = cluster.quorum.metadata
        self._rack = rack

    def racks(self, rack: str) -> Mapping[int, str]:
        if not rack or rack == self._rack:
            return {}
        return {
            node.id: node.rack
            for node in self._cluster.nodes()
            if node.rack == rack and self._cluster.is_there(node.id)
        }

    def find(self, topic: Topic, number: int, racks: Mapping[int, str]) -> int | None:
        fact = self._metadata.partitions.get(topic.id, number)
        if fact is None or fact.leader != self._cluster.node_id:
            return None
        near = [node for node in fact.in_sync if node in racks]
        return near[number % len(near)] if near else None

    def may_serve(self, topic: Topic, number: int) -> bool:
        """Return whether this node is in sync, has a controller, and has nothing damaged.

        A node that is cut off or behind would keep its consumers waiting while the leader has more.
        """
        fact = self._metadata.partitions.get(topic.id, number)
        return (
            fact is not None
            and self._cluster.quorum.leader >= 0
            and self._cluster.node_id in fact.in_sync
            and topic.partitions[number].replica.first_damage is None
        )
