"""Finding leaders, and asking again."""

from __future__ import annotations

import pytest

from goqueue.client import Unreachable
from goqueue.client.errors import BrokerUnready
from goqueue.model.errors import InvalidRequest, UnknownPartition, UnknownTopic
from goqueue.model.names import TopicPartition
from tests.unit.client.fake_broker import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


class Attempts:
    """Fails a number of times, then answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.left = failures
        self.error = error

    def __call__(self) -> str:
        if self.left == 0:
            return "done"
        self.left -= 1
        raise self.error


def test_the_leader_of_a_partition_is_found(broker: FakeBroker) -> None:
    cluster = broker.cluster()
    assert cluster.leader_of(TopicPartition("orders", 2)).id == 1
    with pytest.raises(UnknownPartition):
        cluster.leader_of(TopicPartition("orders", 3))


def test_a_broker_that_waits_for_its_cluster_is_not_believed_about_topics(
    broker: FakeBroker,
) -> None:
    broker.is_ready = False
    broker.topics.clear()
    with pytest.raises(BrokerUnready, match="knows no running node of its cluster"):
        broker.cluster().topics()


def test_what_is_known_is_not_asked_for_again_until_it_is_old(broker: FakeBroker) -> None:
    cluster = broker.cluster(metadata_age_ms_max=60_000)
    assert len(cluster.topic("orders").partitions) == 3
    broker.topics["orders"] = 5
    broker.clock.now += 59
    assert len(cluster.topic("orders").partitions) == 3
    broker.clock.now += 2
    assert len(cluster.topic("orders").partitions) == 5


def test_partitions_are_grouped_by_leader_and_topic(broker: FakeBroker) -> None:
    broker.topics["payments"] = 1
    names = [
        TopicPartition("orders", 2),
        TopicPartition("payments", 0),
        TopicPartition("orders", 0),
    ]
    (topics,) = broker.cluster().by_leader(names).values()
    assert topics == {"orders": [2, 0], "payments": [0]}


def test_a_passing_error_is_tried_again_with_growing_waits(broker: FakeBroker) -> None:
    cluster = broker.cluster()
    assert cluster.retrying(Attempts(4, BrokerUnready("not yet"))) == "done"
    assert len(broker.clock.slept) == 4
    assert broker.clock.slept[3] > broker.clock.slept[0]


def test_patience_ends(broker: FakeBroker) -> None:
    cluster = broker.cluster(retry_ms_max=5_000)
    with pytest.raises(BrokerUnready):
        cluster.retrying(Attempts(10_000, BrokerUnready("never")))
    assert sum(broker.clock.slept) <= 5


def test_an_error_for_good_is_raised_at_once(broker: FakeBroker) -> None:
    with pytest.raises(InvalidRequest):
        broker.cluster().retrying(Attempts(1, InvalidRequest("no")))
    assert broker.clock.slept == []


def test_a_missing_topic_is_not_waited_for(broker: FakeBroker) -> None:
    cluster = broker.cluster()
    with pytest.raises(UnknownTopic):
        cluster.retrying(lambda: cluster.topic("nope"))
    assert broker.clock.slept == []


def test_an_address_where_nobody_ever_answered_is_wrong(broker: FakeBroker) -> None:
    broker.is_up = False
    cluster = broker.cluster()
    with pytest.raises(Unreachable):
        cluster.retrying(cluster.nodes)
    assert broker.clock.slept == []


def test_a_broker_that_was_there_is_waited_for(broker: FakeBroker) -> None:
    cluster = broker.cluster(retry_ms_max=5_000)
    cluster.nodes()
    broker.is_up = False
    with pytest.raises(Unreachable):
        cluster.retrying(cluster.nodes)
    assert sum(broker.clock.slept) > 3
