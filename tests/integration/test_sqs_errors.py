"""What SQS refuses, with the code, the status and the words of AWS, in both protocols."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from .conftest import NewQueue
from .sqs import ACCOUNT, REGION, Queue, error_of

PREFIX = "AWS.SimpleQueueService."
INVALID = "InvalidParameterValue"
INVALID_ID = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
    "It can be at most 80 letters long."
)
NO_ARN = f"arn:aws:sqs:{REGION}:{ACCOUNT}:never-there"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call about a queue and the error that answers it."""

    name: str
    action: str
    arguments: dict[str, Any]
    code: str
    text: str = ""
    status: int = 400


def case(
    name: str, action: str, code: str, text: str = "", *, status: int = 400, **arguments: Any
) -> Any:
    return pytest.param(Refusal(name, action, arguments, code, text, status), id=name)


def _entries(*ids: str, **more: Any) -> list[dict[str, Any]]:
    return [{"Id": one, "MessageBody": "x", **more} for one in ids]


STANDARD = [
    case("empty body", "send_message", "MissingParameter",
         "The request must contain the parameter MessageBody.", MessageBody=""),
    case("too large", "send_message", INVALID,
         "One or more parameters are invalid. "
         "Reason: Message must be shorter than 1048576 bytes.", MessageBody="x" * 1_048_577),
    case("forbidden characters", "send_message", "InvalidMessageContents",
         MessageBody="a\ufffeb"),
    case("delay too long", "send_message", INVALID,
         "Value 901 for parameter DelaySeconds is invalid. "
         "Reason: DelaySeconds must be >= 0 and <= 900.", MessageBody="x", DelaySeconds=901),
    case("delay negative", "send_message", INVALID, MessageBody="x", DelaySeconds=-1),
    case("attribute without a value", "send_message", INVALID,
         "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
         MessageBody="x", MessageAttributes={"a": {"DataType": "String", "StringValue": ""}}),
    case("attribute of an unknown type", "send_message", INVALID, MessageBody="x",
         MessageAttributes={"a": {"DataType": "Text", "StringValue": "x"}}),
    case("attribute that is no number", "send_message", INVALID, MessageBody="x",
         MessageAttributes={"a": {"DataType": "Number", "StringValue": "x"}}),
    case("attribute with a reserved name", "send_message", INVALID, MessageBody="x",
         MessageAttributes={"aws.a": {"DataType": "String", "StringValue": "x"}}),
    case("eleven attributes", "send_message", INVALID, MessageBody="x",
         MessageAttributes={
             f"a{n}": {"DataType": "String", "StringValue": "x"} for n in range(11)
         }),
    case("a group with spaces", "send_message", INVALID,
         "Value a b for parameter MessageGroupId is invalid. Reason: MessageGroupId can only "
         "include alphanumeric and punctuation characters. 1 to 128 in length.",
         MessageBody="x", MessageGroupId="a b"),
    case("deduplication of a standard queue", "send_message", INVALID, MessageBody="x",
         MessageDeduplicationId="one"),
    case("no entries", "send_message_batch", PREFIX + "EmptyBatchRequest", Entries=[]),
    case("eleven entries", "send_message_batch", PREFIX + "TooManyEntriesInBatchRequest",
         "Maximum number of entries per request are 10. You have sent 11.",
         Entries=_entries(*(str(n) for n in range(11)))),
    case("ids twice", "send_message_batch", PREFIX + "BatchEntryIdsNotDistinct",
         Entries=_entries("a", "b", "a")),
    case("an id with a colon", "send_message_batch", PREFIX + "InvalidBatchEntryId", INVALID_ID,
         Entries=_entries("a:b")),
    case("an id too long", "send_message_batch", PREFIX + "InvalidBatchEntryId", INVALID_ID,
         Entries=_entries("a" * 81)),
    case("batch too large", "send_message_batch", PREFIX + "BatchRequestTooLong",
         "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
         Entries=[{"Id": "a", "MessageBody": "x" * 1_048_576}, {"Id": "b", "MessageBody": "x"}]),
    case("no messages wanted", "receive_message", INVALID,
         "Value 0 for parameter MaxNumberOfMessages is invalid. "
         "Reason: Must be between 1 and 10, if provided.", MaxNumberOfMessages=0),
    case("eleven messages wanted", "receive_message", INVALID,
         "Value 11 for parameter MaxNumberOfMessages is invalid. "
         "Reason: Must be between 1 and 10, if provided.", MaxNumberOfMessages=11),
    case("wait too long", "receive_message", INVALID,
         "Value 21 for parameter WaitTimeSeconds is invalid. "
         "Reason: Must be >= 0 and <= 20, if provided.", WaitTimeSeconds=21),
    case("wait negative", "receive_message", INVALID,
         "Value -1 for parameter WaitTimeSeconds is invalid. "
         "Reason: Must be >= 0 and <= 20, if provided.", WaitTimeSeconds=-1),
    case("hidden too long", "receive_message", INVALID, VisibilityTimeout=43_201),
    case("an unknown system attribute", "receive_message", "InvalidAttributeName",
         AttributeNames=["NeverThere"]),
    case("nonsense to delete", "delete_message", "ReceiptHandleIsInvalid",
         ReceiptHandle="nonsense"),
    case("nonsense to hide", "change_message_visibility", "ReceiptHandleIsInvalid",
         ReceiptHandle="nonsense", VisibilityTimeout=1),
    case("no deletes", "delete_message_batch", PREFIX + "EmptyBatchRequest", Entries=[]),
    case("deletes with one id", "delete_message_batch", PREFIX + "BatchEntryIdsNotDistinct",
         Entries=[{"Id": "a", "ReceiptHandle": "r"}] * 2),
    case("eleven deletes", "delete_message_batch", PREFIX + "TooManyEntriesInBatchRequest",
         Entries=[{"Id": str(n), "ReceiptHandle": "r"} for n in range(11)]),
    case("no changes", "change_message_visibility_batch", PREFIX + "EmptyBatchRequest",
         Entries=[]),
    case("change with a bad id", "change_message_visibility_batch",
         PREFIX + "InvalidBatchEntryId", INVALID_ID,
         Entries=[{"Id": "a b", "ReceiptHandle": "r", "VisibilityTimeout": 1}]),
    case("eleven changes", "change_message_visibility_batch",
         PREFIX + "TooManyEntriesInBatchRequest",
         Entries=[
             {"Id": str(n), "ReceiptHandle": "r", "VisibilityTimeout": 1} for n in range(11)
         ]),
    case("an unknown attribute to set", "set_queue_attributes", "InvalidAttributeName",
         "Unknown Attribute NeverThere.", Attributes={"NeverThere": "1"}),
    case("visibility out of range", "set_queue_attributes", "InvalidAttributeValue",
         Attributes={"VisibilityTimeout": "43201"}),
    case("visibility that is no number", "set_queue_attributes", "InvalidAttributeValue",
         Attributes={"VisibilityTimeout": "soon"}),
    case("delay out of range", "set_queue_attributes", "InvalidAttributeValue",
         Attributes={"DelaySeconds": "901"}),
    case("size out of range", "set_queue_attributes", "InvalidAttributeValue",
         Attributes={"MaximumMessageSize": "1023"}),
    case("retention out of range", "set_queue_attributes", "InvalidAttributeValue",
         Attributes={"MessageRetentionPeriod": "59"}),
    case("wait out of range", "set_queue_attributes", "InvalidAttributeValue",
         Attributes={"ReceiveMessageWaitTimeSeconds": "21"}),
    case("an attribute only to be read", "set_queue_attributes", "InvalidAttributeName",
         Attributes={"QueueArn": "x"}),
    case("the type of a queue", "set_queue_attributes", "InvalidAttributeName",
         "Unknown Attribute FifoQueue.", Attributes={"FifoQueue": "true"}),
    case("a policy", "set_queue_attributes", PREFIX + "UnsupportedOperation",
         Attributes={"Policy": "{}"}),
    case("a redrive policy that is no JSON", "set_queue_attributes", INVALID,
         Attributes={"RedrivePolicy": "nonsense"}),
    case("a redrive policy without a count", "set_queue_attributes", INVALID,
         Attributes={"RedrivePolicy": json.dumps({"deadLetterTargetArn": NO_ARN})}),
    case("a dead-letter queue that is not there", "set_queue_attributes", INVALID,
         Attributes={
             "RedrivePolicy": json.dumps({"deadLetterTargetArn": NO_ARN, "maxReceiveCount": 1})
         }),
    case("an unknown attribute to get", "get_queue_attributes", "InvalidAttributeName",
         "Unknown Attribute NeverThere.", AttributeNames=["NeverThere"]),
    case("a permission", "add_permission", PREFIX + "UnsupportedOperation", Label="a",
         AWSAccountIds=["111111111111"], Actions=["SendMessage"]),
    case("a permission to remove", "remove_permission", PREFIX + "UnsupportedOperation",
         Label="a"),
]  # fmt: skip

