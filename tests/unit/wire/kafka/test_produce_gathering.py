"""Requests that come together are stored and answered as if they had come one by one."""

from __future__ import annotations

import struct
from random import Random

import pytest

from goqueue.model.batch import BatchHeader, Record, encode_batch, read_header
from goqueue.model.compression import Compression
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from goqueue.wire.kafka.produce_fast_path import (
    FRAME_BYTES_MAX,
    RUN_REQUESTS_MAX,
    TURN_BYTES_MAX,
)
from tests.simulation.kafka_peer import KafkaPeer
from tests.simulation.world import World

PRODUCE = API_BY_NAME["Produce"]
STORAGE_ERROR = 56


def _batch(value: str, *, count: int = 1, **fields: int) -> bytes:
    record = Record(None, value.encode(), timestamp_ms=1)
    return bytes(encode_batch([record] * count, **fields))  # type: ignore[arg-type]


def _request(batch: bytes, *, partition: int = 0, topic: str = "orders") -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def _met(world: World, version: int = 7) -> KafkaPeer:
    """A client that has asked before: only then is its name known."""
    peer = world.peer()
    peer.call("Produce", version, _request(_batch("first")))
    return peer


def _send(world: World, peer: KafkaPeer, requests: list[ProduceRequest], version: int) -> list[int]:
    """Send requests in one piece; the error codes and base offsets of the answers, in order."""
    peer.send(b"".join(peer.frame(PRODUCE, version, request) for request in requests))
    found = []
    for _ in requests:
        world.run_until(lambda: peer.has_answer)
        answer: ProduceResponse = peer.take_answer(PRODUCE, version)
        (one,) = answer.responses[0].partition_responses
        found.append(one.base_offset if one.error_code == 0 else -one.error_code)
    return found


def _stored(world: World, partition: int = 0, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in world.consume(topic, partition=partition)]


def _headers(world: World) -> list[BatchHeader]:
    """The headers of all batches of a topic's only partition."""
    log = world.broker.topics.get("orders").partition(0).log
    found = log.read(0, bytes_max=1 << 20, until_offset=log.end_offset)
    assert found is not None
    data, headers = found.read_checked(), []
    while data:
        headers.append(read_header(data))
        data = data[headers[-1].size :]
    return headers


def _mixed_requests(random: Random) -> list[ProduceRequest]:
    """Mostly plain batches for three partitions, with some of everything else between them."""
    bad = bytearray(_batch("bad"))
    bad[-1] ^= 1
    strange = [
        bytes(bad),
        _batch("sequenced", producer_id=9, producer_epoch=0, base_sequence=0),
        _batch("x" * 20_000),
        b"no batch",
    ]
    requests = []
    for number in range(100):
        batch = _batch(f"{number}", count=random.choice([1, 1, 3]))
        if random.random() < 0.05:
            batch = random.choice(strange)
        partition = 9 if random.random() < 0.02 else random.randrange(3)
        requests.append(_request(batch, partition=partition))
    return requests


