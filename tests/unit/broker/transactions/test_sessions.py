"""Transactions of clients that know no producers: publishing, acks, delays, and their ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from goqueue.broker.publishing.publisher import Published, Scheduled
from goqueue.broker.transactions.ids import Transaction, TransactionIds
from goqueue.broker.transactions.names import (
    GENERATED_PREFIX,
    GENERATED_REST_MS,
    SCAN_PAUSE_MS,
    common_name,
    owner_in,
    owner_of,
)
from goqueue.broker.transactions.publishing import Addressed
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import (
    GoQueueError,
    InvalidReceipt,
    StorageFull,
    UnknownTransaction,
)
from goqueue.model.names import DELIVERY_TOPIC, SCHEDULED_TOPIC, ProducerIdentity
from goqueue.partition import Appended, Partition
from tests.unit.broker.queues.test_queues import Messages, receipts, texts
from tests.unit.broker.transactions.transacting_node import TransactingNode


@pytest.fixture
def node() -> TransactingNode:
    node = TransactingNode(delivery__partitions="1", schedules__partitions="2")
    node.create("orders")
    node.create("out", 3)
    return node


# Publishing


def test_what_is_published_is_seen_with_the_commit_and_all_of_it(node: TransactingNode) -> None:
    node.create("other")
    transaction = node.begin("writer")
    node.publish_well(transaction, "a", "b")
    node.publish_well(transaction, "c")
    node.publish_well(transaction, "d", topic="other")
    assert (node.read(), node.read("other")) == ([], [])
    node.commit(transaction)
    assert (sorted(node.read()), node.read("other")) == (["a", "b", "c"], ["d"])


def test_what_is_aborted_is_never_seen(node: TransactingNode) -> None:
    transaction = node.begin("writer")
    node.publish_well(transaction, "a", "b")
    node.abort(transaction)
    following = node.begin("writer")
    node.publish_well(following, "c")
    node.commit(following)
    assert node.read() == ["c"]


def test_results_say_where_messages_are(node: TransactingNode) -> None:
    transaction = node.begin()
    first, second = node.publish(transaction, "a", "b", partition=2)
    assert isinstance(first, Published)
    assert isinstance(second, Published)
    assert (first.partition, second.offset - first.offset) == (2, 1)
    (later,) = node.publish(transaction, "c", delay_ms=1000)
    assert isinstance(later, Scheduled)
    node.commit(transaction)
    assert node.broker.schedules.get(later.schedule_id).value == b"c"


def test_one_bad_message_has_its_whole_call_refused_and_the_rest_may_go_on(
    node: TransactingNode,
) -> None:
    transaction = node.begin()
    node.publish_well(transaction, "before")
    messages = [
        Addressed("out", Record(None, b"good")),
        Addressed("nowhere", Record(None, b"bad")),
        Addressed("out", Record(None, b"x" * 2_000_000)),
        Addressed("out", Record(None, b"good"), 7),
    ]
    results = node.wait(node.broker.transacting.publish(transaction, messages))
    codes = [one.code if isinstance(one, GoQueueError) else "" for one in results]
    assert codes == ["invalid_request", "unknown_topic", "invalid_request", "unknown_partition"]
    large = [Addressed("out", Record(None, b"x" * 2_000_000)), Addressed("out", Record(None, b"y"))]
    results = node.wait(node.broker.transacting.publish(transaction, large))
    codes = [one.code if isinstance(one, GoQueueError) else "" for one in results]
    assert codes == ["record_too_large", "invalid_request"]
    node.commit(transaction)
    assert node.read() == ["before"]


def test_a_transaction_that_could_not_be_written_whole_can_only_be_aborted(
    node: TransactingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = node.begin()
    first, second = node.broker.topics.get("out").partitions[:2]
    write = Partition.write

    def write_or_fail(self: Partition, *arguments: Any, **options: Any) -> Appended:
        if self is second:
            raise StorageFull("No room.")
        return write(self, *arguments, **options)

    monkeypatch.setattr(Partition, "write", write_or_fail)
    messages = [Addressed("out", Record(None, b"a"), 0), Addressed("out", Record(None, b"b"), 1)]
    results = node.wait(node.broker.transacting.publish(transaction, messages))
    monkeypatch.undo()
    assert isinstance(results[0], Published)
    assert isinstance(results[1], StorageFull)
    assert node.refusal(node.commit, transaction) == "transaction_abortable"
    node.abort(transaction)
    assert node.read() == []
    assert first.transactions.get(transaction.identity.producer_id) is None


def test_a_writer_goes_on_with_its_sequence_numbers_after_a_restart(node: TransactingNode) -> None:
    transaction = node.begin("writer")
    node.publish_well(transaction, "a", "b", partition=0)
    node.restart_after_crash()
    node.publish_well(transaction, "c", partition=0)
    node.restart_after_crash()
    node.commit(transaction)
    assert node.read() == ["a", "b", "c"]


# Ends


def test_a_commit_may_be_repeated_and_a_contradiction_is_refused(node: TransactingNode) -> None:
    transaction = node.begin("writer")
    node.publish_well(transaction, "a")
    node.commit(transaction)
    node.commit(transaction)
    node.restart_after_crash()
    node.commit(transaction)
    assert node.refusal(node.abort, transaction) == "invalid_transaction_state"
    assert node.refusal(node.publish, transaction, "b") == "fenced_producer"
    assert node.read() == ["a"]


def test_an_empty_transaction_ends_either_way(node: TransactingNode) -> None:
    transaction = node.begin()
    node.commit(transaction)
    node.commit(transaction)
    node.abort(node.begin())


def test_who_begins_again_aborts_and_turns_away_who_was_before(node: TransactingNode) -> None:
    old = node.begin("writer")
    node.publish_well(old, "old")
    new = node.begin("writer")
    assert node.refusal(node.publish, old, "more") == "fenced_producer"
    assert node.refusal(node.commit, old) == "fenced_producer"
    node.publish_well(new, "new")
    node.commit(new)
    assert node.read() == ["new"]


def test_a_transaction_that_is_left_open_is_aborted_in_time(node: TransactingNode) -> None:
    transaction = node.begin("writer", timeout_ms=1000)
    node.publish_well(transaction, "a")
    node.send("x")
    messages = node.receive()
    assert node.ack_in(transaction, messages) == [None]
    node.run_for(3000)
    assert node.refusal(node.commit, transaction) in (
        "fenced_producer",
        "invalid_transaction_state",
    )
    assert node.read() == []
    assert [one.delivery.attempt for one in node.receive()] == [2]


def test_ids_carry_the_transaction_and_slips_are_noticed() -> None:
    ids = TransactionIds(lambda: "cluster")
    transaction = Transaction("höchst eigen", ProducerIdentity(1 << 40, 32000))
    text = ids.write(transaction)
    assert ids.read(text) == transaction
    assert text.replace("-", "").replace("_", "").isalnum()
    for wrong in (
        text[:-1],
        "Q" + text[1:],
        "",
        "?",
        "é",
        text + "A",
        TransactionIds(lambda: "o").write(transaction),
    ):
        with pytest.raises(UnknownTransaction):
            ids.read(wrong)


def test_names_that_the_broker_makes_up_are_used_again_after_a_rest(node: TransactingNode) -> None:
    first = node.begin()
    assert first.transactional_id.startswith(GENERATED_PREFIX)
    node.publish_well(first, "a")
    node.commit(first)
    assert node.begin().transactional_id != first.transactional_id
    node.run_for(GENERATED_REST_MS + SCAN_PAUSE_MS)
    names = {node.begin().transactional_id for _ in range(2)}
    assert first.transactional_id in names
    assert node.refusal(node.commit, first) == "fenced_producer"
    with pytest.raises(GoQueueError, match="choose another"):
        node.begin(GENERATED_PREFIX + "mine")


@pytest.mark.parametrize("prefix", ["", "~acme~"])
def test_a_name_that_the_broker_makes_up_says_whose_it_is(prefix: str) -> None:
    name = f"{prefix}{GENERATED_PREFIX}{owner_of('User:alice')}-0a1b"
    assert owner_in(name) == owner_of("User:alice") != owner_of("User:bob")
    assert common_name(name) == prefix + GENERATED_PREFIX
    for other in (f"{prefix}{GENERATED_PREFIX}0a1b", f"{prefix}till", f"{prefix}x{name}"):
        assert owner_in(other) == "", "a name of a client, or of an earlier version"


# Acknowledging


def test_an_ack_in_a_transaction_counts_with_the_commit(node: TransactingNode) -> None:
    node.send("a", "b", "c")
    messages = node.receive(messages_max=2)
    transaction = node.begin()
    assert node.ack_in(transaction, messages) == [None, None]
    assert node.states() == ["prepared", "prepared", "ready"]
    figures = node.broker.queues.inspection.stats("shop", "orders")
    assert (figures.in_flight, figures.prepared, figures.totals.acked) == (2, 2, 0)
    node.run_for(40_000)
    assert texts(node.receive()) == ["c"]
    node.commit(transaction)
    assert node.states() == ["done", "done", "leased"]
    assert node.broker.queues.inspection.stats("shop", "orders").totals.acked == 2


def test_an_abort_lets_messages_come_again_at_once_and_counts_as_a_delivery(
    node: TransactingNode,
) -> None:
    node.send("a")
    for attempt in (1, 2, 3):
        (message,) = node.receive()
        assert message.delivery.attempt == attempt
        transaction = node.begin()
        assert node.ack_in(transaction, [message]) == [None]
        node.abort(transaction)
    node.run_for(1000)
    assert node.receive() == []
    assert [one.value for one in node.dead()] == [b"a"]
    assert node.broker.queues.inspection.stats("shop", "orders").totals.aborted == 3


def test_a_receipt_is_taken_once_and_a_stale_one_is_refused_by_itself(
    node: TransactingNode,
) -> None:
    node.send("a", "b", "c")
    messages = node.receive()
    node.settle("ack", messages[:1])
    transaction = node.begin()
    wanted = [messages[0], messages[1], messages[1]]
    assert node.ack_in(transaction, wanted) == ["stale_receipt", None, None]
    outcomes = node.wait(node.broker.transacting.ack(transaction, "shop", ["nonsense"]))
    assert isinstance(outcomes[0], InvalidReceipt)
    for how in ("ack", "nack", "reject", "extend"):
        assert node.settle(how, messages[1:2]) == ["stale_receipt"]
    node.commit(transaction)
    assert node.states() == ["done", "done", "leased"]


def test_messages_of_several_topics_are_acknowledged_together(node: TransactingNode) -> None:
    node.create("parcels")
    node.send("a")
    node.send("b", topic="parcels")
    both = [*node.receive(), *node.receive(topic="parcels")]
    transaction = node.begin()
    assert node.ack_in(transaction, both) == [None, None]
    node.restart_after_crash()
    assert node.states() + node.states("parcels") == ["prepared", "prepared"]
    node.commit(transaction)
    assert node.states() + node.states("parcels") == ["done", "done"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_prepared_acks_are_found_again_after_a_crash(
    node: TransactingNode, is_commit: bool
) -> None:
    node.send("a", "b")
    transaction = node.begin("writer", timeout_ms=100_000)
    node.ack_in(transaction, node.receive(messages_max=1))
    node.restart_after_crash()
    assert node.states() == ["prepared", "ready"]
    assert node.broker.queues.inspection.stats("shop", "orders").in_flight == 1
    assert texts(node.receive()) == ["b"]
    (node.commit if is_commit else node.abort)(transaction)
    assert node.states() == ["done" if is_commit else "retrying", "leased"]
    node.restart_after_crash()
    node.run_for(30_000)
    expected = ["b"] if is_commit else ["a", "b"]
    assert sorted(texts(node.receive())) == expected


def test_a_snapshot_keeps_what_is_pending() -> None:
    node = TransactingNode(delivery__partitions="1", delivery__snapshot_bytes="4KiB")
    node.create("orders")
    node.create("out")
    node.send(*[f"v{number}" for number in range(300)])
    transaction = node.begin("writer", timeout_ms=600_000)
    assert node.ack_in(transaction, node.receive(messages_max=3)) == [None] * 3
    journal = node.broker.topics.get(DELIVERY_TOPIC).partition(0)
    opened = journal.transactions.get(transaction.identity.producer_id)
    assert opened is not None
    for message in node.receive(messages_max=250)[::2]:
        node.settle("ack", [message])
    assert 0 < journal.start_offset <= opened.first_offset < journal.end_offset - 100
    node.restart_after_crash()
    assert node.states()[:5] == ["prepared"] * 3 + ["done", "leased"]
    node.commit(transaction)
    node.run_for(30_000)
    for message in node.receive(messages_max=250):
        node.settle("ack", [message])
    assert node.broker.topics.get(DELIVERY_TOPIC).partition(0).start_offset > opened.first_offset
    node.restart_after_crash()
    assert set(node.states()) == {"done"}


def test_a_snapshot_waits_until_a_marker_before_it_is_carried_out() -> None:
    node = TransactingNode(delivery__partitions="1")
    node.create("orders")
    node.stop()
    delivery = replace(node.settings.delivery, snapshot_bytes=1)
    node.settings = replace(node.settings, delivery=delivery)
    node.start()
    node.send(*[f"v{number}" for number in range(40)])
    messages = node.receive(messages_max=40)
    for place in range(10):
        transaction = node.begin("writer", timeout_ms=600_000)
        node.ack_in(transaction, messages[place : place + 1])
        journal = node.broker.topics.get(DELIVERY_TOPIC).partition(0)
        ending = node.broker.transacting.commit(transaction)
        producer_id = transaction.identity.producer_id
        node.clock.run_until(lambda: journal.transactions.get(producer_id) is None)  # noqa: B023
        assert journal.high_watermark < journal.end_offset, "the marker is committed already"
        node.broker.queues.journal._shards[0]._snapshot_bytes = 0  # It is time for one, it thinks.
        node.settle("ack", messages[20 + place : 21 + place])
        node.wait(ending)
        assert node.states()[place] == "done"
        kept = journal.start_offset
        node.restart_after_crash()
        assert node.states()[place] == "done", f"after a snapshot at {kept}"
        messages = messages[: place + 1] + _again(node, messages, place)


def _again(node: TransactingNode, before: Messages, place: int) -> Messages:
    """After a restart the messages that are not done are received anew, under their places."""
    found = {one.record.offset: one for one in node.receive(messages_max=40)}
    return [found.get(offset, before[offset]) for offset in range(place + 1, 40)]


def test_a_rewind_takes_prepared_messages_back_and_the_transaction_commits_without_them(
    node: TransactingNode,
) -> None:
    node.send("a", "b", "c", "d")
    messages = node.receive()
    transaction = node.begin("writer", timeout_ms=600_000)
    assert node.ack_in(transaction, [messages[0], messages[2]]) == [None, None]
    node.publish_well(transaction, "out")
    node.wait(node.broker.queues.positions.rewind("shop", "orders", offsets={0: 2}))
    assert node.states() == ["prepared", "leased", "ready", "ready"]
    assert texts(node.receive()) == ["c", "d"]
    node.commit(transaction)
    assert node.read() == ["out"]
    assert node.states() == ["done", "leased", "leased", "leased"]
    node.restart_after_crash()
    assert node.states() == ["done", "leased", "leased", "leased"]


def test_a_purge_finishes_prepared_messages_however_the_transaction_ends(
    node: TransactingNode,
) -> None:
    node.send("a", "b")
    transaction = node.begin("writer", timeout_ms=600_000)
    node.ack_in(transaction, node.receive(messages_max=1))
    node.wait(node.broker.queues.positions.purge("shop", "orders"))
    assert node.states() == ["done", "done"]
    node.abort(transaction)
    assert node.receive() == []
    node.restart_after_crash()
    assert node.states() == ["done", "done"]


def test_a_group_that_is_gone_does_not_hold_up_a_transaction(node: TransactingNode) -> None:
    node.send("a")
    transaction = node.begin()
    node.ack_in(transaction, node.receive())
    node.publish_well(transaction, "out")
    node.wait(node.broker.queues.groups.delete("shop"))
    node.commit(transaction)
    assert node.read() == ["out"]
    node.restart_after_crash()
    assert not node.broker.queues.groups.is_known("shop")


def test_a_lease_that_is_over_cannot_be_acknowledged_in_a_transaction(
    node: TransactingNode,
) -> None:
    node.send("a")
    messages = node.receive(visibility_ms=50)
    transaction = node.begin()
    node.run_for(100)
    assert node.ack_in(transaction, messages) == ["stale_receipt"]
    assert node.refusal(node.ack_in, transaction, messages, "nobody") == "unknown_group"
    outcomes = node.broker.transacting.ack(transaction, "shop", receipts(messages))
    assert node.wait(outcomes)[0] is not None


# Delays


def test_a_delayed_message_is_scheduled_by_the_commit(node: TransactingNode) -> None:
    transaction = node.begin()
    (result,) = node.publish(transaction, "later", delay_ms=5000)
    assert isinstance(result, Scheduled)
    assert node.schedule_count() == 0
    with pytest.raises(GoQueueError):
        node.broker.schedules.get(result.schedule_id)
    node.commit(transaction)
    assert node.schedule_count() == 1
    node.run_for(4000)
    assert node.read() == []
    node.run_for(2000)
    assert node.read() == ["later"]


def test_a_delayed_message_that_is_due_at_the_commit_appears_at_once(
    node: TransactingNode,
) -> None:
    transaction = node.begin()
    node.publish_well(transaction, "later", delay_ms=1000)
    node.run_for(5000)
    assert node.read() == []
    node.commit(transaction)
    node.run_for(100)
    assert node.read() == ["later"]
    node.restart_after_crash()
    node.run_for(1000)
    assert node.read() == ["later"]


def test_a_delayed_message_of_an_aborted_transaction_never_appears(node: TransactingNode) -> None:
    transaction = node.begin()
    node.publish_well(transaction, "never", delay_ms=1000)
    node.abort(transaction)
    node.run_for(5000)
    node.restart_after_crash()
    node.run_for(5000)
    assert (node.read(), node.schedule_count()) == ([], 0)


@pytest.mark.parametrize("is_clean", [True, False])
def test_pending_schedules_are_found_again(node: TransactingNode, is_clean: bool) -> None:
    kept, dropped = node.begin("kept"), node.begin("dropped")
    node.publish_well(kept, "kept", "too", delay_ms=30_000)
    node.publish_well(dropped, "dropped", delay_ms=30_000)
    if is_clean:
        node.stop()
        node.start()
    else:
        node.restart_after_crash()
    node.abort(dropped)
    node.commit(kept)
    assert node.schedule_count() == 2
    node.restart_after_crash()
    assert node.schedule_count() == 2
    node.run_for(40_000)
    assert sorted(node.read()) == ["kept", "too"]


def test_a_large_transaction_of_delayed_messages_is_activated_bit_by_bit(
    node: TransactingNode,
) -> None:
    transaction = node.begin()
    for _ in range(12):
        node.publish_well(transaction, *["x"] * 1000, delay_ms=60_000)
    node.commit(transaction)
    node.run_for(100)
    assert node.schedule_count() == 12_000
    logs = node.broker.topics.get(SCHEDULED_TOPIC).partitions
    assert sum(one.end_offset > 0 for one in logs) == 1


def test_compaction_keeps_what_committed_transactions_scheduled() -> None:
    node = TransactingNode(
        compaction__check_ms="1000",
        compaction__dirty_ratio_min="0.01",
        schedules__partitions="1",
        schedules__checkpoint_ms="1000",
    )
    node.create("out")
    day_ms = 24 * 3600 * 1000
    kept, dropped, waiting = (node.begin(one, timeout_ms=900_000) for one in ("a", "b", "c"))
    for transaction in (kept, dropped, waiting):
        node.publish_well(transaction, f"tomorrow {transaction.transactional_id}", delay_ms=day_ms)
        node.publish_well(transaction, *["soon"] * 200, delay_ms=100)
    node.commit(kept)
    node.abort(dropped)
    partition = node.broker.topics.get(SCHEDULED_TOPIC).partition(0)
    partition.log.settings.segment_ms = 1
    partition.log.settings.compaction_lag_ms_min = 0
    node.run_for(20_000)
    node.commit(waiting)
    node.run_for(20_000)
    node.broker.compactor.request([partition])
    node.run_for(20_000)
    assert partition.log.size < partition.bytes_in / 3, "nothing was compacted"
    assert node.read().count("soon") == 400
    node.disk.remove_tree("schedules")
    node.kill()
    node.start()
    assert node.schedule_count() == 2
    node.kill()
    node.clock.run_for(day_ms)
    node.start()
    node.run_for(1000)
    assert sorted(one for one in node.read() if one != "soon") == ["tomorrow a", "tomorrow c"]
    assert node.read().count("soon") == 400


# Batches of producers


def test_a_batch_behind_one_that_waits_for_its_schedules_waits_too(node: TransactingNode) -> None:
    identity = node.wait(node.broker.transactions.initialise("producer", timeout_ms=60_000))
    topic = node.broker.topics.get("out")
    partition = topic.partition(0)
    joined = node.broker.transactions.add_partitions("producer", identity, [partition.name])
    node.wait(joined)
    outcomes: list[GoQueueError | None] = []
    sequence = 0
    for values in (("now", "later"), ("plain",), ("later", "later"), ("plain",)):
        records = [
            Record(None, one.encode(), ((DELAY_HEADER, b"500"),) if one == "later" else ())
            for one in values
        ]
        batch = encode_batch(
            [one._replace(timestamp_ms=node.clock.now_ms()) for one in records],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        sequence += len(records)
        stored = node.broker.producing.produce(
            topic, partition, memoryview(batch), transactional_id="producer"
        )
        if isinstance(stored, Appended):
            partition.when_committed(stored.last_offset, outcomes.append)
        else:
            stored.when_committed(outcomes.append)
    node.run_until(lambda: len(outcomes) == 4)
    assert outcomes == [None] * 4
    node.run_for(2000)
    assert (node.read(), node.schedule_count()) == ([], 0)
    node.wait(node.broker.transactions.finish("producer", identity, is_commit=True))
    node.run_for(2000)
    assert node.read() == ["now", "plain", "plain", "later", "later", "later"]


def test_a_retried_batch_schedules_once(node: TransactingNode) -> None:
    identity = node.wait(node.broker.transactions.initialise("producer", timeout_ms=60_000))
    topic = node.broker.topics.get("out")
    partition = topic.partition(0)
    node.wait(node.broker.transactions.add_partitions("producer", identity, [partition.name]))
    for _ in range(3):
        record = Record(None, b"later", ((DELAY_HEADER, b"500"),), node.clock.now_ms())
        batch = encode_batch(
            [record],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        topic = node.broker.topics.get("out")
        outcomes: list[GoQueueError | None] = []
        stored = node.broker.producing.produce(
            topic, topic.partition(0), memoryview(batch), transactional_id="producer"
        )
        assert not isinstance(stored, Appended)
        stored.when_committed(outcomes.append)
        node.run_until(lambda: bool(outcomes))  # noqa: B023
        assert outcomes == [None]
        node.restart_after_crash()
    node.wait(node.broker.transactions.finish("producer", identity, is_commit=True))
    node.run_for(2000)
    assert node.read() == ["later"]
