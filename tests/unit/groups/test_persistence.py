"""What survives a crash, what waits for the disk, and what happens when it refuses."""

from __future__ import annotations

from goqueue.groups import GroupState, Reason
from goqueue.groups.records import encode_group_key, encode_member_key
from goqueue.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    IllegalGeneration,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)
from tests.unit.groups.desk import GROUP, Desk, public_state


def test_a_classic_group_survives_a_restart() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1", "m2")
    desk.commit(9, "m1", generation)
    before = public_state(desk.coordinator)
    desk.restart()
    assert public_state(desk.coordinator) == before
    assert desk.heartbeat("m2", generation).error is None
    assert desk.sync("m2", generation).result.assignment == b"m2"


def test_a_consumer_group_survives_a_restart_in_the_middle_of_a_rebalance() -> None:
    desk = Desk()
    desk.consumer("m1", 0, instance_id="i1", rack_id="r1", client_id="app")
    desk.consumer("m2", 0, subscribed_topics=None, subscribed_regex="a.*")
    told = desk.consumer("m1", 1).result
    before = public_state(desk.coordinator)
    desk.restart()
    assert public_state(desk.coordinator) == before
    assert desk.state is GroupState.RECONCILING
    assert desk.consumer("m2", 2).result.assignment is None
    assert desk.consumer("m1", 1, owned=told.assignment).result.member_epoch == 2
    assert len(desk.consumer("m2", 2).result.assignment) == 2


def test_members_get_a_fresh_session_after_a_restart() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    desk.wait(9_000)
    desk.restart()
    desk.wait(9_000)
    assert desk.heartbeat("m1", generation).error is None
    desk.restart()
    desk.wait(10_000)
    assert desk.heartbeat("m1", generation).error is UnknownMember


def test_a_revocation_deadline_runs_again_after_a_restart() -> None:
    desk = Desk()
    desk.consumer("m1", 0, rebalance_timeout_ms=7_000)
    desk.consumer("m2", 0)
    desk.consumer("m1", 1)
    desk.restart()
    desk.wait(7_000)
    assert desk.consumer("m1", 1, owned=()).error is UnknownMember


def test_topics_that_changed_while_nobody_looked_are_noticed_on_loading() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    desk.topics = {"a": 6}
    desk.restart()
    assert len(desk.consumer("m1", 1).result.assignment) == 6


def test_nobody_hears_of_a_membership_that_is_not_durable() -> None:
    desk = Desk()
    desk.is_disk_slow = True
    joined = desk.consumer("m1", 0)
    assert joined.is_waiting
    beat = desk.consumer("m1", 1)
    assert beat.is_waiting, "it would reveal the epoch"
    desk.finish_writes()
    assert joined.result.member_epoch == beat.result.member_epoch == 1


def test_a_classic_assignment_is_told_only_when_it_is_durable() -> None:
    desk = Desk()
    desk.join(new="m1")
    desk.is_disk_slow = True
    synced = desk.sync("m1", 1, assignments={"m1": b"x"})
    assert synced.is_waiting
    desk.finish_writes()
    assert synced.result.assignment == b"x"


def test_changes_during_a_write_are_merged_into_the_next() -> None:
    desk = Desk()
    desk.is_disk_slow = True
    answers = [desk.consumer(f"m{n}", 0) for n in range(5)]
    assert len(desk.unwritten) == 1
    desk.finish_writes()
    assert [each.result.member_epoch for each in answers] == [1, 2, 3, 4, 5]
    keys = [key for key, _ in desk.log]
    assert keys.count(encode_group_key(GROUP)) == 2, "one record for the first, one for the rest"


def test_a_membership_that_could_not_be_written_is_taken_back() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1")
    waiting = desk.join("m1", protocols=(("range", b"other"),))
    desk.is_disk_slow = True
    synced = desk.sync("m1", waiting.result.generation, assignments={"m1": b"y"})
    behind = desk.heartbeat("m1", waiting.result.generation)
    desk.fail_write()
    assert synced.error is behind.error is CoordinatorNotAvailable
    assert desk.heartbeat("m1", generation).error is CoordinatorLoading, "the group rests"
    desk.wait(1_000)
    assert desk.heartbeat("m1", generation + 1).error is IllegalGeneration
    assert desk.heartbeat("m1", generation).error is None


