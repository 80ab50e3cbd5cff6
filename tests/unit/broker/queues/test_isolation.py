"""Queues, reads and fetches in the face of transactions that are open or were aborted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from goqueue.broker.reading.fetching import Fetched, Wanted
from goqueue.broker.reading.records import Page, Place
from goqueue.delivery.redrive import LetterFilter
from goqueue.loop.promise import promised
from goqueue.model.attributes import PRIORITY_HEADER
from goqueue.model.batch import Header, Record, add_sequence, encode_batch
from goqueue.partition import Partition
from tests.unit.broker.queues.test_queues import QueueNode


class TransactionalNode(QueueNode):
    """A node and producers 1, 2, … that write to the first partition of a topic."""

    def target(self, topic: str = "orders") -> Partition:
        return self.broker.topics.get(topic).partition(0)

    def write(
        self, producer: int, *values: str, topic: str = "orders", headers: Sequence[Header] = ()
    ) -> None:
        partition, now_ms = self.target(topic), self.clock.now_ms()
        state = partition.producers.get(producer)
        batches = state.batches if state is not None else []
        batch = encode_batch(
            [Record(None, one.encode(), tuple(headers), now_ms) for one in values],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=add_sequence(batches[-1].last_sequence, 1) if batches else 0,
            is_transactional=True,
        )
        self._commit(partition, partition.append(memoryview(batch), now_ms=now_ms).last_offset)

    def end(self, producer: int, *, is_commit: bool, topic: str = "orders") -> None:
        partition = self.target(topic)
        marker = partition.append_marker(
            producer_id=producer,
            producer_epoch=0,
            is_commit=is_commit,
            coordinator_epoch=0,
            now_ms=self.clock.now_ms(),
        )
        self._commit(partition, marker.last_offset)

    def _commit(self, partition: Partition, offset: int) -> None:
        outcomes: list[object] = []
        partition.when_committed(offset, outcomes.append)
        self.run_until(lambda: bool(outcomes))
        assert outcomes == [None]
        self.run_for(1)

    def read(self, offset: int = 0, *, wait_ms: int = 0, is_committed_only: bool = True) -> Page:
        reading = self.broker.reads.read(
            [Place(self.target(), offset)],
            records_max=100,
            bytes_max=1 << 20,
            wait_ms=wait_ms,
            is_committed_only=is_committed_only,
        )
        return self.wait(reading.promise)


@pytest.fixture
def node() -> TransactionalNode:
    node = TransactionalNode()
    node.create("orders")
    return node


def texts(page: Page) -> list[str]:
    return [(record.value or b"").decode() for _, record in page.records]


# Queues


def test_a_message_is_delivered_when_its_transaction_is_committed(node: TransactionalNode) -> None:
    node.send("before")
    node.write(1, "a", "b")
    node.send("after")
    assert node.texts() == ["before"]
    node.end(1, is_commit=True)
    assert node.texts() == ["a", "b", "after"]


def test_a_message_of_an_aborted_transaction_is_never_delivered(node: TransactionalNode) -> None:
    node.write(1, "never")
    node.send("between")
    node.write(1, "nor this")
    node.end(1, is_commit=False)
    messages = node.receive()
    assert [(one.record.value or b"") for one in messages] == [b"between"]
    assert node.settle("ack", messages) == [None]
    stats = node.broker.queues.inspection.stats("shop", "orders")
    assert (stats.ready, stats.in_flight) == (0, 0)
    (partition,) = stats.partitions
    assert partition.done_before == node.target().end_offset, "nothing is left to be done"
    assert partition.in_total == 1, "markers and what was aborted are no messages"


def test_what_has_no_message_is_not_counted_as_ready(node: TransactionalNode) -> None:
    node.receive()
    for number in range(10):
        node.write(1, f"{number}")
        node.end(1, is_commit=number % 2 == 0)
    assert node.broker.queues.inspection.stats("shop", "orders").ready == 5
    (counts,) = node.broker.queues.inspection.lanes("orders").stored
    assert sum(counts) == 5
    assert node.texts(messages_max=10) == ["0", "2", "4", "6", "8"]


def test_markers_cost_a_ledger_nothing(node: TransactionalNode) -> None:
    node.receive()
    for number in range(20):
        node.write(1, f"{number}")
        node.end(1, is_commit=True)
    (ledger,) = [
        one
        for shard in node.broker.queues.journal
        for some in shard.ledgers.values()
        for one in some.values()
    ]
    assert len(ledger.done) <= 1, "nobody has come so far yet"
    messages = node.receive(messages_max=20)
    assert node.settle("ack", messages[1:]) == [None] * 19
    assert len(ledger.done) == 1, "nothing stands between what is done"
    assert node.settle("ack", messages[:1]) == [None]
    assert (ledger.floor, len(ledger.done)) == (40, 0)


def test_who_waits_is_answered_by_the_commit_and_not_before(node: TransactionalNode) -> None:
    node.receive()
    receiver = node.ask(wait_ms=20_000)
    node.write(1, "a")
    node.run_for(1000)
    assert not receiver.promise.is_done
    node.end(1, is_commit=True)
    assert [one.record.value for one in node.wait(receiver.promise)] == [b"a"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_finds_the_same_messages(node: TransactionalNode, is_clean: bool) -> None:
    node.send("first")
    node.write(1, "never")
    node.end(1, is_commit=False)
    node.write(1, "yes")
    node.end(1, is_commit=True)
    node.send("last")
    node.settle("ack", node.receive(messages_max=1))
    if is_clean:
        node.stop()
        node.start()
    else:
        node.restart_after_crash()
    assert node.texts() == ["yes", "last"]
    assert node.broker.queues.inspection.stats("shop", "orders").ready == 0


def test_priorities_count_inside_transactions(node: TransactionalNode) -> None:
    node.write(1, "slow")
    node.write(1, "fast", headers=((PRIORITY_HEADER, b"critical"),))
    node.write(2, "never", headers=((PRIORITY_HEADER, b"critical"),))
    node.end(2, is_commit=False)
    node.end(1, is_commit=True)
    assert sorted(node.texts()) == ["fast", "slow"]
    (counts,) = node.broker.queues.inspection.lanes("orders").stored
    assert counts == [1, 0, 1, 0, 0]


def test_a_rewound_queue_passes_over_the_same_offsets_again(node: TransactionalNode) -> None:
    node.write(1, "never")
    node.end(1, is_commit=False)
    node.write(1, "a")
    node.end(1, is_commit=True)
    node.settle("ack", node.receive())
    assert node.wait(node.broker.queues.positions.rewind("shop", "orders", offsets={0: 0})) == {
        0: 0
    }
    assert node.broker.queues.inspection.stats("shop", "orders").ready == 1
    node.settle("ack", node.receive())
    (partition,) = node.broker.queues.inspection.stats("shop", "orders").partitions
    assert partition.done_before == 4


def test_a_purge_leaves_what_is_not_decided(node: TransactionalNode) -> None:
    node.send("purged")
    node.write(1, "kept")
    node.receive(messages_max=1)
    node.wait(node.broker.queues.positions.purge("shop", "orders"))
    node.end(1, is_commit=True)
    assert node.texts() == ["kept"]


def test_a_group_that_begins_with_the_latest_gets_what_is_decided_later(
    node: TransactionalNode,
) -> None:
    node.send("missed")
    node.write(1, "a")
    node.wait(node.broker.queues.groups.create("shop", {"start": "latest"}))
    assert node.texts() == []
    node.end(1, is_commit=True)
    assert node.texts() == ["a"]


def test_a_peek_shows_only_messages(node: TransactionalNode) -> None:
    node.write(1, "never")
    node.end(1, is_commit=False)
    node.send("a")
    node.write(1, "perhaps")
    node.settle("nack", node.receive(), delay_ms=60_000)
    for offset in (None, 0):
        peeked = node.wait(
            node.broker.queues.inspection.peek("shop", "orders", 0, offset=offset, count=100)
        )
        assert [one.record and one.record.value for one in peeked] == [b"a"]


# Dead letters


def test_dead_letters_of_aborted_transactions_are_none(node: TransactionalNode) -> None:
    node.create("orders.dlq")
    node.write(1, "never", topic="orders.dlq")
    node.end(1, is_commit=False, topic="orders.dlq")
    node.send("letter", topic="orders.dlq")
    node.write(1, "perhaps", topic="orders.dlq")
    page = node.wait(
        promised(node.broker.dead_letters.page("orders", filter=LetterFilter(), count_max=10))
    )
    assert [one.record.value for one in page.letters] == [b"letter"]
    assert page.damaged == []


# Reading one by one


def test_a_read_shows_what_is_committed(node: TransactionalNode) -> None:
    node.send("before")
    node.write(1, "never")
    node.write(2, "a")
    node.end(1, is_commit=False)
    node.send("between")
    page = node.read()
    assert texts(page) == ["before"]
    node.end(2, is_commit=True)
    page = node.read(page.places[0].offset)
    assert texts(page) == ["a", "between"]
    assert page.places[0].offset == node.target().end_offset


def test_a_read_of_everything_shows_records_but_no_markers(node: TransactionalNode) -> None:
    node.write(1, "never")
    node.end(1, is_commit=False)
    node.write(1, "perhaps")
    assert texts(node.read(is_committed_only=False)) == ["never", "perhaps"]


def test_a_read_that_waits_is_answered_by_the_commit(node: TransactionalNode) -> None:
    reading = node.broker.reads.read(
        [Place(node.target(), 0)], records_max=10, bytes_max=1000, wait_ms=20_000
    )
    node.write(1, "a")
    node.run_for(1000)
    assert not reading.promise.is_done
    node.end(1, is_commit=True)
    assert texts(node.wait(reading.promise)) == ["a"]


# Fetching


def fetch(
    node: TransactionalNode, offset: int = 0, *, wait_ms: int = 0, is_committed_only: bool = True
) -> list[Fetched]:
    answers: list[list[Fetched]] = []
    wanted = Wanted(node.target(), offset, 1 << 20, is_committed_only=is_committed_only)
    node.broker.reads.fetch(
        [wanted], bytes_min=1, bytes_max=1 << 20, wait_ms=wait_ms, done=answers.append
    )
    return answers[0] if answers else []


def test_a_fetch_of_committed_batches_ends_at_the_last_stable_offset(
    node: TransactionalNode,
) -> None:
    node.send("before")
    node.write(1, "a")
    (found,) = fetch(node)
    assert found.batches is not None
    assert found.batches.end_offset == 1
    (found,) = fetch(node, is_committed_only=False)
    assert found.batches is not None
    assert found.batches.end_offset == 2
    assert not found.aborted


def test_a_fetch_tells_which_of_its_batches_were_aborted(node: TransactionalNode) -> None:
    node.write(1, "never")
    node.send("yes")
    node.end(1, is_commit=False)
    node.write(2, "nor this")
    node.end(2, is_commit=False)
    (found,) = fetch(node)
    assert [(one.producer_id, one.first_offset) for one in found.aborted] == [(1, 0), (2, 3)]
    (found,) = fetch(node, 3)
    assert [(one.producer_id, one.first_offset) for one in found.aborted] == [(2, 3)]
    (found,) = fetch(node, is_committed_only=False)
    assert not found.aborted


def test_a_waiting_fetch_of_committed_batches_is_not_woken_by_what_is_undecided(
    node: TransactionalNode,
) -> None:
    answers: list[list[Fetched]] = []
    wanted = Wanted(node.target(), 0, 1 << 20, is_committed_only=True)
    node.broker.reads.fetch(
        [wanted], bytes_min=1, bytes_max=1 << 20, wait_ms=9000, done=answers.append
    )
    node.write(1, "a")
    node.send("after")
    node.run_for(1000)
    assert answers == []
    node.end(1, is_commit=True)
    ((found,),) = answers
    assert found.batches is not None
    assert found.batches.end_offset == 3