FIFO = [
    case("no group", "send_message", "MissingParameter",
         "The request must contain the parameter MessageGroupId.",
         MessageBody="x", MessageDeduplicationId="a"),
    case("nothing to deduplicate by", "send_message", INVALID,
         "The queue should either have ContentBasedDeduplication enabled or "
         "MessageDeduplicationId provided explicitly", MessageBody="x", MessageGroupId="g"),
    case("a delay of its own", "send_message", INVALID,
         "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter "
         "that is not valid for this queue type.",
         MessageBody="x", MessageGroupId="g", MessageDeduplicationId="a", DelaySeconds=2),
    case("a deduplication id with spaces", "send_message", INVALID,
         "Value a b for parameter MessageDeduplicationId is invalid. Reason: "
         "MessageDeduplicationId can only include alphanumeric and punctuation characters. "
         "1 to 128 in length.",
         MessageBody="x", MessageGroupId="g", MessageDeduplicationId="a b"),
    case("a group too long", "send_message", INVALID, MessageBody="x",
         MessageGroupId="g" * 129, MessageDeduplicationId="a"),
    case("a queue that stops to be FIFO", "set_queue_attributes", "InvalidAttributeValue",
         "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not "
         "supported.", Attributes={"FifoQueue": "false"}),
    case("an unknown scope", "set_queue_attributes", "InvalidAttributeValue",
         Attributes={"DeduplicationScope": "world"}),
]  # fmt: skip


