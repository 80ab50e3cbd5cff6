"""The shortcut for one batch says, byte for byte, what the generated codec says."""

from __future__ import annotations

import struct

import pytest

from goqueue.model.batch import Record, encode_batch
from goqueue.wire.kafka.api import Api
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from goqueue.wire.kafka.request_reference import VERSION_MAX, VERSION_MIN
from tests.simulation.kafka_peer import KafkaPeer
from tests.simulation.world import World

PRODUCE: Api = API_BY_NAME["Produce"]
VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)


def _request(*, topic: str = "orders", size: int = 10, batches: int = 1) -> ProduceRequest:
    batch = bytes(encode_batch([Record(b"k", b"v" * size, timestamp_ms=1)]))
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=number, records=batch) for number in range(batches)
                ],
            )
        ],
    )


def _answer(world: World, peer: KafkaPeer, version: int, request: ProduceRequest) -> bytes:
    peer.received = b""
    peer.send(peer.frame(PRODUCE, version, request))
    world.run_until(lambda: peer.has_answer)
    return peer.received


@pytest.mark.parametrize("fsync", ["every", "none"])
@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_those_of_the_generated_codec(
    version: int, fsync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for is_short in (True, False):
        world = World(storage__fsync=fsync)
        if not is_short:
            monkeypatch.setattr("goqueue.wire.kafka.connection.produce_one", lambda *_, **__: False)
        world.create("orders", 3)
        answers.append(
            [
                _answer(world, peer, version, _request(size=size))
                for peer in [world.peer()]
                for size in (1, 100, 127, 128, 20_000)
            ]
        )
    assert answers[0] == answers[1]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("topic", "batches"), [("orders", 1), ("orders", 2), ("unknown", 1), ("t" * 140, 1)]
)
def test_every_form_of_request_is_answered(version: int, topic: str, batches: int) -> None:
    world = World()
    world.create("orders", 3)
    world.create("t" * 140)
    response: ProduceResponse = world.peer().call(
        "Produce", version, _request(topic=topic, batches=batches)
    )
    results = response.responses[0].partition_responses
    assert [one.error_code for one in results] == [3 if topic == "unknown" else 0] * batches


def test_a_topic_made_again_is_not_mistaken_for_the_deleted_one() -> None:
    world = World()
    world.create("orders")
    peer = world.peer()
    peer.call("Produce", 7, _request())
    world.wait(world.broker.topics.delete("orders"))
    assert peer.call("Produce", 7, _request()).responses[0].partition_responses[0].error_code == 3
    world.create("orders")
    again = peer.call("Produce", 7, _request()).responses[0].partition_responses[0]
    assert (again.error_code, again.base_offset) == (0, 0)
    assert len(world.consume("orders")) == 1


def test_an_answer_that_is_ready_at_once_waits_for_those_before_it() -> None:
    world = World(storage__fsync="none")
    world.create("orders")
    peer = world.peer()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="orders", partitions=[wanted])]
    fetch = FetchRequest(max_wait_ms=500, min_bytes=100_000, topics=topics)
    frames = [peer.frame(API_BY_NAME["Fetch"], 6, fetch), peer.frame(PRODUCE, 7, _request())]
    peer.send(b"".join(frames))
    world.run_for(100)
    assert world.broker.topics.get("orders").partition(0).high_watermark == 1
    assert not peer.received, "the fetch still waits, and comes first"
    world.run_for(1_000)
    answers = []
    while peer.received:
        length, correlation_id = struct.unpack_from(">ii", peer.received)
        answers.append(correlation_id)
        peer.received = peer.received[4 + length :]
    assert answers == [struct.unpack_from(">i", frame, 8)[0] for frame in frames]
