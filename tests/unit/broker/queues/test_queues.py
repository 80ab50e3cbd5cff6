"""Queue groups on a node: waiting, answering, remembering, burying."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from goqueue.broker.queues.lanes import LANES_FILE
from goqueue.broker.queues.queues import Receiver
from goqueue.broker.queues.records import ReceivedMessage
from goqueue.model.batch import Header, Record
from goqueue.model.dead_letters import read_origin
from goqueue.model.errors import (
    GoQueueError,
    GroupKindMismatch,
    InternalTopic,
    InvalidGroupSettings,
    InvalidRequest,
    InvalidTopicName,
    UnknownGroup,
    UnknownTopic,
)
from goqueue.model.names import DELIVERY_TOPIC
from tests.unit.broker.node import Node

Messages = list[ReceivedMessage]


class QueueNode(Node):
    """A node and the consumers of its queues."""

    def send(
        self,
        *values: str,
        topic: str = "orders",
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
    ) -> None:
        """One batch with these values."""
        target = self.broker.topics.get(topic).partition(partition)
        records = [
            Record(key, value.encode(), tuple(headers), self.clock.now_ms()) for value in values
        ]
        outcomes: list[GoQueueError | None] = []
        self.append(target, records, outcomes.append)
        self.run_until(lambda: bool(outcomes))
        assert outcomes == [None]

    def ask(self, group: str = "shop", topic: str = "orders", **options: Any) -> Receiver:
        options.setdefault("consumer", "anna")
        return self.broker.queues.receive(group, topic, **options)

    def receive(self, group: str = "shop", topic: str = "orders", **options: Any) -> Messages:
        received = self.wait(self.ask(group, topic, **options).promise)
        messages = list(received)
        assert len(messages) == len(received)
        return messages

    def texts(self, group: str = "shop", **options: Any) -> list[str]:
        return texts(self.receive(group, **options))

    def settle(
        self, how: str, messages: Messages, group: str = "shop", **options: Any
    ) -> list[Any]:
        call = getattr(self.broker.queues, how)
        outcomes = self.wait(call(group, receipts(messages), **options))
        return [None if one is None else one.code for one in outcomes]

    def dead(self, topic: str = "orders.dlq", *, partition: int = 0) -> list[Record]:
        if self.broker.topics.find(topic) is None:
            return []
        return self.consume(topic, partition=partition)


def receipts(messages: Messages) -> list[str]:
    return [one.delivery.receipt for one in messages]


def texts(messages: Iterable[ReceivedMessage]) -> list[str]:
    return [(one.record.value or b"").decode() for one in messages]


@pytest.fixture
def node() -> QueueNode:
    node = QueueNode()
    node.create("orders", 2)
    return node


# Receiving


def test_the_first_receive_makes_the_group_and_delivers_what_is_there(node: QueueNode) -> None:
    node.send("a", "b")
    assert not node.broker.queues.groups.is_known("shop")
    messages = node.receive()
    assert texts(messages) == ["a", "b"]
    assert [(one.delivery.attempt, one.delivery.lane) for one in messages] == [(1, 2), (1, 2)]
    assert node.broker.queues.groups.describe("shop").topics == ["orders"]
    assert node.broker.topics.get(DELIVERY_TOPIC).is_internal
    assert node.settle("ack", messages) == [None, None]
    assert node.receive() == []


def test_acks_are_remembered_and_the_rest_comes_back(node: QueueNode) -> None:
    node.send("a", "b", "c")
    node.settle("ack", node.receive(messages_max=2))
    held = node.receive()
    node.run_for(10)
    node.restart_after_crash()
    assert node.texts() == []
    node.run_for(30_000)
    assert _tries(node.receive()) == [("c", 2)]
    assert node.settle("ack", held) == ["stale_receipt"]


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
@pytest.mark.parametrize("key_order", [False, True])
def test_a_receipt_is_good_after_a_restart(node: QueueNode, how: str, key_order: bool) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"key_order": key_order, "backoff_ms": 0}))
    for key in (b"a", b"b", b"c", b"d", b"e"):
        node.send(key.decode(), key=key)
    held = node.receive(visibility_ms=20_000)
    if not key_order:
        node.run_for(10)  # Then it is synced; where keys have an order, the answer waited for that.
    node.run_for(4_000)
    getattr(node, how)()
    node.clock.run_for(60_000)  # Nobody could have settled anything in this time.
    node.start()
    assert node.receive() == []
    assert node.settle("ack", held[:1]) == [None]
    assert node.settle("nack", held[1:2]) == [None]
    assert node.settle("reject", held[2:3]) == [None]
    assert node.settle("extend", held[3:4], visibility_ms=60_000) == [None]
    assert _tries(node.receive()) == [("b", 2)]
    node.run_for(20_000)
    assert _tries(node.receive()) == [("e", 2)]
    for verb, message in (("ack", held[:1]), ("nack", held[1:2]), ("reject", held[2:3])):
        assert node.settle(verb, message) == [None], "a call that is made again"
    assert [record.value for record in node.dead()] == [b"c"]


def test_a_forged_receipt_settles_nothing(node: QueueNode) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"late_acks": True}))
    node.wait(node.broker.queues.groups.create("other", {"late_acks": True}))
    node.send("a")
    mine, theirs = node.receive(), node.receive("other")
    receipt = mine[0].delivery.receipt
    forged = [receipt[:20] + ("A" if receipt[20] != "A" else "B") + receipt[21:], *receipts(theirs)]
    for how in ("ack", "nack", "reject", "extend"):
        outcomes = node.wait(getattr(node.broker.queues, how)("shop", forged))
        assert [one.code for one in outcomes if one is not None] == ["invalid_receipt"] * 2
    assert node.settle("ack", mine) == [None]


def test_a_receiver_that_is_gone_before_its_answer_takes_nothing_along(node: QueueNode) -> None:
    node.receive()
    node.send("a", "b")
    receiver = node.ask()
    assert not receiver.promise.is_done
    receiver.cancel()
    assert _tries(node.receive()) == [("a", 1), ("b", 1)]
    node.run_for(10)
    node.restart_after_crash()
    node.run_for(30_000)
    assert _tries(node.receive()) == [("a", 2), ("b", 2)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_retries_come_back_after_a_restart_when_they_are_due(
    node: QueueNode, is_clean: bool
) -> None:
    node.send("a")
    node.settle("nack", node.receive(), delay_ms=10_000)
    if is_clean:
        node.stop()
        node.start()
    else:
        node.restart_after_crash()
    assert node.receive() == []
    messages = node.receive(wait_ms=30_000)
    assert [one.delivery.attempt for one in messages] == [2]


def test_who_waits_is_answered_when_a_message_comes(node: QueueNode) -> None:
    node.receive()
    before = node.clock.now_ms()
    receiver = node.ask(wait_ms=20_000)
    node.run_for(5_000)
    assert not receiver.promise.is_done
    node.send("late", partition=1)
    assert texts(node.wait(receiver.promise)) == ["late"]
    assert node.clock.now_ms() - before < 5_100


def test_who_waits_in_vain_gets_nothing_in_time(node: QueueNode) -> None:
    before = node.clock.now_ms()
    assert node.receive(wait_ms=3_000) == []
    assert 3_000 <= node.clock.now_ms() - before < 3_100


def test_receivers_are_served_in_the_order_of_their_arrival(node: QueueNode) -> None:
    node.receive()
    waiting = [node.ask(wait_ms=20_000, messages_max=1, consumer=f"c{one}") for one in range(3)]
    node.run_for(10)
    waiting[0].cancel()
    node.send("first", "second")
    node.run_for(100)
    assert [texts(node.wait(one.promise)) for one in waiting] == [[], ["first"], ["second"]]


def test_a_message_whose_receiver_has_gone_is_for_the_next_one(node: QueueNode) -> None:
    node.receive()
    gone, patient = (node.ask(wait_ms=20_000) for _ in range(2))
    gone.cancel()
    node.send("a")
    assert texts(node.wait(patient.promise)) == ["a"]


def test_an_expired_lease_goes_to_who_waits(node: QueueNode) -> None:
    node.send("a")
    node.receive(visibility_ms=5_000)
    messages = node.receive(wait_ms=20_000, consumer="bert")
    assert [(one.delivery.attempt, one.record.value) for one in messages] == [(2, b"a")]


def test_a_lease_that_ended_early_does_not_hide_when_another_is_over(node: QueueNode) -> None:
    node.send("a", "b")
    short = node.receive(messages_max=1, visibility_ms=1_000)
    node.receive(messages_max=1, visibility_ms=5_000)
    node.settle("ack", short)
    began_ms = node.broker.clock.now_ms()
    messages = node.receive(wait_ms=20_000, consumer="bert")
    assert [(one.delivery.attempt, one.record.value) for one in messages] == [(2, b"b")]
    assert 4_900 <= node.broker.clock.now_ms() - began_ms <= 5_100


def test_freed_room_goes_to_who_waits(node: QueueNode) -> None:
    node.wait(
        node.broker.queues.groups.create("shop", {"consumer_unacked_max": 1, "unacked_max": 2})
    )
    node.send("a", "b", "c")
    held = node.receive()
    assert texts(held) == ["a"]
    same = node.ask(wait_ms=20_000)
    other = node.ask(wait_ms=20_000, consumer="bert")
    assert texts(node.wait(other.promise)) == ["b"]
    assert not same.promise.is_done
    node.settle("ack", held)
    assert texts(node.wait(same.promise)) == ["c"]


def test_an_answer_is_bounded_in_bytes_and_holds_at_least_one_message() -> None:
    node = QueueNode(delivery__receive_bytes_max="1KiB")
    node.create("orders")
    node.send("x" * 5000)
    node.send(*["y" * 400] * 5)
    assert [len(text) for text in node.texts(messages_max=100)] == [5000]
    assert [len(text) for text in node.texts(messages_max=100)] == [400, 400]
    assert [len(text) for text in node.texts(messages_max=100)] == [400, 400]


@pytest.mark.parametrize("are_together", [True, False])
@pytest.mark.parametrize("sizes", [[400, 400, 400], [5000, 400], [400, 5000, 400]])
def test_an_answer_is_not_larger_than_it_may_be_but_one_message_always_fits(
    sizes: list[int], are_together: bool
) -> None:
    node = QueueNode(delivery__receive_bytes_max="1KiB")
    node.create("orders")
    if are_together:
        node.send(*("x" * size for size in sizes))
    else:
        for size in sizes:
            node.send("x" * size)
    received: list[int] = []
    while messages := node.receive():
        lengths = [len(one.record.value or b"") for one in messages]
        assert len(lengths) == 1 or sum(lengths) <= 1024
        received += lengths
        node.settle("ack", messages)
    assert received == sizes


def test_retries_and_new_messages_come_in_one_answer_each_as_it_was_stored(
    node: QueueNode,
) -> None:
    node.send(*"abcdef")
    first = node.receive(messages_max=4)
    node.settle("nack", [first[2]], delay_ms=0)
    node.settle("nack", [first[0]], delay_ms=1)
    node.run_for(10)
    assert _tries(node.receive()) == [("c", 2), ("a", 2), ("e", 1), ("f", 1)]


def test_too_many_who_wait_are_answered_at_once() -> None:
    node = QueueNode(delivery__waiting_max="2")
    node.create("orders")
    node.receive()
    first, second, third = (node.ask(wait_ms=20_000) for _ in range(3))
    assert not node.wait(third.promise)
    assert not first.promise.is_done
    first.cancel()
    assert not node.ask(wait_ms=20_000).promise.is_done
    assert not second.promise.is_done


@pytest.mark.parametrize("key_order", [False, True])
def test_an_answer_waits_for_its_lease_to_be_written_or_synced(
    node: QueueNode, key_order: bool
) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"key_order": key_order}))
    node.receive()
    node.send("a")
    journal = node.broker.topics.get(DELIVERY_TOPIC).partition(
        node.broker.queues.groups.place_of("shop")
    )
    before, receiver = journal.end_offset, node.ask()
    assert not receiver.promise.is_done
    node.run_until(lambda: receiver.promise.is_done)
    assert journal.end_offset == before + 1
    assert (journal.high_watermark > before) == key_order


@pytest.mark.parametrize(
    "options",
    [
        {"messages_max": 0},
        {"messages_max": 1001},
        {"wait_ms": -1},
        {"wait_ms": 60_001},
        {"visibility_ms": 0},
        {"consumer": ""},
    ],
)
def test_a_receive_out_of_range_is_refused(node: QueueNode, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        node.ask(**options)
    assert not node.broker.queues.groups.is_known("shop")


def test_unknown_topics_and_internal_ones_are_refused(node: QueueNode) -> None:
    with pytest.raises(UnknownTopic):
        node.ask(topic="nothing")
    node.receive()
    with pytest.raises(InternalTopic):
        node.ask(topic=DELIVERY_TOPIC)


# Groups


def test_a_name_belongs_to_one_kind_of_group(node: QueueNode) -> None:
    node.host_groups()
    assert node.commit("stream", 1) is None
    with pytest.raises(GroupKindMismatch, match="stream group"):
        node.ask("stream")
    node.receive("shop")
    error = node.commit("shop", 1)
    assert isinstance(error, GroupKindMismatch)


def test_group_settings_survive_and_can_be_changed(node: QueueNode) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"visibility_ms": 5_000}))
    node.restart_after_crash()
    assert node.broker.queues.groups.describe("shop").settings.visibility_ms == 5_000
    node.send("a")
    node.receive()
    node.wait(node.broker.queues.groups.create("shop", {"visibility_ms": 7_000}))
    assert node.broker.queues.groups.describe("shop").settings.visibility_ms == 7_000
    assert [one.name for one in node.broker.queues.groups.all()] == ["shop"]
    with pytest.raises(InvalidGroupSettings):
        node.broker.queues.groups.create("shop", {"visibility_ms": -1})


def test_a_deleted_group_begins_anew(node: QueueNode) -> None:
    node.send("a")
    node.settle("ack", node.receive())
    waiting = node.ask(wait_ms=20_000)
    node.wait(node.broker.queues.groups.delete("shop"))
    with pytest.raises(UnknownGroup):
        node.wait(waiting.promise)
    with pytest.raises(UnknownGroup):
        node.broker.queues.ack("shop", ["x"])
    assert node.texts() == ["a"]
    node.restart_after_crash()
    assert node.texts() == ["a"]


def test_a_group_that_starts_with_the_latest_begins_where_it_first_came(node: QueueNode) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"start": "latest"}))
    node.send("old")
    assert node.receive() == []
    node.send("new")
    node.restart_after_crash()
    assert node.texts() == ["new"]


def test_two_groups_have_the_same_messages(node: QueueNode) -> None:
    node.send("a", "b")
    node.settle("ack", node.receive("one"), group="one")
    assert node.texts("two") == ["a", "b"]


def test_one_group_reads_two_topics_and_settles_both_at_once(node: QueueNode) -> None:
    node.create("parcels")
    node.send("a")
    node.send("b", topic="parcels")
    both = node.receive() + node.receive(topic="parcels")
    assert node.settle("ack", both + both[:1]) == [None, None, None]
    node.restart_after_crash()
    assert node.receive() == []
    assert node.receive(topic="parcels") == []


def test_a_deleted_topic_takes_its_queue_along(node: QueueNode) -> None:
    node.send("a")
    messages = node.receive()
    waiting = node.ask(wait_ms=20_000)
    node.wait(node.broker.topics.delete("orders"))
    with pytest.raises(UnknownTopic):
        node.wait(waiting.promise)
    assert node.settle("ack", messages) == ["stale_receipt"]
    node.create("orders")
    node.send("new")
    assert node.texts() == ["new"]


def test_new_partitions_are_received_from(node: QueueNode) -> None:
    node.receive()
    node.wait(node.broker.topics.grow("orders", 3))
    waiting = node.ask(wait_ms=20_000)
    node.send("a", partition=2)
    assert texts(node.wait(waiting.promise)) == ["a"]


# Dead letters


def test_a_rejected_message_is_in_the_dead_letter_topic_when_the_answer_comes(
    node: QueueNode,
) -> None:
    node.send("bad", partition=1, key=b"k", headers=[("colour", b"red")])
    messages = node.receive()
    assert node.settle("reject", messages, reason="cannot be parsed") == [None]
    (letter,) = node.dead(partition=1)
    assert (letter.key, letter.value) == (b"k", b"bad")
    assert ("colour", b"red") in letter.headers
    origin = read_origin(letter.headers)
    assert origin is not None
    assert origin[:6] == ("orders", 1, 0, "shop", "cannot be parsed", 1)
    assert origin.time_ms == pytest.approx(node.clock.now_ms(), abs=1000)
    node.restart_after_crash()
    assert node.receive() == []
    assert len(node.dead(partition=1)) == 1


def test_the_last_attempt_ends_in_the_dead_letter_topic(node: QueueNode) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"deliveries_max": 2, "backoff_ms": 0}))
    node.send("bad")
    for _ in range(2):
        node.settle("nack", node.receive())
    (letter,) = node.dead()
    origin = read_origin(letter.headers)
    assert origin is not None
    assert (origin.reason, origin.attempts) == ("deliveries_exhausted", 2)


def test_a_lease_that_expires_for_the_last_time_is_buried_without_anybody_asking(
    node: QueueNode,
) -> None:
    node.wait(
        node.broker.queues.groups.create("shop", {"deliveries_max": 1, "visibility_ms": 1000})
    )
    node.send("bad")
    node.receive()
    node.run_for(2_000)
    assert len(node.dead()) == 1
    assert node.broker.queues.inspection.stats("shop", "orders").totals.dead_lettered == 1


def test_many_dead_letters_are_buried_once_each(node: QueueNode) -> None:
    node.send(*[f"v{number}" for number in range(700)])
    messages = node.receive(messages_max=700)
    assert node.settle("reject", messages) == [None] * 700
    assert sorted((one.value or b"").decode() for one in node.dead()) == sorted(texts(messages))


def test_dead_letters_of_a_deleted_dead_letter_topic_go_to_a_new_one(node: QueueNode) -> None:
    node.send("a", "b")
    first, second = node.receive()
    node.settle("reject", [first])
    node.wait(node.broker.topics.delete("orders.dlq"))
    node.settle("reject", [second])
    assert [one.value for one in node.dead()] == [b"b"]


def test_a_dead_letter_that_was_rewound_is_delivered_again_after_a_crash(node: QueueNode) -> None:
    node.send("bad")
    node.settle("reject", node.receive())
    node.wait(node.broker.queues.positions.rewind("shop", "orders", offsets={0: 0}))
    node.restart_after_crash()
    assert node.texts() == ["bad"], "the last dead letter was taken for one that nobody had noted"


def test_a_message_can_die_again_and_says_where_it_was_last(node: QueueNode) -> None:
    node.send("bad")
    node.settle("reject", node.receive(), reason="first")
    again = node.receive("morgue", "orders.dlq")
    node.settle("reject", again, "morgue", reason="second")
    (letter,) = node.dead("orders.dlq.dlq")
    origin = read_origin(letter.headers)
    assert origin is not None
    assert (origin.topic, origin.group, origin.reason) == ("orders.dlq", "morgue", "second")


def test_a_dead_letter_outlives_the_time_to_live_it_had(node: QueueNode) -> None:
    node.send("bad", headers=[("goqueue-ttl-ms", b"1000")])
    node.settle("reject", node.receive())
    node.run_for(5_000)
    assert texts(node.receive("morgue", "orders.dlq")) == ["bad"]


def test_a_topic_that_could_not_be_a_dead_letter_topic_is_told_at_the_first_receive(
    node: QueueNode,
) -> None:
    name = "x" * 249
    node.create(name)
    with pytest.raises(InvalidTopicName):
        node.ask(topic=name)
    node.wait(node.broker.queues.groups.create("shop", {"dead_letter_topic": "letters"}))
    node.send("bad", topic=name)
    node.settle("reject", node.receive(topic=name))
    assert len(node.dead("letters")) == 1


def test_a_full_disk_keeps_dead_letters_waiting_and_loses_none(node: QueueNode) -> None:
    node.send("bad", "good")
    bad, good = node.receive()
    node.settle("reject", [good])
    node.disk.fill_after(0)
    promise = node.broker.queues.reject("shop", receipts([bad]))
    node.run_for(3_000)
    node.disk.make_room()
    node.run_for(3_000)
    assert promise.is_done
    assert [one.value for one in node.dead()] == [b"good", b"bad"]
    node.restart_after_crash()
    assert node.receive() == []


# Moving about


def test_a_rewind_to_a_time_replays_from_there(node: QueueNode) -> None:
    node.send("a")
    node.run_for(1_000)
    middle = node.clock.now_ms()
    node.send("b", "c")
    node.settle("ack", node.receive())
    where = node.wait(node.broker.queues.positions.rewind("shop", "orders", time_ms=middle))
    assert where == {0: 1, 1: 0}
    node.restart_after_crash()
    assert node.texts() == ["b", "c"]


def test_a_rewind_to_offsets_stays_within_the_log(node: QueueNode) -> None:
    node.send("a", "b")
    node.settle("ack", node.receive())
    assert node.wait(node.broker.queues.positions.rewind("shop", "orders", offsets={0: 99})) == {
        0: 2
    }
    assert node.wait(node.broker.queues.positions.rewind("shop", "orders", offsets={0: -5})) == {
        0: 0
    }
    assert node.texts() == ["a", "b"]
    with pytest.raises(InvalidRequest):
        node.broker.queues.positions.rewind("shop", "orders")


def test_a_purge_finishes_everything(node: QueueNode) -> None:
    node.send("a", "b")
    held = node.receive(messages_max=1)
    node.wait(node.broker.queues.positions.purge("shop", "orders"))
    assert node.settle("ack", held) == [None]
    node.restart_after_crash()
    assert node.receive() == []


def test_peek_shows_messages_with_their_state_and_changes_nothing(node: QueueNode) -> None:
    node.send("a", "b", "c")
    node.settle("ack", node.receive(messages_max=1))
    node.receive(messages_max=1)
    before = node.broker.queues.inspection.stats("shop", "orders")
    found = node.wait(node.broker.queues.inspection.peek("shop", "orders", 0, offset=0))
    assert [(one.state.state, one.record and one.record.value) for one in found] == [
        ("done", b"a"),
        ("leased", b"b"),
        ("ready", b"c"),
    ]
    found = node.wait(node.broker.queues.inspection.peek("shop", "orders"))
    assert [one.state.state for one in found] == ["leased", "ready"], "what is done is over"
    assert node.broker.queues.inspection.stats("shop", "orders") == before
    node.wait(node.broker.queues.groups.create("idle"))
    with pytest.raises(InvalidRequest, match="receive first"):
        node.broker.queues.inspection.peek("idle", "orders", 0)


def test_a_key_in_order_waits_for_its_dead_letter(node: QueueNode) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"key_order": True}))
    node.send("a1", "a2", key=b"a")
    node.send("b1", key=b"b")
    messages = node.receive()
    assert texts(messages) == ["a1", "b1"]
    node.settle("reject", messages[:1])
    assert node.texts() == ["a2"]


@pytest.mark.parametrize("wait_ms", [0, 5000])
def test_a_long_line_behind_a_key_hides_no_other_key(node: QueueNode, wait_ms: int) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"key_order": True}))
    node.send(*(f"hot{one}" for one in range(300)), key=b"hot")
    node.send("cold", key=b"cold")
    assert node.texts(messages_max=1) == ["hot0"]
    begun_ms = node.clock.now_ms()
    assert node.texts(messages_max=1, wait_ms=wait_ms) == ["cold"]
    assert node.clock.now_ms() - begun_ms < 1000
    assert node.texts(messages_max=1) == []


# Lanes and lives


def test_priorities_order_what_is_received(node: QueueNode) -> None:
    node.send("slow", headers=[("goqueue-priority", b"background")])
    node.send("plain")
    node.send("fast", headers=[("goqueue-priority", b"0")])
    messages = node.receive()
    assert texts(messages) == ["fast", "plain", "slow"]
    assert [one.delivery.lane for one in messages] == [0, 2, 4]
    assert [one.value for one in node.consume("orders")] == [b"slow", b"plain", b"fast"]
    lanes = node.broker.queues.inspection.lanes("orders")
    assert lanes.stored[0] == [1, 0, 1, 0, 1]
    assert [one.in_flight for one in lanes.groups["shop"]] == [1, 0, 1, 0, 1]


@pytest.mark.parametrize("is_clean", [True, False])
def test_lanes_are_known_again_after_a_restart(is_clean: bool) -> None:
    node = QueueNode(delivery__lanes_save_ms="1s")
    node.create("orders")
    node.receive()
    for number in range(6):
        node.send(f"p{number}", headers=[("goqueue-priority", b"%d" % (number % 3 * 2))])
        node.run_for(700)
    if is_clean:
        node.stop()
        node.start()
    else:
        node.restart_after_crash()
    assert node.texts() == ["p0", "p3", "p1", "p4", "p2", "p5"]


def test_a_damaged_lane_index_is_built_again(node: QueueNode) -> None:
    node.receive()
    node.send("slow", headers=[("goqueue-priority", b"4")])
    node.send("fast", headers=[("goqueue-priority", b"0")])
    node.stop()
    path = f"logs/orders/0/{LANES_FILE}"
    assert node.disk.exists(path)
    node.disk.replace_whole(path, b"nonsense")
    node.start()
    assert node.texts() == ["fast", "slow"]


def test_a_strict_topic_and_its_settings(node: QueueNode) -> None:
    node.create("strict", lane_mode="strict", lane_weight_low="9", message_ttl_ms="5000")
    lanes = node.broker.queues.inspection.lanes("strict")
    assert (lanes.is_strict, lanes.weights["low"]) == (True, 9)
    node.send("a", topic="strict")
    node.run_for(6_000)
    assert node.receive(topic="strict") == []
    assert node.broker.queues.inspection.stats("shop", "strict").totals.ttl_expired == 1


def test_a_message_may_bring_its_own_time_to_live(node: QueueNode) -> None:
    node.send("short", headers=[("goqueue-ttl-ms", b"1000")])
    node.send("long")
    node.run_for(2_000)
    assert node.texts() == ["long"]


# Trouble


def test_damaged_batches_are_stepped_over_and_counted(node: QueueNode) -> None:
    node.send("a")
    node.send("b")
    node.send("c")
    path = "logs/orders/0/" + "0" * 20 + ".log"
    size = node.disk.open(path).size() // 3
    node.stop()
    node.disk.open(path).overwrite(size + 65, b"\xff\xff")
    node.start()
    assert node.texts() == ["a", "c"]
    assert node.broker.queues.inspection.stats("shop", "orders").totals.skipped == 1


def test_a_full_disk_refuses_acks_that_could_not_be_remembered(node: QueueNode) -> None:
    node.send("a", "b")
    first, second = node.receive()
    node.disk.fill_after(0)
    with pytest.raises(GoQueueError) as refusal:
        node.settle("ack", [first])
    assert refusal.value.retryable
    with pytest.raises(GoQueueError) as refusal:
        node.settle("ack", [second])
    assert refusal.value.retryable
    node.disk.make_room()
    node.run_for(2_000)
    assert node.settle("ack", [second]) == [None]
    node.restart_after_crash()
    assert node.receive() == []


def test_retention_moves_queues_along(node: QueueNode) -> None:
    node.receive()
    for number in range(5):
        node.send(f"v{number}")
    node.broker.administration.delete_records("orders", 0, before_offset=3)
    node.run_for(2_000)
    assert node.broker.queues.inspection.stats("shop", "orders").ready == 2
    assert node.texts() == ["v3", "v4"]


def test_the_journal_is_summed_up_so_that_it_stays_short() -> None:
    node = QueueNode(delivery__snapshot_bytes="4KiB", delivery__partitions="1")
    node.create("orders")
    for number in range(150):
        node.send(f"v{number}")
        node.settle("ack", node.receive())
    node.send("last", "very last")
    held = node.receive()
    node.settle("nack", held[:1], delay_ms=1000)
    journal = node.broker.topics.get(DELIVERY_TOPIC).partition(0)
    node.run_for(1_000)
    assert journal.start_offset > 50
    assert journal.end_offset - journal.start_offset < 80
    node.restart_after_crash()
    node.run_for(30_000)
    assert sorted((text, attempt) for text, attempt in _tries(node.receive())) == [
        ("last", 2),
        ("very last", 2),
    ]


def _tries(messages: Messages) -> list[tuple[str, int]]:
    return [((one.record.value or b"").decode(), one.delivery.attempt) for one in messages]
