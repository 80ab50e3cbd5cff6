"""Receiving, and settling what was received."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

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
    from goqueue.broker.named_queues.named_queues import NamedQueue
    from goqueue.broker.queues.queues import Queues, Receiver
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd

MESSAGES_MAX = 10
WAIT_SECONDS_MAX = 20
VISIBILITY_SECONDS_MAX = 43_200
# How long a short poll waits for messages that are stored and not yet announced to the owner.
ANNOUNCED_MS_MAX = 1_000
CONSUMER = "sqs"  # of a client whose address is not known
_NOT_TO_CHANGE = "Message does not exist or is not available for visibility timeout change."


async def receive(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Received:
    body: shapes.ReceiveMessage = asked.body
    queue = await queue_of(front, asked)
    count = _check_count(body.max_number_of_messages)
    seconds = _check_visibility(body.visibility_timeout)
    wait_seconds = _check_wait(body.wait_time_seconds)
    if wait_seconds is None:
        wait_seconds = int(queue.attributes.get("ReceiveMessageWaitTimeSeconds", "0"))
    if seconds is None:
        seconds = int(queue.attributes.get("VisibilityTimeout", "30"))
    reader = _reader(front, queue, asked)
    attempt = body.receive_request_attempt_id if queue.is_ordered else None
    if attempt is not None:
        again = await _again(front, queue, attempt, seconds)
        if again is not None:
            return shapes.Received(again)
    queues = front.broker.queues
    receive_for = partial(
        _receiver, queues, queue, call, count=count, visibility_ms=visibility_ms(seconds)
    )
    receiver = receive_for(wait_seconds * SECOND_MS)
    call.on_cancel(receiver.cancel)
    received = await receiver.promise
    if not received and not wait_seconds and not queues.is_alone:
        # A message that was stored before this call may have yet to be announced to this node, or
        # may have been announced while the leaders were asked.
        is_behind = await queues.is_behind(queue.group, queue.topic)
        receiver = receive_for(ANNOUNCED_MS_MAX if is_behind else 0)
        call.on_cancel(receiver.cancel)
        received = await receiver.promise
    messages = reader.show(received)
    if attempt is not None:
        front.attempts.keep(queue.id, attempt, messages, front.now_ms())
    return shapes.Received(messages or None)


def _receiver(
    queues: Queues, queue: NamedQueue, call: Call, wait_ms: int, *, count: int, visibility_ms: int
) -> Receiver:
    return queues.receive(
        queue.group,
        queue.topic,
        consumer=call.client_host or CONSUMER,
        messages_max=count,
        wait_ms=wait_ms,
        visibility_ms=visibility_ms,
    )


async def _again(
    front: SqsFrontEnd, queue: NamedQueue, attempt: str, seconds: int
) -> list[shapes.Message] | None:
    """What an attempt of this name was given, if it is still out; it is so for longer then."""
    known = front.attempts.find(queue.id, attempt, front.now_ms())
    if known is None:
        return None
    outcomes = await front.broker.queues.extend(
        queue.group, known.receipts, visibility_ms=visibility_ms(seconds)
    )
    if any(outcomes):
        front.attempts.forget(queue.id, attempt)
        return None
    return known.messages


def _reader(front: SqsFrontEnd, queue: NamedQueue, asked: Asked) -> Reader:
    body: shapes.ReceiveMessage = asked.body
    names = {*(body.attribute_names or ()), *(body.message_system_attribute_names or ())}
    if "All" in names:
        names = set(SYSTEM_ATTRIBUTES)
    for name in sorted(names):
        if name not in SYSTEM_ATTRIBUTES:
            raise InvalidAttributeName(name)

    names_by_group: dict[str, str] = {}

    def source_arn(group: str) -> str | None:
        """The queue of a group; there is none where a group has died of another protocol."""
        if not names_by_group:
            names_by_group.update((one.group, one.name) for one in front.broker.named_queues.all())
        name = names_by_group.get(group)
        return None if name is None else asked.site.arn_of(name)

    topic_id = front.broker.topics.get(queue.topic).id
    wanted = body.message_attribute_names or ()
    return Reader(topic_id, queue.is_ordered, names, wanted, source_arn, asked.site.account)


# Settling


async def delete(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    queue = await queue_of(front, asked)
    receipt = _check_receipt(asked.body.receipt_handle)
    [outcome] = await front.broker.queues.ack(queue.group, [receipt])
    _check_deleted(outcome, receipt)
    return shapes.Nothing()


async def delete_batch(
    front: SqsFrontEnd, call: Call, asked: Asked
) -> shapes.DeleteMessageBatchResult:
    queue = await queue_of(front, asked)
    entries = check_entries(asked.body.entries, "DeleteMessageBatch")
    outcomes = await front.broker.queues.ack(
        queue.group, [one.receipt_handle or "" for one in entries]
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
    """Whether a message counts as deleted: it is, and stays so.

    Any receipt of a message of a standard queue deletes it. Where order is kept only one whose
    lease holds does: others of the group may be out by now.
    """
    if isinstance(outcome, InvalidReceipt):
        raise ReceiptHandleIsInvalid(receipt)
    if isinstance(outcome, StaleReceipt):
        raise InvalidParameterValue.of("ReceiptHandle", receipt, "The receipt handle has expired.")
    if outcome is not None:
        raise outcome


async def change_visibility(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    queue = await queue_of(front, asked)
    body: shapes.ChangeMessageVisibility = asked.body
    receipt = _check_receipt(body.receipt_handle)
    seconds = _required_visibility(body.visibility_timeout)
    [outcome] = await _change(front, queue, [receipt], seconds)
    _check_changed(outcome, receipt)
    return shapes.Nothing()


async def change_visibility_batch(
    front: SqsFrontEnd, call: Call, asked: Asked
) -> shapes.ChangeMessageVisibilityBatchResult:
    queue = await queue_of(front, asked)
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
        outcomes = await _change(front, queue, [receipt for _, receipt in chosen], seconds)
        for (entry_id, receipt), outcome in zip(chosen, outcomes, strict=True):
            try:
                _check_changed(outcome, receipt)
                done.append(shapes.Done(entry_id))
            except GoQueueError as error:
                refused.append(failed(entry_id, error))
    return shapes.ChangeMessageVisibilityBatchResult(done or None, refused or None)


async def _change(
    front: SqsFrontEnd, queue: NamedQueue, receipts: Sequence[str], seconds: int
) -> Sequence[GoQueueError | None]:
    """Keep messages for so long from now on; none at all gives them back."""
    queues = front.broker.queues
    if seconds == 0:
        return await queues.nack(queue.group, receipts, delay_ms=0)
    return await queues.extend(
        queue.group,
        receipts,
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
