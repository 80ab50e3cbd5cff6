"""The members of a share group: epochs, sessions, and which partitions each of them reads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from goqueue.groups.share import MEMBERS_MAX, MemberTimes, ShareMembership
from goqueue.groups.share.membership import SUBSCRIPTION_LENGTH_MAX, TOPICS_MAX
from goqueue.model.errors import FencedMemberEpoch, GroupFull, InvalidRequest, UnknownMember
from goqueue.model.share_groups import ShareHeartbeat, ShareHeartbeatResult

TIMES = MemberTimes(session_ms=45_000, heartbeat_ms=5_000)
TOPICS = ("orders",)


class Group:
    """A group, the time, and the topics that there are."""

    def __init__(self, **partition_counts: int) -> None:
        self.membership = ShareMembership()
        self.partition_counts = partition_counts or {"orders": 4}
        self.now_ms = 1_000

    def beat(
        self, member: str, epoch: int, topics: tuple[str, ...] | None = None
    ) -> ShareHeartbeatResult:
        return self.send(ShareHeartbeat("workers", member, epoch, subscribed_topics=topics))

    def send(self, call: ShareHeartbeat) -> ShareHeartbeatResult:
        return self.membership.heartbeat(
            call,
            self.now_ms,
            times=TIMES,
            partition_count=lambda name: self.partition_counts.get(name, 0),
        )

    def join(self, member: str, topics: tuple[str, ...] = TOPICS) -> int:
        return self.beat(member, 0, topics).member_epoch

    def assigned(self) -> dict[str, set[int]]:
        members = self.membership.describe("workers").members
        return {one.member_id: {number for _, number in one.assigned} for one in members}


def test_the_first_member_reads_everything() -> None:
    answer = Group().beat("one", 0, TOPICS)
    assert answer.assignment == {("orders", number) for number in range(4)}
    assert answer.member_epoch > 0
    assert answer.heartbeat_ms == 5_000


def test_members_share_partitions_and_learn_of_changes_with_their_next_heartbeat() -> None:
    group = Group()
    first = group.join("one")
    group.join("two")
    answer = group.beat("one", first)
    assert answer.assignment is not None
    assert len(answer.assignment) == 2
    assert group.beat("one", answer.member_epoch).assignment is None


def test_every_member_has_a_partition_although_there_are_fewer() -> None:
    group = Group(orders=2)
    epochs = {name: group.join(name) for name in ("one", "two", "three")}
    for name, epoch in epochs.items():
        group.beat(name, epoch)
    assert sorted(map(len, group.assigned().values())) == [1, 1, 1]
    assert set().union(*group.assigned().values()) == {0, 1}


def test_a_member_that_missed_an_answer_gets_its_partitions_again() -> None:
    group = Group()
    first = group.join("one")
    group.join("two")
    missed = group.beat("one", first)
    again = group.beat("one", first)
    assert (again.assignment, again.member_epoch) == (missed.assignment, missed.member_epoch)


def test_a_member_of_another_epoch_has_to_join_again() -> None:
    group = Group()
    epoch = group.join("one")
    with pytest.raises(FencedMemberEpoch):
        group.beat("one", epoch + 1)
    assert group.join("one") == epoch


def test_an_unknown_member_has_to_join_and_one_without_topics_may_not() -> None:
    with pytest.raises(UnknownMember):
        Group().beat("one", 1)
    with pytest.raises(UnknownMember):
        Group().beat("one", -1)
    with pytest.raises(InvalidRequest):
        Group().beat("one", 0)


def test_who_leaves_or_is_silent_for_a_session_reads_nothing_more() -> None:
    group = Group()
    one, two = group.join("one"), group.join("two")
    group.now_ms += 30_000
    one = group.beat("one", one).member_epoch
    group.now_ms += 30_000
    answer = group.beat("one", one)
    assert answer.assignment == {("orders", number) for number in range(4)}
    with pytest.raises(UnknownMember):
        group.beat("two", two)
    assert group.beat("one", -1).member_epoch == -1
    assert group.membership.is_empty


def test_topics_that_appear_grow_or_go_change_what_members_read() -> None:
    group = Group(orders=1)
    epoch = group.join("one", ("orders", "returns"))
    group.partition_counts["returns"] = 1
    answer = group.beat("one", epoch)
    assert answer.assignment == {("orders", 0), ("returns", 0)}
    group.partition_counts = {"orders": 2}
    answer = group.beat("one", answer.member_epoch)
    assert answer.assignment == {("orders", 0), ("orders", 1)}


def test_partitions_of_several_topics_are_spread_evenly() -> None:
    group = Group(**{f"topic-{one}": 3 for one in range(4)})
    epochs = {name: group.join(name, tuple(group.partition_counts)) for name in ("one", "two")}
    for name, epoch in epochs.items():
        group.beat(name, epoch)
    counts = [len(one.assigned) for one in group.membership.describe("workers").members]
    assert counts == [6, 6]


def test_a_group_has_a_limited_number_of_members() -> None:
    group = Group()
    for number in range(MEMBERS_MAX):
        group.join(f"member-{number}")
    with pytest.raises(GroupFull):
        group.join("one more")


@pytest.mark.parametrize(
    "fields",
    [
        {"subscribed_topics": tuple(map(str, range(TOPICS_MAX + 1)))},
        {"subscribed_topics": ("t" * (SUBSCRIPTION_LENGTH_MAX + 1),)},
        {"rack_id": "r" * 250},
    ],
    ids=["topics", "characters", "rack"],
)
def test_what_a_member_makes_the_group_remember_is_limited(fields: dict[str, Any]) -> None:
    group = Group()
    call = ShareHeartbeat("workers", "one", 0, subscribed_topics=TOPICS)
    with pytest.raises(InvalidRequest):
        group.send(msgspec.structs.replace(call, **fields))
    assert group.membership.is_empty


def test_members_with_different_topics_share_the_limit_of_their_group() -> None:
    """Each heartbeat looks up all topics of the group."""
    group = Group()
    group.join("one", topics=tuple(map(str, range(TOPICS_MAX))))
    with pytest.raises(InvalidRequest):
        group.join("two", topics=("another",))
    group.join("two", topics=("1", "2"))
    assert group.membership.member_count == 2
    group.join("one", topics=("another",))
