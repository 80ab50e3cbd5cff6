"""Groups whose members assign for themselves."""

from __future__ import annotations

from goqueue.config import GroupSettings
from goqueue.groups import GroupState, MemberDescription
from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.model.errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from tests.unit.groups.desk import GROUP, Desk

RANGE, STICKY = ("range", b"r"), ("cooperative-sticky", b"s")


def test_the_first_member_leads_and_sees_everybody() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=100))
    first = desk.join(new="m1")
    second = desk.join(new="m2")
    assert first.is_waiting
    desk.wait(200)
    assert first.result.leader_id == second.result.leader_id == "m1"
    assert [each.member_id for each in first.result.members] == ["m1", "m2"]
    assert second.result.members == ()


def test_the_leader_hands_out_the_assignment() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=100))
    desk.join(new="m1")
    desk.join(new="m2")
    desk.wait(200)
    follower = desk.sync("m2", 1)
    assert follower.is_waiting
    leader = desk.sync("m1", 1, assignments={"m1": b"one", "m2": b"two"})
    assert (leader.result.assignment, follower.result.assignment) == (b"one", b"two")
    assert desk.state is GroupState.STABLE


def test_members_left_out_by_the_leader_get_an_empty_assignment() -> None:
    desk = Desk()
    desk.join(new="m1")
    assert desk.sync("m1", 1, assignments={}).result.assignment == b""


def test_an_empty_group_waits_for_more_members_while_they_keep_coming() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=100))
    first = desk.join(new="m1")
    desk.wait(90)
    desk.join(new="m2")
    desk.wait(90)
    assert first.is_waiting
    desk.wait(20)
    assert len(first.result.members) == 2


def test_a_client_that_can_join_twice_gets_its_id_first() -> None:
    desk = Desk()
    refused = desk.join(new="m1", is_member_id_required=True)
    assert refused.error is MemberIdRequired
    assert refused.result.member_id == "m1"
    assert desk.join("m1", is_member_id_required=True).result.generation == 1


def test_an_id_that_is_never_used_expires_with_the_group() -> None:
    desk = Desk()
    desk.join(new="m1", is_member_id_required=True, session_ms=6_000)
    desk.wait(6_000)
    assert desk.coordinator.list_groups() == []
    assert desk.join("m1").error is UnknownMember


def test_a_rebalance_waits_for_ids_that_were_given_out() -> None:
    desk = Desk()
    desk.settle_classic("m1")
    desk.join(new="m2", is_member_id_required=True)
    again = desk.join("m1")
    assert again.is_waiting
    desk.join("m2")
    assert len(again.result.members) == 2


def test_heartbeats_tell_members_to_join_again() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    assert desk.heartbeat("m1", generation).error is None
    desk.join(new="m2")
    assert desk.state is GroupState.PREPARING_REBALANCE
    assert desk.heartbeat("m1", generation).error is RebalanceInProgress
    assert desk.sync("m1", generation).error is RebalanceInProgress


def test_a_member_that_does_not_rejoin_in_time_is_dropped() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    newcomer = desk.join(new="m2", rebalance_ms=5_000)
    for _ in range(12):
        desk.wait(5_000)
        desk.heartbeat("m1", generation)
    assert [each.member_id for each in newcomer.result.members] == ["m2"]
    assert desk.heartbeat("m1", generation).error is UnknownMember


def test_a_silent_member_expires_and_the_others_rebalance() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1", "m2")
    desk.wait(9_000)
    desk.heartbeat("m1", generation)
    desk.wait(2_000)
    assert desk.heartbeat("m1", generation).error is RebalanceInProgress
    assert [each.member_id for each in desk.join("m1").result.members] == ["m1"]


def test_a_member_that_joined_but_never_syncs_is_dropped() -> None:
    desk = Desk()
    desk.settle_classic("m1", rebalance_ms=8_000)
    desk.join(new="m2", rebalance_ms=8_000)
    first = desk.join("m1", rebalance_ms=8_000)
    generation = first.result.generation
    desk.sync("m1", generation, assignments={"m1": b"x"})
    desk.wait(4_000)
    assert desk.heartbeat("m2", generation).error is None
    desk.wait(4_000)
    assert desk.heartbeat("m1", generation).error is RebalanceInProgress
    assert desk.heartbeat("m2", generation).error is UnknownMember


def test_waiting_for_others_does_not_end_a_session() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1", "m2", rebalance_ms=60_000)
    waiting = desk.join("m1", rebalance_ms=60_000, protocols=(("range", b"other"),))
    for _ in range(5):
        desk.wait(8_000)
        desk.heartbeat("m2", generation)
    assert waiting.is_waiting
    desk.join("m2")
    assert len(waiting.result.members) == 2


def test_a_new_member_that_waits_too_long_is_forgotten() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1", rebalance_ms=1_000_000)
    newcomer = desk.join(new="m2", rebalance_ms=1_000_000)
    for _ in range(60):
        desk.wait(5_000)
        desk.heartbeat("m1", generation)
    assert newcomer.error is UnknownMember


def test_a_leaving_member_starts_a_rebalance_at_once() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1", "m2")
    assert desk.leave("m2").result.members[0].error is None
    assert desk.heartbeat("m1", generation).error is RebalanceInProgress


def test_the_last_member_to_leave_empties_the_group() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1", "m2")
    left = desk.leave("m1", "m2", "m3").result.members
    assert [type(each.error) for each in left] == [type(None), type(None), UnknownMember]
    assert desk.state is GroupState.EMPTY
    assert desk.coordinator.describe_group(GROUP).epoch == generation + 1


