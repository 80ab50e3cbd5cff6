"""Small batches of many clients, gathered turn by turn, among power cuts, kills and full disks."""

from __future__ import annotations

import pytest

from goqueue.model.batch import Record, encode_batch
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.simulation.disk import PowerLost
from tests.simulation.world import World

TOPIC = "orders"
PARTITIONS = 2
CLIENTS = 4
STEPS = 60
VERSIONS = (7, 9)
# The smallest segments into which batches go together, and batches that fill a few of them.
SEGMENT_BYTES = "1MiB"
VALUE_BYTES = 4000

_PRODUCE = API_BY_NAME["Produce"]


class Client:
    """A connection that sends several requests at once, and notes what was acknowledged."""

    def __init__(self, world: World, acked: dict[tuple[int, int], bytes]) -> None:
        self._world = world
        self._peer = world.peer()
        self._acked = acked
        self._version = world.random.choice(VERSIONS)
        self._waiting: list[tuple[int, bytes]] = []

    def send(self, names: list[str]) -> None:
        """One message for each of these names, each in a request of its own."""
        frames = []
        for name in names:
            value = name.encode().ljust(self._world.random.choice([10, VALUE_BYTES]), b".")
            partition = self._world.random.randrange(PARTITIONS)
            self._waiting.append((partition, value))
            frames.append(self._peer.frame(_PRODUCE, self._version, _request(partition, value)))
        self._peer.send(b"".join(frames))

    def hear(self) -> None:
        """Take the answers that have come."""
        while self._peer.has_answer:
            answer: ProduceResponse = self._peer.take_answer(_PRODUCE, self._version)
            (one,) = answer.responses[0].partition_responses
            partition, value = self._waiting.pop(0)
            if one.error_code == 0:
                place = partition, one.base_offset
                assert self._acked.setdefault(place, value) == value, "one offset for two messages"


def _request(partition: int, value: bytes) -> ProduceRequest:
    batch = bytes(encode_batch([Record(None, value, timestamp_ms=1)]))
    data = PartitionProduceData(index=partition, records=batch)
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def _check(world: World, acked: dict[tuple[int, int], bytes]) -> None:
    for partition in range(PARTITIONS):
        # There may be gaps where a power cut tore what nobody had been told is stored.
        found = {
            record.offset: record.value for record in world.consume(TOPIC, partition=partition)
        }
        assert len(set(found.values())) == len(found), (
            f"seed {world.seed}: a message is there twice"
        )
        for (number, offset), value in acked.items():
            if number == partition:
                assert found.get(offset) == value, f"seed {world.seed}: offset {offset} was lost"


@pytest.mark.parametrize("fsync", ["every", "none"])
@pytest.mark.seeds(12)
def test_acknowledged_messages_are_where_the_answer_said(seed: int, fsync: str) -> None:
    world = World(seed, storage__fsync=fsync, storage__segment_bytes=SEGMENT_BYTES)
    world.create(TOPIC, PARTITIONS)
    acked: dict[tuple[int, int], bytes] = {}
    clients: list[Client] = []
    for step in range(STEPS):
        clients = clients or [Client(world, acked) for _ in range(CLIENTS)]
        try:
            for number, client in enumerate(clients):
                count = world.random.choice([0, 1, 5, 30])
                client.send([f"{step}-{number}-{index}" for index in range(count)])
            if fsync == "every" and world.random.random() < 0.1:
                world.disk.crash_at(world.random.randint(0, 12))
            if world.random.random() < 0.1:
                world.disk.fill_after(world.random.choice([0, 3_000, 100_000]))
            world.run_for(world.random.uniform(0, 8))
            world.disk.fill_after(1 << 40)
            for client in clients:
                client.hear()
            if world.random.random() < 0.05:
                raise PowerLost
        except PowerLost:
            # Only what is synced outlives the machine; what is written outlives the process.
            world.crash() if fsync == "every" else world.kill()
            world.disk.crash_at(None)
            world.disk.fill_after(1 << 40)
            world.start()
            _check(world, acked)
            clients = []
    world.disk.crash_at(None)
    world.run_for(1_000)
    for client in clients:
        client.hear()
    _check(world, acked)
    assert len(acked) > 100
