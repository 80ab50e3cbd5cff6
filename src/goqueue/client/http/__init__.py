"""The client of the HTTP API, with threads (`Client`) and with coroutines (`AsyncClient`).

`requests` builds requests as values; `transport` sends them and retries. Operations of several
requests are state machines without connections (`consumers`, `batching`, `reading`) with two thin
wrappers, one for threads and one for coroutines. It depends on the bodies that cross the wire, and
on nothing inside the broker.
"""

from goqueue.client.errors import BrokerRefused, BrokerUnready, ConnectionLost, Unreachable
from goqueue.client.http.async_client import AsyncClient
from goqueue.client.http.batching import ProducerSettings
from goqueue.client.http.client import Client
from goqueue.client.http.consumers import (
    AsyncConsumer,
    AsyncStreamConsumer,
    Consumer,
    ConsumerSettings,
    Rebalance,
    Reject,
    Retry,
    StreamConsumer,
    Tally,
)
from goqueue.client.http.group_results import (
    Lanes,
    PeekedMessage,
    QueueGroup,
    QueueStats,
    StreamGroup,
)
from goqueue.client.http.messages import Json, Message, Outgoing, Published, ReceivedMessage
from goqueue.client.http.producer import AsyncProducer, PartlyPublished, Producer
from goqueue.client.http.reading import AsyncMessageReader, MessageReader
from goqueue.client.http.requests.cluster import PartitionState
from goqueue.client.http.requests.dead_letters import DeadLetter, LetterFilter, Redrive
from goqueue.client.http.requests.messages import Page
from goqueue.client.http.requests.schedules import Schedule
from goqueue.client.http.requests.schemas import SchemaConfig, SchemaReference, SchemaVersion
from goqueue.client.http.samples import Sample
from goqueue.client.http.settings import HttpSettings, RetrySettings
from goqueue.client.http.transactions import AsyncTransaction, Transaction
from goqueue.wire.http.bodies.acls import Acl, AclAction, NewAcl, Role, TestedAccess
from goqueue.wire.http.bodies.acls import Kind as AclKind
from goqueue.wire.http.bodies.acls import Permission as AclPermission
from goqueue.wire.http.bodies.acls import SelectAcls as AclSelection
from goqueue.wire.http.bodies.cluster import (
    Change,
    Cluster,
    ClusterHealth,
    ClusterLevel,
    Drain,
    MoveResult,
    MovingPartition,
    Node,
    PlacedPartition,
    Voter,
    Voters,
)
from goqueue.wire.http.bodies.groups import PartitionLag as GroupPartitionLag
from goqueue.wire.http.bodies.journeys import (
    Journey,
    JourneyEntry,
    JourneyEvent,
    JourneyMessage,
    JourneyOutcome,
    JourneyStanding,
    JourneySummary,
)
from goqueue.wire.http.bodies.quotas import Quota, QuotaUse
from goqueue.wire.http.bodies.tenants import Tenant
from goqueue.wire.http.bodies.tenants import Usage as TenantUsage
from goqueue.wire.http.bodies.users import Key, NewKey, User, Whoami

__all__ = [
    "Acl",
    "AclAction",
    "AclKind",
    "AclPermission",
    "AclSelection",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncMessageReader",
    "AsyncProducer",
    "AsyncStreamConsumer",
    "AsyncTransaction",
    "BrokerRefused",
    "BrokerUnready",
    "Change",
    "Client",
    "Cluster",
    "ClusterHealth",
    "ClusterLevel",
    "ConnectionLost",
    "Consumer",
    "ConsumerSettings",
    "DeadLetter",
    "Drain",
    "GroupPartitionLag",
    "HttpSettings",
    "Journey",
    "JourneyEntry",
    "JourneyEvent",
    "JourneyMessage",
    "JourneyOutcome",
    "JourneyStanding",
    "JourneySummary",
    "Json",
    "Key",
    "Lanes",
    "LetterFilter",
    "Message",
    "MessageReader",
    "MoveResult",
    "MovingPartition",
    "NewAcl",
    "NewKey",
    "Node",
    "Outgoing",
    "Page",
    "PartitionState",
    "PartlyPublished",
    "PeekedMessage",
    "PlacedPartition",
    "Producer",
    "ProducerSettings",
    "Published",
    "QueueGroup",
    "QueueStats",
    "Quota",
    "QuotaUse",
    "Rebalance",
    "ReceivedMessage",
    "Redrive",
    "Reject",
    "Retry",
    "RetrySettings",
    "Role",
    "Sample",
    "Schedule",
    "SchemaConfig",
    "SchemaReference",
    "SchemaVersion",
    "StreamConsumer",
    "StreamGroup",
    "Tally",
    "Tenant",
    "TenantUsage",
    "TestedAccess",
    "Transaction",
    "Unreachable",
    "User",
    "Voter",
    "Voters",
    "Whoami",
]
