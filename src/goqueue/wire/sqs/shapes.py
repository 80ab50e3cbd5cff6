"""The inputs and outputs of all actions, from which the codecs of both protocols are derived.

In JSON the names of fields are those below. In the Query protocol lists and maps are flattened to
numbered parameters, or repeated elements, with the names that are given beside the type. Absent
fields are None: which are required depends on the queue and is checked by handlers.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from goqueue.wire.sqs.errors import NAMES

TRACE = "AWSTraceHeader"  # a system attribute
TRACE_PARENT = "traceparent"  # of W3C Trace Context, an attribute of the user


def _listed(element: str) -> Meta:
    """A list, with the name of its items in the Query protocol."""
    return Meta(extra={"element": element})


def _mapped(element: str, *, key: str = "Name") -> Meta:
    """A map, with the names of its entries, keys and values in the Query protocol."""
    return Meta(extra={"element": element, "key": key, "value": "Value"})


class Shape(msgspec.Struct, rename="pascal", omit_defaults=True):
    """Any value that crosses the wire."""


AttributeNames = Annotated[list[str], _listed("AttributeName")]
AttributeMap = Annotated[dict[str, str], _mapped("Attribute")]
TagMap = Annotated[dict[str, str], _mapped("Tag", key="Key")]
QueueUrls = Annotated[list[str], _listed("QueueUrl")]


# Messages


class AttributeValue(Shape):
    """The value of a message attribute, of the user or of the system."""

    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: Annotated[list[str], _listed("StringListValue")] | None = None
    binary_list_values: Annotated[list[bytes], _listed("BinaryListValue")] | None = None
    data_type: str | None = None


MessageAttributes = Annotated[dict[str, AttributeValue], _mapped("MessageAttribute")]
SystemAttributes = Annotated[dict[str, AttributeValue], _mapped("MessageSystemAttribute")]


class Outgoing(Shape):
    """A message to send, alone or in a batch."""

    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: MessageAttributes | None = None
    message_system_attributes: SystemAttributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None

    @property
    def trace_header(self) -> str:
        """The attribute that names its trace; empty if there is none."""
        for attributes, name in (
            (self.message_attributes, TRACE_PARENT),
            (self.message_system_attributes, TRACE),
        ):
            if attributes and (found := attributes.get(name)):
                return found.string_value or ""
        return ""


class OutgoingEntry(Outgoing):
    id: str | None = None


class Message(Shape, kw_only=True):
    """A received message."""

    message_id: str
    receipt_handle: str
    md5_of_body: str = field(name="MD5OfBody")
    body: str
    attributes: AttributeMap | None = None
    md5_of_message_attributes: str | None = field(name="MD5OfMessageAttributes", default=None)
    message_attributes: MessageAttributes | None = None


class Sent(Shape, kw_only=True):
    md5_of_message_body: str = field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = field(name="MD5OfMessageAttributes", default=None)
    md5_of_message_system_attributes: str | None = field(
        name="MD5OfMessageSystemAttributes", default=None
    )
    message_id: str
    sequence_number: str | None = None


# Batches


class Done(Shape):
    """A successful entry of a batch."""

    id: str


class SentEntry(Sent, kw_only=True):
    id: str


class Failed(Shape):
    """A failed entry of a batch."""

    id: str
    sender_fault: bool
    code: str
    message: str | None = None


FailedEntries = Annotated[list[Failed], _listed("BatchResultErrorEntry")]


class BatchResult(Shape):
    """Of the entries of a batch, those that succeeded and those that failed."""

    successful: list[Any] | None = None
    failed: FailedEntries | None = None

    @property
    def error_codes(self) -> set[str]:
        """The errors that metrics count, each once."""
        return {NAMES.get(one.code, one.code) for one in self.failed or ()}


class SendMessageBatchResult(BatchResult):
    successful: Annotated[list[SentEntry], _listed("SendMessageBatchResultEntry")] | None = None
    failed: FailedEntries | None = None


class DeleteMessageBatchResult(BatchResult):
    successful: Annotated[list[Done], _listed("DeleteMessageBatchResultEntry")] | None = None
    failed: FailedEntries | None = None


class ChangeMessageVisibilityBatchResult(BatchResult):
    successful: Annotated[list[Done], _listed("ChangeMessageVisibilityBatchResultEntry")] | None = (
        None
    )
    failed: FailedEntries | None = None


# Inputs of actions


class OfQueue(Shape):
    """Input that refers to one queue."""

    queue_url: str | None = None


class SendMessage(Outgoing):
    queue_url: str | None = None


class SendMessageBatch(OfQueue):
    entries: Annotated[list[OutgoingEntry], _listed("SendMessageBatchRequestEntry")] | None = None

    @property
    def trace_header(self) -> str:
        """That of the first message."""
        return self.entries[0].trace_header if self.entries else ""


class ReceiveMessage(OfQueue):
    attribute_names: AttributeNames | None = None
    message_system_attribute_names: (
        Annotated[list[str], _listed("MessageSystemAttributeName")] | None
    ) = None
    message_attribute_names: Annotated[list[str], _listed("MessageAttributeName")] | None = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(OfQueue):
    receipt_handle: str | None = None


class DeleteEntry(Shape):
    id: str | None = None
    receipt_handle: str | None = None


class DeleteMessageBatch(OfQueue):
    entries: Annotated[list[DeleteEntry], _listed("DeleteMessageBatchRequestEntry")] | None = None


class ChangeMessageVisibility(OfQueue):
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeEntry(Shape):
    id: str | None = None
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(OfQueue):
    entries: (
        Annotated[list[ChangeEntry], _listed("ChangeMessageVisibilityBatchRequestEntry")] | None
    ) = None


class CreateQueue(Shape):
    queue_name: str | None = None
    attributes: AttributeMap | None = None
    tags: TagMap | None = field(name="tags", default=None)


class GetQueueUrl(Shape):
    queue_name: str | None = None
    queue_owner_account_id: str | None = field(name="QueueOwnerAWSAccountId", default=None)


class ListQueues(Shape):
    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class ListDeadLetterSourceQueues(OfQueue):
    next_token: str | None = None
    max_results: int | None = None


class GetQueueAttributes(OfQueue):
    attribute_names: AttributeNames | None = None


class SetQueueAttributes(OfQueue):
    attributes: AttributeMap | None = None


class TagQueue(OfQueue):
    tags: TagMap | None = None


class UntagQueue(OfQueue):
    tag_keys: Annotated[list[str], _listed("TagKey")] | None = None


class AddPermission(OfQueue):
    label: str | None = None
    account_ids: Annotated[list[str], _listed("AWSAccountId")] | None = field(
        name="AWSAccountIds", default=None
    )
    actions: Annotated[list[str], _listed("ActionName")] | None = None


class RemovePermission(OfQueue):
    label: str | None = None


class StartMessageMoveTask(Shape):
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class ListMessageMoveTasks(Shape):
    source_arn: str | None = None
    max_results: int | None = None


class CancelMessageMoveTask(Shape):
    task_handle: str | None = None


# Outputs of actions


class Nothing(Shape):
    """An empty output."""


class QueueUrl(Shape):
    queue_url: str


class ListedQueues(Shape):
    queue_urls: QueueUrls | None = None
    next_token: str | None = None


class SourceQueues(Shape):
    queue_urls: QueueUrls = field(name="queueUrls")
    next_token: str | None = None


class QueueAttributes(Shape):
    attributes: AttributeMap | None = None


class QueueTags(Shape):
    tags: TagMap | None = None


class Received(Shape):
    messages: Annotated[list[Message], _listed("Message")] | None = None


class MoveTaskStarted(Shape):
    task_handle: str


class MoveTaskCancelled(Shape):
    approximate_number_of_messages_moved: int


class MoveTask(Shape, kw_only=True):
    task_handle: str | None = None
    status: str
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_moved: int
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None
    started_timestamp: int


class MoveTasks(Shape):
    results: Annotated[list[MoveTask], _listed("ListMessageMoveTasksResultEntry")] | None = None


SHAPES: dict[str, tuple[type[Shape], type[Shape]]] = {
    "AddPermission": (AddPermission, Nothing),
    "CancelMessageMoveTask": (CancelMessageMoveTask, MoveTaskCancelled),
    "ChangeMessageVisibility": (ChangeMessageVisibility, Nothing),
    "ChangeMessageVisibilityBatch": (
        ChangeMessageVisibilityBatch,
        ChangeMessageVisibilityBatchResult,
    ),
    "CreateQueue": (CreateQueue, QueueUrl),
    "DeleteMessage": (DeleteMessage, Nothing),
    "DeleteMessageBatch": (DeleteMessageBatch, DeleteMessageBatchResult),
    "DeleteQueue": (OfQueue, Nothing),
    "GetQueueAttributes": (GetQueueAttributes, QueueAttributes),
    "GetQueueUrl": (GetQueueUrl, QueueUrl),
    "ListDeadLetterSourceQueues": (ListDeadLetterSourceQueues, SourceQueues),
    "ListMessageMoveTasks": (ListMessageMoveTasks, MoveTasks),
    "ListQueueTags": (OfQueue, QueueTags),
    "ListQueues": (ListQueues, ListedQueues),
    "PurgeQueue": (OfQueue, Nothing),
    "ReceiveMessage": (ReceiveMessage, Received),
    "RemovePermission": (RemovePermission, Nothing),
    "SendMessage": (SendMessage, Sent),
    "SendMessageBatch": (SendMessageBatch, SendMessageBatchResult),
    "SetQueueAttributes": (SetQueueAttributes, Nothing),
    "StartMessageMoveTask": (StartMessageMoveTask, MoveTaskStarted),
    "TagQueue": (TagQueue, Nothing),
    "UntagQueue": (UntagQueue, Nothing),
}
