"""Topic ids, which newer versions of the protocol use instead of names.

A topic that a client may not describe is treated as one that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.model.errors import AccessDenied, UnknownTopicId

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd


def find_name(front: FrontEnd, call: Call, topic_id: bytes) -> str | None:
    """The name of the topic with this id, if it exists and the client may see it."""
    try:
        return front.gate.topics.get_by_id(call.session, topic_id=topic_id).name
    except UnknownTopicId:
        return None


def find_id(front: FrontEnd, call: Call, name: str) -> bytes | None:
    """The id of the topic with this name, if it exists and the client may see it."""
    try:
        topic = front.gate.topics.find(call.session, topic=name)
    except AccessDenied:
        return None
    return None if topic is None else topic.id
