"""Administration as Kafka's own clients do it: topics, settings, groups, offsets, records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.structs import OffsetAndMetadata

from .clients import Confluent, Message
from .members import COOPERATIVE, EAGER, NEW_PROTOCOL, Member, settle
from .topics import FOREVER, committed, is_led, read_all, watermarks
from .waiting import eventually

NewTopicName = Callable[..., str]


@pytest.fixture(scope="module")
def kafka_python_admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def error_of(future: Any) -> KafkaError:
    """The error an admin call ends with."""
    with pytest.raises(KafkaException) as refused:
        future.result(30)
    error: KafkaError = refused.value.args[0]
    return error


def error_of_creating(admin: AdminClient, wanted: NewTopic, **options: object) -> KafkaError:
    return error_of(admin.create_topics([wanted], **options)[wanted.topic])


def config_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(30)
    return found


# Topics


@pytest.mark.on_cluster
def test_a_created_topic_is_listed_and_a_deleted_one_is_not(
    admin: AdminClient, unique: str
) -> None:
    admin.create_topics([NewTopic(unique, num_partitions=3)])[unique].result(30)
    eventually(lambda: is_led(admin, unique, partitions=3))
    assert unique in admin.list_topics(timeout=10).topics
    admin.delete_topics([unique])[unique].result(30)
    eventually(lambda: unique not in admin.list_topics(timeout=10).topics)


def test_a_topic_created_without_a_count_has_the_default_partitions(
    admin: AdminClient, unique: str
) -> None:
    admin.create_topics([NewTopic(unique)])[unique].result(30)
    eventually(lambda: is_led(admin, unique, partitions=1))
    admin.delete_topics([unique])[unique].result(30)


def test_a_topic_can_be_created_again_after_it_was_deleted(
    bootstrap: str, admin: AdminClient, unique: str
) -> None:
    for round_number in range(3):
        eventually(
            lambda: admin.create_topics([NewTopic(unique)])[unique].exception(30) is None,
            because="the name is free again",
        )
        eventually(lambda: is_led(admin, unique, partitions=1))
        Confluent(bootstrap).write(unique, [Message(b"round %d" % round_number)])
        assert [message.value for message in read_all(bootstrap, unique)] == [
            b"round %d" % round_number
        ]
        admin.delete_topics([unique])[unique].result(30)


def test_creating_a_topic_twice_is_refused(admin: AdminClient, topic: str) -> None:
    error = error_of_creating(admin, NewTopic(topic))
    assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert error.str() == f"Topic '{topic}' already exists."


@pytest.mark.parametrize("name", ["with space", "slash/ed", "naïve", ".", "..", "x" * 250])
def test_an_invalid_topic_name_is_refused(name: str, admin: AdminClient) -> None:
    error = error_of_creating(admin, NewTopic(name))
    assert error.code() == KafkaError.TOPIC_EXCEPTION


def test_a_name_of_249_characters_is_the_longest_allowed(admin: AdminClient, unique: str) -> None:
    name = unique.ljust(249, "x")
    admin.create_topics([NewTopic(name)])[name].result(30)
    admin.delete_topics([name])[name].result(30)


def test_more_replicas_than_brokers_are_refused(admin: AdminClient, unique: str) -> None:
    error = error_of_creating(admin, NewTopic(unique, num_partitions=1, replication_factor=9))
    assert error.code() == KafkaError.INVALID_REPLICATION_FACTOR


def test_zero_partitions_are_refused(admin: AdminClient, unique: str) -> None:
    error = error_of_creating(admin, NewTopic(unique, num_partitions=0))
    assert error.code() == KafkaError.INVALID_PARTITIONS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("max.message.bytes", "-5"),
    ],
)
def test_an_invalid_topic_setting_is_refused(
    name: str, value: str, admin: AdminClient, unique: str
) -> None:
    error = error_of_creating(admin, NewTopic(unique, num_partitions=1, config={name: value}))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert name in error.str()
    assert unique not in admin.list_topics(timeout=10).topics


def test_a_validated_topic_is_not_created(admin: AdminClient, unique: str) -> None:
    wanted = NewTopic(unique, num_partitions=2)
    admin.create_topics([wanted], validate_only=True)[unique].result(30)
    assert unique not in admin.list_topics(timeout=10).topics


def test_deleting_an_unknown_topic_is_an_error(admin: AdminClient, unique: str) -> None:
    error = error_of(admin.delete_topics([unique])[unique])
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describing_an_unknown_topic_is_an_error(admin: AdminClient, unique: str) -> None:
    error = error_of(admin.describe_topics(TopicCollection([unique]))[unique])
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_described_topic_shows_leaders_replicas_and_its_id(
    admin: AdminClient, new_topic: NewTopicName
) -> None:
    topic = new_topic(partitions=3)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    assert described.name == topic
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert partition.leader.id in [node.id for node in partition.replicas]
        assert partition.leader.id in [node.id for node in partition.isr]
    assert described.topic_id.get_most_significant_bits() != 0


def test_one_request_answers_for_each_topic_by_itself(
    admin: AdminClient, topic: str, unique: str
) -> None:
    fresh = f"{unique}-fresh"
    futures = admin.create_topics([NewTopic(topic), NewTopic(fresh), NewTopic("not valid")])
    assert error_of(futures[topic]).code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert error_of(futures["not valid"]).code() == KafkaError.TOPIC_EXCEPTION
    assert futures[fresh].result(30) is None
    admin.delete_topics([fresh])[fresh].result(30)


def test_many_small_topics_are_created_written_and_deleted(
    bootstrap: str, admin: AdminClient, unique: str
) -> None:
    names = [f"{unique}-{number}" for number in range(100)]
    for future in admin.create_topics([NewTopic(name) for name in names]).values():
        future.result(30)
    eventually(lambda: set(names) <= admin.list_topics(timeout=10).topics.keys())
    producer = Producer({"bootstrap.servers": bootstrap})
    for name in names:
        producer.produce(name, name)
    assert producer.flush(45) == 0
    for name in names[::20]:
        assert [message.value for message in read_all(bootstrap, name)] == [name.encode()]
    for future in admin.delete_topics(names).values():
        future.result(30)
    eventually(lambda: not set(names) & admin.list_topics(timeout=10).topics.keys())


def test_partitions_can_be_added_but_not_removed(
    admin: AdminClient, new_topic: NewTopicName
) -> None:
    topic = new_topic(partitions=2)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
    eventually(lambda: is_led(admin, topic, partitions=4))
    for count in (4, 3):
        error = error_of(admin.create_partitions([NewPartitions(topic, count)])[topic])
        assert error.code() == KafkaError.INVALID_PARTITIONS


def test_adding_partitions_to_an_unknown_topic_is_an_error(admin: AdminClient, unique: str) -> None:
    error = error_of(admin.create_partitions([NewPartitions(unique, 4)])[unique])
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_adding_partitions_can_be_only_validated(admin: AdminClient, topic: str) -> None:
    wanted = [NewPartitions(topic, 4)]
    admin.create_partitions(wanted, validate_only=True)[topic].result(30)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 1


# Settings


def test_a_topics_settings_are_described_with_their_source(
    admin: AdminClient, new_topic: NewTopicName
) -> None:
    topic = new_topic(**{"retention.ms": "12345"})
    found = config_of(admin, topic)
    assert found["retention.ms"].value == "12345"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].source == ConfigSource.DEFAULT_CONFIG.value
    assert not found["cleanup.policy"].is_read_only
    expected = {"segment.bytes", "retention.bytes", "max.message.bytes", "min.insync.replicas"}
    expected |= {"compression.type", "message.timestamp.type", "delete.retention.ms"}
    assert expected <= found.keys()


def test_settings_are_altered_one_by_one(admin: AdminClient, new_topic: NewTopicName) -> None:
    topic = new_topic(**{"retention.ms": "12345", "retention.bytes": "1000000"})

    def alter(name: str, operation: AlterConfigOpType, value: str | None = None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    alter("retention.ms", AlterConfigOpType.SET, "54321")
    eventually(lambda: config_of(admin, topic)["retention.ms"].value == "54321")
    assert config_of(admin, topic)["retention.bytes"].value == "1000000"
    alter("cleanup.policy", AlterConfigOpType.APPEND, "compact")
    eventually(lambda: config_of(admin, topic)["cleanup.policy"].value == "delete,compact")
    alter("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete")
    eventually(lambda: config_of(admin, topic)["cleanup.policy"].value == "compact")
    alter("retention.ms", AlterConfigOpType.DELETE)
    eventually(lambda: config_of(admin, topic)["retention.ms"].value == "604800000")


def test_altering_all_settings_resets_those_not_named(
    bootstrap: str, new_topic: NewTopicName, admin: AdminClient
) -> None:
    topic = new_topic(**{"retention.ms": "12345"})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.bytes": "777777"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        admin.alter_configs([resource])[resource].result(30)
    eventually(lambda: config_of(admin, topic)["retention.bytes"].value == "777777")
    assert config_of(admin, topic)["retention.ms"].value == "604800000"


@pytest.mark.parametrize(
    ("name", "value"),
    [("no.such.setting", "1"), ("retention.ms", "soon"), ("cleanup.policy", "burn")],
)
def test_an_invalid_new_setting_is_refused_and_changes_nothing(
    name: str, value: str, admin: AdminClient, topic: str
) -> None:
    before = {key: entry.value for key, entry in config_of(admin, topic).items()}
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    error = error_of(admin.incremental_alter_configs([resource])[resource])
    assert error.code() == KafkaError.INVALID_CONFIG
    assert {key: entry.value for key, entry in config_of(admin, topic).items()} == before


def test_settings_of_an_unknown_topic_are_an_error(admin: AdminClient, unique: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, unique)
    error = error_of(admin.describe_configs([resource])[resource])
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, unique, incremental_configs=[entry])
    error = error_of(admin.incremental_alter_configs([resource])[resource])
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_brokers_settings_are_described(admin: AdminClient) -> None:
    (broker_id, *_) = admin.list_topics(timeout=10).brokers
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    found = admin.describe_configs([resource])[resource].result(30)
    assert int(found["num.partitions"].value) >= 1
    assert found["message.max.bytes"].value == "1048588"


# The cluster


def test_a_described_cluster_names_its_brokers_and_controller(
    admin: AdminClient, bootstrap: str
) -> None:
    described = admin.describe_cluster().result(30)
    assert described.cluster_id
    assert set(bootstrap.split(",")) == {f"{node.host}:{node.port}" for node in described.nodes}
    assert described.controller.id in [node.id for node in described.nodes]


def test_the_cluster_id_is_the_same_for_everyone(
    admin: AdminClient, kafka_python_admin: KafkaAdminClient
) -> None:
    described = admin.describe_cluster().result(30)
    assert kafka_python_admin.describe_cluster()["cluster_id"] == described.cluster_id


# Offsets and records


def test_offsets_are_listed_by_kind_and_time(
    admin: AdminClient, bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic(**FOREVER)
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> tuple[int, int]:
        found = admin.list_offsets({partition: spec})[partition].result(30)
        return found.offset, found.timestamp

    assert offset(OffsetSpec.earliest()) == (0, -1)
    assert offset(OffsetSpec.latest()) == (0, -1)
    assert offset(OffsetSpec.max_timestamp()) == (-1, -1)
    times = [10_000, 50_000, 30_000, 40_000]
    Confluent(bootstrap).write(topic, [Message(b"at", timestamp=time) for time in times])
    assert offset(OffsetSpec.earliest()) == (0, -1)
    assert offset(OffsetSpec.latest()) == (4, -1)
    assert offset(OffsetSpec.max_timestamp()) == (1, 50_000)
    assert offset(OffsetSpec.for_timestamp(20_000)) == (1, 50_000)
    assert offset(OffsetSpec.for_timestamp(60_000)) == (-1, -1)


def test_deleted_records_are_gone_and_the_rest_keep_their_offsets(
    admin: AdminClient, bootstrap: str, topic: str
) -> None:
    Confluent(bootstrap).write(topic, [Message(b"%d" % number) for number in range(10)])
    before = TopicPartition(topic, 0, 4)
    assert admin.delete_records([before])[before].result(30).low_watermark == 4
    assert watermarks(bootstrap, topic) == (4, 10)
    assert [message.offset for message in read_all(bootstrap, topic)] == list(range(4, 10))


def test_all_records_are_deleted_up_to_the_end(
    admin: AdminClient, bootstrap: str, topic: str
) -> None:
    Confluent(bootstrap).write(topic, [Message(b"%d" % number) for number in range(10)])
    everything = TopicPartition(topic, 0, -1)
    assert admin.delete_records([everything])[everything].result(30).low_watermark == 10
    assert watermarks(bootstrap, topic) == (10, 10)
    Confluent(bootstrap).write(topic, [Message(b"next")])
    assert [message.offset for message in read_all(bootstrap, topic)] == [10]


def test_deleting_records_beyond_the_end_is_refused(
    admin: AdminClient, bootstrap: str, topic: str
) -> None:
    Confluent(bootstrap).write(topic, [Message(b"only")])
    beyond = TopicPartition(topic, 0, 5)
    error = error_of(admin.delete_records([beyond])[beyond])
    assert error.code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_records_of_a_compacted_topic_cannot_be_deleted(
    admin: AdminClient, bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    Confluent(bootstrap).write(topic, [Message(b"v", key=b"k")])
    before = TopicPartition(topic, 0, 1)
    error = error_of(admin.delete_records([before])[before])
    assert error.code() == KafkaError.POLICY_VIOLATION


# Groups


def describe(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group])[group].result(30)


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["range", "cooperative-sticky"])
def test_a_classic_group_is_described_with_members_and_their_partitions(
    protocol: dict[str, Any],
    admin: AdminClient,
    bootstrap: str,
    new_topic: NewTopicName,
    group: str,
) -> None:
    topic = new_topic(partitions=3)
    with Member(bootstrap, group, [topic], protocol, client_id="worker") as member:
        settle([member], topic, 3)
        eventually(lambda: describe(admin, group).state == ConsumerGroupState.STABLE)
        described = describe(admin, group)
        assert described.partition_assignor == protocol["partition.assignment.strategy"]
        assert described.type == ConsumerGroupType.CLASSIC
        (only,) = described.members
        assert only.member_id == member.member_id
        assert only.client_id == "worker"
        assert only.host == "/127.0.0.1"
        held = {(each.topic, each.partition) for each in only.assignment.topic_partitions}
        assert held == member.assignment


def test_a_group_of_the_new_protocol_is_described(
    admin: AdminClient, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=3)
    with Member(bootstrap, group, [topic], NEW_PROTOCOL, client_id="worker") as member:
        settle([member], topic, 3)
        eventually(lambda: describe(admin, group).state == ConsumerGroupState.STABLE)
        described = describe(admin, group)
        assert described.type == ConsumerGroupType.CONSUMER
        assert described.partition_assignor == "uniform"
        (only,) = described.members
        assert only.client_id == "worker"
        held = {(each.topic, each.partition) for each in only.assignment.topic_partitions}
        target = {(each.topic, each.partition) for each in only.target_assignment.topic_partitions}
        assert held == target == member.assignment


def test_groups_are_listed_with_state_and_type(
    admin: AdminClient, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=1)
    kinds = {ConsumerGroupType.CLASSIC: EAGER, ConsumerGroupType.CONSUMER: NEW_PROTOCOL}
    for kind, protocol in kinds.items():
        name = f"{group}-{kind.name}"
        with Member(bootstrap, name, [topic], protocol) as member:
            settle([member], topic, 1)
            listed = eventually(lambda name=name: listing(admin).get(name))
            assert listed.type == kind
            assert listed.state == ConsumerGroupState.STABLE
        eventually(
            lambda name=name: listing(admin)[name].state == ConsumerGroupState.EMPTY,
            because="a group without members is empty",
        )


def listing(admin: AdminClient, **filters: object) -> dict[str, Any]:
    result = admin.list_consumer_groups(**filters).result(30)
    assert not result.errors
    return {each.group_id: each for each in result.valid}


def test_groups_are_listed_by_state(
    admin: AdminClient, bootstrap: str, topic: str, group: str
) -> None:
    Confluent(bootstrap).write(topic, [Message(b"x")])
    Confluent(bootstrap).read(topic, 1, group=group)
    eventually(lambda: group in listing(admin, states={ConsumerGroupState.EMPTY}))
    assert group not in listing(admin, states={ConsumerGroupState.STABLE})


def test_an_unknown_group_is_described_as_dead(admin: AdminClient, group: str) -> None:
    described = describe(admin, group)
    assert described.state == ConsumerGroupState.DEAD
    assert described.members == []


def test_an_unknown_group_has_no_offsets_and_no_error(
    admin: AdminClient, topic: str, group: str
) -> None:
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([wanted])[group].result(30).topic_partitions
    assert found.error is None
    assert found.offset == -1001


def test_an_empty_group_can_be_deleted(
    admin: AdminClient, bootstrap: str, topic: str, group: str
) -> None:
    Confluent(bootstrap).write(topic, [Message(b"x")])
    Confluent(bootstrap).read(topic, 1, group=group)
    admin.delete_consumer_groups([group])[group].result(30)
    assert group not in listing(admin)
    assert committed(bootstrap, group, topic) == {}


def test_a_group_with_members_cannot_be_deleted(
    admin: AdminClient, bootstrap: str, topic: str, group: str
) -> None:
    with Member(bootstrap, group, [topic], EAGER) as member:
        settle([member], topic, 1)
        error = error_of(admin.delete_consumer_groups([group])[group])
        assert error.code() == KafkaError.NON_EMPTY_GROUP


def test_deleting_an_unknown_group_is_an_error(admin: AdminClient, group: str) -> None:
    error = error_of(admin.delete_consumer_groups([group])[group])
    assert error.code() == KafkaError.GROUP_ID_NOT_FOUND


@pytest.mark.on_cluster
def test_a_groups_offsets_are_altered_and_listed(
    admin: AdminClient, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=2)
    wanted = [TopicPartition(topic, 0, 7), TopicPartition(topic, 1, 11)]
    change = [ConsumerGroupTopicPartitions(group, wanted)]
    admin.alter_consumer_group_offsets(change)[group].result(30)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    offsets = {each.partition: each.offset for each in found.result(30).topic_partitions}
    assert offsets == {0: 7, 1: 11} == committed(bootstrap, group, topic, partitions=2)


def test_offsets_of_a_group_with_members_cannot_be_altered(
    admin: AdminClient, bootstrap: str, topic: str, group: str
) -> None:
    with Member(bootstrap, group, [topic], EAGER) as member:
        settle([member], topic, 1)
        change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
        answer = admin.alter_consumer_group_offsets([change])[group].result(30)
        (refused,) = answer.topic_partitions
        assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID


def test_a_commit_carries_metadata(
    kafka_python_admin: KafkaAdminClient, topic: str, group: str
) -> None:
    partition = KafkaPythonPartition(topic, 0)
    wanted = OffsetAndMetadata(3, "checkpoint 12", -1)
    kafka_python_admin.alter_group_offsets(group, {partition: wanted})
    found = kafka_python_admin.list_group_offsets({group: [partition]})[group][partition]
    assert (found.offset, found.metadata) == (3, "checkpoint 12")


def test_a_groups_offsets_are_deleted(
    kafka_python_admin: KafkaAdminClient, bootstrap: str, topic: str, group: str
) -> None:
    Confluent(bootstrap).write(topic, [Message(b"x")])
    Confluent(bootstrap).read(topic, 1, group=group)
    assert committed(bootstrap, group, topic) == {0: 1}
    partition = KafkaPythonPartition(topic, 0)
    kafka_python_admin.delete_group_offsets(group, [partition])
    assert committed(bootstrap, group, topic) == {}


def test_deleting_a_topic_forgets_what_groups_committed_for_it(
    admin: AdminClient, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic()
    Confluent(bootstrap).write(topic, [Message(b"x")])
    Confluent(bootstrap).read(topic, 1, group=group)
    admin.delete_topics([topic])[topic].result(30)
    wanted = ConsumerGroupTopicPartitions(group)

    def offsets() -> list[TopicPartition]:
        found = admin.list_consumer_group_offsets([wanted])[group].result(30)
        return list(found.topic_partitions)

    eventually(lambda: offsets() == [])


def test_lag_is_the_end_minus_the_commit(
    admin: AdminClient, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=2)
    client = Confluent(bootstrap)
    client.write(topic, [Message(b"%d" % n, partition=n % 2) for n in range(20)])
    client.read(topic, 20, group=group)
    client.write(topic, [Message(b"more", partition=1) for _ in range(7)])
    done = committed(bootstrap, group, topic, partitions=2)
    ends = {partition: watermarks(bootstrap, topic, partition)[1] for partition in (0, 1)}
    assert {partition: ends[partition] - done[partition] for partition in ends} == {0: 0, 1: 7}


# What only kafka-python asks


@pytest.mark.on_cluster
def test_log_directories_show_the_size_of_each_partition(
    kafka_python_admin: KafkaAdminClient, bootstrap: str, topic: str, copies: int
) -> None:
    Confluent(bootstrap).write(topic, [Message(b"x" * 10_000)])
    described = kafka_python_admin.describe_log_dirs({topic: [0]})
    assert len(described) == copies
    for node in described:
        (directory,) = node["log_dirs"]
        assert directory["error_code"] == 0
        ((only,),) = [each["partitions"] for each in directory["topics"] if each["name"] == topic]
        assert only["partition_index"] == 0
        assert 10_000 < only["partition_size"] < 11_000


@pytest.mark.on_cluster
def test_only_the_node_that_keeps_a_partition_tells_its_size(
    kafka_python_admin: KafkaAdminClient, admin: AdminClient, unique: str
) -> None:
    admin.create_topics([NewTopic(unique, 1, replication_factor=1)])[unique].result(30)
    eventually(lambda: is_led(admin, unique, partitions=1), because="it is kept somewhere")
    described = kafka_python_admin.describe_log_dirs({unique: [0]})
    sizes = [
        partition["partition_size"]
        for node in described
        for directory in node["log_dirs"]
        for topic in directory["topics"]
        for partition in topic["partitions"]
    ]
    assert sizes == [0]
    admin.delete_topics([unique])[unique].result(30)


def test_active_producers_are_described(
    kafka_python_admin: KafkaAdminClient, bootstrap: str, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for _ in range(3):
        producer.produce(topic, b"x")
        assert producer.flush(45) == 0
    partition = KafkaPythonPartition(topic, 0)
    described = kafka_python_admin.describe_producers([partition])[partition]
    (state,) = described.active_producers
    assert state.last_sequence == 2
