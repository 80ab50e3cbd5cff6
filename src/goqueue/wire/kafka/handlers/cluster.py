"""The node and the cluster: versions, addresses, coordinators and disk use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.wire.kafka import authorized, features
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from goqueue.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from goqueue.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from goqueue.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_GROUP_KEY = 0
_TRANSACTION_KEY = 1
_FIRST_VERSION_WITH_SEVERAL_KEYS = 4
_ENDPOINT_BROKERS = 1
_ENDPOINT_CONTROLLERS = 2


def api_versions(front: FrontEnd, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    call.connection.software = request.client_software_name
    return ApiVersionsResponse(
        api_keys=front.api_versions(),
        supported_features=[
            SupportedFeatureKey(name, level, level) for name, level in features.LEVELS.items()
        ],
        finalized_features_epoch=features.EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name, level, level) for name, level in features.LEVELS.items()
        ],
    )


def describe_cluster(
    front: FrontEnd, call: Call, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type == _ENDPOINT_CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="This is an endpoint of brokers; controllers have none of their own.",
        )
    if request.endpoint_type != _ENDPOINT_BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Endpoints of type {request.endpoint_type} do not exist.",
        )
    is_told = request.include_cluster_authorized_operations
    racks = front.racks(call.session)
    return DescribeClusterResponse(
        cluster_id=front.gate.node.identity(call.session).cluster_id,
        controller_id=front.controller_id(call.session),
        brokers=[
            DescribeClusterBroker(
                broker_id=node, host=host, port=port, rack=racks.get(node) or None
            )
            for node, (host, port) in front.brokers(call.session).items()
        ],
        cluster_authorized_operations=(
            authorized.on_cluster(front.gate, call.session) if is_told else authorized.NOT_ASKED_FOR
        ),
    )


async def find_coordinator(
    front: FrontEnd, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    is_one = call.version < _FIRST_VERSION_WITH_SEVERAL_KEYS
    keys = [request.key] if is_one else request.coordinator_keys
    gate = front.gate
    try:
        if request.key_type == _GROUP_KEY:
            nodes = await gate.groups.find_coordinators(call.session, groups=keys)
        elif request.key_type == _TRANSACTION_KEY:
            nodes = await gate.transactions.find_coordinators(call.session, transactional_ids=keys)
        else:
            raise InvalidRequest("Only groups and transactions are coordinated here.")
        brokers = front.brokers(call.session)
        found = [_coordinator_at(brokers, nodes[key], key) for key in keys]
    except GoQueueError as error:
        found = [_refused(key, code_of(error), str(error)) for key in keys]
    if not is_one:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or None,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator_at(
    brokers: Mapping[int, tuple[str, int]], node: int | GoQueueError, key: str
) -> Coordinator:
    """The address of the coordinator of `key`, or the reason why there is none."""
    if isinstance(node, GoQueueError):
        return _refused(key, code_of(node), str(node))
    address = brokers.get(node)
    if address is None:
        message = "Nobody leads the partition of this key now; retry."
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    return Coordinator(key=key, node_id=node, host=address[0], port=address[1])


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)


def describe_log_dirs(
    front: FrontEnd, call: Call, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = [(topic.topic, topic.partitions) for topic in request.topics]
    try:
        found = front.gate.node.log_directory(call.session, partitions=wanted)
    except GoQueueError as error:
        return DescribeLogDirsResponse(error_code=code_of(error), results=[])
    result = DescribeLogDirsResult(
        log_dir=found.path,
        topics=[
            DescribeLogDirsTopic(
                name=name,
                partitions=[
                    DescribeLogDirsPartition(partition_index=number, partition_size=size)
                    for number, size in replicas.items()
                ],
            )
            for name, replicas in found.replicas.items()
        ],
        total_bytes=found.total_bytes,
        usable_bytes=found.free_bytes,
    )
    return DescribeLogDirsResponse(results=[result])
