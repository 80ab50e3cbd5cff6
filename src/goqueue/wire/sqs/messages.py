"""Converts records to SQS messages."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import NamedTuple
from uuid import UUID

from goqueue.broker.gate.areas.named_queues import Lease, Received
from goqueue.model.batch import Header
from goqueue.model.columns import Columns
from goqueue.model.dead_letters import read_origin
from goqueue.wire.sqs import digests
from goqueue.wire.sqs.message_attributes import ENCODING, Read, read_headers, wanted
from goqueue.wire.sqs.shapes import AttributeValue, Message
from goqueue.wire.sqs.text import decode_text

SEQUENCE_DIGITS = 20
SYSTEM_ATTRIBUTES = (
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)


@dataclass(frozen=True, slots=True)
class Reader:
    """What a receive call requests with its messages."""

    topic_id: bytes
    is_fifo: bool
    system_names: Collection[str]
    attribute_names: Collection[str]
    source_arn: Callable[[str], str | None]  # of the queue that has this group
    account: str

    def show(self, received: Received) -> list[Message]:
        """Convert the messages of a call, in order."""
        shown: list[Message] = []
        for columns, places, lease, first in received.runs:
            values = columns.values(places)
            for index, (place, value) in enumerate(zip(places, values, strict=True), first):
                shown.append(self._show(_Place(columns, place, lease, index), value))
        return shown

    def _show(self, at: _Place, value: bytes | None) -> Message:
        headers = at.columns.headers(at.place)
        read = read_headers(headers)
        body, content, is_encoded = _body(value)
        attributes: dict[str, AttributeValue] = read.attributes
        if is_encoded:
            encoding = AttributeValue(string_value="base64", data_type="String")
            attributes = {**attributes, ENCODING: encoding}
        chosen = wanted(attributes, self.attribute_names) if self.attribute_names else {}
        if is_encoded:
            chosen[ENCODING] = encoding  # The reader of the body needs it.
        return Message(
            message_id=read.message_id
            or foreign_id(self.topic_id, at.lease.partition, at.lease.offsets[at.leased]),
            receipt_handle=at.lease.head + at.lease.tails[at.leased],
            md5_of_body=digests.of_body(content),
            body=body,
            attributes=self._system(at, headers, read) if self.system_names else None,
            md5_of_message_attributes=digests.of_attributes(chosen),
            message_attributes=chosen or None,
        )

    def _system(self, at: _Place, headers: Sequence[Header], read: Read) -> dict[str, str] | None:
        sent_ms = at.columns.timestamps[at.place] if read.sent_ms is None else read.sent_ms
        origin = read_origin(headers) if headers else None
        known: dict[str, str | None] = {
            "SenderId": self.account,
            "SentTimestamp": str(sent_ms),
            # The deliveries of a dead letter before it was dead-lettered count as well.
            "ApproximateReceiveCount": str(
                at.lease.attempts[at.leased] + max(0, origin.attempts if origin is not None else 0)
            ),
            "ApproximateFirstReceiveTimestamp": str(at.lease.first_of(at.leased)),
            "AWSTraceHeader": read.trace,
        }
        [key] = at.columns.keys((at.place,))
        if key is not None:
            known["MessageGroupId"] = key.decode("utf-8", "replace")
        if self.is_fifo:
            known["SequenceNumber"] = sequence_number(at.lease.offsets[at.leased])
            known["MessageDeduplicationId"] = read.deduplication_id
        if origin is not None:
            known["DeadLetterQueueSourceArn"] = self.source_arn(origin.group)
        names = self.system_names
        shown = {name: text for name, text in known.items() if text is not None and name in names}
        return shown or None


class _Place(NamedTuple):
    """The position of a message in the columns of its batch, and its lease."""

    columns: Columns
    place: int
    lease: Lease
    leased: int


def sequence_number(offset: int) -> str:
    """A number that increases with every message of a message group, which has one partition."""
    return str(offset).zfill(SEQUENCE_DIGITS)


def foreign_id(topic_id: bytes, partition: int, offset: int) -> str:
    """A stable id for a message that was not sent over SQS."""
    place = topic_id + partition.to_bytes(4, "big") + offset.to_bytes(8, "big")
    return str(UUID(bytes=md5(place, usedforsecurity=False).digest(), version=4))


def _body(value: bytes | None) -> tuple[str, bytes, bool]:
    """The text of a message, its bytes, and whether it was encoded as base64."""
    content = value or b""
    text = decode_text(content)
    if text is not None:
        return text, content, False
    encoded = b64encode(content)
    return encoded.decode("ascii"), encoded, True
