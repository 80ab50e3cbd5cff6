"""Metadata, and creating, extending and deleting topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import (
    GoQueueError,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicSetting,
    QuotaExceeded,
    UnknownTopicId,
)
from goqueue.wire.kafka import authorized
from goqueue.wire.kafka.config_names import core_name
from goqueue.wire.kafka.configs import describe_topic
from goqueue.wire.kafka.errors import ErrorCode, code_of, message_of
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
    from goqueue.broker.gate.areas.topics import Placement, TopicView
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_BY_DEFAULT = -1
_NO_LEADER = -1
_LEADERLESS = ErrorCode.LEADER_NOT_AVAILABLE
_FIRST_DELETE_VERSION_WITH_IDS = 6
_FIRST_METADATA_VERSION_WITH_NULL_NAME = 12
_PARTITIONS_PER_ANSWER_MAX = 2000
# Clients of earlier versions do not know the error of quotas (KIP-599), and wait instead.
_FIRST_CREATE_VERSION_WITH_QUOTAS = 6
_FIRST_DELETE_VERSION_WITH_QUOTAS = 5
_FIRST_GROW_VERSION_WITH_QUOTAS = 3
_QUOTA_WAITS_MAX = 10

T = TypeVar("T")


async def _mutate(
    front: FrontEnd, call: Call, mutate: Callable[[], Promise[T]], *, since: int
) -> T:
    """Change topics within the quota of the client: refuse it until then, or wait."""
    for _ in range(_QUOTA_WAITS_MAX):
        try:
            return await mutate()
        except QuotaExceeded as error:
            call.connection.mute(error.wait_ms)
            if call.version >= since:
                raise
            pause: Promise[None] = Promise()
            front.gate.clock.call_later(error.wait_ms, partial(pause.resolve, None))
            await pause
    return await mutate()


async def metadata(front: FrontEnd, call: Call, request: MetadataRequest) -> MetadataResponse:
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if wants_all:
        alive = front.brokers(call.session)
        found = front.gate.topics.all(call.session)
        topics = [_describe(front, call, topic, alive) for topic in found]
    else:
        topics = [
            await _look_up(front, call, one, may_create=request.allow_auto_topic_creation)
            for one in request.topics or ()
        ]
    if request.include_topic_authorized_operations:
        for one in topics:
            one.topic_authorized_operations = authorized.on_topic(
                front.gate, call.session, one.name or ""
            )
    racks = front.racks(call.session)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=host, port=port, rack=racks.get(node) or None)
            for node, (host, port) in front.brokers(call.session).items()
        ],
        cluster_id=front.gate.node.identity(call.session).cluster_id,
        controller_id=front.controller_id(call.session),
        topics=topics,
        cluster_authorized_operations=(
            authorized.on_cluster(front.gate, call.session)
            if request.include_cluster_authorized_operations
            else authorized.NOT_ASKED_FOR
        ),
    )


async def _look_up(
    front: FrontEnd, call: Call, wanted: MetadataRequestTopic, *, may_create: bool
) -> MetadataResponseTopic:
    topics = front.gate.topics
    if wanted.topic_id != UUID_ZERO:
        try:
            topic = topics.get_by_id(call.session, topic_id=wanted.topic_id)
            return _describe(front, call, topic, front.brokers(call.session))
        except UnknownTopicId:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                name=None if call.version >= _FIRST_METADATA_VERSION_WITH_NULL_NAME else "",
                topic_id=wanted.topic_id,
            )
    name = wanted.name or ""
    try:
        if not front.is_ready and topics.find(call.session, topic=name) is None:
            # It is not known yet whether the topic exists; clients retry.
            return MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name)
        topic = await topics.use(call.session, topic=name, may_create=may_create)
        return _describe(front, call, topic, front.brokers(call.session))
    except QuotaExceeded:
        # Clients retry this, and not the error of quotas, which this API does not have.
        return MetadataResponseTopic(error_code=_LEADERLESS, name=name)
    except GoQueueError as error:
        return MetadataResponseTopic(error_code=code_of(error), name=name)


def _describe(
    front: FrontEnd, call: Call, topic: TopicView, alive: Collection[int]
) -> MetadataResponseTopic:
    places = front.gate.topics.placements(call.session, topic=topic.name)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _describe_partition(place, number, alive) for number, place in enumerate(places)
        ],
    )


def _describe_partition(
    place: Placement, number: int, alive: Collection[int]
) -> MetadataResponsePartition:
    # A leader that clients cannot reach is reported as missing.
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
    """Describe topics in the order of their names, with a page of partitions at a time."""
    room = min(max(1, request.response_partition_limit), _PARTITIONS_PER_ANSWER_MAX)
    names = sorted({topic.name for topic in request.topics})
    if not names:
        names = sorted(topic.name for topic in front.gate.topics.all(call.session))
    cursor = request.cursor
    answers: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            first = cursor.partition_index if name == cursor.topic_name else 0
        try:
            topic = front.gate.topics.get(call.session, topic=name)
        except GoQueueError as error:
            answers.append(_undescribed(front, call, name, error))
            continue
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=answers, next_cursor=ResponseCursor(topic_name=name, partition_index=first)
            )
        first = min(max(0, first), topic.partition_count)
        last = min(topic.partition_count, first + room)
        answers.append(_describe_page(front, call, topic, first, last))
        room -= last - first
        if last < topic.partition_count:
            return DescribeTopicPartitionsResponse(
                topics=answers, next_cursor=ResponseCursor(topic_name=name, partition_index=last)
            )
    return DescribeTopicPartitionsResponse(topics=answers)


def _undescribed(
    front: FrontEnd, call: Call, name: str, error: GoQueueError
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code_of(error),
        name=name,
        topic_authorized_operations=authorized.on_topic(front.gate, call.session, name),
    )


def _describe_page(
    front: FrontEnd, call: Call, topic: TopicView, first: int, last: int
) -> DescribeTopicPartitionsResponseTopic:
    alive = front.brokers(call.session)
    places = front.gate.topics.placements(call.session, topic=topic.name, first=first, last=last)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_authorized_operations=authorized.on_topic(front.gate, call.session, topic.name),
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
            results.append(await _create(front, call, wanted, validate_only=request.validate_only))
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
    front: FrontEnd, call: Call, wanted: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    assignment = _assignment(wanted)
    settings: dict[str, str] = {}
    for config in wanted.configs:
        if config.value is None:
            raise InvalidTopicSetting("it has no value.", setting=core_name(config.name))
        settings[core_name(config.name)] = config.value
    create = partial(
        front.gate.topics.create,
        call.session,
        name=wanted.name,
        partition_count=None if wanted.num_partitions == _BY_DEFAULT else wanted.num_partitions,
        settings=settings,
        replication_factor=wanted.replication_factor,
        assignment=assignment,
        dry_run=validate_only,
    )
    created = await _mutate(front, call, create, since=_FIRST_CREATE_VERSION_WITH_QUOTAS)
    resource = Resource(ResourceKind.TOPIC, wanted.name)
    if not front.gate.access.allowed(
        call.session, resource=resource, actions=[Action.DESCRIBE_CONFIGS]
    ):
        return CreatableTopicResult(
            name=wanted.name,
            topic_id=created.id or UUID_ZERO,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=None if call.version >= 5 else [],
        )
    defaults = front.gate.configs.topic_defaults(call.session)
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=created.id or UUID_ZERO,
        error_message=None,
        num_partitions=created.partition_count,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(name=one.name, value=one.value, config_source=one.config_source)
            for one in describe_topic(defaults, settings)
        ],
    )


def _assignment(wanted: CreatableTopic) -> list[list[int]]:
    if not wanted.assignments:
        return []
    if wanted.num_partitions != _BY_DEFAULT or wanted.replication_factor != _BY_DEFAULT:
        raise InvalidRequest("Give either counts or assignments of replicas, not both.")
    in_order = sorted(wanted.assignments, key=lambda one: one.partition_index)
    if [one.partition_index for one in in_order] != list(range(len(in_order))):
        raise InvalidReplicaAssignment("Assigned partitions must be numbered from 0 on.")
    return [one.broker_ids for one in in_order]


async def delete_topics(
    front: FrontEnd, call: Call, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    wanted = request.topics
    if call.version < _FIRST_DELETE_VERSION_WITH_IDS:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[await _delete(front, call, one) for one in wanted])


async def _delete(front: FrontEnd, call: Call, wanted: DeleteTopicState) -> DeletableTopicResult:
    topics, session = front.gate.topics, call.session
    result = DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id)
    try:
        topics.check_deletion(session)
        topic = (
            topics.get_by_id(session, topic_id=wanted.topic_id)
            if wanted.name is None
            else topics.get(session, topic=wanted.name)
        )
        result.name, result.topic_id = topic.name, topic.id
        delete = partial(topics.delete, session, topic=topic.name)
        await _mutate(front, call, delete, since=_FIRST_DELETE_VERSION_WITH_QUOTAS)
    except GoQueueError as error:
        result.error_code, result.error_message = code_of(error), message_of(error)
    return result


async def create_partitions(
    front: FrontEnd, call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            await _grow(front, call, wanted, validate_only=request.validate_only)
            for wanted in request.topics
        ]
    )


async def _grow(
    front: FrontEnd, call: Call, wanted: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignment = None
    if wanted.assignments is not None:
        assignment = [one.broker_ids for one in wanted.assignments]
    try:
        grow = partial(
            front.gate.topics.grow,
            call.session,
            topic=wanted.name,
            partition_count=wanted.count,
            assignment=assignment,
            dry_run=validate_only,
        )
        await _mutate(front, call, grow, since=_FIRST_GROW_VERSION_WITH_QUOTAS)
    except GoQueueError as error:
        return CreatePartitionsTopicResult(
            name=wanted.name, error_code=code_of(error), error_message=message_of(error)
        )
    return CreatePartitionsTopicResult(name=wanted.name)
