"""One message, several languages: SQS beside Kafka and HTTP on the same topic."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import httpx
import pytest

from .clients import Confluent, Message
from .conftest import NewTopicName
from .process import Broker
from .sqs import Queue, bodies, connect, md5_of_attributes
from .waiting import eventually

ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "é"},
    "number": {"DataType": "Number", "StringValue": "7"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}


@pytest.fixture
def client(sqs_endpoint: str) -> Any:
    return connect(sqs_endpoint)


@pytest.fixture
def orders(client: Any, unique: str) -> Queue:
    """A queue with a topic of its own."""
    return Queue(client, client.create_queue(QueueName=unique)["QueueUrl"])


def on_topic(client: Any, topic: str, name: str) -> Queue:
    """A queue that reads an existing topic."""
    made = client.create_queue(QueueName=name, Attributes={"GoQueueTopic": topic})
    return Queue(client, made["QueueUrl"])


def good(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


@pytest.mark.on_cluster
def test_what_boto3_sends_a_kafka_client_reads(orders: Queue, bootstrap: str) -> None:
    sent = orders.send("héllo", MessageGroupId="customer-1", MessageAttributes=ATTRIBUTES)
    [record] = Confluent(bootstrap).read(orders.name, 1)
    assert record.value == "héllo".encode()
    assert record.key == b"customer-1"
    headers = dict(record.headers)
    assert headers["text"] == "é".encode()
    assert headers["number"] == b"7"
    assert headers["raw"] == b"\x00\xff"
    assert headers["sqs.id"] == sent["MessageId"].encode()
    # Kafka readers take nothing away.
    assert orders.receive_one()["MessageId"] == sent["MessageId"]


def test_what_a_kafka_client_writes_boto3_receives(orders: Queue, bootstrap: str) -> None:
    headers = (("text", "é".encode()), ("raw", b"\x00\xff"), ("not a name!", b"x"))
    Confluent(bootstrap).write(
        orders.name, [Message(value="héllo".encode(), key=b"customer-1", headers=headers)]
    )
    message = orders.receive_one(AttributeNames=["All"], MessageAttributeNames=["All"])
    assert message["Body"] == "héllo"
    expected = {
        "text": {"DataType": "String", "StringValue": "é"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    assert message["MessageAttributes"] == expected
    assert message["MD5OfMessageAttributes"] == md5_of_attributes(expected)
    assert message["Attributes"]["MessageGroupId"] == "customer-1"
    assert uuid.UUID(message["MessageId"])

    orders.hide(message, 0)
    again = orders.receive_one()
    assert again["MessageId"] == message["MessageId"]
    orders.delete(again)
    assert orders.counts() == (0, 0, 0)


def test_a_value_that_is_no_text_comes_in_base64_and_says_so(orders: Queue, bootstrap: str) -> None:
    Confluent(bootstrap).write(orders.name, [Message(value=b"\xff\x00\xfe")])
    message = orders.receive_one(MessageAttributeNames=["All"])
    assert base64.b64decode(message["Body"]) == b"\xff\x00\xfe"
    assert message["MessageAttributes"]["GoQueueEncoding"]["StringValue"] == "base64"


def test_boto3_and_http_share_a_queue(orders: Queue, broker: Broker) -> None:
    with httpx.Client(base_url=broker.http, timeout=30) as api:
        path = f"/v1/topics/{orders.name}/publish"
        header = {"name": "trace", "value": "abc"}
        good(api.post(path, json={"value": "by HTTP", "headers": [header]}))
        message = orders.receive_one(MessageAttributeNames=["All"])
        assert message["Body"] == "by HTTP"
        assert message["MessageAttributes"]["trace"]["StringValue"] == "abc"
        orders.delete(message)

        orders.send("by boto3", MessageAttributes=ATTRIBUTES)
        receive = {"topic": orders.name, "wait_ms": 10_000}
        group = f"/v1/groups/{orders.name}"
        [held] = good(api.post(f"{group}/receive", json=receive))["messages"]
        assert held["value"] == "by boto3"
        assert orders.counts() == (0, 1, 0)
        good(api.post(f"{group}/ack", json={"receipts": [held["receipt"]]}))
        assert orders.counts() == (0, 0, 0)


def test_a_trace_context_passes_every_front_end_unchanged(
    orders: Queue, bootstrap: str, broker: Broker
) -> None:
    parents = [f"00-{number:032x}-b7ad6b7169203331-01" for number in (1, 2, 3)]
    root = "Root=1-00000000-000000000000000000000004;Parent=53995c3f42cd8ad8;Sampled=1"
    attribute = {"traceparent": {"DataType": "String", "StringValue": parents[0]}}
    system = {"AWSTraceHeader": {"DataType": "String", "StringValue": root}}
    orders.send("sqs", MessageAttributes=attribute)
    orders.send("x-ray", MessageSystemAttributes=system)
    headers = (("traceparent", parents[1].encode()),)
    Confluent(bootstrap).write(orders.name, [Message(b"kafka", headers=headers)])
    with httpx.Client(base_url=broker.http, headers={"traceparent": parents[2]}) as http:
        good(http.post(f"/v1/topics/{orders.name}/publish", json={"value": "http"}))

        expected = dict(zip([b"sqs", b"kafka", b"http"], parents, strict=True))
        read = {one.value: dict(one.headers) for one in Confluent(bootstrap).read(orders.name, 4)}
        for value, parent in expected.items():
            assert read[value]["traceparent"] == parent.encode()
        assert read[b"x-ray"]["AWSTraceHeader"] == root.encode()
        for number, value in enumerate(("sqs", "kafka", "http", "x-ray"), 1):
            path = f"/v1/topics/{orders.name}/search?trace_id={number:032x}"
            assert [one["value"] for one in good(http.get(path))["messages"]] == [value]
    received = orders.receive_all(4, MessageAttributeNames=["All"], AttributeNames=["All"])
    told = {one["Body"]: one for one in received}
    for value, parent in expected.items():
        attributes = told[value.decode()]["MessageAttributes"]
        assert attributes["traceparent"]["StringValue"] == parent
    assert told["x-ray"]["Attributes"]["AWSTraceHeader"] == root


def test_attributes_of_a_queue_are_settings_of_its_group_and_topic(
    client: Any, unique: str, broker: Broker
) -> None:
    dead = client.create_queue(QueueName=f"{unique}-dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": Queue(client, dead).arn, "maxReceiveCount": 4}
    made = client.create_queue(
        QueueName=unique,
        Attributes={
            "VisibilityTimeout": "77",
            "MessageRetentionPeriod": "3600",
            "RedrivePolicy": json.dumps(policy),
        },
    )
    group = good(httpx.get(f"{broker.http}/v1/groups/{unique}"))
    assert group["settings"]["visibility_ms"] == 77_000
    assert group["settings"]["deliveries_max"] == 4
    assert group["settings"]["dead_letter_topic"] == f"{unique}-dead"
    topic = good(httpx.get(f"{broker.http}/v1/topics/{unique}"))
    assert "3600000" in json.dumps(topic)

    client.set_queue_attributes(QueueUrl=made["QueueUrl"], Attributes={"VisibilityTimeout": "5"})

    def visibility_ms() -> int:
        found = good(httpx.get(f"{broker.http}/v1/groups/{unique}"))
        return int(found["settings"]["visibility_ms"])

    eventually(lambda: visibility_ms() == 5_000, because="the group learns of the change")


@pytest.mark.on_cluster
def test_several_queues_on_one_topic_each_get_everything(
    client: Any, new_topic: NewTopicName, unique: str, bootstrap: str
) -> None:
    topic = new_topic(partitions=2)
    Confluent(bootstrap).write(topic, [Message(value=b"before")])
    billing = on_topic(client, topic, f"{unique}-billing")
    audit = on_topic(client, topic, f"{unique}-audit")
    billing.send("by a queue")
    Confluent(bootstrap).write(topic, [Message(value=b"by Kafka")])
    for queue in (billing, audit):
        found = bodies(queue.receive_all(3))
        assert sorted(found) == ["before", "by Kafka", "by a queue"]

    # The topic was there before the queues, and stays when they go.
    for queue in (billing, audit):
        client.delete_queue(QueueUrl=queue.url)
    assert len(Confluent(bootstrap).read(topic, 3)) == 3


def test_a_queue_is_played_again_from_a_moment_on(orders: Queue, broker: Broker) -> None:
    orders.send_all(str(n) for n in range(10))
    for message in orders.receive_all(10):
        orders.delete(message)
    assert orders.counts() == (0, 0, 0)
    rewind = {"topic": orders.name, "to": "1h"}
    good(httpx.post(f"{broker.http}/v1/groups/{orders.name}/rewind", json=rewind, timeout=30))
    assert sorted(bodies(orders.receive_all(10))) == [str(n) for n in range(10)]


def test_a_delayed_message_is_a_schedule_that_can_be_cancelled(
    orders: Queue, broker: Broker
) -> None:
    orders.send("later", DelaySeconds=900)
    found = good(httpx.get(f"{broker.http}/v1/schedules?topic={orders.name}"))
    [waiting] = found["schedules"]
    good(httpx.delete(f"{broker.http}/v1/schedules/{waiting['id']}"))
    eventually(lambda: orders.counts() == (0, 0, 0), because="nothing waits any more")


def test_a_kafka_group_keeps_its_name_and_shares_its_topic(
    client: Any, new_topic: NewTopicName, bootstrap: str
) -> None:
    topic = new_topic()
    kafka = Confluent(bootstrap)
    kafka.write(topic, [Message(value=b"1")])
    assert len(kafka.read(topic, 1, group=topic)) == 1

    queue = on_topic(client, topic, topic)
    assert bodies(queue.receive_all(1)) == ["1"]
    kafka.write(topic, [Message(value=b"2")])
    assert [record.value for record in kafka.read(topic, 1, group=topic)] == [b"2"]
