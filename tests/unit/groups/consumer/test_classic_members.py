"""Classic members and members of the consumer protocol in one group."""

from __future__ import annotations

from goqueue.groups import GroupState, GroupType, Partitions
from goqueue.groups.assignment.partitions import NO_PARTITIONS
from goqueue.groups.classic.embedded_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from goqueue.model.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from tests.unit.groups.desk import GROUP, Desk, partitions

ALL = frozenset(partitions("a", 0, 1, 2, 3))


def _protocols(owned: Partitions = NO_PARTITIONS) -> tuple[tuple[str, bytes], ...]:
    return (("cooperative-sticky", encode_subscription(["a"], owned=owned)),)


def _classic_group(desk: Desk) -> None:
    """A classic group of m1 alone, which owns everything, at generation 1."""
    desk.join(new="m1", protocols=_protocols())
    desk.sync("m1", 1, assignments={"m1": encode_assignment(ALL)})


def _share(desk: Desk, member_id: str, generation: int) -> Partitions:
    return decode_assignment(desk.sync(member_id, generation).result.assignment)


def test_a_consumer_member_upgrades_a_classic_group() -> None:
    desk = Desk()
    _classic_group(desk)
    joined = desk.consumer("m2", 0).result
    assert joined.assignment == frozenset(), "m1 still owns everything"
    described = desk.coordinator.describe_group(GROUP)
    assert described.type is GroupType.CONSUMER
    assert [each.is_classic for each in described.members] == [True, False]


def test_a_cooperative_classic_member_revokes_and_keeps_the_rest() -> None:
    desk = Desk()
    _classic_group(desk)
    epoch = desk.consumer("m2", 0).result.member_epoch
    assert desk.heartbeat("m1", 1).error is RebalanceInProgress

    first = desk.join("m1", protocols=_protocols(ALL)).result
    assert (first.generation, first.leader_id) == (1, ""), "the server leads"
    kept = _share(desk, "m1", 1)
    assert len(kept) == 2
    assert desk.consumer("m2", epoch).result.assignment is None

    assert desk.heartbeat("m1", 1).error is RebalanceInProgress, "it shall confirm"
    second = desk.join("m1", protocols=_protocols(kept)).result
    assert second.generation == epoch
    assert _share(desk, "m1", epoch) == kept
    assert desk.consumer("m2", epoch).result.assignment == ALL - kept
    assert desk.heartbeat("m1", epoch).error is None
    assert desk.state is GroupState.STABLE


def test_an_eager_classic_member_gives_up_all_and_comes_back_for_its_share() -> None:
    desk = Desk()
    _classic_group(desk)
    epoch = desk.consumer("m2", 0).result.member_epoch
    joined = desk.join("m1", protocols=_protocols()).result
    assert joined.generation == epoch
    kept = _share(desk, "m1", epoch)
    assert desk.consumer("m2", epoch).result.assignment == ALL - kept


def test_a_classic_member_joins_a_consumer_group() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    assert desk.join(new="m2", is_member_id_required=True).error is MemberIdRequired
    joined = desk.join("m2", protocols=_protocols()).result
    assert _share(desk, "m2", joined.generation) == frozenset()
    assert desk.heartbeat("m2", joined.generation).error is None, "nothing is free yet"

    told = desk.consumer("m1", 1).result
    desk.consumer("m1", 1, owned=told.assignment)
    assert desk.heartbeat("m2", joined.generation).error is RebalanceInProgress
    again = desk.join("m2", protocols=_protocols()).result
    assert _share(desk, "m2", again.generation) == ALL - told.assignment


def test_the_group_is_classic_again_when_its_last_consumer_member_leaves() -> None:
    desk = Desk()
    _classic_group(desk)
    epoch = desk.consumer("m2", 0).result.member_epoch
    desk.join("m1", protocols=_protocols())
    kept = _share(desk, "m1", epoch)
    desk.consumer("m2", -1)
    assert desk.coordinator.describe_group(GROUP).type is GroupType.CLASSIC
    assert desk.heartbeat("m1", epoch).error is RebalanceInProgress
    again = desk.join("m1", protocols=_protocols(kept)).result
    assert again.generation > epoch
    assert again.leader_id == "m1", "m1 assigns for itself again"


def test_a_downgrade_survives_a_reload() -> None:
    desk = Desk()
    _classic_group(desk)
    epoch = desk.consumer("m2", 0).result.member_epoch
    desk.join("m1", protocols=_protocols())
    _share(desk, "m1", epoch)
    desk.consumer("m2", -1)
    desk.restart()
    assert desk.heartbeat("m1", epoch).error is RebalanceInProgress
    assert desk.join("m1", protocols=_protocols()).result.leader_id == "m1"


def test_an_upgrade_sends_waiting_classic_members_back_to_join() -> None:
    desk = Desk()
    _classic_group(desk)
    waiting = desk.join(new="m3", protocols=_protocols())
    desk.consumer("m2", 0)
    assert waiting.error is RebalanceInProgress
    assert desk.join("m3", protocols=_protocols()).error is None


