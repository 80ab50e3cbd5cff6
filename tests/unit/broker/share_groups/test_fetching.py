"""Members of a share group receive records from a node that owns the group and leads its topics."""

from __future__ import annotations

import pytest

from goqueue.loop.promise import Cancellation
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, InvalidRecordState, UnknownGroup
from goqueue.model.share_groups import AckType
from tests.simulation.world import World
from tests.unit.broker.share_groups.member import SESSION, Member, acks, values_of

ACCEPT, RELEASE, REJECT, RENEW = AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW


def share_world(**settings: object) -> World:
    """A node with a topic and a group that reads it from its beginning."""
    world = World()
    world.create("orders", 2)
    world.wait(world.broker.queues.groups.create("workers", {"start": "earliest", **settings}))
    return world


def send(
    world: World, count: int, *, topic: str = "orders", partition: int = 0, per_batch: int = 1
) -> None:
    """Send values that are numbers, in batches of so many records."""
    target = world.broker.topics.get(topic).partition(partition)
    first = target.end_offset
    outcomes: list[GoQueueError | None] = []
    for start in range(first, first + count, per_batch):
        end = min(start + per_batch, first + count)
        world.append(
            target, [Record(None, str(one).encode()) for one in range(start, end)], outcomes.append
        )
    batch_count = -(-count // per_batch)
    world.run_until(lambda: len(outcomes) == batch_count)
    assert outcomes == [None] * batch_count


def test_a_member_gets_whole_batches_and_the_range_that_it_holds() -> None:
    world, member = share_world(), None
    send(world, 10, per_batch=5)
    member = Member(world, "one")
    fetched = member.fetch()
    assert values_of(fetched) == [str(one) for one in range(10)]
    assert [(one.first, one.last, one.delivery_count) for one in fetched.parts[0].acquired] == [
        (0, 9, 1)
    ]
    assert fetched.lock_ms == 30_000


def test_records_that_are_held_are_not_given_to_another_member() -> None:
    world = share_world()
    send(world, 10)
    one, two = Member(world, "one"), Member(world, "two")
    assert one.take(records_max=4, is_record_limited=True) == [(0, 3, 1)]
    assert two.take() == [(4, 9, 1)]
    assert one.take() == []


def test_accepted_records_are_done_and_the_next_fetch_carries_the_acknowledgement() -> None:
    world = share_world()
    send(world, 10)
    member = Member(world, "one")
    assert member.take(records_max=4, is_record_limited=True) == [(0, 3, 1)]
    assert member.take(acks((0, 3, ACCEPT))) == [(4, 9, 1)]
    assert member.acknowledge(acks((4, 9, ACCEPT))) == [None]
    world.kill()
    world.start()
    assert Member(world, "two").take() == []


def test_released_records_return_at_once_with_a_higher_delivery_count() -> None:
    world = share_world()
    send(world, 3)
    one, two = Member(world, "one"), Member(world, "two")
    one.take()
    assert one.acknowledge(acks((0, 0, ACCEPT), (1, 2, RELEASE))) == [None]
    assert two.take() == [(1, 2, 2)]


def test_released_records_wait_for_the_backoff_where_the_group_says_so() -> None:
    world = share_world(release_backoff=True, backoff_ms=5000, backoff_jitter=0.0)
    send(world, 1)
    member = Member(world, "one")
    member.take()
    member.acknowledge(acks((0, 0, RELEASE)))
    assert member.take() == []
    world.run_for(5000)
    assert member.take() == [(0, 0, 2)]


def test_what_a_member_does_not_hold_it_cannot_acknowledge_and_nothing_else_is_applied() -> None:
    world = share_world()
    send(world, 4)
    one, two = Member(world, "one"), Member(world, "two")
    one.take(records_max=2, is_record_limited=True)
    two.take()
    [error] = one.acknowledge(acks((0, 2, ACCEPT)))
    assert isinstance(error, InvalidRecordState)
    assert one.acknowledge(acks((0, 1, ACCEPT))) == [None]


def test_a_lock_that_has_expired_cannot_be_acknowledged() -> None:
    world = share_world()
    send(world, 1)
    one, two = Member(world, "one"), Member(world, "two")
    one.take()
    world.run_for(30_001)
    [error] = one.acknowledge(acks((0, 0, ACCEPT)))
    assert isinstance(error, InvalidRecordState)
    assert two.take() == [(0, 0, 2)]


def test_a_renewed_lock_lasts_longer() -> None:
    world = share_world()
    send(world, 2)
    one, two = Member(world, "one"), Member(world, "two")
    one.take()
    world.run_for(20_000)
    assert one.acknowledge(acks((1, 1, RENEW))) == [None]
    world.run_for(20_000)
    assert two.take() == [(0, 0, 2)]
    assert one.acknowledge(acks((1, 1, ACCEPT))) == [None]


def test_an_acceptance_whose_answer_was_lost_may_be_repeated() -> None:
    world = share_world()
    send(world, 2)
    member = Member(world, "one")
    member.take()
    assert member.acknowledge(acks((0, 1, ACCEPT))) == [None]
    assert member.acknowledge(acks((0, 1, ACCEPT))) == [None]


def test_many_small_leases_are_settled_together() -> None:
    world = share_world()
    send(world, 40)
    one, two = Member(world, "one"), Member(world, "two")
    for _ in range(40):
        one.take(records_max=1, is_record_limited=True)
    assert one.acknowledge(acks((0, 9, RELEASE), (10, 38, ACCEPT))) == [None]
    assert two.take() == [(0, 9, 2)]
    [error] = one.acknowledge(acks((9, 9, ACCEPT)))
    assert isinstance(error, InvalidRecordState)
    assert one.acknowledge(acks((39, 39, ACCEPT))) == [None]


def test_a_repeated_acceptance_of_more_than_can_be_held_is_refused() -> None:
    world = share_world(partition_unacked_max=10_000)
    send(world, 11_000, per_batch=1_000)
    member = Member(world, "one")
    for first in range(0, 11_000, 1_000):
        member.take(records_max=1_000)
        assert member.acknowledge(acks((first, first + 999, ACCEPT))) == [None]
    assert member.acknowledge(acks((1_000, 10_999, ACCEPT))) == [None]
    [error] = member.acknowledge(acks((0, 10_999, ACCEPT)))
    assert isinstance(error, InvalidRecordState)


def test_a_rejected_record_becomes_a_dead_letter() -> None:
    world = share_world()
    send(world, 2)
    member = Member(world, "one")
    member.take()
    assert member.acknowledge(acks((0, 0, REJECT), (1, 1, ACCEPT))) == [None]
    [letter] = world.consume("orders.dlq")
    assert letter.value == b"0"


def test_a_record_in_its_last_delivery_is_held_alone() -> None:
    world = share_world(deliveries_max=2)
    send(world, 4)
    member = Member(world, "one")
    member.take()
    member.acknowledge(acks((0, 3, RELEASE)))
    assert member.take() == [(0, 0, 2)]
    assert member.take() == [(1, 1, 2)]


def test_a_release_beyond_the_delivery_limit_makes_a_dead_letter() -> None:
    world = share_world(deliveries_max=1)
    send(world, 1)
    member = Member(world, "one")
    member.take()
    assert member.acknowledge(acks((0, 0, RELEASE))) == [None]
    assert len(world.consume("orders.dlq")) == 1
    assert member.take() == []


def test_a_fetch_waits_for_the_first_record() -> None:
    world = share_world()
    member = Member(world, "one")
    asked = member.ask(wait_ms=10_000, partitions=(0, 1))
    world.run_for(1000)
    assert not asked.is_done
    send(world, 1, partition=1)
    fetched = world.wait(asked)
    assert [(one.partition, values_of(fetched)) for one in fetched.parts] == [(1, ["0"])]


def test_what_a_member_that_hung_up_was_about_to_get_is_not_counted() -> None:
    world = share_world()
    cancellation = Cancellation()
    one, two = Member(world, "one"), Member(world, "two")
    one.ask(wait_ms=10_000, cancellation=cancellation)
    world.run_for(10)
    cancellation.cancel()
    send(world, 1)
    assert two.take() == [(0, 0, 1)]


def test_a_closed_session_returns_what_it_held_uncounted_and_a_lost_one_counted() -> None:
    world = share_world()
    send(world, 2)
    one, two = Member(world, "one"), Member(world, "two")
    one.take()
    one.release(is_counted=False)
    assert two.take() == [(0, 1, 1)]
    two.release(is_counted=True)
    assert one.take() == [(0, 1, 2)]


def test_a_new_session_of_a_member_returns_what_the_old_one_held() -> None:
    world = share_world()
    send(world, 2)
    member = Member(world, "one")
    member.take()
    assert member.take(is_new_session=True) == [(0, 1, 2)]


def test_a_repeated_request_of_a_new_session_keeps_what_the_first_one_leased() -> None:
    world = share_world()
    send(world, 4)
    member = Member(world, "one")
    member.session_id = 7
    assert member.take(is_new_session=True, records_max=2, is_record_limited=True) == [(0, 1, 1)]
    assert member.take(is_new_session=True) == [(2, 3, 1)]
    assert member.acknowledge(acks((0, 3, ACCEPT))) == [None]


def test_the_late_end_of_a_session_does_not_return_what_the_next_one_holds() -> None:
    world = share_world(deliveries_max=9)
    send(world, 2)
    one, again = Member(world, "one"), Member(world, "one")
    one.session_id, again.session_id = 7, 8
    one.take()
    assert again.take(is_new_session=True) == [(0, 1, 2)]
    one.release(is_counted=True)
    assert Member(world, "two").take() == []
    again.release(is_counted=True)
    assert Member(world, "two").take() == [(0, 1, 3)]


def test_the_end_of_a_session_returns_what_an_earlier_owner_has_leased() -> None:
    world = share_world()
    send(world, 2)
    one = Member(world, "one")
    one.session_id = 7
    one.take()
    world.stop()
    world.start()
    one.release(is_counted=True)
    assert Member(world, "two").take() == [(0, 1, 2)]


def test_leases_end_with_batches_unless_the_number_of_records_is_a_limit() -> None:
    world = share_world()
    send(world, 40, per_batch=10)
    member = Member(world, "one")
    assert member.take(records_max=10) == [(0, 9, 1)]
    assert member.take(records_max=5) == [(10, 19, 1)]
    assert member.take(records_max=5, is_record_limited=True) == [(20, 24, 1)]


def test_a_partition_locks_no_more_records_than_the_group_says() -> None:
    world = share_world(partition_unacked_max=100)
    send(world, 150, per_batch=150)
    one, two = Member(world, "one"), Member(world, "two")
    assert one.take() == [(0, 99, 1)]
    assert two.take() == []
    one.acknowledge(acks((0, 99, ACCEPT)))
    assert two.take() == [(100, 149, 1)]


def test_a_batch_that_is_begun_is_locked_as_a_whole() -> None:
    """Otherwise it would be sent again with each of its parts."""
    world = share_world(partition_unacked_max=100)
    send(world, 10, per_batch=10)
    send(world, 300, per_batch=150)
    one, two = Member(world, "one"), Member(world, "two")
    assert one.take(records_max=10) == [(0, 9, 1)]
    assert one.take(records_max=10) == [(10, 159, 1)]
    assert two.take() == []
    one.acknowledge(acks((0, 159, ACCEPT)))
    assert two.take(records_max=10, is_record_limited=True) == [(160, 169, 1)]


def test_what_does_not_fit_into_a_response_is_given_back_uncounted() -> None:
    world = share_world()
    send(world, 100)
    one, two = Member(world, "one"), Member(world, "two")
    [(first, last, _)] = one.take(bytes_max=1000)
    assert (first, last < 50) == (0, True)
    assert two.take() == [(last + 1, 99, 1)]


def test_long_ranges_are_split_where_the_member_wants_small_ones() -> None:
    world = share_world()
    send(world, 10)
    assert Member(world, "one").take(batch_records=4) == [(0, 3, 1), (4, 7, 1), (8, 9, 1)]


def test_a_group_that_nobody_has_joined_is_unknown() -> None:
    world = share_world()
    with pytest.raises(UnknownGroup):
        Member(world, "one", group="others").take()


def test_workers_with_receipts_and_members_share_one_group() -> None:
    world = share_world()
    send(world, 6)
    member = Member(world, "one")
    assert member.take(records_max=2, is_record_limited=True) == [(0, 1, 1)]
    received = world.wait(
        world.broker.queues.receive("workers", "orders", consumer="worker", messages_max=2).promise
    )
    assert [one.delivery.offset for one in received] == [2, 3]
    world.wait(world.broker.queues.ack("workers", received.receipts))
    assert member.take(acks((0, 1, ACCEPT))) == [(4, 5, 1)]


def test_leases_of_members_outlive_the_process() -> None:
    world = share_world()
    send(world, 3)
    Member(world, "one").take()
    world.kill()
    world.start()
    assert Member(world, "two").take() == []
    assert Member(world, "one").acknowledge(acks((0, 2, ACCEPT))) == [None]


def test_where_a_group_is_counts_what_is_not_done() -> None:
    world = share_world()
    send(world, 5)
    member = Member(world, "one")
    member.take()
    member.acknowledge(acks((0, 1, ACCEPT)))
    [offset, _] = world.wait(member.gate.offsets(SESSION, group="workers"))
    assert (offset.start_offset, offset.lag) == (2, 3)
