"""Every request is counted once, by listener and API, with the errors that its client is told."""

from __future__ import annotations

import pytest

from goqueue.model.batch import Record, encode_batch
from goqueue.model.session import ListenerRules
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from goqueue.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from goqueue.wire.kafka.response_errors import errors_in, name_of
from tests.simulation.kafka_peer import KafkaPeer
from tests.simulation.world import World
from tests.unit.wire.measured import errors_of, requests_of, seconds_of

PRODUCE = API_BY_NAME["Produce"]
SMALL, LARGE = 10, 20 << 10  # the latter is not gathered with others


def produce(
    size: int = SMALL, *, acks: int = -1, topic: str = "orders", partitions: int = 1
) -> ProduceRequest:
    batch = bytes(encode_batch([Record(None, b"x" * size, timestamp_ms=1)]))
    data = [PartitionProduceData(index=one, records=batch) for one in range(partitions)]
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def met(world: World, listener: str = "kafka") -> KafkaPeer:
    """A client that has asked before: only then are its small batches gathered."""
    peer = KafkaPeer(world.front, world.run_until, rules=ListenerRules(listener))
    peer.call("ApiVersions", 2, API_BY_NAME["ApiVersions"].codec.Request())
    return peer


def send_all(world: World, peer: KafkaPeer, requests: list[ProduceRequest]) -> None:
    peer.send(b"".join(peer.frame(PRODUCE, 7, one) for one in requests))
    for _ in requests:
        world.run_until(lambda: peer.has_answer)
        peer.take_answer(PRODUCE, 7)


@pytest.fixture
def world() -> World:
    world = World()
    world.create("orders", 2)
    return world


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_each_request_of_a_run_is_counted(world: World, size: int) -> None:
    peer = met(world)
    send_all(world, peer, [produce(size)] * 5)
    assert requests_of(world.broker, "kafka") == {"ApiVersions": 1, "Produce": 5}
    assert errors_of(world.broker, "kafka") == {}
    assert seconds_of(world.broker, "kafka", "Produce") > 0


def test_requests_that_are_stored_together_count_for_the_listener_of_each(world: World) -> None:
    one, other = met(world), met(world, "outside")
    for peer, count in ((one, 2), (other, 3), (one, 1)):
        peer.send(b"".join(peer.frame(PRODUCE, 7, produce()) for _ in range(count)))
    for peer, count in ((one, 3), (other, 3)):
        for _ in range(count):
            world.run_until(lambda peer=peer: peer.has_answer)
            peer.take_answer(PRODUCE, 7)
    assert requests_of(world.broker, "kafka")["Produce"] == 3
    assert requests_of(world.broker, "outside")["Produce"] == 3


def test_a_request_for_several_partitions_is_one(world: World) -> None:
    send_all(world, met(world), [produce(partitions=2)])
    assert requests_of(world.broker, "kafka")["Produce"] == 1


def test_a_request_without_an_answer_is_counted(world: World) -> None:
    peer = met(world)
    peer.send(peer.frame(PRODUCE, 7, produce(acks=0)))
    world.run_for(5)
    assert requests_of(world.broker, "kafka")["Produce"] == 1


def test_errors_are_counted_by_what_the_client_is_told(world: World) -> None:
    peer = met(world)
    send_all(world, peer, [produce(topic="nowhere"), produce(topic="nowhere", partitions=2)])
    peer.call("Metadata", 9, MetadataRequest(topics=[MetadataRequestTopic(name="no no")]))
    assert errors_of(world.broker, "kafka") == {
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("Metadata", "INVALID_TOPIC"): 1,
    }


def test_small_batches_that_cannot_be_stored_are_counted_with_their_error(world: World) -> None:
    peer = met(world)
    send_all(world, peer, [produce()])
    world.disk.fail_syncs(10)
    send_all(world, peer, [produce()] * 3)
    assert errors_of(world.broker, "kafka") == {("Produce", "KAFKA_STORAGE_ERROR"): 3}
    assert requests_of(world.broker, "kafka")["Produce"] == 4


def test_the_wait_of_a_fetch_is_left_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "goqueue.wire.kafka.handlers.fetch.perf_counter", lambda: world.clock.now_ms() / 1000
    )
    monkeypatch.setattr(
        "goqueue.wire.kafka.connection.perf_counter", lambda: world.clock.now_ms() / 1000
    )
    peer = met(world)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=30_000,
        min_bytes=1,
        topics=[FetchTopic(topic="orders", partitions=[partition])],
    )
    began_ms = world.clock.now_ms()
    peer.call("Fetch", 4, request)
    assert world.clock.now_ms() - began_ms >= 30_000
    assert requests_of(world.broker, "kafka")["Fetch"] == 1
    assert seconds_of(world.broker, "kafka", "Fetch") < 1


def test_codes_are_found_at_every_depth_and_named_as_clients_know_them() -> None:
    codec = API_BY_NAME["Produce"].codec
    answer = codec.Response(responses=[])
    find = errors_in(codec.Response)
    assert find(answer) == set()
    send = API_BY_NAME["Metadata"].codec
    topic = send.MetadataResponseTopic(
        error_code=0, name="a", partitions=[send.MetadataResponsePartition(error_code=5)]
    )
    answer = send.MetadataResponse(topics=[topic, topic], brokers=[])
    assert errors_in(send.Response)(answer) == {0, 5}
    assert [name_of(code) for code in (5, 9_999)] == ["LEADER_NOT_AVAILABLE", "9999"]
