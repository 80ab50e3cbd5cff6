"""Operations on this node: its identity, health, storage and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.broker.gate.operation import Area, cluster, everybody, operation, query
from goqueue.loop.promise import Cancellation, Promise
from goqueue.metrics import catalogue
from goqueue.metrics.text_format import TextFormat
from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind
from goqueue.model.errors import InvalidRequest, MetricsDisabled
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session
from goqueue.model.tenants import ClusterId, Text, TopicName

__all__ = [
    "MEDIA_TYPES",
    "Identity",
    "LogDirectory",
    "MetricsArea",
    "NodeArea",
    "NodeHealth",
]

_FORMATS = {"prometheus": TextFormat.PROMETHEUS, "openmetrics": TextFormat.OPENMETRICS}
MEDIA_TYPES = {name: one.value for name, one in _FORMATS.items()}


class Identity(NamedTuple):
    """A node and its cluster, whose id is empty until the node has joined one."""

    node_id: int
    cluster_id: ClusterId


class NodeHealth(NamedTuple):
    """What prevents a node from accepting writes."""

    is_full: bool
    failed_count: int  # of partitions that cannot be written
    failed: Sequence[TopicPartition]  # those of topics that the session may describe


class LogDirectory(NamedTuple):
    """The data folder of a node, and the size of its replicas by topic and partition."""

    path: Text
    total_bytes: int
    free_bytes: int
    replicas: Mapping[TopicName, Mapping[int, int]]


class NodeArea(Area):
    """This node. Identity and health are public, because probes have no identity."""

    @query(Action.DESCRIBE, everybody)
    def identity(self, session: Session) -> Identity:
        """Return the id of this node and of its cluster."""
        return Identity(self._broker.node_id, self._broker.cluster_id)

    @query(Action.DESCRIBE, everybody)
    def health(self, session: Session) -> NodeHealth:
        """Return what prevents this node from accepting writes."""
        partitions = self._broker.topics.partitions()
        failed = [one.name for one in partitions if one.failure is not None]
        seen = [one for one in failed if self._sees_topic(session, one.topic)]
        return NodeHealth(self._broker.upkeep.is_full, len(failed), seen)

    @query(Action.DESCRIBE, everybody)
    def waits_for(self, session: Session) -> Text:
        """Return why this node cannot serve yet, as a sentence; empty if it can."""
        cluster = self._broker.cluster
        return "" if cluster is None else cluster.waits_for

    @query(Action.DESCRIBE, everybody)
    def catches_up(self, session: Session) -> Text:
        """Return what keeps this node from being in sync after its start; empty if nothing does."""
        cluster = self._broker.cluster
        return "" if cluster is None else cluster.catching_up.waits_for

    @query(Action.DESCRIBE, everybody)
    def addresses(self, session: Session) -> Mapping[Text, Text]:
        """Return the registered addresses of this node for clients, by listener."""
        known = self._broker.administration.find_node(self._broker.node_id)
        return {} if known is None else known.addresses

    @query(Action.DESCRIBE, everybody)
    def rack(self, session: Session) -> Text:
        """Return the rack of this node; empty if it has none."""
        return self._broker.settings.cluster.rack

    @query(Action.DESCRIBE, cluster)
    def free_bytes(self, session: Session) -> int:
        """Return the free bytes on the disk."""
        return self._broker.free_bytes()

    @query(Action.DESCRIBE, cluster)
    def log_directory(
        self,
        session: Session,
        *,
        partitions: Sequence[tuple[TopicName, Sequence[int]]] | None = None,
    ) -> LogDirectory:
        """Return the data folder with the replicas of some topics or of all; skip unknown ones."""
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
    def keeps(self, session: Session, *, topic: TopicName, partition: int) -> bool:
        """Whether this node has a replica of a partition; raise if it does not exist."""
        return self._broker.topics.keeps(self._broker.topics.get(topic).partition(partition))

    @query(Action.ALTER, cluster)
    def data_directory(self, session: Session) -> Text:
        """Return the folder that holds all replicas."""
        return str(self._broker.settings.node.data_dir)


class MetricsArea(Area):
    """Metrics: scrape. Only operators see the series of all tenants."""

    # The method checks the right, because a setting may open metrics to everybody.
    @operation(Action.DESCRIBE, everybody, is_reading=True)
    def scrape(
        self,
        session: Session,
        *,
        text_format: Text,
        families: Sequence[Text] = (),
        cancellation: Cancellation,
    ) -> Promise[bytes]:
        """Return the metrics as text; only these families of details, if there are any."""
        if not self._broker.settings.security.open_metrics:
            self._check(session, Action.DESCRIBE, CLUSTER)
        if not self._broker.settings.metrics.enabled:
            raise MetricsDisabled
        unknown = [one for one in families if one not in catalogue.DETAILS]
        if unknown or text_format not in _FORMATS:
            raise InvalidRequest(
                f"There are no details of {(unknown or [text_format])[0][:100]!r}; "
                f"use {', '.join(catalogue.DETAILS)}."
            )
        # Imported here, because a node that nobody scrapes does not need it.
        from goqueue.broker.metrics.scrape import Wanted

        wanted = Wanted(frozenset(families), _FORMATS[text_format], self._tenant(session))
        return self._broker.measuring.scraper.scrape(wanted, cancellation)

    def _tenant(self, session: Session) -> str | None:
        """Return the tenant whose series a session sees; None if it sees everything."""
        if session.tenant:
            return session.tenant
        namespaces, security = self._dispatcher.namespaces, self._broker.settings.security
        if security.open_metrics or not namespaces.is_used or namespaces.is_operator(session):
            return None
        return ""
