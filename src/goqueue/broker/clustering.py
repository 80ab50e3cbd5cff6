"""A node's part in a cluster: the quorum, its membership, and the copies it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from goqueue.broker.flusher import Flusher
from goqueue.broker.membership import Membership, identify_disk
from goqueue.broker.peers import Peers
from goqueue.broker.quorum import Quorum
from goqueue.broker.replicas import Replicas
from goqueue.broker.scheduler import Scheduler
from goqueue.broker.topics import Topics
from goqueue.cluster.facts import Decision, NodeFact
from goqueue.cluster.raft.messages import Members
from goqueue.cluster.raft.storage import RaftStorage
from goqueue.cluster.topic_changes import InternalTopic
from goqueue.config import ClusterSettings, ReplicationSettings
from goqueue.storage.disk import Disk

DRAIN_MS_MAX = 10_000  # a node that is told to stop stops, whoever could not take over
DRAIN_LOOK_MS = 20

_QUORUM_FOLDER = "meta/quorum"

Addresses = Callable[[], Mapping[str, str]]


class Clustering:
    """What a node has besides a broker's rooms when it is not alone."""

    def __init__(
        self,
        node_id: int,
        settings: ClusterSettings,
        disk: Disk,
        scheduler: Scheduler,
        peers: Peers,
        random: Random,
        *,
        internal_topics: list[InternalTopic],
        addresses: Addresses,
        new_id: Callable[[], bytes],
        new_cluster_id: Callable[[], str],
    ) -> None:
        """`addresses` are those of this node by listener, once they are bound."""
        self._settings = settings
        self._scheduler = scheduler
        self._peers = peers
        contacts = parse_peers(settings.peers)
        for node, address in contacts.items():
            if node != node_id:
                peers.locate(node, address)
        storage = RaftStorage(disk, _QUORUM_FOLDER)
        voters = tuple(sorted(contacts)) if node_id in contacts else ()
        state = storage.load() or storage.begin(Members(voters))
        self.incarnation = new_id()
        self.quorum = Quorum(
            node_id,
            storage,
            state,
            settings,
            scheduler,
            peers,
            random,
            contacts=list(contacts),
            internal_topics=internal_topics,
            new_id=new_id,
            new_cluster_id=new_cluster_id,
        )
        self.membership = Membership(
            self.quorum,
            scheduler,
            settings,
            incarnation=self.incarnation,
            disk_id=identify_disk(disk, new_id),
            addresses=lambda: dict(addresses()),
        )
        self.replicas: Replicas

    def attach(self, topics: Topics, flusher: Flusher, settings: ReplicationSettings) -> None:
        """Have the copies of topics kept in their roles; topics must hear of decisions first."""
        timeout_ms = self._settings.session_ms
        self.replicas = Replicas(
            self.quorum.node_id,
            self.incarnation,
            self.quorum,
            self._peers,
            self._scheduler,
            topics,
            flusher,
            settings,
            ask=lambda command: self.quorum.ask_once(command, timeout_ms=timeout_ms),
        )

    def start(self) -> None:
        self.replicas.start()
        self.quorum.start()
        self.membership.start()

    def when_trusted(self, done: Callable[[], None]) -> None:
        """Call `done` once the cluster counts on this node: then it knows what it has to know."""
        is_told = False

        def look(_: Decision) -> None:
            nonlocal is_told
            if not is_told and self.membership.is_trusted:
                is_told = True
                done()

        self.quorum.on_applied(look)
        look(())

    def retire(self, done: Callable[[], None]) -> None:
        """Have others lead what this node leads, if they soon can, and say goodbye."""
        deadline_ms = self._scheduler.now_ms() + DRAIN_MS_MAX
        self.membership.drain()

        def look() -> None:
            if not self.membership.is_drained and self._scheduler.now_ms() < deadline_ms:
                self._scheduler.call_later(DRAIN_LOOK_MS, look)
                return
            self.membership.leave().then(lambda _, error: done())

        look()

    def stop(self) -> None:
        self.membership.stop()
        self.replicas.stop()
        self.quorum.stop()

    # What is known

    @property
    def cluster_id(self) -> str:
        """Empty until the first controller has made one."""
        cluster = self.quorum.metadata.cluster
        return "" if cluster is None else cluster.cluster_id

    def nodes(self) -> list[NodeFact]:
        """The nodes that clients can be sent to."""
        known = self.quorum.metadata.nodes
        return [known[number] for number in sorted(known) if not known[number].is_fenced]


def parse_peers(text: str) -> dict[int, str]:
    """Addresses by node, from a setting that was checked when it was read."""
    peers = [one.strip().partition("@") for one in text.split(",") if one.strip()]
    return {int(number): address for number, _, address in peers}
