"""Reassigns replicas of partitions, elects leaders, unregisters nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.reassignments import Move
from goqueue.model.errors import ElectionNotNeeded, GoQueueError, InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from goqueue.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from goqueue.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from goqueue.wire.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_PREFERRED, _UNCLEAN = 0, 1


async def alter_partition_reassignments(
    front: FrontEnd, call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Start reassignments, or cancel those of partitions without new replicas."""
    may_resize = request.allow_replication_factor_change
    answer = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize, error_message=None, responses=[]
    )
    try:
        outcomes = await front.gate.reassignments.reassign(
            call.session,
            moves=[
                Move(topic.name, one.partition_index, one.replicas)
                for topic in request.topics
                for one in topic.partitions
            ],
            may_resize=may_resize,
        )
    except GoQueueError as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
        return answer
    errors = iter(outcomes)
    answer.responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(one.partition_index, *_outcome(next(errors)))
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return answer


def list_partition_reassignments(
    front: FrontEnd, call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        moving = front.gate.reassignments.moving(call.session)
    except GoQueueError as error:
        return ListPartitionReassignmentsResponse(
            error_code=code_of(error), error_message=str(error), topics=[]
        )
    if request.topics is not None:
        wanted = {(one.name, number) for one in request.topics for number in one.partition_indexes}
        moving = [one for one in moving if (one.topic, one.number) in wanted]
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for one in moving:
        topics.setdefault(one.topic, []).append(
            OngoingPartitionReassignment(
                partition_index=one.number,
                replicas=[*one.replicas, *one.adding],
                adding_replicas=list(one.adding),
                removing_replicas=list(one.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


async def elect_leaders(
    front: FrontEnd, call: Call, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        unknown = InvalidRequest(f"There is no election of the type {request.election_type}.")
        return ElectLeadersResponse(error_code=code_of(unknown))
    # A request for all partitions reports only those that needed an election.
    names_all = request.topic_partitions is None
    try:
        partitions = _wanted(front, call, request)
        errors = await front.gate.reassignments.elect(
            call.session,
            partitions=partitions,
            is_unclean=request.election_type == _UNCLEAN,
        )
    except GoQueueError as refusal:
        return ElectLeadersResponse(error_code=code_of(refusal))
    results: dict[str, ReplicaElectionResult] = {}
    for partition, error in zip(partitions, errors, strict=True):
        if names_all and isinstance(error, ElectionNotNeeded):
            continue
        topic = results.setdefault(partition.topic, ReplicaElectionResult(topic=partition.topic))
        topic.partition_result.append(PartitionResult(partition.partition, *_outcome(error)))
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _wanted(front: FrontEnd, call: Call, request: ElectLeadersRequest) -> list[TopicPartition]:
    if request.topic_partitions is None:
        views = front.gate.reassignments.placed(call.session)
        return [TopicPartition(one.topic, one.number) for one in views]
    return [
        TopicPartition(one.topic, number)
        for one in request.topic_partitions
        for number in one.partitions
    ]


async def unregister_broker(
    front: FrontEnd, call: Call, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    try:
        await front.gate.cluster.unregister(call.session, node=request.broker_id)
    except GoQueueError as error:
        return UnregisterBrokerResponse(error_code=code_of(error), error_message=str(error))
    return UnregisterBrokerResponse(error_message=None)


def _outcome(error: GoQueueError | None) -> tuple[int, str | None]:
    """The error code and message of the response."""
    return (0, None) if error is None else (code_of(error), str(error))
