"""Publishing records one by one: where they go, in which batches, and what each is told."""

from __future__ import annotations

import pytest

from goqueue.broker.publishing.publisher import Outgoing, Published, PublishResult, Scheduled
from goqueue.model.attributes import Attributes
from goqueue.model.batch import Record, decode_batch
from goqueue.model.errors import (
    InternalTopic,
    InvalidAttribute,
    RecordTooLarge,
    StorageFull,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.model.key_hash import partition_of_key
from tests.unit.broker.node import Node


def publish(
    node: Node, *outgoing: Outgoing, partition: int | None = None, topic: str = "orders"
) -> list[PublishResult]:
    return node.wait(node.broker.publish(topic, outgoing, partition=partition))


def plain(value: str, key: bytes | None = None) -> Outgoing:
    return Outgoing(Record(key, value.encode()))


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders", 3)
    return node


def test_a_record_is_where_its_result_says(node: Node) -> None:
    results = publish(node, plain("a", b"1"), plain("b", b"2"), plain("c"), plain("d"))
    for result, value in zip(results, "abcd", strict=True):
        assert isinstance(result, Published)
        stored = {one.offset: one for one in node.consume("orders", partition=result.partition)}
        found = stored[result.offset]
        assert found.value == value.encode()
        assert found.timestamp_ms == result.timestamp_ms > 0
    assert isinstance(results[0], Published)
    assert results[0].partition == partition_of_key(b"1", 3)
    assert results[2].partition == results[3].partition  # type: ignore[union-attr]


def test_keyless_records_of_many_calls_spread_over_the_partitions(node: Node) -> None:
    used = {publish(node, plain("v"))[0].partition for _ in range(50)}  # type: ignore[union-attr]
    assert used == {0, 1, 2}


def test_keyless_records_of_one_turn_make_one_batch_where_no_answer_waits_for_a_sync() -> None:
    node = Node(storage__fsync="none")
    node.create("orders", 3)
    for turn in range(3):
        promises = [node.broker.publish("orders", [plain(f"{turn}")]) for _ in range(10)]
        results = [node.wait(promise)[0] for promise in promises]
        assert len({one.partition for one in results}) == 1  # type: ignore[union-attr]
    partitions = node.broker.topics.get("orders").partitions
    assert [[one.record_count for one in each.log.headers(0)] for each in partitions] == [[10]] * 3


def test_records_without_wishes_need_no_wrapping(node: Node) -> None:
    records = [Record(b"k", b"a"), Record(b"k", b"b", (("goqueue-priority", b"1"),))]
    (one, other) = node.wait(node.broker.publish("orders", records))
    assert isinstance(one, Published)
    assert isinstance(other, Published)
    assert node.values("orders", partition=one.partition) == [b"a", b"b"]


def test_a_partition_that_is_asked_for_is_kept(node: Node) -> None:
    results = publish(node, plain("a", b"1"), plain("b"), partition=2)
    assert [result.partition for result in results] == [2, 2]  # type: ignore[union-attr]


def test_each_batch_has_one_lane(node: Node) -> None:
    lanes = [0, 4, 2, 0, 2, 4, 0]
    outgoing = [
        Outgoing(Record(None, b"%d" % index), Attributes(priority=lane, ttl_ms=5))
        for index, lane in enumerate(lanes)
    ]
    publish(node, *outgoing, partition=0)
    log = node.broker.topics.get("orders").partition(0).log
    batches = [decode_batch(batch) for _, batch in log.batches(0, until_offset=log.end_offset)]
    assert [[record.value for record in batch] for batch in batches] == [
        [b"0", b"3", b"6"],
        [b"1", b"5"],
        [b"2", b"4"],
    ]
    assert batches[0][0].headers == (("goqueue-priority", b"0"), ("goqueue-ttl-ms", b"5"))
    assert batches[2][0].headers == (("goqueue-ttl-ms", b"5"),)


def test_given_attributes_take_the_place_of_headers(node: Node) -> None:
    headers = (("goqueue-priority", b"urgent"), ("goqueue-delay-ms", b"9"), ("own", b"x"))
    (result,) = publish(node, Outgoing(Record(b"k", b"v", headers), Attributes(priority=1)))
    assert isinstance(result, Published)
    (record,) = node.consume("orders", partition=result.partition)
    assert record.headers == (("own", b"x"), ("goqueue-priority", b"1"))


def test_a_delayed_record_is_scheduled_and_appears_later(node: Node) -> None:
    now_ms = node.broker.clock.now_ms()
    by_header = Outgoing(Record(b"k", b"header", (("goqueue-delay-ms", b"500"),)))
    by_attribute = Outgoing(Record(b"k", b"attribute"), Attributes(deliver_at_ms=now_ms + 900))
    results = publish(node, plain("now", b"k"), by_header, by_attribute)
    assert isinstance(results[0], Published)
    assert all(isinstance(result, Scheduled) for result in results[1:])
    assert results[2].due_ms == now_ms + 900  # type: ignore[union-attr]
    schedule = node.broker.schedules.get(results[2].schedule_id)  # type: ignore[union-attr]
    assert schedule.value == b"attribute"
    home = partition_of_key(b"k", 3)
    assert node.values("orders", partition=home) == [b"now"]
    node.run_for(2_000)
    assert node.values("orders", partition=home) == [b"now", b"header", b"attribute"]


def test_no_record_bears_an_earlier_time_than_the_one_it_was_to_appear_at(node: Node) -> None:
    """It arrives a millisecond before it is due, and is taken up a millisecond after that."""
    arrived_ms = node.broker.clock.now_ms()
    due = Attributes(deliver_at_ms=arrived_ms + 1)
    node.run_for(2)
    stamped = Outgoing(Record(b"k", b"soon", timestamp_ms=arrived_ms), due)
    node.wait(node.broker.publish("orders", [stamped], now_ms=arrived_ms))
    node.run_for(1_000)
    [found] = node.consume("orders", partition=partition_of_key(b"k", 3))
    assert found.timestamp_ms > arrived_ms


def test_one_bad_record_does_not_stop_the_others(node: Node) -> None:
    bad = Outgoing(Record(None, b"v", (("goqueue-delay-ms", b"soon"),)))
    large = Outgoing(Record(b"k", bytes(2 << 20)))
    results = publish(node, plain("a"), bad, plain("b"), large)
    assert [type(result) for result in results] == [
        Published,
        InvalidAttribute,
        Published,
        RecordTooLarge,
    ]


def test_more_than_a_batch_may_hold_goes_in_several(node: Node) -> None:
    node.create("small", max_message_bytes="2000")
    results = publish(node, *[plain("x" * 300)] * 40, topic="small")
    assert [result.offset for result in results] == list(range(40))  # type: ignore[union-attr]
    assert len(node.consume("small")) == 40


def test_what_concerns_all_records_is_told_once(node: Node) -> None:
    for topic, partition, kind in (
        ("nowhere", None, UnknownTopic),
        ("orders", 3, UnknownPartition),
    ):
        with pytest.raises(kind):
            publish(node, plain("v"), topic=topic, partition=partition)
    publish(node, Outgoing(Record(None, b"v"), Attributes(delay_ms=1000)))
    with pytest.raises(InternalTopic):
        publish(node, plain("v"), topic="__scheduled")
    node.disk.fill_after(0)
    node.run_for(2_000)
    with pytest.raises(StorageFull):
        publish(node, plain("v"))


def test_nothing_to_publish_is_nothing_published(node: Node) -> None:
    assert publish(node) == []
