"""Groups whose members are assigned by the server."""

from __future__ import annotations

import pytest

from goqueue.config import GroupSettings
from goqueue.groups import GroupState, GroupType
from goqueue.groups.limits import HEARTBEAT_MS_MIN, WAITING_HEARTBEAT_MS_MIN
from goqueue.model.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    InvalidRegularExpression,
    InvalidRequest,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from tests.unit.groups.desk import GROUP, SETTINGS, Desk, partitions

ALL = partitions("a", 0, 1, 2, 3)


def _two_members(desk: Desk) -> None:
    """m1 and m2 share topic a, both at epoch 2 and settled."""
    desk.consumer("m1", 0)
    desk.consumer("m2", 0)
    told = desk.consumer("m1", 1).result
    desk.consumer("m1", 1, owned=told.assignment)
    desk.consumer("m2", 2)
    assert desk.state is GroupState.STABLE


def _assigned(desk: Desk) -> dict[str, set[tuple[str, int]]]:
    members = desk.coordinator.describe_group(GROUP).members
    return {each.member_id: set(each.assigned) for each in members}


def test_a_lone_member_gets_everything_at_once() -> None:
    joined = Desk().consumer("m1", 0).result
    assert (joined.member_id, joined.member_epoch) == ("m1", 1)
    assert joined.assignment == ALL


def test_members_are_heard_often_while_they_wait_and_seldom_when_they_are_many() -> None:
    desk = Desk()
    assert desk.consumer("m1", 0).result.heartbeat_interval_ms == HEARTBEAT_MS_MIN
    waiting = desk.consumer("m2", 0).result
    assert waiting.heartbeat_interval_ms == WAITING_HEARTBEAT_MS_MIN, "m1 has not let go yet"
    told = desk.consumer("m1", 1).result
    assert told.heartbeat_interval_ms == WAITING_HEARTBEAT_MS_MIN, "m2 waits for it"
    desk.consumer("m1", 1, owned=told.assignment)
    assert desk.consumer("m2", 2).result.heartbeat_interval_ms == HEARTBEAT_MS_MIN
    intervals = {
        desk.consumer(f"more-{number}", 0).result.heartbeat_interval_ms for number in range(600)
    }
    assert max(intervals) == SETTINGS.consumer_heartbeat_ms


def test_a_heartbeat_without_news_repeats_nothing() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    answer = desk.consumer("m1", 1).result
    assert (answer.member_epoch, answer.assignment) == (1, None)


def test_partitions_move_only_after_their_owner_let_go() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    joined = desk.consumer("m2", 0).result
    assert (joined.member_epoch, joined.assignment) == (2, frozenset())

    told = desk.consumer("m1", 1).result
    assert told.member_epoch == 1, "the epoch stays until the revocation is confirmed"
    assert len(told.assignment) == 2
    assert desk.consumer("m2", 2).result.assignment is None, "nothing is free yet"
    assert desk.consumer("m1", 1, owned=ALL).result.member_epoch == 1, "still owns them"

    confirmed = desk.consumer("m1", 1, owned=told.assignment).result
    assert confirmed.member_epoch == 2
    received = desk.consumer("m2", 2).result
    assert received.assignment == ALL - told.assignment
    assert desk.state is GroupState.STABLE


def test_partitions_that_do_not_move_stay_through_a_rebalance() -> None:
    desk = Desk()
    before = desk.consumer("m1", 0).result.assignment
    desk.consumer("m2", 0)
    assert desk.consumer("m1", 1).result.assignment < before


def test_a_member_that_does_not_revoke_in_time_is_evicted() -> None:
    desk = Desk()
    desk.consumer("m1", 0, rebalance_timeout_ms=8_000)
    desk.consumer("m2", 0)
    for _ in range(3):
        desk.consumer("m1", 1, owned=ALL)
        desk.wait(4_000)
    assert desk.consumer("m1", 1, owned=ALL).error is UnknownMember
    assert desk.consumer("m2", 2).result.assignment == ALL
    assert desk.coordinator.rebalances(GROUP).timeouts == 1


def test_a_silent_member_is_gone_after_its_session() -> None:
    desk = Desk()
    _two_members(desk)
    for _ in range(9):
        desk.wait(5_000)
        desk.consumer("m1", 2)
    assert _assigned(desk) == {"m1": ALL}
    assert desk.consumer("m2", 2).error is UnknownMember