def test_an_upgrade_waits_for_revocations_that_the_classic_group_asked_for() -> None:
    desk = Desk()
    _classic_group(desk)
    newcomer = desk.join(new="m2", protocols=_protocols())
    desk.join("m1", protocols=_protocols(ALL))
    kept = frozenset(partitions("a", 0, 1))
    shares = {"m1": encode_assignment(kept), "m2": encode_assignment(NO_PARTITIONS)}
    desk.sync("m2", newcomer.result.generation)
    desk.sync("m1", newcomer.result.generation, assignments=shares)

    epoch = desk.consumer("m3", 0).result.member_epoch
    assert desk.consumer("m3", epoch).result.assignment is None, "m1 may still use the others"
    assert desk.heartbeat("m1", newcomer.result.generation).error is RebalanceInProgress
    desk.join("m1", protocols=_protocols(kept))
    assert desk.consumer("m3", epoch).result.assignment


def test_a_group_of_another_kind_cannot_be_upgraded() -> None:
    desk = Desk()
    desk.join(new="w1", protocol_type="connect", protocols=(("x", b""),))
    assert desk.consumer("m2", 0).error is InconsistentProtocol
    assert desk.consumer("m2", 7).error is UnknownMember
    assert desk.coordinator.describe_group(GROUP).type is GroupType.CLASSIC


def test_unreadable_subscriptions_keep_a_group_classic() -> None:
    desk = Desk()
    desk.settle_classic("m1", protocols=(("mine", b"\x00"),))
    assert desk.consumer("m2", 0).error is InconsistentProtocol
    assert desk.heartbeat("m1", 1).error is None


def test_classic_members_of_a_consumer_group_need_a_common_protocol() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    desk.join("m2", protocols=_protocols())
    other = (("mine", encode_subscription(["a"])),)
    assert desk.join("m3", protocols=other).error is InconsistentProtocol
    assert desk.join("m3", protocol_type="connect").error is InconsistentProtocol


def test_a_classic_member_that_does_not_rejoin_or_sync_is_evicted() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    joined = desk.join("m2", protocols=_protocols(), rebalance_ms=8_000).result
    desk.wait(7_000)
    assert desk.heartbeat("m2", joined.generation).error is None
    desk.wait(1_000)
    assert desk.heartbeat("m2", joined.generation).error is UnknownMember


def test_a_classic_member_expires_by_its_own_session() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    joined = desk.join("m2", protocols=_protocols(), session_ms=6_000).result
    _share(desk, "m2", joined.generation)
    desk.wait(6_000)
    assert desk.heartbeat("m2", joined.generation).error is UnknownMember


def test_classic_generations_are_checked_in_a_consumer_group() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    joined = desk.join("m2", protocols=_protocols()).result
    assert desk.heartbeat("m2", joined.generation + 1).error is IllegalGeneration
    assert desk.commit(1, "m2", joined.generation - 1).error is IllegalGeneration
    assert desk.commit(1, "m2", joined.generation).error is None


def test_a_consumer_member_cannot_speak_as_a_classic_one() -> None:
    desk = Desk()
    epoch = desk.consumer("m1", 0).result.member_epoch
    assert desk.heartbeat("m1", epoch).error is UnknownMember
    assert desk.sync("m1", epoch).error is UnknownMember


def test_an_evicted_member_is_told_before_it_may_join_again() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    assert desk.join("m2", protocols=_protocols(ALL)).error is UnknownMember
    assert desk.join("m2", protocols=_protocols()).error is None


def test_a_sync_in_a_consumer_group_must_name_its_protocol() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    generation = desk.join("m2", protocols=_protocols()).result.generation
    assert desk.sync("m2", generation, protocol_name="range").error is InconsistentProtocol
    assert desk.sync("m2", generation, protocol_name="cooperative-sticky").error is None


def test_classic_members_leave_a_consumer_group() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    desk.join("m2", protocols=_protocols())
    left = desk.leave("m2", "m9").result.members
    assert [type(each.error) for each in left] == [type(None), UnknownMember]
    assert len(desk.coordinator.describe_group(GROUP).members) == 1


def test_an_instance_may_restart_with_the_other_protocol() -> None:
    desk = Desk()
    desk.consumer("m0", 0, subscribed_topics=("b",))
    desk.join(new="m1", instance_id="i1", protocols=_protocols())
    as_consumer = desk.consumer("m1b", 0, instance_id="i1").result
    assert as_consumer.assignment == ALL
    as_classic = desk.join(new="m1c", instance_id="i1", protocols=_protocols()).result
    assert as_classic.member_id == "m1c"
    epoch = as_consumer.member_epoch
    assert desk.consumer("m1b", epoch, instance_id="i1").error is FencedInstance
