"""Writes records: collects them into batches, pipelines requests, and retries in order.

A producer works in the thread that calls it; there is no background thread. `send` adds a record to
a batch and sends the batches that are full or have lingered. Up to `in_flight_max` requests are in
flight. `flush` sends the rest and waits; so does `Delivery.result`, for its own record. A caller
that pauses between records calls `push` first.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple

from goqueue.client.batching import Accumulator, Batch, ProducerSequence, by_partition
from goqueue.client.cluster import Cluster, Link, Node
from goqueue.client.connection import Pending
from goqueue.client.errors import ConnectionLost, ErrorContext, check, error_of
from goqueue.client.partitioner import StickyPartitioner, partition_of_key
from goqueue.client.settings import ACKS_NONE, ProducerSettings
from goqueue.model.batch import NO_TIMESTAMP, Header, Record
from goqueue.model.errors import (
    DuplicateSequence,
    GoQueueError,
    InvalidRequest,
    OutOfOrderSequence,
    RequestTimedOut,
    UnknownPartition,
    UnknownProducer,
)
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.packing import PackedRecords
from goqueue.wire.kafka.messages import init_producer_id, produce

_ASK_MS_MAX: Final = 30_000  # how long a broker may wait for other replicas


class Stored(NamedTuple):
    """Where a record was stored; the offset is -1 if no acknowledgement was requested."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ProducerTransaction(NamedTuple):
    """A transaction begun by the caller, who ends it when all records are stored."""

    transactional_id: str
    identity: ProducerIdentity


class Delivery:
    """A record that was sent; its outcome may not be known yet."""

    __slots__ = ("_batch", "_index", "_producer")

    def __init__(self, producer: Producer, batch: Batch, index: int) -> None:
        self._producer = producer
        self._batch = batch
        self._index = index

    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.is_done

    def result(self) -> Stored:
        """Wait until the record is stored; raise the error if it was not."""
        self._producer.finish(self._batch)
        batch = self._batch
        if batch.error is not None:
            raise batch.error
        is_offset_known = batch.base_offset >= 0
        is_stamped = batch.append_time_ms != NO_TIMESTAMP
        return Stored(
            batch.partition.topic,
            batch.partition.partition,
            batch.base_offset + self._index if is_offset_known else -1,
            batch.append_time_ms if is_stamped else batch.records[self._index].timestamp_ms,
        )


@dataclass(frozen=True, slots=True)
class _Flight:
    """A request in flight and its batches."""

    link: Link
    pending: Pending[produce.ProduceResponse]
    batches: Sequence[Batch]


