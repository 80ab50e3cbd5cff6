"""Topics on any node, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from .clients import Confluent, Message
from .waiting import eventually

# For messages with times of the past, which a topic of the default retention soon drops.
FOREVER = {"retention.ms": "-1"}


def create_topic(admin: AdminClient, name: str, *, partitions: int = 1, **config: str) -> str:
    """Create a topic and wait until its partitions have leaders."""
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=config)
    admin.create_topics([wanted])[name].result(30)
    eventually(
        lambda: is_led(admin, name, partitions=partitions),
        because=f"every partition of {name} has a leader",
    )
    return name


def is_led(admin: AdminClient, name: str, *, partitions: int) -> bool:
    """Whether all of a topic's partitions have a leader that answers for them."""
    found = admin.list_topics(name, timeout=10).topics[name].partitions
    if len(found) != partitions or any(each.leader < 0 for each in found.values()):
        return False
    # A broker may announce itself as leader a moment before it knows.
    wanted = {TopicPartition(name, partition): OffsetSpec.latest() for partition in found}
    answers = admin.list_offsets(wanted).values()
    return all(answer.exception(30) is None for answer in answers)


def leader_address(bootstrap: str, topic: str, partition: int = 0) -> str:
    """The address of the node that leads a partition, for requests written by hand."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=20)
    leader = found.brokers[found.topics[topic].partitions[partition].leader]
    return f"{leader.host}:{leader.port}"


@contextmanager
def observer(bootstrap: str) -> Iterator[Consumer]:
    """A consumer in no group, to look at offsets with."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "observer"})
    try:
        yield consumer
    finally:
        consumer.close()


def watermarks(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """The first offset kept and the next one to be written."""
    with observer(bootstrap) as consumer:
        return eventually(lambda: _watermarks(consumer, TopicPartition(topic, partition)))


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int] | None:
    try:
        low, high = consumer.get_watermark_offsets(partition, timeout=10)
    except KafkaException as refused:
        # Kafka says this for a moment after a start; every client asks again.
        if refused.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
            raise
        return None
    return low, high


def read_all(bootstrap: str, topic: str, *, partitions: int = 1) -> list[Message]:
    """Everything the topic holds now, in order within each partition."""
    ends = [watermarks(bootstrap, topic, partition) for partition in range(partitions)]
    return Confluent(bootstrap).read(topic, sum(high - low for low, high in ends))


def committed(bootstrap: str, group: str, topic: str, *, partitions: int = 1) -> dict[int, int]:
    """What a group has committed, by partition; partitions without a commit are left out."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        found = eventually(lambda: _committed(consumer, wanted))
        return {each.partition: each.offset for each in found if each.offset >= 0}
    finally:
        consumer.close()


def _committed(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
    try:
        found: list[TopicPartition] = consumer.committed(partitions, timeout=20)
    except KafkaException as refused:
        # The client reports this instead of trying again, while a coordinator is elected.
        if refused.args[0].code() != KafkaError.COORDINATOR_NOT_AVAILABLE:
            raise
        return None
    return found
