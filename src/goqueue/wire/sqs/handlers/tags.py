"""Tags and permissions, which are stored with a queue and not interpreted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from goqueue.wire.sqs import shapes
from goqueue.wire.sqs.errors import InvalidParameterValue, MissingParameter, PolicyNotSupported
from goqueue.wire.sqs.handlers.finding import queue_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.sqs.dialect import Asked
    from goqueue.wire.sqs.front_end import SqsFrontEnd

TAGS_MAX = 50
KEY_LENGTH_MAX = 128
VALUE_LENGTH_MAX = 256


def check_tags(tags: Mapping[str, str]) -> None:
    for key, value in tags.items():
        if not 1 <= len(key) <= KEY_LENGTH_MAX or key.lower().startswith("aws:"):
            raise InvalidParameterValue(
                f"Tag keys must be between 1 and {KEY_LENGTH_MAX} characters in length and must "
                "not begin with aws:."
            )
        if len(value) > VALUE_LENGTH_MAX:
            raise InvalidParameterValue(
                f"Tag values must be between 0 and {VALUE_LENGTH_MAX} characters in length."
            )
    if len(tags) > TAGS_MAX:
        raise InvalidParameterValue(f"Too many tags: a queue has at most {TAGS_MAX}.")


async def tag(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    queue = await queue_of(front, call, asked)
    tags = asked.body.tags
    if not tags:
        raise MissingParameter("Tags")
    check_tags({**queue.tags, **tags})
    await front.gate.named_queues.change(call.session, queue=queue, tags=tags)
    return shapes.Nothing()


async def untag(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    queue = await queue_of(front, call, asked)
    keys = asked.body.tag_keys
    if not keys:
        raise MissingParameter("TagKeys")
    if gone := {key: None for key in keys if key in queue.tags}:
        await front.gate.named_queues.change(call.session, queue=queue, tags=gone)
    return shapes.Nothing()


async def list_tags(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.QueueTags:
    queue = await queue_of(front, call, asked)
    return shapes.QueueTags(queue.tags or None)


async def refuse_permission(front: SqsFrontEnd, call: Call, asked: Asked) -> shapes.Nothing:
    """Refuse to change the policy of a queue, which would have no effect."""
    await queue_of(front, call, asked)
    raise PolicyNotSupported