def test_a_leaving_member_frees_its_partitions_at_once() -> None:
    desk = Desk()
    _two_members(desk)
    assert desk.consumer("m1", -1).result.member_epoch == -1
    answer = desk.consumer("m2", 2).result
    assert (answer.member_epoch, answer.assignment) == (3, ALL)


def test_the_last_member_to_leave_empties_the_group() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    desk.consumer("m1", -1)
    assert desk.state is GroupState.EMPTY


def test_epochs_ahead_or_long_past_are_fenced() -> None:
    desk = Desk()
    _two_members(desk)
    assert desk.consumer("m1", 3).error is FencedMemberEpoch
    desk.consumer("m3", 0)
    desk.consumer("m1", 2)
    assert desk.consumer("m1", 1, owned=()).error is FencedMemberEpoch


def test_an_answer_that_was_lost_is_given_again() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    desk.consumer("m2", 0)
    told = desk.consumer("m1", 1).result
    desk.consumer("m1", 1, owned=told.assignment)
    again = desk.consumer("m1", 1, owned=told.assignment).result
    assert (again.member_epoch, again.assignment) == (2, told.assignment)
    assert desk.consumer("m1", 1, owned=ALL).error is FencedMemberEpoch, "it lost some of these"
    assert desk.consumer("m1", 1).error is FencedMemberEpoch, "nobody knows what it has"


def test_a_full_heartbeat_is_told_its_assignment_again() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    answer = desk.consumer(
        "m1", 1, owned=ALL, subscribed_topics=("a",), rebalance_timeout_ms=60_000
    )
    assert answer.result.assignment == ALL


def test_a_fenced_member_joins_again_under_its_id() -> None:
    desk = Desk()
    _two_members(desk)
    mine = _assigned(desk)["m1"]
    again = desk.consumer("m1", 0).result
    assert (again.member_epoch, again.assignment) == (2, mine)


def test_a_new_subscription_gets_new_partitions() -> None:
    desk = Desk(topics={"a": 2, "b": 2})
    desk.consumer("m1", 0)
    answer = desk.consumer("m1", 1, subscribed_topics=("a", "b")).result
    assert (answer.member_epoch, len(answer.assignment)) == (2, 4)


def test_a_regular_expression_follows_the_topics() -> None:
    desk = Desk(topics={"logs-a": 1, "other": 1, "__logs-internal": 1})
    joined = desk.consumer("m1", 0, subscribed_topics=None, subscribed_regex=".*logs-.*").result
    assert joined.assignment == partitions("logs-a", 0)
    desk.set_topics(**{"logs-a": 1, "logs-b": 1, "my-logs-c": 1, "other": 1})
    told = desk.consumer("m1", 1).result
    assert {topic for topic, _ in told.assignment} == {"logs-a", "logs-b", "my-logs-c"}
    desk.set_topics(**{"logs-b": 1})
    assert desk.consumer("m1", 2, owned=()).result.assignment == partitions("logs-b", 0)


def test_a_regular_expression_must_match_the_whole_name() -> None:
    desk = Desk(topics={"abc": 1, "b": 1})
    joined = desk.consumer("m1", 0, subscribed_topics=(), subscribed_regex="b").result
    assert joined.assignment == partitions("b", 0)


@pytest.mark.parametrize("regex", ["(", "a{99999}", r"(a)\1", "(?=a)", "a" * 2_000])
def test_a_bad_regular_expression_is_refused_and_changes_nothing(regex: str) -> None:
    desk = Desk()
    assert desk.consumer("m1", 0, subscribed_regex=regex).error is InvalidRegularExpression
    assert desk.coordinator.list_groups() == []


def test_growing_and_deleted_topics_are_reassigned() -> None:
    desk = Desk()
    _two_members(desk)
    desk.set_topics(a=8)
    shares = [desk.consumer(each, 2).result.assignment for each in ("m1", "m2")]
    assert [len(share) for share in shares] == [4, 4]
    desk.set_topics(b=1)
    assert desk.consumer("m1", 3).result.assignment == frozenset()


