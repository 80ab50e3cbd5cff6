"""Our own client against a real broker, and side by side with others."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from goqueue.client import (
    ACKS_LEADER,
    ACKS_NONE,
    ConfigOwner,
    ConfigSource,
    LogClient,
    Position,
    ProducerSettings,
    ReaderSettings,
)
from goqueue.model.compression import Compression
from goqueue.model.errors import (
    GroupNotEmpty,
    InvalidPartitionCount,
    InvalidTopicSetting,
    OffsetOutOfRange,
    RecordTooLarge,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
)
from goqueue.model.names import TopicPartition

from .clients import Confluent, Message
from .conftest import NewTopicName, StartBroker
from .members import COOPERATIVE, Member, settle
from .topics import FOREVER
from .waiting import eventually


@pytest.fixture
def log_client(bootstrap: str) -> Iterator[LogClient]:
    with LogClient(bootstrap) as client:
        yield client


def write(client: LogClient, topic: str, *values: bytes, **settings: object) -> None:
    with client.producer(ProducerSettings(**settings)) as producer:  # type: ignore[arg-type]
        for value in values:
            producer.send(topic, value, key=value)


def read(client: LogClient, topic: str) -> list[bytes | None]:
    reader = client.reader([topic], Position.earliest(), until=Position.latest())
    return [record.value for record in reader.records()]


# Topics


def test_a_topic_lives_from_creation_to_deletion(log_client: LogClient, unique: str) -> None:
    topics = log_client.topics
    topics.create(unique, partition_count=2, settings={"retention.ms": "3600000"})
    with pytest.raises(TopicExists):
        topics.create(unique)
    assert unique in [topic.name for topic in topics.list_all()]
    topics.configure(unique, {"retention.ms": None, "segment.bytes": "1048576"})
    topics.grow(unique, partition_count=3)
    with pytest.raises(InvalidPartitionCount):
        topics.grow(unique, partition_count=2)
    with pytest.raises(InvalidTopicSetting):
        topics.configure(unique, {"retention.ms": "soon"})
    found = topics.describe(unique)
    own = {each.name: each.value for each in found.settings if each.source is ConfigSource.TOPIC}
    assert own == {"segment.bytes": "1048576"}
    assert [each.index for each in found.partitions] == [0, 1, 2]
    topics.delete(unique)
    with pytest.raises(UnknownTopic):
        topics.view(unique)


def test_sizes_and_offsets_grow_with_what_is_written(log_client: LogClient, topic: str) -> None:
    write(log_client, topic, b"x" * 5000)
    (partition,) = log_client.topics.describe(topic).partitions
    assert (partition.start_offset, partition.end_offset) == (0, 1)
    assert partition.size_bytes is not None
    assert partition.size_bytes > 5000


def test_records_can_be_deleted_from_the_front(log_client: LogClient, topic: str) -> None:
    write(log_client, topic, b"a", b"b", b"c")
    partition = TopicPartition(topic, 0)
    assert log_client.topics.delete_records({partition: 2}) == {partition: 2}
    assert read(log_client, topic) == [b"c"]
    with pytest.raises(OffsetOutOfRange, match="Offset 0"):
        next(log_client.reader([topic], Position.at_offset(0)).records())
    settings = ReaderSettings(out_of_range="earliest")
    reader = log_client.reader([topic], Position.at_offset(0), settings=settings)
    assert next(reader.records()).value == b"c"


def test_the_cluster_describes_itself(log_client: LogClient, bootstrap: str) -> None:
    found = log_client.nodes.describe()
    assert set(bootstrap.split(",")) == {str(node.address) for node in found.nodes}
    assert found.controller_id in [node.id for node in found.nodes]
    node = str(found.nodes[0].id)
    assert log_client.configs.describe(ConfigOwner.BROKER, node)
    assert all(folder.total_bytes > 0 for folder in log_client.nodes.log_dirs())


# Writing and reading


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name.lower())
def test_other_clients_read_what_ours_writes(
    log_client: LogClient, bootstrap: str, topic: str, codec: Compression
) -> None:
    values = [b"%d" % number * 50 for number in range(500)]
    write(log_client, topic, *values, compression=codec)
    found = Confluent(bootstrap).read(topic, 500)
    assert [(each.key, each.value) for each in found] == [(value, value) for value in values]
    assert read(log_client, topic) == values


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_ours_reads_what_other_clients_write(
    log_client: LogClient, bootstrap: str, topic: str, codec: str
) -> None:
    messages = [
        Message(b"v" * 100, b"k", (("h", b"1"), ("n", None))),
        Message(None, b"k"),
        Message(b"", None),
    ]
    Confluent(bootstrap).write(topic, messages, codec=codec)
    reader = log_client.reader([topic], Position.earliest(), until=Position.latest())
    found = [Message(each.value, each.key, each.headers) for each in reader.records()]
    assert found == messages


def test_keys_go_where_other_clients_send_them(
    log_client: LogClient, bootstrap: str, new_topic: NewTopicName
) -> None:
    ours, theirs = new_topic(partitions=7), new_topic(partitions=7)
    keys = [b"key-%d" % number for number in range(200)]
    write(log_client, ours, *keys)
    Confluent(bootstrap).write(theirs, [Message(key, key) for key in keys])
    places = []
    for topic in (ours, theirs):
        reader = log_client.reader([topic], Position.earliest(), until=Position.latest())
        places.append({record.key: record.partition for record in reader.records()})
    assert places[0] == places[1]


@pytest.mark.parametrize("acks", [ACKS_LEADER, ACKS_NONE])
def test_weaker_acks_store_too(log_client: LogClient, topic: str, acks: int) -> None:
    write(log_client, topic, b"a", b"b", acks=acks, is_idempotent=False)
    eventually(lambda: read(log_client, topic) == [b"a", b"b"], because="both records arrived")


def test_a_record_that_is_too_large_fails_alone(
    log_client: LogClient, new_topic: NewTopicName
) -> None:
    topic = new_topic(**{"max.message.bytes": "2000"})
    with log_client.producer(ProducerSettings(batch_records_max=1)) as producer:
        sent = [producer.send(topic, b"x" * size) for size in (10, 5000, 20, 30)]
        with pytest.raises(RecordTooLarge):
            producer.flush()
        assert [sent[index].result().offset for index in (0, 2, 3)] == [0, 1, 2]


def test_a_moment_finds_its_offset(log_client: LogClient, new_topic: NewTopicName) -> None:
    topic = new_topic(**FOREVER)
    partition = TopicPartition(topic, 0)
    with log_client.producer(ProducerSettings(batch_records_max=1)) as producer:
        for timestamp_ms in (1_000, 3_000, 2_000):
            producer.send(topic, b"v", timestamp_ms=timestamp_ms)
    offsets = log_client.offsets

    def at(position: Position) -> int:
        return offsets.resolve([partition], position)[partition]

    assert [at(Position.at_time(when)) for when in (0, 1_000, 1_001, 3_000, 3_001)] == [
        *(0, 0, 1, 1),
        3,
    ]
    assert at(Position.newest()) == 1
    assert at(Position.ago(2_000, now_ms=3_500)) == 1
    assert (at(Position.earliest()), at(Position.latest())) == (0, 3)


def test_a_waiting_reader_sees_a_record_as_it_comes(log_client: LogClient, topic: str) -> None:
    settings = ReaderSettings(wait_ms=30_000)
    reader = log_client.reader([topic], Position.latest(), settings=settings)
    writer = threading.Thread(target=write, args=(log_client, topic, b"news"))
    writer.start()
    assert next(reader.records()).value == b"news"
    writer.join()


def test_raw_batches_are_handed_out_as_they_are_stored(log_client: LogClient, topic: str) -> None:
    write(log_client, topic, *[b"v"] * 100, compression=Compression.ZSTD)
    reader = log_client.reader([topic], Position.earliest(), until=Position.latest())
    (batch,) = reader.fetch_batches()
    assert (batch.topic, batch.partition, len(batch.data) < 300) == (topic, 0, True)


def test_a_killed_broker_loses_and_repeats_nothing(start_broker: StartBroker) -> None:
    node = start_broker()
    with LogClient(node.bootstrap) as client:
        client.topics.create("orders", partition_count=2)
        with client.producer(ProducerSettings(batch_records_max=10)) as producer:
            for number in range(2_000):
                producer.send("orders", b"%d" % number, partition=number % 2)
                if number == 1_000:
                    node.kill()
                    node.start()
        reader = client.reader(["orders"], Position.earliest(), until=Position.latest())
        found: dict[int, list[int]] = {0: [], 1: []}
        for record in reader.records():
            found[record.partition].append(int(record.value or b""))
    assert found == {0: list(range(0, 2_000, 2)), 1: list(range(1, 2_000, 2))}


# Groups


@pytest.mark.on_cluster
def test_offsets_of_a_group_are_committed_found_and_forgotten(
    log_client: LogClient, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    groups = log_client.groups
    groups.commit(group, {zero: 3, one: 4}, metadata="by hand")
    found = groups.committed(group)
    assert {partition: each.offset for partition, each in found.items()} == {zero: 3, one: 4}
    assert found[zero].metadata == "by hand"
    assert groups.committed(group, [one]).keys() == {one}
    assert group in [each.name for each in groups.list_all()]
    groups.delete_offsets(group, [zero])
    assert groups.committed(group).keys() == {one}
    groups.delete(group)
    with pytest.raises(UnknownGroup):
        groups.describe(group)


def test_a_group_with_members_is_described_and_left_alone(
    log_client: LogClient, bootstrap: str, topic: str, group: str
) -> None:
    write(log_client, topic, b"a", b"b")
    groups = log_client.groups
    partition = TopicPartition(topic, 0)
    with Member(bootstrap, group, [topic], COOPERATIVE, client_id="reader") as member:
        settle([member], topic, 1)
        described = groups.describe(group)
        assert (described.state, described.members[0].client_id) == ("Stable", "reader")
        assert described.members[0].partitions == (partition,)
        (lag,) = groups.lag(group)
        assert lag.end == 2
        assert lag.member == described.members[0]
        with pytest.raises(GroupNotEmpty):
            groups.commit(group, {partition: 0})
        with pytest.raises(GroupNotEmpty):
            groups.delete(group)


def test_a_group_is_behind_only_in_topics_that_exist(
    log_client: LogClient, topic: str, unique: str, group: str
) -> None:
    log_client.topics.create(unique, partition_count=1)
    here, there = TopicPartition(topic, 0), TopicPartition(unique, 0)
    log_client.groups.commit(group, {here: 0, there: 0})
    write(log_client, topic, b"a", b"b")
    assert {each.partition: each.lag for each in log_client.groups.lag(group)} == {
        here: 2,
        there: 0,
    }
    log_client.topics.delete(unique)
    lags = {each.partition: each.lag for each in log_client.groups.lag(group)}
    assert (lags[here], lags.get(there)) == (2, None)
