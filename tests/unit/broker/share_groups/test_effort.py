"""How much work leases are: it does not grow with their records, or with those who wait."""

from __future__ import annotations

from goqueue.model.share_groups import AckType
from tests.unit.broker.share_groups.member import Member, acks
from tests.unit.broker.share_groups.test_fetching import send, share_world
from tests.unit.effort import steps_of


def steps_of_leasing_and_accepting(count: int) -> int:
    world = share_world(partition_unacked_max=10_000)
    send(world, count, per_batch=count)
    member = Member(world, "one")
    taken, leasing = steps_of(lambda: member.take(bytes_max=50 << 20))
    assert taken == [(0, count - 1, 1)]
    half = count // 2
    accepted = acks((0, half, AckType.ACCEPT), (half + 1, count - 1, AckType.ACCEPT))
    outcomes, accepting = steps_of(lambda: member.acknowledge(accepted))
    assert outcomes == [None]
    return leasing + accepting


def steps_of_waiting_with(others: int) -> int:
    world = share_world(partition_unacked_max=100)
    send(world, 150, per_batch=50)
    Member(world, "holder").take(records_max=100)
    for number in range(others):
        Member(world, f"waits-{number}").ask(wait_ms=60_000)
    world.run_for(10)
    last = Member(world, "last")

    def wait() -> None:
        last.ask(wait_ms=60_000)
        world.run_for(10)

    return steps_of(wait)[1]


def test_leasing_and_accepting_whole_batches_is_as_much_work_whatever_they_contain() -> None:
    assert steps_of_leasing_and_accepting(10_000) < 1.2 * steps_of_leasing_and_accepting(100)


def test_one_more_member_that_waits_is_as_much_work_however_many_wait_already() -> None:
    assert steps_of_waiting_with(100) < 1.5 * steps_of_waiting_with(2)
