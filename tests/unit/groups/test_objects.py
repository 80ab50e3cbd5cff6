"""What groups cost the garbage collector: few objects, and no cycles when they go."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from goqueue.groups import CommitOffsets, Coordinator, OffsetToCommit
from goqueue.groups.classic.membership import ClassicMembership
from goqueue.groups.classic.rebalance import ClassicRebalance
from goqueue.groups.classic.roster import ClassicMember
from goqueue.groups.consumer import ConsumerMembership
from goqueue.groups.consumer.member import ConsumerMember
from goqueue.groups.consumer.reconciler import Reconciler
from goqueue.groups.group import Group
from goqueue.groups.timers import Timer
from goqueue.model.errors import NotCoordinator
from tests.unit.groups.desk import GROUP, SETTINGS, Desk

GROUPS = 1000
OBJECTS_PER_GROUP_MAX = 3.5  # the group, its table of offsets, and that of its topics
KINDS = (
    ClassicMember,
    ClassicMembership,
    ClassicRebalance,
    ConsumerMember,
    ConsumerMembership,
    Group,
    Reconciler,
)
GONE_MS = 3_600_000  # all sessions have expired, and all timers have passed


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS))


def commit_of(group: str) -> CommitOffsets:
    offset = OffsetToCommit(topic="a", partition=0, offset=1, metadata="")
    return CommitOffsets(group_id=group, offsets=[offset])


def test_a_group_of_which_only_offsets_are_known_is_few_objects(without_collector: None) -> None:
    desk = Desk()
    groups = [f"group-{number}" for number in range(GROUPS)]
    for group in groups:
        assert desk.ask("offsets.commit", commit_of(group)).error is None
    desk.restart()
    gc.collect()
    before = len(gc.get_objects())
    for group in groups:
        desk.coordinator.describe_group(group)
        desk.coordinator.topics_read(group)
        desk.coordinator.rebalances_begun(group)
    desk.coordinator.list_groups()
    gc.collect()
    assert len(gc.get_objects()) <= before + 10, "looking at groups costs nothing"
    desk.coordinator = Desk().coordinator
    gc.collect()
    assert before - len(gc.get_objects()) <= GROUPS * OBJECTS_PER_GROUP_MAX


def leave_classic(desk: Desk) -> None:
    desk.settle_classic("m1", "m2")
    desk.leave("m1", "m2")
    desk.wait(GONE_MS)


def expire_classic(desk: Desk) -> None:
    desk.settle_classic("m1", "m2")
    desk.wait(GONE_MS)


def never_come_back(desk: Desk) -> None:
    desk.join("", new="m1", is_member_id_required=True)
    desk.wait(GONE_MS)


def leave_consumer(desk: Desk) -> None:
    desk.consumer("m1", 0)
    desk.consumer("m2", 0)
    desk.consumer("m1", -1)
    desk.wait(GONE_MS)


def return_consumer(desk: Desk) -> None:
    desk.consumer("m1", 0, instance_id="one")
    desk.consumer("m1", -2, instance_id="one")
    desk.consumer("m2", 0, instance_id="one")
    desk.wait(GONE_MS)


def change_protocol(desk: Desk) -> None:
    desk.consumer("m1", 0)
    desk.join("", new="m2")
    desk.consumer("m1", -1)
    assert [one.member_id for one in desk.coordinator.describe_group(GROUP).members] == ["m2"]
    desk.wait(GONE_MS)
    desk.consumer("m3", 0)
    desk.consumer("m3", -1)
    desk.settle_classic("m4")
    desk.wait(GONE_MS)


@pytest.mark.parametrize(
    "use",
    [
        leave_classic,
        expire_classic,
        never_come_back,
        leave_consumer,
        return_consumer,
        change_protocol,
    ],
)
def test_members_and_groups_are_freed_without_the_collector(
    without_collector: None, use: Callable[[Desk], None]
) -> None:
    before = alive()
    desk = Desk(replace(SETTINGS, offsets_retention_ms=1000 * GONE_MS))
    desk.commit(1)
    use(desk)
    left = alive() - before
    assert not left["ClassicMember"]
    assert not left["ConsumerMember"]
    assert left["Group"] == 1
    desk.ask("delete_group", GROUP)
    desk.wait(GONE_MS)
    assert alive() - before == Counter()


def test_a_coordinator_that_only_replays_is_freed_without_the_collector(
    without_collector: None,
) -> None:
    before = alive()
    desk = Desk()
    desk.commit(1)
    reader = Coordinator(SETTINGS)
    for key, value in desk.log:
        reader.replay(key, value)
    assert (alive() - before)["Group"] == 2
    del reader
    assert (alive() - before)["Group"] == 1


def test_a_coordinator_that_resigns_is_freed_without_the_collector(
    without_collector: None,
) -> None:
    before = alive()
    desk = Desk()
    desk.commit(1)
    desk.settle_classic("m1")
    desk.coordinator.resign(NotCoordinator("Another node coordinates."))
    desk.restart()
    assert (alive() - before)["ClassicRebalance"] == 1


def test_an_ended_timer_lets_go_of_its_action() -> None:
    fired: list[int] = []
    timer = Timer(fired.append)
    timer.end()
    timer.fire(1)
    assert fired == []
    assert not timer.is_armed
