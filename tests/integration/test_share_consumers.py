"""Share consumers of confluent-kafka: every record to one of them, until it is settled."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer

from .conftest import NewTopicName
from .sharing import (
    Process,
    Workers,
    commit,
    configure,
    fill,
    received,
    share_consumer,
    text,
)
from .waiting import eventually

EARLIEST = {"share_auto_offset_reset": "earliest"}


def until_received(consumer: ShareConsumer) -> list[Message]:
    return eventually(lambda: received(consumer), because="there are records")


def counts(messages: list[Message]) -> dict[str, int]:
    return {text(one): one.delivery_count() for one in messages}


def test_members_divide_the_records_of_one_partition(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic, values = new_topic(), [str(number) for number in range(3_000)]
    configure(bootstrap, unique, **EARLIEST)
    with Workers(bootstrap, unique, topic, count=3) as workers:
        for start in range(0, len(values), 100):
            fill(bootstrap, topic, values[start : start + 100])
        eventually(lambda: len(workers.books.settled) == len(values))
    assert workers.books.refused == []
    assert workers.books.deliveries == Counter(values)
    assert len(+workers.by_worker) == 3


def test_members_read_all_partitions(bootstrap: str, new_topic: NewTopicName, unique: str) -> None:
    topic, values = new_topic(partitions=6), [str(number) for number in range(600)]
    configure(bootstrap, unique, **EARLIEST)
    fill(bootstrap, topic, values, partitions=6)
    with Workers(bootstrap, unique, topic, count=2) as workers:
        eventually(lambda: len(workers.books.settled) == len(values))
    assert workers.books.deliveries == Counter(values)


def test_records_that_are_polled_are_accepted_with_the_next_poll_or_commit(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic, values = new_topic(), [str(number) for number in range(500)]
    configure(bootstrap, unique, **EARLIEST)
    fill(bootstrap, topic, values)
    found: Counter[str] = Counter()
    with share_consumer(bootstrap, unique, topic, is_explicit=False) as consumer:
        while len(found) < len(values):
            found.update(map(text, until_received(consumer)))
        commit(consumer)
    assert found == Counter(values)
    with share_consumer(bootstrap, unique, topic) as consumer:
        fill(bootstrap, topic, ["last"])
        assert counts(until_received(consumer)) == {"last": 1}
        consumer.acknowledge_offset(topic, 0, len(values))
        commit(consumer)


def test_a_released_record_comes_again_with_a_higher_count(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    configure(bootstrap, unique, **EARLIEST)
    fill(bootstrap, topic, ["a", "b", "c"])
    with share_consumer(bootstrap, unique, topic) as consumer:
        first = until_received(consumer)
        assert counts(first) == {"a": 1, "b": 1, "c": 1}
        for one in first:
            is_b = text(one) == "b"
            consumer.acknowledge(one, AcknowledgeType.RELEASE if is_b else AcknowledgeType.ACCEPT)
        commit(consumer)
        (again,) = until_received(consumer)
        assert counts([again]) == {"b": 2}
        consumer.acknowledge(again)
        commit(consumer)


def test_a_rejected_record_does_not_come_again(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    configure(bootstrap, unique, **EARLIEST)
    fill(bootstrap, topic, ["good", "bad"])
    with share_consumer(bootstrap, unique, topic) as consumer:
        for one in until_received(consumer):
            is_bad = text(one) == "bad"
            consumer.acknowledge(one, AcknowledgeType.REJECT if is_bad else AcknowledgeType.ACCEPT)
        commit(consumer)
        fill(bootstrap, topic, ["next"])
        (following,) = until_received(consumer)
        assert text(following) == "next"
        consumer.acknowledge(following)
        commit(consumer)


def test_a_record_is_delivered_as_often_as_the_group_allows(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic, seen = new_topic(), []
    configure(bootstrap, unique, share_delivery_count_limit="3", **EARLIEST)
    fill(bootstrap, topic, ["poison"])
    with share_consumer(bootstrap, unique, topic) as consumer:
        for _ in range(3):
            (one,) = until_received(consumer)
            seen.append(one.delivery_count())
            consumer.acknowledge(one, AcknowledgeType.RELEASE)
            commit(consumer)
        fill(bootstrap, topic, ["next"])
        (following,) = until_received(consumer)
        assert (text(following), seen) == ("next", [1, 2, 3])
        consumer.acknowledge(following)
        commit(consumer)


def test_records_of_a_killed_consumer_come_to_another(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    configure(bootstrap, unique, **EARLIEST)
    fill(bootstrap, topic, ["a", "b"])
    killed = Process(bootstrap, unique, topic)
    try:
        assert killed.read() == {"a": 1, "b": 1}
    finally:
        killed.kill()
    # Long before their lock expires, because the connection has ended.
    with share_consumer(bootstrap, unique, topic) as consumer:
        messages = eventually(lambda: received(consumer), within=20)
        assert counts(messages) == {"a": 2, "b": 2}
        for one in messages:
            consumer.acknowledge(one)
        commit(consumer)


def test_a_group_begins_at_the_end_unless_it_is_told_otherwise(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, ["before"])
    with share_consumer(bootstrap, unique, topic) as consumer:
        numbers = iter(range(1_000))

        def next_value() -> list[Message]:
            fill(bootstrap, topic, [f"after-{next(numbers)}"])
            return received(consumer)

        messages = eventually(next_value)
        assert "before" not in counts(messages)
        for one in messages:
            consumer.acknowledge(one)
        commit(consumer)


def test_records_of_aborted_transactions_are_not_delivered(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    configure(bootstrap, unique, share_isolation_level="read_committed", **EARLIEST)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique})
    producer.init_transactions(45)
    for value, is_kept in (("lost", False), ("kept", True)):
        producer.begin_transaction()
        producer.produce(topic, value.encode())
        producer.flush(45)
        if is_kept:
            producer.commit_transaction(45)
        else:
            producer.abort_transaction(45)
    with share_consumer(bootstrap, unique, topic) as consumer:
        (one,) = until_received(consumer)
        assert text(one) == "kept"
        consumer.acknowledge(one)
        commit(consumer)


def test_records_of_open_transactions_wait_for_their_end(
    bootstrap: str, new_topic: NewTopicName, unique: str
) -> None:
    topic = new_topic()
    configure(bootstrap, unique, **EARLIEST)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique})
    producer.init_transactions(45)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(45)
    with share_consumer(bootstrap, unique, topic) as consumer:
        # A record behind an open transaction is not delivered either, so that order is kept.
        fill(bootstrap, topic, ["behind"])
        assert [received(consumer) for _ in range(5)] == [[]] * 5
        producer.commit_transaction(45)
        found: dict[str, int] = {}

        def has_both() -> bool:
            messages = received(consumer)
            found.update(counts(messages))
            for one in messages:
                consumer.acknowledge(one)
            commit(consumer)
            return len(found) == 2

        eventually(has_both)
        assert found == {"open": 1, "behind": 1}
