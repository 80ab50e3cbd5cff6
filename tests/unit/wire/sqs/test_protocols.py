"""What stands between the two protocols and the actions: targets, forms, refusals, nonsense."""

from __future__ import annotations

import json
from random import Random
from urllib.parse import urlencode

import pytest
from botocore.exceptions import ClientError

from goqueue.wire.sqs.shapes import SHAPES
from tests.unit.wire.http.client import Wire
from tests.unit.wire.sqs.client import Node, queue, request_bytes


def test_json_refusals_repeat_the_older_code_in_a_header(node: Node) -> None:
    headers = {
        "x-amz-target": "AmazonSQS.GetQueueUrl",
        "content-type": "application/x-amz-json-1.0",
    }
    answer = node.ask(b'{"QueueName": "x"}', headers=headers)
    assert answer.status == 400
    assert answer.headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert answer.headers["x-amzn-requestid"]
    assert answer.json["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"


def test_an_address_of_a_queue_may_be_asked_with_get(node: Node) -> None:
    made = queue(node.boto3())
    target = "/000000000000/orders?Action=SendMessage&MessageBody=a%20b"
    assert node.ask(b"", headers={}, method="GET", target=target).status == 200
    assert made.receive_one()["Body"] == "a b"


@pytest.mark.parametrize("target", ["/000000000000/orders", "/"])
@pytest.mark.parametrize("headers", [{}, {"accept": "application/json"}])
def test_an_address_without_an_action_is_unknown(
    node: Node, target: str, headers: dict[str, str]
) -> None:
    answer = node.ask(b"", headers=headers, method="GET", target=target)
    assert (answer.status, answer.body) == (404, b"<UnknownOperationException/>")


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues"])
def test_actions_of_the_account_are_not_asked_of_a_queue(node: Node, action: str) -> None:
    queue(node.boto3())
    target = f"/000000000000/orders?Action={action}&QueueName=other"
    answer = node.ask(b"", headers={}, method="GET", target=target)
    assert answer.status == 400
    assert b"<Code>InvalidAction</Code>" in answer.body
    text = f"<Message>The action {action} is not valid for this endpoint.</Message>"
    assert text.encode() in answer.body


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_a_request_for_another_region_or_account_is_refused(node: Node, protocol: str) -> None:
    made = queue(node.boto3(protocol))
    elsewhere = node.boto3(protocol, region="eu-west-1")
    with pytest.raises(ClientError, match="serves us-east-1") as refused:
        elsewhere.send_message(QueueUrl=made.url, MessageBody="x")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    other_account = made.url.replace("000000000000", "123456789012")
    with pytest.raises(ClientError, match=r"InvalidAddress.*sqs\.account_id"):
        made.client.send_message(QueueUrl=other_account, MessageBody="x")
    with pytest.raises(ClientError, match="InvalidAddress"):
        made.client.get_queue_url(QueueName="orders", QueueOwnerAWSAccountId="123456789012")
    assert made.client.get_queue_url(QueueName="orders", QueueOwnerAWSAccountId="000000000000")


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"", {}, b"MissingAction"),
        (b"Action=Dance", {}, b"InvalidAction"),
        (b"{}", {"x-amz-target": "AmazonSQS.Dance"}, b"UnknownOperationException"),
        (b"Action=SendMessage&QueueUrl=x&DelaySeconds=soon", {}, b"MalformedInput"),
        (b"Action=SendMessage", {}, b"MissingParameter"),
        (b"Action=%ff", {}, b"MalformedInput"),
    ],
)
def test_what_cannot_be_understood_is_refused(
    node: Node, body: bytes, headers: dict[str, str], code: bytes
) -> None:
    answer = node.ask(body, headers=headers)
    assert answer.status == 400
    assert code in answer.body


@pytest.mark.parametrize("action", SHAPES)
def test_an_action_without_input_is_refused_or_done(node: Node, action: str) -> None:
    """Nothing that is missing is a fault of ours."""
    for body, headers in (
        (f"Action={action}".encode(), {}),
        (b"{}", {"x-amz-target": f"AmazonSQS.{action}"}),
    ):
        answer = node.ask(body, headers=headers)
        assert answer.status == (200 if action == "ListQueues" else 400)


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.test"}, {"sec-fetch-site": "cross-site"}]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_somebody_else_may_not_send(
    node: Node, method: str, headers: dict[str, str]
) -> None:
    target = "/?Action=CreateQueue&QueueName=x"
    assert node.ask(b"", headers=headers, method=method, target=target).status == 403


def test_requests_that_are_nearly_right_are_no_fault_of_ours(node: Node) -> None:
    """Whatever is changed in a good request, it is answered, refused or not one at all."""
    made = queue(node.boto3(), "orders.fifo")
    json_body = json.dumps(
        {
            "QueueUrl": made.url,
            "Entries": [{"Id": "a", "MessageBody": "b", "MessageGroupId": "g"}],
        }
    ).encode()
    form = urlencode({"Action": "SetQueueAttributes", "QueueUrl": made.url}) + "&Attribute.1.Name="
    good = [
        request_bytes("POST", "/", {"x-amz-target": "AmazonSQS.SendMessageBatch"}, json_body),
        request_bytes("POST", "/x", {}, form.encode() + b"RedrivePolicy&Attribute.1.Value=%7B%7D"),
        request_bytes("GET", "/0/orders.fifo?Action=ReceiveMessage&AttributeName.1=All", {}, b""),
    ]
    chance = Random(4)
    statuses = set()
    for _ in range(300):
        data = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        wire = Wire(node.application)
        pieces = [bytes(data)] if chance.random() < 0.8 else [bytes([one]) for one in data]
        for piece in pieces:
            if not wire.is_closed:
                wire.feed(piece)
        node.world.run_for(1)
        statuses |= {answer.status for answer in wire.answers}
        wire.close()
    assert 200 in statuses
    assert 400 in statuses
    assert max(statuses) < 500
