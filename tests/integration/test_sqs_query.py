"""Both protocols of SQS on the wire, as SDKs other than boto3 speak and read them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import httpx
import pytest

from .sqs import ACCOUNT, Queue, connect, md5

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
VERSION = {"Version": "2012-11-05"}
NO_SUCH_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"


@pytest.fixture
def plain(sqs_endpoint: str, unique: str) -> Queue:
    """A queue, made by boto3."""
    client = connect(sqs_endpoint)
    return Queue(client, client.create_queue(QueueName=unique)["QueueUrl"])


@pytest.mark.on_cluster
def test_a_form_at_the_root_names_its_queue(sqs_endpoint: str, plain: Queue) -> None:
    form = {"Action": "SendMessage", "QueueUrl": plain.url, "MessageBody": "a & <b>", **VERSION}
    answer = httpx.post(sqs_endpoint, data=form)
    root = _parse(answer, status=200)
    assert root.tag == f"{NAMESPACE}SendMessageResponse"
    result = _found(root, "SendMessageResult")
    assert _text(result, "MD5OfMessageBody") == md5("a & <b>")
    assert (
        _text(_found(root, "ResponseMetadata"), "RequestId") == (answer.headers["x-amzn-requestid"])
    )
    assert plain.receive_one()["MessageId"] == _text(result, "MessageId")


def test_a_form_at_the_url_of_a_queue_need_not_name_it(plain: Queue) -> None:
    for body in ("1", "2"):
        form = {"Action": "SendMessage", "MessageBody": body, **VERSION}
        assert httpx.post(plain.url, data=form).status_code == 200
    form = {"Action": "ReceiveMessage", "MaxNumberOfMessages": "10", "WaitTimeSeconds": "5"}
    answer = httpx.post(plain.url, data=form | VERSION, timeout=30)
    result = _found(_parse(answer, status=200), "ReceiveMessageResult")
    [first, *_] = result.findall(f"{NAMESPACE}Message")
    assert _text(first, "Body") in ("1", "2")
    assert {child.tag.removeprefix(NAMESPACE) for child in first} == {
        "MessageId",
        "ReceiptHandle",
        "MD5OfBody",
        "Body",
    }


def test_a_query_can_be_a_get(plain: Queue) -> None:
    query = {"Action": "GetQueueAttributes", "AttributeName.1": "VisibilityTimeout"}
    query |= {"AttributeName.2": "DelaySeconds"} | VERSION
    answer = httpx.get(f"{plain.url}?{urlencode(query)}")
    result = _found(_parse(answer, status=200), "GetQueueAttributesResult")
    attributes = {
        _text(one, "Name"): _text(one, "Value") for one in result.findall(f"{NAMESPACE}Attribute")
    }
    assert attributes == {"VisibilityTimeout": "30", "DelaySeconds": "0"}


def test_maps_and_lists_are_numbered(sqs_endpoint: str, unique: str) -> None:
    form = {
        "Action": "CreateQueue",
        "QueueName": unique,
        "Attribute.1.Name": "VisibilityTimeout",
        "Attribute.1.Value": "11",
        "Attribute.2.Name": "DelaySeconds",
        "Attribute.2.Value": "2",
        "Tag.1.Key": "team",
        "Tag.1.Value": "blue",
        **VERSION,
    }
    root = _parse(httpx.post(sqs_endpoint, data=form), status=200)
    url = _text(_found(root, "CreateQueueResult"), "QueueUrl")
    queue = Queue(connect(sqs_endpoint), url)
    assert queue.attributes("VisibilityTimeout", "DelaySeconds") == {
        "VisibilityTimeout": "11",
        "DelaySeconds": "2",
    }
    assert queue.client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "blue"}


def test_an_error_of_a_query_is_xml(sqs_endpoint: str) -> None:
    answer = httpx.post(
        sqs_endpoint, data={"Action": "GetQueueUrl", "QueueName": "never-there", **VERSION}
    )
    root = _parse(answer, status=400)
    assert root.tag == f"{NAMESPACE}ErrorResponse"
    error = _found(root, "Error")
    assert _text(error, "Type") == "Sender"
    assert _text(error, "Code") == NO_SUCH_QUEUE
    assert _text(error, "Message") == ("The specified queue does not exist for this wsdl version.")
    assert _text(root, "RequestId") == answer.headers["x-amzn-requestid"]


def test_an_error_of_aws_json_names_the_code_of_a_query_too(sqs_endpoint: str) -> None:
    answer = _json(sqs_endpoint, "GetQueueUrl", {"QueueName": "never-there"})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    assert answer.headers["x-amzn-query-error"] == f"{NO_SUCH_QUEUE};Sender"
    assert answer.json() == {
        "__type": "com.amazonaws.sqs#QueueDoesNotExist",
        "message": "The specified queue does not exist.",
    }


def test_an_action_that_is_not_there_is_refused(sqs_endpoint: str) -> None:
    form = {"Action": "Dance", **VERSION}
    root = _parse(httpx.post(sqs_endpoint, data=form), status=400)
    assert _text(_found(root, "Error"), "Code") == "InvalidAction"
    root = _parse(httpx.post(sqs_endpoint, data=VERSION), status=400)
    assert _text(_found(root, "Error"), "Code") == "MissingAction"
    answer = _json(sqs_endpoint, "Dance", {})
    assert answer.json()["__type"].endswith("#UnknownOperationException")
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"x"', b'{"QueueName": 7}', b'{"QueueName": ["x"]}', b"\xff\xfe{}"],
)
def test_what_is_no_json_is_refused(sqs_endpoint: str, content: bytes) -> None:
    answer = httpx.post(
        sqs_endpoint,
        content=content,
        headers={
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": "AmazonSQS.GetQueueUrl",
        },
    )
    assert answer.status_code == 400
    kind = answer.json()["__type"].rpartition("#")[2]
    assert kind in ("SerializationException", "MissingRequiredParameterException")


@pytest.mark.parametrize("name", ["MaxNumberOfMessages", "VisibilityTimeout", "WaitTimeSeconds"])
def test_what_is_no_number_is_refused(plain: Queue, name: str) -> None:
    answer = httpx.post(plain.url, data={"Action": "ReceiveMessage", name: "many", **VERSION})
    error = _found(_parse(answer, status=400), "Error")
    assert _text(error, "Code") in ("InvalidParameterValue", "MalformedInput")
    assert name in _text(error, "Message")


def test_the_host_that_was_asked_is_the_host_of_the_url(sqs_endpoint: str, plain: Queue) -> None:
    port = urlsplit(sqs_endpoint).port
    answer = httpx.post(
        sqs_endpoint,
        content=json.dumps({"QueueName": plain.name}),
        headers={
            "Host": f"queues.example:{port}",
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": "AmazonSQS.GetQueueUrl",
        },
    )
    assert answer.json()["QueueUrl"] == f"http://queues.example:{port}/{ACCOUNT}/{plain.name}"


def _json(endpoint: str, action: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(
        endpoint,
        content=json.dumps(body),
        headers={
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{action}",
        },
    )


def _parse(answer: httpx.Response, *, status: int) -> ElementTree.Element:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/xml")
    return ElementTree.fromstring(answer.content)


def _found(element: ElementTree.Element, name: str) -> ElementTree.Element:
    found = element.find(f"{NAMESPACE}{name}")
    assert found is not None, ElementTree.tostring(element)
    return found


def _text(element: ElementTree.Element, name: str) -> str:
    return _found(element, name).text or ""
