"""What fails too often in SQS: the dead-letter queue, and the way back from there."""

from __future__ import annotations

import json

import pytest

from .conftest import NewQueue
from .sqs import Answer, Queue, error_of
from .waiting import eventually

ATTRIBUTES = {
    "text": {"DataType": "String.label", "StringValue": "é"},
    "number": {"DataType": "Number", "StringValue": "7"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}


def test_a_message_that_fails_too_often_is_in_the_dead_letter_queue(new_queue: NewQueue) -> None:
    dead = new_queue()
    source = new_queue({"RedrivePolicy": _redrive(dead, 2)})
    sent = source.send("bad", MessageAttributes=ATTRIBUTES)
    for _ in range(2):
        source.hide(source.receive_one(), 0)
    assert source.receive() == []

    message = dead.receive_one(AttributeNames=["All"], MessageAttributeNames=["All"])
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "bad")
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == source.arn
    assert source.counts() == (0, 0, 0)


@pytest.mark.parametrize("is_named", [False, True], ids=["to-its-source", "to-another-queue"])
def test_a_move_task_brings_dead_letters_back(new_queue: NewQueue, is_named: bool) -> None:
    dead, other = new_queue(), new_queue()
    source = new_queue({"RedrivePolicy": _redrive(dead, 1)})
    sent = {source.send(f"bad {n}")["MessageId"] for n in range(3)}
    for message in source.receive_all(3):
        source.hide(message, 0)
    assert source.receive() == []
    eventually(lambda: dead.counts()[0] == 3, because="three dead letters")

    named = {"DestinationArn": other.arn} if is_named else {}
    client = source.client
    handle = client.start_message_move_task(SourceArn=dead.arn, **named)["TaskHandle"]
    assert handle
    found = (other if is_named else source).receive_all(3)
    assert {message["MessageId"] for message in found} == sent

    def finished() -> Answer | None:
        [task] = client.list_message_move_tasks(SourceArn=dead.arn)["Results"]
        return task if task["Status"] == "COMPLETED" else None

    task = eventually(finished, because="the task is completed")
    assert task["SourceArn"] == dead.arn
    assert task.get("DestinationArn") == named.get("DestinationArn")
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert task["ApproximateNumberOfMessagesToMove"] == 3
    assert dead.counts() == (0, 0, 0)


def test_a_move_task_can_be_cancelled_and_nothing_is_lost(new_queue: NewQueue) -> None:
    dead = new_queue()
    source = new_queue({"RedrivePolicy": _redrive(dead, 1)})
    source.send_all(str(n) for n in range(10))
    for message in source.receive_all(10):
        source.hide(message, 0)
    assert source.receive() == []
    eventually(lambda: dead.counts()[0] == 10, because="ten dead letters")

    client = source.client
    started = client.start_message_move_task(SourceArn=dead.arn, MaxNumberOfMessagesPerSecond=1)
    assert error_of(client.start_message_move_task, SourceArn=dead.arn)[:2] == (
        "InvalidParameterValue",
        400,
    )
    [task] = client.list_message_move_tasks(SourceArn=dead.arn)["Results"]
    assert (task["Status"], task["TaskHandle"]) == ("RUNNING", started["TaskHandle"])
    assert task["MaxNumberOfMessagesPerSecond"] == 1

    client.cancel_message_move_task(TaskHandle=started["TaskHandle"])

    def status() -> str:
        [task] = client.list_message_move_tasks(SourceArn=dead.arn)["Results"]
        return str(task["Status"])

    eventually(lambda: status() == "CANCELLED", because="the task is cancelled")
    found: list[str] = []

    def is_whole() -> bool:
        found.extend(source.drain() + dead.drain())
        return len(found) >= 10

    eventually(is_whole, because="ten messages are in one queue or the other")
    assert sorted(found) == [str(n) for n in range(10)]


def _redrive(dead: Queue, receives_max: int) -> str:
    return json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": receives_max})
