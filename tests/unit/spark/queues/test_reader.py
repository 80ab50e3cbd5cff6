"""Epochs of a queue: what they hold, who gets it meanwhile, and when it is done."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from goqueue.client import ConnectionLost
from goqueue.model.errors import GroupKindMismatch, InvalidRequest, UnknownTopic
from goqueue.spark.queues.offsets import QueueOffset
from goqueue.spark.queues.reader import QueuePlanner, QueueStreamReader
from goqueue.spark.queues.tasks import queue_schema
from tests.unit.spark.queues.queue_world import QueueWorld, an_options, as_checkpointed, offsets_of


def epoch(driver: QueuePlanner, begun: QueueOffset) -> QueueOffset:
    """Plan an epoch as Spark does: ask for its end, write that down, plan its tasks."""
    end = driver.next_end(begun, is_limited=True)
    assert end is not None
    driver.tasks(as_checkpointed(end))
    return as_checkpointed(end)


# An epoch from its beginning to its end


def test_messages_of_an_epoch_are_held_until_it_is_committed() -> None:
    world = QueueWorld()
    world.publish(3, partition=0)
    world.publish(2, partition=1)
    driver = world.driver()
    first = epoch(driver, driver.initial)
    assert offsets_of(first) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert world.receive() == []
    world.world.run_for(10 * 60_000)
    assert world.stats()["prepared"] == 5, "no lease can end"
    driver.finish(first)
    assert world.open_count() == 0
    world.world.run_for(60 * 60_000)
    assert world.receive() == []


def test_asking_for_the_next_epoch_commits_the_last() -> None:
    world = QueueWorld()
    world.publish(5)
    driver = world.driver(maxMessagesPerTrigger="3")
    first = epoch(driver, driver.initial)
    second = epoch(driver, first)
    assert offsets_of(first) == [(0, 0), (0, 1), (0, 2)]
    assert offsets_of(second) == [(0, 3), (0, 4)]
    assert world.open_count() == 2
    assert driver.next_end(second, is_limited=True) is None
    assert world.open_count() == 0


def test_a_commit_may_be_repeated_by_anybody() -> None:
    world = QueueWorld()
    world.publish(5)
    driver = world.driver(maxMessagesPerTrigger="3")
    first = epoch(driver, driver.initial)
    driver.finish(first)
    second = epoch(driver, first)
    another = world.driver()
    for one in (first, second, second, first):
        another.finish(one)
    driver.finish(second)
    assert world.open_count() == 0


def test_an_epoch_whose_rows_nobody_read_is_done_all_the_same() -> None:
    world = QueueWorld()
    world.publish(3)
    driver = world.driver()
    end = driver.next_end(driver.initial, is_limited=True)
    assert end is not None
    assert driver.next_end(end, is_limited=True) is None
    assert world.open_count() == 0
    driver.close()
    assert world.open_count() == 0


def test_more_messages_than_one_call_can_bring_are_one_epoch() -> None:
    world = QueueWorld()
    world.publish(2500)
    driver = world.driver(maxMessagesPerTrigger="2200")
    first = epoch(driver, driver.initial)
    assert first.count == 2200
    assert len(first.runs) == 1, "neighbours are one run"
    assert epoch(driver, first).count == 300


def test_an_end_that_spark_did_not_use_is_offered_again() -> None:
    world = QueueWorld()
    world.publish(5)
    driver = world.driver(maxMessagesPerTrigger="3")
    end = driver.next_end(driver.initial, is_limited=True)
    assert driver.next_end(driver.initial, is_limited=True) == end


def test_a_plan_waits_a_little_for_the_first_message() -> None:
    world = QueueWorld()
    driver = world.driver()
    begun_ms = world.world.broker.clock.now_ms()
    assert driver.next_end(driver.initial, is_limited=True) is None
    assert 200 <= world.world.broker.clock.now_ms() - begun_ms <= 1_000
    world.world.clock.node().call_later(100, lambda: world.publish(1))
    assert offsets_of(driver.next_end(driver.initial, is_limited=True)) == [(0, 0)]


def test_tasks_share_an_epoch() -> None:
    world = QueueWorld()
    world.publish(30, partition=0)
    world.publish(10, partition=1)
    driver = world.driver(minPartitions="4")
    end = driver.next_end(driver.initial, is_limited=True)
    assert end is not None
    shares = driver.tasks(end)
    sizes = [(one.partition.partition, sum(run.length for run in one.runs)) for one in shares]
    assert sizes == [(0, 10), (0, 10), (0, 10), (1, 10)]


# What the group says


def test_deliveries_and_priorities_are_told() -> None:
    world = QueueWorld(partitions=1)
    world.publish(2)
    world.publish(2, priority="high")
    held = world.receive(1)
    nack = {"receipts": [one["receipt"] for one in held], "delay_ms": 0}
    world.http.post("/v1/groups/workers/nack", nack)
    driver = world.driver()
    (runs,) = epoch(driver, driver.initial).runs.values()
    told = {n: run[2:] for run in runs for n in range(run.first, run.end)}
    nacked = held[0]["offset"]
    assert told[nacked][0] == 2
    assert {n: one[0] for n, one in told.items() if n != nacked} == dict.fromkeys(
        {0, 1, 2, 3} - {nacked}, 1
    )
    assert [told[n][1] for n in range(4)] == ["normal", "normal", "high", "high"]


def test_what_the_group_does_not_hand_out_does_not_appear() -> None:
    world = QueueWorld(partitions=1, deliveries_max=1)
    world.publish(1, ttl_ms=10)
    world.publish(3)
    world.world.run_for(1_000)
    rejected = world.receive(1)
    world.http.post("/v1/groups/workers/reject", {"receipts": [rejected[0]["receipt"]]})
    held = world.receive(1)
    driver = world.driver()
    gone = {0, rejected[0]["offset"], held[0]["offset"]}
    assert {offset for _, offset in offsets_of(epoch(driver, driver.initial))} == {
        0,
        1,
        2,
        3,
    } - gone


def test_several_topics_are_one_queue() -> None:
    world = QueueWorld()
    world.world.create("mails", 1)
    world.publish(3)
    world.http.post("/v1/topics/mails/publish", {"value": "x"})
    driver = world.driver(subscribe="orders,mails")
    first = epoch(driver, driver.initial)
    assert {str(one) for one in first.runs} == {"orders/0", "mails/0"}
    assert set(first.ids) == {"orders", "mails"}


# Starting again


def test_a_driver_that_starts_again_finishes_the_epoch_of_its_checkpoint() -> None:
    world = QueueWorld()
    world.publish(5)
    dead = world.driver(maxMessagesPerTrigger="3")
    first = epoch(dead, dead.initial)
    world.world.run_for(5 * 60_000)
    driver = world.driver(maxMessagesPerTrigger="3")
    (share,) = driver.tasks(first)
    assert [tuple(run)[:2] for run in share.runs] == [(0, 3)]
    second = epoch(driver, first)
    assert offsets_of(second) == [(0, 3), (0, 4)]
    driver.finish(second)
    assert world.open_count() == 0


def test_what_a_dead_driver_never_wrote_down_comes_again_at_once() -> None:
    world = QueueWorld()
    world.publish(5)
    dead = world.driver(maxMessagesPerTrigger="3")
    first = epoch(dead, dead.initial)
    unwritten = dead.next_end(first, is_limited=True)
    driver = world.driver()
    second = driver.next_end(first, is_limited=True)
    assert offsets_of(second) == offsets_of(unwritten)
    assert second is not None
    (runs,) = second.runs.values()
    assert [run.deliveries for run in runs] == [2]


def test_what_was_taken_before_there_was_a_checkpoint_comes_again_in_the_end() -> None:
    world = QueueWorld()
    world.publish(5)
    dead = world.driver(**{"queue.hold": "5m"})
    dead.next_end(dead.initial, is_limited=True)
    driver = world.driver()
    assert driver.next_end(driver.initial, is_limited=True) is None
    world.world.run_for(5 * 60_000)
    assert len(offsets_of(driver.next_end(driver.initial, is_limited=True))) == 5


def test_the_epoch_outlives_the_broker() -> None:
    world = QueueWorld()
    world.publish(5)
    driver = world.driver(maxMessagesPerTrigger="3")
    first = epoch(driver, driver.initial)
    world.restart()
    assert [one["offset"] for one in world.receive()] == [3, 4]
    driver.finish(first)
    world.restart()
    assert world.stats()["partitions"][0]["done_before"] == 3


def test_an_epoch_that_is_held_for_too_long_comes_again_and_stops_nothing() -> None:
    world = QueueWorld()
    world.publish(2)
    driver = world.driver(**{"queue.hold": "5m"})
    first = epoch(driver, driver.initial)
    world.world.run_for(5 * 60_000 + 1_000)
    others = world.receive()
    assert [one["attempt"] for one in others] == [2, 2]
    world.http.post("/v1/groups/workers/ack", {"receipts": [others[0]["receipt"]]})
    world.publish(1)
    second = epoch(driver, first)
    assert offsets_of(second) == [(0, 2)], "what another consumer has is left to it"
    driver.finish(second)
    assert world.stats()["in_flight"] == 1


def test_a_query_that_stops_gives_back_what_it_has_not_begun() -> None:
    world = QueueWorld()
    world.publish(5)
    driver = world.driver(maxMessagesPerTrigger="3")
    driver.next_end(driver.initial, is_limited=True)
    driver.close()
    assert len(world.receive()) == 5
    begun = QueueWorld()
    begun.publish(5)
    driver = begun.driver(maxMessagesPerTrigger="3")
    epoch(driver, driver.initial)
    driver.close()
    assert len(begun.receive()) == 2, "what is in the checkpoint will be read from there"


@pytest.mark.parametrize("lost", ["/ack", "/transactions", "/prepare", "/commit", "/open"])
def test_answers_that_get_lost_lose_no_message(lost: str) -> None:
    world = QueueWorld()
    world.publish(3)
    driver = world.driver()
    world.answers_lost = [lost]
    first = epoch(driver, driver.initial)
    driver.finish(first)
    assert world.answers_lost == []
    assert offsets_of(first) == [(0, 0), (0, 1), (0, 2)]
    assert world.open_count() == 0


def test_an_epoch_that_cannot_be_put_together_is_an_error_in_the_end() -> None:
    world = QueueWorld(deliveries_max=1000)
    world.publish(3)
    driver = world.driver()
    world.answers_lost = ["/ack"] * 1_000
    with pytest.raises(ConnectionLost):
        driver.next_end(driver.initial, is_limited=True)


def test_a_rewind_brings_the_messages_of_the_epoch_again() -> None:
    world = QueueWorld()
    world.publish(3)
    driver = world.driver()
    first = epoch(driver, driver.initial)
    rewind = {"topic": "orders", "offsets": [{"partition": 0, "offset": 1}]}
    world.http.post("/v1/groups/workers/rewind", rewind)
    second = epoch(driver, first)
    assert offsets_of(second) == [(0, 1), (0, 2)]


# Available now


def test_a_bounded_run_takes_what_was_there_and_ends() -> None:
    world = QueueWorld()
    world.publish(7)
    driver = world.driver(maxMessagesPerTrigger="3")
    driver.stop_at_what_is_there()
    begun, sizes = driver.initial, []
    while (end := driver.next_end(begun, is_limited=True)) is not None:
        driver.tasks(end)
        sizes.append(end.count)
        world.publish(2)  # A producer that never stops must not keep the run alive.
        begun = end
    assert sizes == [3, 3, 1]


def test_a_bounded_run_of_an_empty_queue_does_not_wait() -> None:
    world = QueueWorld()
    driver = world.driver()
    driver.stop_at_what_is_there()
    assert driver.next_end(driver.initial, is_limited=True) is None
    world.publish(1)
    assert driver.next_end(driver.initial, is_limited=True) is None


# Errors


def test_a_group_must_be_there_and_be_a_queue_without_order_of_keys() -> None:
    world = QueueWorld()
    with pytest.raises(InvalidRequest, match="no queue group 'nobody'; make it with"):
        world.driver(**{"queue.group": "nobody"})
    world.put_group("ordered", key_order=True)
    with pytest.raises(InvalidRequest, match="keeps the order of keys"):
        world.driver(**{"queue.group": "ordered"})
    made = world.http.send("PUT", "/v1/groups/readers", {"kind": "stream", "topics": ["orders"]})
    assert made.status == 200
    with pytest.raises(GroupKindMismatch):
        world.driver(**{"queue.group": "readers"})
    driver = world.driver(subscribe="letters")
    with pytest.raises(UnknownTopic):
        driver.next_end(driver.initial, is_limited=True)


def test_a_query_keeps_its_group() -> None:
    world = QueueWorld()
    world.publish(1)
    driver = world.driver()
    first = epoch(driver, driver.initial)
    world.put_group("others")
    other = world.driver(**{"queue.group": "others"})
    with pytest.raises(InvalidRequest, match="a query keeps its group"):
        other.next_end(first, is_limited=True)
    with pytest.raises(InvalidRequest, match="a query keeps its group"):
        other.tasks(first)


def test_a_reader_travels_to_tasks_without_its_connections() -> None:
    reader = QueueStreamReader(an_options(), queue_schema(has_headers=True))
    reader.stop()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.getDefaultReadLimit() == ReadMaxRows(10_000)
