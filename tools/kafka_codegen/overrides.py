"""Which APIs are generated, and where we speak more versions than the newest Kafka does."""

from __future__ import annotations

from tools.kafka_codegen.definitions import Message, Versions

APIS_DEFAULT = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeConfigs",
    "AlterConfigs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "CreatePartitions",
    "DeleteGroups",
    "ElectLeaders",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "OffsetDelete",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "DescribeCluster",
    "DescribeProducers",
    "UnregisterBroker",
    "DescribeTransactions",
    "ListTransactions",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "DescribeTopicPartitions",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
    "AlterReplicaLogDirs",
    "DescribeQuorum",
    "UpdateFeatures",
    "ListConfigResources",
)

# First versions that are older than what the newest Kafka accepts. The definitions still say in
# which versions each field exists, so lowering the first version is all that is needed: Produce 0-2
# are version 3 without the transactional id; their responses gain the throttle time in version 1
# and the append time in version 2.
VERSION_FIRST = {
    "Produce": 0,
}


def widen(message: Message) -> Message:
    """Apply `VERSION_FIRST` to a request or response."""
    api_name = message.name.removesuffix("Request").removesuffix("Response")
    first = VERSION_FIRST.get(api_name)
    if first is None:
        return message
    return message.with_versions(Versions(first, message.versions.last))