@pytest.mark.parametrize("fsync", ["every", "none"])
@pytest.mark.parametrize("version", [5, 8, 9, 12])
def test_a_run_is_stored_and_answered_as_one_by_one(
    version: int, fsync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for is_run in (True, False):
        if not is_run:
            monkeypatch.setattr("goqueue.wire.kafka.connection.read_run", lambda *_: None)
        world = World(storage__fsync=fsync)
        world.create("orders", 3)
        peer = _met(world, version)
        answers = []
        random = Random(version)
        for _ in range(4):
            answers.append(_send(world, peer, _mixed_requests(random)[:30], version))
        seen.append((answers, [_stored(world, number) for number in range(3)]))
    assert seen[0] == seen[1]


def test_a_run_is_one_write_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(storage__fsync="none")
    world.create("orders", 2)
    peer = _met(world)
    runs = []
    partition = world.broker.topics.get("orders").partition(1)
    append_run = type(partition.log).append_run

    def noted(log: object, run: bytes, next_offset: int, *, now_ms: int) -> None:
        runs.append((len(run) // len(_batch("v")), next_offset))
        append_run(log, run, next_offset, now_ms=now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(type(partition.log), "append_run", noted)
    requests = [_request(_batch("v"), partition=number % 2) for number in range(10)]
    assert _send(world, peer, requests, 7) == [1, 0, 2, 1, 3, 2, 4, 3, 5, 4]
    assert runs == [(5, 6), (5, 5)]


def test_requests_of_two_versions_for_one_partition_keep_their_order() -> None:
    world = World(storage__fsync="none")
    world.create("orders")
    peer = _met(world)
    versions = [7, 8, 7, 8, 8, 7]
    requests = [_request(_batch(f"{number}")) for number in range(len(versions))]
    frames = zip(versions, requests, strict=True)
    peer.send(b"".join(peer.frame(PRODUCE, version, request) for version, request in frames))
    for offset, version in enumerate(versions, 1):
        world.run_until(lambda: peer.has_answer)
        answer: ProduceResponse = peer.take_answer(PRODUCE, version)
        (one,) = answer.responses[0].partition_responses
        assert (one.error_code, one.base_offset) == (0, offset)
    assert _stored(world)[1:] == [b"%d" % number for number in range(len(versions))]


def test_what_is_stored_is_what_was_sent_with_its_place() -> None:
    world = World()
    world.create("orders")
    peer = _met(world)
    batches = [_batch("a" * 50), _batch("b", count=2)]
    _send(world, peer, [_request(batch) for batch in batches], 7)
    log = world.broker.topics.get("orders").partition(0).log
    found = log.read(1, bytes_max=10_000, until_offset=4)
    assert found is not None
    data = found.read_checked()
    for batch, offset in zip(batches, (1, 2), strict=True):
        stored, data = data[: len(batch)], data[len(batch) :]
        assert read_header(stored).base_offset == offset
        assert stored[16:] == batch[16:]
    assert not data


def test_a_client_that_is_not_known_yet_is_heard_one_by_one() -> None:
    world = World()
    world.create("orders")
    requests = [_request(_batch(f"{number}")) for number in range(5)]
    assert _send(world, world.peer(), requests, 7) == list(range(5))


def test_more_requests_than_a_run_may_have_are_all_answered() -> None:
    world = World(storage__fsync="none")
    world.create("orders")
    requests = [_request(_batch("v"))] * (2 * RUN_REQUESTS_MAX + 1)
    assert _send(world, _met(world), requests, 7) == list(range(1, len(requests) + 1))


def test_a_full_disk_refuses_a_run_and_leaves_nothing_of_it() -> None:
    world = World(storage__fsync="none")
    world.create("orders", 2)
    peer = _met(world)
    world.disk.fill_after(100)
    requests = [_request(_batch("v" * 50), partition=number % 2) for number in range(6)]
    assert _send(world, peer, requests, 7) == [-STORAGE_ERROR] * 6
    world.disk.fill_after(1 << 30)
    assert _send(world, peer, [_request(_batch("then"))], 7) == [1]
    assert _stored(world) == [b"first", b"then"]
    assert _stored(world, 1) == []


def test_a_run_that_does_not_fit_a_segment_begins_new_ones() -> None:
    world = World()
    world.create("orders", segment_bytes="1024")
    peer = _met(world)
    requests = [_request(_batch(f"{number}" * 300)) for number in range(10)]
    assert _send(world, peer, requests, 7) == list(range(1, 11))
    assert len(world.broker.topics.get("orders").partition(0).log.segments) > 3
    assert len(_stored(world)) == 11


@pytest.mark.parametrize(
    "settings",
    [
        {"message_timestamp_type": "LogAppendTime"},
        {"compression_type": "gzip"},
        {"max_message_bytes": "100"},
        {"message_timestamp_before_max_ms": "1000"},
    ],
)
def test_settings_of_a_topic_hold_for_runs(settings: dict[str, str]) -> None:
    seen = []
    for together in (True, False):
        world = World()
        world.run_for(10_000)
        world.create("orders", 1, **settings)
        peer = _met(world)
        requests = [_request(_batch("v" * 100)) for _ in range(3)]
        pieces = [requests] if together else [[one] for one in requests]
        answers = [one for piece in pieces for one in _send(world, peer, piece, 7)]
        records = world.consume("orders")
        seen.append((answers, [record.value for record in records]))
        if "message_timestamp_type" in settings:
            assert all(record.timestamp_ms > 1 for record in records)
        if "compression_type" in settings:
            assert {header.codec for header in _headers(world)} == {Compression.GZIP}
    assert seen[0] == seen[1]


def test_more_than_a_turn_may_hold_is_stored_in_several_rounds() -> None:
    world = World(storage__fsync="none")
    world.create("orders")
    peers = [_met(world) for _ in range(5)]
    frame_bytes = FRAME_BYTES_MAX // 2
    for peer in peers:
        request = _request(_batch("v" * frame_bytes))
        peer.send(b"".join(peer.frame(PRODUCE, 7, request) for _ in range(20)))
    assert 5 * 20 * frame_bytes > 2 * TURN_BYTES_MAX
    world.run_for(10)
    assert len(_stored(world)) == 5 + 5 * 20
    for peer in peers:
        answers = [peer.take_answer(PRODUCE, 7) for _ in range(20)]
        assert not peer.received
        assert all(one.responses[0].partition_responses[0].error_code == 0 for one in answers)


def test_an_internal_topic_takes_nothing_from_clients() -> None:
    world = World()
    world.create("orders")
    peer = _met(world)
    delayed = Record(None, b"later", (("goqueue-delay-ms", b"60000"),), timestamp_ms=1)
    _send(world, peer, [_request(bytes(encode_batch([delayed])))], 7)
    for topic in [topic for topic in world.broker.topics if topic.is_internal]:
        ends = [partition.log.end_offset for partition in topic.partitions]
        answers = _send(world, peer, [_request(_batch("v"), topic=topic.name)] * 3, 7)
        assert all(answer < 0 for answer in answers)
        assert [partition.log.end_offset for partition in topic.partitions] == ends
        break
    else:
        pytest.fail("a delayed record is kept in an internal topic")


def test_nothing_is_remembered_of_requests_that_were_not_taken() -> None:
    world = World()
    world.create("orders")
    peer = _met(world)
    sequenced = _batch("s", producer_id=9, producer_epoch=0, base_sequence=0)
    _send(world, peer, [_request(sequenced)], 7)
    settings = {"message_timestamp_type": "LogAppendTime"}
    world.wait(world.broker.topics.configure("orders", settings))
    _send(world, peer, [_request(_batch("v"))], 7)
    assert world.consume("orders")[-1].timestamp_ms > 1


def test_a_topic_with_schemas_looks_at_every_record() -> None:
    world = World()
    world.create("orders", 1, schema_validation="value")
    answers = _send(world, world.peer(), [_request(_batch("v"))] * 3, 7)
    assert all(answer < 0 for answer in answers)


def test_a_compacted_topic_still_wants_keys() -> None:
    world = World()
    world.create("orders", cleanup_policy="compact")
    peer = world.peer()
    answers = _send(world, peer, [_request(_batch("v"))] * 3, 7)
    assert all(answer < 0 for answer in answers)


def test_a_run_waits_for_the_answers_before_it() -> None:
    world = World(storage__fsync="none")
    world.create("orders")
    peer = _met(world)
    wanted = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
    topics = [FetchTopic(topic="orders", partitions=[wanted])]
    fetch = FetchRequest(max_wait_ms=500, min_bytes=100_000, topics=topics)
    frames = [peer.frame(API_BY_NAME["Fetch"], 6, fetch)]
    frames += [peer.frame(PRODUCE, 7, _request(_batch("v"))) for _ in range(3)]
    peer.send(b"".join(frames))
    world.run_for(100)
    assert world.broker.topics.get("orders").partition(0).high_watermark == 4
    assert len(peer.received) == 0, "the fetch still waits, and comes first"
    world.run_for(1_000)
    answers: list[int] = []
    while peer.received:
        length, correlation_id = struct.unpack_from(">ii", peer.received)
        answers.append(correlation_id)
        peer.received = peer.received[4 + length :]
    assert answers == [struct.unpack_from(">i", frame, 8)[0] for frame in frames]
