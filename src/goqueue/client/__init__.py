"""A small synchronous client of a Kafka listener, for the command line and for Spark tasks.

It manages topics, groups and settings, writes records, and reads partitions from given offsets. It
does not join groups and starts no threads: every object belongs to one thread and works only inside
the calls made to it.

    from goqueue.client import LogClient, Position

    with LogClient("127.0.0.1:9092") as client:
        client.topics.create("orders", partition_count=3)
        with client.producer() as producer:
            producer.send("orders", b"hello", key=b"42")
        reader = client.reader(["orders"], Position.earliest(), until=Position.latest())
        for record in reader.records():
            print(record.offset, record.value)

The main class is called `LogClient` because its concepts are logs, offsets and partitions; the name
`Client` belongs to the HTTP API, whose concepts are messages and queues.
"""

from goqueue.client.addresses import Address, read_addresses
from goqueue.client.cluster import Cluster, Node, PartitionView, TopicView
from goqueue.client.configs import ConfigEntry, ConfigOwner, Configs, ConfigSource
from goqueue.client.connection import Connection
from goqueue.client.errors import (
    KAFKA_ERRORS,
    BrokerRefused,
    BrokerUnready,
    ConnectionLost,
    HungUp,
    TlsFailed,
    Unreachable,
    error_of,
)
from goqueue.client.groups import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    Groups,
    GroupSummary,
    PartitionLag,
)
from goqueue.client.http_listener import find_http, reachable
from goqueue.client.log_client import LogClient
from goqueue.client.nodes import ClusterDescription, LogDir, Nodes
from goqueue.client.offsets import FoundOffset, Offsets, PartitionRange
from goqueue.client.partitioner import murmur2, partition_of_key
from goqueue.client.positions import Position, PositionKind
from goqueue.client.producer import Delivery, Producer, ProducerTransaction, Stored
from goqueue.client.reader import RawBatch, Reader, ReadRecord, start_reading
from goqueue.client.security import SASL_MECHANISMS, SaslSettings, TlsSettings, sasl_of_api_key
from goqueue.client.settings import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    ClientSettings,
    ProducerSettings,
    ReaderSettings,
)
from goqueue.client.topics import PartitionDescription, TopicDescription, Topics
from goqueue.client.transactions import (
    OpenTransaction,
    TransactionDescription,
    Transactions,
    TransactionSummary,
)

__all__ = [
    "ACKS_ALL",
    "ACKS_LEADER",
    "ACKS_NONE",
    "KAFKA_ERRORS",
    "SASL_MECHANISMS",
    "Address",
    "BrokerRefused",
    "BrokerUnready",
    "ClientSettings",
    "Cluster",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigOwner",
    "ConfigSource",
    "Configs",
    "Connection",
    "ConnectionLost",
    "Delivery",
    "FoundOffset",
    "GroupDescription",
    "GroupMember",
    "GroupSummary",
    "Groups",
    "HungUp",
    "LogClient",
    "LogDir",
    "Node",
    "Nodes",
    "Offsets",
    "OpenTransaction",
    "PartitionDescription",
    "PartitionLag",
    "PartitionRange",
    "PartitionView",
    "Position",
    "PositionKind",
    "Producer",
    "ProducerSettings",
    "ProducerTransaction",
    "RawBatch",
    "ReadRecord",
    "Reader",
    "ReaderSettings",
    "SaslSettings",
    "Stored",
    "TlsFailed",
    "TlsSettings",
    "TopicDescription",
    "TopicView",
    "Topics",
    "TransactionDescription",
    "TransactionSummary",
    "Transactions",
    "Unreachable",
    "error_of",
    "find_http",
    "murmur2",
    "partition_of_key",
    "reachable",
    "read_addresses",
    "sasl_of_api_key",
    "start_reading",
]
