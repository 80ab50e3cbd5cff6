"""Groups on a node: loaded after a crash, woken in time, answered when their writes fail."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.groups import CommitOffsets, GroupState, Heartbeat, Join, OffsetToCommit, Sync
from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.loop.promise import start
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    GroupKindMismatch,
    InvalidGroupId,
    UnknownGroup,
    UnknownMember,
)
from goqueue.model.names import OFFSETS_TOPIC
from tests.unit.broker.node import Node

GROUPS = [f"group-{number}" for number in range(12)]


@pytest.fixture
def node() -> Node:
    node = Node(groups__offsets_partitions="3", groups__initial_rebalance_delay_ms="0")
    node.create("orders", 2)
    return node


def join(group: str = "shop", *, session_ms: int = 10_000) -> Join:
    return Join(
        group_id=group,
        member_id="",
        new_member_id="member",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", encode_subscription(["orders"])),),
    )


def settle(node: Node) -> int:
    """Let one member form a group; its generation."""
    joined = node.wait(node.broker.groups.join(join()))
    call = Sync(
        group_id="shop",
        member_id="member",
        generation=joined.generation,
        assignments={"member": b"all"},
    )
    node.wait(node.broker.groups.sync(call))
    return joined.generation


def test_before_the_first_group_there_is_no_topic_and_the_first_call_makes_it(node: Node) -> None:
    assert node.committed("shop") is None
    assert node.broker.groups.all() == []
    with pytest.raises(UnknownGroup):
        node.broker.groups.describe("shop")
    assert node.broker.topics.find(OFFSETS_TOPIC) is None
    assert node.commit("shop", 1) is None
    assert node.broker.topics.find(OFFSETS_TOPIC) is not None
    assert node.committed("shop") == 1


def test_a_queue_group_does_not_take_a_name_while_the_stream_groups_are_being_loaded(
    node: Node,
) -> None:
    node.commit("shop", 1)
    groups = node.broker.groups
    partition = node.broker.topics.get(OFFSETS_TOPIC).partition(groups.partition_of("shop"))
    groups.shards.resign(partition)
    with pytest.raises(CoordinatorNotAvailable, match="being loaded; retry"):
        node.broker.queues.groups.create("shop")
    groups.shards.lead(partition)
    with pytest.raises(GroupKindMismatch):
        node.broker.queues.groups.create("shop")


def test_the_first_group_makes_the_topic_and_later_ones_find_it(node: Node) -> None:
    node.host_groups()
    topic = node.broker.topics.get(OFFSETS_TOPIC)
    assert (len(topic.partitions), topic.is_internal) == (3, True)
    assert topic.settings.log.is_compacting
    node.host_groups()
    assert node.broker.topics.get(OFFSETS_TOPIC) is topic


def test_two_who_come_first_at_once_make_one_topic(node: Node) -> None:
    outcomes: list[Any] = []
    for _ in range(2):
        start(node.broker.groups.ensure_topic(), lambda topic, _: outcomes.append(topic))
    node.run_until(lambda: len(outcomes) == 2)
    assert outcomes[0] is outcomes[1]
    assert node.commit("shop", 1) is None


def test_groups_are_spread_over_the_partitions_and_always_found_again(node: Node) -> None:
    node.host_groups()
    before = {group: node.broker.groups.partition_of(group) for group in GROUPS}
    assert set(before.values()) == {0, 1, 2}
    node.restart_after_crash()
    assert {group: node.broker.groups.partition_of(group) for group in GROUPS} == before


def test_a_changed_setting_does_not_move_groups_that_exist(node: Node) -> None:
    node.host_groups()
    node.commit("shop", 5)
    before = node.broker.groups.partition_of("shop")
    other = Node(groups__offsets_partitions="50")
    node.settings = other.settings
    node.restart_after_crash()
    assert node.broker.groups.partition_of("shop") == before
    assert node.committed("shop") == 5


@pytest.mark.parametrize("is_clean", [False, True])
def test_groups_and_offsets_are_loaded_at_the_next_start(node: Node, is_clean: bool) -> None:
    node.host_groups()
    for number, group in enumerate(GROUPS):
        assert node.commit(group, number) is None
    if is_clean:
        node.stop()
        node.start()
    else:
        node.restart_after_crash()
    assert [node.committed(group) for group in GROUPS] == list(range(len(GROUPS)))
    assert sorted(one.group_id for one in node.broker.groups.all()) == sorted(GROUPS)


def test_damage_in_the_topic_costs_the_damaged_batch_and_not_the_start(node: Node) -> None:
    node.host_groups()
    for number in range(20):
        node.commit("shop", number)
    node.commit("cafe", 3)
    number = node.broker.groups.partition_of("shop")
    node.restart_after_crash()
    node.stop()
    node.disk.flip_bit(f"logs/{OFFSETS_TOPIC}/{number}/00000000000000000000.log", 8 * 100)
    node.start()
    assert node.committed("shop") == 19
    assert node.committed("cafe") == 3


# Failing writes


def test_a_write_that_finds_no_room_is_answered_with_an_error_to_retry(node: Node) -> None:
    node.host_groups()
    node.commit("shop", 1)
    node.disk.fill_after(20)
    error = node.commit("shop", 2)
    assert isinstance(error, CoordinatorNotAvailable)
    assert error.retryable
    assert node.committed("shop") == 1, "what was not stored does not count"
    node.disk.make_room()
    assert node.commit("shop", 3) is None
    assert node.committed("shop") == 3
    node.restart_after_crash()
    assert node.committed("shop") == 3


def test_a_write_that_cannot_be_synced_is_answered_with_an_error_to_retry(node: Node) -> None:
    node.host_groups()
    node.commit("shop", 1)
    node.disk.fail_syncs(2)  # the commit journal, then the log itself
    error = node.commit("shop", 2)
    assert isinstance(error, CoordinatorNotAvailable)
    assert node.committed("shop") == 1


def test_answers_come_in_the_order_of_the_writes_though_one_fails(node: Node) -> None:
    node.host_groups()
    answers: list[tuple[int, GoQueueError | None]] = []

    def commit(offset: int) -> None:
        call = CommitOffsets(
            group_id="shop", offsets=[OffsetToCommit(topic="orders", partition=0, offset=offset)]
        )
        promise = node.broker.groups.commit_offsets(call)
        promise.then(lambda _, error: answers.append((offset, error)))  # type: ignore[arg-type]

    commit(1)
    node.disk.fill_after(0)
    commit(2)
    assert answers == [], "the first is on its way, and the second waits for its turn"
    node.run_for(100)
    assert [offset for offset, _ in answers] == [1, 2]
    assert answers[0][1] is None
    assert isinstance(answers[1][1], CoordinatorNotAvailable)
    assert node.committed("shop") == 1


# Time


def test_a_member_that_falls_silent_is_missed_in_time(node: Node) -> None:
    node.host_groups()
    generation = settle(node)
    node.run_for(9_000)
    beat = Heartbeat(group_id="shop", member_id="member", generation=generation)
    node.broker.groups.heartbeat(beat)
    node.run_for(9_000)
    assert node.broker.groups.describe("shop").members
    node.run_for(2_000)
    assert node.broker.groups.describe("shop").state is GroupState.EMPTY


def test_the_alarm_is_set_again_for_an_earlier_deadline(node: Node) -> None:
    node.host_groups()
    node.wait(node.broker.groups.join(join("slow", session_ms=200_000)))
    node.wait(node.broker.groups.join(join("fast", session_ms=6_000)))
    node.run_for(7_000)
    assert node.broker.groups.describe("fast").state is GroupState.EMPTY
    assert node.broker.groups.describe("slow").state is not GroupState.EMPTY
    node.run_for(200_000)
    assert node.broker.groups.describe("slow").state is GroupState.EMPTY


def test_a_member_is_watched_again_after_a_crash(node: Node) -> None:
    node.host_groups()
    settle(node)
    node.restart_after_crash()
    assert node.broker.groups.describe("shop").state is GroupState.STABLE
    node.run_for(60_000)
    assert node.broker.groups.describe("shop").state is GroupState.EMPTY


# Topics


def test_offsets_of_a_deleted_topic_do_not_come_back_with_its_name(node: Node) -> None:
    node.host_groups()
    node.commit("shop", 5)
    node.wait(node.broker.topics.delete("orders"))
    node.run_for(100)
    node.create("orders")
    assert node.committed("shop") is None
    node.restart_after_crash()
    assert node.committed("shop") is None


# Questions that cannot be answered


def test_a_group_without_a_name_is_refused(node: Node) -> None:
    node.host_groups()
    with pytest.raises(InvalidGroupId):
        node.broker.groups.fetch_offsets("")
    with pytest.raises(InvalidGroupId):
        node.wait(node.broker.groups.join(join("")))


def test_an_unknown_group_or_member_is_named(node: Node) -> None:
    node.host_groups()
    with pytest.raises(UnknownGroup, match="'nobody'"):
        node.broker.groups.describe("nobody")
    beat = Heartbeat(group_id="nobody", member_id="member", generation=1)
    with pytest.raises(UnknownMember, match="'member'"):
        node.wait(node.broker.groups.heartbeat(beat))
