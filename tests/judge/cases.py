"""What both brokers are asked, and what of their answers counts.

A case sends requests to one broker and returns plain values. They are the same for Apache Kafka and
for GoQueue, except where `DIFFERENCES` says why not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from goqueue.model.batch import Record, encode_batch
from goqueue.wire.kafka.messages import (
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    create_topics,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_transactions,
    metadata,
    offset_commit,
    produce,
    update_features,
    write_txn_markers,
)
from tests.judge.asking import Ask

Case = Callable[[Ask], Any]
CASES: dict[str, Case] = {}
# Where GoQueue answers something else, and why; the value is what it answers.
DIFFERENCES: dict[str, tuple[str, Any]] = {}
READY_SECONDS_MAX = 30.0
COORDINATORS = frozenset({14, 15, 16})  # that load, or are not known yet
_SETTING_UP = frozenset({3, 5, 6, 51}) | COORDINATORS  # topics, leaders, transactions


def case(made: Case) -> Case:
    CASES[made.__name__] = made
    return made


def create(ask: Ask, name: str, *, partitions: int = 1, **configs: str) -> None:
    topic = create_topics.CreatableTopic(
        name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            create_topics.CreatableTopicConfig(key.replace("_", "."), value)
            for key, value in configs.items()
        ],
    )
    answer = ask("CreateTopics", create_topics.CreateTopicsRequest([topic], timeout_ms=30_000))
    assert answer.topics[0].error_code == 0, answer
    wanted = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    until_ready(ask, lambda: ask("Metadata", wanted, 8))


def commit(ask: Ask, group: str, topic: str, offset: int = 0) -> None:
    """Have a group that has a commit and no members."""
    place = offset_commit.OffsetCommitRequestTopic(
        topic, partitions=[offset_commit.OffsetCommitRequestPartition(0, offset)]
    )
    request = offset_commit.OffsetCommitRequest(group, topics=[place])
    coordinate(ask, group, 0)
    answer = until_ready(ask, lambda: ask("OffsetCommit", request, 8))
    assert answer.topics[0].partitions[0].error_code == 0, answer


def coordinate(ask: Ask, key: str, kind: int) -> None:
    """Have a coordinator of a group (0) or of a transaction (1)."""
    request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    until_ready(ask, lambda: ask("FindCoordinator", request, 4))


def until_ready(
    ask: Ask, attempt: Callable[[], Any], *, until: AbstractSet[int] = _SETTING_UP
) -> Any:
    """Ask again while the answer says that a coordinator, or another thing, is being set up."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        answer = attempt()
        if not until & set(error_codes(answer)) or time.monotonic() > deadline:
            return answer
        ask.pause()


def error_codes(value: Any) -> Iterator[int]:
    """Every error code anywhere in an answer."""
    if isinstance(value, list):
        for one in value:
            yield from error_codes(one)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            content = getattr(value, name)
            if name.endswith("error_code"):
                yield content
            else:
                yield from error_codes(content)


# Features


@case
def supported_features(ask: Ask) -> Any:
    """Older clients cannot read that a feature may be absent, which is level 0."""
    return {
        version: sorted(
            (one.name, one.min_version, one.max_version)
            for one in ask(
                "ApiVersions", api_versions.ApiVersionsRequest("judge", "1"), version
            ).supported_features
        )
        for version in (3, 4)
    }


@case
def finalized_features(ask: Ask) -> Any:
    answer = ask("ApiVersions", api_versions.ApiVersionsRequest("judge", "1"), 4)
    return sorted(
        (one.name, one.min_version_level, one.max_version_level)
        for one in answer.finalized_features
    )


_FEATURES = [
    ("group.version", 1, 1),
    ("metadata.version", 25, 25),
    ("share.version", 1, 1),
    ("transaction.version", 2, 2),
]
_WHY_FEATURES = "Only what works is announced, at the one level that it works at."
DIFFERENCES["supported_features"] = (_WHY_FEATURES, {"3": _FEATURES, "4": _FEATURES})
DIFFERENCES["finalized_features"] = (_WHY_FEATURES, _FEATURES)


