"""Lanes get their shares, nobody starves, and partitions take turns."""

from __future__ import annotations

import pytest

from goqueue.delivery import LANE_COUNT, LaneSettings, QueueSettings, stats
from goqueue.delivery.settings import DEFAULT_WEIGHTS
from tests.unit.delivery.desk import Desk, Topic

PATIENT = LaneSettings(starvation_ms=10**9)
WIDE = QueueSettings(unacked_max=1_000_000, consumer_unacked_max=1_000_000)


def fill(topic: Topic, each: int) -> None:
    """As many messages in every lane, mixed."""
    for number in range(each // 10):
        for lane in range(LANE_COUNT):
            topic.produce(10, lane=lane, partition=number % len(topic.keys))


@pytest.mark.parametrize("partitions", [1, 7])
@pytest.mark.parametrize("receive", [1, 10, 1000])
def test_lanes_get_their_weights_within_five_percent(partitions: int, receive: int) -> None:
    topic = Topic(partitions)
    fill(topic, 7000)
    desk = Desk(topic, WIDE, PATIENT)
    counts = [0] * LANE_COUNT
    for _ in range(10_000 // receive):
        for one in desk.receive(receive):
            counts[one.lane] += 1
    assert sum(counts) == 10_000
    for count, weight in zip(counts, DEFAULT_WEIGHTS, strict=True):
        assert count == pytest.approx(100 * weight, rel=0.05)


def test_an_empty_lane_leaves_its_share_to_the_others_and_saves_nothing() -> None:
    topic = Topic()
    desk = Desk(topic, WIDE, PATIENT)
    topic.produce(1000, lane=1)
    topic.produce(1000, lane=2)
    desk.receive(400)
    topic.produce(1000, lane=0)
    counts = [0] * LANE_COUNT
    for one in desk.receive(900):
        counts[one.lane] += 1
    assert counts[0] == pytest.approx(500, rel=0.05)
    assert counts[1] == pytest.approx(250, rel=0.05)


def test_strict_lanes_come_one_after_the_other() -> None:
    topic = Topic(3)
    fill(topic, 30)
    desk = Desk(topic, WIDE, LaneSettings(is_strict=True, starvation_ms=10**9))
    lanes = [one.lane for one in desk.receive(150)]
    assert lanes == sorted(lanes)
    assert len(lanes) == 150


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_starving_lane_gets_every_second_message_and_no_more(is_strict: bool) -> None:
    topic = Topic()
    desk = Desk(topic, WIDE, LaneSettings(is_strict=is_strict, starvation_ms=30_000))
    topic.produce(500, lane=4)
    topic.now_ms += 30_001
    topic.produce(500, lane=0)
    lanes = [one.lane for one in desk.receive(100)]
    assert lanes[:10] == [4, 0] * 5
    # Half of them, and its own share of the other half.
    assert lanes.count(4) == 50 if is_strict else 50 < lanes.count(4) <= 54


def test_a_trickle_waits_no_longer_than_the_bound_beside_a_flood() -> None:
    """Critical messages are more than the consumers can take; the others get through in time."""
    topic = Topic(2)
    bound = 30_000
    desk = Desk(topic, WIDE, LaneSettings(is_strict=True, starvation_ms=bound))
    for second in range(300):
        topic.produce(12, lane=0, partition=second % 2)
        topic.produce(1, lane=1 + second % 4, partition=second % 2)
        for _ in range(10):
            desk.ack(desk.receive(1))
        topic.now_ms += 1000
    figures = stats(desk.queue, topic.now_ms)
    assert all(lane.longest_wait_ms > 0 for lane in figures.lanes)
    assert all(lane.longest_wait_ms <= bound for lane in figures.lanes[1:])


def test_the_starving_message_itself_is_found_among_many_partitions() -> None:
    topic = Topic(500)
    desk = Desk(topic, WIDE, LaneSettings(starvation_ms=1000))
    topic.produce(1, lane=4, partition=321)
    topic.now_ms += 1001
    for partition in range(500):
        topic.produce(5, lane=4, partition=partition)
        topic.produce(5, lane=0, partition=partition)
    assert desk.receive(1)[0].partition == 321


def test_partitions_take_turns() -> None:
    topic = Topic(4)
    for partition in range(4):
        topic.produce(1000, partition=partition)
    desk = Desk(topic, WIDE, PATIENT)
    first = {one.partition for one in desk.receive(512)}
    assert first == {0, 1, 2, 3}
    singles = [desk.receive(1)[0].partition for _ in range(8)]
    assert singles == [0, 1, 2, 3, 0, 1, 2, 3]


def test_offset_order_holds_within_a_lane_of_a_partition() -> None:
    topic = Topic(3)
    fill(topic, 200)
    desk = Desk(topic, WIDE, PATIENT)
    seen: dict[tuple[int, int], list[int]] = {}
    while deliveries := desk.receive(37):
        for one in deliveries:
            seen.setdefault((one.partition, one.lane), []).append(one.offset)
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert sum(map(len, seen.values())) == 1000


def test_two_groups_share_an_index_and_nothing_else() -> None:
    topic = Topic(2)
    one = Desk(topic, WIDE, PATIENT, group="one", number=1)
    two = Desk(topic, WIDE, PATIENT, group="two", number=2)
    fill(topic, 50)
    before = stats(two.queue, topic.now_ms)
    one.ack(one.receive(100))
    one.nack(one.receive(50))
    one.reject(one.receive(20))
    one.queue.rewind(0, 3, topic.now_ms)
    assert stats(two.queue, topic.now_ms) == before
    assert len(two.receive(1000)) == 250


def test_a_receive_does_not_look_at_every_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    from goqueue.delivery.partition_queue import PartitionQueue

    topic = Topic(3000)
    for partition in range(3000):
        topic.produce(2, partition=partition, lane=partition % 5)
    desk = Desk(topic, WIDE, PATIENT)
    looks: list[int] = []
    real = PartitionQueue.oldest_ms

    def counted(self: PartitionQueue, lane: int) -> int:
        looks.append(self.number)
        return real(self, lane)

    monkeypatch.setattr(PartitionQueue, "oldest_ms", counted)
    desk.receive(10)
    assert len(looks) < 200