@pytest.mark.parametrize("refusal", STANDARD)
def test_a_standard_queue_refuses(queue: Queue, refusal: Refusal) -> None:
    _check(queue, refusal)


@pytest.mark.parametrize("refusal", FIFO)
def test_a_fifo_queue_refuses(new_queue: NewQueue, refusal: Refusal) -> None:
    _check(new_queue(is_fifo=True), refusal)


def _check(queue: Queue, refusal: Refusal) -> None:
    call = getattr(queue.client, refusal.action)
    code, status, text = error_of(call, QueueUrl=queue.url, **refusal.arguments)
    assert (code, status) == (refusal.code, refusal.status), text
    if refusal.text:
        assert text == refusal.text
    assert queue.counts() == (0, 0, 0)


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("add_permission", {"Label": "a", "AWSAccountIds": ["1" * 12], "Actions": ["*"]}),
        ("change_message_visibility", {"ReceiptHandle": "r", "VisibilityTimeout": 1}),
        (
            "change_message_visibility_batch",
            {"Entries": [{"Id": "a", "ReceiptHandle": "r", "VisibilityTimeout": 1}]},
        ),
        ("delete_message", {"ReceiptHandle": "r"}),
        ("delete_message_batch", {"Entries": [{"Id": "a", "ReceiptHandle": "r"}]}),
        ("delete_queue", {}),
        ("get_queue_attributes", {"AttributeNames": ["All"]}),
        ("list_dead_letter_source_queues", {}),
        ("list_queue_tags", {}),
        ("purge_queue", {}),
        ("receive_message", {}),
        ("remove_permission", {"Label": "a"}),
        ("send_message", {"MessageBody": "x"}),
        ("send_message_batch", {"Entries": [{"Id": "a", "MessageBody": "x"}]}),
        ("set_queue_attributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("tag_queue", {"Tags": {"a": "b"}}),
        ("untag_queue", {"TagKeys": ["a"]}),
    ],
)
def test_every_action_says_that_a_queue_is_not_there(
    sqs: Any, sqs_endpoint: str, action: str, more: dict[str, Any]
) -> None:
    call = getattr(sqs, action)
    url = f"{sqs_endpoint}/{ACCOUNT}/never-there"
    code, status, text = error_of(call, QueueUrl=url, **more)
    assert (code, status) == (PREFIX + "NonExistentQueue", 400)
    assert text.startswith("The specified queue does not exist")
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        call(QueueUrl=url, **more)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 81, "orders.fifo", "a.b"])
def test_a_name_that_no_queue_can_have_is_refused(sqs: Any, name: str) -> None:
    code, status, text = error_of(sqs.create_queue, QueueName=name)
    if name:
        assert (code, status) == (INVALID, 400), text
    else:
        assert code in (INVALID, "MissingParameter"), text