# Who may do what: without an authorizer everybody may do everything


@case
def operations_of_topics_and_the_cluster(ask: Ask) -> Any:
    create(ask, "allowed")
    topics = [metadata.MetadataRequestTopic(name=name) for name in ("allowed", "missing")]
    found = []
    for is_wanted in (True, False):
        for version in (8, 10):
            request = metadata.MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=is_wanted,
                include_topic_authorized_operations=is_wanted,
            )
            answer = ask("Metadata", request, version)
            operations = [one.topic_authorized_operations for one in answer.topics]
            found.append((operations, answer.cluster_authorized_operations))
    return found


@case
def operations_of_the_cluster(ask: Ask) -> Any:
    return [
        ask(
            "DescribeCluster",
            describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=one),
        ).cluster_authorized_operations
        for one in (True, False)
    ]


@case
def operations_of_groups(ask: Ask) -> Any:
    create(ask, "read")
    commit(ask, "readers", "read")
    found = []
    for is_wanted in (True, False):
        names = ["readers", "nobody"]
        classic = describe_groups.DescribeGroupsRequest(names, is_wanted)
        consumer = consumer_group_describe.ConsumerGroupDescribeRequest(names, is_wanted)
        for answer in (ask("DescribeGroups", classic), ask("ConsumerGroupDescribe", consumer)):
            found.append(
                sorted(
                    (one.group_id, one.error_code, one.authorized_operations)
                    for one in answer.groups
                )
            )
    return found


@case
def operations_of_a_topic_with_its_partitions(ask: Ask) -> Any:
    create(ask, "paged")
    names = [describe_topic_partitions.TopicRequest(one) for one in ("paged", "missing")]
    answer = ask(
        "DescribeTopicPartitions",
        describe_topic_partitions.DescribeTopicPartitionsRequest(topics=names),
    )
    return sorted((one.name, one.topic_authorized_operations) for one in answer.topics)


@case
def endpoints_of_the_cluster(ask: Ask) -> Any:
    return [
        ask(
            "DescribeCluster", describe_cluster.DescribeClusterRequest(endpoint_type=one), 1
        ).error_code
        for one in (1, 2, 3)
    ]


# Settings

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
RETENTION = "log.retention.ms"
RATE = "leader.replication.throttled.rate"
SHOWN_SECONDS_MAX = 10.0
WRITTEN_MS = 1_699_000_000_000  # a time that has passed, whatever clock the broker has


def alter(ask: Ask, kind: int, name: str, *changes: tuple[str, int, str | None]) -> int:
    """Change some settings; the error code."""
    configs = [incremental_alter_configs.AlterableConfig(*one) for one in changes]
    resource = incremental_alter_configs.AlterConfigsResource(kind, name, configs)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
    code: int = ask("IncrementalAlterConfigs", request).responses[0].error_code
    return code


def replace(ask: Ask, kind: int, name: str, **values: str) -> int:
    configs = [
        alter_configs.AlterableConfig(one.replace("_", "."), value) for one, value in values.items()
    ]
    resource = alter_configs.AlterConfigsResource(kind, name, configs)
    request = alter_configs.AlterConfigsRequest([resource])
    code: int = ask("AlterConfigs", request).responses[0].error_code
    return code


def described(ask: Ask, kind: int, name: str, *settings: str) -> Any:
    resource = describe_configs.DescribeConfigsResource(kind, name, list(settings))
    request = describe_configs.DescribeConfigsRequest([resource], include_synonyms=True)
    answer = ask("DescribeConfigs", request).results[0]
    return [answer.error_code] + [
        [
            one.name,
            one.value,
            one.config_source,
            one.config_type,
            [[each.name, each.value, each.source] for each in one.synonyms],
        ]
        for one in sorted(answer.configs, key=lambda config: str(config.name))
    ]


