"""Committed offsets: whose count, how long they live, what deletes them."""

from __future__ import annotations

from goqueue.config import GroupSettings
from goqueue.groups import GroupState, GroupType, OffsetErrors
from goqueue.model.errors import (
    CoordinatorLoading,
    GroupNotEmpty,
    GroupSubscribedToTopic,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownGroup,
    UnknownMember,
)
from tests.unit.groups.desk import GROUP, PROTOCOLS, Desk

WEEK_MS = 7 * 24 * 3_600_000
CHECK_MS = 600_000


def test_anybody_may_commit_to_a_group_without_members() -> None:
    desk = Desk()
    assert desk.commit(42).result == OffsetErrors()
    assert desk.committed() == 42
    summary = desk.coordinator.list_groups()[0]
    assert (summary.state, summary.type, summary.protocol_type) == (
        GroupState.EMPTY,
        GroupType.CLASSIC,
        "",
    )


def test_only_members_may_commit_to_a_group_that_has_some() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    assert desk.commit(1).error is UnknownMember
    assert desk.commit(1, "m2", generation).error is UnknownMember
    assert desk.commit(1, "m1", generation - 1).error is IllegalGeneration
    assert desk.commit(1, "m1", generation).error is None
    assert desk.committed() == 1


def test_a_commit_of_a_generation_to_an_unknown_group_is_refused() -> None:
    desk = Desk()
    assert desk.commit(1, "m1", 3).error is IllegalGeneration
    assert desk.coordinator.list_groups() == []


def test_members_may_still_commit_while_others_join() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    desk.join(new="m2")
    assert desk.commit(7, "m1", generation).error is None
    again = desk.join("m1").result
    assert desk.commit(8, "m1", again.generation).error is RebalanceInProgress


def test_a_commit_keeps_a_session_alive() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    for offset in range(5):
        desk.wait(9_000)
        desk.commit(offset, "m1", generation)
    assert desk.heartbeat("m1", generation).error is None


def test_consumer_members_commit_under_their_epoch() -> None:
    desk = Desk()
    epoch = desk.consumer("m1", 0).result.member_epoch
    assert desk.commit(1, "m1", epoch - 1).error is StaleMemberEpoch
    assert desk.commit(1, "m1", epoch + 1).error is StaleMemberEpoch
    assert desk.commit(1).error is UnknownMember
    assert desk.commit(1, "m1", epoch).error is None


def test_a_stale_member_is_told_when_it_fetches() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    for member_id, epoch, error in (("m1", 0, StaleMemberEpoch), ("m2", 1, UnknownMember)):
        try:
            desk.coordinator.offsets.fetch(GROUP, member_id=member_id, member_epoch=epoch)
        except error:
            continue
        raise AssertionError(f"{member_id} at {epoch} was not refused")
    assert desk.coordinator.offsets.fetch(GROUP, member_id="m1", member_epoch=1) == {}


def test_fetching_selects_partitions_and_leaves_out_the_unknown() -> None:
    desk = Desk()
    desk.commit(1, partition=0)
    desk.commit(2, partition=1, topic="b", metadata="note")
    fetched = desk.coordinator.offsets.fetch(GROUP, {"b": [0, 1], "c": [0]})
    assert fetched["b"].keys() == {1}
    assert fetched["b"][1].metadata == "note"
    assert fetched["c"] == {}
    assert desk.coordinator.offsets.fetch("no such group", {"a": [0]}) == {}


def test_an_offset_is_visible_only_when_it_is_durable() -> None:
    desk = Desk()
    desk.is_disk_slow = True
    answer = desk.commit(5)
    assert answer.is_waiting
    assert desk.committed() is None
    desk.finish_writes()
    assert answer.result == OffsetErrors()
    assert desk.committed() == 5


def test_a_commit_that_could_not_be_written_never_happened() -> None:
    desk = Desk()
    desk.commit(5)
    desk.is_disk_slow = True
    answer = desk.commit(6)
    desk.fail_write()
    assert answer.error is not None
    assert answer.error.retryable
    assert desk.committed() == 5
    assert desk.commit(7).is_waiting, "the group goes on at once"


def test_large_metadata_is_refused_for_its_partition_alone() -> None:
    desk = Desk()
    refused = desk.commit(1, metadata="ä" * 2_049).result
    assert isinstance(refused.errors["a", 0], OffsetMetadataTooLarge)
    assert desk.commit(1, metadata="ä" * 2_048).result.errors == {}


