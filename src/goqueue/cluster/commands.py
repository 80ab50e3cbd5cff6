"""Commands that a node sends to the cluster for a decision.

A command is decided against all earlier decisions: it reads the metadata and returns the changes to
make and a result for the caller. So two nodes that request the same thing concurrently cannot both
get it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from goqueue.cluster.facts import (
    NAMED_QUEUE_PREFIX,
    QUEUE_GROUP_PREFIX,
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
from goqueue.cluster.identity_commands import IdentityCommand
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.quota_checks import check_room
from goqueue.cluster.tenant_commands import TenantCommand
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
from goqueue.model.support import Level, Support

CONFIGS_MAX = 10_000
PRODUCER_EPOCH_MAX = (1 << 15) - 2  # the last epoch that another one can follow

Result: TypeAlias = int | NamedProducer | None
Decided = tuple[Decision, Result]


class CreateTopic(msgspec.Struct, frozen=True, tag="create_topic"):
    id: TopicId
    name: Name
    partition_count: PartitionCount
    settings: dict[str, str] = {}
    replication_factor: NodeIdOrNone = -1  # -1 is the cluster's default
    assignment: tuple[NodeIds, ...] = ()  # replicas of each partition, if placed by hand

    def decide(self, metadata: Metadata) -> Decided:
        if metadata.topic(self.name) is not None:
            raise TopicExists(self.name)
        check_room(metadata, self.name, topics=1, partitions=self.partition_count)
        return (TopicFact(self.id, self.name, self.partition_count, self.settings),), None


class ChangeTopic(msgspec.Struct, frozen=True, tag="change_topic"):
    """Replace the settings of a topic, and give it at least this many partitions."""

    id: TopicId
    name: Name
    partition_count: PartitionCount
    settings: dict[str, str]

    def decide(self, metadata: Metadata) -> Decided:
        known = _topic(metadata, self.id, self.name)
        count = max(known.partition_count, self.partition_count)
        if count > known.partition_count:
            more = count - known.partition_count
            check_room(metadata, self.name, topics=0, partitions=more)
        fact = msgspec.structs.replace(known, partition_count=count, settings=self.settings)
        return (fact,), None


class DeleteTopic(msgspec.Struct, frozen=True, tag="delete_topic"):
    id: TopicId
    name: Name

    def decide(self, metadata: Metadata) -> Decided:
        return (Forget(_topic(metadata, self.id, self.name).key),), None


class ReserveProducerIds(msgspec.Struct, frozen=True, tag="reserve_producer_ids"):
    """Reserve a block of producer ids that were never used; the result is the first of them."""

    count: Annotated[int, Meta(ge=1, le=1 << 20)]

    def decide(self, metadata: Metadata) -> Decided:
        first = metadata.next_producer_id
        return (NextProducerId(first + self.count),), first


class TakeOverProducer(msgspec.Struct, frozen=True, tag="take_over_producer"):
    """Take over a named producer; its previous holder is fenced."""

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
    """Create a queue group, or replace its settings unless it `keeps_known` ones."""

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
    """Create a named queue or change its attributes, with optimistic concurrency.

    Its version must be one more than the current one. If another node has changed the queue in the
    meantime, the caller reads it again and repeats the change.
    """

    fact: NamedQueueFact

    def decide(self, metadata: Metadata) -> Decided:
        known = metadata.named_queues.get(self.fact.name)
        if known == self.fact:
            return (known,), None  # A retry: the answer to the first request was lost.
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
    """Save the state of a job; its version must be one more than the current one."""

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
    """Change settings of a node, of all nodes or of a group; None removes one.

    The changes are applied to the settings in effect at the time of the decision, so that
    concurrent changes of two clients both last. With `is_whole` they replace everything.
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
                f"Settings exist for {CONFIGS_MAX} nodes and groups, which is the limit; remove "
                "those that are no longer needed."
            )
        own = {} if known is None or self.is_whole else known.settings
        merged = {**own, **self.changes}
        settings = {name: value for name, value in merged.items() if value is not None}
        return (ConfigFact(self.kind, self.name, settings) if settings else Forget(key),), None


class ForgetKey(msgspec.Struct, frozen=True, tag="forget_key"):
    """Delete a queue group, a named queue or a job.

    The id, if there is one, is that of the group or queue that is meant: a later one of the same
    name stays.
    """

    key: bytes
    id: bytes = b""

    def decide(self, metadata: Metadata) -> Decided:
        if self.id and self.id != _id_at(metadata, self.key):
            return (), None
        return (Forget(self.key),), None


def _id_at(metadata: Metadata, key: bytes) -> bytes:
    """Return the id of the queue group or named queue with a key; empty if there is none."""
    places: tuple[tuple[bytes, Mapping[str, QueueGroupFact | NamedQueueFact]], ...] = (
        (QUEUE_GROUP_PREFIX, metadata.queue_groups),
        (NAMED_QUEUE_PREFIX, metadata.named_queues),
    )
    for prefix, facts in places:
        if key.startswith(prefix):
            known = facts.get(key[len(prefix) :].decode())
            return b"" if known is None else known.id
    return b""


