"""Operations on this node: what it is, how it does, and what is on its disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.broker.gate.operation import Area, cluster, everybody, query
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session

__all__ = ["Identity", "LogDirectory", "NodeArea", "NodeHealth"]


class Identity(NamedTuple):
    """A node and its cluster, whose id is empty until the node belongs to one."""

    node_id: int
    cluster_id: str


class NodeHealth(NamedTuple):
    """What a node cannot do."""

    is_full: bool
    failed: Sequence[TopicPartition]  # partitions that cannot be written


class LogDirectory(NamedTuple):
    """The data folder of a node, and the bytes of the replicas in it by topic and partition."""

    path: str
    total_bytes: int
    free_bytes: int
    replicas: Mapping[str, Mapping[int, int]]


class NodeArea(Area):
    """This node. Who it is and whether it works is public: probes have no identity."""

    @query(Action.DESCRIBE, everybody)
    def identity(self, session: Session) -> Identity:
        """Which node this is, of which cluster."""
        return Identity(self._broker.node_id, self._broker.cluster_id)

    @query(Action.DESCRIBE, everybody)
    def health(self, session: Session) -> NodeHealth:
        """What this node cannot do."""
        partitions = self._broker.topics.partitions()
        failed = [one.name for one in partitions if one.failure is not None]
        return NodeHealth(self._broker.upkeep.is_full, failed)

    @query(Action.DESCRIBE, everybody)
    def waits_for(self, session: Session) -> str:
        """Why this node cannot serve yet, as a sentence; empty if it can."""
        cluster = self._broker.cluster
        return "" if cluster is None else cluster.waits_for

    @query(Action.DESCRIBE, everybody)
    def addresses(self, session: Session) -> Mapping[str, str]:
        """Where clients find this node, by the name of the listener, as far as that is known."""
        known = self._broker.administration.find_node(self._broker.node_id)
        return {} if known is None else known.addresses

    @query(Action.DESCRIBE, everybody)
    def rack(self, session: Session) -> str:
        """The rack of this node; empty where it has none."""
        return self._broker.settings.cluster.rack

    @query(Action.DESCRIBE, cluster)
    def free_bytes(self, session: Session) -> int:
        """What is free on the disk."""
        return self._broker.free_bytes()

    @query(Action.DESCRIBE, cluster)
    def log_directory(
        self, session: Session, *, partitions: Sequence[tuple[str, Sequence[int]]] | None = None
    ) -> LogDirectory:
        """The data folder, with the replicas of some topics or of all; leaves out unknown ones."""
        broker = self._broker
        if partitions is None:
            partitions = [(one.name, range(one.partition_count)) for one in broker.topics]
        replicas: dict[str, dict[int, int]] = {}
        for name, numbers in partitions:
            topic = broker.topics.find(name)
            resource = Resource(ResourceKind.TOPIC, name)
            if topic is None or not self._may(session, Action.DESCRIBE, resource):
                continue
            replicas[name] = {
                number: topic.partitions[number].log.size
                for number in numbers
                if 0 <= number < topic.partition_count
                and broker.topics.keeps(topic.partitions[number])
            }
        return LogDirectory(
            str(broker.settings.node.data_dir),
            broker.total_bytes(),
            broker.free_bytes(),
            replicas,
        )

    @query(Action.ALTER, cluster)
    def keeps(self, session: Session, *, topic: str, partition: int) -> bool:
        """Whether this node has a replica of a partition; raises if there is no such partition."""
        return self._broker.topics.keeps(self._broker.topics.get(topic).partition(partition))

    @query(Action.ALTER, cluster)
    def data_directory(self, session: Session) -> str:
        """The one folder that replicas are in."""
        return str(self._broker.settings.node.data_dir)
