"""Receives messages and settles them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from goqueue.broker.gate.areas.named_queues import ReceiveAttempt
from goqueue.model.errors import GoQueueError, InvalidReceipt, LeaseTooLong, StaleReceipt
from goqueue.wire.sqs import shapes
from goqueue.wire.sqs.batches import check_entries, failed
from goqueue.wire.sqs.errors import (
    InvalidAttributeName,
    InvalidParameterValue,
    MissingParameter,
    ReceiptHandleIsInvalid,
)
from goqueue.wire.sqs.handlers.finding import queue_of
from goqueue.wire.sqs.messages import SYSTEM_ATTRIBUTES, Reader
from goqueue.wire.sqs.queue_attributes import SECOND_MS, visibility_ms

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.named_queues import NamedQueue, Outcomes
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd

MESSAGES_MAX = 10
WAIT_SECONDS_MAX = 20
VISIBILITY_SECONDS_MAX = 43_200
CONSUMER = "sqs"  # for a client whose address is unknown
_NOT_TO_CHANGE = "Message does not exist or is not available for visibility timeout change."


async def receive(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Received:
    body: shapes.ReceiveMessage = asked.body
    queue = await queue_of(front, call, asked)
    count = _check_count(body.max_number_of_messages)
    seconds = _check_visibility(body.visibility_timeout)
    wait_seconds = _check_wait(body.wait_time_seconds)
    if wait_seconds is None:
        wait_seconds = int(queue.attributes.get("ReceiveMessageWaitTimeSeconds", "0"))
    if seconds is None:
        seconds = int(queue.attributes.get("VisibilityTimeout", "30"))
    wanted, attempt = _wanted(body), None
    if queue.is_ordered and body.receive_request_attempt_id is not None:
        attempt = ReceiveAttempt(body.receive_request_attempt_id, _encode(wanted))
    topic_id, received, note = await front.gate.named_queues.receive(
        call.session,
        queue=queue,
        consumer=call.client_host or CONSUMER,
        messages_max=count,
        wait_ms=wait_seconds * SECOND_MS,
        visibility_ms=visibility_ms(seconds),
        attempt=attempt,
        cancellation=call.cancellation,
    )
    if attempt is not None:
        wanted = _decode_wanted(note)  # a retry gets the same response
    reader = Reader(
        topic_id,
        queue.is_ordered,
        wanted.system_names,
        wanted.attribute_names,
        _source_arns(front, call, asked),
        asked.site.account,
    )
    return shapes.Received(reader.show(received) or None)


class _Wanted(NamedTuple):
    """What a receive call requests with its messages."""

    system_names: set[str]
    attribute_names: Sequence[str]


_encode = msgspec.msgpack.Encoder().encode
_decode_wanted = msgspec.msgpack.Decoder(_Wanted).decode


def _wanted(body: shapes.ReceiveMessage) -> _Wanted:
    names = {*(body.attribute_names or ()), *(body.message_system_attribute_names or ())}
    if "All" in names:
        names = set(SYSTEM_ATTRIBUTES)
    for name in sorted(names):
        if name not in SYSTEM_ATTRIBUTES:
            raise InvalidAttributeName(name)
    return _Wanted(names, body.message_attribute_names or ())


def _source_arns(front: SqsFrontEnd, call: Call, asked: Asked) -> Callable[[str], str | None]:
    names_by_group: dict[str, str] = {}

    def source_arn(group: str) -> str | None:
        """The ARN of a group's queue; None for messages dead-lettered through another protocol."""
        if not names_by_group:
            names_by_group.update(front.gate.named_queues.names_by_group(call.session))
        name = names_by_group.get(group)
        return None if name is None else asked.site.arn_of(name)

    return source_arn


# Settling