# Commands that any metadata log can decide, also that of a single node.
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
    | IdentityCommand
    | TenantCommand
)


class RegisterNode(msgspec.Struct, frozen=True, tag="register_node"):
    """Register a node that has started, as a new incarnation."""

    node: NodeId
    incarnation: Identity
    addresses: Addresses
    rack: Name = ""
    disk: Identity = b""
    cluster_id: Name = ""
    support: Support | None = None  # of its release


class CopyClaim(msgspec.Struct, frozen=True, array_like=True):
    """How much of a partition a node's replica has."""

    topic_id: TopicId
    number: PartitionNumber
    claim: Claim


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    node: NodeId
    incarnation: Identity
    applied_index: Version
    wants_drain: bool = False
    # In-sync replicas that may have lost records, reported by a node until it is unfenced.
    integrity: tuple[CopyClaim, ...] = ()
    # Of its release: an older controller does not record what it was told at the registration.
    support: Support | None = None


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Fence a node that is stopping, without waiting for its session to expire."""

    node: NodeId
    incarnation: Identity


class ChangeInSync(msgspec.Struct, frozen=True, tag="change_in_sync"):
    """Change the in-sync set, as proposed by the leader; the result is the version after it."""

    node: NodeId
    topic_id: TopicId
    number: PartitionNumber
    in_sync: NodeIds
    incarnations: dict[NodeId, Identity]
    leader_epoch: LeaderEpoch
    version: Version


class ClaimCopies(msgspec.Struct, frozen=True, tag="claim_copies"):
    """How much a node has of partitions for which no in-sync replica is known to be complete."""

    node: NodeId
    incarnation: Identity
    copies: tuple[CopyClaim, ...]


class GiveUpCopy(msgspec.Struct, frozen=True, tag="give_up_copy"):
    """Report a damaged replica: another node should lead, so that this one can recover from it."""

    node: NodeId
    incarnation: Identity
    topic_id: TopicId
    number: PartitionNumber
    version: Version


class DrainNode(msgspec.Struct, frozen=True, tag="drain_node"):
    node: NodeId
    is_wanted: bool = True


class ThrottleNode(msgspec.Struct, frozen=True, tag="throttle_node"):
    """Set a node's rate limits for sending to and for catching up replicas; 0 means its settings.

    Both apply to replicas that are not in sync.
    """

    node: NodeId
    feeding_bytes_per_second: BytesPerSecond | None = None
    catching_up_bytes_per_second: BytesPerSecond | None = None


class UnregisterNode(msgspec.Struct, frozen=True, tag="unregister_node"):
    node: NodeId


class ChangeVoter(msgspec.Struct, frozen=True, tag="change_voter"):
    """Make a node a voter of the quorum, or a learner."""

    node: NodeId
    is_wanted: bool = True


class CatchUp(msgspec.Struct, frozen=True, tag="catch_up"):
    """Decide nothing; the result is returned once the caller has applied all earlier decisions."""


class ElectLeader(msgspec.Struct, frozen=True, tag="elect_leader"):
    topic_id: TopicId
    number: PartitionNumber
    is_unclean: bool = False


class Reassign(msgspec.Struct, frozen=True, tag="reassign"):
    """Move a partition to these replicas; an empty list cancels a move."""

    topic_id: TopicId
    number: PartitionNumber
    replicas: NodeIds = ()
    # Limit for the new replicas: 0 is unlimited, None leaves it unchanged.
    throttle_bytes_per_second: BytesPerSecond | None = None


class ThrottleMove(msgspec.Struct, frozen=True, tag="throttle_move"):
    """Set the rate limit of a partition that is being moved; 0 is unlimited."""

    topic_id: TopicId
    number: PartitionNumber
    throttle_bytes_per_second: BytesPerSecond


class EndRouting(msgspec.Struct, frozen=True, tag="end_routing"):
    """Report where old routing ended: epoch and offset of each partition that `node` leads."""

    node: NodeId
    topic_id: TopicId
    told: dict[PartitionNumber, tuple[LeaderEpoch, Offset]]


class FinalizeLevel(msgspec.Struct, frozen=True, tag="finalize_level"):
    """Raise the feature level; the nodes then write what earlier releases cannot read."""

    level: Level


# Commands that only a controller decides.
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
    | FinalizeLevel
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ClusterCommand] = msgspec.msgpack.Decoder(ClusterCommand)


def encode_command(command: ClusterCommand) -> bytes:
    return _encoder.encode(command)


def decode_command(data: bytes) -> ClusterCommand:
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"The command cannot be decoded: {error}.") from error


def _topic(metadata: Metadata, topic_id: bytes, name: str) -> TopicFact:
    """Return a topic by its name, unless a topic with another id has taken the name."""
    known = metadata.topic(name)
    if known is None or known.id != topic_id:
        raise UnknownTopic(name)
    return known
