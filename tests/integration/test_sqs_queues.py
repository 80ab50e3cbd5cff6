"""Queues of SQS by boto3: made, found, described, changed, tagged, permitted, purged, deleted."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from .conftest import NewQueue, StartBroker
from .sqs import ACCOUNT, ATTEMPTS_AFTER_CRASH, REGION, Queue, bodies, connect, error_of
from .waiting import eventually

NO_SUCH_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
DEFAULTS = {
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
FIFO_DEFAULTS = DEFAULTS | {
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoQueue": "true",
    "FifoThroughputLimit": "perQueue",
}


@pytest.mark.on_cluster
def test_a_queue_is_found_until_it_is_deleted(sqs: Any, unique: str, sqs_endpoint: str) -> None:
    url = sqs.create_queue(QueueName=unique)["QueueUrl"]
    assert url == f"{sqs_endpoint}/{ACCOUNT}/{unique}"
    assert sqs.get_queue_url(QueueName=unique)["QueueUrl"] == url
    assert sqs.list_queues(QueueNamePrefix=unique)["QueueUrls"] == [url]

    sqs.delete_queue(QueueUrl=url)
    assert error_of(sqs.get_queue_url, QueueName=unique)[0] == NO_SUCH_QUEUE
    assert error_of(sqs.send_message, QueueUrl=url, MessageBody="late")[0] == NO_SUCH_QUEUE
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=unique)


def test_a_queue_of_the_same_name_is_the_same_queue(sqs: Any, new_queue: NewQueue) -> None:
    queue = new_queue({"VisibilityTimeout": "7", "DelaySeconds": "0"})
    again = sqs.create_queue(QueueName=queue.name, Attributes={"VisibilityTimeout": "7"})
    assert again["QueueUrl"] == queue.url
    assert sqs.create_queue(QueueName=queue.name)["QueueUrl"] == queue.url


def test_a_queue_of_the_same_name_with_other_attributes_is_refused(
    sqs: Any, new_queue: NewQueue
) -> None:
    queue = new_queue({"DelaySeconds": "1"})
    other = {"QueueName": queue.name, "Attributes": {"DelaySeconds": "2"}}
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(**other)
    assert error_of(sqs.create_queue, **other) == (
        "QueueAlreadyExists",
        400,
        "A queue already exists with the same name and a different value for attribute "
        "DelaySeconds",
    )
    assert queue.attributes("DelaySeconds") == {"DelaySeconds": "1"}


def test_a_deleted_queue_takes_its_messages_with_it(sqs: Any, queue: Queue) -> None:
    queue.send("gone")
    sqs.delete_queue(QueueUrl=queue.url)
    made_again = sqs.create_queue(QueueName=queue.name)["QueueUrl"]
    assert Queue(sqs, made_again).receive() == []


def test_queues_are_listed_by_prefix_and_in_pages(sqs: Any, new_queue: NewQueue) -> None:
    queues = [new_queue() for _ in range(5)]
    prefix = queues[0].name.removesuffix("0")
    expected = sorted(queue.url for queue in queues)
    assert sorted(sqs.list_queues(QueueNamePrefix=prefix)["QueueUrls"]) == expected

    pages = [
        page["QueueUrls"]
        for page in sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2}
        )
    ]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sorted(url for page in pages for url in page) == expected


@pytest.mark.parametrize(("is_fifo", "defaults"), [(False, DEFAULTS), (True, FIFO_DEFAULTS)])
def test_a_queue_begins_with_the_attributes_that_aws_gives_it(
    new_queue: NewQueue, is_fifo: bool, defaults: dict[str, str]
) -> None:
    begun = int(time.time())
    queue = new_queue(is_fifo=is_fifo)
    found = queue.attributes("All")
    assert found.pop("QueueArn") == f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue.name}"
    for moment in ("CreatedTimestamp", "LastModifiedTimestamp"):
        assert begun <= int(found.pop(moment)) <= int(time.time()) + 1
    assert found == defaults


def test_attributes_are_set_and_read_one_by_one(new_queue: NewQueue) -> None:
    queue = new_queue({"VisibilityTimeout": "20", "ReceiveMessageWaitTimeSeconds": "1"})
    changed = {
        "VisibilityTimeout": "40",
        "DelaySeconds": "420",
        "MaximumMessageSize": "2048",
        "MessageRetentionPeriod": "3600",
    }
    queue.set(**changed)
    assert queue.attributes(*changed) == changed
    assert queue.attributes("VisibilityTimeout", "ReceiveMessageWaitTimeSeconds") == {
        "VisibilityTimeout": "40",
        "ReceiveMessageWaitTimeSeconds": "1",
    }


def test_encryption_settings_are_kept(queue: Queue) -> None:
    queue.set(KmsMasterKeyId="a-key", KmsDataKeyReusePeriodSeconds="6000")
    found = queue.attributes("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds")
    assert found == {"KmsMasterKeyId": "a-key", "KmsDataKeyReusePeriodSeconds": "6000"}

    queue.set(Policy="")
    assert "Policy" not in queue.attributes("All")


@pytest.mark.on_cluster
def test_the_counts_of_a_queue_are_true(queue: Queue) -> None:
    queue.send_all(str(n) for n in range(5))
    queue.send("later", DelaySeconds=900)
    assert queue.counts() == (5, 0, 1)
    [first, second] = queue.receive_all(2)
    assert queue.counts() == (3, 2, 1)
    queue.delete(first)
    queue.hide(second, 0)
    assert queue.counts() == (4, 0, 1)


def test_tags_come_and_go(sqs: Any, unique: str) -> None:
    url = sqs.create_queue(QueueName=unique, tags={"team": "blue", "cost": ""})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"team": "green", "stage": "test"})
    tags = {"team": "green", "cost": "", "stage": "test"}
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == tags

    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "cost", "never-there"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "test"}
    sqs.untag_queue(QueueUrl=url, TagKeys=["stage"])
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)
    sqs.delete_queue(QueueUrl=url)


def test_a_dead_letter_queue_knows_whose_it_is(sqs: Any, new_queue: NewQueue) -> None:
    dead = new_queue()
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 3})
    sources = [new_queue({"RedrivePolicy": policy}) for _ in range(3)]
    assert json.loads(sources[0].attributes("RedrivePolicy")["RedrivePolicy"]) == {
        "deadLetterTargetArn": dead.arn,
        "maxReceiveCount": 3,
    }

    answer = sqs.list_dead_letter_source_queues(QueueUrl=dead.url)
    assert sorted(answer["queueUrls"]) == sorted(queue.url for queue in sources)
    pages = [
        page["queueUrls"]
        for page in sqs.get_paginator("list_dead_letter_source_queues").paginate(
            QueueUrl=dead.url, PaginationConfig={"PageSize": 2}
        )
    ]
    assert [len(page) for page in pages] == [2, 1]

    sources[0].set(RedrivePolicy="")
    answer = sqs.list_dead_letter_source_queues(QueueUrl=dead.url)
    assert sorted(answer["queueUrls"]) == sorted(queue.url for queue in sources[1:])


def test_a_purged_queue_is_empty_and_goes_on(sqs: Any, queue: Queue) -> None:
    queue.send_all(str(n) for n in range(20))
    held = queue.receive_one()
    sqs.purge_queue(QueueUrl=queue.url)
    assert queue.receive() == []
    queue.delete(held)
    assert error_of(sqs.purge_queue, QueueUrl=queue.url)[:2] == (
        "AWS.SimpleQueueService.PurgeQueueInProgress",
        403,
    )
    queue.send("after")
    assert bodies(queue.receive_all(1)) == ["after"]


def test_a_queue_and_its_messages_survive_a_crash(start_broker: StartBroker) -> None:
    node = start_broker()
    client = connect(node.sqs, attempts_max=ATTEMPTS_AFTER_CRASH)
    made = client.create_queue(
        QueueName="orders", Attributes={"VisibilityTimeout": "600"}, tags={"team": "blue"}
    )
    queue = Queue(client, made["QueueUrl"])
    sent = {queue.send(body)["MessageId"]: body for body in ("one", "two", "three")}
    delayed = queue.send("later", DelaySeconds=900)
    held = queue.receive_all(2)
    queue.delete(held[0])

    node.kill()
    node.clock_ahead_seconds = (
        901  # The time of what is delayed has come; no lease is over by that.
    )
    node.start()

    assert queue.attributes("VisibilityTimeout") == {"VisibilityTimeout": "600"}
    assert client.list_queue_tags(QueueUrl=queue.url)["Tags"] == {"team": "blue"}
    del sent[held[0]["MessageId"]]
    left = sent | {delayed["MessageId"]: "later"}
    assert queue.counts()[1] == 1
    queue.hide(held[1], 0)
    found = queue.receive_all(3)
    assert {message["MessageId"]: message["Body"] for message in found} == left
    eventually(lambda: queue.counts() == (0, 3, 0))
