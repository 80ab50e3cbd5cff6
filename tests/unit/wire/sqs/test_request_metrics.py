"""Requests of SQS clients are counted by action, and their errors by the codes of AWS."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.simulation.world import World
from tests.unit.wire.measured import errors_of, requests_of, traces_of


def test_actions_and_errors_are_counted(world: World, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    for _ in range(2):
        sqs.send_message(QueueUrl=url, MessageBody="hello")
    with pytest.raises(ClientError):
        sqs.get_queue_url(QueueName="nowhere")
    assert requests_of(world.broker, "sqs") == {
        "CreateQueue": 1,
        "SendMessage": 2,
        "GetQueueUrl": 1,
    }
    assert errors_of(world.broker, "sqs") == {("GetQueueUrl", "QueueDoesNotExist"): 1}


def test_entries_of_batches_that_fail_are_counted(world: World, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    answer = sqs.send_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "good", "MessageBody": "hello"},
            {"Id": "late", "MessageBody": "hello", "DelaySeconds": 9_999_999},
        ],
    )
    assert [one["Code"] for one in answer["Failed"]] == ["InvalidParameterValue"]
    sqs.delete_message_batch(
        QueueUrl=url,
        Entries=[{"Id": one, "ReceiptHandle": "nonsense"} for one in ("a", "b")],
    )
    assert errors_of(world.broker, "sqs") == {
        ("SendMessageBatch", "InvalidParameterValueException"): 1,
        ("DeleteMessageBatch", "ReceiptHandleIsInvalid"): 1,
    }


ROOT = "1-5759e988-bd862e3fe1be46a994272793"
TRACE = "5759e988bd862e3fe1be46a994272793"


@pytest.mark.parametrize(
    "message",
    [
        {
            "MessageSystemAttributes": {
                "AWSTraceHeader": {
                    "DataType": "String",
                    "StringValue": f"Root={ROOT};Parent=53995c3f42cd8ad8;Sampled=1",
                }
            }
        },
        {
            "MessageAttributes": {
                "traceparent": {
                    "DataType": "String",
                    "StringValue": f"00-{TRACE}-53995c3f42cd8ad8-01",
                }
            }
        },
    ],
)
def test_the_duration_of_a_traced_message_leads_to_its_trace(
    world: World, sqs: Any, message: dict[str, Any]
) -> None:
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="plain")
    assert not traces_of(world.broker, "sqs", "SendMessage")
    sqs.send_message(QueueUrl=url, MessageBody="hello", **message)
    assert traces_of(world.broker, "sqs", "SendMessage") == {TRACE}
    entries = [{"Id": "one", "MessageBody": "hello", **message}]
    sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert traces_of(world.broker, "sqs", "SendMessageBatch") == {TRACE}
