"""`LogClient`, the entry point: it has an object for each group of operations."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from goqueue.client.cluster import Cluster
from goqueue.client.configs import Configs
from goqueue.client.groups import Groups
from goqueue.client.nodes import Nodes
from goqueue.client.offsets import Offsets
from goqueue.client.positions import Position
from goqueue.client.producer import Producer, ProducerTransaction
from goqueue.client.reader import Reader, start_reading
from goqueue.client.settings import ClientSettings, ProducerSettings, ReaderSettings
from goqueue.client.topics import Topics
from goqueue.client.transactions import Transactions
from goqueue.model.names import TopicPartition


class LogClient:
    """A client of the brokers behind a Kafka address. It belongs to one thread.

    >>> with LogClient("127.0.0.1:9092") as client:
    ...     client.topics.create("orders", partition_count=3)
    ...     with client.producer() as producer:
    ...         producer.send("orders", b"hello", key=b"42")
    """

    def __init__(self, bootstrap: str, settings: ClientSettings | None = None) -> None:
        self.bootstrap = bootstrap
        self.settings = settings or ClientSettings()
        self.cluster = Cluster(bootstrap, self.settings)
        self.topics = Topics(self.cluster)
        self.configs = Configs(self.cluster)
        self.groups = Groups(self.cluster)
        self.offsets = Offsets(self.cluster)
        self.nodes = Nodes(self.cluster)
        self.transactions = Transactions(self.cluster)

    def __enter__(self) -> LogClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; producers close their own."""
        self.cluster.close()

    def producer(
        self,
        settings: ProducerSettings | None = None,
        *,
        transaction: ProducerTransaction | None = None,
    ) -> Producer:
        """Return a producer with its own connections, so that another thread may use it.

        With a `transaction` that was begun elsewhere, all records are part of it.
        """
        cluster = Cluster(self.bootstrap, self.settings)
        return Producer(cluster, settings, transaction=transaction)

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of some topics."""
        return [partition for name in topics for partition in self.topics.view(name).names]

    def reader(
        self,
        topics: Iterable[str],
        start: Position,
        *,
        until: Position | None = None,
        settings: ReaderSettings | None = None,
    ) -> Reader:
        """Read whole topics; `until` is resolved now, and without it reading never ends."""
        partitions = self.partitions(topics)
        return start_reading(self.cluster, partitions, start, until=until, settings=settings)
