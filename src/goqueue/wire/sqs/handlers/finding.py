"""Which queue a request means, and which node must answer it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from goqueue.wire.sqs.errors import MissingParameter, QueueDoesNotExist, ResourceNotFound
from goqueue.wire.sqs.queue_attributes import ALL, COUNTS
from goqueue.wire.sqs.task_handles import read_handle

if TYPE_CHECKING:
    from goqueue.broker.named_queues.named_queues import NamedQueue
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd

Owner = int | Coroutine[Any, Any, int | None] | None


async def queue_of(front: SqsFrontEnd, asked: Asked) -> NamedQueue:
    """The queue of a request; also one that another node has made a moment ago."""
    return await named(front, asked.site.name_of_url(asked.body.queue_url))


async def named(front: SqsFrontEnd, name: str) -> NamedQueue:
    queues = front.broker.named_queues
    queue = queues.find(name) or await queues.find_surely(name)
    if queue is None:
        raise QueueDoesNotExist
    return queue


async def of_arn(front: SqsFrontEnd, asked: Asked, arn: str | None) -> NamedQueue:
    """The queue that an ARN means."""
    if not arn:
        raise MissingParameter("SourceArn")
    name = asked.site.name_of_arn(arn)
    queue = None if name is None else await front.broker.named_queues.find_surely(name)
    if queue is None:
        raise ResourceNotFound(
            "The resource that you specified for the SourceArn parameter doesn't exist."
        )
    return queue


# Owners


def of_name(front: SqsFrontEnd, call: Call, asked: Asked) -> Owner:
    """Who can make a queue; any node can say that it has no name."""
    name = asked.body.queue_name
    return front.broker.named_queues.maker_of(name) if name else None


def of_deleted(front: SqsFrontEnd, call: Call, asked: Asked) -> Owner:
    """Any node deletes a queue; where names rest, the one that makes queues must know of it."""
    if not front.rules.has_resting_names:
        return None
    return front.broker.named_queues.maker_of(asked.site.name_of_url(asked.body.queue_url))


def of_messages(front: SqsFrontEnd, call: Call, asked: Asked) -> Owner:
    """Who has the leases of a queue."""
    queues = front.broker.named_queues
    queue = queues.find(asked.site.name_of_url(asked.body.queue_url))
    return _of_late(front, asked) if queue is None else queues.owner_of(queue)


async def _of_late(front: SqsFrontEnd, asked: Asked) -> int:
    return front.broker.named_queues.owner_of(await queue_of(front, asked))


def of_sending(front: SqsFrontEnd, call: Call, asked: Asked) -> Owner:
    """Any node stores messages; what must not be stored twice is decided by one."""
    queue = front.broker.named_queues.find(asked.site.name_of_url(asked.body.queue_url))
    if queue is None:
        return _of_late_sending(front, asked)
    return front.broker.named_queues.owner_of(queue) if queue.is_ordered else None


async def _of_late_sending(front: SqsFrontEnd, asked: Asked) -> int | None:
    queue = await queue_of(front, asked)
    return front.broker.named_queues.owner_of(queue) if queue.is_ordered else None


def of_attributes(front: SqsFrontEnd, call: Call, asked: Asked) -> Owner:
    """Only who has the leases can count; the rest is known to all."""
    names = asked.body.attribute_names or ()
    return of_messages(front, call, asked) if {ALL, *COUNTS} & set(names) else None


async def of_source(front: SqsFrontEnd, call: Call, asked: Asked) -> int:
    """Who moves messages out of a queue."""
    return front.broker.named_queues.owner_of(await of_arn(front, asked, asked.body.source_arn))


async def of_task(front: SqsFrontEnd, call: Call, asked: Asked) -> int:
    source_arn, _ = read_handle(asked.body.task_handle)
    return front.broker.named_queues.owner_of(await of_arn(front, asked, source_arn))