def shown(ask: Ask, kind: int, name: str, setting: str, value: str | None) -> Any:
    """How a setting is described once it has a value: brokers learn of changes a little later."""
    deadline = time.monotonic() + SHOWN_SECONDS_MAX
    while True:
        found = described(ask, kind, name, setting)
        values = [one[1] for one in found[1:]]
        if values == ([] if value is None else [value]) or time.monotonic() > deadline:
            return found
        ask.pause()


@case
def settings_of_groups(ask: Ask) -> Any:
    """They can be set before there is such a group."""
    found = [described(ask, GROUP, "timed", SESSION, HEARTBEAT), described(ask, GROUP, "", SESSION)]
    found.append(alter(ask, GROUP, "timed", (SESSION, SET, "50000")))
    found.append(shown(ask, GROUP, "timed", SESSION, "50000"))
    found.append(described(ask, GROUP, "other", SESSION))
    found.append(alter(ask, GROUP, "timed", (SESSION, DELETE, None)))
    found.append(shown(ask, GROUP, "timed", SESSION, "45000"))
    found.append(replace(ask, GROUP, "timed", consumer_session_timeout_ms="55000"))
    found.append(shown(ask, GROUP, "timed", SESSION, "55000"))
    found.append(replace(ask, GROUP, "timed"))
    found.append(shown(ask, GROUP, "timed", SESSION, "45000"))
    return found


@case
def wrong_settings_of_groups(ask: Ask) -> Any:
    return [
        alter(ask, GROUP, "timed", (SESSION, SET, "1000")),
        alter(ask, GROUP, "timed", (SESSION, SET, "many")),
        alter(ask, GROUP, "timed", (SESSION, SET, None)),
        alter(ask, GROUP, "timed", ("no.such.setting", SET, "1")),
        alter(ask, GROUP, "", (SESSION, SET, "50000")),
        alter(ask, GROUP, "timed", (SESSION, APPEND, "5")),
        alter(ask, GROUP, "timed", (SESSION, SET, "50000"), (SESSION, SET, "51000")),
    ]


@case
def defaults_of_topics(ask: Ask) -> Any:
    """Of all nodes, of one node and of a topic: the next one counts before the last."""
    create(ask, "layered")
    steps: list[tuple[int, str, str, str]] = [
        (BROKER, "", "message.max.bytes", "1000001"),
        (BROKER, "1", "message.max.bytes", "1000002"),
        (TOPIC, "layered", "max.message.bytes", "1000003"),
    ]
    found: list[Any] = [
        described(ask, TOPIC, "layered", "max.message.bytes", "cleanup.policy", "segment.bytes")
    ]
    for kind, name, setting, value in steps:
        found.append(alter(ask, kind, name, (setting, SET, value)))
        found.append(shown(ask, TOPIC, "layered", "max.message.bytes", value))
        found.append(described(ask, BROKER, "", "message.max.bytes"))
        found.append(described(ask, BROKER, "1", "message.max.bytes"))
    for kind, name, setting, _ in reversed(steps):
        found.append(alter(ask, kind, name, (setting, DELETE, None)))
    found.append(shown(ask, TOPIC, "layered", "max.message.bytes", "1048588"))
    return found


@case
def wrong_settings_of_nodes(ask: Ask) -> Any:
    return [
        alter(ask, BROKER, "1", ("num.partitions", SET, "5")),
        alter(ask, BROKER, "", ("broker.rack", SET, "x")),
        alter(ask, BROKER, "77", (RETENTION, SET, "5000")),
        alter(ask, BROKER, "x", (RETENTION, SET, "5000")),
        described(ask, BROKER, "77", RETENTION),
        described(ask, BROKER, "x", RETENTION),
        described(ask, 99, "x"),
        alter(ask, 99, "x", (RETENTION, SET, "5000")),
        alter(ask, TOPIC, "", ("retention.ms", SET, "5000")),
    ]