def test_offsets_of_a_deleted_topic_are_dropped() -> None:
    desk = Desk()
    desk.commit(1)
    desk.is_disk_slow = True
    desk.commit(2, partition=1)
    desk.set_topics(b=1)
    desk.finish_writes()
    assert desk.coordinator.list_groups() == []
    desk.restart()
    assert desk.coordinator.list_groups() == []


def test_offsets_of_topics_never_seen_are_kept() -> None:
    desk = Desk()
    desk.commit(1, topic="elsewhere")
    desk.set_topics(a=5)
    assert desk.committed("elsewhere") == 1


def test_offsets_expire_a_while_after_the_group_became_empty() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    desk.commit(1, "m1", generation)
    for _ in range(2 * WEEK_MS // 1_000_000):
        desk.now_ms += 999_000
        desk.heartbeat("m1", generation)
        desk.wait(1_000)
    assert desk.committed() == 1, "its topic is being read"
    desk.leave("m1")
    desk.wait(WEEK_MS - CHECK_MS)
    assert desk.committed() == 1
    desk.wait(2 * CHECK_MS)
    assert desk.coordinator.list_groups() == []
    desk.restart()
    assert desk.coordinator.list_groups() == []


def test_offsets_of_topics_no_longer_read_expire_in_a_living_group() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=20_000))
    desk.commit(1, topic="b")
    desk.commit(1, topic="a")
    generation = desk.settle_classic("m1", session_ms=1_800_000)
    desk.wait(CHECK_MS)
    assert (desk.committed("a"), desk.committed("b")) == (1, None)
    assert desk.heartbeat("m1", generation).error is None


def test_simple_offsets_expire_by_their_age_or_by_the_lifetime_asked_for() -> None:
    desk = Desk()
    desk.commit(1, partition=0)
    desk.commit(1, partition=1, retention_ms=3_600_000)
    desk.wait(3_600_000 + CHECK_MS)
    assert (desk.committed(partition=0), desk.committed(partition=1)) == (1, None)
    desk.wait(WEEK_MS)
    assert desk.committed() is None


def test_an_empty_group_without_offsets_is_forgotten() -> None:
    desk = Desk()
    desk.settle_classic("m1")
    desk.leave("m1")
    desk.wait(CHECK_MS)
    assert desk.coordinator.list_groups() == []


def test_offsets_can_be_deleted_unless_their_topic_is_read() -> None:
    desk = Desk()
    desk.commit(1, topic="b")
    desk.commit(1, topic="a")
    desk.settle_classic("m1")
    errors = desk.ask("offsets.delete", GROUP, {"a": [0], "b": [0, 9]}).result.errors
    assert [type(error) for error in errors.values()] == [GroupSubscribedToTopic]
    assert (desk.committed("a"), desk.committed("b")) == (1, None)
    assert desk.ask("offsets.delete", "other", {"a": [0]}).error is UnknownGroup


def test_offsets_of_a_living_group_of_another_kind_are_its_own_affair() -> None:
    desk = Desk()
    desk.join(new="w1", protocol_type="connect", protocols=(("x", b""),))
    assert desk.ask("offsets.delete", GROUP, {"a": [0]}).error is GroupNotEmpty


def test_an_empty_group_can_be_deleted_with_its_offsets() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    desk.commit(1, "m1", generation)
    assert desk.ask("delete_group", GROUP).error is GroupNotEmpty
    desk.leave("m1")
    assert desk.ask("delete_group", GROUP).error is None
    assert desk.ask("delete_group", GROUP).error is UnknownGroup
    desk.restart()
    assert desk.coordinator.list_groups() == []


def test_deleting_a_group_takes_commits_on_their_way_with_it() -> None:
    desk = Desk()
    desk.is_disk_slow = True
    desk.commit(1)
    desk.ask("delete_group", GROUP)
    desk.finish_writes()
    assert desk.coordinator.list_groups() == []


def test_lists_can_be_narrowed_by_state_and_type() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    listed = desk.coordinator.list_groups
    assert len(listed(states=[GroupState.STABLE], types=[GroupType.CONSUMER])) == 1
    assert listed(states=[GroupState.EMPTY]) == []
    assert listed(types=[GroupType.CLASSIC]) == []


def test_a_coordinator_that_loads_refuses_everything() -> None:
    from goqueue.groups import Coordinator

    desk = Desk()
    desk.coordinator = Coordinator(desk.settings)
    assert desk.commit(1).error is CoordinatorLoading
    desk.coordinator.loaded(desk.now_ms)
    assert desk.join(protocols=PROTOCOLS).error is CoordinatorLoading, "topics are unknown"
    desk.set_topics(a=1)
    assert desk.commit(1).error is None
