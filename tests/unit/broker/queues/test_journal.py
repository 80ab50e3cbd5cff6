"""The delivery journal: batches per turn, ledgers of the broker's own, damage and forgetting."""

from __future__ import annotations

import pytest

from goqueue.delivery import Done, Finish, LedgerKey
from goqueue.model.batch import Record, encode_batch
from goqueue.model.names import DELIVERY_TOPIC
from tests.unit.broker.queues.test_queues import QueueNode, receipts


@pytest.fixture
def node() -> QueueNode:
    node = QueueNode(delivery__partitions="1")
    node.create("orders")
    return node


def journal_end(node: QueueNode) -> int:
    return node.broker.topics.get(DELIVERY_TOPIC).partition(0).end_offset


def test_what_is_settled_in_one_turn_is_one_record_and_one_round(node: QueueNode) -> None:
    node.send(*[f"v{number}" for number in range(50)])
    messages = node.receive(messages_max=50)
    node.run_for(10)
    before, rounds = journal_end(node), node.broker.flusher.rounds
    promises = [node.broker.queues.ack("shop", receipts([one])) for one in messages]
    for promise in promises:
        assert node.wait(promise) == [None]
    assert journal_end(node) - before == 1
    assert node.broker.flusher.rounds - rounds == 1


def test_an_ack_is_answered_no_sooner_than_it_is_durable(node: QueueNode) -> None:
    node.send("a")
    promise = node.broker.queues.ack("shop", receipts(node.receive()))
    assert not promise.is_done
    journal = node.broker.topics.get(DELIVERY_TOPIC).partition(0)
    node.run_until(lambda: promise.is_done)
    assert journal.high_watermark == journal.end_offset


def test_ledgers_of_the_brokers_own_survive_and_belong_to_no_group() -> None:
    node = QueueNode(delivery__partitions="1", delivery__snapshot_bytes="4KiB")
    topic = node.create("orders")
    key = LedgerKey("__deadletters", topic.id, 0)
    journal = node.broker.queues.journal
    assert not journal.ledger(key).is_done(0)
    for offset in range(120):
        node.wait(journal.write(key, [Done(Finish.ACKED, [(offset * 2, offset * 2 + 1)])]))
    assert node.broker.topics.get(DELIVERY_TOPIC).partition(0).start_offset > 0, "no snapshot"
    node.restart_after_crash()
    ledger = node.broker.queues.journal.ledger(key)
    assert [ledger.is_done(offset) for offset in range(240)] == [True, False] * 120
    assert node.broker.queues.groups.all() == []


def test_state_of_groups_and_topics_that_are_gone_is_forgotten(node: QueueNode) -> None:
    node.create("parcels")
    for topic in ("orders", "parcels"):
        node.send("a", topic=topic)
        node.settle("ack", node.receive(topic=topic))
    node.settle("ack", node.receive("other"), "other")
    node.wait(node.broker.queues.groups.delete("other"))
    node.wait(node.broker.topics.delete("parcels"))
    node.run_for(100)
    node.restart_after_crash()
    assert [len(shard.ledgers) for shard in node.broker.queues.journal] == [1]
    assert node.receive() == []


def test_records_that_make_no_sense_cost_nothing_but_themselves(node: QueueNode) -> None:
    node.send("a", "b")
    node.settle("ack", node.receive(messages_max=1))
    journal = node.broker.topics.get(DELIVERY_TOPIC).partition(0)
    nonsense = [Record(b"?", b"?"), Record(None, None), Record(b"\x01", None)]
    journal.write(memoryview(encode_batch(nonsense)), now_ms=node.clock.now_ms())
    node.run_for(100)
    node.settle("ack", node.receive())
    node.restart_after_crash()
    assert node.receive() == []


def test_a_disk_that_stays_full_is_tried_once_a_second_and_not_ever_more_often(
    node: QueueNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.send(*[f"v{number}" for number in range(8)])
    node.receive(visibility_ms=500, messages_max=4)
    node.receive(visibility_ms=900, messages_max=4)
    node.disk.fill_after(0)
    node.run_for(10_000)
    waits = [one for one in caplog.records if "cannot write delivery state" in one.message]
    assert 8 <= len(waits) <= 13
    node.disk.make_room()
    node.run_for(1_500)
    node.restart_after_crash()
    assert {one.delivery.attempt for one in node.receive()} == {2}
