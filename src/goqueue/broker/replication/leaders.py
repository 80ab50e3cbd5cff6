"""Access to the leader of a partition, here or on another node.

Parts of the broker write to partitions of other topics: due delayed messages, dead letters, and
transaction markers. They do not depend on where such a partition is led. A write whose answer is
lost is repeated until it is confirmed, so every writer must be an idempotent producer, by which the
leader recognises a duplicate batch.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, Answered, Handler, PeerKind, Peers
from goqueue.loop.promise import Promise
from goqueue.model.bounds import (
    LeaderEpoch,
    PartitionNumber,
    ProducerEpoch,
    ProducerId,
    TopicId,
    Version,
)
from goqueue.model.errors import GoQueueError, NotLeader, StorageFull, UnknownTopicId
from goqueue.model.names import TopicPartition
from goqueue.partition import Appended, Partition

CALL_TIMEOUT_MS = 10_000  # per attempt
RETRY_MS = 100

_NO_LEADER = -1
_encode = msgspec.msgpack.Encoder().encode


class _Place(msgspec.Struct, frozen=True, array_like=True):
    topic_id: TopicId
    number: PartitionNumber


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
    """Finds the leaders of partitions and writes to them."""

    def __init__(
        self,
        node_id: int,
        topics: Topics,
        clock: Clock,
        cluster: Clustering | None,
        peers: Peers | None,
    ) -> None:
        self.node_id = node_id
        self._topics = topics
        self._clock = clock
        self._cluster = cluster
        self._peers = peers
        self.is_full: Callable[[], bool] = lambda: False  # of this node's disk
        # Ends transactions in partitions that are led here.
        self.mark: Callable[[Partition, Marker], Promise[Appended]]
        if peers is not None:
            peers.serve(PeerKind.APPEND, self._serve_append)
            peers.serve(PeerKind.MARKER, self._serve_marker)

    def serve(self, kind: PeerKind, handler: Handler) -> None:
        """Register a handler for calls of other nodes, if there are any."""
        if self._peers is not None:
            self._peers.serve(kind, handler)

    # Location

    @property
    def is_alone(self) -> bool:
        """Return whether this is a single node, which leads everything."""
        return self._cluster is None

    def node_of(self, topic: Topic, number: int) -> int:
        """Return the node that leads a partition; -1 if none does."""
        if self._cluster is None:
            return self.node_id
        fact = self._cluster.quorum.metadata.partitions.get(topic.id, number)
        return _NO_LEADER if fact is None else fact.leader

    def epoch_of(self, topic: Topic, number: int) -> int:
        """Return the leader epoch of the leader that `node_of` returns."""
        if self._cluster is None:
            return topic.partition(number).leader_epoch
        fact = self._cluster.quorum.metadata.partitions.get(topic.id, number)
        return _NO_LEADER if fact is None else fact.leader_epoch

    def copies_of(self, topic: Topic) -> int:
        """Return the replication factor of a topic; the largest, if its partitions differ."""
        if self._cluster is None:
            return 1
        facts = self._cluster.quorum.metadata.partitions.of_topic(topic.id)
        return max((len(fact.replicas) for fact in facts), default=1)

    def is_here(self, topic: Topic, number: int) -> bool:
        return self._cluster is None or self._cluster.replicas.leads(topic.id, number)

    def is_unfit(self, topic_id: bytes, number: int) -> bool:
        """Return whether a partition is led here with a gap that another replica may not have."""
        return self._cluster is not None and self._cluster.integrity.is_unfit(topic_id, number)

    def is_curable(self, topic_id: bytes, number: int) -> bool:
        """Return whether corrupted records are recoverable from another replica."""
        return self._cluster is not None and self._cluster.integrity.is_curable(topic_id, number)

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
        assert self._peers is not None
        node = self.node_of(topic, number)
        if node in (_NO_LEADER, self.node_id):
            refused: Promise[Answered] = Promise()
            refused.reject(NotLeader(TopicPartition(topic.name, number), _NO_LEADER))
            return refused
        return self._peers.call(node, kind, head, [body] if body else (), timeout_ms=timeout_ms)

    def ask(self, node: int, kind: PeerKind, head: bytes, *, timeout_ms: int) -> Promise[Answered]:
        """Call a node about partitions that it leads, once."""
        assert self._peers is not None
        return self._peers.call(node, kind, head, timeout_ms=timeout_ms)

    # Writes

    def append(
        self, topic: Topic, number: int, batch: bytes, *, timeout_ms: int
    ) -> Promise[Appended]:
        """Append a batch on the leader of the partition; resolves when it is committed.

        It is retried until `timeout_ms` have passed; afterwards it is unknown whether it was
        stored, unless the error was raised by the leader itself.
        """
        head = _encode(_Place(topic.id, number))
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
        result: Promise[Appended] = Promise()
        if self.is_here(topic, number):
            here = self._append_here if kind is PeerKind.APPEND else self._mark_here
            try:
                return here(head, body)
            except GoQueueError as error:
                result.reject(error)
            return result

        def answered(answer: Answered | None, error: Exception | None) -> None:
            if answer is None:
                assert error is not None
                result.reject(error)
            else:
                result.resolve(Appended(*_appended_decoder.decode(answer.head)))

        self.call(topic, number, kind, head, body=body).then(answered)
        return result

    # Serving

    def _serve_append(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        return _answer(self._append_here(head, body))

    def _serve_marker(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        return _answer(self._mark_here(head, body))

    def _append_here(self, head: bytes, batch: bytes | memoryview) -> Promise[Appended]:
        place = _place_decoder.decode(head)
        partition = self._leading(place.topic_id, place.number)
        if self.is_full():
            raise StorageFull("The disk of the leader is full; free space there, then retry.")
        # The partition stamps what it stores, so append a copy of the caller's bytes.
        now_ms = self._clock.wall_ms()
        appended = partition.append(memoryview(bytearray(batch)), now_ms=now_ms)
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


def _answer(stored: Promise[Appended]) -> Promise[Answer]:
    answer: Promise[Answer] = Promise()

    def done(appended: Appended | None, error: Exception | None) -> None:
        answer.settle(None if appended is None else Answer(_encode(tuple(appended))), error)

    stored.then(done)
    return answer