def test_a_pending_member_can_leave_without_a_rebalance() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    desk.join(new="m2", is_member_id_required=True)
    assert desk.leave("m2").result.members[0].error is None
    assert desk.heartbeat("m1", generation).error is None


def test_a_follower_that_joins_again_unchanged_disturbs_nobody() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1", "m2")
    again = desk.join("m2")
    assert (again.result.generation, again.result.members) == (generation, ())
    assert desk.state is GroupState.STABLE


def test_a_leader_that_joins_again_asks_for_a_rebalance() -> None:
    desk = Desk()
    desk.settle_classic("m1", "m2")
    assert desk.join("m1").is_waiting
    assert desk.state is GroupState.PREPARING_REBALANCE


def test_a_changed_subscription_starts_a_rebalance() -> None:
    desk = Desk()
    desk.settle_classic("m1", "m2")
    assert desk.join("m2", protocols=(("range", b"other"),)).is_waiting


def test_a_lost_join_answer_is_repeated() -> None:
    desk = Desk()
    desk.settle_classic("m1")
    second, first = desk.join(new="m2"), desk.join("m1")
    again = desk.join("m1")
    assert again.result == first.result
    assert second.result.generation == again.result.generation


def test_a_join_overtaken_by_its_repetition_is_answered_too() -> None:
    desk = Desk()
    desk.settle_classic("m1", "m2")
    overtaken = desk.join("m1")
    latest = desk.join("m1")
    assert overtaken.error is RebalanceInProgress
    assert latest.is_waiting


def test_a_change_while_members_sync_sends_them_back_to_join() -> None:
    desk = Desk()
    desk.settle_classic("m1")
    desk.join(new="m2")
    first = desk.join("m1")
    follower = desk.sync("m2", first.result.generation)
    desk.join(new="m3")
    assert follower.error is RebalanceInProgress
    assert desk.state is GroupState.PREPARING_REBALANCE


def test_the_protocol_with_most_votes_among_the_common_ones_wins() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=100))
    joined = [
        desk.join(new="m1", protocols=(("only-mine", b""), RANGE, STICKY)),
        desk.join(new="m2", protocols=(STICKY, RANGE)),
        desk.join(new="m3", protocols=(STICKY, RANGE)),
    ]
    desk.wait(200)
    assert {each.result.protocol_name for each in joined} == {"cooperative-sticky"}
    assert joined[0].result.members[1].metadata == b"s"


def test_a_member_without_a_common_protocol_is_refused() -> None:
    desk = Desk()
    desk.settle_classic("m1", protocols=(RANGE,))
    assert desk.join(new="m2", protocols=(STICKY,)).error is InconsistentProtocol
    assert desk.join(new="m2", protocol_type="connect").error is InconsistentProtocol
    assert desk.join(new="m2", protocols=()).error is InconsistentProtocol


def test_groups_of_other_protocol_types_are_passed_through() -> None:
    desk = Desk()
    joined = desk.join(new="w1", protocol_type="connect", protocols=(("sessioned", b"\xff"),))
    assert joined.result.protocol_type == "connect"
    synced = desk.sync("w1", 1, assignments={"w1": b"\xfe"}, protocol_type="connect")
    assert synced.result.assignment == b"\xfe"


def test_a_sync_must_name_the_chosen_protocol() -> None:
    desk = Desk()
    desk.join(new="m1", protocols=(RANGE, STICKY))
    assert desk.sync("m1", 1, protocol_name="cooperative-sticky").error is InconsistentProtocol
    assert desk.sync("m1", 1, protocol_type="connect").error is InconsistentProtocol
    assert desk.sync("m1", 1, protocol_type="consumer", protocol_name="range").error is None


def test_generations_and_members_are_checked() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    assert desk.heartbeat("m1", generation - 1).error is IllegalGeneration
    assert desk.sync("m1", generation + 1).error is IllegalGeneration
    assert desk.heartbeat("m2", generation).error is UnknownMember
    assert desk.join("m2").error is UnknownMember


def test_unknown_groups_have_unknown_members() -> None:
    desk = Desk()
    assert desk.heartbeat("m1", 1).error is UnknownMember
    assert desk.sync("m1", 1).error is UnknownMember
    assert desk.leave("m1").error is UnknownMember
    assert desk.coordinator.list_groups() == []


def test_bounds_of_sessions_and_sizes_are_kept() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=0, size_max=1))
    assert desk.join(session_ms=5_999).error is InvalidSessionTimeout
    assert desk.join(session_ms=1_800_001).error is InvalidSessionTimeout
    desk.settle_classic("m1")
    assert desk.join(new="m2").error is GroupFull
    assert desk.join("m1").error is None


def test_an_empty_group_id_is_refused() -> None:
    desk = Desk()
    call = {"partitions": {}}
    assert desk.ask("offsets.delete", "", *call.values()).error is InvalidGroupId


def test_a_stable_group_describes_its_members() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1", client_id="app", client_host="/10.0.0.1")
    described = desk.coordinator.describe_group(GROUP)
    assert (described.protocol_type, described.protocol_name) == ("consumer", "range")
    assert described.members == (
        MemberDescription(
            member_id="m1",
            instance_id=None,
            client_id="app",
            client_host="/10.0.0.1",
            is_classic=True,
            epoch=generation,
            metadata=encode_subscription(["a"]),
            assignment=b"m1",
        ),
    )
