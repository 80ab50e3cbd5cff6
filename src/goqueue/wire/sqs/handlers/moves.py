"""Message move tasks: move messages back from a dead-letter queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.named_queues import TARGET_GONE
from goqueue.model.errors import RedriveActive, RedriveEnded, UnknownRedrive
from goqueue.wire.sqs import shapes
from goqueue.wire.sqs.errors import (
    InvalidParameterValue,
    QueueDoesNotExist,
    ResourceNotFound,
    UnsupportedOperation,
)
from goqueue.wire.sqs.handlers.finding import of_arn
from goqueue.wire.sqs.policies import RedrivePolicy
from goqueue.wire.sqs.task_handles import read_handle, write_handle

if TYPE_CHECKING:
    from goqueue.broker.gate.areas.named_queues import Move
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd
    from goqueue.wire.sqs.names import Site

RATE_MAX = 500
RESULTS_MAX = 10
_REASONS = {TARGET_GONE: QueueDoesNotExist.query_name}
_STATUSES = {
    "running": "RUNNING",
    "cancelling": "CANCELLING",
    "done": "COMPLETED",
    "cancelled": "CANCELLED",
    "failed": "FAILED",
}


async def start(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.MoveTaskStarted:
    body: shapes.StartMessageMoveTask = asked.body
    queues = front.gate.named_queues
    source = await of_arn(front, call, asked, body.source_arn)
    rate = body.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise InvalidParameterValue.of(
            "MaxNumberOfMessagesPerSecond", rate, f"Must be between 1 and {RATE_MAX}, if provided."
        )
    if not await _is_dead_letter_queue(front, call, source.name):
        raise InvalidParameterValue("Source queue must be configured as a Dead Letter Queue.")
    target = ""
    if body.destination_arn:
        target = asked.site.name_of_arn(body.destination_arn) or ""
        found = await queues.find_latest(call.session, name=target) if target else None
        if found is None:
            raise ResourceNotFound(
                "The resource that you specified for the DestinationArn parameter doesn't exist."
            )
    try:
        job = await queues.move(call.session, queue=source, target=target, rate_per_s=rate)
    except RedriveActive:
        raise InvalidParameterValue(
            "There is already a task running. Only one active task is allowed for a source queue "
            "arn at a given time."
        ) from None
    return shapes.MoveTaskStarted(write_handle(str(body.source_arn), job.id))


async def _is_dead_letter_queue(front: SqsFrontEnd, call: Call, name: str) -> bool:
    for one in await front.gate.named_queues.list(call.session):
        policy = RedrivePolicy.read(one.attributes.get("RedrivePolicy", ""))
        if policy is not None and policy.target == name:
            return True
    return False


async def list_tasks(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.MoveTasks:
    body: shapes.ListMessageMoveTasks = asked.body
    source = await of_arn(front, call, asked, body.source_arn)
    count = 1 if body.max_results is None else body.max_results
    if not 1 <= count <= RESULTS_MAX:
        raise InvalidParameterValue.of(
            "MaxResults", count, f"Must be between 1 and {RESULTS_MAX}, if provided."
        )
    jobs = (await front.gate.named_queues.moves(call.session, queue=source))[:count]
    return shapes.MoveTasks([_show(job, str(body.source_arn), asked.site) for job in jobs] or None)


async def cancel(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.MoveTaskCancelled:
    source_arn, job_id = read_handle(asked.body.task_handle)
    source = await of_arn(front, call, asked, source_arn)
    try:
        job = await front.gate.named_queues.cancel_move(call.session, queue=source, move_id=job_id)
    except UnknownRedrive:
        raise ResourceNotFound("Task does not exist.") from None
    except RedriveEnded:
        raise UnsupportedOperation("Only active tasks can be cancelled.") from None
    return shapes.MoveTaskCancelled(job.moved)


def _show(job: Move, source_arn: str, site: Site) -> shapes.MoveTask:
    return shapes.MoveTask(
        # Only a running task can be cancelled, so only such a task has a handle.
        task_handle=write_handle(source_arn, job.id) if job.state == "running" else None,
        status=_STATUSES[job.state],
        source_arn=source_arn,
        destination_arn=site.arn_of(job.target) if job.target else None,
        max_number_of_messages_per_second=job.rate_per_s,
        approximate_number_of_messages_moved=job.moved,
        approximate_number_of_messages_to_move=job.wanted,
        failure_reason=_REASONS.get(job.problem, job.problem) or None,
        started_timestamp=job.created_ms,
    )
