"""The table of actions and their handlers."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from goqueue.wire.carrier.routing import Handler, Operation
from goqueue.wire.sqs.handlers import moves, queues, receiving, sending, tags

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd


def _action(name: str, handler: Handler, summary: str, *, is_waiting: bool = False) -> Operation:
    return Operation(
        name, "POST", f"/{name}", _of_account(handler), summary, area="sqs", is_waiting=is_waiting
    )


def _of_account(handler: Handler) -> Handler:
    """Return the handler with the account of the caller's tenant in all URLs and ARNs."""

    @wraps(handler)
    def handle(front: SqsFrontEnd, call: Call, asked: Asked) -> Any:
        if call.session.tenant:
            account = front.gate.tenants.account(call.session)
            site = asked.site._replace(account=account, is_of_tenant=True)
            asked = replace(asked, site=site)
        return handler(front, call, asked)

    return handle


OPERATIONS = (
    _action("CreateQueue", queues.create, "Make a queue."),
    _action("DeleteQueue", queues.delete, "Delete a queue."),
    _action("GetQueueUrl", queues.url, "Find a queue by name."),
    _action("ListQueues", queues.list_all, "List queues."),
    _action("ListDeadLetterSourceQueues", queues.list_sources, "List who sends dead letters."),
    _action("PurgeQueue", queues.purge, "Delete all messages."),
    _action("GetQueueAttributes", queues.get_attributes, "Show attributes."),
    _action("SetQueueAttributes", queues.set_attributes, "Change attributes."),
    _action("TagQueue", tags.tag, "Add tags."),
    _action("UntagQueue", tags.untag, "Take tags away."),
    _action("ListQueueTags", tags.list_tags, "List tags."),
    _action("AddPermission", tags.refuse_permission, "Not supported."),
    _action("RemovePermission", tags.refuse_permission, "Not supported."),
    _action("SendMessage", sending.send, "Send a message."),
    _action("SendMessageBatch", sending.send_batch, "Send messages."),
    _action("ReceiveMessage", receiving.receive, "Receive messages.", is_waiting=True),
    _action("DeleteMessage", receiving.delete, "Delete a message."),
    _action("DeleteMessageBatch", receiving.delete_batch, "Delete messages."),
    _action("ChangeMessageVisibility", receiving.change_visibility, "Hold a message."),
    _action("ChangeMessageVisibilityBatch", receiving.change_visibility_batch, "Hold messages."),
    _action("StartMessageMoveTask", moves.start, "Begin to move."),
    _action("ListMessageMoveTasks", moves.list_tasks, "List moves."),
    _action("CancelMessageMoveTask", moves.cancel, "End a move."),
)
