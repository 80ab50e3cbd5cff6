"""Dead letters are written ahead: an intent in the journal, the batch, the note that it is done."""

from __future__ import annotations

import pytest

from goqueue.broker import Broker
from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.topics.internal_topics import SETUP_WAIT_MS
from goqueue.delivery import DeadLetterIntent, PendingLetter
from goqueue.model.dead_letters import read_origin
from goqueue.model.errors import CoordinatorNotAvailable
from tests.unit.broker.queues.test_queues import QueueNode, receipts, texts

REASON = "poison"


@pytest.fixture
def node() -> QueueNode:
    node = QueueNode(delivery__partitions="2")
    node.create("orders")
    node.wait(node.broker.queues.groups.create("shop", {"deliveries_max": 1, "backoff_ms": 0}))
    return node


def hosted(node: QueueNode) -> HostedQueue:
    return node.broker.queues.groups.queue_of("shop", "orders")


def intend(node: QueueNode, *offsets: int, producer_id: int, sequence: int) -> None:
    """Leave an intent behind that nobody has begun to carry out."""
    letters = [PendingLetter(offset, 1, REASON) for offset in offsets]
    topic = node.broker.topics.get("orders.dlq")
    queue = hosted(node)
    queue.intend_dead_letters(0, DeadLetterIntent(letters, topic.id, 0, producer_id, sequence))
    node.wait(queue.saved())


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
def test_an_intent_is_carried_out_by_the_next_start(node: QueueNode, how: str) -> None:
    node.send("a", "b")
    messages = node.receive()
    node.broker.leaders.is_full = lambda: True  # Nothing is stored in the dead-letter topic.
    node.broker.queues.reject("shop", receipts(messages), reason=REASON)
    node.run_for(100)
    assert hosted(node).queue.partitions[0].ledger.letter_intents
    getattr(node, how)()
    node.start()
    assert node.receive() == []
    letters = node.dead()
    assert [one.value for one in letters] == [b"a", b"b"]
    origins = [read_origin(one.headers) for one in letters]
    assert [one and one.reason for one in origins] == [REASON] * 2
    node.restart_after_crash()
    assert node.receive() == []
    assert len(node.dead()) == 2


def test_letters_that_were_stored_and_not_noted_are_not_stored_again(node: QueueNode) -> None:
    node.send("a")
    messages = node.receive()
    node.broker.queues.reject("shop", receipts(messages), reason=REASON)
    node.run_until(lambda: node.broker.topics.find("orders.dlq") is not None)
    target = node.broker.topics.get("orders.dlq").partition(0)
    node.run_until(lambda: target.end_offset == 1)
    assert hosted(node).queue.partitions[0].ledger.letter_intents, "the journal has noted it"
    node.kill()
    node.start()
    assert node.receive() == []
    assert len(node.dead()) == 1


def test_until_an_intent_is_carried_out_receivers_wait_and_settles_are_refused(
    node: QueueNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.send("a", "b", "c")
    first, second = node.receive(messages_max=2)
    node.broker.leaders.is_full = lambda: True
    node.broker.queues.reject("shop", receipts([first]), reason=REASON)
    node.run_for(100)
    node.kill()
    with monkeypatch.context() as patched:
        patched.setattr(Broker, "_is_full", lambda _: True)
        node.start()
    with pytest.raises(CoordinatorNotAvailable):
        node.broker.queues.ack("shop", receipts([second]))
    impatient = node.ask()
    node.run_for(SETUP_WAIT_MS)
    with pytest.raises(CoordinatorNotAvailable):
        node.wait(impatient.promise)
    waiting = node.ask()
    node.run_for(SETUP_WAIT_MS // 2)
    assert not waiting.promise.is_done
    node.broker.leaders.is_full = lambda: False
    assert texts(node.wait(waiting.promise)) == ["c"]
    assert node.settle("ack", [second]) == [None]
    assert [one.value for one in node.dead()] == [b"a"]


def test_an_intent_whose_batch_cannot_follow_any_more_is_dropped(node: QueueNode) -> None:
    """A power cut without syncs can take earlier batches of the producer with it."""
    node.send("a", "b")
    first, _ = node.receive()
    node.settle("reject", [first], reason=REASON)
    (state,) = list(node.broker.topics.get("orders.dlq").partition(0).producers)
    intend(node, 1, producer_id=state.producer_id, sequence=7)
    node.restart_after_crash()
    assert node.receive() == [], "its lease is not over yet"
    node.run_for(31_000)
    assert [one.value for one in node.dead()] == [b"a", b"b"]


def test_dead_letters_go_on_after_their_topic_has_lost_some(node: QueueNode) -> None:
    node.send("a", "b", "c")
    first, second, third = node.receive()
    for one in (first, second):
        node.settle("reject", [one], reason=REASON)
    target = node.broker.topics.get("orders.dlq").partition(0)
    (state,) = list(target.producers)
    state.batches.pop()  # as if the second batch had been lost
    assert node.settle("reject", [third], reason=REASON) == [None]
    assert [one.value for one in node.dead()] == [b"a", b"b", b"c"]
    assert len(list(target.producers)) == 2


def test_an_intent_for_a_deleted_dead_letter_topic_is_dropped(node: QueueNode) -> None:
    node.send("a", "b")
    first, second = node.receive()
    node.settle("reject", [first], reason=REASON)
    intend(node, 1, producer_id=99, sequence=0)
    node.wait(node.broker.topics.delete("orders.dlq"))
    node.restart_after_crash()
    assert node.settle("reject", [second], reason=REASON) == [None]
    assert [one.value for one in node.dead()] == [b"b"]


def test_a_dead_letter_is_not_refused_by_the_limits_of_its_topic(node: QueueNode) -> None:
    node.create("orders.dlq", max_message_bytes="1024", cleanup_policy="compact")
    node.send("x" * 5_000, "y")
    messages = node.receive()
    assert node.settle("reject", messages) == [None, None]
    assert sorted(len(one.value or b"") for one in node.dead()) == [1, 5_000]


def test_dead_letters_wait_on_a_full_disk_while_acks_go_on(node: QueueNode) -> None:
    node.send("a", "b")
    first, second = node.receive()
    node.broker.leaders.is_full = lambda: True
    rejected = node.broker.queues.reject("shop", receipts([first]))
    assert node.settle("ack", [second]) == [None]
    assert node.dead() == []
    node.broker.leaders.is_full = lambda: False
    assert node.wait(rejected) == [None]
    assert [one.value for one in node.dead()] == [b"a"]


def test_queues_of_several_groups_share_a_dead_letter_topic(node: QueueNode) -> None:
    for group in ("one", "two", "three"):
        node.wait(node.broker.queues.groups.create(group, {"deliveries_max": 1, "backoff_ms": 0}))
    node.send("a", "b")
    held = {group: node.receive(group) for group in ("one", "two", "three")}
    rejected = [
        node.broker.queues.reject(group, receipts(messages)) for group, messages in held.items()
    ]
    for promise in rejected:
        assert node.wait(promise) == [None, None]
    assert sorted(texts(held["one"])) == ["a", "b"]
    origins = [read_origin(one.headers) for one in node.dead()]
    assert sorted((one.group, one.offset) for one in origins if one is not None) == [
        (group, offset) for group in ("one", "three", "two") for offset in (0, 1)
    ]
