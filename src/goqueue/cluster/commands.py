"""What a node may ask the cluster to decide.

A command is decided where all earlier decisions are known: it looks at the metadata and gives the
changes to make, and an answer for whoever asked. So two nodes that want the same thing at the
same time cannot both get it.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from goqueue.cluster.facts import (
    Claim,
    ConfigFact,
    Decision,
    Forget,
    JobFact,
    NamedProducer,
    NamedQueueFact,
    NextProducerId,
    QueueGroupFact,
    TopicFact,
    config_key,
)
from goqueue.cluster.metadata import Metadata
from goqueue.model.bounds import (
    Addresses,
    BytesPerSecond,
    Identity,
    LeaderEpoch,
    Name,
    NodeId,
    NodeIdOrNone,
    NodeIds,
    Offset,
    PartitionCount,
    PartitionNumber,
    TopicId,
    Version,
)
from goqueue.model.errors import (
    InvalidRequest,
    MalformedRequest,
    QueueExists,
    StalePartitionVersion,
    TopicExists,
    UnknownQueue,
    UnknownTopic,
)

CONFIGS_MAX = 10_000
PRODUCER_EPOCH_MAX = (1 << 15) - 2  # the last one that another may still follow

Result: TypeAlias = int | NamedProducer | None
Decided = tuple[Decision, Result]


class CreateTopic(msgspec.Struct, frozen=True, tag="create_topic"):
    id: TopicId
    name: Name
    partition_count: PartitionCount
    settings: dict[str, str] = {}
    replication_factor: NodeIdOrNone = -1  # as many as the cluster has by default
    assignment: tuple[NodeIds, ...] = ()  # who keeps each partition, if that is wanted

    def decide(self, metadata: Metadata) -> Decided:
        if metadata.topic(self.name) is not None:
            raise TopicExists(self.name)
        return (TopicFact(self.id, self.name, self.partition_count, self.settings),), None


class ChangeTopic(msgspec.Struct, frozen=True, tag="change_topic"):
    """Give a topic these settings of its own and no others, and at least so many partitions."""

    id: TopicId
    name: Name
    partition_count: PartitionCount
    settings: dict[str, str]

    def decide(self, metadata: Metadata) -> Decided:
        known = _topic(metadata, self.id, self.name)
        count = max(known.partition_count, self.partition_count)
        fact = msgspec.structs.replace(known, partition_count=count, settings=self.settings)
        return (fact,), None


class DeleteTopic(msgspec.Struct, frozen=True, tag="delete_topic"):
    id: TopicId
    name: Name

    def decide(self, metadata: Metadata) -> Decided:
        return (Forget(_topic(metadata, self.id, self.name).key),), None


class ReserveProducerIds(msgspec.Struct, frozen=True, tag="reserve_producer_ids"):
    """The first of so many producer ids that nobody has had before."""

    count: Annotated[int, Meta(ge=1, le=1 << 20)]

    def decide(self, metadata: Metadata) -> Decided:
        first = metadata.next_producer_id
        return (NextProducerId(first + self.count),), first


class TakeOverProducer(msgspec.Struct, frozen=True, tag="take_over_producer"):
    """Be this producer from now on; whoever was it before is turned away."""

    name: Name

    def decide(self, metadata: Metadata) -> Decided:
        before = metadata.producers.get(self.name)
        if before is not None and before.epoch < PRODUCER_EPOCH_MAX:
            fact = msgspec.structs.replace(before, epoch=before.epoch + 1)
            return (fact,), fact
        producer_id = metadata.next_producer_id
        old = -1 if before is None else before.producer_id
        fact = NamedProducer(self.name, producer_id, 0, old)
        return (NextProducerId(producer_id + 1), fact), fact


class PutQueueGroup(msgspec.Struct, frozen=True, tag="put_queue_group"):
    """A queue group exists from now on, or has other settings unless it `keeps_known` ones."""

    fact: QueueGroupFact
    keeps_known: bool = False

    def decide(self, metadata: Metadata) -> Decided:
        known = metadata.queue_groups.get(self.fact.name)
        if known is None:
            return (self.fact,), None
        if self.keeps_known:
            return (known,), None
        return (msgspec.structs.replace(known, settings=self.fact.settings),), None


class PutNamedQueue(msgspec.Struct, frozen=True, tag="put_named_queue"):
    """A queue has a name from now on, or other attributes. Its version must follow the known one.

    Whoever finds that another has changed it meanwhile looks again and repeats the change.
    """

    fact: NamedQueueFact

    def decide(self, metadata: Metadata) -> Decided:
        known = metadata.named_queues.get(self.fact.name)
        if known == self.fact:
            return (known,), None  # The answer to the first asking was lost.
        if known is None and self.fact.version > 1:
            raise UnknownQueue(self.fact.name)
        if known is not None and known.id != self.fact.id:
            raise QueueExists(self.fact.name)
        if known is not None and self.fact.version != known.version + 1:
            raise StalePartitionVersion(
                f"Version {self.fact.version} of queue {self.fact.name!r} cannot follow "
                f"{known.version}; another node has changed it."
            )
        return (self.fact,), None


class PutJob(msgspec.Struct, frozen=True, tag="put_job"):
    """Write down how a job stands. A version must follow that which is known, and no other."""

    fact: JobFact

    def decide(self, metadata: Metadata) -> Decided:
        known = metadata.jobs.get(self.fact.key)
        version = 0 if known is None else known.version
        if self.fact.version and known != self.fact and self.fact.version != version + 1:
            raise StalePartitionVersion(
                f"Version {self.fact.version} of job {self.fact.id} cannot follow {version}; "
                "another node has taken the job over."
            )
        return (self.fact,), None


class ChangeConfig(msgspec.Struct, frozen=True, tag="change_config"):
    """Change some settings of a node, of all nodes or of a group; None takes one back.

    The changes are applied to what is in effect when they are decided, so that those of two
    clients at once both last. With `is_whole` they replace everything.
    """

    kind: str
    name: str
    changes: dict[str, str | None]
    is_whole: bool = False

    def decide(self, metadata: Metadata) -> Decided:
        key = config_key(self.kind, self.name)
        known = metadata.configs.get(key)
        if known is None and len(metadata.configs) >= CONFIGS_MAX:
            raise InvalidRequest(
                f"There are settings of {CONFIGS_MAX} nodes and groups, which is the limit; take "
                "back those that are not needed any more."
            )
        own = {} if known is None or self.is_whole else known.settings
        merged = {**own, **self.changes}
        settings = {name: value for name, value in merged.items() if value is not None}
        return (ConfigFact(self.kind, self.name, settings) if settings else Forget(key),), None


class ForgetKey(msgspec.Struct, frozen=True, tag="forget_key"):
    """A queue group, a named queue or a job is no more."""

    key: bytes

    def decide(self, metadata: Metadata) -> Decided:
        return (Forget(self.key),), None


# Commands that any log of facts can decide, that of a single node too.
Command = (
    CreateTopic
    | ChangeTopic
    | DeleteTopic
    | ReserveProducerIds
    | TakeOverProducer
    | PutQueueGroup
    | PutNamedQueue
    | PutJob
    | ChangeConfig
    | ForgetKey
)


class RegisterNode(msgspec.Struct, frozen=True, tag="register_node"):
    """A node has started; a new incarnation begins."""

    node: NodeId
    incarnation: Identity
    addresses: Addresses
    rack: Name = ""
    disk: Identity = b""
    cluster_id: Name = ""


class CopyClaim(msgspec.Struct, frozen=True, array_like=True):
    """What a node has of a partition."""

    topic_id: TopicId
    number: PartitionNumber
    claim: Claim


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    node: NodeId
    incarnation: Identity
    applied_index: Version
    wants_drain: bool = False
    # In-sync copies that may have lost something, said by a node until it is trusted.
    integrity: tuple[CopyClaim, ...] = ()


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """A node stops now, and nobody needs to wait for its silence."""

    node: NodeId
    incarnation: Identity


class ChangeInSync(msgspec.Struct, frozen=True, tag="change_in_sync"):
    """What a leader asks for; the answer is the version that is known then."""

    node: NodeId
    topic_id: TopicId
    number: PartitionNumber
    in_sync: NodeIds
    incarnations: dict[NodeId, Identity]
    leader_epoch: LeaderEpoch
    version: Version


class ClaimCopies(msgspec.Struct, frozen=True, tag="claim_copies"):
    """What a node has of partitions that nobody in sync is sure to have as a whole."""

    node: NodeId
    incarnation: Identity
    copies: tuple[CopyClaim, ...]


class GiveUpCopy(msgspec.Struct, frozen=True, tag="give_up_copy"):
    """A node's copy is damaged: another should lead, and it wants to have it again from there."""

    node: NodeId
    incarnation: Identity
    topic_id: TopicId
    number: PartitionNumber
    version: Version


