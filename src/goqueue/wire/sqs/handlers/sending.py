"""Sending, one message or a batch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from goqueue.broker.named_queues import Posted, Posting
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError
from goqueue.wire.sqs import digests, shapes
from goqueue.wire.sqs.batches import check_entries, failed
from goqueue.wire.sqs.errors import BatchRequestTooLong, InvalidParameterValue, MissingParameter
from goqueue.wire.sqs.handlers.finding import queue_of
from goqueue.wire.sqs.ids import new_id, new_ids
from goqueue.wire.sqs.message_attributes import (
    check_attributes,
    check_trace,
    encode_text,
    to_headers,
)
from goqueue.wire.sqs.messages import sequence_number
from goqueue.wire.sqs.queue_attributes import SECOND_MS
from goqueue.wire.sqs.shapes import Outgoing

if TYPE_CHECKING:
    from goqueue.broker.named_queues import NamedQueue
    from goqueue.wire.http.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd

_TOKEN = re.compile(r"[!-~]{1,128}")
_NO_DEDUPLICATION = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)
_NOT_FOR_TYPE = "The request include parameter that is not valid for this queue type"


async def send(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Sent:
    queue = await queue_of(front, asked)
    draft = _draft(front, queue, asked.body, new_id(front.broker.random))
    [result] = await front.broker.named_queues.send(queue, [draft.posting])
    if isinstance(result, GoQueueError):
        raise result
    return shapes.Sent(**draft.sent(queue, result))


async def send_batch(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.SendMessageBatchResult:
    queue = await queue_of(front, asked)
    entries = check_entries(asked.body.entries, "SendMessageBatch")
    total = sum(_size(one) for one in entries)
    if total > front.rules.message_bytes_max:
        raise BatchRequestTooLong(total, front.rules.message_bytes_max)
    if queue.is_ordered:
        for one in entries:
            _check_ordered(queue, one)
    drafts: list[tuple[str, _Draft]] = []
    refused: list[shapes.Failed] = []
    ids = new_ids(front.broker.random, len(entries))
    for one, message_id in zip(entries, ids, strict=True):
        assert one.id is not None
        try:
            draft = _draft(front, queue, one, message_id, too_long="cannot be validated")
            drafts.append((one.id, draft))
        except GoQueueError as error:
            refused.append(failed(one.id, error))
    sent = []
    if drafts:
        postings = [draft.posting for _, draft in drafts]
        results = await front.broker.named_queues.send(queue, postings)
        for (entry_id, draft), result in zip(drafts, results, strict=True):
            if isinstance(result, GoQueueError):
                refused.append(failed(entry_id, result))
            else:
                sent.append(shapes.SentEntry(id=entry_id, **draft.sent(queue, result)))
    return shapes.SendMessageBatchResult(sent or None, refused or None)


def _check_ordered(queue: NamedQueue, message: Outgoing) -> None:
    """What one entry lacks to be kept in order refuses the whole batch, as SQS has it."""
    if message.message_group_id is None:
        raise InvalidParameterValue(str(MissingParameter("MessageGroupId")))
    is_told = message.message_deduplication_id is not None
    if not is_told and queue.attributes.get("ContentBasedDeduplication") != "true":
        raise InvalidParameterValue(_NO_DEDUPLICATION)


class _Draft(NamedTuple):
    """A message that is in order, and what its sender compares."""

    posting: Posting
    body_digest: str
    attributes_digest: str | None
    system_digest: str | None

    def sent(self, queue: NamedQueue, posted: Posted) -> dict[str, Any]:
        sequence = posted.sequence if queue.is_ordered else None
        return {
            "md5_of_message_body": self.body_digest,
            "md5_of_message_attributes": self.attributes_digest,
            "md5_of_message_system_attributes": self.system_digest,
            "message_id": posted.message_id,
            "sequence_number": None if sequence is None else sequence_number(sequence),
        }


def _draft(
    front: SqsFrontEnd,
    queue: NamedQueue,
    message: Outgoing,
    message_id: str,
    *,
    too_long: str = "are invalid",
) -> _Draft:
    """A message as it is stored; raise if SQS would not take it."""
    if not message.message_body:
        raise MissingParameter("MessageBody")
    body = encode_text(message.message_body)
    check_attributes(message.message_attributes)
    _check_size(front, queue, message, too_long)
    trace = check_trace(message.message_system_attributes)
    delay_seconds = _delay_seconds(front, queue, message)
    key = _check_token("MessageGroupId", message.message_group_id)
    if queue.is_ordered and key is None:
        raise MissingParameter("MessageGroupId")
    sent_ms = front.now_ms() if delay_seconds else None
    record = Record(
        None if key is None else key.encode(),
        body,
        to_headers(message.message_attributes, trace, sent_ms),
    )
    posting = Posting(
        record=record,
        message_id=message_id,
        delay_ms=delay_seconds * SECOND_MS,
        deduplication_id=_deduplication_id(queue, message, body),
        scope="key" if queue.attributes.get("DeduplicationScope") == "messageGroup" else "queue",
    )
    return _Draft(
        posting,
        digests.of_body(body),
        digests.of_attributes(message.message_attributes),
        digests.of_attributes(message.message_system_attributes),
    )


def _check_size(front: SqsFrontEnd, queue: NamedQueue, message: Outgoing, too_long: str) -> None:
    size_max = int(queue.attributes.get("MaximumMessageSize", front.rules.message_bytes_max))
    if _size(message) > size_max:
        raise InvalidParameterValue(
            f"One or more parameters {too_long}. Reason: Message must be shorter than {size_max} "
            "bytes."
        )


def _size(message: Outgoing) -> int:
    """The bytes that a message counts: its body, and the names, types and values of attributes."""
    size = _length(message.message_body or "")
    for name, one in (message.message_attributes or {}).items():
        size += len(name) + len(one.data_type or "")
        size += len(one.binary_value) if one.binary_value else _length(one.string_value or "")
    return size


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _delay_seconds(front: SqsFrontEnd, queue: NamedQueue, message: Outgoing) -> int:
    """How long a message is delayed by itself; a queue that keeps order delays all alike."""
    asked = message.delay_seconds
    if asked is None:
        return 0 if queue.is_ordered else int(queue.attributes.get("DelaySeconds", "0"))
    most = front.rules.delay_seconds_max
    if not 0 <= asked <= most:
        raise InvalidParameterValue.of(
            "DelaySeconds", asked, f"DelaySeconds must be >= 0 and <= {most}."
        )
    if queue.is_ordered and asked:
        raise InvalidParameterValue.of("DelaySeconds", asked, f"{_NOT_FOR_TYPE}.")
    return asked


def _deduplication_id(queue: NamedQueue, message: Outgoing, body: bytes) -> str | None:
    given = _check_token("MessageDeduplicationId", message.message_deduplication_id)
    if not queue.is_ordered:
        if given is not None:
            raise InvalidParameterValue.of("MessageDeduplicationId", given, _NOT_FOR_TYPE)
        return None
    if given is not None:
        return given
    if queue.attributes.get("ContentBasedDeduplication") != "true":
        raise InvalidParameterValue(_NO_DEDUPLICATION)
    return digests.of_contents(body)


def _check_token(name: str, text: str | None) -> str | None:
    if text is not None and not _TOKEN.fullmatch(text):
        raise InvalidParameterValue.of(
            name,
            text,
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        )
    return text
