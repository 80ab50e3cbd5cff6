"""A node's part in a cluster: the quorum, its membership, and its replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from goqueue.broker.controller.formation import Formation
from goqueue.broker.controller.membership import Membership
from goqueue.broker.controller.metadata import LocalLog
from goqueue.broker.controller.node import Environment, NodeIdentity
from goqueue.broker.controller.quorum import Quorum
from goqueue.broker.durability.flusher import Flusher
from goqueue.broker.replication.catching_up import CatchingUp
from goqueue.broker.replication.integrity import ReplicaIntegrity
from goqueue.broker.replication.replicas import Replicas
from goqueue.broker.topics.internal_topics import internal_topics
from goqueue.broker.topics.partition_files import PartitionFiles
from goqueue.broker.topics.topics import Topics
from goqueue.cluster.bootstrap import parse_peers
from goqueue.cluster.commands import ClusterCommand
from goqueue.cluster.facts import Decision, NodeFact
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.raft.core import Raft
from goqueue.cluster.raft.ready import RaftState
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.config import Settings
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Contact
from goqueue.loop.promise import Promise
from goqueue.model.support import UNKNOWN, Support
from goqueue.storage.commit_journal import CommitJournal
from goqueue.storage.disk import Disk

DRAIN_MS_MAX = 10_000  # a stopping node stops then, even if no other node could take over
DRAIN_LOOK_MS = 20
HAND_OVER_MS_MAX = 1_000  # then the remaining nodes elect a successor
ADMISSION_LOOK_MS = 100

_QUORUM_FOLDER = "meta/quorum"
_LOG_FOLDER = "meta/log"  # of a single node

Addresses = Callable[[], Mapping[str, str]]


class Clustering:
    """The parts of a node that only a cluster member has."""

    def __init__(
        self,
        settings: Settings,
        environment: Environment,
        *,
        addresses: Addresses,
        offered_id: str,
        single_node: Callable[[], Metadata | None],
    ) -> None:
        """`addresses` are those of this node by listener, once they are bound.

        A new cluster is named by the settings, or else by the id that one of the nodes has offered.
        `single_node` returns the metadata of a former single node, if this was one.
        """
        self.node_id = settings.node.id
        self._settings = settings.cluster
        self._replication = settings.replication
        self._clock = environment.clock
        self.peers = environment.peers
        contacts = parse_peers(settings.cluster.peers)
        self._locate(contacts)
        storage = RaftStorage(environment.disk, _QUORUM_FOLDER)
        self.formation = Formation(
            environment,
            storage,
            settings.node,
            settings.cluster,
            contacts=contacts,
            offered_id=offered_id,
            single_node=single_node,
        )
        self.identity = NodeIdentity(
            self.node_id, disk=self.formation.me.disk, incarnation=environment.new_id()
        )
        self._has_state = self.formation.state is not None
        self.quorum = self._create_quorum(storage, settings, environment)
        self.quorum.add_contacts(contacts)
        self.catching_up = CatchingUp(self.node_id, self.quorum)
        self.membership = Membership(
            self.quorum,
            self._clock,
            settings.cluster,
            identity=self.identity,
            addresses=lambda: dict(addresses()),
        )
        self.replicas: Replicas
        self.integrity: ReplicaIntegrity
        self._gone_ms: dict[int, int] = {}  # by node: when it was last found to be gone
        self._is_stopped = False
        self.peers.on_gone(self._note_gone)

    def _create_quorum(
        self, storage: RaftStorage, settings: Settings, environment: Environment
    ) -> Quorum:
        """Create the quorum with the saved state; without one, it starts when members are known."""
        raft = Raft(
            self.node_id,
            self.formation.state or RaftState.new(),
            RaftSettings.for_session(settings.cluster.session_ms),
            environment.random,
        )
        return Quorum(
            raft,
            storage,
            settings.cluster,
            environment,
            internal_topics=internal_topics(settings),
            formed=lambda: self.formation.formed,
        )

    def attach(self, topics: Topics, flusher: Flusher) -> None:
        """Start managing replicas; topics must be notified of decisions before this is."""
        self.replicas = Replicas(
            self.identity,
            self.quorum,
            topics,
            flusher,
            self.peers,
            self._clock,
            self._replication,
            ask=self._ask,
        )
        self.add_illness(self.replicas.has_failed)
        self.integrity = ReplicaIntegrity(
            self.identity, self.quorum, topics, self._clock, ask=self._ask
        )
        self.membership.integrity = self.integrity.of_copies
        self.replicas.on_role(self.integrity.role_changed)
        self.when_trusted(topics.clear_suspects)
        self.when_trusted(self.catching_up.begin)

    def add_illness(self, is_ill: Callable[[], bool]) -> None:
        """Add a reason for which this node should lead nothing until it restarts."""
        before = self.membership.is_ill
        self.membership.is_ill = lambda: before() or is_ill()

    def _ask(self, command: ClusterCommand) -> Promise[None]:
        """Send a command to the controller, once: what it reports is repeated while it applies."""
        return self.quorum.ask_once(command, timeout_ms=self._settings.session_ms)

    def start(self) -> None:
        """Take part in the cluster as soon as there is one."""
        self.replicas.start()
        self.integrity.start()
        self.formation.start(self._begin)

    def _begin(self, state: RaftState, may_vote: bool) -> None:
        if not self._has_state:
            self.quorum.begin(state.snapshot.members)
        self.quorum.start(may_vote=may_vote)
        self.membership.start()
        if not may_vote:
            self._look_for_admission()

    def _look_for_admission(self) -> None:
        """Vote again once the cluster has registered this disk."""
        if self._is_stopped:
            return
        if self.quorum.admit(self.identity.disk):
            self.formation.admit()
            return
        self._clock.call_later(ADMISSION_LOOK_MS, self._look_for_admission)

    def discovered(self, nodes: Mapping[int, str]) -> None:
        """Add nodes and addresses that discovery has found."""
        self._locate(nodes)
        self.quorum.add_contacts(nodes)
        self.formation.learn(nodes)

    def _locate(self, nodes: Mapping[int, str]) -> None:
        for node, address in nodes.items():
            if node != self.node_id:
                self.peers.locate(node, address)

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
            is_over = self._is_cut_off or self.membership.is_drained or not self._has_successors()
            if not is_over and self._clock.now_ms() < deadline_ms:
                self._clock.call_later(DRAIN_LOOK_MS, look)
                return
            self._hand_over(lambda: self.membership.leave().then(lambda _, error: done()))

        look()

    @property
    def _is_cut_off(self) -> bool:
        """Return whether this node has stopped following the cluster, and can ask for nothing."""
        return self.quorum.failure is not None

    def _has_successors(self) -> bool:
        """Return whether another node could lead; not so when all nodes are stopping."""
        nodes = self.quorum.metadata.nodes.values()
        return any(one.takes_leaders for one in nodes if one.id != self.node_id)

    def _hand_over(self, done: Callable[[], None]) -> None:
        """Transfer the controller to another node, if this is the controller."""
        deadline_ms = self._clock.now_ms() + HAND_OVER_MS_MAX

        def look() -> None:
            leader = self.quorum.leader
            is_done = leader not in (-1, self.node_id)
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

    def support_of(self, node: int) -> Support:
        """Return what the release of a node supports, as it has told this node or the cluster."""
        if node == self.node_id:
            return self.peers.support
        fact = self.quorum.metadata.nodes.get(node)
        registered = None if fact is None else fact.support
        return self.peers.support_of(node) or registered or UNKNOWN

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
        contact = Contact.OPEN if node == self.node_id else self.peers.contact(node)
        if contact is not Contact.GONE:
            return contact is Contact.OPEN
        # A node that is still not fenced after a session is reachable for others.
        since_ms = self._clock.now_ms() - self._gone_ms.get(node, 0)
        return since_ms > self._settings.session_ms

    def _note_gone(self, node: int) -> None:
        self._gone_ms[node] = self._clock.now_ms()


def facts_of_single_node(
    disk: Disk,
    clock: Clock,
    flusher: Flusher,
    commit_journal: CommitJournal,
    files: PartitionFiles,
) -> Metadata | None:
    """Return the metadata of a former single node, which becomes the first node of a cluster.

    None if this was none or has nothing. Its folders are marked with the ids of their topics, as in
    a cluster: by these the following start finds what the commit journal still has for them.
    """
    if not disk.exists(_LOG_FOLDER):
        return None
    log = LocalLog(disk, clock, flusher, commit_journal)
    for partition in log.partitions:
        partition.close()
    for topic in log.metadata.topics():
        files.claim(topic)
    return log.metadata if any(True for _ in log.metadata.facts()) else None
