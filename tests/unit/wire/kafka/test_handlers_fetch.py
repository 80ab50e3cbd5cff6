"""Fetch in all its versions: whole batches, now or later, and errors of places."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.front_end import Limits
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.parts import FileRange
from tests.simulation.disk import SimulatedFile
from tests.unit.wire.kafka.client import Client, about, failures, records_in
from tests.unit.wire.kafka.requests import fetch_request, produce_request, records_for

__all__ = ["failures"]

VERSIONS = range(4, 19)


def fetch(
    client: Client, version: int, *, subject: dict[str, Any] | None = None, **fields: Any
) -> Any:
    """The answer for the only partition."""
    request = fetch_request(about(client.subject, subject or {}), **fields)
    answer = client.call("Fetch", request, version)
    assert answer.error_code == 0
    ((one,),) = [topic.partitions for topic in answer.responses]
    return one


def kinds_sent(client: Client) -> list[type]:
    """The kinds of the parts that are sent from now on."""
    kinds: list[type] = []
    original = client.peer._take

    def take(parts: list[Any]) -> None:
        kinds.extend(type(part) for part in parts)
        original(parts)

    client.peer.connection._send = take
    return kinds


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_fetched_with_the_watermarks(version: int) -> None:
    client = Client()
    client.produce(b"a", b"b")
    client.produce(b"c")
    one = fetch(client, version)
    assert records_in(one.records) == [b"a", b"b", b"c"]
    assert (one.high_watermark, one.last_stable_offset) == (3, 3)
    assert one.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_from_the_middle_begins_with_the_batch_that_holds_the_offset(version: int) -> None:
    client = Client()
    client.produce(b"a")
    client.produce(b"b", b"c")
    assert records_in(fetch(client, version, offset=2).records) == [b"b", b"c"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_at_the_end_waits_as_long_as_it_may(version: int) -> None:
    client = Client()
    client.produce(b"a")
    before_ms = client.node.clock.now_ms()
    one = fetch(client, version, offset=1, wait_ms=500)
    assert records_in(one.records) == []
    assert one.error_code == 0
    assert client.node.clock.now_ms() - before_ms == 500


@pytest.mark.parametrize("version", VERSIONS)
def test_a_waiting_fetch_is_answered_when_records_come(version: int) -> None:
    client = Client()
    peer, writer = client.peer, client.node.peer()
    request = fetch_request(client.subject, wait_ms=30_000)
    peer.send(peer.frame(API_BY_NAME["Fetch"], version, request))
    client.node.run_for(1_000)
    assert not peer.has_answer
    stored = produce_request(9, client.subject, records_for(9, b"late"))
    writer.send(writer.frame(API_BY_NAME["Produce"], 9, stored))
    client.node.run_for(50)
    answer = peer.take_answer(API_BY_NAME["Fetch"], version)
    assert records_in(answer.responses[0].partitions[0].records) == [b"late"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [-1, 2, 1 << 62])
def test_an_offset_out_of_range_is_answered_at_once_with_the_range(
    version: int, offset: int
) -> None:
    client = Client()
    client.produce(b"a")
    one = fetch(client, version, offset=offset, wait_ms=30_000)
    assert one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert one.high_watermark == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_or_partition_is_an_error_of_its_place(version: int) -> None:
    client = Client()
    nowhere = {"topic": "nowhere", "topic_id": b"?" * 16}
    one = fetch(client, version, subject=nowhere, wait_ms=30_000)
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (one.error_code, one.high_watermark) == (expected, -1)
    one = fetch(client, version, subject={"partition": 9})
    assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(9, 19))
@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)],
)
def test_a_client_that_knows_another_leader_is_told(version: int, epoch: int, code: int) -> None:
    client = Client()
    request = fetch_request(client.subject)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    answer = client.call("Fetch", request, version)
    assert answer.responses[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", [4, 12, 18])
def test_the_node_has_a_most_of_its_own(version: int) -> None:
    client = Client(limits=Limits(fetch_bytes_max=1))
    client.produce(b"a")
    client.produce(b"b")
    assert records_in(fetch(client, version).records) == [b"a"]


@pytest.mark.parametrize("version", [4, 12, 18])
def test_large_answers_go_from_the_file_and_are_the_same(version: int) -> None:
    client = Client()
    values = [b"%d" % number * 10_000 for number in range(5)]
    for value in values:
        client.produce(value)
    kinds = kinds_sent(client)
    assert records_in(fetch(client, version).records) == values
    assert FileRange in kinds


@pytest.mark.parametrize("partitions", [4, 150])
def test_small_pieces_go_from_files_only_when_they_are_many(partitions: int) -> None:
    client = Client(partitions=partitions)
    value = b"x" * 18_000
    for number in range(partitions):
        client.produce(value, partition=number)
    kinds = kinds_sent(client)
    request = fetch_request(
        client.subject, partitions=tuple(range(partitions)), bytes_max=partitions * 20_000
    )
    (topic,) = client.call("Fetch", request, 12).responses
    assert [records_in(one.records) for one in topic.partitions] == [[value]] * partitions
    assert (FileRange in kinds) == (partitions > 100)


@pytest.mark.parametrize("cold_chance", [0.0, 1.0])
def test_what_has_left_memory_is_prefetched_with_what_follows(
    cold_chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    client.produce(b"x" * 100_000)
    spans: list[tuple[int, int]] = []
    monkeypatch.setattr(
        SimulatedFile, "prefetch", lambda _, *span: spans.append(span), raising=True
    )
    client.node.disk.cold_chance = cold_chance
    one = fetch(client, 12)
    assert records_in(one.records) == [b"x" * 100_000]
    assert spans == ([(0, 2 * len(one.records))] if cold_chance else [])


def test_damage_on_the_disk_is_an_error_and_not_wrong_data(failures: list[Exception]) -> None:
    client = Client()
    client.produce(b"a" * 100)
    client.node.stop()
    client.node.disk.flip_bit("logs/orders/0/00000000000000000000.log", 8 * 100)
    client.node.start()
    client.peer = client.node.peer()
    one = fetch(client, 12)
    assert one.error_code == ErrorCode.CORRUPT_MESSAGE
    assert records_in(one.records or b"") == []
    assert failures == []


def test_a_disk_that_cannot_be_read_is_an_error_of_its_place(
    failures: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    client.produce(b"a")
    file = client.node.broker.topics.get("orders").partition(0).log.active.file

    def broken(*_: Any) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(file), "read", broken)
    assert fetch(client, 12).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert failures == []


def test_a_fetch_for_nothing_is_answered_at_once() -> None:
    for version in VERSIONS:
        client = Client()
        request = fetch_request(client.subject, partitions=(), wait_ms=30_000)
        assert client.call("Fetch", request, version).responses == []


def test_who_waits_for_a_deleted_topic_is_told(failures: list[Exception]) -> None:
    client = Client()
    peer = client.peer
    peer.send(peer.frame(API_BY_NAME["Fetch"], 12, fetch_request(client.subject, wait_ms=30_000)))
    client.node.wait(client.node.broker.topics.delete("orders"))
    client.node.run_for(1)
    answer = peer.take_answer(API_BY_NAME["Fetch"], 12)
    code = answer.responses[0].partitions[0].error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert failures == []