class DrainNode(msgspec.Struct, frozen=True, tag="drain_node"):
    node: NodeId
    is_wanted: bool = True


class ThrottleNode(msgspec.Struct, frozen=True, tag="throttle_node"):
    """What a node sends to copies not in sync, and what its own take; 0 is as its settings say."""

    node: NodeId
    feeding_bytes_per_second: BytesPerSecond | None = None
    catching_up_bytes_per_second: BytesPerSecond | None = None


class UnregisterNode(msgspec.Struct, frozen=True, tag="unregister_node"):
    node: NodeId


class ChangeVoter(msgspec.Struct, frozen=True, tag="change_voter"):
    """Let a node vote in the quorum, or only follow it."""

    node: NodeId
    is_wanted: bool = True


class CatchUp(msgspec.Struct, frozen=True, tag="catch_up"):
    """Decides nothing; answered when whoever asks knows all that was decided before."""


class ElectLeader(msgspec.Struct, frozen=True, tag="elect_leader"):
    topic_id: TopicId
    number: PartitionNumber
    is_unclean: bool = False


class Reassign(msgspec.Struct, frozen=True, tag="reassign"):
    """Move a partition to these replicas; without any, stay where it is."""

    topic_id: TopicId
    number: PartitionNumber
    replicas: NodeIds = ()
    # Of the new copies; 0 is none, and without a word it is as fast as before.
    throttle_bytes_per_second: BytesPerSecond | None = None


