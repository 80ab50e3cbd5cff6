"""A cluster around the controller: nodes that crash, lag and go silent, and what they keep.

There are no bytes and no Raft here. The log is a list, a failing controller loses what it had not
committed, and a record is a number that a node has or has not. What is real is every decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from goqueue.cluster.controller import Controller
from goqueue.cluster.facts import (
    NO_LEADER,
    Decision,
    PartitionFact,
    PartitionKey,
    TopicFact,
    decode_decision,
    encode_decision,
)
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import ClusterSettings
from goqueue.model.errors import GoQueueError
from tests.simulation.controller_watch import Cause, Watch

TICK_MS = 100
INTERNAL = (InternalTopic("__offsets", 2), InternalTopic("__state", 1))


@dataclass
class Node:
    """One process and its disk. It sees the log with a delay of its own."""

    id: int
    rack: str
    incarnation: bytes = b""
    disk: bytes = b""
    address: str = ""
    is_running: bool = False
    is_silent: bool = False  # cut off from the controller, not from the other nodes
    wants_drain: bool = False
    applied: int = 0
    view: Metadata = field(default_factory=Metadata)
    records: dict[PartitionKey, set[int]] = field(default_factory=dict)
    # Whom it has asked the controller for as a leader, and on which version of the partition.
    asked: dict[PartitionKey, tuple[int, frozenset[int]]] = field(default_factory=dict)

    def leads(self, fact: PartitionFact | None) -> bool:
        """What was said of an earlier life of the process says nothing about this one."""
        known = self.view.nodes.get(self.id)
        is_known = known is not None and known.incarnation == self.incarnation
        return self.is_running and is_known and fact is not None and fact.leader == self.id


class Cluster:
    """Nodes, one log, and the controller of the moment."""

    def __init__(self, seed: int, *, node_count: int) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.settings = ClusterSettings(rebalance_ms=3000, leader_moves_max=5)
        self.log: list[Decision] = []
        self.committed = Metadata()
        self.in_flight: list[tuple[Cause, bytes]] = []
        self.nodes = [Node(number, f"rack-{number % 3}") for number in range(1, node_count + 1)]
        self.watch = Watch(Metadata())
        self.wanted: dict[PartitionKey, tuple[int, ...]] = {}
        self.acked: dict[PartitionKey, set[int]] = {}
        # Leaders of earlier epochs, who may not know it yet, promise nothing any more.
        self.unclean_epochs: dict[PartitionKey, int] = {}
        self.refused: dict[str, int] = {}
        self._next = 0
        self.controller = self._new_controller()

    # Deciding and committing

    def decide(self, cause: Cause, decision: Callable[[], Decision]) -> bool:
        """Ask the controller; its refusals are answers like others."""
        made: Decision = ()
        error: GoQueueError | None = None
        try:
            made = decision()
        except GoQueueError as refusal:
            error = refusal
            name = f"{cause.name}: {type(error).__name__}"
            self.refused[name] = self.refused.get(name, 0) + 1
        if made:
            self.watch.follow(cause, made)
            self.in_flight.append((cause, encode_decision(made)))
        if made or error:
            ours, theirs = (each.metadata.snapshot() for each in (self.watch, self.controller))
            assert ours == theirs, "the controller has changed more than it told"
        return error is None

    def commit(self, count: int, *, is_told: bool = True) -> None:
        for cause, payload in self.in_flight[:count]:
            decision = decode_decision(payload)
            self.log.append(decision)
            self.committed.apply_all(decision)
            if is_told:
                self.controller.applied(len(self.log), decision)
            self._note(cause, decision)
        del self.in_flight[:count]
        self.check_records()

    def fail_over(self) -> None:
        """Another node becomes the controller; some of what was on its way may have arrived."""
        self.commit(self.random.randint(0, len(self.in_flight)), is_told=False)
        self.in_flight.clear()
        self.watch.metadata = self.committed.copy()
        self.controller = self._new_controller()

    def _new_controller(self) -> Controller:
        return Controller(
            self.committed,
            self.settings,
            index=len(self.log),
            now_ms=self.now_ms,
            internal_topics=INTERNAL,
        )

    def _note(self, cause: Cause, decision: Decision) -> None:
        """What the decision is meant to lead to, and what it was allowed to give up."""
        for change in decision:
            if not isinstance(change, PartitionFact):
                continue
            if cause.target and cause.place == change.place:
                self.wanted[change.place] = cause.target
            elif change.is_moving:
                self.wanted[change.place] = change.target
            elif cause.name == "cancel":
                self.wanted[change.place] = change.replicas
            topic = self.committed.topic_by_id(change.topic_id)
            is_allowed = cause.is_unclean or (
                topic is not None and topic.settings.get("unclean_leader_election_enable") == "true"
            )
            if is_allowed and change.leader != NO_LEADER and len(change.in_sync) == 1:
                kept = self.nodes[change.leader - 1].records.get(change.place, set())
                self.acked.get(change.place, set()).intersection_update(kept)
                self.unclean_epochs[change.place] = change.leader_epoch

    # Time

    def run(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms += TICK_MS
            for node in self.nodes:
                self.heartbeat(node)
            self.decide(Cause("tick"), lambda: self.controller.tick(self.now_ms))

    def heartbeat(self, node: Node) -> None:
        if node.is_running and not node.is_silent:
            self.decide(
                Cause("heartbeat"),
                lambda: self.controller.heartbeat(
                    node.id,
                    node.incarnation,
                    applied_index=node.applied,
                    wants_drain=node.wants_drain,
                    now_ms=self.now_ms,
                ),
            )

    # Nodes

    def start(self, node: Node, *, has_lost_disk: bool = False) -> None:
        node.is_running = True
        node.wants_drain = False
        node.incarnation = self.new_id()
        node.asked.clear()
        if has_lost_disk or not node.disk:
            node.disk = self.new_id()
            node.records.clear()
            node.applied, node.view = 0, Metadata()
        if not node.address or self.random.random() < 0.1:
            node.address = f"host-{self.new_id().hex()}"
        self.register(node)

    def register(self, node: Node) -> None:
        if node.is_running and not node.is_silent:
            self.decide(
                Cause("register"),
                lambda: self.controller.register(
                    node.id,
                    node.incarnation,
                    {"peers": node.address},
                    now_ms=self.now_ms,
                    rack=node.rack,
                    disk=node.disk,
                ),
            )

    def read_log(self, node: Node, count: int) -> None:
        """A node applies entries, now and then through a snapshot of somebody who is ahead."""
        if node.is_running and count and self.random.random() < 0.05:
            node.view.restore(self.committed.snapshot())
            node.applied = len(self.log)
        elif node.is_running:
            for decision in self.log[node.applied : node.applied + count]:
                node.view.apply_all(decision)
                node.applied += 1

    # Records

    def produce(self, node: Node, place: PartitionKey) -> None:
        """A record is acknowledged when all have it whom the leader believes to be in sync."""
        fact = node.view.partitions.get(*place)
        if fact is None or not node.leads(fact):
            return
        record = self._number()
        node.records.setdefault(place, set()).add(record)
        version, asked = node.asked.get(place, (-1, frozenset()))
        members = {*fact.in_sync, *(asked if version == fact.version else ())}
        is_everywhere = all(
            self.follow(self.nodes[one - 1], node, place) for one in sorted(members)
        )
        if is_everywhere and fact.leader_epoch >= self.unclean_epochs.get(place, 0):
            self.acked.setdefault(place, set()).add(record)

    def follow(self, node: Node, leader: Node, place: PartitionKey) -> bool:
        """A replica becomes like its leader, if both know of the same epoch."""
        if node is leader:
            return True
        ours, theirs = (each.view.partitions.get(*place) for each in (node, leader))
        if not node.is_running or ours is None or theirs is None:
            return False
        if ours.leader_epoch != theirs.leader_epoch or not leader.leads(theirs):
            return False
        node.records[place] = set(leader.records.get(place, set()))
        return True

    def propose_in_sync(self, node: Node, place: PartitionKey) -> None:
        """The leader, by what it believes, asks for other members; those it adds are like it."""
        fact = node.view.partitions.get(*place)
        if fact is None or not node.leads(fact) or node.is_silent:
            return
        caught_up = [one for one in fact.members if self.follow(self.nodes[one - 1], node, place)]
        kept = [
            one
            for one in caught_up
            if one == node.id or self.random.random() < (0.9 if node.view.is_alive(one) else 0.1)
        ]
        self._ask_in_sync(node, fact, frozenset(kept))

    def join_all(self, node: Node, place: PartitionKey) -> None:
        fact = node.view.partitions.get(*place)
        if fact is not None and node.leads(fact):
            ready = [one for one in fact.members if self.follow(self.nodes[one - 1], node, place)]
            self._ask_in_sync(node, fact, frozenset({*ready, *fact.in_sync}))

    def _ask_in_sync(self, node: Node, fact: PartitionFact, members: frozenset[int]) -> None:
        """Whoever was asked for on a version may be granted while that version is the newest."""
        version, counted = node.asked.get(fact.place, (-1, frozenset()))
        before = counted if version == fact.version else frozenset()
        node.asked[fact.place] = (fact.version, before | members)
        incarnations = {one: self.nodes[one - 1].incarnation for one in members}
        is_decided = self.decide(
            Cause("change_in_sync", fact.place, members),
            lambda: self.controller.change_in_sync(
                node.id,
                fact.topic_id,
                fact.number,
                members,
                leader_epoch=fact.leader_epoch,
                version=fact.version,
                incarnations=incarnations,
            ),
        )
        if not is_decided:
            node.asked[fact.place] = (fact.version, before)

    def check_records(self) -> None:
        """Whoever may lead by the committed facts has every acknowledged record."""
        for fact in self.committed.partitions:
            acked = self.acked.get(fact.place, set())
            for member in fact.in_sync:
                node = self.nodes[member - 1]
                is_same_disk = self.committed.nodes[member].disk == node.disk
                if is_same_disk and not fact.is_lost:
                    missing = acked - node.records.get(fact.place, set())
                    assert not missing, f"node {member} lacks {missing} of {fact.place}"

    # Choosing

    def new_id(self) -> bytes:
        return self._number().to_bytes(16, "big")

    def _number(self) -> int:
        self._next += 1
        return self._next

    def places(self) -> list[PartitionKey]:
        return [fact.place for fact in self.committed.partitions]

    def topic(self, count: int, **settings: str) -> TopicFact:
        return TopicFact(self.new_id(), f"t{self._next}", count, settings)