@case
def throttles_of_one_node(ask: Ask) -> Any:
    found: list[Any] = [alter(ask, BROKER, "1", (RATE, SET, "5000"))]
    found.append(shown(ask, BROKER, "1", RATE, "5000"))
    found.append(alter(ask, BROKER, "1", (RATE, DELETE, "")))
    found.append(shown(ask, BROKER, "1", RATE, None))
    return found


@case
def racks(ask: Ask) -> Any:
    return described(ask, BROKER, "1", "broker.rack")


@case
def topics_that_forget_nothing(ask: Ask) -> Any:
    """A topic may have no cleanup policy at all."""
    create(ask, "kept", cleanup_policy="")
    found: list[Any] = [shown(ask, TOPIC, "kept", "cleanup.policy", "")]
    for operation, value, after in (
        (APPEND, "compact", "compact"),
        (SUBTRACT, "compact", ""),
        (SET, "delete,compact", "delete,compact"),
    ):
        found.append(alter(ask, TOPIC, "kept", ("cleanup.policy", operation, value)))
        found.append(shown(ask, TOPIC, "kept", "cleanup.policy", after)[1][1])
    for value in ("", "nope", "delete,", "compact,delete"):
        found.append(alter(ask, TOPIC, "kept", ("cleanup.policy", SET, value)))
    found.append(alter(ask, TOPIC, "kept", ("cleanup.policy", SET, "")))
    found.append(shown(ask, TOPIC, "kept", "cleanup.policy", "")[1][1])
    request = delete_records.DeleteRecordsRequest(
        [delete_records.DeleteRecordsTopic("kept", [delete_records.DeleteRecordsPartition(0, 0)])],
        timeout_ms=10_000,
    )
    answer = ask("DeleteRecords", request)
    found.append([one.error_code for topic in answer.topics for one in topic.partitions])
    return found


@case
def resources_that_have_settings(ask: Ask) -> Any:
    create(ask, "listed")
    alter(ask, GROUP, "listed", (SESSION, SET, "50000"))
    shown(ask, GROUP, "listed", SESSION, "50000")
    found = []
    for kinds in ([TOPIC], [BROKER], [METRICS], [GROUP], [99], [BROKER, GROUP]):
        request = list_config_resources.ListConfigResourcesRequest(kinds)
        answer = ask("ListConfigResources", request, 1)
        names = [
            [one.resource_type, one.resource_name]
            for one in answer.config_resources
            if one.resource_name in ("1", "listed")
        ]
        found.append([answer.error_code, sorted(names)])
    old = ask("ListConfigResources", list_config_resources.ListConfigResourcesRequest(), 0)
    return [*found, [old.error_code, len(old.config_resources)]]


# The metadata quorum, features and folders


@case
def the_metadata_quorum(ask: Ask) -> Any:
    found = []
    for version in (0, 1, 2):
        for topic, number in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)):
            wanted = describe_quorum.RequestTopicData(
                topic, [describe_quorum.RequestPartitionData(number)]
            )
            answer = ask("DescribeQuorum", describe_quorum.DescribeQuorumRequest([wanted]), version)
            (one,) = answer.topics[0].partitions
            voters = [[each.replica_id, each.log_end_offset >= 0] for each in one.current_voters]
            state = [one.error_code, one.leader_id, voters, len(one.observers)]
            found.append([answer.error_code, *state, [node.node_id for node in answer.nodes]])
    return found


