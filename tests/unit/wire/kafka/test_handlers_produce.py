"""Produce in all its versions: what is stored, what is answered, and when."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.model.batch import Record, encode_batch
from goqueue.model.compression import Compression
from goqueue.model.errors import NotEnoughReplicas
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.unit.wire.kafka.client import Client, about, error_codes, failures
from tests.unit.wire.kafka.requests import old_records, produce_request, records_for

__all__ = ["failures"]

VERSIONS = range(14)
NEWEST = 13


def only(answer: Any) -> Any:
    """The answer for the only partition."""
    ((one,),) = [topic.partition_responses for topic in answer.responses]
    return one


def produce(client: Client, version: int, records: bytes | None, **subject: Any) -> Any:
    request = produce_request(version, about(client.subject, subject), records)
    return only(client.call("Produce", request, version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_records_are_stored_and_answered_with_their_first_offset(version: int, acks: int) -> None:
    client = Client()
    for expected in (0, 2):
        request = produce_request(version, client.subject, records_for(version, b"a", b"b"))
        request.acks = acks
        answer = only(client.call("Produce", request, version))
        assert (answer.error_code, answer.base_offset) == (0, expected)
        assert answer.log_append_time_ms == -1
    assert client.node.values("orders") == [b"a", b"b"] * 2


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
)
@pytest.mark.parametrize("magic", [0, 1])
def test_old_clients_store_old_message_sets(version: int, codec: Compression, magic: int) -> None:
    if magic == 0 and codec is Compression.LZ4:
        return  # No client has ever sent that.
    client = Client()
    records = old_records(b"a", b"b" * 300, magic=magic, codec=codec, timestamp_ms=77)
    assert produce(client, version, records).error_code == 0
    stored = client.node.consume("orders")
    assert [(one.key, one.value) for one in stored] == [(b"key", b"a"), (b"key", b"b" * 300)]
    assert {one.timestamp_ms for one in stored} == {77 if magic else -1}


def test_old_message_sets_in_a_topic_of_append_times_get_the_brokers_time() -> None:
    client = Client()
    client.node.create("stamped", message_timestamp_type="LogAppendTime")
    answer = produce(client, 2, old_records(b"a", magic=1), topic="stamped")
    (record,) = client.node.consume("stamped")
    assert answer.log_append_time_ms == record.timestamp_ms > 1


@pytest.mark.parametrize("version", [2, 5, 9, NEWEST])
def test_the_time_of_arrival_is_answered_where_it_counts(version: int) -> None:
    client = Client()
    topic = client.node.create("stamped", message_timestamp_type="LogAppendTime")
    now_ms = client.node.clock.now_ms()
    records = records_for(version, b"a")
    answer = produce(client, version, records, topic="stamped", topic_id=topic.id)
    assert now_ms <= answer.log_append_time_ms <= client.node.clock.now_ms()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_or_partition_is_named_in_the_answer(version: int) -> None:
    client = Client()
    unknown_topic = (
        ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    records = records_for(version, b"a")
    answer = produce(client, version, records, topic="nowhere", topic_id=b"?" * 16)
    assert (answer.error_code, answer.base_offset) == (unknown_topic, -1)
    for partition in (-1, 4):
        answer = produce(client, version, records, partition=partition)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [-2, 2, 99])
def test_other_numbers_of_acks_are_refused(version: int, acks: int) -> None:
    client = Client()
    request = produce_request(version, client.subject, records_for(version, b"a"), acks=acks)
    answer = only(client.call("Produce", request, version))
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert client.node.values("orders") == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("records", [None, b""])
def test_a_partition_without_records_is_refused(version: int, records: bytes | None) -> None:
    answer = produce(Client(), version, records)
    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_records_are_refused(version: int) -> None:
    client = Client()
    records = bytearray(records_for(version, b"a"))
    records[-1] ^= 1
    assert produce(client, version, bytes(records)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert client.node.values("orders") == []


@pytest.mark.parametrize("version", [3, 8, NEWEST])
def test_old_formats_are_refused_where_clients_know_better(version: int) -> None:
    answer = produce(Client(), version, old_records(b"a" * 50, magic=1))
    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", VERSIONS)
def test_records_over_the_topics_limit_are_refused(version: int) -> None:
    client = Client()
    topic = client.node.create("small", max_message_bytes="100")
    answer = produce(
        client, version, records_for(version, b"a" * 200), topic="small", topic_id=topic.id
    )
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (answer.error_message is not None) == (version >= 8)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_brokers_own_topics_are_not_written_to(version: int) -> None:
    client = Client()
    client.node.host_groups()
    topic = client.node.broker.topics.get("__consumer_offsets")
    answer = produce(
        client, version, records_for(version, b"a"), topic=topic.name, topic_id=topic.id
    )
    assert answer.error_code == ErrorCode.INVALID_TOPIC


@pytest.mark.parametrize("version", [3, 7, 9, NEWEST])
def test_repeated_batches_of_an_idempotent_producer_are_stored_once(version: int) -> None:
    client = Client()

    def send(sequence: int) -> Any:
        batch = encode_batch(
            [Record(b"k", b"%d" % sequence, timestamp_ms=1)],
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
        )
        return produce(client, version, bytes(batch))

    assert [send(number).base_offset for number in (0, 1, 0, 1, 2)] == [0, 1, 0, 1, 2]
    assert send(9).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.node.values("orders") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("version", [3, 9, NEWEST])
def test_one_request_may_bring_batches_for_many_partitions_good_and_bad(
    version: int, failures: list[Exception]
) -> None:
    client = Client()
    good = records_for(version, b"a")
    data = [
        PartitionProduceData(index=0, records=good),
        PartitionProduceData(index=1, records=good[:-1]),
        PartitionProduceData(index=99, records=good),
        PartitionProduceData(index=2, records=good),
    ]
    name, topic_id = client.subject.topic, client.subject.topic_id
    request = ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData(name=name, topic_id=topic_id, partition_data=data),
            TopicProduceData(name="nowhere", topic_id=b"?" * 16, partition_data=data[:1]),
        ],
    )
    answer = client.call("Produce", request, version)
    codes = [[one.error_code for one in t.partition_responses] for t in answer.responses]
    cut_short = ErrorCode.CORRUPT_MESSAGE if version < 3 else ErrorCode.INVALID_RECORD
    assert codes[0] == [0, cut_short, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert codes[1][0] != 0
    assert client.node.values("orders", partition=2) == [b"a"]
    assert failures == []


def test_a_request_for_nothing_is_answered() -> None:
    for version in VERSIONS:
        answer = Client().call("Produce", ProduceRequest(acks=1, topic_data=[]), version)
        assert answer.responses == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_waits_until_the_records_are_durable(version: int) -> None:
    client = Client()
    peer = client.peer
    request = produce_request(version, client.subject, records_for(version, b"a"))
    peer.send(peer.frame(API_BY_NAME["Produce"], version, request))
    assert not peer.has_answer
    client.node.run_until(lambda: peer.has_answer)
    client.node.restart_after_crash()
    assert client.node.values("orders") == [b"a"]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_that_could_not_be_made_durable_are_not_acknowledged(version: int) -> None:
    client = Client()
    client.node.disk.fail_syncs(2)  # the commit journal, then the log itself
    answer = produce(client, version, records_for(version, b"a"))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert answer.base_offset == -1


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_offset_left_is_told_where_there_is_room_for_it(version: int) -> None:
    client = Client()
    client.produce(b"a", b"b")
    client.node.broker.administration.delete_records("orders", 0, before_offset=2)
    answer = produce(client, version, records_for(version, b"c"))
    assert answer.log_start_offset == (2 if version >= 5 else -1)
    assert error_codes(answer) == set()


def test_while_replicas_are_short_a_new_producer_does_not_lose_its_first_batch() -> None:
    """A partition that does not know a producer takes any sequence number for its first."""
    client = Client()
    partition = client.node.broker.topics.get("orders").partitions[0]

    def send(sequence: int) -> int:
        batch = encode_batch(
            [Record(b"k", b"%d" % sequence)],
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
        )
        return int(produce(client, NEWEST, bytes(batch)).error_code)

    partition.replica.set_shortage(NotEnoughReplicas("Too few replicas are in sync; retry."))
    assert [send(0), send(1)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    partition.replica.set_shortage(None)
    assert send(2) == ErrorCode.NOT_ENOUGH_REPLICAS  # It was on its way meanwhile.
    assert [send(0), send(1), send(2)] == [ErrorCode.NONE] * 3
    assert client.node.values("orders") == [b"0", b"1", b"2"]
