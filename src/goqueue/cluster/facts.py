"""The metadata entries of a cluster, their keys and their encoding.

An entry (`TopicFact`, `NodeFact` and so on) is the complete state of one thing under a key; a later
entry under the same key replaces it, and `Forget` removes a key. A decision is a sequence of such
changes that take effect atomically.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from goqueue.cluster.identity_facts import IdentityFact
from goqueue.model.bounds import (
    Addresses,
    BytesPerSecond,
    Identity,
    LeaderEpoch,
    Milliseconds,
    Name,
    NodeId,
    NodeIdOrNone,
    NodeIds,
    Offset,
    PartitionCount,
    PartitionNumber,
    ProducerEpoch,
    ProducerId,
    TopicId,
    Version,
)
from goqueue.model.errors import MalformedRequest, UnsupportedVersion
from goqueue.model.support import LEVEL_MIN, Support
from goqueue.model.tenants import GroupName, QueueName, Text, TopicName

TOPIC_PREFIX = b"topic/"
PRODUCER_ID_KEY = b"producer-id"
NAMED_PRODUCER_PREFIX = b"producer/"
QUEUE_GROUP_PREFIX = b"queue-group/"
NAMED_QUEUE_PREFIX = b"named-queue/"
JOB_PREFIX = b"job/"
CLUSTER_KEY = b"cluster"
NODE_PREFIX = b"node/"
PARTITION_PREFIX = b"partition/"
ROUTING_PREFIX = b"routing/"
CONFIG_PREFIX = b"config/"

BROKER_CONFIG = "broker"
GROUP_CONFIG = "group"

NO_LEADER = -1
END_UNKNOWN = -1
_DECISION_VERSION = 1

PartitionKey = tuple[bytes, int]  # topic id and partition number


class TopicFact(msgspec.Struct, frozen=True, tag="topic"):
    """A topic, with its partition count and its own settings."""

    id: TopicId
    name: Name
    partition_count: PartitionCount
    settings: dict[str, str] = {}
    leader_epoch: LeaderEpoch = 0

    @property
    def key(self) -> bytes:
        return TOPIC_PREFIX + self.name.encode()


class NextProducerId(msgspec.Struct, frozen=True, tag="producer_id"):
    """Producer ids below this one may be in use."""

    value: ProducerId

    @property
    def key(self) -> bytes:
        return PRODUCER_ID_KEY


class NamedProducer(msgspec.Struct, frozen=True, tag="named_producer"):
    """The producer identity of a part of the broker; its batches are recognised after restarts."""

    name: Name
    producer_id: ProducerId
    epoch: ProducerEpoch
    producer_id_before: ProducerId = -1  # the one before, whose epochs were exhausted

    @property
    def key(self) -> bytes:
        return NAMED_PRODUCER_PREFIX + self.name.encode()


class QueueGroupFact(msgspec.Struct, frozen=True, tag="queue_group"):
    """A queue group and its settings. A later group of the same name has another id."""

    id: bytes
    name: str
    settings: dict[str, int | float | bool | str] = {}

    @property
    def key(self) -> bytes:
        return QUEUE_GROUP_PREFIX + self.name.encode()


class NamedQueueFact(msgspec.Struct, frozen=True, tag="named_queue", omit_defaults=True):
    """A name under which clients send to a topic and receive from it as a queue group."""

    id: bytes
    name: QueueName
    topic: TopicName
    group: GroupName
    created_ms: Milliseconds
    modified_ms: Milliseconds
    attributes: dict[Text, Text] = {}  # interpreted only by those that set them
    tags: dict[Text, Text] = {}
    is_ordered: bool = False  # messages of one key stay in order, and duplicates are not stored
    made_topic: bool = False  # the topic was created with the queue and is deleted with it
    version: Version = 1  # one more than the version it replaces
    # By partition: deduplication ids of records below these offsets no longer count.
    ids_forgotten: tuple[tuple[PartitionNumber, Offset], ...] = ()

    @property
    def key(self) -> bytes:
        return NAMED_QUEUE_PREFIX + self.name.encode()


class JobFact(msgspec.Struct, frozen=True, tag="job"):
    """A long-running job that survives restarts; its body is opaque here."""

    kind: str
    id: str
    body: bytes
    # If nodes may contend for a job, one more than the version it replaces; otherwise 0.
    version: Version = 0

    @property
    def key(self) -> bytes:
        return JOB_PREFIX + f"{self.kind}/{self.id}".encode()


class ConfigFact(msgspec.Struct, frozen=True, tag="config"):
    """Settings changed at run time, of a node, of all nodes or of a group."""

    kind: str  # BROKER_CONFIG or GROUP_CONFIG
    name: str  # group name or node id; empty for all nodes
    settings: dict[str, str]

    @property
    def key(self) -> bytes:
        return config_key(self.kind, self.name)


class ClusterFact(msgspec.Struct, frozen=True, tag="cluster"):
    """The identity of the cluster, and the feature level that its log may use."""

    cluster_id: str
    feature_level: Version = LEVEL_MIN
    # The newest level of the release that formed the cluster; 0 for releases before level 3.
    formed_level: Version = 0

    @property
    def key(self) -> bytes:
        return CLUSTER_KEY


class NodeFact(msgspec.Struct, frozen=True, tag="node", omit_defaults=True):
    """A member of the cluster; each start of its process begins a new incarnation."""

    id: NodeId
    incarnation: Identity
    addresses: Addresses = {}  # by listener name
    is_fenced: bool = True  # it leads nothing and is in no in-sync set
    is_draining: bool = False  # drained by an operator, until that is ended
    is_stopping: bool = False  # drained by the node itself before it stops
    rack: str = ""
    disk: Identity = b""  # disk id, created with the data; another one means that the data is lost
    # Bytes per second that it sends to replicas not in sync, and that its own such replicas fetch;
    # 0 means the limit of its settings.
    feeding_bytes_per_second: BytesPerSecond = 0
    catching_up_bytes_per_second: BytesPerSecond = 0
    support: Support | None = None  # of its release; controllers of level 2 drop it

    @property
    def key(self) -> bytes:
        return node_key(self.id)

    @property
    def takes_leaders(self) -> bool:
        return not (self.is_fenced or self.is_draining or self.is_stopping)


class Claim(msgspec.Struct, frozen=True, order=True, array_like=True):
    """How far a replica is intact. The replica with the greater claim has everything."""

    last_epoch: LeaderEpoch
    end_offset: Offset


NOTHING_CLAIMED = Claim(-1, -1)  # the replica cannot be opened, so its content is unknown


class PartitionFact(msgspec.Struct, frozen=True, tag="partition", omit_defaults=True):
    """Replicas, in-sync set and leader of a partition.

    During a reassignment, `replicas` are the former ones, `adding` are new ones that already
    follow, `removing` will be removed, and `target` is the list that will replace `replicas`.
    """

    topic_id: TopicId
    number: PartitionNumber
    replicas: NodeIds  # the first is the preferred leader
    in_sync: NodeIds
    leader: NodeIdOrNone = NO_LEADER
    leader_epoch: LeaderEpoch = 0  # raised whenever the leader changes
    version: Version = 0  # raised with every change
    adding: NodeIds = ()
    removing: NodeIds = ()
    target: NodeIds = ()
    # All in-sync members have lost their disks. Only an operator may decide to continue without
    # what was committed.
    is_lost: bool = False
    # While there is no leader: by node, what replicas have that may lack committed records.
    claims: tuple[tuple[NodeId, Claim], ...] = ()
    # What each node may send to new replicas of all partitions that move with the same throttle; 0
    # is no such limit. It ends with the move.
    throttle_bytes_per_second: BytesPerSecond = 0

    @property
    def key(self) -> bytes:
        return PARTITION_PREFIX + f"{self.topic_id.hex()}/{self.number}".encode()

    @property
    def place(self) -> PartitionKey:
        return self.topic_id, self.number

    @property
    def members(self) -> tuple[int, ...]:
        """Return all nodes with a replica, in order of preference as leader."""
        return self.replicas + self.adding

    @property
    def claimed(self) -> dict[int, Claim]:
        return dict(self.claims)

    @property
    def is_moving(self) -> bool:
        return bool(self.target)


class RoutingEpoch(msgspec.Struct, frozen=True):
    """Keys were distributed over this many partitions up to these offsets."""

    partition_count: PartitionCount
    ends: tuple[Offset, ...]  # per partition; END_UNKNOWN until its leader has reported it


class RoutingFact(msgspec.Struct, frozen=True, tag="routing"):
    """How the keys of a topic that has grown were distributed over its partitions, oldest first."""

    topic_id: TopicId
    ended: tuple[RoutingEpoch, ...]

    @property
    def key(self) -> bytes:
        return routing_key(self.topic_id)


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Removes the entry under this key."""

    key: bytes


