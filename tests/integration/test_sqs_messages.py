"""Messages of standard queues by boto3: sent, received, hidden and delayed."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest

from .conftest import NewQueue, StartBroker
from .process import Broker
from .sqs import (
    ATTEMPTS_AFTER_CRASH,
    Answer,
    Queue,
    bodies,
    connect,
    error_of,
    md5,
    md5_of_attributes,
)
from .waiting import eventually

MESSAGE_BYTES_MAX = 1_048_576
AWKWARD = 'tab\t, line\n, return\r, <xml attribute="1"/>&amp;, é, 漢字, 🐇, \ue000 end  '
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "text": {"DataType": "String", "StringValue": AWKWARD},
    "labelled": {"DataType": "String.label", "StringValue": "x"},
    "number": {"DataType": "Number", "StringValue": "-12345678901234567890.5"},
    "integer": {"DataType": "Number.int", "StringValue": "7"},
    "raw": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    "image": {"DataType": "Binary.png", "BinaryValue": b"\x89PNG"},
    "a.dotted-name_1": {"DataType": "String", "StringValue": "1"},
}


@pytest.mark.parametrize("body", ["hello", AWKWARD, "x" * 100_000])
def test_what_is_sent_is_received_until_it_is_deleted(queue: Queue, body: str) -> None:
    sent = queue.send(body)
    assert sent["MD5OfMessageBody"] == md5(body)

    message = queue.receive_one()
    assert message["MessageId"] == sent["MessageId"]
    assert message["Body"] == body
    assert message["MD5OfBody"] == md5(body)
    assert queue.receive() == []

    queue.delete(message)
    assert queue.counts() == (0, 0, 0)


def test_attributes_of_every_type_arrive_as_they_were_sent(queue: Queue) -> None:
    sent = queue.send("x", MessageAttributes=ATTRIBUTES)
    assert sent["MD5OfMessageAttributes"] == md5_of_attributes(ATTRIBUTES)
    message = queue.receive_one(MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["MD5OfMessageAttributes"] == md5_of_attributes(ATTRIBUTES)


def test_the_digest_of_attributes_is_that_of_aws(queue: Queue) -> None:
    attributes = {"Foo": {"DataType": "String", "StringValue": "Bar"}}
    sent = queue.send("msg", MessageAttributes=attributes)
    # Both as AWS answered the same call.
    assert sent["MD5OfMessageBody"] == "6e2baaf3b97dbeef01c0043275f9a0e7"
    assert sent["MD5OfMessageAttributes"] == "ae7155c6026991b6d54b11589678bf9c"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], set()),
        (["trace.id"], {"trace.id"}),
        (["trace.*"], {"trace.id", "trace.span"}),
        (["trace.*", "other"], {"trace.id", "trace.span", "other"}),
        (["All"], {"trace.id", "trace.span", "other"}),
        ([".*"], {"trace.id", "trace.span", "other"}),
        (["never"], set()),
    ],
)
def test_only_the_attributes_asked_for_are_given(
    queue: Queue, asked: list[str], expected: set[str]
) -> None:
    names = ("trace.id", "trace.span", "other")
    attributes = {name: {"DataType": "String", "StringValue": name} for name in names}
    queue.send("x", MessageAttributes=attributes)
    message = queue.receive_one(MessageAttributeNames=asked)
    given = {name: attributes[name] for name in expected}
    assert message.get("MessageAttributes", {}) == given
    assert message.get("MD5OfMessageAttributes") == (md5_of_attributes(given) if given else None)


@pytest.mark.parametrize("parameter", ["AttributeNames", "MessageSystemAttributeNames"])
def test_system_attributes_tell_of_the_past_of_a_message(queue: Queue, parameter: str) -> None:
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
    begun_ms = int(time.time() * 1000) - 1_000
    queue.send(
        "x",
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": trace}},
    )
    message = queue.receive_one(**{parameter: ["All"]})
    first = message["Attributes"]
    assert first["AWSTraceHeader"] == trace
    assert first["ApproximateReceiveCount"] == "1"
    assert first["SenderId"]
    sent_ms, received_ms = (
        int(first[name]) for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp")
    )
    assert begun_ms <= sent_ms <= received_ms <= time.time() * 1000 + 1_000

    queue.hide(message, 0)
    second = queue.receive_one(**{parameter: ["ApproximateReceiveCount", "SentTimestamp"]})
    assert second["MessageId"] == message["MessageId"]
    assert second["Attributes"] == {
        "ApproximateReceiveCount": "2",
        "SentTimestamp": first["SentTimestamp"],
    }


def test_the_time_of_the_first_receive_stays(queue: Queue) -> None:
    queue.send("x")
    asked = {"MessageSystemAttributeNames": ["All"]}
    first = queue.receive_one(VisibilityTimeout=0, **asked)["Attributes"]
    second = queue.receive_one(**asked)["Attributes"]
    assert second["ApproximateReceiveCount"] == "2"
    name = "ApproximateFirstReceiveTimestamp"
    assert second[name] == first[name]


@pytest.mark.on_cluster
def test_batches_of_ten_are_sent_received_and_deleted(queue: Queue) -> None:
    entries = [
        {"Id": f"id_{n}-", "MessageBody": f"body {n}", "MessageAttributes": _numbered(n)}
        for n in range(10)
    ]
    answer = queue.send_batch(*entries)
    assert "Failed" not in answer
    ids = {one["Id"]: one["MessageId"] for one in answer["Successful"]}
    assert set(ids) == {entry["Id"] for entry in entries}
    for one, entry in zip(answer["Successful"], entries, strict=True):
        assert one["MD5OfMessageBody"] == md5(str(entry["MessageBody"]))
        assert one["MD5OfMessageAttributes"] == md5_of_attributes(entry["MessageAttributes"])

    messages = queue.receive_all(10, MessageAttributeNames=["n"])
    assert {message["MessageId"] for message in messages} == set(ids.values())
    for message in messages:
        assert message["Body"] == f"body {message['MessageAttributes']['n']['StringValue']}"
    deleted = queue.client.delete_message_batch(
        QueueUrl=queue.url,
        Entries=[
            {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
            for n, message in enumerate(messages)
        ],
    )
    assert {one["Id"] for one in deleted["Successful"]} == {str(n) for n in range(10)}
    assert queue.counts() == (0, 0, 0)


def test_a_batch_fails_entry_by_entry(new_queue: NewQueue) -> None:
    queue = new_queue({"MaximumMessageSize": "1024"})
    answer = queue.send_batch(
        {"Id": "small", "MessageBody": "x" * 1024},
        {"Id": "late", "MessageBody": "x", "DelaySeconds": 901},
        {"Id": "large", "MessageBody": "x" * 1025},
    )
    assert [one["Id"] for one in answer["Successful"]] == ["small"]
    failed = {one["Id"]: one for one in answer["Failed"]}
    assert set(failed) == {"late", "large"}
    for one in failed.values():
        assert (one["Code"], one["SenderFault"]) == ("InvalidParameterValue", True)
    assert "must be shorter than 1024 bytes" in failed["large"]["Message"]
    assert queue.counts() == (1, 0, 0)


def test_wrong_receipts_fail_alone_in_a_batch(queue: Queue) -> None:
    queue.send("x")
    message = queue.receive_one()
    entries = [
        {"Id": "good", "ReceiptHandle": message["ReceiptHandle"]},
        {"Id": "bad", "ReceiptHandle": "nonsense"},
    ]
    change = queue.client.change_message_visibility_batch
    answer = change(
        QueueUrl=queue.url, Entries=[one | {"VisibilityTimeout": 60} for one in entries]
    )
    assert [one["Id"] for one in answer["Successful"]] == ["good"]
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [
        ("bad", "ReceiptHandleIsInvalid")
    ]
    answer = queue.client.delete_message_batch(QueueUrl=queue.url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["good"]
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [
        ("bad", "ReceiptHandleIsInvalid")
    ]
    assert queue.counts() == (0, 0, 0)


@pytest.mark.on_cluster
def test_a_long_poll_ends_with_the_message_it_waited_for(queue: Queue) -> None:
    found: list[Answer] = []
    waiting = threading.Thread(target=lambda: found.extend(queue.receive(10, wait_seconds=20)))
    waiting.start()
    queue.send("awaited")
    waiting.join(60)
    assert bodies(found) == ["awaited"]


def test_a_long_poll_of_an_empty_queue_ends_with_nothing(new_queue: NewQueue) -> None:
    assert new_queue().receive(wait_seconds=1) == []
    patient = new_queue({"ReceiveMessageWaitTimeSeconds": "1"})
    assert "Messages" not in patient.client.receive_message(QueueUrl=patient.url)


def test_a_queue_decides_how_long_a_receive_waits_that_does_not_say(new_queue: NewQueue) -> None:
    queue = new_queue({"ReceiveMessageWaitTimeSeconds": "20"})
    found: list[Answer] = []

    def receive() -> None:
        found.extend(queue.client.receive_message(QueueUrl=queue.url).get("Messages", []))

    waiting = threading.Thread(target=receive)
    waiting.start()
    queue.send("awaited")
    waiting.join(60)
    assert bodies(found) == ["awaited"]


def test_a_message_given_back_is_there_at_once(queue: Queue) -> None:
    queue.send("x")
    first = queue.receive_one()
    queue.hide(first, 0)
    second = queue.receive_one()
    assert second["MessageId"] == first["MessageId"]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]


def test_a_receive_that_hides_nothing_leaves_the_message(queue: Queue) -> None:
    queue.send("x")
    assert bodies(queue.receive(1, wait_seconds=20, VisibilityTimeout=0)) == ["x"]
    assert bodies(queue.receive(1, wait_seconds=20, VisibilityTimeout=0)) == ["x"]


def test_a_message_comes_back_when_its_time_is_over(new_queue: NewQueue) -> None:
    queue = new_queue({"VisibilityTimeout": "1"})
    queue.send("x")
    first = queue.receive_one()
    second = queue.receive_one(VisibilityTimeout=600, AttributeNames=["All"])
    assert second["MessageId"] == first["MessageId"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"

    queue.delete(first)  # Answered with success, as AWS does, whatever became of the message.
    queue.delete(second)
    assert queue.counts() == (0, 0, 0)


def test_a_message_can_be_deleted_after_its_time_if_nobody_else_got_it(queue: Queue) -> None:
    queue.send("x")
    message = queue.receive_one(VisibilityTimeout=1)
    eventually(lambda: queue.counts() == (1, 0, 0), because="the message is visible again")
    queue.delete(message)
    assert queue.counts() == (0, 0, 0)


def test_visibility_is_changed_in_batches(queue: Queue) -> None:
    queue.send_all(["a", "b", "c"])
    messages = queue.receive_all(3)
    answer = queue.client.change_message_visibility_batch(
        QueueUrl=queue.url,
        Entries=[
            {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"], "VisibilityTimeout": 0}
            for n, one in enumerate(messages)
        ],
    )
    assert [one["Id"] for one in answer["Successful"]] == ["0", "1", "2"]
    assert sorted(bodies(queue.receive_all(3))) == ["a", "b", "c"]


def test_a_message_can_be_hidden_again_after_its_time_until_somebody_gets_it(queue: Queue) -> None:
    queue.send("x")
    message = queue.receive_one(VisibilityTimeout=1)
    eventually(lambda: queue.counts() == (1, 0, 0), because="the message is visible again")
    queue.hide(message, 600)
    assert queue.counts() == (0, 1, 0)
    assert queue.receive() == []
    queue.hide(message, 0)
    queue.hide(message, 0)
    again = queue.receive_one()
    assert again["MessageId"] == message["MessageId"]
    assert _refusal_to_hide(queue, message) == _not_to_hide(message)
    queue.delete(again)
    assert _refusal_to_hide(queue, again) == _not_to_hide(again)


def _refusal_to_hide(queue: Queue, message: Answer) -> tuple[str, int, str]:
    return error_of(
        queue.client.change_message_visibility,
        QueueUrl=queue.url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=10,
    )


def _not_to_hide(message: Answer) -> tuple[str, int, str]:
    return (
        "InvalidParameterValue",
        400,
        f"Value {message['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: Message "
        "does not exist or is not available for visibility timeout change.",
    )


@pytest.mark.on_cluster
def test_quiet_tenants_do_not_wait_for_the_backlog_of_a_noisy_one(
    queue: Queue, broker: Broker
) -> None:
    assert queue.receive(wait_seconds=0) == []  # As consumers do that wait for messages.
    queue.send_all([str(n) for n in range(1000)], MessageGroupId="noisy")
    queue.send_all([f"quiet {n}" for n in range(10)], MessageGroupId="quiet")
    assert queue.counts() == (1010, 0, 0)
    # What its owner has yet to hear of counts as well; another count tells what it knows.
    stats = f"{broker.http}/v1/groups/{queue.name}/stats?topic={queue.name}"
    eventually(
        lambda: httpx.get(stats, timeout=30).raise_for_status().json()["ready"] == 1010,
        because="the owner of the queue hears of everything",
    )
    received = [body for _ in range(8) for body in bodies(queue.receive(wait_seconds=20))]
    assert sorted(body for body in received if "quiet" in body) == [f"quiet {n}" for n in range(10)]


@pytest.mark.on_cluster
def test_a_delayed_message_is_not_there_before_its_time(new_queue: NewQueue) -> None:
    queue = new_queue({"DelaySeconds": "900"})
    queue.send("by its queue")
    sent_ms = int(time.time() * 1000)
    queue.send("by itself", DelaySeconds=1)
    queue.send("not at all", DelaySeconds=0)
    found = {one["Body"]: one for one in queue.receive_all(2, AttributeNames=["All"])}
    assert set(found) == {"not at all", "by itself"}
    later = found["by itself"]
    received_ms = int(later["Attributes"]["ApproximateFirstReceiveTimestamp"])
    assert received_ms - sent_ms >= 1_000
    # The time at which it was sent is not the time at which it came.
    assert int(later["Attributes"]["SentTimestamp"]) <= received_ms - 900
    eventually(lambda: queue.counts()[2] == 1, because="only one is still delayed")


def test_a_standard_queue_tells_the_group_of_a_message(queue: Queue) -> None:
    queue.send("x", MessageGroupId="tenant-1")
    message = queue.receive_one(AttributeNames=["MessageGroupId"])
    assert message["Attributes"] == {"MessageGroupId": "tenant-1"}


def test_the_largest_message_that_aws_takes_arrives(queue: Queue) -> None:
    # The name, the type and the value of an attribute count as well.
    attributes = {"n": {"DataType": "Number", "StringValue": "1"}}
    body = "x" * (MESSAGE_BYTES_MAX - len("n" + "Number" + "1"))
    too_large = {"MessageBody": body + "x", "MessageAttributes": attributes}
    assert error_of(queue.client.send_message, QueueUrl=queue.url, **too_large) == (
        "InvalidParameterValue",
        400,
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
    )
    queue.send(body, MessageAttributes=attributes)
    assert queue.receive_one()["Body"] == body


def test_more_than_aws_allows_is_there_for_those_who_ask_for_it(
    start_broker: StartBroker,
) -> None:
    node = start_broker({"sqs.long_delays": "true", "sqs.message_bytes_max": 3_000_000})
    client = connect(node.sqs, attempts_max=ATTEMPTS_AFTER_CRASH)
    queue = Queue(client, client.create_queue(QueueName="beyond")["QueueUrl"])
    year_seconds = 365 * 24 * 3600
    sent = queue.send("next year", DelaySeconds=year_seconds)
    large = "x" * 2_500_000
    queue.send(large)
    assert queue.receive_one()["Body"] == large
    assert queue.counts() == (0, 1, 1)

    node.kill()
    node.clock_ahead_seconds = year_seconds + 1
    node.start()
    found = queue.receive_all(2)
    assert {message["MessageId"] for message in found} > {sent["MessageId"]}


def _numbered(n: int) -> dict[str, dict[str, str]]:
    return {"n": {"DataType": "Number", "StringValue": str(n)}}
