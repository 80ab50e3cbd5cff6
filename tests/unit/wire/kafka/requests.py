"""A valid request of every served API, in every version, about things that exist or do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiokafka.record import legacy_records as aiokafka
from kafka.record import legacy_records as kafka_python

from goqueue.groups.classic.embedded_protocol import encode_subscription
from goqueue.model.batch import Record, encode_batch
from goqueue.wire.kafka.handlers import HANDLERS
from goqueue.wire.kafka.messages import (
    API_BY_KEY,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from tests.unit.wire.kafka.share_requests import BUILDERS as SHARE_BUILDERS

TOPIC_RESOURCE = 2
SERVED = [API_BY_KEY[key] for key in HANDLERS]
EVERY_VERSION = [
    (api.name, version)
    for api in SERVED
    for version in range(api.version_min, api.version_stable_max + 1)
]


@dataclass
class Subject:
    """What a request is about."""

    topic: str = "orders"
    topic_id: bytes = bytes(16)
    partition: int = 0
    group: str = "shop"
    consumer_group: str = "shop-next"
    share_group: str = "shop-share"
    share_member: str = "22222222-2222-2222-2222-222222222222"
    member: str = ""
    generation: int = -1
    transaction: str = "till"
    producer_id: int = -1
    producer_epoch: int = -1
    other: dict[str, Any] = field(default_factory=dict)


def request_of(name: str, version: int, subject: Subject) -> Any:
    builder = SHARE_BUILDERS.get(name) or _BUILDERS[name]
    return builder(version, subject)


def records_for(version: int, *values: bytes, timestamp_ms: int = 1) -> bytes:
    """Records in the format that a client of this version of Produce would send."""
    if version < 3:
        return old_records(*values, magic=1 if version == 2 else 0, timestamp_ms=timestamp_ms)
    records = [Record(b"key", value, timestamp_ms=timestamp_ms) for value in values]
    return bytes(encode_batch(records))


def old_records(
    *values: bytes | None, magic: int, codec: int = 0, timestamp_ms: int = 1, key: bytes = b"key"
) -> bytes:
    """A message set as another library writes it; one of the two knows every codec."""
    library = kafka_python if codec in (0, 1) else aiokafka
    builder = library.LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number, value in enumerate(values):
        assert builder.append(number, timestamp_ms if magic else None, key, value) is not None
    return bytes(builder.build())


def produce_request(
    version: int,
    subject: Subject,
    records: bytes | None,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> Any:
    data = produce.PartitionProduceData(index=subject.partition, records=records)
    topic = produce.TopicProduceData(
        name=subject.topic, topic_id=subject.topic_id, partition_data=[data]
    )
    return produce.ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[topic]
    )


def fetch_request(
    subject: Subject,
    *,
    offset: int = 0,
    wait_ms: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
    partitions: tuple[int, ...] | None = None,
    forgotten: tuple[int, ...] = (),
    bytes_max: int = 1 << 20,
    partition_bytes_max: int = 1 << 20,
    isolation: int = 0,
) -> Any:
    numbers = (subject.partition,) if partitions is None else partitions
    topics = [
        fetch.FetchTopic(
            topic=subject.topic,
            topic_id=subject.topic_id,
            partitions=[
                fetch.FetchPartition(
                    partition=number, fetch_offset=offset, partition_max_bytes=partition_bytes_max
                )
                for number in numbers
            ],
        )
    ]
    left = fetch.ForgottenTopic(
        topic=subject.topic, topic_id=subject.topic_id, partitions=list(forgotten)
    )
    return fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=bytes_max,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics if numbers else [],
        forgotten_topics_data=[left] if forgotten else [],
    )


def join_request(version: int, subject: Subject, **fields: Any) -> Any:
    return join_group.JoinGroupRequest(
        group_id=subject.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=subject.member,
        protocol_type="consumer",
        protocols=[
            join_group.JoinGroupRequestProtocol(
                name="range", metadata=encode_subscription([subject.topic])
            )
        ],
        **fields,
    )


def commit_request(subject: Subject, offset: int = 1, *, metadata: str = "note") -> Any:
    one = offset_commit.OffsetCommitRequestPartition(
        partition_index=subject.partition, committed_offset=offset, committed_metadata=metadata
    )
    return offset_commit.OffsetCommitRequest(
        group_id=subject.group,
        generation_id_or_member_epoch=subject.generation,
        member_id=subject.member,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name=subject.topic, topic_id=subject.topic_id, partitions=[one]
            )
        ],
    )


def offset_fetch_request(
    version: int, subject: Subject, *, wants_all: bool = False, is_stable: bool = False
) -> Any:
    if version < 8:
        named = [
            offset_fetch.OffsetFetchRequestTopic(
                name=subject.topic, partition_indexes=[subject.partition]
            )
        ]
        return offset_fetch.OffsetFetchRequest(
            group_id=subject.group,
            topics=None if wants_all else named,
            require_stable=is_stable,
        )
    topics = [
        offset_fetch.OffsetFetchRequestTopics(
            name=subject.topic, topic_id=subject.topic_id, partition_indexes=[subject.partition]
        )
    ]
    group = offset_fetch.OffsetFetchRequestGroup(
        group_id=subject.group, topics=None if wants_all else topics
    )
    return offset_fetch.OffsetFetchRequest(groups=[group], require_stable=is_stable)


def list_request(subject: Subject, timestamp: int, *, isolation: int = 0, **fields: int) -> Any:
    one = list_offsets.ListOffsetsPartition(
        partition_index=subject.partition, timestamp=timestamp, **fields
    )
    topic = list_offsets.ListOffsetsTopic(name=subject.topic, partitions=[one])
    return list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])


def create_request(name: str, *, validate_only: bool = False, **fields: Any) -> Any:
    fields = {"num_partitions": 1, "replication_factor": 1, **fields}
    topic = create_topics.CreatableTopic(name=name, **fields)
    return create_topics.CreateTopicsRequest(topics=[topic], validate_only=validate_only)


def delete_topics_request(version: int, name: str | None, topic_id: bytes = bytes(16)) -> Any:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=[name or ""])
    state = delete_topics.DeleteTopicState(name=name, topic_id=topic_id)
    return delete_topics.DeleteTopicsRequest(topics=[state])


def alter_request(topic: str, *, validate_only: bool = False, **configs: str | None) -> Any:
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=topic,
        configs=[
            alter_configs.AlterableConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ],
    )
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def incremental_request(
    topic: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=topic,
        configs=[
            incremental_alter_configs.AlterableConfig(
                name=name, config_operation=operation, value=value
            )
            for name, operation, value in changes
        ],
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )


def describe_configs_request(
    version: int, name: str, *, kind: int = TOPIC_RESOURCE, keys: list[str] | None = None
) -> Any:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return describe_configs.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=version >= 3
    )


def grow_request(name: str, count: int, *, validate_only: bool = False, **fields: Any) -> Any:
    topic = create_partitions.CreatePartitionsTopic(
        name=name, count=count, **{"assignments": None, **fields}
    )
    return create_partitions.CreatePartitionsRequest(topics=[topic], validate_only=validate_only)


def epoch_end_request(subject: Subject, epoch: int, **fields: int) -> Any:
    one = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=subject.partition, leader_epoch=epoch, **fields
    )
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=subject.topic, partitions=[one])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])


def delete_records_request(subject: Subject, offset: int) -> Any:
    one = delete_records.DeleteRecordsPartition(partition_index=subject.partition, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name=subject.topic, partitions=[one])
    return delete_records.DeleteRecordsRequest(topics=[topic])


def coordinator_request(version: int, *keys: str, kind: int = 0) -> Any:
    if version < 4:
        (key,) = keys
        return find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)
    return find_coordinator.FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind)


def init_request(subject: Subject, *, timeout_ms: int = 60_000, is_again: bool = False) -> Any:
    """For a transactional id; `is_again` from the producer that has it already."""
    return init_producer_id.InitProducerIdRequest(
        transactional_id=subject.transaction,
        transaction_timeout_ms=timeout_ms,
        producer_id=subject.producer_id if is_again else -1,
        producer_epoch=subject.producer_epoch if is_again else -1,
    )


def add_partitions_request(
    version: int, subject: Subject, *partitions: int, verify_only: bool = False
) -> Any:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(
        name=subject.topic, partitions=list(partitions) or [subject.partition]
    )
    if version < 4:
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=subject.transaction,
            v3_and_below_producer_id=subject.producer_id,
            v3_and_below_producer_epoch=subject.producer_epoch,
            v3_and_below_topics=[topic],
        )
    one = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id=subject.transaction,
        producer_id=subject.producer_id,
        producer_epoch=subject.producer_epoch,
        verify_only=verify_only,
        topics=[topic],
    )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[one])


def add_offsets_request(subject: Subject) -> Any:
    return add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=subject.transaction,
        producer_id=subject.producer_id,
        producer_epoch=subject.producer_epoch,
        group_id=subject.group,
    )


def txn_commit_request(version: int, subject: Subject, offset: int = 1) -> Any:
    one = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=subject.partition, committed_offset=offset, committed_metadata="note"
    )
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=subject.transaction,
        group_id=subject.group,
        producer_id=subject.producer_id,
        producer_epoch=subject.producer_epoch,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=subject.topic, topic_id=subject.topic_id, partitions=[one]
            )
        ],
    )
    if version >= 3:
        request.generation_id_or_member_epoch = subject.generation
        request.member_id = subject.member
    return request


def end_request(subject: Subject, *, is_commit: bool = True) -> Any:
    return end_txn.EndTxnRequest(
        transactional_id=subject.transaction,
        producer_id=subject.producer_id,
        producer_epoch=subject.producer_epoch,
        committed=is_commit,
    )


def markers_request(
    subject: Subject, *, is_commit: bool = False, coordinator_epoch: int = 0
) -> Any:
    topic = write_txn_markers.WritableTxnMarkerTopic(
        name=subject.topic, partition_indexes=[subject.partition]
    )
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=subject.producer_id,
        producer_epoch=subject.producer_epoch,
        transaction_result=is_commit,
        topics=[topic],
        coordinator_epoch=coordinator_epoch,
    )
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


def reassign_request(subject: Subject, replicas: list[int] | None) -> Any:
    one = alter_partition_reassignments.ReassignablePartition(
        partition_index=subject.partition, replicas=replicas
    )
    topic = alter_partition_reassignments.ReassignableTopic(name=subject.topic, partitions=[one])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def _leave(version: int, subject: Subject) -> Any:
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id=subject.group, member_id=subject.member)
    member = leave_group.MemberIdentity(member_id=subject.member)
    return leave_group.LeaveGroupRequest(group_id=subject.group, members=[member])


def _describe_client_quotas(version: int, subject: Subject) -> Any:
    component = describe_client_quotas.ComponentData(
        entity_type="user", match_type=0, match="somebody"
    )
    return describe_client_quotas.DescribeClientQuotasRequest(components=[component])


def _alter_client_quotas(version: int, subject: Subject) -> Any:
    entry = alter_client_quotas.RequestEntryData(
        entity=[alter_client_quotas.RequestEntityData("user", "somebody")],
        ops=[alter_client_quotas.OpData("producer_byte_rate", 1e9)],
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry])


def _offset_delete(version: int, subject: Subject) -> Any:
    one = offset_delete.OffsetDeleteRequestPartition(partition_index=subject.partition)
    topic = offset_delete.OffsetDeleteRequestTopic(name=subject.topic, partitions=[one])
    return offset_delete.OffsetDeleteRequest(group_id=subject.group, topics=[topic])


def _metadata(version: int, subject: Subject) -> Any:
    topic = metadata.MetadataRequestTopic(name=subject.topic)
    return metadata.MetadataRequest(topics=[topic])


def _describe_producers(version: int, subject: Subject) -> Any:
    topic = describe_producers.TopicRequest(
        name=subject.topic, partition_indexes=[subject.partition]
    )
    return describe_producers.DescribeProducersRequest(topics=[topic])


_BUILDERS: dict[str, Callable[[int, Subject], Any]] = {
    "Produce": lambda version, one: produce_request(version, one, records_for(version, b"value")),
    "Fetch": lambda version, one: fetch_request(one),
    "ListOffsets": lambda version, one: list_request(one, -1),
    "Metadata": _metadata,
    "DescribeUserScramCredentials": lambda version, one: (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)
    ),
    "AlterUserScramCredentials": lambda version, one: (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            upsertions=[
                alter_user_scram_credentials.ScramCredentialUpsertion(
                    "ada", 1, 4_096, b"salt", bytes(32)
                )
            ]
        )
    ),
    "SaslHandshake": lambda version, one: sasl_handshake.SaslHandshakeRequest("PLAIN"),
    "SaslAuthenticate": lambda version, one: sasl_authenticate.SaslAuthenticateRequest(b"x"),
    "OffsetCommit": lambda version, one: commit_request(one),
    "OffsetFetch": offset_fetch_request,
    "FindCoordinator": lambda version, one: coordinator_request(version, one.group),
    "JoinGroup": join_request,
    "Heartbeat": lambda version, one: heartbeat.HeartbeatRequest(
        group_id=one.group, generation_id=one.generation, member_id=one.member
    ),
    "LeaveGroup": _leave,
    "SyncGroup": lambda version, one: sync_group.SyncGroupRequest(
        group_id=one.group,
        generation_id=one.generation,
        member_id=one.member,
        assignments=[
            sync_group.SyncGroupRequestAssignment(member_id=one.member, assignment=b"share")
        ],
    ),
    "DescribeGroups": lambda version, one: describe_groups.DescribeGroupsRequest(
        groups=[one.group]
    ),
    "ListGroups": lambda version, one: list_groups.ListGroupsRequest(),
    "ListConfigResources": lambda version, one: list_config_resources.ListConfigResourcesRequest(),
    "DescribeQuorum": lambda version, one: describe_quorum.DescribeQuorumRequest(
        [
            describe_quorum.RequestTopicData(
                "__cluster_metadata" if one.topic == "orders" else one.topic,
                [describe_quorum.RequestPartitionData(one.partition)],
            )
        ]
    ),
    "UpdateFeatures": lambda version, one: update_features.UpdateFeaturesRequest(
        feature_updates=[
            update_features.FeatureUpdateKey(
                "group.version" if one.topic == "orders" else one.topic, 1
            )
        ]
    ),
    "AlterReplicaLogDirs": lambda version, one: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        [
            alter_replica_log_dirs.AlterReplicaLogDir(
                "data",
                [alter_replica_log_dirs.AlterReplicaLogDirTopic(one.topic, [one.partition])],
            )
        ]
    ),
    "ApiVersions": lambda version, one: api_versions.ApiVersionsRequest(
        client_software_name="peer", client_software_version="1"
    ),
    "CreateTopics": lambda version, one: create_request(one.topic + ".new"),
    "DeleteTopics": lambda version, one: delete_topics_request(version, one.topic),
    "DeleteRecords": lambda version, one: delete_records_request(one, 0),
    "InitProducerId": lambda version, one: init_producer_id.InitProducerIdRequest(
        transactional_id=None
    ),
    "AddPartitionsToTxn": add_partitions_request,
    "AddOffsetsToTxn": lambda version, one: add_offsets_request(one),
    "TxnOffsetCommit": txn_commit_request,
    "EndTxn": lambda version, one: end_request(one),
    "WriteTxnMarkers": lambda version, one: markers_request(one),
    "ElectLeaders": lambda version, one: elect_leaders.ElectLeadersRequest(
        topic_partitions=[
            elect_leaders.TopicPartitions(topic=one.topic, partitions=[one.partition])
        ]
    ),
    "AlterPartitionReassignments": lambda version, one: reassign_request(one, [1]),
    "ListPartitionReassignments": lambda version, one: (
        list_partition_reassignments.ListPartitionReassignmentsRequest()
    ),
    "UnregisterBroker": lambda version, one: unregister_broker.UnregisterBrokerRequest(
        broker_id=77
    ),
    "DescribeTransactions": lambda version, one: describe_transactions.DescribeTransactionsRequest(
        transactional_ids=[one.transaction]
    ),
    "ListTransactions": lambda version, one: list_transactions.ListTransactionsRequest(),
    "OffsetForLeaderEpoch": lambda version, one: epoch_end_request(one, 0),
    "DescribeConfigs": lambda version, one: describe_configs_request(version, one.topic),
    "AlterConfigs": lambda version, one: alter_request(one.topic, retention_ms="1000"),
    "DescribeLogDirs": lambda version, one: describe_log_dirs.DescribeLogDirsRequest(
        topics=[
            describe_log_dirs.DescribableLogDirTopic(topic=one.topic, partitions=[one.partition])
        ]
    ),
    "CreatePartitions": lambda version, one: grow_request(one.topic, 5),
    "DeleteGroups": lambda version, one: delete_groups.DeleteGroupsRequest(
        groups_names=[one.group]
    ),
    "IncrementalAlterConfigs": lambda version, one: incremental_request(
        one.topic, ("retention.ms", 0, "1000")
    ),
    "OffsetDelete": _offset_delete,
    "DescribeClientQuotas": _describe_client_quotas,
    "AlterClientQuotas": _alter_client_quotas,
    "DescribeCluster": lambda version, one: describe_cluster.DescribeClusterRequest(),
    "DescribeProducers": _describe_producers,
    "ConsumerGroupHeartbeat": lambda version, one: (
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=one.consumer_group,
            member_id="11111111-1111-1111-1111-111111111111",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[one.topic],
            topic_partitions=[],
        )
    ),
    "ConsumerGroupDescribe": lambda version, one: (
        consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[one.consumer_group])
    ),
    "CreateAcls": lambda version, one: create_acls.CreateAclsRequest(
        creations=[
            create_acls.AclCreation(
                resource_type=TOPIC_RESOURCE,
                resource_name=one.topic,
                principal="User:alice",
                host="*",
                operation=3,
                permission_type=3,
            )
        ]
    ),
    "DescribeAcls": lambda version, one: describe_acls.DescribeAclsRequest(
        resource_type_filter=TOPIC_RESOURCE,
        resource_name_filter=one.topic,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    ),
    "DeleteAcls": lambda version, one: delete_acls.DeleteAclsRequest(
        filters=[
            delete_acls.DeleteAclsFilter(
                resource_type_filter=TOPIC_RESOURCE,
                resource_name_filter=one.topic,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
        ]
    ),
    "GetTelemetrySubscriptions": lambda version, one: (
        get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest()
    ),
    "PushTelemetry": lambda version, one: push_telemetry.PushTelemetryRequest(b"i" * 16),
    "DescribeTopicPartitions": lambda version, one: (
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=one.topic)]
        )
    ),
}