Fact = (
    TopicFact
    | NextProducerId
    | NamedProducer
    | QueueGroupFact
    | NamedQueueFact
    | JobFact
    | ClusterFact
    | NodeFact
    | PartitionFact
    | RoutingFact
    | ConfigFact
    | IdentityFact
)
Change = Fact | Forget
Decision = tuple[Change, ...]


class WholeState(tuple[Change, ...]):
    """All entries, after those that are gone: a snapshot has replaced the whole state.

    Whoever follows decisions drops what is not in it.
    """

    __slots__ = ()


# Sorted keys encode equal entries to equal bytes on every node.
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(tuple[Change, ...])


def config_key(kind: str, name: str) -> bytes:
    return CONFIG_PREFIX + f"{kind}/{name}".encode()


def node_key(node: int) -> bytes:
    return NODE_PREFIX + str(node).encode()


def routing_key(topic_id: bytes) -> bytes:
    return ROUTING_PREFIX + topic_id.hex().encode()


def encode_decision(changes: Iterable[Change]) -> bytes:
    return bytes([_DECISION_VERSION]) + _encoder.encode(tuple(changes))


def encode_readable(changes: Iterable[Change]) -> bytes:
    """Encode a decision that every node can decode; raise MalformedRequest otherwise.

    An entry of the quorum's log cannot be undone, and a node that cannot decode it stops. So the
    controller checks this before it proposes anything.
    """
    try:
        data = encode_decision(changes)
    except (OverflowError, UnicodeEncodeError) as error:
        raise MalformedRequest(f"A metadata entry cannot be encoded: {error}.") from error
    decode_decision(data)
    return data


def decode_decision(data: bytes | memoryview) -> Decision:
    """Decode the changes of a decision.

    Nodes that skipped changes they do not understand would diverge, so an unknown kind of change is
    an error.
    """
    if not data:
        raise MalformedRequest("A metadata entry is empty.")
    if data[0] != _DECISION_VERSION:
        raise UnsupportedVersion(
            f"The cluster has a metadata entry of version {data[0]}, and this node supports "
            f"version {_DECISION_VERSION}; upgrade this node."
        )
    try:
        return _decoder.decode(data[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"A metadata entry cannot be decoded: {error}.") from error
