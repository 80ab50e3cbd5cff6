"""Sends single messages and batches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.gate.areas.named_queues import Posted, Posting, Scope
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
    from goqueue.broker.gate.areas.named_queues import NamedQueue
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd

_TOKEN = re.compile(r"[!-~]{1,128}")
_NO_DEDUPLICATION = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)
_NOT_FOR_TYPE = "The request include parameter that is not valid for this queue type"


async def send(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Sent:
    queue = await queue_of(front, call, asked)
    terms, message = _Terms(front, queue, asked), asked.body
    draft = _draft(terms, message, _size(message), new_id(front.random), "are invalid")
    sent = await front.gate.named_queues.send(call.session, queue=queue, postings=[draft.posting])
    [result] = sent.results
    if isinstance(result, GoQueueError):
        raise result
    return shapes.Sent(
        md5_of_message_body=draft.body_digest,
        md5_of_message_attributes=draft.attributes_digest,
        md5_of_message_system_attributes=draft.system_digest,
        message_id=result.message_id,
        sequence_number=terms.sequence_number(result),
    )


async def send_batch(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.SendMessageBatchResult:
    queue = await queue_of(front, call, asked)
    entries = check_entries(asked.body.entries, "SendMessageBatch")
    sizes = [_size(one) for one in entries]
    if sum(sizes) > front.rules.message_bytes_max:
        raise BatchRequestTooLong(sum(sizes), front.rules.message_bytes_max)
    terms = _Terms(front, queue, asked)
    if terms.is_ordered:
        for one in entries:
            _check_ordered(terms, one)
    drafts: list[tuple[str, _Draft]] = []
    refused: list[shapes.Failed] = []
    ids = new_ids(front.random, len(entries))
    for one, size, message_id in zip(entries, sizes, ids, strict=True):
        assert one.id is not None
        try:
            draft = _draft(terms, one, size, message_id, "cannot be validated")
            drafts.append((one.id, draft))
        except GoQueueError as error:
            refused.append(failed(one.id, error))
    sent: list[shapes.SentEntry] = []
    if drafts:
        postings = [draft.posting for _, draft in drafts]
        stored = await front.gate.named_queues.send(call.session, queue=queue, postings=postings)
        for (entry_id, draft), result in zip(drafts, stored.results, strict=True):
            if isinstance(result, GoQueueError):
                refused.append(failed(entry_id, result))
                continue
            sent.append(
                shapes.SentEntry(
                    id=entry_id,
                    md5_of_message_body=draft.body_digest,
                    md5_of_message_attributes=draft.attributes_digest,
                    md5_of_message_system_attributes=draft.system_digest,
                    message_id=result.message_id,
                    sequence_number=terms.sequence_number(result),
                )
            )
    return shapes.SendMessageBatchResult(sent or None, refused or None)


class _Terms:
    """The rules for messages to a queue, looked up once per request."""

    __slots__ = (
        "delay_seconds",
        "delay_seconds_max",
        "has_content_ids",
        "is_ordered",
        "now_ms",
        "scope",
        "size_max",
        "trace",
    )

    def __init__(self, front: SqsFrontEnd, queue: NamedQueue, asked: Asked) -> None:
        attributes = queue.attributes
        self.is_ordered = queue.is_ordered
        self.now_ms = front.now_ms()
        self.size_max = int(attributes.get("MaximumMessageSize", front.rules.message_bytes_max))
        # A FIFO queue delays all messages equally; single messages cannot have a delay.
        self.delay_seconds = 0 if self.is_ordered else int(attributes.get("DelaySeconds", "0"))
        self.delay_seconds_max = front.rules.delay_seconds_max
        self.has_content_ids = attributes.get("ContentBasedDeduplication") == "true"
        is_by_group = attributes.get("DeduplicationScope") == "messageGroup"
        self.trace = asked.trace  # for all messages without their own
        self.scope: Scope = "key" if is_by_group else "queue"

    def sequence_number(self, posted: Posted) -> str | None:
        if not self.is_ordered or posted.sequence is None:
            return None
        return sequence_number(posted.sequence)


def _check_ordered(terms: _Terms, message: Outgoing) -> None:
    """Refuse the whole batch if one entry lacks what FIFO queues require, as SQS does."""
    if message.message_group_id is None:
        raise InvalidParameterValue(str(MissingParameter("MessageGroupId")))
    if message.message_deduplication_id is None and not terms.has_content_ids:
        raise InvalidParameterValue(_NO_DEDUPLICATION)


class _Draft(NamedTuple):
    """A valid message, and the digests that its sender verifies."""

    posting: Posting
    body_digest: str
    attributes_digest: str | None
    system_digest: str | None


def _draft(terms: _Terms, message: Outgoing, size: int, message_id: str, too_long: str) -> _Draft:
    """Convert a message to its stored form; raise if SQS would not accept it."""
    if not message.message_body:
        raise MissingParameter("MessageBody")
    body = encode_text(message.message_body)
    attributes, system = message.message_attributes, message.message_system_attributes
    check_attributes(attributes)
    if size > terms.size_max:
        raise InvalidParameterValue(
            f"One or more parameters {too_long}. Reason: Message must be shorter than "
            f"{terms.size_max} bytes."
        )
    trace = check_trace(system) if system else terms.trace
    delay_seconds = _delay_seconds(terms, message)
    key = _check_token("MessageGroupId", message.message_group_id)
    if terms.is_ordered and key is None:
        raise MissingParameter("MessageGroupId")
    sent_ms = terms.now_ms if delay_seconds else None
    headers = to_headers(attributes, trace, sent_ms)
    return _Draft(
        Posting(
            Record(None if key is None else key.encode(), body, headers),
            message_id,
            delay_seconds * SECOND_MS,
            _deduplication_id(terms, message, body),
            terms.scope,
        ),
        digests.of_body(body),
        digests.of_attributes(attributes) if attributes else None,
        digests.of_attributes(system) if system else None,
    )


def _size(message: Outgoing) -> int:
    """The size of a message: its body, and the names, types and values of attributes."""
    size = _length(message.message_body or "")
    for name, one in (message.message_attributes or {}).items():
        size += len(name) + len(one.data_type or "")
        size += len(one.binary_value) if one.binary_value else _length(one.string_value or "")
    return size


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _delay_seconds(terms: _Terms, message: Outgoing) -> int:
    """The delay of a single message."""
    asked = message.delay_seconds
    if asked is None:
        return terms.delay_seconds
    most = terms.delay_seconds_max
    if not 0 <= asked <= most:
        raise InvalidParameterValue.of(
            "DelaySeconds", asked, f"DelaySeconds must be >= 0 and <= {most}."
        )
    if terms.is_ordered and asked:
        raise InvalidParameterValue.of("DelaySeconds", asked, f"{_NOT_FOR_TYPE}.")
    return asked


def _deduplication_id(terms: _Terms, message: Outgoing, body: bytes) -> str | None:
    given = _check_token("MessageDeduplicationId", message.message_deduplication_id)
    if not terms.is_ordered:
        if given is not None:
            raise InvalidParameterValue.of("MessageDeduplicationId", given, _NOT_FOR_TYPE)
        return None
    if given is not None:
        return given
    if not terms.has_content_ids:
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
