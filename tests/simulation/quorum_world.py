"""Nodes that agree on facts: the quorum and the controller of each, without partitions."""

from __future__ import annotations

import random
from collections.abc import Mapping

from goqueue.broker.controller.membership import Membership
from goqueue.broker.controller.node import Environment, NodeIdentity, identify_disk
from goqueue.broker.controller.quorum import Quorum
from goqueue.cluster.bootstrap import Formed
from goqueue.cluster.facts import Decision
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.messages import Members
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import ClusterSettings
from goqueue.model.support import SUPPORT, Support
from tests.simulation.clock import VirtualClock
from tests.simulation.disk import PowerLost, SimulatedDisk
from tests.simulation.network import Network

INTERNAL = (InternalTopic("__consumer_offsets", 2), InternalTopic("__scheduled", 1))
FOLDER = "meta/quorum"


class QuorumNode:
    """One life after the other of a node."""

    def __init__(self, world: QuorumWorld, number: int, voters: tuple[int, ...]) -> None:
        self.world = world
        self.number = number
        self.voters = voters
        self.disk = SimulatedDisk(world.random)
        self.is_up = False
        self.life = 0
        self.log: list[Decision] = []
        self.start()

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.is_up = True
        self.clock = world.clock.node(skew_ms=world.random.randint(-5000, 5000))
        self.clock.extra_ms = self.disk.take_delay_ms
        support = world.supports.get(self.number, SUPPORT)
        self.peers = world.network.join(self.number, self.clock, support)
        storage = RaftStorage(self.disk, FOLDER)
        members = Members(self.voters) if self.number in self.voters else Members(())
        state = storage.load()
        if state is None:
            state = storage.begin(members)
        else:
            storage.secure(state)
        settings = ClusterSettings()
        environment = Environment(self.disk, self.clock, self.peers, world.random)
        formed = Formed(f"cluster-{environment.new_id().hex()}", ())
        raft_settings = RaftSettings.for_session(settings.session_ms)
        self.quorum = Quorum(
            Raft(self.number, state, raft_settings, world.random),
            storage,
            settings,
            environment,
            internal_topics=INTERNAL,
            formed=lambda: formed,
        )
        self.quorum.add_contacts(self.voters)
        self.membership = Membership(
            self.quorum,
            self.clock,
            settings,
            identity=NodeIdentity(
                self.number,
                disk=identify_disk(self.disk, environment.new_id),
                incarnation=environment.new_id(),
            ),
            addresses=lambda: {"internal": f"node-{self.number}"},
        )
        self.quorum.start()
        self.membership.start()

    def kill(self) -> None:
        self.is_up = False
        self.clock.die()
        self.world.network.end(self.number)
        self.disk.life += 1

    def crash(self) -> None:
        self.is_up = False
        self.clock.die()
        self.world.network.leave(self.number)
        self.disk.crash()


class QuorumWorld:
    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        learners: int = 0,
        supports: Mapping[int, Support] | None = None,
    ) -> None:
        """`supports` has what the releases of nodes support, if that is not the newest."""
        self.seed = seed
        self.supports = dict(supports or {})
        self.random = random.Random(seed)
        self.clock = VirtualClock(self.random)
        self.network = Network(self.clock)
        names = tuple(range(1, voters + 1))
        self.nodes = {
            number: QuorumNode(self, number, names) for number in range(1, voters + learners + 1)
        }

    def run_for(self, ms: float) -> None:
        try:
            self.clock.run_for(ms)
        except PowerLost:
            raise AssertionError("no crash was asked for") from None
        self.check()

    def settle(self) -> None:
        """Let everything heal, and wait until all nodes that run know the same."""
        self.network.heal()
        for node in self.nodes.values():
            if not node.is_up:
                node.start()
        self.clock.run_until(self.is_settled, ms_max=60_000)
        self.check()

    def is_settled(self) -> bool:
        indexes = {node.quorum.applied_index for node in self.nodes.values()}
        return (
            len(indexes) == 1
            and len([one for one in self.up() if one.quorum.is_controller]) == 1
            and all(node.membership.is_trusted for node in self.up())
            and all(
                self.controller().quorum.metadata.topic(one.name) is not None for one in INTERNAL
            )
        )

    def up(self) -> list[QuorumNode]:
        return [node for node in self.nodes.values() if node.is_up]

    def controller_nodes(self) -> set[int]:
        """The nodes that the controller has registered; none while there is no controller."""
        if not any(node.quorum.is_controller for node in self.up()):
            return set()
        return set(self.controller().quorum.metadata.nodes)

    def controller(self) -> QuorumNode:
        return next(node for node in self.up() if node.quorum.is_controller)

    def check(self) -> None:
        """Never two controllers in one term, and whoever has applied as much knows the same."""
        terms = [node.quorum.term for node in self.up() if node.quorum.is_controller]
        assert len(terms) == len(set(terms)), f"seed {self.seed}: two controllers in one term"
        known: dict[int, bytes] = {}
        for node in self.up():
            snapshot = node.quorum.metadata.snapshot()
            before = known.setdefault(node.quorum.applied_index, snapshot)
            assert before == snapshot, f"seed {self.seed}: node {node.number} knows otherwise"
