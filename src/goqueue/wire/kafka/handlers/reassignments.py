"""Moving the replicas of partitions, electing their leaders, forgetting nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    ElectionNotNeeded,
    GoQueueError,
    InvalidReplicationFactor,
    InvalidRequest,
)
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
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
    from goqueue.broker.administration import PartitionView
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_PREFERRED, _UNCLEAN = 0, 1
_Begun = list[tuple[int, Promise[None] | GoQueueError]]


async def alter_partition_reassignments(
    front: FrontEnd, call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin moves, or, for partitions without new replicas, give theirs up."""
    may_resize = request.allow_replication_factor_change
    begun: list[tuple[str, _Begun]] = [
        (
            topic.name,
            [
                (one.partition_index, _begin_move(front, topic.name, one, may_resize=may_resize))
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    responses = []
    for name, moves in begun:
        partitions = []
        for number, move in moves:
            error = await _outcome(move)
            partitions.append(
                ReassignablePartitionResponse(
                    partition_index=number,
                    error_code=0 if error is None else code_of(error),
                    error_message=None if error is None else str(error),
                )
            )
        responses.append(ReassignableTopicResponse(name=name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize, error_message=None, responses=responses
    )


def _begin_move(
    front: FrontEnd, topic: str, wanted: ReassignablePartition, *, may_resize: bool
) -> Promise[None] | GoQueueError:
    administration = front.broker.administration
    try:
        known = front.broker.topics.get(topic)
        view = administration.partition(known, wanted.partition_index)
        if wanted.replicas is None:
            return administration.cancel_reassignment(known, view.number)
        if not may_resize and len(wanted.replicas) != len(view.replicas):
            raise InvalidReplicationFactor(
                f"{topic}/{view.number} has {len(view.replicas)} replicas, and this request is "
                "not to change how many."
            )
        return administration.reassign(known, view.number, wanted.replicas)
    except GoQueueError as error:
        return error


def list_partition_reassignments(
    front: FrontEnd, call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    moving = front.broker.administration.moving()
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
        error = InvalidRequest(f"There is no election of the type {request.election_type}.")
        return ElectLeadersResponse(error_code=code_of(error))
    is_unclean = request.election_type == _UNCLEAN
    # Who means all partitions wants to hear only of those that needed an election.
    names_all = request.topic_partitions is None
    if request.topic_partitions is None:
        wanted = _by_topic(front.broker.administration.partitions())
    else:
        wanted = {one.topic: one.partitions for one in request.topic_partitions}
    begun: list[tuple[str, _Begun]] = [
        (
            topic,
            [(one, _begin_election(front, topic, one, is_unclean=is_unclean)) for one in numbers],
        )
        for topic, numbers in wanted.items()
    ]
    results = []
    for topic, elections in begun:
        partitions = []
        for number, election in elections:
            refusal = await _outcome(election)
            if names_all and isinstance(refusal, ElectionNotNeeded):
                continue
            partitions.append(
                PartitionResult(
                    partition_id=number,
                    error_code=0 if refusal is None else code_of(refusal),
                    error_message=None if refusal is None else str(refusal),
                )
            )
        if partitions:
            results.append(ReplicaElectionResult(topic=topic, partition_result=partitions))
    return ElectLeadersResponse(replica_election_results=results)


def _begin_election(
    front: FrontEnd, topic: str, number: int, *, is_unclean: bool
) -> Promise[None] | GoQueueError:
    try:
        known = front.broker.topics.get(topic)
        return front.broker.administration.elect(known, number, is_unclean=is_unclean)
    except GoQueueError as error:
        return error


async def unregister_broker(
    front: FrontEnd, call: Call, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    try:
        await front.broker.administration.unregister(request.broker_id)
    except GoQueueError as error:
        return UnregisterBrokerResponse(error_code=code_of(error), error_message=str(error))
    return UnregisterBrokerResponse(error_message=None)


async def _outcome(begun: Promise[None] | GoQueueError) -> GoQueueError | None:
    if isinstance(begun, GoQueueError):
        return begun
    try:
        await begun
    except GoQueueError as error:
        return error
    return None


def _by_topic(views: Iterable[PartitionView]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for one in views:
        topics.setdefault(one.topic, []).append(one.number)
    return topics
