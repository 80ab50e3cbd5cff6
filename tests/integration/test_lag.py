"""Lag over every way in which it is shown: our client, the command and HTTP."""

from __future__ import annotations

import json
import urllib.request

import pytest
from confluent_kafka import Consumer

from goqueue.client import LogClient
from goqueue.model.names import TopicPartition

from .conftest import NewTopicName
from .process import Broker
from .transacting import SECONDS_MAX, Write, put, transactional
from .waiting import eventually


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("is_commit", [True, False])
def test_lag_is_zero_when_all_records_of_transactions_are_read(
    is_commit: bool,
    isolation: str,
    broker: Broker,
    bootstrap: str,
    new_topic: NewTopicName,
    group: str,
    unique: str,
) -> None:
    topic = new_topic()
    producer = transactional(bootstrap, unique)
    producer.begin_transaction()
    put(producer, [Write(topic, one) for one in [b"in"] * 10])
    producer.commit_transaction(SECONDS_MAX)
    producer.begin_transaction()
    put(producer, [Write(topic, one) for one in [b"more"] * 5])
    if is_commit:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    readable = 15 if is_commit or isolation == "read_uncommitted" else 10
    try:
        consumer.subscribe([topic])
        for _ in range(readable):
            message = eventually(lambda: consumer.poll(0.5), because="there is a message")
            assert message.error() is None
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    with LogClient(bootstrap) as client:
        (lag,) = client.groups.lag(group)
        assert (lag.end, lag.lag) == (17, 0), f"committed {lag.committed}"
        client.groups.commit(group, {TopicPartition(topic, 0): 4})
        (lag,) = client.groups.lag(group)
        assert lag.lag == (12 if is_commit else 6)
    with urllib.request.urlopen(f"{broker.http}/v1/groups/{group}/lag") as answer:
        assert json.load(answer)["lag"] == lag.lag


def test_partitions_without_a_commit_count_from_the_start_of_their_log(
    bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(partitions=3)
    with LogClient(bootstrap) as client:
        with client.producer() as producer:
            for number in range(3):
                for _ in range(500):
                    producer.send(topic, b"x", partition=number)
        client.groups.commit(group, {TopicPartition(topic, 1): 382})
        found = client.groups.lag(group)
    assert [one.lag for one in found] == [500, 118, 500]
    assert [one.committed for one in found] == [None, 382, None]
