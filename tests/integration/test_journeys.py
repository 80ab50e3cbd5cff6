"""Journeys on a real node that is killed: each message has its events, once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import confluent_kafka
import pytest

from goqueue import Client
from goqueue.tracing.encoding import decode_events, decode_key, is_events
from goqueue.tracing.events import Event, Kind

from .bad_batches import batch, produce_all, records
from .process import Broker
from .test_queue_crashes import GROUP, PARTITIONS, TOPIC, Campaign, create_queue
from .waiting import eventually

JOURNAL = "__journeys"
KILLS = 4
READ_SECONDS = 20

StartBroker = Callable[..., Broker]
Place = tuple[int, int]  # partition and offset


class Log:
    """The records of topics of a node, read by a stock client."""

    def __init__(self, node: Broker) -> None:
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": node.bootstrap, "group.id": "nobody"}
        )

    def ends(self, topic: str) -> list[int]:
        partitions = self._consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return [
            self._consumer.get_watermark_offsets(
                confluent_kafka.TopicPartition(topic, number), timeout=10
            )[1]
            for number in sorted(partitions)
        ]

    def read(self, topic: str) -> list[confluent_kafka.Message]:
        found: list[confluent_kafka.Message] = []
        for number, end in enumerate(self.ends(topic)):
            self._consumer.assign([confluent_kafka.TopicPartition(topic, number, 0)])
            position = 0
            while position < end:
                message = self._consumer.poll(READ_SECONDS)
                assert message is not None, f"{topic}/{number} ends at {position}, not at {end}"
                assert message.error() is None
                found.append(message)
                position = message.offset() + 1
        return found

    def close(self) -> None:
        self._consumer.close()


def journeys(log: Log) -> dict[int, list[Event]]:
    """Return the events about the topic, by partition."""
    found: dict[int, list[Event]] = {number: [] for number in range(PARTITIONS)}
    for record in log.read(JOURNAL):
        key, value = record.key(), record.value()
        if is_events(key):
            place, _, _ = decode_key(key)
            _, events = decode_events(place, value)
            if place.topic == TOPIC:
                found[place.partition] += events
    return found


def times(events: dict[int, list[Event]], kind: Kind, group: str = "") -> Counter[Place]:
    """Count how often each message has an event."""
    return Counter(
        (number, offset)
        for number, some in events.items()
        for event in some
        if event.kind is kind and event.details.group == group
        for offset in range(event.first, event.end)
    )


@pytest.mark.single_node("simulations kill the nodes of a cluster")
@pytest.mark.seeds(1)
@pytest.mark.timeout(180)
def test_a_killed_node_loses_no_journey_and_writes_none_twice(
    seed: int, start_broker: StartBroker
) -> None:
    node = start_broker()
    create_queue(node)
    Campaign(node, seed).run(KILLS)
    log = Log(node)
    try:
        messages = {(one.partition(), one.offset()) for one in log.read(TOPIC)}
        assert len(messages) > 100

        def are_complete() -> bool:
            found = journeys(log)
            counts = [times(found, Kind.RECEIVED), times(found, Kind.STORED)]
            counts.append(times(found, Kind.ACKED, GROUP))
            assert all(set(count.values()) <= {1} for count in counts)
            return all(count.keys() == messages for count in counts)

        eventually(are_complete, because="everything that happened is in the journal")
    finally:
        log.close()


@pytest.mark.single_node("what a killed node has noted on its disk is written when it is back")
def test_duplicates_that_a_killed_node_has_refused_are_marked(start_broker: StartBroker) -> None:
    node = start_broker()
    with Client(node.http) as client:
        client.topics.create("orders", partitions=1)
        now_ms = time.time_ns() // 1_000_000
        sent = [batch(records(1), 1, now_ms, producer=(4000, 0, number)) for number in range(5)]
        again = batch(records(1), 1, now_ms, producer=(4000, 0, 3))
        answers = produce_all(node.bootstrap, "orders", [*sent, again])
        assert [one.base_offset for one in answers] == [0, 1, 2, 3, 4, 3]
        node.kill()
        node.start()

        def kinds(offset: int) -> set[str]:
            return {one.kind for one in client.journeys.get(f"orders:0:{offset}").entries}

        eventually(
            lambda: kinds(3) > {"received", "stored"},
            because="the duplicate is in the journal, or a mark that something is missing",
        )
        assert kinds(3) <= {"received", "stored", "deduplicated", "recovered"}
        for offset in (0, 1, 2, 4):
            assert kinds(offset) == {"received", "stored"}
            assert client.journeys.get(f"orders:0:{offset}").complete