@case
def updates_of_features(ask: Ask) -> Any:
    """A level that is in effect can be asked for again; everything else is refused."""
    found = []
    for name, level, kind in (
        ("group.version", 1, 1),
        ("group.version", 2, 1),
        ("no.such.feature", 1, 1),
        ("group.version", -1, 1),
        ("group.version", 1, 0),
        ("metadata.version", 6, 2),
        ("metadata.version", 99, 1),
        ("transaction.version", 2, 1),
    ):
        update = update_features.FeatureUpdateKey(name, level, upgrade_type=kind)
        # Version 0 has no kinds of updates.
        versions = (0, 1, 2) if kind == 1 else (1, 2)
        found += [[name, level, kind, *updated(ask, version, update)] for version in versions]
    both = [
        update_features.FeatureUpdateKey(name, level)
        for name, level in (("group.version", 1), ("transaction.version", 2))
    ]
    return found + [updated(ask, version, *both) for version in (0, 1, 2)]


def updated(ask: Ask, version: int, *updates: update_features.FeatureUpdateKey) -> list[Any]:
    request = update_features.UpdateFeaturesRequest(10_000, list(updates), False)
    answer = ask("UpdateFeatures", request, version)
    results = [[one.feature, one.error_code, one.error_message] for one in answer.results]
    return [answer.error_code, results]


@case
def folders_of_replicas(ask: Ask) -> Any:
    """Everything is in the one folder that there is."""
    create(ask, "placed")
    request = describe_log_dirs.DescribeLogDirsRequest(None)
    folder = ask("DescribeLogDirs", request, 4).results[0].log_dir
    found = []
    for path, number in ((folder, 0), ("/nowhere", 0), ("relative", 0), ("/nowhere", 7)):
        place = alter_replica_log_dirs.AlterReplicaLogDirTopic("placed", [number])
        wanted = alter_replica_log_dirs.AlterReplicaLogDir(path, [place])
        answer = ask(
            "AlterReplicaLogDirs", alter_replica_log_dirs.AlterReplicaLogDirsRequest([wanted])
        )
        found.append([one.error_code for one in answer.results[0].partitions])
    return found


# Transactions


@case
def transactions_and_their_times(ask: Ask) -> Any:
    """When a transaction began, and when its producer last wrote, is known after its end too."""
    create(ask, "paid")
    found = [begin(ask, "till", "paid")]
    producer = found[0].pop()
    for is_commit in (True, False):
        found.append(send(ask, "till", "paid", producer))
        found.append(seen(ask, "till", "paid"))
        producer = end(ask, "till", producer, is_commit=is_commit)
        found.append(seen(ask, "till", "paid"))
        for state in ("CompleteCommit", "Ongoing", "Empty"):
            request = list_transactions.ListTransactionsRequest([state], duration_filter=0)
            answer = ask("ListTransactions", request, 1)
            found.append([one.transactional_id for one in answer.transaction_states])
    begin(ask, "till", "paid")
    return [*found, seen(ask, "till", "paid")]


@case
def transactions_that_an_operator_aborts(ask: Ask) -> Any:
    """As `kafka-transactions abort` does it, with what DescribeProducers says."""
    create(ask, "stuck")
    producer = begin(ask, "hung", "stuck").pop()
    found: list[Any] = [send(ask, "hung", "stuck", producer)]
    for topic, number in (("stuck", 0), ("stuck", 7), ("nowhere", 0)):
        marker = write_txn_markers.WritableTxnMarker(
            *producer, False, [write_txn_markers.WritableTxnMarkerTopic(topic, [number])], 0
        )
        answer = ask("WriteTxnMarkers", write_txn_markers.WriteTxnMarkersRequest([marker]), 1)
        found.append([one.error_code for one in answer.markers[0].topics[0].partitions])
    return [*found, open_since(ask, "stuck")]


def begin(ask: Ask, name: str, topic: str) -> list[Any]:
    """Have a producer of transactions; how it is seen, and its id and epoch."""
    coordinate(ask, name, 1)
    request = init_producer_id.InitProducerIdRequest(name, 60_000, -1, -1)
    answer = until_ready(ask, lambda: ask("InitProducerId", request, 4))
    return [answer.error_code, *seen(ask, name, topic), (answer.producer_id, answer.producer_epoch)]


