"""Large groups: the work for a change does not grow with the size of the group."""

from __future__ import annotations

import pytest

from goqueue.config import GroupSettings
from goqueue.groups import GroupState, Join
from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.groups.limits import ASSIGNED_AT_ONCE_MAX
from goqueue.model.errors import GroupFull, LimitReached
from tests.unit.effort import steps_of
from tests.unit.groups.desk import GROUP, Desk

FEW, MANY = 200, 1600
GATHERING = GroupSettings(initial_rebalance_delay_ms=3_000)
TOPICS = {"a": 32}
PROTOCOLS = (("range", encode_subscription(["a"])), ("roundrobin", encode_subscription(["a"])))


def _join_classic(desk: Desk, first: int, count: int) -> None:
    for number in range(first, first + count):
        desk.join(new=f"m{number:05}", protocols=PROTOCOLS)


def _classic(size: int) -> Desk:
    desk = Desk(GATHERING, TOPICS)
    _join_classic(desk, 0, size)
    return desk


def _consumers(size: int) -> Desk:
    desk = Desk(topics=TOPICS)
    _join_consumers(desk, 0, size)
    return desk


def _join_consumers(desk: Desk, first: int, count: int) -> None:
    for number in range(first, first + count):
        assert desk.consumer(f"m{number:05}", 0).error is None


def test_a_join_of_a_classic_group_costs_the_same_whatever_its_size() -> None:
    costs = {}
    for size in (FEW, MANY):
        desk = _classic(size)
        _, costs[size] = steps_of(lambda desk=desk, size=size: _join_classic(desk, size, 100))  # type: ignore[misc]
    assert costs[MANY] < 1.2 * costs[FEW]


def test_a_leave_of_a_classic_group_costs_the_same_whatever_its_size() -> None:
    costs = {}
    for size in (FEW, MANY):
        desk = _classic(size)
        names = [f"m{number:05}" for number in range(50)]
        _, costs[size] = steps_of(lambda desk=desk, names=names: [desk.leave(one) for one in names])  # type: ignore[misc]
    assert costs[MANY] < 1.2 * costs[FEW]


def test_members_that_leave_and_change_their_protocols_are_still_agreed_with() -> None:
    desk = Desk(GATHERING)
    desk.join(new="old", protocols=PROTOCOLS[:1])
    desk.join(new="new", protocols=PROTOCOLS)
    assert desk.join(new="other", protocols=PROTOCOLS[1:]).error is not None
    desk.leave("old")
    assert desk.join(new="other", protocols=PROTOCOLS[1:]).is_waiting
    assert desk.join("new", protocols=PROTOCOLS[1:]).is_waiting
    assert desk.join(new="again", protocols=PROTOCOLS[:1]).error is not None


def test_a_join_of_a_consumer_group_costs_the_same_whatever_its_size() -> None:
    costs = {}
    for size in (FEW, MANY):
        desk = _consumers(size)
        _, costs[size] = steps_of(lambda desk=desk, size=size: _join_consumers(desk, size, 100))  # type: ignore[misc]
    assert costs[MANY] < 1.5 * costs[FEW]


def test_members_that_all_fall_silent_cost_the_same_each() -> None:
    costs = {}
    for size in (FEW, MANY):
        desk = _consumers(size)
        desk.wait(10_000)
        _, steps = steps_of(lambda desk=desk: desk.wait(60_000))  # type: ignore[misc]
        costs[size] = steps / size
        assert desk.coordinator.describe_group(GROUP).state is GroupState.EMPTY
    assert costs[MANY] < 1.5 * costs[FEW]


def test_everybody_gets_a_share_of_a_large_group_soon() -> None:
    size = 2 * ASSIGNED_AT_ONCE_MAX
    topics = {"a": size}
    desk = Desk(topics=topics)
    epochs: dict[str, int] = {}
    owned: dict[str, frozenset[tuple[str, int]]] = {}
    for number in range(size):
        name = f"m{number:05}"
        told = desk.consumer(name, 0).result
        assert told.member_epoch > 0, "a member is in the group at once"
        epochs[name], owned[name] = told.member_epoch, told.assignment or frozenset()
    desk.wait(1_000)
    for _ in range(8):
        for name in epochs:
            told = desk.consumer(name, epochs[name], owned=owned[name]).result
            epochs[name] = told.member_epoch
            owned[name] = owned[name] if told.assignment is None else told.assignment
    assert [len(one) for one in owned.values()] == [1] * size
    assert desk.state is GroupState.STABLE


def test_a_crash_before_the_assignment_is_made_up_for() -> None:
    desk = _consumers(2 * ASSIGNED_AT_ONCE_MAX)
    assert desk.state is GroupState.ASSIGNING
    desk.restart()
    desk.wait(1_000)
    members = desk.coordinator.describe_group(GROUP).members
    assert sum(len(each.target) for each in members) == TOPICS["a"]
    assert desk.state is not GroupState.ASSIGNING


def test_a_small_group_is_assigned_at_once() -> None:
    desk = _consumers(ASSIGNED_AT_ONCE_MAX)
    assert desk.state is not GroupState.ASSIGNING


@pytest.mark.parametrize("size_max", [3])
def test_a_full_group_refuses_one_more_of_either_kind(size_max: int) -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=3_000, size_max=size_max)
    desk = Desk(settings)
    _join_classic(desk, 0, size_max)
    assert desk.join(new="one more").error is GroupFull
    desk = Desk(settings)
    _join_consumers(desk, 0, size_max)
    assert desk.consumer("one more", 0).error is GroupFull


def test_a_coordinator_holds_so_many_groups_at_most() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=0, per_partition_max=1))
    assert desk.commit(5).error is None
    other = Join(
        group_id="other",
        member_id="",
        new_member_id="m1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=PROTOCOLS,
    )
    assert desk.ask("join", other).error is LimitReached
    assert desk.commit(6).error is None, "a group that exists goes on"
    desk.restart()
    assert desk.committed() == 6
