"""Many records that are returned at once: in steps, between which others are served."""

from __future__ import annotations

import pytest

from goqueue.broker.share_groups.leasing import RETURNED_PER_TURN
from goqueue.loop.promise import Promise
from goqueue.model.share_groups import AckType, ShareAcknowledge, ShareWanted
from tests.simulation.world import World
from tests.unit.broker.share_groups.member import SESSION, Member, acks
from tests.unit.broker.share_groups.test_fetching import send, share_world

EACH = RETURNED_PER_TURN + 500
RELEASE = AckType.RELEASE


def holding(name: str = "one") -> tuple[World, Member]:
    """A member that holds as many records of each of two partitions."""
    world = share_world(partition_unacked_max=EACH)
    member = Member(world, name)
    for number in (0, 1):
        send(world, EACH, partition=number, per_batch=EACH)
        taken = member.take(partitions=(number,), records_max=EACH, bytes_max=50 << 20)
        assert taken == [(0, EACH - 1, 1)]
    return world, member


def in_flight(world: World) -> int:
    (hosted,) = world.broker.queues.groups.hosted_here()
    return hosted.queue.leases.count


def release(member: Member, *, is_counted: bool) -> Promise[None]:
    wanted = tuple(ShareWanted("orders", number) for number in (0, 1))
    return member.gate.release(
        SESSION,
        group=member.group,
        member_id=member.name,
        partitions=wanted,
        session_id=member.session_id,
        is_counted=is_counted,
    )


@pytest.mark.parametrize("is_counted", [False, True])
def test_the_end_of_a_session_returns_what_it_held_in_steps(is_counted: bool) -> None:
    world, member = holding()
    ended = release(member, is_counted=is_counted)
    assert in_flight(world) == 2 * EACH - RETURNED_PER_TURN
    world.wait(ended)
    assert in_flight(world) == 0
    for number in (0, 1):
        taken = Member(world, "two").take(
            partitions=(number,), records_max=EACH, bytes_max=50 << 20
        )
        assert taken == [(0, EACH - 1, 1 + is_counted)]


def test_what_is_accepted_between_the_steps_stays_accepted() -> None:
    world, member = holding()
    ended = release(member, is_counted=True)
    last = EACH - 1
    accepted = acks((last, last, AckType.ACCEPT), partition=1)
    assert member.acknowledge(accepted) == [None]
    world.wait(ended)
    taken = Member(world, "two").take(partitions=(1,), records_max=EACH, bytes_max=50 << 20)
    assert taken == [(0, EACH - 2, 2)]


def test_a_request_releases_many_records_partition_by_partition() -> None:
    world, member = holding()
    released = tuple(acks((0, EACH - 1, RELEASE), partition=number) for number in (0, 1))
    call = ShareAcknowledge(member.group, member.name, released)
    answer = member.gate.acknowledge(SESSION, call=call)
    assert in_flight(world) == EACH
    assert [one.error for one in world.wait(answer)] == [None, None]
    assert in_flight(world) == 0


def test_a_new_session_returns_all_that_the_old_one_held_before_it_leases() -> None:
    _, member = holding()
    member.session_id = 1
    taken = member.take(
        partitions=(0, 1), records_max=2 * EACH, bytes_max=50 << 20, is_new_session=True
    )
    assert taken == [(0, EACH - 1, 2), (0, EACH - 1, 2)]
