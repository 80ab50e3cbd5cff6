"""Work on all groups of a coordinator, a few of them at a time."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.groups import CommitOffsets, Effect, OffsetToCommit, Persist
from goqueue.groups.limits import GROUPS_LISTED_PER_SLICE, GROUPS_PER_SLICE, SLICE_MS
from tests.unit.groups.desk import SETTINGS, Desk

GROUPS = 3 * GROUPS_PER_SLICE
CHECK_MS = 600_000


class CountingDesk(Desk):
    """Counts the records that are written in one turn."""

    most_at_once = 0

    def _perform(self, effects: Iterable[Effect]) -> None:
        found = list(effects)
        records = sum(len(one.records) for one in found if isinstance(one, Persist))
        self.most_at_once = max(self.most_at_once, records)
        super()._perform(found)


def desk_with_groups(count: int = GROUPS) -> CountingDesk:
    desk = CountingDesk()
    for number in range(count):
        offset = OffsetToCommit(topic="a", partition=0, offset=1, metadata="")
        call = CommitOffsets(group_id=f"group-{number}", offsets=[offset])
        assert desk.ask("offsets.commit", call).error is None
    desk.most_at_once = 0
    return desk


def committed(desk: Desk) -> int:
    known = (desk.coordinator.offsets.fetch(f"group-{number}") for number in range(GROUPS))
    return sum(bool(one.get("a")) for one in known)


def test_offsets_of_a_deleted_topic_are_deleted_a_few_groups_at_a_time() -> None:
    desk = desk_with_groups()
    desk.set_topics(b=1)
    assert committed(desk) == GROUPS - GROUPS_PER_SLICE
    desk.wait(SLICE_MS)
    assert committed(desk) == GROUPS - 2 * GROUPS_PER_SLICE
    desk.wait(10 * SLICE_MS)
    assert committed(desk) == 0
    assert desk.most_at_once == GROUPS_PER_SLICE
    assert desk.coordinator.list_groups() == []


def test_offsets_of_a_topic_that_exists_again_are_left_to_its_id() -> None:
    desk = desk_with_groups()
    desk.set_topics(b=1)
    desk.set_topics(a=1, b=1)
    desk.wait(10 * SLICE_MS)
    assert committed(desk) == GROUPS - GROUPS_PER_SLICE


def test_two_topics_that_are_deleted_one_after_the_other_both_lose_their_offsets() -> None:
    desk = desk_with_groups(0)
    for topic in "ab":
        for number in range(GROUPS):
            offset = OffsetToCommit(topic=topic, partition=0, offset=1, metadata="")
            call = CommitOffsets(group_id=f"group-{number}", offsets=[offset])
            assert desk.ask("offsets.commit", call).error is None
    desk.set_topics(b=1, c=1)
    desk.set_topics(c=1)
    desk.wait(10 * SLICE_MS)
    assert desk.coordinator.list_groups() == []


def test_groups_expire_a_few_at_a_time() -> None:
    desk = desk_with_groups()
    desk.wait(SETTINGS.offsets_retention_ms + CHECK_MS)
    assert desk.coordinator.list_groups() == []
    assert desk.most_at_once == GROUPS_PER_SLICE


def test_a_coordinator_that_resigns_stops_its_work() -> None:
    desk = desk_with_groups()
    desk.set_topics(b=1)
    desk.restart()
    left = committed(desk)
    assert left == GROUPS - GROUPS_PER_SLICE
    desk.wait(10 * SLICE_MS)
    assert committed(desk) == left


def test_groups_are_listed_a_few_at_a_time() -> None:
    desk = desk_with_groups(GROUPS_LISTED_PER_SLICE + 1)
    sizes = [len(some) for some in desk.coordinator.list_in_slices()]
    assert sizes == [GROUPS_LISTED_PER_SLICE, 1]
    assert len(desk.coordinator.list_groups()) == GROUPS_LISTED_PER_SLICE + 1
