"""A node's part in a cluster: the quorum, its membership, and its replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from goqueue.broker.controller.formation import Formation
from goqueue.broker.controller.membership import Membership
from goqueue.broker.controller.quorum import Quorum
from goqueue.broker.durability.flusher import Flusher
from goqueue.broker.replication.integrity import ReplicaIntegrity
from goqueue.broker.replication.replicas import Replicas
from goqueue.broker.topics.topics import Topics
from goqueue.cluster.bootstrap import parse_peers
from goqueue.cluster.facts import Decision, NodeFact
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.raft.ready import RaftState
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import ClusterSettings, ReplicationSettings
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Contact, Peers
from goqueue.storage.disk import Disk

DRAIN_MS_MAX = 10_000  # a stopping node stops then, even if no other node could take over
DRAIN_LOOK_MS = 20
HAND_OVER_MS_MAX = 1_000  # then the remaining nodes elect a successor
ADMISSION_LOOK_MS = 100

_QUORUM_FOLDER = "meta/quorum"

Addresses = Callable[[], Mapping[str, str]]


class Clustering:
    """The parts of a node that only a cluster member has."""

    def __init__(
        self,
        node_id: int,
        settings: ClusterSettings,
        disk: Disk,
        clock: Clock,
        peers: Peers,
        random: Random,
        *,
        internal_topics: list[InternalTopic],
        addresses: Addresses,
        new_id: Callable[[], bytes],
        offered_id: str,
        configured_id: str,
        single_node: Callable[[], Metadata | None],
    ) -> None:
        """`addresses` are those of this node by listener, once they are bound.

        A new cluster is named `configured_id`, or else by the id that one of the nodes has offered.
        `single_node` returns the metadata of a former single node, if this was one.
        """
        self._settings = settings
        self._clock = clock
        self._peers = peers
        contacts = parse_peers(settings.peers)
        for node, address in contacts.items():
            if node != node_id:
                peers.locate(node, address)
        storage = RaftStorage(disk, _QUORUM_FOLDER)
        self.formation = Formation(
            node_id,
            disk,
            storage,
            clock,
            peers,
            random,
            contacts=contacts,
            nodes_min=1 if settings.discovery is None else settings.discovery_count,
            joins_only=settings.join_only,
            offered_id=offered_id,
            configured_id=configured_id,
            new_id=new_id,
            single_node=single_node,
        )
        self._has_state = self.formation.state is not None
        self.incarnation = new_id()
        self.quorum = Quorum(
            node_id,
            storage,
            self.formation.state or RaftState.new(),
            settings,
            clock,
            peers,
            random,
            contacts=list(contacts),
            internal_topics=internal_topics,
            new_id=new_id,
            new_cluster_id=lambda: self.cluster_id,
            initial_disk=self.formation.initial_disk,
        )
        self.membership = Membership(
            self.quorum,
            clock,
            settings,
            incarnation=self.incarnation,
            disk_id=self.formation.me.disk,
            addresses=lambda: dict(addresses()),
        )
        self.replicas: Replicas
        self.integrity: ReplicaIntegrity
        self._gone_ms: dict[int, int] = {}  # by node: when it was last found to be gone
        self._is_stopped = False
        peers.on_gone(self._note_gone)

    def attach(self, topics: Topics, flusher: Flusher, settings: ReplicationSettings) -> None:
        """Start managing replicas; topics must be notified of decisions before this is."""
        timeout_ms = self._settings.session_ms
        self.replicas = Replicas(
            self.quorum.node_id,
            self.incarnation,
            self.quorum,
            self._peers,
            self._clock,
            topics,
            flusher,
            settings,
            ask=lambda command: self.quorum.ask_once(command, timeout_ms=timeout_ms),
        )
        self.membership.is_ill = self.replicas.has_failed
        self.integrity = ReplicaIntegrity(
            self.quorum.node_id,
            self.incarnation,
            self.quorum,
            self._clock,
            topics,
            ask=lambda command: self.quorum.ask_once(command, timeout_ms=timeout_ms),
        )
        self.membership.integrity = self.integrity.of_copies
        self.replicas.on_role(self.integrity.role_changed)
        self.when_trusted(topics.clear_suspects)

    def start(self) -> None:
        """Take part in the cluster as soon as there is one."""
        self.replicas.start()
        self.integrity.start()
        self.formation.start(self._begin)

    def _begin(self, state: RaftState, may_vote: bool) -> None:
        if not self._has_state:
            self.quorum.begin(state)
        self.quorum.may_vote = may_vote
        self.quorum.start()
        self.membership.start()
        if not may_vote:
            self._look_for_admission()

    def _look_for_admission(self) -> None:
        """Vote again once the cluster has registered this disk."""
        if self._is_stopped:
            return
        if self.quorum.admit(self.formation.me.disk):
            self.formation.admit()
            return
        self._clock.call_later(ADMISSION_LOOK_MS, self._look_for_admission)

    def discovered(self, nodes: Mapping[int, str]) -> None:
        """Add nodes and addresses that discovery has found."""
        others = {node: at for node, at in nodes.items() if node != self.quorum.node_id}
        for node, address in others.items():
            self._peers.locate(node, address)
        self.quorum.add_contacts(others)
        self.formation.learn(others)

    def when_trusted(self, done: Callable[[], None]) -> None:
        """Call `done` once this node is unfenced: then its metadata is current."""
        is_told = False

        def look(_: Decision) -> None:
            nonlocal is_told
            if not is_told and self.membership.is_trusted:
                is_told = True
                done()

        self.quorum.on_applied(look)
        look(())

    def retire(self, done: Callable[[], None]) -> None:
        """Move leadership to other nodes, if they can take it soon, and leave the cluster."""
        deadline_ms = self._clock.now_ms() + DRAIN_MS_MAX
        self.membership.drain()

        def look() -> None:
            is_over = self.membership.is_drained or not self._has_successors()
            if not is_over and self._clock.now_ms() < deadline_ms:
                self._clock.call_later(DRAIN_LOOK_MS, look)
                return
            self._hand_over(lambda: self.membership.leave().then(lambda _, error: done()))

        look()

    def _has_successors(self) -> bool:
        """Return whether another node could lead; not so when all nodes are stopping."""
        nodes = self.quorum.metadata.nodes.values()
        return any(one.takes_leaders for one in nodes if one.id != self.quorum.node_id)

    def _hand_over(self, done: Callable[[], None]) -> None:
        """Transfer the controller to another node, if this is the controller."""
        deadline_ms = self._clock.now_ms() + HAND_OVER_MS_MAX

        def look() -> None:
            leader = self.quorum.leader
            is_done = leader not in (-1, self.quorum.node_id)
            if is_done or self._clock.now_ms() >= deadline_ms:
                done()
            else:
                self._clock.call_later(DRAIN_LOOK_MS, look)

        if self.quorum.hand_over():
            look()
        else:
            done()

    def stop(self) -> None:
        self._is_stopped = True
        self.formation.stop()
        self.membership.stop()
        self.replicas.stop()
        self.integrity.stop()
        self.quorum.stop()

    # State

    @property
    def cluster_id(self) -> str:
        """Return the cluster id; empty until this node belongs to a cluster."""
        cluster = self.quorum.metadata.cluster
        if cluster is not None:
            return cluster.cluster_id
        formed = self.formation.formed
        return "" if formed is None else formed.cluster_id

    @property
    def waits_for(self) -> str:
        """Return why this node cannot serve yet, as a sentence; empty once it is unfenced."""
        if self.membership.is_trusted:
            return ""
        if self.formation.waits_for:
            return self.formation.waits_for
        if self.quorum.leader < 0:
            voters = ", ".join(map(str, self.quorum.voters)) or "of the cluster"
            return f"No controller: this node cannot reach a majority of the voters {voters}."
        return "The cluster has not admitted this node yet."

    def nodes(self) -> list[NodeFact]:
        """Return the nodes that are not fenced."""
        known = self.quorum.metadata.nodes
        return [known[number] for number in sorted(known) if not known[number].is_fenced]

    def is_there(self, node: int) -> bool:
        """Return whether to call a node or to send a client there.

        This node detects that a peer has died before the cluster has elected other leaders. A
        client that gets "no leader" retries soon; a client that gets the address of a dead node may
        wait much longer.
        """
        contact = Contact.OPEN if node == self.quorum.node_id else self._peers.contact(node)
        if contact is not Contact.GONE:
            return contact is Contact.OPEN
        # A node that is still not fenced after a session is reachable for others.
        since_ms = self._clock.now_ms() - self._gone_ms.get(node, 0)
        return since_ms > self._settings.session_ms

    def _note_gone(self, node: int) -> None:
        self._gone_ms[node] = self._clock.now_ms()
