"""Metadata, and making, growing and deleting topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from goqueue.model.errors import (
    GoQueueError,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicSetting,
)
from goqueue.wire.kafka import authorized
from goqueue.wire.kafka.config_names import core_name
from goqueue.wire.kafka.configs import describe_topic
from goqueue.wire.kafka.errors import ErrorCode, code_of, message_of
from goqueue.wire.kafka.handlers.configs import dynamic
from goqueue.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from goqueue.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from goqueue.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from goqueue.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from goqueue.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from goqueue.wire.kafka.primitives import UUID_ZERO

if TYPE_CHECKING:
    from goqueue.broker.gate.topics import Placement
    from goqueue.broker.topics.topics import Topic
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_BY_DEFAULT = -1
_NO_LEADER = -1
_LEADERLESS = ErrorCode.LEADER_NOT_AVAILABLE
_FIRST_DELETE_VERSION_WITH_IDS = 6
_FIRST_METADATA_VERSION_WITH_NULL_NAME = 12
_PARTITIONS_PER_ANSWER_MAX = 2000


async def metadata(front: FrontEnd, call: Call, request: MetadataRequest) -> MetadataResponse:
    broker = front.broker
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if wants_all:
        topics = [_describe(front, topic) for topic in broker.topics]
    else:
        topics = [
            await _look_up(front, call, one, may_create=request.allow_auto_topic_creation)
            for one in request.topics or ()
        ]
    if request.include_topic_authorized_operations:
        for one in topics:
            one.topic_authorized_operations = authorized.OF_TOPIC
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node, host=host, port=port, rack=front.rack_of(node) or None
            )
            for node, (host, port) in front.brokers().items()
        ],
        cluster_id=broker.cluster_id,
        controller_id=front.controller_id(),
        topics=topics,
        cluster_authorized_operations=(
            authorized.OF_CLUSTER
            if request.include_cluster_authorized_operations
            else authorized.NOT_ASKED_FOR
        ),
    )


async def _look_up(
    front: FrontEnd, call: Call, wanted: MetadataRequestTopic, *, may_create: bool
) -> MetadataResponseTopic:
    topics = front.broker.topics
    if wanted.topic_id != UUID_ZERO:
        topic = topics.find_by_id(wanted.topic_id)
        if topic is not None:
            return _describe(front, topic)
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            name=None if call.version >= _FIRST_METADATA_VERSION_WITH_NULL_NAME else "",
            topic_id=wanted.topic_id,
        )
    name = wanted.name or ""
    try:
        topic = topics.find(name)
        if topic is None and not front.is_ready:
            # Whether there is such a topic is not known yet; clients ask again.
            return MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name)
        if topic is None:
            topic = await front.broker.auto_create(name, may_create=may_create)
        return _describe(front, topic)
    except GoQueueError as error:
        return MetadataResponseTopic(error_code=code_of(error), name=name)


def _describe(front: FrontEnd, topic: Topic) -> MetadataResponseTopic:
    alive = front.brokers()
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _describe_partition(front.broker.placement(topic, number), number, alive)
            for number in range(len(topic.partitions))
        ],
    )


def _describe_partition(
    place: Placement, number: int, alive: Collection[int]
) -> MetadataResponsePartition:
    # A leader that clients cannot be sent to is none to them.
    leader = place.leader if place.leader in alive else _NO_LEADER
    return MetadataResponsePartition(
        ErrorCode.NONE if leader != _NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
        number,
        leader,
        place.leader_epoch,
        list(place.replicas),
        list(place.in_sync),
        [node for node in place.replicas if node not in alive],
    )


def describe_topic_partitions(
    front: FrontEnd, call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics in the order of their names, a page of partitions at a time."""
    room = min(max(1, request.response_partition_limit), _PARTITIONS_PER_ANSWER_MAX)
    names = sorted({topic.name for topic in request.topics})
    if not names:
        names = sorted(topic.name for topic in front.broker.topics)
    cursor = request.cursor
    answers: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            first = cursor.partition_index if name == cursor.topic_name else 0
        topic = front.broker.topics.find(name)
        if topic is None:
            answers.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    name=name,
                    topic_authorized_operations=authorized.OF_TOPIC,
                )
            )
            continue
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=answers, next_cursor=ResponseCursor(topic_name=name, partition_index=first)
            )
        first = min(max(0, first), len(topic.partitions))
        last = min(len(topic.partitions), first + room)
        answers.append(_describe_page(front, topic, first, last))
        room -= last - first
        if last < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=answers, next_cursor=ResponseCursor(topic_name=name, partition_index=last)
            )
    return DescribeTopicPartitionsResponse(topics=answers)


def _describe_page(
    front: FrontEnd, topic: Topic, first: int, last: int
) -> DescribeTopicPartitionsResponseTopic:
    alive = front.brokers()
    places = [front.broker.placement(topic, number) for number in range(first, last)]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_authorized_operations=authorized.OF_TOPIC,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if place.leader in alive else _LEADERLESS,
                partition_index=number,
                leader_id=place.leader if place.leader in alive else _NO_LEADER,
                leader_epoch=place.leader_epoch,
                replica_nodes=list(place.replicas),
                isr_nodes=list(place.in_sync),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[node for node in place.replicas if node not in alive],
            )
            for number, place in enumerate(places, first)
        ],
    )


