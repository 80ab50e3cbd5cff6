"""FIFO queues by boto3: order and blocking in message groups, and no duplicates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import NewQueue, StartBroker
from .sqs import ATTEMPTS_AFTER_CRASH, Answer, Queue, bodies, connect, error_of
from .waiting import eventually

WINDOW_SECONDS = 300

# A receive may hold fewer messages than there are, so these tests ask again instead of for more.


@pytest.fixture
def fifo(new_queue: NewQueue) -> Queue:
    """A FIFO queue that deduplicates by content."""
    return new_queue({"ContentBasedDeduplication": "true"}, is_fifo=True)


def take(queue: Queue, count: int, **more: Any) -> list[Answer]:
    """Receive and delete so many messages; the next of a group comes when the last is deleted."""
    found: list[Answer] = []
    while len(found) < count:
        messages = queue.receive(min(count - len(found), 10), wait_seconds=20, **more)
        assert messages, f"{len(found)} of {count} messages"
        for message in messages:
            queue.delete(message)
        found += messages
    return found


def receive_together(queue: Queue, expected: list[str]) -> list[Answer]:
    """One receive that holds all these messages of one group, in order."""

    def receive() -> list[Answer]:
        messages = queue.receive(len(expected), wait_seconds=20)
        found = bodies(messages)
        assert found == expected[: len(found)]
        if len(found) == len(expected):
            return messages
        for message in messages:
            queue.hide(message, 0)
        return []

    return eventually(receive, because=f"one receive holds {expected}")


@pytest.mark.on_cluster
def test_a_group_is_received_in_order(fifo: Queue) -> None:
    expected = [str(n) for n in range(25)]
    for n in expected:
        fifo.send(n, MessageGroupId="g")
    assert bodies(take(fifo, 25)) == expected


@pytest.mark.on_cluster
def test_a_group_with_a_message_in_flight_waits_and_others_go_on(fifo: Queue) -> None:
    for body in ("a1", "a2", "b1", "b2"):
        fifo.send(body, MessageGroupId=body[0])
    first = fifo.receive_one()
    other = fifo.receive_one()
    assert {first["Body"], other["Body"]} == {"a1", "b1"}
    assert fifo.receive() == []

    fifo.delete(first)
    assert fifo.receive_one()["Body"] == f"{first['Body'][0]}2"


def test_one_receive_may_hold_several_of_a_group_in_order(fifo: Queue) -> None:
    for body in ("1", "2", "3", "4"):
        fifo.send(body, MessageGroupId="g")
    messages = receive_together(fifo, ["1", "2", "3"])
    assert fifo.receive() == []
    for message in messages[:2]:
        fifo.delete(message)
    assert fifo.receive() == []
    fifo.delete(messages[2])
    assert bodies(fifo.receive_all(1)) == ["4"]


def test_a_message_given_back_comes_before_those_after_it(fifo: Queue) -> None:
    for body in ("1", "2", "3"):
        fifo.send(body, MessageGroupId="g")
    first = fifo.receive_one()
    assert first["Body"] == "1"
    fifo.hide(first, 0)
    assert bodies(take(fifo, 3)) == ["1", "2", "3"]


def test_the_first_of_several_given_back_keeps_the_others_in_order(fifo: Queue) -> None:
    for body in ("1", "2", "3"):
        fifo.send(body, MessageGroupId="g")
    messages = receive_together(fifo, ["1", "2", "3"])
    for message in reversed(messages):
        fifo.hide(message, 0)
    assert bodies(take(fifo, 3)) == ["1", "2", "3"]


@pytest.mark.on_cluster
def test_a_message_sent_twice_is_stored_once(new_queue: NewQueue) -> None:
    queue = new_queue(is_fifo=True)
    first = queue.send("x", MessageGroupId="g", MessageDeduplicationId="one")
    again = queue.send("other body", MessageGroupId="g", MessageDeduplicationId="one")
    for name in ("MessageId", "SequenceNumber"):
        assert again[name] == first[name]
    queue.send("x", MessageGroupId="g", MessageDeduplicationId="two")
    messages = take(queue, 2, AttributeNames=["All"])
    assert bodies(messages) == ["x", "x"]
    ids = [message["Attributes"]["MessageDeduplicationId"] for message in messages]
    assert ids == ["one", "two"]
    # What was deleted is not forgotten.
    queue.send("x", MessageGroupId="g", MessageDeduplicationId="one")
    assert queue.receive() == []


def test_equal_bodies_are_one_message_where_content_decides(fifo: Queue) -> None:
    text = {"a": {"DataType": "String", "StringValue": "1"}}
    first = fifo.send("x", MessageGroupId="g")
    # Neither attributes nor the group are part of the content.
    assert (
        fifo.send("x", MessageGroupId="g", MessageAttributes=text)["MessageId"]
        == (first["MessageId"])
    )
    assert fifo.send("x", MessageGroupId="h")["MessageId"] == first["MessageId"]
    assert fifo.send("y", MessageGroupId="g")["MessageId"] != first["MessageId"]
    explicit = fifo.send("x", MessageGroupId="g", MessageDeduplicationId="explicit")
    assert explicit["MessageId"] != first["MessageId"]
    assert bodies(take(fifo, 3)) == ["x", "y", "x"]


def test_groups_may_deduplicate_on_their_own(new_queue: NewQueue) -> None:
    queue = new_queue(
        {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"},
        is_fifo=True,
    )
    sent = [
        queue.send("x", MessageGroupId=group, MessageDeduplicationId="same")["MessageId"]
        for group in ("a", "b", "a")
    ]
    assert sent[0] == sent[2] != sent[1]
    assert len(queue.receive_all(2)) == 2
    assert queue.receive() == []


def test_duplicates_in_one_batch_are_stored_once(new_queue: NewQueue) -> None:
    queue = new_queue(is_fifo=True)
    answer = queue.send_batch(
        *(
            {
                "Id": str(n),
                "MessageBody": str(n),
                "MessageGroupId": "g",
                "MessageDeduplicationId": key,
            }
            for n, key in enumerate(["one", "two", "one"])
        )
    )
    ids = {one["Id"]: one["MessageId"] for one in answer["Successful"]}
    assert ids["0"] == ids["2"] != ids["1"]
    assert bodies(take(queue, 2)) == ["0", "1"]
    assert queue.receive() == []


def test_sequence_numbers_grow_in_a_group(fifo: Queue) -> None:
    sent = [fifo.send(str(n), MessageGroupId="g")["SequenceNumber"] for n in range(5)]
    assert all(len(number) == 20 and number.isdigit() for number in sent)
    assert sorted(set(sent)) == sent
    messages = take(fifo, 5, AttributeNames=["SequenceNumber", "MessageGroupId"])
    assert [message["Attributes"]["SequenceNumber"] for message in messages] == sent
    assert {message["Attributes"]["MessageGroupId"] for message in messages} == {"g"}


def test_an_attempt_that_is_repeated_gets_the_same_messages(fifo: Queue) -> None:
    for n in range(4):
        fifo.send(str(n), MessageGroupId="g")
    first = fifo.receive(2, wait_seconds=20, ReceiveRequestAttemptId="attempt-1")
    again = fifo.receive(2, ReceiveRequestAttemptId="attempt-1")
    assert again
    assert bodies(again) == bodies(first)
    assert fifo.receive(2, ReceiveRequestAttemptId="attempt-2") == []
    for message in again:
        fifo.delete(message)
    expected = ["0", "1", "2", "3"]
    assert bodies(again) + bodies(take(fifo, 4 - len(again))) == expected


def test_what_comes_too_late_is_refused(fifo: Queue) -> None:
    fifo.send("x", MessageGroupId="g")
    message = fifo.receive_one(VisibilityTimeout=1)
    eventually(lambda: fifo.counts() == (1, 0, 0), because="the message is visible again")
    receipt = message["ReceiptHandle"]
    assert error_of(fifo.client.delete_message, QueueUrl=fifo.url, ReceiptHandle=receipt) == (
        "InvalidParameterValue",
        400,
        f"Value {receipt} for parameter ReceiptHandle is invalid. "
        "Reason: The receipt handle has expired.",
    )
    code, status, text = error_of(
        fifo.client.change_message_visibility,
        QueueUrl=fifo.url,
        ReceiptHandle=receipt,
        VisibilityTimeout=10,
    )
    assert (code, status) == ("InvalidParameterValue", 400)
    assert text.endswith("not available for visibility timeout change.")
    assert bodies(fifo.receive_all(1)) == ["x"]


def test_dead_letters_of_a_fifo_queue_keep_their_group(new_queue: NewQueue) -> None:
    dead = new_queue({"ContentBasedDeduplication": "true"}, is_fifo=True)
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    source = new_queue({"RedrivePolicy": policy}, is_fifo=True)
    sent = source.send("1", MessageGroupId="g", MessageDeduplicationId="one")
    source.send("2", MessageGroupId="g", MessageDeduplicationId="two")
    source.hide(source.receive_one(), 0)
    # The group goes on without it.
    assert bodies(source.receive(1, wait_seconds=20)) == ["2"]
    message = dead.receive_one(AttributeNames=["All"])
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "1")
    assert message["Attributes"]["MessageGroupId"] == "g"
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == source.arn


def test_a_delay_is_that_of_the_queue(new_queue: NewQueue) -> None:
    queue = new_queue({"DelaySeconds": "1", "ContentBasedDeduplication": "true"}, is_fifo=True)
    for n in range(3):
        queue.send(str(n), MessageGroupId="g")
    assert queue.counts() == (0, 0, 3)
    assert bodies(take(queue, 3)) == ["0", "1", "2"]


def test_duplicates_are_known_after_a_crash_and_forgotten_after_five_minutes(
    start_broker: StartBroker,
) -> None:
    node = start_broker()
    client = connect(node.sqs, attempts_max=ATTEMPTS_AFTER_CRASH)
    made = client.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})
    queue = Queue(client, made["QueueUrl"])

    def send(key: str) -> Answer:
        return queue.send("x", MessageGroupId="g", MessageDeduplicationId=key)

    first = send("one")
    node.kill()
    node.start()
    assert _place(send("one")) == _place(first)

    node.kill()
    node.clock_ahead_seconds = WINDOW_SECONDS + 1
    node.start()
    second = send("one")
    assert second["MessageId"] != first["MessageId"]
    assert second["SequenceNumber"] > first["SequenceNumber"]
    assert len(take(queue, 2)) == 2
    assert queue.counts() == (0, 0, 0)


def _place(sent: Answer) -> Any:
    return sent["MessageId"], sent["SequenceNumber"]


def test_an_earlier_message_that_is_released_comes_back_while_a_later_one_is_out(
    fifo: Queue,
) -> None:
    for body in ("1", "2", "3"):
        fifo.send(body, MessageGroupId="g")
    first, second = receive_together(fifo, ["1", "2"])
    fifo.hide(first, 0)
    again = fifo.receive_one()
    assert again["Body"] == "1"
    assert fifo.receive() == [], "a later one came while earlier ones are out"
    fifo.delete(again)
    fifo.delete(second)
    assert fifo.receive_one()["Body"] == "3"


def test_a_receive_takes_as_many_of_a_group_as_it_can_before_the_next(fifo: Queue) -> None:
    fifo.send("b0", MessageGroupId="b")
    fifo.delete(fifo.receive_one())  # From now on every message is seen as soon as it is stored.
    for body in ("a1", "b1", "a2", "b2", "a3", "c1"):
        fifo.send(body, MessageGroupId=body[0])
    eventually(lambda: fifo.counts()[0] == 6, because="all can be received")
    assert bodies(fifo.receive(3)) == ["a1", "a2", "a3"]
    assert bodies(fifo.receive(3)) == ["b1", "b2", "c1"]