def send(ask: Ask, name: str, topic: str, producer: tuple[int, int]) -> int:
    """Write the first record of a transaction; the error code."""
    batch = encode_batch(
        [Record(b"key", b"value", timestamp_ms=WRITTEN_MS)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        is_transactional=True,
    )
    data = produce.PartitionProduceData(0, bytes(batch))
    place = produce.TopicProduceData(name=topic, partition_data=[data])
    request = produce.ProduceRequest(name, -1, 10_000, [place])
    answer = until_ready(ask, lambda: ask("Produce", request, 12))
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def end(ask: Ask, name: str, producer: tuple[int, int], *, is_commit: bool) -> tuple[int, int]:
    request = end_txn.EndTxnRequest(name, *producer, is_commit)
    answer = until_ready(ask, lambda: ask("EndTxn", request, 5))
    assert answer.error_code == 0, answer
    deadline = time.monotonic() + SHOWN_SECONDS_MAX
    while not seen(ask, name, "")[0].startswith("Complete") and time.monotonic() < deadline:
        ask.pause()
    return answer.producer_id, answer.producer_epoch


def seen(ask: Ask, name: str, topic: str) -> list[Any]:
    """State and times of a transaction and its producer; times by whether they are known."""
    request = describe_transactions.DescribeTransactionsRequest([name])
    one = ask("DescribeTransactions", request).transaction_states[0]
    found = [one.transaction_state, one.transaction_start_time_ms > 0, len(one.topics)]
    if topic:
        found += [each.last_timestamp > 0 for each in producers_of(ask, topic)]
    return found


def producers_of(ask: Ask, topic: str) -> list[Any]:
    place = describe_producers.TopicRequest(topic, [0])
    answer = ask("DescribeProducers", describe_producers.DescribeProducersRequest([place]))
    return list(answer.topics[0].partitions[0].active_producers)


def open_since(ask: Ask, topic: str) -> list[int]:
    return [one.current_txn_start_offset for one in producers_of(ask, topic)]


# Records that are refused


@case
def errors_of_single_records(ask: Ask) -> Any:
    """Which records of a batch are to blame (KIP-467)."""
    create(ask, "keyed", cleanup_policy="compact")
    create(
        ask, "timely", message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="1000"
    )
    create(ask, "plain")
    return [
        refused(ask, "keyed", [Record(b"k", b"1", timestamp_ms=WRITTEN_MS)] * 2),
        refused(ask, "keyed", [Record(None, b"1", timestamp_ms=WRITTEN_MS)]),
        refused(
            ask,
            "keyed",
            [
                Record(None if number % 2 else b"k", b"1", timestamp_ms=WRITTEN_MS)
                for number in range(5)
            ],
        ),
        refused(ask, "timely", [Record(b"k", b"1", timestamp_ms=WRITTEN_MS)] * 3),
        refused(ask, "timely", [Record(b"k", b"1", timestamp_ms=1 << 50)]),
        refused(ask, "plain", [Record(b"k", b"1", timestamp_ms=1 << 50)] * 2),
    ]


def refused(ask: Ask, topic: str, records: list[Record]) -> list[Any]:
    """The error code of a produced batch and the places of the records that it blames."""
    data = produce.PartitionProduceData(0, bytes(encode_batch(records)))
    place = produce.TopicProduceData(name=topic, partition_data=[data])
    request = produce.ProduceRequest(None, -1, 10_000, [place])
    answer = until_ready(ask, lambda: ask("Produce", request, 9))
    one = answer.responses[0].partition_responses[0]
    return [
        one.error_code,
        one.base_offset >= 0,
        [each.batch_index for each in one.record_errors],
        [bool(each.batch_index_error_message) for each in one.record_errors],
        one.error_message is not None,
    ]
