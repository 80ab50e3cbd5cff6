"""Answers that get lost: nothing is published twice unasked, and nothing read is skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from goqueue import Client, HttpSettings, Outgoing, RetrySettings
from goqueue.client.http import ConnectionLost

from .lossy_proxy import LossyProxy
from .process import Broker
from .waiting import eventually


@pytest.fixture
def proxy(broker: Broker) -> Iterator[LossyProxy]:
    with LossyProxy(broker) as proxy:
        yield proxy


@pytest.fixture
def topic(broker: Broker, unique: str) -> Iterator[str]:
    with Client(broker.http) as client:
        client.topics.create(unique)
        yield unique
        client.topics.delete(unique)


def texts(broker: Broker, topic: str) -> list[str]:
    with Client(broker.http) as client:
        return [one.text for one in client.read(topic)]


def test_a_publish_is_not_repeated_unless_that_is_allowed(
    broker: Broker, proxy: LossyProxy, topic: str
) -> None:
    with Client(proxy.address) as careful:
        proxy.lose(b"/publish")
        with pytest.raises(ConnectionLost, match="may or may not have been executed"):
            careful.publish(topic, "once")
        assert careful.publish(topic, "next").offset == 1
    settings = HttpSettings(retry=RetrySettings(repeats_publishes=True))
    with Client(proxy.address, settings) as eager:
        proxy.lose(b"/publish")
        assert eager.publish(topic, "twice").offset == 3
    assert texts(broker, topic) == ["once", "next", "twice", "twice"]
    assert proxy.lost == 2


def test_a_producer_tells_of_messages_that_may_or_may_not_be_stored(
    broker: Broker, proxy: LossyProxy, topic: str
) -> None:
    with Client(proxy.address) as client:
        producer = client.producer()
        proxy.lose(b"/batch")
        doubtful = producer.send(topic, "doubtful")
        with pytest.raises(ConnectionLost):
            producer.flush()
        producer.send(topic, "sure")
        producer.close()
        assert isinstance(doubtful.exception(), ConnectionLost)
    assert texts(broker, topic) == ["doubtful", "sure"]


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_poll_whose_answer_is_lost_skips_nothing(
    broker: Broker, proxy: LossyProxy, topic: str, group: str, auto_commit: bool
) -> None:
    seen: list[str] = []
    with Client(broker.http) as direct:
        direct.publish_many(topic, [Outgoing(str(number)) for number in range(30)])
    with (
        Client(proxy.address) as client,
        client.stream_consumer(topic, group=group, auto_commit=auto_commit, limit=10) as consumer,
    ):
        seen += [one.text for one in consumer.poll(wait=5)]
        if not auto_commit:
            consumer.commit()
        proxy.lose(b"/poll")

        def has_all() -> bool:
            seen.extend(one.text for one in consumer.poll(wait=0.2))
            return len(set(seen)) == 30

        eventually(has_all, because="every message was read")
    assert proxy.lost == 1
    assert sorted(set(seen), key=int) == [str(number) for number in range(30)]


def test_an_ack_whose_answer_is_lost_is_done_all_the_same(
    broker: Broker, proxy: LossyProxy, topic: str, group: str
) -> None:
    with Client(proxy.address) as client:
        client.publish(topic, "one")
        consumer = client.consumer(topic, group=group, concurrency=1)

        @consumer.handler
        def handle(message: object) -> None:
            proxy.lose(b"/ack")
            consumer.stop()

        consumer.run()
        assert proxy.lost == 1
    with Client(broker.http) as direct:
        queue = direct.queue(topic, group=group)
        assert queue.stats().totals.acked == 1
        assert queue.receive(10, wait=0.5) == []
