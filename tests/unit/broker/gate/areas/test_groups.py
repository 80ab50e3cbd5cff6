"""Groups behind the gate: what a session may not see or use is refused where it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goqueue.broker.gate.areas.group_offsets import CommitOffsets, OffsetToCommit
from goqueue.broker.gate.areas.groups import ListedGroup, QueueSettings
from goqueue.broker.gate.areas.members import JOIN_EPOCH, ConsumerHeartbeat
from goqueue.broker.gate.areas.polling import Poll
from goqueue.broker.gate.areas.records import EARLIEST
from goqueue.broker.gate.operation import OPERATIONS
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind
from goqueue.model.errors import (
    AccessDenied,
    GroupKindMismatch,
    GroupNotEmpty,
    InvalidGroupSettings,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
    UnstableOffsetCommit,
)
from goqueue.model.session import Session
from tests.unit.broker.node import Node

ALICE = Session("test", principal="User:alice")
GROUPS = {Resource(ResourceKind.GROUP, name) for name in ("readers", "workers")}


class Only:
    """A policy that allows everything with some resources, and nothing else."""

    def __init__(self, *topics: str, others: set[Resource] = GROUPS) -> None:
        self._allowed = {Resource(ResourceKind.TOPIC, one) for one in topics} | others

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return resource in self._allowed


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders")
    node.create("secrets")
    return node


def error_of(promise: Promise[Any]) -> Exception:
    errors: list[Exception | None] = []
    promise.then(lambda _, error: errors.append(error))
    [error] = errors
    assert error is not None
    return error


def commit(node: Node, group: str, *offsets: OffsetToCommit) -> dict[tuple[str, int], Any]:
    call = CommitOffsets(group_id=group, offsets=offsets)
    return node.wait(node.broker.gate.group_offsets.commit(ALICE, call=call)).errors


def offset(topic: str, partition: int = 0, offset: int = 0) -> OffsetToCommit:
    return OffsetToCommit(topic=topic, partition=partition, offset=offset)


def join(node: Node, group: str, *topics: str) -> tuple[str, int]:
    beat = ConsumerHeartbeat(
        group_id=group,
        member_id="",
        member_epoch=JOIN_EPOCH,
        rebalance_timeout_ms=10_000,
        subscribed_topics=topics,
        owned=frozenset(),
    )
    joined = node.wait(node.broker.gate.polling.join(ALICE, call=beat))
    return joined.member_id, joined.member_epoch


def test_groups_of_all_nodes_are_listed_once() -> None:
    merge = OPERATIONS["groups.list"].merge
    assert merge is not None
    queue = ListedGroup("q", "queue", "Stable")
    answers = [
        [ListedGroup("b", "stream", "Empty"), queue],
        [ListedGroup("a", "stream", "Empty"), queue],
    ]
    assert [one.name for one in merge({}, answers)] == ["a", "b", "q"]


def test_groups_that_one_may_not_describe_are_not_listed(node: Node) -> None:
    groups = node.broker.gate.groups
    for name in ("readers", "auditors"):
        commit(node, name, offset("orders"))
    node.wait(groups.put_queue(ALICE, group="workers", settings=None))
    listed = node.wait(groups.list(ALICE))
    assert [(one.name, one.kind, one.state) for one in listed] == [
        ("auditors", "stream", "Empty"),
        ("readers", "stream", "Empty"),
        ("workers", "queue", "Stable"),
    ]
    assert [one.name for one in node.wait(groups.list(ALICE, kind="stream", prefix="r"))] == [
        "readers"
    ]
    node.broker.gate.policy = Only()
    assert [one.name for one in node.wait(groups.list(ALICE))] == ["readers", "workers"]
    node.broker.gate.policy = Only(others={CLUSTER})
    assert len(node.wait(groups.list(ALICE))) == 3, "as in Kafka"


def test_a_commit_is_refused_for_the_topics_that_one_may_not_read(node: Node) -> None:
    node.broker.gate.policy = Only("orders")
    errors = commit(node, "readers", offset("orders"), offset("secrets"))
    assert {place: type(error) for place, error in errors.items()} == {("secrets", 0): AccessDenied}
    assert commit(node, "readers", offset("secrets")).keys() == {("secrets", 0)}
    assert isinstance(
        error_of(
            node.broker.gate.group_offsets.commit(ALICE, call=CommitOffsets(group_id="auditors"))
        ),
        AccessDenied,
    )


def test_partitions_that_do_not_exist_are_refused_one_by_one(node: Node) -> None:
    errors = commit(node, "readers", offset("orders"), offset("orders", 9), offset("nowhere"))
    assert {place: type(error) for place, error in errors.items()} == {
        ("orders", 9): UnknownPartition,
        ("nowhere", 0): UnknownTopic,
    }
    offsets = node.broker.gate.group_offsets
    deleted = offsets.delete(ALICE, group="readers", partitions={"orders": [0, -1], "nowhere": [0]})
    assert node.wait(deleted).errors.keys() == {("orders", -1), ("nowhere", 0)}


def test_offsets_of_topics_that_one_may_not_describe_are_not_fetched(node: Node) -> None:
    commit(node, "readers", offset("orders"), offset("secrets"))
    node.broker.gate.policy = Only("orders")
    offsets = node.broker.gate.group_offsets
    all_of_them = node.wait(offsets.fetch(ALICE, group="readers"))
    assert all_of_them.offsets.keys() == {"orders"}
    named = {"orders": [0], "secrets": [0]}
    fetched = node.wait(offsets.fetch(ALICE, group="readers", partitions=named))
    assert (fetched.offsets.keys(), fetched.refused.keys()) == ({"orders"}, {"secrets"})
    lag = node.wait(node.broker.gate.groups.lag(ALICE, group="readers"))
    assert {one.topic for one in lag.partitions} == {"orders"}
    deleted = offsets.delete(ALICE, group="readers", partitions=named)
    assert {place: type(one) for place, one in node.wait(deleted).errors.items()} == {
        ("secrets", 0): AccessDenied
    }


def test_a_group_must_exist_where_that_is_asked_for(node: Node) -> None:
    offsets = node.broker.gate.group_offsets
    assert node.wait(offsets.fetch(ALICE, group="readers")).offsets == {}
    absent = offsets.fetch(ALICE, group="readers", must_exist=True)
    assert isinstance(error_of(absent), UnknownGroup)


def test_a_group_with_members_is_neither_reset_nor_begun(node: Node) -> None:
    join(node, "readers", "orders")
    reset = node.broker.gate.group_offsets.reset(
        ALICE,
        group="readers",
        topic="orders",
        partitions=None,
        target=EARLIEST,
        is_dry_run=False,
    )
    assert isinstance(error_of(reset), GroupNotEmpty)
    begun = node.broker.gate.groups.put_stream(
        ALICE, group="readers", topics=["orders"], start="latest"
    )
    assert isinstance(error_of(begun), GroupNotEmpty)


def commit_pending(node: Node, group: str, *offsets: OffsetToCommit) -> Callable[..., None]:
    """Commit offsets in a transaction; the result ends it."""
    transactions = node.broker.transactions
    identity = node.wait(transactions.initialise("copier", timeout_ms=60_000))
    node.wait(transactions.add_group("copier", identity, group))
    call = CommitOffsets(group_id=group, offsets=offsets)
    node.wait(transactions.commit_offsets("copier", identity, call, joins_transaction=False))

    def end(*, is_commit: bool) -> None:
        node.wait(transactions.finish("copier", identity, is_commit=is_commit, bumps_epoch=False))

    return end


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_member_does_not_begin_where_a_transaction_may_commit_an_offset(
    node: Node, is_commit: bool
) -> None:
    node.produce("orders", ["a", "b", "c"])
    node.produce("secrets", ["x", "y"])
    commit(node, "readers", offset("orders", offset=1))
    end = commit_pending(node, "readers", offset("orders", offset=2))
    member_id, epoch = join(node, "readers", "orders", "secrets")

    def poll() -> list[bytes]:
        call = Poll(
            group_id="readers",
            member_id=member_id,
            member_epoch=epoch,
            records_max=10,
            bytes_max=1000,
        )
        polling = node.broker.gate.polling.poll(
            ALICE, call=call, wait_ms=2_000, cancellation=Cancellation()
        )
        return sorted(one.record.value or b"" for one in node.wait(polling).records)

    assert poll() == [b"x", b"y"]
    assert poll() == []
    end(is_commit=is_commit)
    assert poll() == ([b"c"] if is_commit else [b"b", b"c"])


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_group_does_not_begin_where_a_transaction_may_commit_an_offset(
    node: Node, is_commit: bool
) -> None:
    groups = node.broker.gate.groups
    end = commit_pending(node, "readers", offset("orders", offset=7))

    def begin(*topics: str) -> Promise[Any]:
        return groups.put_stream(ALICE, group="readers", topics=topics, start="earliest")

    assert isinstance(error_of(begin("secrets", "orders")), UnstableOffsetCommit)
    node.wait(begin("secrets"))
    end(is_commit=is_commit)
    node.wait(begin("secrets", "orders"))
    found = node.wait(node.broker.gate.group_offsets.fetch(ALICE, group="readers"))
    offsets = {name: places[0].offset for name, places in found.offsets.items()}
    assert offsets == {"orders": 7 if is_commit else 0, "secrets": 0}


def test_a_poll_is_refused_for_a_topic_that_one_may_not_read(node: Node) -> None:
    member_id, epoch = join(node, "readers", "orders", "secrets")
    poll = Poll(
        group_id="readers",
        member_id=member_id,
        member_epoch=epoch,
        records_max=10,
        bytes_max=1000,
    )

    def polled() -> Promise[Any]:
        polling = node.broker.gate.polling
        return polling.poll(ALICE, call=poll, wait_ms=0, cancellation=Cancellation())

    assert node.wait(polled()).records == []
    node.broker.gate.policy = Only("orders")
    denied = error_of(polled())
    assert str(denied).startswith("User:alice may not READ topic 'secrets'")


def test_coordinators_are_found_for_the_groups_that_one_may_describe(node: Node) -> None:
    node.broker.gate.policy = Only()
    groups = node.broker.gate.groups
    found = node.wait(groups.find_coordinators(ALICE, groups=["readers", "auditors"]))
    assert found["readers"] == node.broker.node_id
    assert isinstance(found["auditors"], AccessDenied)


def test_settings_of_a_queue_group_are_changed_one_by_one(node: Node) -> None:
    groups = node.broker.gate.groups
    settings = QueueSettings(visibility_ms=5_000, key_order=True)
    node.wait(groups.put_queue(ALICE, group="workers", settings=settings))
    changed = groups.change_queue(ALICE, group="workers", changes={"visibility_ms": None})
    assert node.wait(changed).settings == QueueSettings(key_order=True)
    for changes in ({"fair_keys": True}, {"nothing": None}):
        refused = error_of(groups.change_queue(ALICE, group="workers", changes={**changes}))
        assert isinstance(refused, InvalidGroupSettings)
        assert refused.problem
    unknown = groups.change_queue(ALICE, group="readers", changes={})
    assert isinstance(error_of(unknown), UnknownGroup)
    commit(node, "readers", offset("orders"))
    stream = groups.change_queue(ALICE, group="readers", changes={})
    assert isinstance(error_of(stream), GroupKindMismatch)
