"""Operations for backups: take a consistent cut of the cluster, and read logs up to it.

They return everything that is stored, credentials included, so they need the right to alter the
cluster, and once there are tenants they are for super users only. The cut calls the others on the
nodes that lead partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.broker.backups.cutting import HOLD_MS, Cut, Cutter, Held, Place, Span, grouped
from goqueue.broker.backups.reading import Piece, committed_spans, read_piece
from goqueue.broker.confirming import Confirming
from goqueue.broker.gate.operation import Area, Arguments, Dispatcher, operation, whole_cluster
from goqueue.cluster.metadata import Metadata
from goqueue.loop.promise import Promise, promised
from goqueue.model.access import Action
from goqueue.model.errors import NotCoordinator
from goqueue.model.names import TRANSACTION_TOPIC
from goqueue.model.session import Session
from goqueue.model.tenants import Text, TopicName

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = ["BackupsArea", "Cut", "Held", "Piece", "Span"]


def _coordinator(broker: Broker, arguments: Arguments) -> int:
    """Return the node that coordinates the transactions of a partition of their log."""
    topic = broker.topics.find(TRANSACTION_TOPIC)
    return -1 if topic is None else broker.leaders.node_of(topic, arguments["number"])


def _leader(broker: Broker, arguments: Arguments) -> int:
    """Return the leader of a partition."""
    topic = broker.topics.get_by_id(arguments["topic_id"])
    return broker.leaders.node_of(topic, topic.partition(arguments["number"]).name.partition)


def _node(_: Broker, arguments: Arguments) -> int:
    """Return the node that is named."""
    node: int = arguments["node"]
    return node


class BackupsArea(Area):
    """Backups of the whole cluster, while it runs."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__(dispatcher)
        self._node = _Node(dispatcher.broker)

    @operation(Action.ALTER, whole_cluster)
    async def cut(self, session: Session, *, topics: Sequence[TopicName] | None = None) -> Cut:
        """Take a consistent cut: the metadata, and up to where to read each partition.

        With `topics`, the messages of other topics are left out.
        """
        for name in topics or ():
            self._broker.topics.get(name)
        return await Cutter(
            self._broker.clock,
            _ClusterOf(self, self._node, session),
            cluster_id=self._broker.cluster_id,
            name=self._broker.new_id().hex(),
            topics=topics,
        ).take()

    @operation(Action.ALTER, whole_cluster, owner=_leader, is_reading=True)
    async def read(
        self, session: Session, *, topic_id: bytes, number: int, offset: int, until: int
    ) -> Piece:
        """Return batches of a partition as they are stored, from its leader."""
        place = (topic_id, number)
        return await promised(read_piece(self._broker.topics, place, offset=offset, until=until))

    # Parts of a cut

    @operation(Action.ALTER, whole_cluster, owner=_node, is_reading=True)
    async def spans(self, session: Session, *, node: int, places: Sequence[Place]) -> list[Span]:
        """Return the committed spans of partitions that a node leads."""
        return await promised(committed_spans(self._broker.topics, places, self._node.confirm))

    @operation(Action.ALTER, whole_cluster, owner=_coordinator, is_change=False)
    async def hold_commits(self, session: Session, *, number: int, name: Text) -> Held:
        """Decide no commits for a moment, at the coordinator of a partition."""
        shard = self._broker.transactions.shards.owned.get(number)
        if shard is None:
            raise NotCoordinator("Another node coordinates these transactions; retry there.")
        machine, now_ms = shard.machine, self._broker.clock.now_ms()
        machine.check_ready()
        machine.hold.begin(name, hold_ms=HOLD_MS, now_ms=now_ms)
        return Held(shard.epoch, not machine.is_committing)

    @operation(Action.ALTER, whole_cluster, owner=_coordinator, is_change=False)
    async def release_commits(self, session: Session, *, number: int, name: Text) -> bool:
        """Decide commits again; return whether none was decided since they were held."""
        shard = self._broker.transactions.shards.owned.get(number)
        if shard is None:
            return False
        return shard.machine.hold.end(name, now_ms=self._broker.clock.now_ms())


class _Node:
    """What this node knows of the cluster."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._confirming: Confirming | None = None

    def confirm(self) -> Promise[None]:
        """Resolves when this node has the metadata of now; a single node always has it."""
        broker = self._broker
        if broker.cluster is None:
            confirmed: Promise[None] = Promise()
            confirmed.resolve(None)
            return confirmed
        if self._confirming is None:
            quorum, wait_ms = broker.cluster.quorum, broker.settings.cluster.session_ms // 2
            self._confirming = Confirming(broker.clock, lambda: quorum.catch_up(timeout_ms=wait_ms))
        return self._confirming.confirm()

    def metadata(self) -> Metadata:
        # Entries are never changed, so a copy of the tables is the state of this moment.
        return self._broker.topics.facts.log.metadata.copy()

    def node_of(self, place: Place) -> int:
        topic_id, number = place
        return self._broker.leaders.node_of(self._broker.topics.get_by_id(topic_id), number)

    def epoch_of(self, place: Place) -> int:
        topic = self._broker.topics.find_by_id(place[0])
        return -1 if topic is None else self._broker.leaders.epoch_of(topic, place[1])


class _ClusterOf:
    """The cluster as the cut of a session sees it: every part is an operation of its own."""

    def __init__(self, area: BackupsArea, node: _Node, session: Session) -> None:
        self._area = area
        self._node = node
        self._session = session

    def catch_up(self) -> Promise[None]:
        return self._node.confirm()

    def facts(self) -> Metadata:
        return self._node.metadata()

    def epoch_of(self, place: Place) -> int:
        return self._node.epoch_of(place)

    def hold(self, number: int, name: str) -> Promise[Held]:
        return self._area.hold_commits(self._session, number=number, name=name)

    def release(self, number: int, name: str) -> Promise[bool]:
        return self._area.release_commits(self._session, number=number, name=name)

    def spans(self, places: Sequence[Place]) -> Promise[list[Span]]:
        return promised(self._spans(places))

    async def _spans(self, places: Sequence[Place]) -> list[Span]:
        found: dict[int, Span] = {}
        for wanted, spans in [
            (wanted, self._area.spans(self._session, node=node, places=[one for _, one in wanted]))
            for node, wanted in grouped(places, self._node.node_of).items()
        ]:
            for (position, _), span in zip(wanted, await spans, strict=True):
                found[position] = span
        return [found[position] for position in range(len(places))]
