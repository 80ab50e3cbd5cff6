"""The facts that a cluster agrees on, their keys, and their form on disk and between nodes.

A fact states the whole of one thing under a key; a later fact under the same key replaces it, and
`Forget` takes a key back. A decision is a run of such changes that take effect together.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

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
FEATURE_LEVEL = 2  # the newest kind of facts that this version understands
_DECISION_VERSION = 1

PartitionKey = tuple[bytes, int]  # the id of a topic and the number of a partition


class TopicFact(msgspec.Struct, frozen=True, tag="topic"):
    """A topic exists, with this many partitions and these settings of its own."""

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
    """The producer that a part of the broker is, so that its batches are known after a restart."""

    name: Name
    producer_id: ProducerId
    epoch: ProducerEpoch
    producer_id_before: ProducerId = -1  # until its epochs were used up

    @property
    def key(self) -> bytes:
        return NAMED_PRODUCER_PREFIX + self.name.encode()


class QueueGroupFact(msgspec.Struct, frozen=True, tag="queue_group"):
    """A queue group exists, with these settings. A group of that name made later has another id."""

    id: bytes
    name: str
    settings: dict[str, int | float | bool | str] = {}

    @property
    def key(self) -> bytes:
        return QUEUE_GROUP_PREFIX + self.name.encode()


class NamedQueueFact(msgspec.Struct, frozen=True, tag="named_queue", omit_defaults=True):
    """A name under which clients send to a topic and receive from it as a queue group."""

    id: bytes
    name: str
    topic: str
    group: str
    created_ms: Milliseconds
    modified_ms: Milliseconds
    attributes: dict[str, str] = {}  # what they mean is for those to say who set them
    tags: dict[str, str] = {}
    is_ordered: bool = False  # messages of one key come in order, and duplicates are not stored
    made_topic: bool = False  # the topic came with the queue and goes with it
    version: Version = 1  # one more than that which it replaces
    # By partition: deduplication ids of records below these offsets do not count any more.
    ids_forgotten: tuple[tuple[PartitionNumber, Offset], ...] = ()

    @property
    def key(self) -> bytes:
        return NAMED_QUEUE_PREFIX + self.name.encode()


class JobFact(msgspec.Struct, frozen=True, tag="job"):
    """Long work that survives restarts; whoever does it knows what its body means."""

    kind: str
    id: str
    body: bytes
    # Where nodes may contend for a job, one more than that which it replaces; else 0.
    version: Version = 0

    @property
    def key(self) -> bytes:
        return JOB_PREFIX + f"{self.kind}/{self.id}".encode()


class ConfigFact(msgspec.Struct, frozen=True, tag="config"):
    """Settings that were changed while the cluster runs, of a node, of all nodes, or of a group."""

    kind: str  # BROKER_CONFIG or GROUP_CONFIG
    name: str  # of the group, or the id of the node; empty for all nodes
    settings: dict[str, str]

    @property
    def key(self) -> bytes:
        return config_key(self.kind, self.name)


class ClusterFact(msgspec.Struct, frozen=True, tag="cluster"):
    """Which cluster this is, and the newest kind of facts that its log may contain."""

    cluster_id: str
    feature_level: Version = FEATURE_LEVEL

    @property
    def key(self) -> bytes:
        return CLUSTER_KEY


class NodeFact(msgspec.Struct, frozen=True, tag="node", omit_defaults=True):
    """A node belongs to the cluster; a new incarnation begins with each start of its process."""

    id: NodeId
    incarnation: Identity
    addresses: Addresses = {}  # by the name of the listener
    is_fenced: bool = True  # it leads nothing and counts in no in-sync set
    is_draining: bool = False  # an operator wants it to lead nothing, until the wish is taken back
    is_stopping: bool = False  # it wants to lead nothing itself, until it starts again
    rack: str = ""
    disk: Identity = b""  # made together with its data; another one means that the data is lost
    # Bytes per second that it sends to copies not in sync, and that such copies of its own take; 0
    # leaves that to its settings.
    feeding_bytes_per_second: BytesPerSecond = 0
    catching_up_bytes_per_second: BytesPerSecond = 0

    @property
    def key(self) -> bytes:
        return node_key(self.id)

    @property
    def takes_leaders(self) -> bool:
        return not (self.is_fenced or self.is_draining or self.is_stopping)


class Claim(msgspec.Struct, frozen=True, order=True, array_like=True):
    """How far a copy is whole. Of two, the greater has all that the lesser has."""

    last_epoch: LeaderEpoch
    end_offset: Offset


NOTHING_CLAIMED = Claim(-1, -1)  # the copy cannot be opened, and what it has is not known yet


class PartitionFact(msgspec.Struct, frozen=True, tag="partition", omit_defaults=True):
    """Who keeps a partition, who of them has all that is committed, and who leads.

    While replicas are being moved, `replicas` are those from before, `adding` are new ones that
    already follow, `removing` will go, and `target` is the list that will replace `replicas`.
    """

    topic_id: TopicId
    number: PartitionNumber
    replicas: NodeIds  # the first one leads when it can
    in_sync: NodeIds
    leader: NodeIdOrNone = NO_LEADER
    leader_epoch: LeaderEpoch = 0  # grows whenever the leader changes
    version: Version = 0  # grows with every change
    adding: NodeIds = ()
    removing: NodeIds = ()
    target: NodeIds = ()
    # All in-sync members have lost their disks. Only an operator may decide to go on without what
    # was committed.
    is_lost: bool = False
    # While nobody leads: what nodes still have whose copies may lack what was committed, by node.
    claims: tuple[tuple[NodeId, Claim], ...] = ()
    # What each node may send to new copies of all partitions that move with the same throttle; 0
    # for no such limit. It ends with the move.
    throttle_bytes_per_second: BytesPerSecond = 0

    @property
    def key(self) -> bytes:
        return PARTITION_PREFIX + f"{self.topic_id.hex()}/{self.number}".encode()

    @property
    def place(self) -> PartitionKey:
        return self.topic_id, self.number

    @property
    def members(self) -> tuple[int, ...]:
        """All nodes that keep the partition now, in the order in which they should lead."""
        return self.replicas + self.adding

    @property
    def claimed(self) -> dict[int, Claim]:
        return dict(self.claims)

    @property
    def is_moving(self) -> bool:
        return bool(self.target)


class RoutingEpoch(msgspec.Struct, frozen=True):
    """Keys were spread over this many partitions, and no longer from these offsets on."""

    partition_count: PartitionCount
    ends: tuple[Offset, ...]  # per partition; END_UNKNOWN until its leader has told


class RoutingFact(msgspec.Struct, frozen=True, tag="routing"):
    """How the keys of a topic that has grown were spread over its partitions, oldest first."""

    topic_id: TopicId
    ended: tuple[RoutingEpoch, ...]

    @property
    def key(self) -> bytes:
        return routing_key(self.topic_id)


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """What was stated under this key no longer holds."""

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
)
Change = Fact | Forget
Decision = tuple[Change, ...]

# Sorted keys make equal facts equal bytes, whoever has made them.
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
    """The bytes of a decision that every node can read; MalformedRequest if none could.

    What is in the log of the quorum cannot be taken back, and a node that cannot read it stops. So
    the controller makes sure of it before it proposes anything.
    """
    try:
        data = encode_decision(changes)
    except (OverflowError, UnicodeEncodeError) as error:
        raise MalformedRequest(f"A decision cannot be written: {error}.") from error
    decode_decision(data)
    return data


def decode_decision(data: bytes | memoryview) -> Decision:
    """The changes of a decision.

    Nodes that passed over what they do not understand would no longer agree, so an unknown kind of
    change is an error here.
    """
    if not data:
        raise MalformedRequest("An empty decision cannot be read.")
    if data[0] != _DECISION_VERSION:
        raise UnsupportedVersion(
            f"The cluster has made a decision of version {data[0]}, and this node understands "
            f"version {_DECISION_VERSION}; upgrade it."
        )
    try:
        return _decoder.decode(data[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"A decision of the cluster cannot be read: {error}.") from error