class Producer:
    """Writes records to topics. It belongs to one thread.

    >>> with client.producer() as producer:
    ...     producer.send("orders", b"hello", key=b"42").result()
    Stored(topic='orders', partition=1, offset=0, timestamp_ms=1700000000000)
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings | None = None,
        *,
        transaction: ProducerTransaction | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.settings = settings or ProducerSettings()
        if transaction is not None and not self.settings.is_idempotent:
            raise InvalidRequest("Records of a transaction need an idempotent producer.")
        self._transaction = transaction
        self._cluster = cluster
        self._now_ms = now_ms
        self._accumulator = Accumulator(self.settings)
        self._sticky = StickyPartitioner(cluster.rng)
        self._lanes: dict[TopicPartition, ProducerSequence] = {}
        self._broken: set[TopicPartition] = set()
        self._identity: tuple[int, int] | None = None
        self._flights: deque[_Flight] = deque()
        self._failure: GoQueueError | None = None

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._cluster.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Send a record. The partition is derived from the key unless it is given."""
        time_ms = self._now_ms() if timestamp_ms is None else timestamp_ms
        record = Record(key, value, tuple(headers), time_ms)
        target = TopicPartition(topic, self.choose_partition(topic, key, partition))
        batch, index, ready = self._accumulator.add(target, record, now=self._cluster.clock())
        self._dispatch(ready)
        return Delivery(self, batch, index)

    def send_all(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        """Send many records of one partition; `flush` raises if they could not be stored."""
        now = self._cluster.clock()
        self._dispatch(self._accumulator.add_all(partition, records, now=now))

    def send_packed(self, packed: Sequence[tuple[TopicPartition, PackedRecords]]) -> list[Batch]:
        """Send records that are encoded already, each as a batch of its own.

        The outcome of a batch is in the batch after `flush`.
        """
        now = self._cluster.clock()
        ready, sent = [], []
        for partition, records in packed:
            sent.append(Batch(partition, now, packed=records))
            ready += [*self._accumulator.take(partition), sent[-1]]
        self._dispatch(ready)
        return sent

    def choose_partition(self, topic: str, key: bytes | None, partition: int | None) -> int:
        """The partition of a record: the given one, the one of its key, or the sticky one."""
        count = self.partition_count(topic)
        if partition is not None:
            if not 0 <= partition < count:
                raise UnknownPartition(TopicPartition(topic, partition))
            return partition
        if key is not None:
            return partition_of_key(key, count)
        return self._sticky.choose(topic, count)

    def push(self) -> None:
        """Send every open batch without waiting for the responses."""
        self._dispatch(self._accumulator.take_all())

    def flush(self) -> None:
        """Send everything and wait for all responses; raise the first error since the last time."""
        self.push()
        self._land(in_flight_max=0)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Flush, and close the connections."""
        try:
            self.flush()
        finally:
            self._cluster.close()

    def finish(self, batch: Batch) -> None:
        """Send everything and wait until the outcome of `batch` is known."""
        if not batch.is_done:
            self.push()
        while not batch.is_done:
            assert self._flights, "a batch that was pushed is on its way or done"
            self._land(in_flight_max=len(self._flights) - 1)

    # Partitions

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic, which the broker may create on demand."""
        view = self._cluster.known_topic(topic) or self._cluster.retrying(
            lambda: self._cluster.topic(topic, is_created=True),
            final=(),
            ms_max=self.settings.topic_wait_ms_max,
        )
        return len(view.partitions)

    # Sending

    def _dispatch(self, batches: Sequence[Batch]) -> None:
        """Send closed batches, at most one per partition in a request."""
        while batches:
            of_partition = by_partition(batches)
            first = [queue[0] for queue in of_partition.values()]
            batches = [batch for queue in of_partition.values() for batch in queue[1:]]
            self._land(in_flight_max=self.settings.in_flight_max - 1)
            failed = self._launch(first)
            if failed:
                # Batches in flight are older; newer ones of the same partition must not overtake
                # them.
                self._recover(self._drain() + failed, then=batches)
                return

    def _launch(self, batches: Sequence[Batch]) -> list[tuple[Batch, GoQueueError]]:
        """Send one batch per partition to the leaders; return those that could not be sent."""
        failed: list[tuple[Batch, GoQueueError]] = []
        of_node: dict[Node, list[Batch]] = {}
        for batch in batches:
            self._sticky.move_on(batch.partition.topic, batch.partition.partition)
            try:
                of_node.setdefault(self._cluster.leader_of(batch.partition), []).append(batch)
            except GoQueueError as error:
                failed.append((batch, error))
        for node, group in of_node.items():
            try:
                self._send(self._cluster.link(node.address), group)
            except GoQueueError as error:
                failed += [(batch, error) for batch in group]
        return failed

    def _send(self, link: Link, batches: list[Batch]) -> None:
        request = self._request(batches)
        if self.settings.acks == ACKS_NONE:
            link.send_only(produce, request)
            for batch in batches:
                batch.store(-1, NO_TIMESTAMP)
            return
        try:
            pending = link.send(produce, request)
        except (ConnectionLost, RequestTimedOut):
            for batch in batches:
                batch.is_uncertain = True
            raise
        self._flights.append(_Flight(link, pending, batches))

    def _request(self, batches: Iterable[Batch]) -> produce.ProduceRequest:
        topics: dict[str, produce.TopicProduceData] = {}
        for batch in batches:
            topic = batch.partition.topic
            data = topics.setdefault(topic, produce.TopicProduceData(topic, partition_data=[]))
            encoded = batch.encode(self.settings, self._lane(batch.partition))
            data.partition_data.append(
                produce.PartitionProduceData(batch.partition.partition, encoded)
            )
        transaction = self._transaction
        return produce.ProduceRequest(
            transactional_id=None if transaction is None else transaction.transactional_id,
            acks=self.settings.acks,
            timeout_ms=_ASK_MS_MAX,
            topic_data=list(topics.values()),
        )

    def _lane(self, partition: TopicPartition) -> ProducerSequence | None:
        if not self.settings.is_idempotent:
            return None
        if partition not in self._lanes:
            identity = self._identity_for(partition)
            is_transactional = self._transaction is not None
            self._lanes[partition] = ProducerSequence(*identity, is_transactional=is_transactional)
        return self._lanes[partition]

    def _identity_for(self, partition: TopicPartition) -> tuple[int, int]:
        """The shared producer id, or a separate one for a partition whose sequence was broken."""
        if self._transaction is not None:
            return self._transaction.identity
        if partition in self._broken:
            identity = self._ask_identity()
            self._broken.discard(partition)
            return identity
        if self._identity is None:
            self._identity = self._ask_identity()
        return self._identity

    def _ask_identity(self) -> tuple[int, int]:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_ASK_MS_MAX
        )

        def attempt() -> tuple[int, int]:
            response = self._cluster.call_any(init_producer_id, request)
            check(response.error_code)
            return response.producer_id, response.producer_epoch

        return self._cluster.retrying(attempt)

    # Receiving

    def _land(self, *, in_flight_max: int) -> None:
        """Receive the oldest responses until at most `in_flight_max` are outstanding."""
        while len(self._flights) > max(in_flight_max, 0):
            failed = self._receive(self._flights.popleft())
            if failed:
                self._recover(failed + self._drain())

    def _drain(self) -> list[tuple[Batch, GoQueueError]]:
        """Receive all outstanding responses."""
        failed = []
        while self._flights:
            failed += self._receive(self._flights.popleft())
        return failed

    def _receive(self, flight: _Flight) -> list[tuple[Batch, GoQueueError]]:
        """Receive one response; return the batches that were not stored, with their errors."""
        try:
            response = flight.link.receive(flight.pending, extra_ms=_ASK_MS_MAX)
        except GoQueueError as error:
            for batch in flight.batches:
                batch.is_uncertain = True
            return [(batch, error) for batch in flight.batches]
        answers = {
            TopicPartition(topic.name, each.index): each
            for topic in response.responses
            for each in topic.partition_responses
        }
        refusals = [
            (batch, _take_answer(batch, answers.get(batch.partition))) for batch in flight.batches
        ]
        return [(batch, refusal) for batch, refusal in refusals if refusal is not None]

    def _recover(
        self, failed: Sequence[tuple[Batch, GoQueueError]], then: Sequence[Batch] = ()
    ) -> None:
        """Resolve failed batches and those `then` to be sent, in the order of each partition.

        Nothing else is in flight now. Each partition continues one batch at a time, and only the
        error of its first batch is meaningful: the later ones failed because of it.
        """
        queues = by_partition([*(batch for batch, _ in failed), *then])
        reasons = {batch.partition: error for batch, error in reversed(failed)}
        backoff = self._cluster.backoff()
        while queues:
            for partition, error in reasons.items():
                if self._is_given_up(queues[partition], error):
                    self._give_up(queues[partition], error)
            queues = _without_empty(queues)
            if reasons.keys() & queues.keys():
                self._cluster.forget()
                self._cluster.sleep(backoff.next_ms() / 1000)
            tried = self._launch([queue[0] for queue in queues.values()]) + self._drain()
            reasons = {batch.partition: error for batch, error in tried}
            for queue in queues.values():
                if queue[0].is_done:
                    del queue[0]
            queues = _without_empty(queues)

    def _is_given_up(self, queue: Sequence[Batch], error: GoQueueError) -> bool:
        first = queue[0]
        waited_ms = (self._cluster.clock() - first.opened_at) * 1000
        if waited_ms > self.settings.delivery_ms_max:
            return True
        if isinstance(error, OutOfOrderSequence | UnknownProducer):
            # The broker has lost the producer's state. A new producer id helps, unless the batch
            # may be stored under the old one.
            if first.is_uncertain or first.is_renamed or self._transaction is not None:
                return True
            first.is_renamed = True
            self._rename(queue)
            return False
        return not self._cluster.is_worth_retrying(error)

    def _give_up(self, queue: list[Batch], error: GoQueueError) -> None:
        """Fail the first batch, and those after it that may be stored although it is not."""
        self._failure = self._failure or error
        self._rename(queue)
        queue[0].fail(error)
        for batch in queue[1:]:
            if batch.is_uncertain:
                batch.fail(error)
        queue[:] = [batch for batch in queue if not batch.is_done]

    def _rename(self, queue: Sequence[Batch]) -> None:
        """Continue with a new producer id: the old sequence has a gap that cannot be filled."""
        if self.settings.is_idempotent:
            self._lanes.pop(queue[0].partition, None)
            self._broken.add(queue[0].partition)
            for batch in queue:
                batch.rename()


def _without_empty(
    queues: Mapping[TopicPartition, list[Batch]],
) -> dict[TopicPartition, list[Batch]]:
    return {partition: queue for partition, queue in queues.items() if queue}


def _take_answer(
    batch: Batch, answer: produce.PartitionProduceResponse | None
) -> GoQueueError | None:
    """Record where a batch was stored, or return the error."""
    if answer is None:
        return InvalidRequest(f"The response does not contain {batch.partition}.")
    if answer.error_code == 0:
        batch.store(answer.base_offset, answer.log_append_time_ms)
        return None
    about = ErrorContext(batch.partition.topic, batch.partition.partition)
    error = error_of(answer.error_code, answer.error_message, about)
    if isinstance(error, DuplicateSequence):
        batch.store(-1, NO_TIMESTAMP)
        return None
    return error