def test_topics_nobody_reads_start_no_rebalance() -> None:
    desk = Desk()
    _two_members(desk)
    desk.set_topics(a=4, b=100)
    assert desk.consumer("m1", 2).result.member_epoch == 2


def test_the_range_assignor_can_be_asked_for() -> None:
    desk = Desk(topics={"a": 3, "b": 3})
    desk.consumer("m1", 0, subscribed_topics=("a", "b"), server_assignor="range")
    desk.consumer("m2", 0, subscribed_topics=("a", "b"), server_assignor="range")
    targets = {each.member_id: each.target for each in
               desk.coordinator.describe_group(GROUP).members}  # fmt: skip
    assert targets["m2"] == {("a", 2), ("b", 2)}


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"rebalance_timeout_ms": None},
        {"subscribed_topics": None},
        {"owned": [("a", 0)]},
        {"instance_id": ""},
        {"epoch": -3},
        {"epoch": -2},
    ],
)
def test_heartbeats_that_make_no_sense_are_refused(fields: dict[str, object]) -> None:
    desk = Desk()
    call = {"member_id": "m1", "epoch": 0, **fields}
    assert desk.consumer(**call).error is InvalidRequest  # type: ignore[arg-type]


def test_unknown_assignors_members_and_full_groups_are_refused() -> None:
    desk = Desk(GroupSettings(size_max=1))
    assert desk.consumer("m1", 0, server_assignor="mine").error is UnsupportedAssignor
    assert desk.consumer("m1", 5).error is UnknownMember
    desk.consumer("m1", 0)
    assert desk.consumer("m2", 0).error is GroupFull
    assert desk.consumer("m2", -1).error is UnknownMember


def test_an_instance_that_leaves_for_a_restart_keeps_its_partitions() -> None:
    desk = Desk()
    desk.consumer("m1", 0, instance_id="i1")
    desk.consumer("m1", -2, instance_id="i1")
    desk.consumer("m2", 0)
    assert desk.consumer("m2", 2).result.assignment is None
    back = desk.consumer("m1b", 0, instance_id="i1").result
    assert (back.member_epoch, len(back.assignment)) == (2, 2)
    assert desk.consumer("m1", 1, instance_id="i1").error is FencedInstance


def test_an_instance_comes_back_without_a_rebalance() -> None:
    desk = Desk()
    desk.consumer("m1", 0, instance_id="i1")
    desk.consumer("m1", -2, instance_id="i1")
    back = desk.consumer("m1b", 0, instance_id="i1").result
    assert (back.member_epoch, back.assignment) == (1, ALL)
    assert desk.consumer("m1b", -2, instance_id="i1").error is None
    assert desk.consumer("m1b", 0, instance_id="i1").result.assignment == ALL
    assert desk.coordinator.rebalances(GROUP).count == 1


def test_an_instance_that_does_not_come_back_loses_its_partitions() -> None:
    desk = Desk()
    desk.consumer("m1", 0, instance_id="i1")
    desk.consumer("m1", -2, instance_id="i1")
    desk.wait(45_000)
    assert desk.state is GroupState.EMPTY


def test_an_instance_id_in_use_is_not_given_to_another() -> None:
    desk = Desk()
    desk.consumer("m1", 0, instance_id="i1")
    assert desk.consumer("m2", 0, instance_id="i1").error is UnreleasedInstance


def test_an_empty_group_may_change_its_protocol_both_ways() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    desk.leave("m1")
    joined = desk.consumer("m2", 0).result
    assert joined.member_epoch > generation
    desk.consumer("m2", -1)
    assert desk.join(new="m3").result.generation > joined.member_epoch
    assert desk.coordinator.describe_group(GROUP).type is GroupType.CLASSIC


def test_unstable_groups_say_so() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    desk.consumer("m2", 0)
    assert desk.state is GroupState.RECONCILING


@pytest.mark.parametrize("first", [None, "i1"])
def test_a_member_id_cannot_be_taken_over_by_another_instance(first: str | None) -> None:
    desk = Desk()
    desk.consumer("m1", 0, instance_id=first)
    assert desk.consumer("m1", 0, instance_id="i2").error is InvalidRequest
    desk.wait(SETTINGS.consumer_session_ms + 1)
    assert desk.state is GroupState.EMPTY