async def create_topics(
    front: FrontEnd, call: Call, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results: list[CreatableTopicResult] = []
    for wanted in request.topics:
        try:
            if counts[wanted.name] > 1:
                raise InvalidRequest(f"Topic {wanted.name!r} is named twice in one request.")
            results.append(await _create(front, wanted, validate_only=request.validate_only))
        except GoQueueError as error:
            results.append(
                CreatableTopicResult(
                    name=wanted.name,
                    error_code=code_of(error),
                    error_message=message_of(error),
                    configs=None if call.version >= 5 else [],
                )
            )
    return CreateTopicsResponse(topics=results)


async def _create(
    front: FrontEnd, wanted: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    broker = front.broker
    partition_count = _partition_count(front, wanted)
    settings: dict[str, str] = {}
    for config in wanted.configs:
        if config.value is None:
            raise InvalidTopicSetting("it has no value.", setting=core_name(config.name))
        settings[core_name(config.name)] = config.value
    broker.topics.check_new(wanted.name, partition_count=partition_count, settings=settings)
    topic_id = UUID_ZERO
    if not validate_only:
        topic = await broker.topics.create(
            wanted.name,
            partition_count=partition_count,
            settings=settings,
            replication_factor=wanted.replication_factor,
            assignment=_assignment(wanted),
        )
        topic_id = topic.id
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=partition_count,
        replication_factor=_replication_factor(front, wanted, topic_id),
        configs=[
            CreatableTopicConfigs(name=one.name, value=one.value, config_source=one.config_source)
            for one in describe_topic(broker.topics.defaults, settings, dynamic(front))
        ],
    )


def _partition_count(front: FrontEnd, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        if wanted.num_partitions != _BY_DEFAULT or wanted.replication_factor != _BY_DEFAULT:
            raise InvalidRequest("Give either counts or assignments of replicas, not both.")
        numbers = sorted(one.partition_index for one in wanted.assignments)
        if numbers != list(range(len(numbers))):
            raise InvalidReplicaAssignment("Assigned partitions must be numbered from 0 on.")
        is_alone = front.broker.cluster is None
        if is_alone and any(one.broker_ids != [front.broker.node_id] for one in wanted.assignments):
            raise InvalidReplicaAssignment(
                f"Every partition must have the one replica {front.broker.node_id}."
            )
        return len(numbers)
    if front.broker.cluster is None and wanted.replication_factor not in (_BY_DEFAULT, 1):
        raise InvalidReplicationFactor(
            f"Replication factor {wanted.replication_factor} is not possible with 1 broker; use 1."
        )
    if wanted.num_partitions == _BY_DEFAULT:
        return front.broker.settings.topics.partitions
    return wanted.num_partitions


def _assignment(wanted: CreatableTopic) -> tuple[tuple[int, ...], ...]:
    in_order = sorted(wanted.assignments, key=lambda one: one.partition_index)
    return tuple(tuple(one.broker_ids) for one in in_order)


def _replication_factor(front: FrontEnd, wanted: CreatableTopic, topic_id: bytes) -> int:
    """What the topic has got, or would get."""
    topic = front.broker.topics.find_by_id(topic_id)
    if topic is not None and topic.partitions:
        return len(front.broker.placement(topic, 0).replicas)
    if wanted.assignments:
        return len(wanted.assignments[0].broker_ids)
    if wanted.replication_factor != _BY_DEFAULT:
        return wanted.replication_factor
    if front.broker.cluster is None:
        return 1
    return min(front.broker.settings.cluster.replication_factor, len(front.brokers()))


async def delete_topics(
    front: FrontEnd, call: Call, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    wanted = request.topics
    if call.version < _FIRST_DELETE_VERSION_WITH_IDS:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[await _delete(front, one) for one in wanted])


async def _delete(front: FrontEnd, wanted: DeleteTopicState) -> DeletableTopicResult:
    topics = front.broker.topics
    result = DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id)
    try:
        if not front.broker.settings.topics.delete_enabled:
            result.error_code = ErrorCode.TOPIC_DELETION_DISABLED
            result.error_message = "Topic deletion is disabled on this node."
            return result
        topic = (
            topics.get_by_id(wanted.topic_id) if wanted.name is None else topics.get(wanted.name)
        )
        result.name, result.topic_id = topic.name, topic.id
        await topics.delete(topic.name)
    except GoQueueError as error:
        result.error_code, result.error_message = code_of(error), message_of(error)
    return result


async def create_partitions(
    front: FrontEnd, call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            await _grow(front, wanted, validate_only=request.validate_only)
            for wanted in request.topics
        ]
    )


async def _grow(
    front: FrontEnd, wanted: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    topics = front.broker.topics
    try:
        topic = topics.get(wanted.name)
        topics.check_growth(topic, wanted.count)
        if wanted.assignments is not None:
            added = wanted.count - len(topic.partitions)
            expected = [[front.broker.node_id]] * added
            if [one.broker_ids for one in wanted.assignments] != expected:
                raise InvalidReplicaAssignment(
                    f"Each of the {added} new partitions must have the one replica "
                    f"{front.broker.node_id}."
                )
        if not validate_only:
            await topics.grow(wanted.name, wanted.count)
    except GoQueueError as error:
        return CreatePartitionsTopicResult(
            name=wanted.name, error_code=code_of(error), error_message=message_of(error)
        )
    return CreatePartitionsTopicResult(name=wanted.name)