async def delete(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    queue = await queue_of(front, call, asked)
    receipt = _check_receipt(asked.body.receipt_handle)
    [outcome] = await front.gate.named_queues.delete_messages(
        call.session, queue=queue, receipts=[receipt]
    )
    _check_deleted(outcome, receipt)
    return shapes.Nothing()


async def delete_batch(
    front: SqsFrontEnd, call: Call, asked: Asked
) -> shapes.DeleteMessageBatchResult:
    queue = await queue_of(front, call, asked)
    entries = check_entries(asked.body.entries, "DeleteMessageBatch")
    receipts = [one.receipt_handle or "" for one in entries]
    outcomes = await front.gate.named_queues.delete_messages(
        call.session, queue=queue, receipts=receipts
    )
    done, refused = [], []
    for one, outcome in zip(entries, outcomes, strict=True):
        assert one.id is not None
        try:
            _check_deleted(outcome, _check_receipt(one.receipt_handle))
            done.append(shapes.Done(one.id))
        except GoQueueError as error:
            refused.append(failed(one.id, error))
    return shapes.DeleteMessageBatchResult(done or None, refused or None)


def _check_deleted(outcome: GoQueueError | None, receipt: str) -> None:
    """Check whether a message counts as deleted, permanently.

    In a standard queue any receipt of a message deletes it. In a FIFO queue only a receipt with a
    valid lease does, because others of the message group may be in flight by now.
    """
    if isinstance(outcome, InvalidReceipt):
        raise ReceiptHandleIsInvalid(receipt)
    if isinstance(outcome, StaleReceipt):
        raise InvalidParameterValue.of("ReceiptHandle", receipt, "The receipt handle has expired.")
    if outcome is not None:
        raise outcome


async def change_visibility(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    queue = await queue_of(front, call, asked)
    body: shapes.ChangeMessageVisibility = asked.body
    receipt = _check_receipt(body.receipt_handle)
    seconds = _required_visibility(body.visibility_timeout)
    [outcome] = await _change(front, call, queue, [receipt], seconds)
    _check_changed(outcome, receipt)
    return shapes.Nothing()


async def change_visibility_batch(
    front: SqsFrontEnd, call: Call, asked: Asked
) -> shapes.ChangeMessageVisibilityBatchResult:
    queue = await queue_of(front, call, asked)
    entries = check_entries(asked.body.entries, "ChangeMessageVisibilityBatch")
    done, refused = [], []
    by_seconds: dict[int, list[tuple[str, str]]] = {}
    for one in entries:
        assert one.id is not None
        try:
            receipt = _check_receipt(one.receipt_handle)
            seconds = _required_visibility(one.visibility_timeout)
            by_seconds.setdefault(seconds, []).append((one.id, receipt))
        except GoQueueError as error:
            refused.append(failed(one.id, error))
    for seconds, chosen in by_seconds.items():
        outcomes = await _change(front, call, queue, [receipt for _, receipt in chosen], seconds)
        for (entry_id, receipt), outcome in zip(chosen, outcomes, strict=True):
            try:
                _check_changed(outcome, receipt)
                done.append(shapes.Done(entry_id))
            except GoQueueError as error:
                refused.append(failed(entry_id, error))
    return shapes.ChangeMessageVisibilityBatchResult(done or None, refused or None)


async def _change(
    front: SqsFrontEnd, call: Call, queue: NamedQueue, receipts: Sequence[str], seconds: int
) -> Outcomes:
    """Set the leases of messages to this duration from now; 0 seconds returns them."""
    return await front.gate.named_queues.change_visibility(
        call.session,
        queue=queue,
        receipts=receipts,
        visibility_ms=seconds * SECOND_MS,
        total_ms_max=VISIBILITY_SECONDS_MAX * SECOND_MS,
    )


def _check_changed(outcome: GoQueueError | None, receipt: str) -> None:
    if isinstance(outcome, InvalidReceipt):
        raise ReceiptHandleIsInvalid(receipt)
    if isinstance(outcome, StaleReceipt):
        raise InvalidParameterValue.of("ReceiptHandle", receipt, _NOT_TO_CHANGE)
    if isinstance(outcome, LeaseTooLong):
        raise InvalidParameterValue(
            "Total VisibilityTimeout for the message is beyond the limit "
            f"[{VISIBILITY_SECONDS_MAX} seconds]"
        )
    if outcome is not None:
        raise outcome


# Checks


def _check_receipt(receipt: str | None) -> str:
    if not receipt:
        raise MissingParameter("ReceiptHandle")
    return receipt


def _required_visibility(seconds: int | None) -> int:
    checked = _check_visibility(seconds)
    if checked is None:
        raise MissingParameter("VisibilityTimeout")
    return checked


def _check_visibility(seconds: int | None) -> int | None:
    if seconds is not None and not 0 <= seconds <= VISIBILITY_SECONDS_MAX:
        raise InvalidParameterValue.of(
            "VisibilityTimeout",
            seconds,
            f"Must be >= 0 and <= {VISIBILITY_SECONDS_MAX}, if provided.",
        )
    return seconds


def _check_wait(seconds: int | None) -> int | None:
    if seconds is not None and not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise InvalidParameterValue.of(
            "WaitTimeSeconds", seconds, f"Must be >= 0 and <= {WAIT_SECONDS_MAX}, if provided."
        )
    return seconds


def _check_count(count: int | None) -> int:
    if count is not None and not 1 <= count <= MESSAGES_MAX:
        raise InvalidParameterValue.of(
            "MaxNumberOfMessages", count, f"Must be between 1 and {MESSAGES_MAX}, if provided."
        )
    return count or 1
