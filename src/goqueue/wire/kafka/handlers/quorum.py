"""DescribeQuorum, UpdateFeatures, AlterReplicaLogDirs: metadata quorum, features and folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.model.errors import GoQueueError
from goqueue.wire.kafka import features
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.messages import describe_quorum as described
from goqueue.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from goqueue.wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.cluster import QuorumMember, QuorumState
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_METADATA_TOPIC = "__cluster_metadata"
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_UPGRADE_TYPES = (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE)
_LISTENER = "CONTROLLER"
_FIRST_VERSION_WITH_NODES = 2
_UNITED_VERSION = 2  # of UpdateFeatures: from here on, an answer has no results by feature


async def describe_quorum(
    front: FrontEnd, call: Call, request: described.DescribeQuorumRequest
) -> described.DescribeQuorumResponse:
    """Describe the progress of the voters; tools expect the name that Kafka's metadata log has."""
    answer = described.DescribeQuorumResponse(
        topics=[
            described.ResponseTopicData(
                topic.topic_name,
                [
                    described.ResponsePartitionData(
                        one.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    found = [
        one
        for topic in answer.topics
        for one in topic.partitions
        if topic.topic_name == _METADATA_TOPIC and one.partition_index == 0
    ]
    if not found:
        return answer
    try:
        state = await front.gate.cluster.quorum_state(call.session)
    except GoQueueError as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
        return answer
    for one in found:
        _fill(one, state)
    if call.version >= _FIRST_VERSION_WITH_NODES:
        voters = {member.node for member in state.members if member.is_voter}
        answer.nodes = [
            described.Node(node, [described.Listener(_LISTENER, host, port)])
            for node, (host, port) in front.brokers(call.session).items()
            if node in voters
        ]
    return answer


def _fill(answer: described.ResponsePartitionData, state: QuorumState) -> None:
    answer.error_code = ErrorCode.NONE
    answer.leader_id, answer.leader_epoch = state.leader, state.term
    answer.high_watermark = state.commit_offset
    answer.current_voters = [_replica(one, state) for one in state.members if one.is_voter]
    answer.observers = [_replica(one, state) for one in state.members if not one.is_voter]


def _replica(member: QuorumMember, state: QuorumState) -> described.ReplicaState:
    return described.ReplicaState(
        member.node,
        log_end_offset=member.end_offset,
        last_fetch_timestamp=member.heard_ms,
        last_caught_up_timestamp=(
            member.heard_ms if member.end_offset >= state.commit_offset else -1
        ),
    )


def update_features(
    front: FrontEnd, call: Call, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Accept an update to the one level that a feature has; refuse any other."""
    try:
        front.gate.cluster.check_alterable(call.session)
    except GoQueueError as error:
        return UpdateFeaturesResponse(
            error_code=code_of(error), error_message=str(error), results=[]
        )
    for update in request.feature_updates:
        problem = _problem(call, update)
        if problem:
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=(
                    "The update failed for all features since the following feature had an error: "
                    f"Invalid update version {update.max_version_level} for feature "
                    f"{update.feature[:100]}. {problem}"
                ),
                results=[],
            )
    # Clients of older versions expect a result for each feature. Its message is that of Kafka.
    results = (
        [
            UpdatableFeatureResult(one.feature, ErrorCode.NONE, ErrorCode.NONE.name)
            for one in request.feature_updates
        ]
        if call.version < _UNITED_VERSION
        else []
    )
    return UpdateFeaturesResponse(error_message=None, results=results)


def _problem(call: Call, update: FeatureUpdateKey) -> str:
    """Why a feature cannot have a level; empty if it has it already."""
    level = features.LEVELS.get(update.feature)
    if level is None:
        return "This cluster does not have this feature."
    if call.version > 0 and update.upgrade_type not in _UPGRADE_TYPES:
        return "An update is an upgrade, a safe downgrade or an unsafe downgrade."
    if update.max_version_level != level:
        return f"This cluster supports level {level} alone."
    return ""


def alter_replica_log_dirs(
    front: FrontEnd, call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Accept the node's only data folder; refuse any other."""
    codes: dict[str, dict[int, int]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            of_topic = codes.setdefault(topic.name, {})
            for number in topic.partitions:
                of_topic[number] = _code_of_replica(front, call, wanted.path, topic.name, number)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                name,
                [AlterReplicaLogDirPartitionResult(number, code) for number, code in found.items()],
            )
            for name, found in codes.items()
        ]
    )


def _code_of_replica(front: FrontEnd, call: Call, path: str, topic: str, number: int) -> int:
    try:
        if path != front.gate.node.data_directory(call.session):
            return ErrorCode.LOG_DIR_NOT_FOUND
        is_kept = front.gate.node.keeps(call.session, topic=topic, partition=number)
    except GoQueueError as error:
        return code_of(error)
    return ErrorCode.NONE if is_kept else ErrorCode.REPLICA_NOT_AVAILABLE
