"""Classic members with an instance id restart without a rebalance."""

from __future__ import annotations

from goqueue.groups import GroupState
from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.model.errors import FencedInstance, RebalanceInProgress, UnknownMember
from tests.unit.groups.desk import Answer, Desk


def _settle(desk: Desk, **fields: object) -> int:
    """A leader m1 and a static follower m2."""
    desk.settle_classic("m1", **fields)
    newcomer = desk.join(new="m2", instance_id="i2")
    return desk.sync_all({"m1": desk.join("m1", **fields), "m2": newcomer})


def test_a_restarted_instance_gets_its_assignment_back_without_a_rebalance() -> None:
    desk = Desk()
    generation = _settle(desk)
    back = desk.join(new="m2b", instance_id="i2")
    assert (back.result.member_id, back.result.generation) == ("m2b", generation)
    assert desk.sync("m2b", generation, instance_id="i2").result.assignment == b"m2"
    assert desk.heartbeat("m1", generation).error is None


def test_the_former_self_of_an_instance_is_fenced() -> None:
    desk = Desk()
    generation = _settle(desk)
    desk.join(new="m2b", instance_id="i2")
    assert desk.heartbeat("m2", generation, instance_id="i2").error is FencedInstance
    assert desk.sync("m2", generation, instance_id="i2").error is FencedInstance
    assert desk.join("m2", instance_id="i2").error is FencedInstance
    assert desk.commit(5, "m2", generation, instance_id="i2").error is FencedInstance
    assert desk.heartbeat("m2", generation).error is UnknownMember


def test_a_waiting_former_self_is_fenced_at_once() -> None:
    desk = Desk()
    _settle(desk)
    other = (("range", encode_subscription(["b"])),)
    waiting = desk.join("m2", instance_id="i2", protocols=other)
    assert waiting.is_waiting
    desk.join(new="m2b", instance_id="i2")
    assert waiting.error is FencedInstance


def test_a_restarted_instance_with_another_subscription_starts_a_rebalance() -> None:
    desk = Desk()
    generation = _settle(desk)
    back = desk.join(
        new="m2b", instance_id="i2", protocols=(("range", encode_subscription(["a", "b"])),)
    )
    assert back.is_waiting
    assert desk.heartbeat("m1", generation).error is RebalanceInProgress


def test_an_instance_replaced_during_sync_starts_again() -> None:
    desk = Desk()
    _settle(desk)
    first = desk.join("m1")
    desk.join("m2", instance_id="i2")
    assert desk.state is GroupState.COMPLETING_REBALANCE
    back = desk.join(new="m2b", instance_id="i2")
    assert back.is_waiting
    again = desk.join("m1")
    assert again.result.generation == first.result.generation + 1
    assert [each.member_id for each in again.result.members] == ["m1", "m2b"]


def _settle_static_leader(desk: Desk) -> int:
    return desk.sync_all({"m1": desk.join(new="m1", instance_id="i1")})


def test_a_restarted_leader_is_told_not_to_assign() -> None:
    desk = Desk()
    _settle_static_leader(desk)
    back = desk.join(new="m1b", instance_id="i1", can_skip_assignment=True).result
    assert (back.leader_id, back.is_assignment_skipped) == ("m1b", True)
    assert [each.member_id for each in back.members] == ["m1b"]


def test_a_restarted_leader_too_old_for_that_sees_its_former_self_lead() -> None:
    desk = Desk()
    _settle_static_leader(desk)
    back = desk.join(new="m1b", instance_id="i1").result
    assert (back.leader_id, back.is_assignment_skipped) == ("m1", False)
    assert back.members == ()


def test_a_restart_survives_a_reload() -> None:
    desk = Desk()
    generation = _settle(desk)
    desk.join(new="m2b", instance_id="i2")
    desk.restart()
    assert desk.heartbeat("m2b", generation, instance_id="i2").error is None
    assert desk.heartbeat("m2", generation, instance_id="i2").error is FencedInstance


def test_a_silent_instance_stays_through_a_rebalance_until_its_session_ends() -> None:
    desk = Desk()
    generation = _settle(desk, rebalance_ms=4_000)
    desk.leave("m1")
    newcomer = desk.join(new="m3", rebalance_ms=4_000)
    desk.wait(8_000)
    assert newcomer.is_waiting  # The static member announced a rebalance time-out of its own.
    desk.wait(2_000)
    assert [each.member_id for each in newcomer.result.members] == ["m3"]
    assert desk.heartbeat("m2", generation, instance_id="i2").error is UnknownMember


def test_an_instance_can_be_removed_by_its_instance_id_alone() -> None:
    desk = Desk()
    generation = _settle(desk)
    left: Answer = desk.leave("", instance_id="i2")
    assert left.result.members[0].error is None
    assert desk.heartbeat("m1", generation).error is RebalanceInProgress


def test_leaving_under_a_replaced_member_id_is_fenced() -> None:
    desk = Desk()
    _settle(desk)
    left = desk.leave("m1", instance_id="i2").result.members
    assert isinstance(left[0].error, FencedInstance)
    assert isinstance(desk.leave("", instance_id="i9").result.members[0].error, UnknownMember)
