"""What must be true of every decision of a controller, told from the facts alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from goqueue.cluster.facts import (
    NO_LEADER,
    Change,
    Decision,
    Forget,
    NodeFact,
    PartitionFact,
    PartitionKey,
    RoutingFact,
)
from goqueue.cluster.metadata import Metadata


@dataclass(frozen=True)
class Cause:
    """Why a decision was made, as far as it allows what others may not."""

    name: str
    place: PartitionKey | None = None
    in_sync: frozenset[int] = frozenset()  # proposed by the leader
    is_unclean: bool = False
    target: tuple[int, ...] = ()  # the replicas that somebody wants


@dataclass
class Watch:
    """Follows the decisions and complains at the first that breaks a rule."""

    metadata: Metadata
    elections: int = 0
    unclean: int = 0
    moves_done: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    _fencing: set[int] = field(default_factory=set)  # by the decision that is being followed

    def follow(self, cause: Cause, decision: Decision) -> None:
        if decision:
            self.kinds[cause.name] = self.kinds.get(cause.name, 0) + 1
        self._fencing = {
            change.id for change in decision if isinstance(change, NodeFact) and change.is_fenced
        }
        for change in decision:
            self._check(cause, change)
            self.metadata.apply(change)
        self._fencing = set()
        self._check_state()

    def _check(self, cause: Cause, change: Change) -> None:
        if isinstance(change, PartitionFact):
            assert self.metadata.topic_by_id(change.topic_id) is not None, "no such topic"
            _check_form(change)
            assert change.leader == NO_LEADER or self.metadata.is_alive(change.leader), (
                f"node {change.leader} leads and is fenced"
            )
            before = self.metadata.partitions.get(*change.place)
            if before is not None:
                self._check_step(cause, before, change)
        elif isinstance(change, NodeFact) and change.is_fenced:
            led = self.metadata.partitions.led_by(change.id)
            assert not led, f"node {change.id} is fenced while it leads {led[0].place}"
        elif isinstance(change, RoutingFact):
            self._check_routing(change)
        elif isinstance(change, Forget) and change.key.startswith(b"node/"):
            node = int(change.key[5:])
            assert not self.metadata.partitions.of_node(node), "its replicas have no node"

    def _check_step(self, cause: Cause, before: PartitionFact, after: PartitionFact) -> None:
        assert after.version > before.version, "a version does not grow"
        if after.leader == before.leader:
            assert after.leader_epoch == before.leader_epoch, "an epoch without a new leader"
        else:
            assert after.leader_epoch > before.leader_epoch, "a new leader in the old epoch"
        had_all = set(before.in_sync)
        if cause.place == after.place:
            had_all |= cause.in_sync
        if not set(after.in_sync) <= had_all or (before.is_lost and not after.is_lost):
            assert self._allows_unclean(cause, after), "somebody is in sync who was not"
            assert len(after.in_sync) == 1
            assert not self._alive(before.in_sync) or before.is_lost, "unclean without need"
            self.unclean += 1
        elif after.leader not in (before.leader, NO_LEADER):
            self.elections += 1
        self._check_move(cause, before, after, had_all)

    def _check_move(
        self, cause: Cause, before: PartitionFact, after: PartitionFact, had_all: Collection[int]
    ) -> None:
        if after.replicas != before.replicas:
            assert not after.is_moving
            is_asked = cause.place == after.place and cause.target
            assert after.replicas == (cause.target if is_asked else before.target), "not as wanted"
            adding = set(after.replicas) - set(before.replicas)
            assert adding <= set(had_all), "a new replica is not in sync"
            self.moves_done += 1
        if not after.is_moving:
            assert not after.adding
            assert not after.removing

    def _check_routing(self, after: RoutingFact) -> None:
        before = self.metadata.routing.get(after.topic_id)
        counts = [epoch.partition_count for epoch in after.ended]
        topic = self.metadata.topic_by_id(after.topic_id)
        assert topic is not None
        assert counts == sorted(set(counts))
        assert counts[-1] < topic.partition_count
        assert all(len(epoch.ends) == epoch.partition_count for epoch in after.ended)
        if before is not None:
            for old, new in zip(before.ended, after.ended, strict=False):
                pairs = zip(old.ends, new.ends, strict=True)
                assert all(one in (-1, other) for one, other in pairs), "an end has changed"

    def _check_state(self) -> None:
        for topic in self.metadata.topics():
            facts = self.metadata.partitions.of_topic(topic.id)
            assert [fact.number for fact in facts] == list(range(topic.partition_count))
            for fact in facts:
                self._check_settled(fact)

    def _check_settled(self, fact: PartitionFact) -> None:
        """All that one decision can do about a partition has been done in it."""
        alive = self._alive(fact.in_sync)
        if fact.leader == NO_LEADER:
            assert fact.is_lost or not alive, f"{alive} could lead {fact.place}"
            return
        assert self.metadata.is_alive(fact.leader), f"node {fact.leader} leads and is fenced"
        assert len(alive) == len(fact.in_sync), f"a fenced node counts for {fact.place}"
        willing = [node for node in alive if self.metadata.nodes[node].takes_leaders]
        if willing:
            assert fact.leader in willing, f"{fact.leader} leads although it is being drained"
        if fact.is_moving:
            is_ready = set(fact.adding) <= set(alive) and set(fact.target) & set(alive)
            assert not is_ready, f"the move of {fact.place} could be completed"

    def _allows_unclean(self, cause: Cause, fact: PartitionFact) -> bool:
        topic = self.metadata.topic_by_id(fact.topic_id)
        assert topic is not None
        is_setting = topic.settings.get("unclean_leader_election_enable") == "true"
        return is_setting or (cause.is_unclean and cause.place == fact.place)

    def _alive(self, nodes: Collection[int]) -> list[int]:
        return [
            node for node in nodes if self.metadata.is_alive(node) and node not in self._fencing
        ]


def _check_form(fact: PartitionFact) -> None:
    assert fact.in_sync, "nobody is in sync"
    for nodes in (fact.replicas, fact.in_sync, fact.adding, fact.removing, fact.target):
        assert len(set(nodes)) == len(nodes)
    assert set(fact.in_sync) <= set(fact.replicas) | set(fact.adding), "in sync without a replica"
    assert fact.leader == NO_LEADER or fact.leader in fact.in_sync, "the leader is not in sync"
    assert not set(fact.adding) & set(fact.replicas)
    assert set(fact.removing) <= set(fact.replicas)
    if fact.is_moving:
        assert set(fact.target) == (set(fact.replicas) - set(fact.removing)) | set(fact.adding)