def test_a_fifo_queue_is_named_so(sqs: Any, unique: str) -> None:
    code, _, text = error_of(sqs.create_queue, QueueName=unique, Attributes={"FifoQueue": "true"})
    assert code == INVALID
    assert ".fifo suffix" in text
    assert error_of(sqs.get_queue_url, QueueName=unique)[0] == PREFIX + "NonExistentQueue"


@pytest.mark.parametrize(
    ("attributes", "code", "text"),
    [
        ({"FifoQueue": "false"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        (
            {"ContentBasedDeduplication": "true"},
            "InvalidAttributeName",
            "Unknown Attribute ContentBasedDeduplication.",
        ),
        (
            {"DeduplicationScope": "queue"},
            "InvalidAttributeName",
            "You can specify the DeduplicationScope only when FifoQueue is set to true.",
        ),
        (
            {"FifoThroughputLimit": "perQueue"},
            "InvalidAttributeName",
            "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
        ),
        ({"NeverThere": "1"}, "InvalidAttributeName", "Unknown Attribute NeverThere."),
        ({"DelaySeconds": "901"}, "InvalidAttributeValue", ""),
    ],
)
def test_a_queue_is_not_made_with_wrong_attributes(
    sqs: Any, unique: str, attributes: dict[str, str], code: str, text: str
) -> None:
    found = error_of(sqs.create_queue, QueueName=unique, Attributes=attributes)
    assert found[:2] == (code, 400)
    if text:
        assert found[2] == text
    assert error_of(sqs.get_queue_url, QueueName=unique)[0] == PREFIX + "NonExistentQueue"


def test_a_fifo_queue_and_a_standard_queue_do_not_bury_for_each_other(
    new_queue: NewQueue,
) -> None:
    standard, fifo = new_queue(), new_queue(is_fifo=True)
    for source, dead in ((standard, fifo), (fifo, standard)):
        policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
        attributes = {"RedrivePolicy": policy}
        call: Callable[..., Any] = source.client.set_queue_attributes
        assert error_of(call, QueueUrl=source.url, Attributes=attributes)[:2] == (INVALID, 400)


@pytest.mark.parametrize(
    ("permission", "is_allowed"),
    [
        ({"redrivePermission": "denyAll"}, False),
        ({"redrivePermission": "allowAll"}, True),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [NO_ARN]}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": ["SOURCE"]}, True),
    ],
)
def test_a_dead_letter_queue_decides_whose_it_is(
    new_queue: NewQueue, permission: dict[str, Any], is_allowed: bool
) -> None:
    source, dead = new_queue(), new_queue()
    allowed = json.dumps(permission).replace("SOURCE", source.arn)
    dead.set(RedriveAllowPolicy=allowed)
    assert json.loads(dead.attributes("RedriveAllowPolicy")["RedriveAllowPolicy"]) == (
        json.loads(allowed)
    )
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    if is_allowed:
        source.set(RedrivePolicy=policy)
        return
    call: Callable[..., Any] = source.client.set_queue_attributes
    found = error_of(call, QueueUrl=source.url, Attributes={"RedrivePolicy": policy})
    assert found[:2] == (INVALID, 400)


def test_only_a_dead_letter_queue_is_moved_from(sqs: Any, queue: Queue) -> None:
    start = sqs.start_message_move_task
    assert error_of(start, SourceArn=queue.arn) == (
        INVALID,
        400,
        "Source queue must be configured as a Dead Letter Queue.",
    )
    assert error_of(start, SourceArn=NO_ARN) == (
        "ResourceNotFoundException",
        404,
        "The resource that you specified for the SourceArn parameter doesn't exist.",
    )
    assert error_of(sqs.list_message_move_tasks, SourceArn=NO_ARN)[:2] == (
        "ResourceNotFoundException",
        404,
    )


def test_dead_letters_are_only_moved_to_a_queue_that_is_there(
    sqs: Any, new_queue: NewQueue
) -> None:
    dead = new_queue()
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    new_queue({"RedrivePolicy": policy})
    start = sqs.start_message_move_task
    assert error_of(start, SourceArn=dead.arn, DestinationArn=NO_ARN) == (
        "ResourceNotFoundException",
        404,
        "The resource that you specified for the DestinationArn parameter doesn't exist.",
    )


def test_a_task_that_is_not_there_cannot_be_cancelled(sqs: Any) -> None:
    assert error_of(sqs.cancel_message_move_task, TaskHandle="nonsense") == (
        INVALID,
        400,
        "Value for parameter TaskHandle is invalid.",
    )
