"""A broker in memory, behind the face of a connection, that misbehaves on demand."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from goqueue.client import Cluster
from goqueue.client.addresses import Address
from goqueue.client.connection import Codec, Pending
from goqueue.client.errors import ConnectionLost, Unreachable
from goqueue.client.settings import ClientSettings
from goqueue.model.batch import Record, check_batch, decode_batch, read_header, stamp
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.messages import fetch, init_producer_id, list_offsets, metadata, produce

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER = 6
MESSAGE_TOO_LARGE = 10
OUT_OF_ORDER = 45

BATCHES_REMEMBERED = 5  # of each producer and partition; older repetitions are out of order

# What may happen to a produce request.
REFUSE = "refuse"  # every partition answers with `error_code`
LOSE_REQUEST = "lose request"  # the connection breaks before anything is stored
LOSE_ANSWER = "lose answer"  # it is stored, and the connection breaks


@dataclass(frozen=True)
class Fault:
    kind: str
    error_code: int = 0


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass
class FakeBroker:
    """Topics by name, with the batches of each partition."""

    topics: dict[str, int] = field(default_factory=lambda: {"orders": 3})
    logs: dict[TopicPartition, list[bytearray]] = field(default_factory=lambda: defaultdict(list))
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    faults: deque[Fault | None] = field(default_factory=deque)  # one per produce request
    batch_bytes_max: int = 1 << 20
    is_up: bool = True
    is_ready: bool = True
    clock: Clock = field(default_factory=Clock)
    produce_requests: list[produce.ProduceRequest] = field(default_factory=list)
    producer_ids: int = 0
    _sequences: dict[tuple[TopicPartition, int], list[tuple[int, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def cluster(self, **settings: Any) -> Cluster:
        return Cluster(
            "fake:9092",
            ClientSettings(**settings),
            connect=self.connect,
            rng=random.Random(7),
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def connect(self, address: Address, settings: ClientSettings) -> FakeLink:
        if not self.is_up:
            raise Unreachable(f"No broker answers at {address}.")
        return FakeLink(self)

    def records(self, partition: TopicPartition) -> list[Record]:
        return [record for batch in self.logs[partition] for record in decode_batch(batch)]

    def end(self, partition: TopicPartition) -> int:
        log = self.logs[partition]
        return read_header(log[-1]).next_offset if log else self.starts.get(partition, 0)

    def append(self, partition: TopicPartition, data: bytes | bytearray) -> int:
        """Store a batch and return its base offset."""
        batch, base = bytearray(data), self.end(partition)
        stamp(batch, base_offset=base, leader_epoch=0)
        self.logs[partition].append(batch)
        return base

    # Requests, by the name of their module

    def metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        names = [each.name or "" for each in request.topics or []]
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(1, "fake", 9092)] if self.is_ready else [],
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> metadata.MetadataResponseTopic:
        if name not in self.topics:
            return metadata.MetadataResponseTopic(UNKNOWN_TOPIC_OR_PARTITION, name)
        partitions = [
            metadata.MetadataResponsePartition(0, index, 1, 0, [1], [1])
            for index in range(self.topics[name])
        ]
        return metadata.MetadataResponseTopic(0, name, partitions=partitions)

    def init_producer_id(
        self, request: init_producer_id.InitProducerIdRequest
    ) -> init_producer_id.InitProducerIdResponse:
        self.producer_ids += 1
        return init_producer_id.InitProducerIdResponse(
            producer_id=self.producer_ids, producer_epoch=0
        )

    def produce(
        self, request: produce.ProduceRequest, fault: Fault | None
    ) -> produce.ProduceResponse:
        self.produce_requests.append(request)
        answers = []
        for topic in request.topic_data:
            found = [
                self._store(
                    TopicPartition(topic.name, each.index), bytes(each.records or b""), fault
                )
                for each in topic.partition_data
            ]
            answers.append(produce.TopicProduceResponse(topic.name, partition_responses=found))
        return produce.ProduceResponse(answers)

    def _store(
        self, partition: TopicPartition, data: bytes, fault: Fault | None
    ) -> produce.PartitionProduceResponse:
        index = partition.partition
        if fault is not None and fault.kind == REFUSE:
            return produce.PartitionProduceResponse(index, fault.error_code)
        if len(data) > self.batch_bytes_max:
            return produce.PartitionProduceResponse(index, MESSAGE_TOO_LARGE)
        header = check_batch(data)
        known = self._sequences[partition, header.producer_id]
        for first, last, base in known[-BATCHES_REMEMBERED:]:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return produce.PartitionProduceResponse(index, 0, base)
        if header.producer_id >= 0:
            expected = known[-1][1] + 1 if known else 0
            if header.base_sequence != expected:
                return produce.PartitionProduceResponse(index, OUT_OF_ORDER)
        base = self.append(partition, data)
        known.append((header.base_sequence, header.last_sequence, base))
        return produce.PartitionProduceResponse(index, 0, base)

    def list_offsets(
        self, request: list_offsets.ListOffsetsRequest
    ) -> list_offsets.ListOffsetsResponse:
        answers = []
        for topic in request.topics:
            found = []
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                is_start = each.timestamp == -2
                offset = self.starts.get(partition, 0) if is_start else self.end(partition)
                found.append(
                    list_offsets.ListOffsetsPartitionResponse(each.partition_index, offset=offset)
                )
            answers.append(list_offsets.ListOffsetsTopicResponse(topic.name, found))
        return list_offsets.ListOffsetsResponse(topics=answers)

    def fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        answers = []
        for topic in request.topics:
            found = []
            for each in topic.partitions:
                partition = TopicPartition(topic.topic, each.partition)
                found.append(self._read(partition, each))
            answers.append(fetch.FetchableTopicResponse(topic.topic, partitions=found))
        return fetch.FetchResponse(responses=answers)

    def _read(self, partition: TopicPartition, wanted: fetch.FetchPartition) -> fetch.PartitionData:
        start, end = self.starts.get(partition, 0), self.end(partition)
        if not start <= wanted.fetch_offset <= end:
            return fetch.PartitionData(partition.partition, OFFSET_OUT_OF_RANGE)
        batches = self._from(partition, wanted.fetch_offset)
        return fetch.PartitionData(partition.partition, records=b"".join(batches))

    def _from(self, partition: TopicPartition, offset: int) -> Iterator[bytearray]:
        for batch in self.logs[partition]:
            if read_header(batch).next_offset > offset:
                yield batch


class FakeLink:
    """A connection to a `FakeBroker`."""

    def __init__(self, broker: FakeBroker) -> None:
        self.is_open = True
        self._broker = broker
        self._waiting: list[Pending[Any]] = []

    def offers(self, codec: Codec[Any, Any]) -> bool:
        return True

    def version_of(self, codec: Codec[Any, Any]) -> int:
        return 0

    def call(self, codec: Codec[Any, Any], request: Any, *, extra_ms: int = 0) -> Any:
        return self.receive(self.send(codec, request), extra_ms=extra_ms)

    def send(self, codec: Codec[Any, Any], request: Any) -> Pending[Any]:
        if not self.is_open or not self._broker.is_up:
            self.is_open = False
            raise ConnectionLost("The connection is gone.")
        name = codec.__name__.rpartition(".")[2]
        fault = None
        if name == "produce" and self._broker.faults:
            fault = self._broker.faults.popleft()
        kind = fault.kind if fault else ""
        pending: Pending[Any] = Pending(0, lambda _: response)
        self._waiting.append(pending)
        if kind != LOSE_REQUEST:
            handle = getattr(self._broker, name)
            response = handle(request, fault) if name == "produce" else handle(request)
        if kind in (LOSE_REQUEST, LOSE_ANSWER):
            self._break()
        return pending

    def send_only(self, codec: Codec[Any, Any], request: Any) -> None:
        self.send(codec, request)

    def receive(self, pending: Pending[Any], *, extra_ms: int = 0) -> Any:
        if pending in self._waiting:
            self._waiting.remove(pending)
        return pending.take()

    def close(self) -> None:
        self._break()

    def _break(self) -> None:
        """Requests whose answers were not received yet stay without one."""
        self.is_open = False
        for pending in self._waiting:
            pending.fail(ConnectionLost("The connection is gone."))
