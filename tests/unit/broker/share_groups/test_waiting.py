"""Members that wait for records of partitions that have none for them."""

from __future__ import annotations

from goqueue.model.batch import Record
from goqueue.model.share_groups import AckType
from tests.unit.broker.share_groups.member import Member, acks, ranges_of
from tests.unit.broker.share_groups.test_fetching import send, share_world

ACCEPT = AckType.ACCEPT


def test_members_that_wait_for_a_full_partition_do_not_hold_up_those_of_another() -> None:
    world = share_world(partition_unacked_max=100)
    send(world, 150, per_batch=50)
    Member(world, "holder").take(records_max=100)
    for number in range(3):
        Member(world, f"waits-{number}").ask(wait_ms=60_000)
    other = Member(world, "other").ask(wait_ms=60_000, partitions=(1,))
    send(world, 1, partition=1)
    (part,) = world.wait(other).parts
    assert (part.partition, [ranges_of(one) for one in part.acquired]) == (1, [(0, 0, 1)])


def test_who_waits_for_a_full_partition_is_served_when_there_is_room() -> None:
    world = share_world(partition_unacked_max=100)
    send(world, 150, per_batch=50)
    holder = Member(world, "holder")
    assert holder.take(records_max=100) == [(0, 99, 1)]
    waiting = [Member(world, f"waits-{number}").ask(wait_ms=60_000) for number in range(2)]
    world.run_for(100)
    assert holder.acknowledge(acks((0, 99, ACCEPT))) == [None]
    (part,) = world.wait(waiting[0]).parts
    assert [ranges_of(one) for one in part.acquired] == [(100, 149, 1)]
    assert not waiting[1].is_done


def test_who_waits_is_not_kept_from_records_by_many_that_have_expired() -> None:
    world = share_world()
    world.wait(world.broker.topics.configure("orders", {"message_ttl_ms": "1000"}))
    target = world.broker.topics.get("orders").partition(0)
    for age_ms in [*[60_000] * 40, 0]:
        record = Record(None, b"v", timestamp_ms=world.broker.clock.wall_ms() - age_ms)
        world.append(target, [record], lambda error: None)
    world.run_for(100)
    asked = Member(world, "one").ask(wait_ms=10_000, records_max=1, is_record_limited=True)
    world.run_for(500)
    assert asked.is_done
    (part,) = world.wait(asked).parts
    assert [ranges_of(one) for one in part.acquired] == [(40, 40, 1)]


def test_a_lease_ends_with_a_batch_that_was_stored_after_the_last_look_ahead() -> None:
    world = share_world()
    send(world, 10, per_batch=5)
    one, two = Member(world, "one"), Member(world, "two")
    assert one.take(records_max=5) == [(0, 4, 1)]
    assert one.take(records_max=5) == [(5, 9, 1)]
    assert two.take(records_max=7) == []
    assert two.take(records_max=7) == []
    send(world, 10, per_batch=5)
    assert two.take(records_max=7) == [(10, 14, 1)]


def test_members_that_have_waited_get_whole_batches_one_after_the_other() -> None:
    world = share_world(partition_unacked_max=150)
    send(world, 300, per_batch=50)
    holder = Member(world, "holder")
    assert holder.take(records_max=150) == [(0, 149, 1)]
    waiting = [
        Member(world, f"waits-{number}").ask(wait_ms=60_000, records_max=20) for number in range(3)
    ]
    assert holder.acknowledge(acks((0, 149, ACCEPT))) == [None]
    parts = [world.wait(one).parts[0] for one in waiting]
    assert [ranges_of(*part.acquired) for part in parts] == [
        (150, 199, 1),
        (200, 249, 1),
        (250, 299, 1),
    ]


def test_the_first_lease_in_a_partition_ends_with_a_batch_too() -> None:
    world = share_world()
    send(world, 300, per_batch=50)
    assert Member(world, "one").take(records_max=80) == [(0, 49, 1)]
    assert Member(world, "two").take(records_max=20) == [(50, 99, 1)]
