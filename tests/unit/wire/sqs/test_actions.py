"""Every action through boto3, in both protocols, on a node with a virtual clock."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from goqueue.model.batch import Record
from goqueue.wire.sqs.front_end import SqsRules
from tests.integration.sqs import Queue, bodies, error_of, md5, md5_of_attributes
from tests.simulation.world import World
from tests.unit.wire.sqs.client import ENDPOINT, Node, queue

YEAR_SECONDS = 365 * 24 * 3600


def redrive(target: Queue, count: int) -> str:
    return json.dumps({"deadLetterTargetArn": target.arn, "maxReceiveCount": count})


# Queues


def test_queues_are_made_found_listed_and_deleted(sqs: Any) -> None:
    made = [queue(sqs, name) for name in ("a", "b", "c")]
    assert made[0].url == f"{ENDPOINT}/000000000000/a"
    assert sqs.create_queue(QueueName="a")["QueueUrl"] == made[0].url
    assert sqs.get_queue_url(QueueName="b")["QueueUrl"] == made[1].url
    first = sqs.list_queues(MaxResults=2)
    assert first["QueueUrls"] == [one.url for one in made[:2]]
    rest = sqs.list_queues(MaxResults=2, NextToken=first["NextToken"])
    assert rest["QueueUrls"] == [made[2].url]
    assert "NextToken" not in rest
    assert sqs.list_queues(QueueNamePrefix="c")["QueueUrls"] == [made[2].url]
    sqs.delete_queue(QueueUrl=made[0].url)
    code, status, _ = error_of(sqs.get_queue_url, QueueName="a")
    assert (code, status) == ("AWS.SimpleQueueService.NonExistentQueue", 400)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="a")


def test_each_protocol_has_its_own_words_for_a_queue_that_is_not_there(node: Node) -> None:
    texts = [error_of(node.boto3(one).get_queue_url, QueueName="x")[2] for one in ("json", "query")]
    assert texts == [
        "The specified queue does not exist.",
        "The specified queue does not exist for this wsdl version.",
    ]


def test_attributes_become_settings_of_group_and_topic(sqs: Any, world: World) -> None:
    dead = queue(sqs, "dead")
    made = queue(sqs, VisibilityTimeout="7", MessageRetentionPeriod="60")
    group = world.broker.queues.groups.describe("orders").settings
    assert (group.visibility_ms, group.deliveries_max) == (7000, 0)
    assert world.broker.topics.get("orders").fact.settings["retention_ms"] == "60000"
    made.set(RedrivePolicy=redrive(dead, 5), MessageRetentionPeriod="120")
    group = world.broker.queues.groups.describe("orders").settings
    assert (group.deliveries_max, group.dead_letter_topic) == (5, "dead")
    assert world.broker.topics.get("orders").fact.settings["retention_ms"] == "120000"
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead.url)["queueUrls"] == [made.url]
    made.set(RedrivePolicy="")
    assert "RedrivePolicy" not in made.attributes("All")
    assert world.broker.queues.groups.describe("orders").settings.deliveries_max == 0


def test_tags_are_kept(sqs: Any) -> None:
    made = queue(sqs)
    sqs.tag_queue(QueueUrl=made.url, Tags={"a": "1", "b": ""})
    sqs.untag_queue(QueueUrl=made.url, TagKeys=["a", "x"])
    assert sqs.list_queue_tags(QueueUrl=made.url)["Tags"] == {"b": ""}


def test_policies_are_refused_rather_than_ignored(sqs: Any) -> None:
    made = queue(sqs)
    permission = {"AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}
    for refused in (
        error_of(sqs.add_permission, QueueUrl=made.url, Label="one", **permission),
        error_of(sqs.remove_permission, QueueUrl=made.url, Label="one"),
        error_of(sqs.set_queue_attributes, QueueUrl=made.url, Attributes={"Policy": "{}"}),
        error_of(sqs.create_queue, QueueName="other", Attributes={"Policy": "{}"}),
    ):
        assert refused[0] == "AWS.SimpleQueueService.UnsupportedOperation"
        assert "goqueue acl create" in refused[2]
    made.set(Policy="")
    assert made.attributes("Policy") == {}


# Messages


def test_a_message_is_sent_received_held_and_deleted(sqs: Any, world: World) -> None:
    made = queue(sqs)
    attributes = {
        "text": {"DataType": "String", "StringValue": "é"},
        "count": {"DataType": "Number.int", "StringValue": "7"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
        "sqs.id": {"DataType": "String", "StringValue": "mine"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    sent = made.send("hello", MessageAttributes=attributes, MessageSystemAttributes=trace)
    assert sent["MD5OfMessageBody"] == md5("hello")
    assert sent["MD5OfMessageAttributes"] == md5_of_attributes(attributes)
    assert sent["MD5OfMessageSystemAttributes"] == md5_of_attributes(trace)
    got = made.receive_one(MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"])
    assert (got["Body"], got["MessageId"]) == ("hello", sent["MessageId"])
    assert got["MessageAttributes"] == attributes
    assert got["MD5OfMessageAttributes"] == md5_of_attributes(attributes)
    assert got["Attributes"]["AWSTraceHeader"] == "Root=1"
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"
    assert made.counts() == (0, 1, 0)
    made.hide(got, 60)
    world.run_for(31_000)
    assert made.receive() == []
    made.hide(got, 0)
    again = made.receive_one(AttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}
    made.delete(again)
    made.delete(again)
    assert made.counts() == (0, 0, 0)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["a.x"], {"a.x"}),
        (["a.*"], {"a.x", "a.y"}),
        ([".*"], {"a.x", "a.y", "b"}),
        (["*"], {"a.x", "a.y", "b"}),
        (["All"], {"a.x", "a.y", "b"}),
        (["c"], set()),
        ([], set()),
    ],
)
def test_attributes_are_chosen_by_name(node: Node, names: list[str], found: set[str]) -> None:
    made = queue(node.boto3())
    value = {"DataType": "String", "StringValue": "1"}
    made.send("m", MessageAttributes=dict.fromkeys(("a.x", "a.y", "b"), value))
    got = made.receive_one(MessageAttributeNames=names)
    assert set(got.get("MessageAttributes", {})) == found
    assert ("MD5OfMessageAttributes" in got) == bool(found)


def test_batches_answer_for_each_entry(sqs: Any) -> None:
    made = queue(sqs, MaximumMessageSize="1024")
    entries = [{"Id": "a", "MessageBody": "1"}, {"Id": "b", "MessageBody": "x" * 1025}]
    answer = made.send_batch(*entries, {"Id": "c", "MessageBody": "3"})
    assert [one["Id"] for one in answer["Successful"]] == ["a", "c"]
    [failed] = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == (
        "b",
        "InvalidParameterValue",
        True,
    )
    handles = [one["ReceiptHandle"] for one in made.receive_all(2)]
    changes = [
        {"Id": "a", "ReceiptHandle": handles[0], "VisibilityTimeout": 60},
        {"Id": "b", "ReceiptHandle": handles[1], "VisibilityTimeout": 50_000},
        {"Id": "c", "ReceiptHandle": "nonsense", "VisibilityTimeout": 0},
    ]
    changed = sqs.change_message_visibility_batch(QueueUrl=made.url, Entries=changes)
    assert [one["Id"] for one in changed["Successful"]] == ["a"]
    assert {one["Id"]: one["Code"] for one in changed["Failed"]} == {
        "b": "InvalidParameterValue",
        "c": "ReceiptHandleIsInvalid",
    }
    deletions = [{"Id": str(n), "ReceiptHandle": one} for n, one in enumerate([*handles, "x"])]
    deleted = sqs.delete_message_batch(QueueUrl=made.url, Entries=deletions)
    assert [one["Id"] for one in deleted["Successful"]] == ["0", "1"]
    assert [one["Code"] for one in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]
    assert made.counts() == (0, 0, 0)


def test_a_queue_is_purged_once_a_minute(sqs: Any, world: World) -> None:
    made = queue(sqs)
    made.send_all("abc")
    made.send("later", DelaySeconds=900)
    assert made.counts() == (3, 0, 1)
    sqs.purge_queue(QueueUrl=made.url)
    assert made.counts() == (0, 0, 0)
    code, status, _ = error_of(sqs.purge_queue, QueueUrl=made.url)
    assert (code, status) == ("AWS.SimpleQueueService.PurgeQueueInProgress", 403)
    world.run_for(60_000)
    sqs.purge_queue(QueueUrl=made.url)


def test_a_purge_lets_deduplication_ids_be_used_again(sqs: Any, world: World) -> None:
    made = queue(sqs, "ordered.fifo")
    first = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    made.send("one", **first)
    sqs.purge_queue(QueueUrl=made.url)
    made.send("two", **first)
    world.crash()
    world.start()
    again = Node(world).boto3()
    second = again.send_message(QueueUrl=made.url, MessageBody="three", **first)
    [message] = again.receive_message(QueueUrl=made.url, MaxNumberOfMessages=10)["Messages"]
    assert message["Body"] == "two"
    assert message["MessageId"] == second["MessageId"]


@pytest.mark.parametrize("given", [None, "Root=1-own"])
def test_the_trace_of_a_request_is_that_of_its_messages(sqs: Any, given: str | None) -> None:
    made = queue(sqs)
    trace = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"

    def add_header(request: Any, **_: object) -> None:
        request.headers["X-Amzn-Trace-Id"] = trace

    sqs.meta.events.register("before-send.sqs", add_header)
    system = {"AWSTraceHeader": {"DataType": "String", "StringValue": given}}
    sent = made.send("a", **({} if given is None else {"MessageSystemAttributes": system}))
    assert ("MD5OfMessageSystemAttributes" in sent) == (given is not None)
    made.client.send_message_batch(QueueUrl=made.url, Entries=[{"Id": "1", "MessageBody": "b"}])
    names = ["AWSTraceHeader"]
    messages = made.receive_all(2, MessageSystemAttributeNames=names)
    found = {one["Body"]: one["Attributes"]["AWSTraceHeader"] for one in messages}
    assert found == {"a": given or trace, "b": trace}


def test_attributes_that_exclude_each_other_are_refused_as_aws_refuses_them(sqs: Any) -> None:
    made = queue(sqs)

    def refused(**attributes: str) -> tuple[str, str]:
        with pytest.raises(ClientError) as caught:
            sqs.set_queue_attributes(QueueUrl=made.url, Attributes=attributes)
        error = caught.value.response["Error"]
        return error["Code"], error["Message"]

    for text in ("true", "false"):
        assert refused(FifoQueue=text) == ("InvalidAttributeName", "Unknown Attribute FifoQueue.")
    assert refused(KmsMasterKeyId="a", SqsManagedSseEnabled="true") == (
        "InvalidAttributeName",
        "You can use one type of server-side encryption (SSE) at one time. You can either enable "
        "KMS SSE or SQS SSE.",
    )
    sqs.set_queue_attributes(QueueUrl=made.url, Attributes={"KmsMasterKeyId": "a"})
    assert made.attributes("All")["SqsManagedSseEnabled"] == "false"
    sqs.set_queue_attributes(QueueUrl=made.url, Attributes={"SqsManagedSseEnabled": "true"})
    assert "KmsMasterKeyId" not in made.attributes("All")


def test_control_characters_in_an_attribute_are_an_invalid_parameter(sqs: Any) -> None:
    made = queue(sqs)
    attributes = {"a": {"DataType": "String", "StringValue": "x\x08"}}
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        made.send("a", MessageAttributes=attributes)


def test_a_receive_waits_as_long_as_it_says(sqs: Any, world: World) -> None:
    made = queue(sqs, ReceiveMessageWaitTimeSeconds="5")
    made.receive()
    for seconds, arguments in ((5, {}), (20, {"WaitTimeSeconds": 20}), (0, {"WaitTimeSeconds": 0})):
        began_ms = world.broker.clock.now_ms()
        sqs.receive_message(QueueUrl=made.url, **arguments)
        assert world.broker.clock.now_ms() - began_ms == pytest.approx(seconds * 1000, abs=500)


def test_a_message_can_be_delayed_for_years_if_that_is_allowed(world: World) -> None:
    strict, free = Node(world), Node(world, SqsRules(has_long_delays=True))
    made = queue(strict.boto3())
    arguments = {"MessageBody": "later", "DelaySeconds": 3 * YEAR_SECONDS}
    code, _, text = error_of(made.client.send_message, QueueUrl=made.url, **arguments)
    assert code == "InvalidParameterValue"
    assert text.endswith("DelaySeconds must be >= 0 and <= 900.")
    free.boto3().send_message(QueueUrl=made.url, **arguments)
    assert made.counts() == (0, 0, 1)


def test_larger_messages_are_taken_if_that_is_allowed(world: World) -> None:
    made = queue(Node(world, SqsRules(message_bytes_max=3 << 20)).boto3())
    made.send("x" * (2 << 20))
    assert len(made.receive_one()["Body"]) == 2 << 20


def test_the_name_of_a_deleted_queue_rests_if_that_is_wanted(world: World) -> None:
    free, strict = Node(world).boto3(), Node(world, SqsRules(has_resting_names=True)).boto3()
    for sqs in (free, strict):
        sqs.delete_queue(QueueUrl=queue(sqs).url)
    code, status, text = error_of(strict.create_queue, QueueName="orders")
    assert (code, status) == ("AWS.SimpleQueueService.QueueDeletedRecently", 400)
    assert text.startswith("You must wait 60 seconds")
    queue(strict, "other")
    world.run_for(59_000)
    assert error_of(strict.create_queue, QueueName="orders")[0].endswith("QueueDeletedRecently")
    world.run_for(1_001)
    queue(strict)


# FIFO


def test_order_and_duplicates_in_a_fifo_queue(sqs: Any, world: World) -> None:
    made = queue(sqs, "orders.fifo", ContentBasedDeduplication="true")
    first = made.send("a", MessageGroupId="g")
    assert made.send("a", MessageGroupId="g")["MessageId"] == first["MessageId"]
    second = made.send("b", MessageGroupId="g")
    assert second["SequenceNumber"] > first["SequenceNumber"]
    assert len(first["SequenceNumber"]) == 20
    got = made.receive(MessageSystemAttributeNames=["All"], ReceiveRequestAttemptId="try")
    assert bodies(got) == ["a", "b"]
    assert got[1]["Attributes"]["SequenceNumber"] == second["SequenceNumber"]
    assert got[0]["Attributes"]["MessageGroupId"] == "g"
    assert made.receive() == []
    assert made.receive(ReceiveRequestAttemptId="try") == got
    made.delete(got[0])
    made.delete(got[0])
    world.run_for(31_000)
    code, _, text = error_of(
        sqs.delete_message, QueueUrl=made.url, ReceiptHandle=got[1]["ReceiptHandle"]
    )
    assert code == "InvalidParameterValue"
    assert text.endswith("The receipt handle has expired.")
    assert bodies(made.receive()) == ["b"]


def test_every_message_of_a_fifo_queue_counts_once(node: Node) -> None:
    """Also one that waits behind others of its group, which somebody has."""
    made = queue(node.boto3(), "orders.fifo", ContentBasedDeduplication="true")
    for number in range(12):
        made.send(str(number), MessageGroupId="busy" if number < 8 else "free")
    [held] = made.receive(1)
    assert made.counts() == (11, 1, 0)
    assert bodies(made.receive(2)) == ["8", "9"]
    assert made.counts() == (9, 3, 0)
    made.hide(held, 0)
    assert made.counts() == (10, 2, 0)
    assert bodies(made.receive(2)) == ["0", "1"]
    assert made.counts() == (8, 4, 0)


def test_what_has_been_deleted_is_not_received_by_the_same_attempt(node: Node) -> None:
    made = queue(node.boto3(), "orders.fifo", ContentBasedDeduplication="true")
    made.send("a", MessageGroupId="g")
    [got] = made.receive(ReceiveRequestAttemptId="try")
    made.delete(got)
    assert made.receive(ReceiveRequestAttemptId="try") == []


# Dead letters


def test_dead_letters_are_moved_back(sqs: Any, world: World) -> None:
    dead = queue(sqs, "dead")
    made = queue(sqs, RedrivePolicy=redrive(dead, 1), VisibilityTimeout="1")
    sent = made.send("a", MessageAttributes={"k": {"DataType": "String", "StringValue": "v"}})
    made.receive_one()
    world.run_for(1_500)
    letter = dead.receive_one(MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"])
    assert letter["MessageId"] == sent["MessageId"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == made.arn
    assert letter["Attributes"]["ApproximateReceiveCount"] == "2"
    assert set(letter["MessageAttributes"]) == {"k"}
    dead.hide(letter, 0)
    handle = sqs.start_message_move_task(SourceArn=dead.arn)["TaskHandle"]
    again = made.receive_one(MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"])
    assert again["MessageId"] == sent["MessageId"]
    assert again["Attributes"]["ApproximateReceiveCount"] == "1"
    assert "DeadLetterQueueSourceArn" not in again["Attributes"]
    world.run_for(100)
    assert dead.counts() == (0, 0, 0)
    [task] = sqs.list_message_move_tasks(SourceArn=dead.arn)["Results"]
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)
    assert "TaskHandle" not in task
    code, status, _ = error_of(sqs.cancel_message_move_task, TaskHandle=handle)
    assert (code, status) == ("AWS.SimpleQueueService.UnsupportedOperation", 400)


def test_a_move_task_is_slow_if_told_and_can_be_cancelled(sqs: Any, world: World) -> None:
    dead, other = queue(sqs, "dead"), queue(sqs, "other")
    queue(sqs, RedrivePolicy=redrive(dead, 1))
    dead.send_all(str(n) for n in range(10))
    started = sqs.start_message_move_task(
        SourceArn=dead.arn, DestinationArn=other.arn, MaxNumberOfMessagesPerSecond=2
    )
    code, _, _ = error_of(sqs.start_message_move_task, SourceArn=dead.arn)
    assert code == "InvalidParameterValue"
    world.run_for(1_500)
    sqs.cancel_message_move_task(TaskHandle=started["TaskHandle"])
    world.run_for(5_000)
    [task] = sqs.list_message_move_tasks(SourceArn=dead.arn)["Results"]
    assert (task["Status"], task["ApproximateNumberOfMessagesToMove"]) == ("CANCELLED", 10)
    assert 2 <= task["ApproximateNumberOfMessagesMoved"] <= 6
    assert sorted(dead.drain() + other.drain()) == [str(n) for n in range(10)]


def test_a_move_without_a_known_source_fails_and_loses_nothing(sqs: Any, world: World) -> None:
    dead = queue(sqs, "dead")
    queue(sqs, RedrivePolicy=redrive(dead, 1))
    dead.send("from nowhere")
    sqs.start_message_move_task(SourceArn=dead.arn)
    world.run_for(100)
    [task] = sqs.list_message_move_tasks(SourceArn=dead.arn)["Results"]
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert dead.drain() == ["from nowhere"]


# Beside other protocols


def test_records_of_other_clients_are_messages(sqs: Any, world: World) -> None:
    made = queue(sqs)
    headers = (("kind", b"a"), ("raw", b"\xff"), ("no good name!", b"x"), ("empty", b""))
    records = [Record(b"k", b"text", headers), Record(None, b"\0binary"), Record(None, None)]
    for record in records:
        world.wait(world.broker.publish("orders", [record]))
    first, second, third = made.receive_all(3, MessageAttributeNames=["All"], VisibilityTimeout=1)
    assert first["Body"] == "text"
    assert first["MessageAttributes"] == {
        "kind": {"DataType": "String", "StringValue": "a"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\xff"},
    }
    assert second["Body"] == "AGJpbmFyeQ=="
    assert second["MessageAttributes"]["GoQueueEncoding"]["StringValue"] == "base64"
    assert third["Body"] == ""
    world.run_for(2_000)
    again = made.receive_all(3)
    assert [one["MessageId"] for one in again] == [
        one["MessageId"] for one in (first, second, third)
    ]


def test_messages_are_records_for_other_clients(sqs: Any, world: World) -> None:
    made = queue(sqs)
    number = {"DataType": "Number", "StringValue": "7"}
    made.send("hello", MessageGroupId="tenant", MessageAttributes={"count": number})
    [record] = world.consume("orders")
    assert (record.key, record.value) == (b"tenant", b"hello")
    assert dict(record.headers)["count"] == b"7"


def test_two_queues_on_one_topic_each_get_everything(sqs: Any, world: World) -> None:
    first = queue(sqs, "first")
    first.send("before")
    second = queue(sqs, "second", GoQueueTopic="first")
    first.send("after")
    assert second.attributes("GoQueueTopic") == {"GoQueueTopic": "first"}
    assert first.drain() == ["before", "after"]
    assert second.drain() == ["before", "after"]
    sqs.delete_queue(QueueUrl=second.url)
    assert world.broker.topics.find("first") is not None


def test_queues_and_messages_survive_a_crash(world: World) -> None:
    made = queue(Node(world).boto3(), VisibilityTimeout="60")
    made.send_all("abc")
    [first] = made.receive(1)
    made.delete(first)
    world.crash()
    world.start()
    there = Queue(Node(world).boto3(), made.url)
    assert there.attributes("VisibilityTimeout") == {"VisibilityTimeout": "60"}
    assert sorted([first["Body"], *there.drain()]) == ["a", "b", "c"]