class ThrottleMove(msgspec.Struct, frozen=True, tag="throttle_move"):
    """Let a partition that is moving do so this fast; 0 is without limit."""

    topic_id: TopicId
    number: PartitionNumber
    throttle_bytes_per_second: BytesPerSecond


class EndRouting(msgspec.Struct, frozen=True, tag="end_routing"):
    """Where old routing ended: leader epoch and offset of each partition that `node` leads."""

    node: NodeId
    topic_id: TopicId
    told: dict[PartitionNumber, tuple[LeaderEpoch, Offset]]


# Those that only a controller decides.
ClusterCommand = (
    Command
    | RegisterNode
    | Heartbeat
    | Leave
    | ChangeInSync
    | ClaimCopies
    | GiveUpCopy
    | DrainNode
    | ThrottleNode
    | UnregisterNode
    | ChangeVoter
    | CatchUp
    | ElectLeader
    | Reassign
    | ThrottleMove
    | EndRouting
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ClusterCommand] = msgspec.msgpack.Decoder(ClusterCommand)


def encode_command(command: ClusterCommand) -> bytes:
    return _encoder.encode(command)


def decode_command(data: bytes) -> ClusterCommand:
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"This command cannot be read: {error}.") from error


def _topic(metadata: Metadata, topic_id: bytes, name: str) -> TopicFact:
    """A topic by its name, unless another one has taken the name meanwhile."""
    known = metadata.topic(name)
    if known is None or known.id != topic_id:
        raise UnknownTopic(name)
    return known
