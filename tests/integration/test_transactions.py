"""Transactions of stock clients: all of it is seen, or none, whoever writes and whoever reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import product

import kafka
import kafka.errors
import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from .lossy_proxy import LossyKafkaProxy
from .process import Broker
from .topics import committed as committed_offsets
from .topics import create_topic, is_led
from .transacting import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    READERS,
    SECONDS_MAX,
    SENTINEL,
    WRITERS,
    Write,
    aborted,
    committed,
    put,
    read_confluent,
    transactional,
)
from .waiting import eventually

TIMEOUT_MS = 1_500
PRODUCE = 0  # the key of this request

NewTopic = Callable[..., str]
StartBroker = Callable[..., Broker]


def values(name: str, count: int) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def ends(admin: AdminClient, topic: str, partition: int = 0) -> tuple[int, int]:
    """Where readers of committed records must stop, and where the others."""
    place = TopicPartition(topic, partition)

    def end(isolation: IsolationLevel) -> int:
        answer = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation)
        offset: int = answer[place].result(20).offset
        return offset

    return end(IsolationLevel.READ_COMMITTED), end(IsolationLevel.READ_UNCOMMITTED)


# What is seen


@pytest.mark.parametrize(("writer", "reader"), list(product(WRITERS, READERS)))
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    writer: str, reader: str, bootstrap: str, new_topic: NewTopic, unique: str
) -> None:
    first, second = new_topic(partitions=3), new_topic(partitions=2)
    places = [(first, 0), (first, 1), (first, 2), (second, 0), (second, 1)]

    def everywhere(value: str) -> list[Write]:
        return [Write(topic, value.encode(), partition) for topic, partition in places]

    steps = [
        committed(*everywhere("one"), *everywhere("two")),
        aborted(*everywhere("never")),
        committed(*everywhere("three")),
        aborted(*everywhere("nor this")),
        committed(*everywhere(SENTINEL.decode())),
    ]
    WRITERS[writer](bootstrap, unique, steps)
    for topic, partition in places:
        found = READERS[reader](bootstrap, topic, partition, READ_COMMITTED)
        assert found == [b"one", b"two", b"three", SENTINEL]
        found = READERS[reader](bootstrap, topic, partition, READ_UNCOMMITTED)
        assert found == [b"one", b"two", b"never", b"three", b"nor this", SENTINEL]


@pytest.mark.on_cluster
def test_an_open_transaction_holds_back_readers_of_committed_records(
    bootstrap: str, topic: str, admin: AdminClient, unique: str
) -> None:
    producer = transactional(bootstrap, unique)
    other = transactional(bootstrap, f"{unique}-other")
    producer.begin_transaction()
    put(producer, [Write(topic, b"slow")])
    other.begin_transaction()
    put(other, [Write(topic, b"quick")])
    other.commit_transaction(SECONDS_MAX)
    # Eventually, because a commit is answered a moment before its marker is written.
    eventually(lambda: ends(admin, topic) == (0, 3), because="the marker of the quick one is there")
    producer.commit_transaction(SECONDS_MAX)
    eventually(lambda: ends(admin, topic) == (4, 4), because="nothing is open any more")
    other.begin_transaction()
    put(other, [Write(topic, SENTINEL)])
    other.commit_transaction(SECONDS_MAX)
    assert read_confluent(bootstrap, topic, 0, READ_COMMITTED) == [b"slow", b"quick", SENTINEL]


def test_a_reader_that_waits_is_woken_by_the_commit(
    bootstrap: str, topic: str, unique: str
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": READ_COMMITTED,
            "fetch.wait.max.ms": 20_000,  # so that only a commit can end the wait in time
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = transactional(bootstrap, unique)
    producer.begin_transaction()
    put(producer, [Write(topic, b"early")])
    assert consumer.poll(1.0) is None
    producer.commit_transaction(SECONDS_MAX)
    began = time.monotonic()
    message = consumer.poll(15)
    assert message is not None
    assert message.value() == b"early"
    assert time.monotonic() - began < 10
    consumer.close()


def test_a_large_transaction_is_committed_as_one(
    bootstrap: str, new_topic: NewTopic, unique: str
) -> None:
    topic = new_topic(partitions=4)
    producer = transactional(bootstrap, unique, linger_ms=5)
    wanted = values("value", 5_000)
    producer.begin_transaction()
    put(producer, [Write(topic, one, number % 4) for number, one in enumerate(wanted)])
    put(producer, [Write(topic, SENTINEL, partition) for partition in range(4)])
    producer.commit_transaction(SECONDS_MAX)
    for partition in range(4):
        found = read_confluent(bootstrap, topic, partition, READ_COMMITTED)
        assert found == [*wanted[partition::4], SENTINEL]


# Fencing and time


def test_a_second_producer_of_the_same_id_fences_the_first(
    bootstrap: str, topic: str, unique: str
) -> None:
    zombie = transactional(bootstrap, unique)
    zombie.begin_transaction()
    put(zombie, [Write(topic, b"of the zombie")])
    heir = transactional(bootstrap, unique)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(SECONDS_MAX)
    assert refused.value.args[0].code() == KafkaError._FENCED
    assert refused.value.args[0].fatal()
    heir.begin_transaction()
    put(heir, [Write(topic, b"of the heir"), Write(topic, SENTINEL)])
    heir.commit_transaction(SECONDS_MAX)
    assert read_confluent(bootstrap, topic, 0, READ_COMMITTED) == [b"of the heir", SENTINEL]


def test_a_fenced_producer_cannot_write_either(bootstrap: str, topic: str, unique: str) -> None:
    zombie = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique)
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send(topic, b"before", partition=0).get(SECONDS_MAX)
    heir = transactional(bootstrap, unique)
    with pytest.raises(kafka.errors.KafkaError) as refused:
        zombie.send(topic, b"after", partition=0).get(SECONDS_MAX)
    assert isinstance(
        refused.value, kafka.errors.ProducerFencedError | kafka.errors.InvalidProducerEpochError
    )
    zombie.close()
    heir.begin_transaction()
    put(heir, [Write(topic, SENTINEL)])
    heir.commit_transaction(SECONDS_MAX)
    assert read_confluent(bootstrap, topic, 0, READ_COMMITTED) == [SENTINEL]


def test_a_transaction_that_takes_too_long_is_aborted(
    bootstrap: str, topic: str, admin: AdminClient, unique: str
) -> None:
    producer = transactional(bootstrap, unique, transaction_timeout_ms=TIMEOUT_MS)
    producer.begin_transaction()
    put(producer, [Write(topic, b"too slow")])
    assert ends(admin, topic) == (0, 1)
    eventually(lambda: ends(admin, topic) == (2, 2), because="the broker aborts it by itself")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(SECONDS_MAX)
    assert refused.value.args[0].fatal() or refused.value.args[0].txn_requires_abort()
    after = transactional(bootstrap, unique)
    after.begin_transaction()
    put(after, [Write(topic, SENTINEL)])
    after.commit_transaction(SECONDS_MAX)
    assert read_confluent(bootstrap, topic, 0, READ_COMMITTED) == [SENTINEL]


def test_a_time_out_beyond_the_brokers_limit_is_refused(bootstrap: str, unique: str) -> None:
    with pytest.raises(KafkaException) as refused:
        transactional(bootstrap, unique, transaction_timeout_ms=2_000_000_000)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


# Offsets


@pytest.fixture
def consumer(bootstrap: str, group: str) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": READ_COMMITTED,
        }
    )
    yield made
    made.close()


def look(
    bootstrap: str, group: str, topic: str, isolation: str, *, timeout: float = SECONDS_MAX
) -> int:
    """What the group has committed for the first partition."""
    observer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": isolation}
    )
    try:
        (found,) = observer.committed([TopicPartition(topic, 0)], timeout=timeout)
        offset: int = found.offset
        return offset
    finally:
        observer.close()


@pytest.mark.on_cluster
@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    is_commit: bool,
    bootstrap: str,
    new_topic: NewTopic,
    consumer: Consumer,
    group: str,
    unique: str,
) -> None:
    source, target = new_topic(), new_topic()
    producer = transactional(bootstrap, unique)
    producer.begin_transaction()
    put(producer, [Write(source, one) for one in values("in", 10)])
    producer.commit_transaction(SECONDS_MAX)
    consumer.subscribe([source])
    producer.begin_transaction()
    for _ in range(10):
        message = eventually(lambda: consumer.poll(0.5), because="there is a message")
        assert message.error() is None
        producer.produce(target, b"out of " + message.value())
    positions = consumer.position(consumer.assignment())
    assert [one.offset for one in positions] == [10]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS_MAX)
    # Who wants what is decided must wait; who does not, sees what was committed before.
    with pytest.raises(KafkaException) as undecided:
        look(bootstrap, group, source, READ_COMMITTED, timeout=1)
    assert undecided.value.args[0].code() == KafkaError._TIMED_OUT
    assert look(bootstrap, group, source, READ_UNCOMMITTED) < 0
    if is_commit:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)
    producer.begin_transaction()
    put(producer, [Write(target, SENTINEL)])
    producer.commit_transaction(SECONDS_MAX)
    found = read_confluent(bootstrap, target, 0, READ_COMMITTED)
    assert found == ([b"out of " + one for one in values("in", 10)] if is_commit else []) + [
        SENTINEL
    ]
    assert committed_offsets(bootstrap, group, source) == ({0: 10} if is_commit else {})


def test_kafka_python_sends_offsets_with_a_transaction(
    bootstrap: str, topic: str, group: str, unique: str
) -> None:
    place = kafka.TopicPartition(topic, 0)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, SENTINEL, partition=0).get(SECONDS_MAX)
        offsets = {place: kafka.structs.OffsetAndMetadata(1, "mine", -1)}
        producer.send_offsets_to_transaction(offsets, group)
        producer.commit_transaction()
    finally:
        producer.close()
    assert read_confluent(bootstrap, topic, 0, READ_COMMITTED) == [SENTINEL]
    assert committed_offsets(bootstrap, group, topic) == {0: 1}


# Administration


@pytest.fixture
def kafka_admin(bootstrap: str) -> Iterator[kafka.KafkaAdminClient]:
    made = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield made
    made.close()


def test_transactions_are_listed_and_described(
    bootstrap: str, new_topic: NewTopic, kafka_admin: kafka.KafkaAdminClient, unique: str
) -> None:
    topic = new_topic(partitions=2)
    before_ms = int(time.time() * 1000)
    producer = transactional(bootstrap, unique)
    producer.begin_transaction()
    put(producer, [Write(topic, b"0", 0), Write(topic, b"1", 1)])

    def states(**filters: object) -> list[str]:
        listed = kafka_admin.list_transactions(**filters)
        return [
            one.state
            for found in listed.values()
            for one in found
            if one.transactional_id == unique
        ]

    assert states() == ["Ongoing"]
    assert states(state_filters=["Ongoing"]) == ["Ongoing"]
    assert states(state_filters=["CompleteCommit"]) == []
    assert states(transactional_id_pattern=f"{unique[:-1]}.") == ["Ongoing"]
    assert states(transactional_id_pattern="no such id") == []
    assert states(duration_filter_ms=3_600_000) == []
    described = kafka_admin.describe_transactions([unique])[unique]
    assert described.state == "Ongoing"
    assert described.transaction_timeout_ms == 30_000
    assert before_ms <= described.transaction_start_time_ms <= int(time.time() * 1000)
    assert described.topic_partitions == {
        kafka.TopicPartition(topic, 0),
        kafka.TopicPartition(topic, 1),
    }
    assert states(producer_id_filters=[described.producer_id]) == ["Ongoing"]
    assert states(producer_id_filters=[described.producer_id + 1_000_000]) == []
    producer.commit_transaction(SECONDS_MAX)
    eventually(lambda: states() == ["CompleteCommit"], because="all markers are written")
    with pytest.raises(kafka.errors.TransactionalIdNotFoundError):
        kafka_admin.describe_transactions([f"{unique}-unknown"])


def test_an_open_transaction_shows_where_it_began(
    bootstrap: str, topic: str, admin: AdminClient, kafka_admin: kafka.KafkaAdminClient, unique: str
) -> None:
    place = kafka.TopicPartition(topic, 0)
    producer = transactional(bootstrap, unique)
    producer.begin_transaction()
    put(producer, [Write(topic, b"first")])
    producer.commit_transaction(SECONDS_MAX)
    eventually(lambda: ends(admin, topic) == (2, 2), because="the marker is written")
    producer.begin_transaction()
    put(producer, [Write(topic, b"second"), Write(topic, b"third")])
    (state,) = kafka_admin.describe_producers([place])[place].active_producers
    assert state.current_transaction_start_offset == 2
    producer.abort_transaction(SECONDS_MAX)
    eventually(lambda: ends(admin, topic) == (5, 5), because="the abort marker is written")
    (state,) = kafka_admin.describe_producers([place])[place].active_producers
    assert state.current_transaction_start_offset in (None, -1)


# Restarts


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_transaction_goes_on_over_a_restart(
    how: str, start_broker: StartBroker, unique: str
) -> None:
    node = start_broker()
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    topic = create_topic(admin, "goes-on", partitions=2)
    producer = transactional(node.bootstrap, unique, transaction_timeout_ms=60_000)
    doomed = transactional(node.bootstrap, f"{unique}-doomed", transaction_timeout_ms=60_000)
    producer.begin_transaction()
    put(producer, [Write(topic, b"before", 0), Write(topic, b"before", 1)])
    doomed.begin_transaction()
    put(doomed, [Write(topic, b"doomed", 0), Write(topic, b"doomed", 1)])
    if how == "restart":
        node.restart()
    else:
        node.kill()
        node.start()
    eventually(lambda: is_led(admin, topic, partitions=2), because="the node is back")
    assert ends(admin, topic) == (0, 2)
    put(producer, [Write(topic, b"after", 0), Write(topic, b"after", 1)])
    producer.commit_transaction(SECONDS_MAX)
    doomed.abort_transaction(SECONDS_MAX)
    doomed.begin_transaction()
    put(doomed, [Write(topic, SENTINEL, 0), Write(topic, SENTINEL, 1)])
    doomed.commit_transaction(SECONDS_MAX)
    for partition in (0, 1):
        found = read_confluent(node.bootstrap, topic, partition, READ_COMMITTED)
        assert found == [b"before", b"after", SENTINEL]
    # Once more, from what is on the disk alone.
    node.restart()
    for partition in (0, 1):
        found = read_confluent(node.bootstrap, topic, partition, READ_COMMITTED)
        assert found == [b"before", b"after", SENTINEL]


# Lost answers


@pytest.mark.single_node("the proxy leads to one node")
@pytest.mark.parametrize("count", [3, 5, 8])
def test_a_commit_loses_nothing_after_an_abort_with_a_lost_answer(
    count: int, start_broker: StartBroker, unique: str
) -> None:
    """librdkafka numbers the records after the abort like the aborted ones, which are stored."""
    with LossyKafkaProxy() as proxy:
        node = start_broker({"listeners.kafka_advertised": proxy.address})
        proxy.lead_to(node.bootstrap)
        admin = AdminClient({"bootstrap.servers": proxy.address, "log_level": 2})
        topic = create_topic(admin, "lost-answers")

        def connect() -> Producer:
            # One batch, which is not sent again before the abort.
            backoff = {"retry_backoff_ms": 5_000, "retry_backoff_max_ms": 5_000}
            return transactional(proxy.address, unique, linger_ms=100, **backoff)

        def commits(producer: Producer, *written: bytes) -> bool:
            producer.begin_transaction()
            for value in written:
                producer.produce(topic, value, partition=0)
            try:
                producer.commit_transaction(SECONDS_MAX)
            except KafkaException:
                return False
            return True

        producer = connect()
        producer.begin_transaction()
        proxy.lose(PRODUCE)
        for value in values("aborted", 5):
            producer.produce(topic, value, partition=0)
        producer.poll(0)
        assert proxy.has_lost.wait(SECONDS_MAX)
        producer.abort_transaction(SECONDS_MAX)
        eventually(
            lambda: ends(admin, topic) == (6, 6), because="five records and a marker are there"
        )
        wanted = [*values("kept", count - 1), SENTINEL]
        if not commits(producer, *wanted):
            assert commits(connect(), *wanted)
        assert read_confluent(proxy.address, topic, 0, READ_COMMITTED) == wanted
