"""What one turn publishes is stored together, and nobody pays for another's mistake."""

from __future__ import annotations

import pytest

from goqueue.broker.publishing.publisher import Outgoing, Published, PublishResult
from goqueue.loop.promise import Promise
from goqueue.model.attributes import Attributes
from goqueue.model.batch import Record
from goqueue.model.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge, UnknownTopic
from tests.simulation.world import World

FAR_AHEAD_MS = 1 << 60


@pytest.fixture
def world() -> World:
    world = World()
    world.create("orders")
    return world


def publish(world: World, *records: Record, lane: int = 2) -> Promise[list[PublishResult]]:
    outgoing = [Outgoing(record, Attributes(priority=lane)) for record in records]
    return world.broker.publish("orders", outgoing)


def batch_sizes(world: World) -> list[int]:
    partition = world.broker.topics.get("orders").partition(0)
    return [header.record_count for header in partition.log.headers(0)]


def test_calls_of_one_turn_share_a_batch(world: World) -> None:
    promises = [publish(world, Record(None, b"%d" % number)) for number in range(20)]
    results = [world.wait(promise)[0] for promise in promises]
    assert [one.offset for one in results if isinstance(one, Published)] == list(range(20))
    assert batch_sizes(world) == [20]
    assert [record.value for record in world.consume("orders")] == [
        b"%d" % number for number in range(20)
    ]


def test_lanes_do_not_share_a_batch(world: World) -> None:
    promises = [publish(world, Record(None, b"x"), lane=number % 2) for number in range(10)]
    for promise in promises:
        world.wait(promise)
    assert batch_sizes(world) == [5, 5]


def test_a_batch_is_not_larger_than_its_topic_allows() -> None:
    world = World()
    world.create("orders", max_message_bytes="2000")
    promises = [publish(world, Record(None, b"x" * 500)) for _ in range(10)]
    for promise in promises:
        assert isinstance(world.wait(promise)[0], Published)
    assert max(batch_sizes(world)) == 3
    assert sum(batch_sizes(world)) == 10


def test_a_record_that_is_refused_takes_no_other_with_it(world: World) -> None:
    good = [
        publish(world, Record(None, b"a")),
        publish(world, Record(None, b"b"), Record(None, b"c")),
    ]
    late = publish(world, Record(None, b"x"), Record(None, b"y", (), FAR_AHEAD_MS))
    huge = publish(world, Record(None, bytes(2 << 20)))
    last = publish(world, Record(None, b"d"))
    assert isinstance(world.wait(huge)[0], RecordTooLarge)
    fine, refused = world.wait(late)
    assert isinstance(fine, Published)
    assert isinstance(refused, InvalidTimestamp)
    for promise in (*good, last):
        assert all(isinstance(one, Published) for one in world.wait(promise))
    values = [record.value for record in world.consume("orders")]
    assert values == [b"a", b"b", b"c", b"x", b"d"]


def test_a_compacted_topic_refuses_only_what_has_no_key() -> None:
    world = World()
    world.create("orders", cleanup_policy="compact")
    keyed, keyless = publish(world, Record(b"k", b"v")), publish(world, Record(None, b"v"))
    assert isinstance(world.wait(keyless)[0], InvalidRecord)
    assert isinstance(world.wait(keyed)[0], Published)


def test_a_topic_that_is_deleted_in_the_same_turn_is_told_as_such(world: World) -> None:
    promise = publish(world, Record(None, b"a"))
    world.broker.topics.delete("orders")
    assert isinstance(world.wait(promise)[0], UnknownTopic)


def test_an_answer_waits_until_its_records_are_committed(world: World) -> None:
    partition = world.broker.topics.get("orders").partition(0)
    promise = publish(world, Record(None, b"a"))
    world.run_until(lambda: partition.end_offset == 1)
    assert not promise.is_done
    world.wait(promise)
    assert partition.high_watermark == 1
