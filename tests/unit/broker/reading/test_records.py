"""Reading records one by one, over several partitions and past damage."""

from __future__ import annotations

import gc
import weakref

import pytest

from goqueue.broker.reading.records import Page, Place, read_page
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError
from tests.simulation.world import World


def read(world: World, places: list[Place], *, records_max: int = 100, wait_ms: int = 0) -> Page:
    reading = world.broker.reads.read(
        places, records_max=records_max, bytes_max=1 << 20, wait_ms=wait_ms
    )
    return world.wait(reading.promise)


def values(page: Page) -> list[bytes | None]:
    return [record.value for _, record in page.records]


def send(world: World, topic: str, number: int, records: list[Record]) -> None:
    outcome: list[GoQueueError | None] = []
    world.append(world.broker.topics.get(topic).partition(number), records, outcome.append)
    world.run_until(lambda: bool(outcome))
    assert outcome == [None]


def test_the_oldest_record_comes_first_and_offsets_stay_in_order() -> None:
    world = World()
    topic = world.create("orders", 2)
    now = world.broker.clock.now_ms()
    send(
        world, "orders", 0, [Record(None, b"a", timestamp_ms=now), Record(None, b"d", (), now + 9)]
    )
    send(world, "orders", 1, [Record(None, b"b", (), now + 2), Record(None, b"c", (), now + 1)])
    page = read(world, [Place(one, 0) for one in topic.partitions])
    assert values(page) == [b"a", b"b", b"c", b"d"]
    assert [place.offset for place in page.places] == [2, 2]


def test_a_read_ends_inside_a_batch_and_goes_on_there() -> None:
    world = World()
    partition = world.create("orders").partition(0)
    send(world, "orders", 0, [Record(None, str(one).encode(), (), 1) for one in range(10)])
    page = read(world, [Place(partition, 3)], records_max=4)
    assert values(page) == [b"3", b"4", b"5", b"6"]
    assert values(read(world, page.places)) == [b"7", b"8", b"9"]


def test_a_page_that_ends_inside_a_batch_is_freed_with_its_reader() -> None:
    world = World()
    partition = world.create("orders").partition(0)
    send(world, "orders", 0, [Record(None, str(one).encode(), (), 1) for one in range(10)])
    gc.collect()
    gc.disable()
    try:
        page = read_page([Place(partition, 3)], records_max=4, bytes_max=1 << 20)
        seen = weakref.ref(page)
        del page
        assert seen() is None, "it waits for the garbage collector"
    finally:
        gc.enable()


def test_a_read_ends_before_its_last_offset_and_does_not_wait_there() -> None:
    world = World()
    partition = world.create("orders").partition(0)
    send(world, "orders", 0, [Record(None, str(one).encode(), (), 1) for one in range(10)])
    page = read(world, [Place(partition, 0, 4)])
    assert values(page) == [b"0", b"1", b"2", b"3"]
    before = world.broker.clock.now_ms()
    assert read(world, [Place(partition, 4, 4)], wait_ms=5_000).is_empty
    assert world.broker.clock.now_ms() == before


def test_a_read_is_bounded_by_size_but_brings_one_record_at_least() -> None:
    world = World()
    partition = world.create("orders").partition(0)
    send(world, "orders", 0, [Record(None, b"x" * 1000, (), 1) for _ in range(5)])
    reading = world.broker.reads.read([Place(partition, 0)], records_max=100, bytes_max=1)
    assert len(world.wait(reading.promise).records) == 1
    reading = world.broker.reads.read([Place(partition, 0)], records_max=100, bytes_max=2500)
    assert len(world.wait(reading.promise).records) == 3


def test_gaps_of_compaction_are_passed() -> None:
    world = World(compaction__check_ms="100", compaction__dirty_ratio_min="0")
    partition = world.create("state", cleanup_policy="compact", segment_bytes="1024").partition(0)
    for one in range(40):
        send(world, "state", 0, [Record(b"k", b"%d" % one + b"x" * 200, (), 1)])
    world.broker.administration.compact("state")
    world.run_until(lambda: world.broker.compactor.passes > 0)
    page = read(world, [Place(partition, 0)])
    assert 0 < len(page.records) < 40
    assert page.records[-1][1].offset == page.places[0].offset - 1 == 39


@pytest.mark.parametrize("is_restarted", [True, False])
def test_damage_is_stepped_over_and_told(is_restarted: bool) -> None:
    """Also in what this very process wrote: readers get records, without the checksum."""
    world = World()
    world.create("orders")
    for one in range(3):
        send(world, "orders", 0, [Record(None, b"value-%d" % one, (), 1)])
    path = "logs/orders/0/00000000000000000000.log"
    at = world.disk.read_whole(path).index(b"value-1")
    if is_restarted:
        world.stop()
    world.disk.flip_bit(path, 8 * at)
    if is_restarted:
        world.start()
    partition = world.broker.topics.get("orders").partition(0)
    first = read(world, [Place(partition, 0)])
    rest = read(world, first.places)
    assert values(first) + values(rest) == [b"value-0", b"value-2"]
    (damaged,) = first.damaged + rest.damaged
    assert (damaged.offset, damaged.next_offset) == (1, 2)
