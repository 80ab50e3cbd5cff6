"""Finds the queue of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.wire.sqs.errors import MissingParameter, QueueDoesNotExist, ResourceNotFound

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.named_queues import NamedQueue
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd


async def queue_of(front: SqsFrontEnd, call: Call, asked: Asked) -> NamedQueue:
    """The queue of a request, including one that another node has just created."""
    return await named(front, call, asked.site.name_of_url(asked.body.queue_url))


async def named(front: SqsFrontEnd, call: Call, name: str) -> NamedQueue:
    queues = front.gate.named_queues
    queue = queues.find(call.session, name=name)
    if queue is None:
        queue = await queues.find_latest(call.session, name=name)
    if queue is None:
        raise QueueDoesNotExist
    return queue


async def of_arn(front: SqsFrontEnd, call: Call, asked: Asked, arn: str | None) -> NamedQueue:
    """The queue of an ARN."""
    if not arn:
        raise MissingParameter("SourceArn")
    name = asked.site.name_of_arn(arn)
    queue = None
    if name is not None:
        queue = await front.gate.named_queues.find_latest(call.session, name=name)
    if queue is None:
        raise ResourceNotFound(
            "The resource that you specified for the SourceArn parameter doesn't exist."
        )
    return queue