def test_a_failed_write_answers_those_who_wait_to_join() -> None:
    desk = Desk()
    desk.settle_classic("m1")
    desk.is_disk_slow = True
    desk.leave("m1")
    waiting = desk.join(new="m2")
    assert waiting.is_waiting
    desk.fail_write()
    assert waiting.error is not None
    assert waiting.error.retryable


def test_offsets_can_be_read_while_a_group_rests() -> None:
    desk = Desk()
    desk.commit(3)
    desk.is_disk_slow = True
    desk.consumer("m1", 0)
    desk.fail_write()
    assert desk.committed() == 3


def test_a_failed_join_leaves_the_other_members_as_they_were() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    desk.is_disk_slow = True
    desk.consumer("m2", 0)
    desk.fail_write()
    assert desk.unwritten == []
    desk.wait(1_000)
    assert desk.consumer("m1", 1).result.member_epoch == 1
    assert desk.consumer("m2", 2).error is UnknownMember


def test_deleting_a_group_that_could_not_be_written_leaves_it_alive() -> None:
    desk = Desk()
    desk.settle_classic("m1")
    desk.leave("m1")
    desk.commit(4)
    desk.is_disk_slow = True
    desk.ask("delete_group", GROUP)
    desk.fail_write()
    desk.wait(1_000)
    assert desk.committed() == 4
    assert desk.state is GroupState.EMPTY


def test_records_of_members_that_left_are_deleted() -> None:
    desk = Desk()
    desk.settle_classic("m1", "m2")
    desk.leave("m1", "m2")
    last = dict(desk.log)
    assert last[encode_member_key(GROUP, "m1")] is None
    assert last[encode_member_key(GROUP, "m2")] is None
    assert last[encode_group_key(GROUP)] is not None


def test_a_coordinator_that_resigns_answers_everybody() -> None:
    desk = Desk()
    desk.settle_classic("m1")
    waiting = desk.join(new="m2")
    desk.is_disk_slow = True
    commit = desk.commit(1, "m1", 1)
    desk._perform(desk.coordinator.resign(NotCoordinator("Ask another node.")))
    assert waiting.error is commit.error is NotCoordinator
    assert desk.heartbeat("m1", 1).error is CoordinatorLoading
    assert desk.coordinator.persisted(1, desk.now_ms) == []


def test_records_of_other_versions_are_passed_over() -> None:
    desk = Desk()
    desk.log += [
        (b"\x00\x02\x00\x01g", b"a group of another implementation"),
        (b"\x03\xe9", None),
        (b"", b""),
        (encode_member_key("later", "m1"), b"\x01garbage"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00"),
    ]
    desk.restart()
    assert desk.join(new="m1").error is None


def test_rebalances_are_counted_timed_and_remembered() -> None:
    desk = Desk()
    desk.consumer("m1", 0)
    desk.wait(1_000)
    desk.consumer("m2", 0)
    told = desk.consumer("m1", 1).result
    desk.wait(300)
    desk.consumer("m1", 1, owned=told.assignment)
    desk.consumer("m2", 2)
    log = desk.coordinator.rebalances(GROUP)
    assert log.count == 2
    assert log.reasons == {Reason.MEMBER_JOINED: 2}
    assert (log.duration_ms_last, log.duration_ms_max, log.duration_ms_total) == (300, 300, 300)
    assert log.partitions_moved == 4 + 2
    assert [each.partitions_moved for each in log.history] == [4, 2]


def test_the_history_of_rebalances_is_bounded() -> None:
    desk = Desk()
    desk.settle_classic("m1")
    for _ in range(30):
        desk.sync_all({"m1": desk.join("m1")})
    log = desk.coordinator.rebalances(GROUP)
    assert (log.count, len(log.history)) == (31, 20)
    assert log.reasons[Reason.LEADER_REJOINED] == 30


def test_a_rebalance_under_way_counts_further_reasons() -> None:
    desk = Desk()
    generation = desk.settle_classic("m1", "m2")
    desk.join(new="m3")
    desk.leave("m2")
    assert desk.heartbeat("m1", generation).error is RebalanceInProgress
    log = desk.coordinator.rebalances(GROUP)
    assert log.is_under_way
    assert log.reasons[Reason.MEMBER_LEFT] == 1
