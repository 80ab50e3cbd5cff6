"""The owners of the journal's partitions, on this node and on others."""

from __future__ import annotations

from goqueue.broker.journeys.pieces import (
    Ask,
    Call,
    Piece,
    Results,
    Write,
    decode_call,
    decode_results,
    encode,
)
from goqueue.broker.journeys.shards import JourneyShard, Written
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.shards.leadership import Unreadable
from goqueue.broker.shards.shards import Shards
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, PeerKind, read_answer
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from goqueue.model.names import JOURNEYS_TOPIC, TopicPartition
from goqueue.partition import Partition
from goqueue.tracing.events import Source

CALL_TIMEOUT_MS = 5_000


class JournalOwners:
    """Passes pieces and questions to the owner of a partition of the journal."""

    def __init__(
        self, clock: Clock, topics: Topics, leaders: Leaders, *, partition_count: int
    ) -> None:
        """`partition_count` counts until the topic exists."""
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._unreadable: Unreadable = lambda partition, error: None
        self.written = Written()
        self.shards: Shards[JourneyShard] = Shards(
            topics,
            leaders,
            JOURNEYS_TOPIC,
            partition_count=partition_count,
            noun="journey",
            start=self._start,
        )
        leaders.serve(PeerKind.JOURNEYS, self._serve)

    def _start(self, partition: Partition) -> JourneyShard:
        shard = JourneyShard(
            self._clock,
            partition,
            self.written,
            is_known=lambda topic_id: self._topics.find_by_id(topic_id) is not None,
        )
        shard.load(self._unreadable)
        return shard

    def on_unreadable(self, found: Unreadable) -> None:
        """Call `found` with a partition that is led here and that a later release has written."""
        self._unreadable = found

    @property
    def count(self) -> int:
        """The number of partitions of the journal."""
        topic = self.shards.topic
        return self.shards.partition_count if topic is None else len(topic.partitions)

    def number_of(self, name: TopicPartition) -> int:
        """Return the partition of the journal that has the events about a partition."""
        return self.shards.number_of(str(name))

    def write(self, number: int, pieces: list[Piece]) -> Promise[Results]:
        """Append pieces to a partition of the journal."""
        return self._call(Write(number, pieces))

    def ask(self, number: int, sources: list[tuple[Source, int]]) -> Promise[Results]:
        """Return how far the journal has sources, each given with its leader epoch."""
        return self._call(Ask(number, [(*source, epoch) for source, epoch in sources]))

    def _call(self, call: Call) -> Promise[Results]:
        result: Promise[Results] = Promise()

        def made(topic: Topic | None, error: Exception | None) -> None:
            if topic is None:
                assert error is not None
                result.reject(error)
                return
            try:
                self._call_owner(topic, call).then(result.settle)
            except GoQueueError as refusal:
                result.reject(refusal)

        try:
            self._topics.internal.made(JOURNEYS_TOPIC).then(made)
        except GoQueueError as error:
            result.reject(error)
        return result

    def _call_owner(self, topic: Topic, call: Call) -> Promise[Results]:
        if self._leaders.is_here(topic, call.number):
            return self._answer(call)
        called = self._leaders.call(
            topic,
            call.number,
            PeerKind.JOURNEYS,
            b"",
            body=encode(call),
            timeout_ms=CALL_TIMEOUT_MS,
        )
        return read_answer(called, lambda answer: decode_results(answer.head))

    def _answer(self, call: Call) -> Promise[Results]:
        shard = self.shards.owned.get(call.number)
        if shard is None:
            raise self.shards.elsewhere()
        if isinstance(call, Write):
            return shard.write(call.pieces)
        result: Promise[Results] = Promise()
        result.resolve(shard.ask(call.sources))
        return result

    def _serve(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        answer: Promise[Answer] = Promise()

        def done(results: Results | None, error: Exception | None) -> None:
            answer.settle(None if results is None else Answer(encode(results)), error)

        self._answer(decode_call(body)).then(done)
        return answer
