"""When a node counts as ready after its start."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from goqueue.broker.controller.metadata import Applied
from goqueue.broker.replication.catching_up import CatchingUp
from goqueue.cluster.facts import (
    NO_LEADER,
    Change,
    Forget,
    PartitionFact,
    TopicFact,
    WholeState,
)
from goqueue.cluster.metadata import Metadata
from goqueue.partition import Partition

ME = 1
TOPIC = bytes(16)
BEHIND = PartitionFact(TOPIC, 0, replicas=(1, 2, 3), in_sync=(2, 3), leader=2)
WHOLE = replace(BEHIND, number=1, in_sync=(1, 2, 3))


class Decisions:
    """A log of decisions that are made by the test."""

    def __init__(self, *facts: Change) -> None:
        self.metadata = Metadata()
        self.partitions: list[Partition] = []
        self._applied: list[Applied] = []
        self.decide(TopicFact(TOPIC, "orders", 4), *facts)

    def request(self, command: Any) -> Any:
        raise AssertionError(f"nobody asks for {command}")

    def on_applied(self, applied: Applied) -> None:
        self._applied.append(applied)

    def decide(self, *changes: Change) -> None:
        self.metadata.apply_all(changes)
        for applied in self._applied:
            applied(changes)

    def install(self, *facts: Change) -> None:
        """Replace everything, as a node that was too far behind does."""
        newer = Metadata()
        newer.apply_all((TopicFact(TOPIC, "orders", 4), *facts))
        self.metadata.restore(newer.snapshot())
        for applied in self._applied:
            applied(WholeState(newer.facts()))


def begun(*facts: Change) -> tuple[Decisions, CatchingUp]:
    log = Decisions(*facts)
    catching_up = CatchingUp(ME, log)
    catching_up.begin()
    return log, catching_up


def test_a_node_that_was_not_unfenced_yet_is_not_ready() -> None:
    assert "has not caught up" in CatchingUp(ME, Decisions()).waits_for


def test_a_node_whose_replicas_are_in_sync_is_ready() -> None:
    _, catching_up = begun(WHOLE)
    assert catching_up.waits_for == ""


def test_every_replica_must_have_been_in_sync_once() -> None:
    other = replace(BEHIND, number=2)
    log, catching_up = begun(BEHIND, WHOLE, other)
    assert catching_up.waits_for.endswith("its start: 2.")
    log.decide(replace(BEHIND, in_sync=(1, 2, 3)))
    assert catching_up.waits_for.endswith("its start: 1.")
    log.decide(BEHIND)
    log.decide(replace(other, in_sync=(1, 2)))
    assert catching_up.waits_for == ""
    log.decide(replace(other, in_sync=(2,)))
    assert catching_up.waits_for == "", "later lag does not count"


def test_replicas_that_are_added_later_do_not_count() -> None:
    log, catching_up = begun(WHOLE, replace(BEHIND, replicas=(2, 3), adding=(1,), target=(1, 2)))
    assert catching_up.waits_for == ""
    log.decide(replace(BEHIND, number=3))
    assert catching_up.waits_for == ""


def test_replicas_that_are_gone_do_not_count() -> None:
    moved = replace(BEHIND, number=2)
    log, catching_up = begun(BEHIND, moved)
    log.decide(replace(moved, replicas=(2, 3, 4)))
    log.decide(Forget(BEHIND.key))
    assert catching_up.waits_for == ""


def test_a_replica_that_nobody_leads_keeps_no_node_from_being_ready() -> None:
    lost = replace(BEHIND, number=2, leader=NO_LEADER, in_sync=(3,))
    log, catching_up = begun(BEHIND, lost)
    assert catching_up.waits_for.endswith("its start: 2.")
    log.decide(replace(BEHIND, in_sync=(1, 2, 3)))
    assert catching_up.waits_for == ""


def test_a_node_that_got_a_snapshot_waits_for_the_replicas_in_it() -> None:
    log = Decisions()
    catching_up = CatchingUp(ME, log)
    log.install(BEHIND)
    catching_up.begin()
    assert catching_up.waits_for.endswith("its start: 1.")
    log.decide(replace(BEHIND, in_sync=(1, 2, 3)))
    assert catching_up.waits_for == ""


def test_replicas_that_are_missing_from_a_snapshot_do_not_count() -> None:
    log, catching_up = begun(BEHIND)
    log.install(WHOLE)
    assert catching_up.waits_for == ""
