"""Ids of topics, which newer versions of the protocol use instead of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd


def find_name(front: FrontEnd, call: Call, topic_id: bytes) -> str | None:
    """The name of a topic, if there is one with this id."""
    topic = front.broker.topics.find_by_id(topic_id)
    return None if topic is None else topic.name


def find_id(front: FrontEnd, call: Call, name: str) -> bytes | None:
    """The id of a topic, if there is one with this name."""
    topic = front.broker.topics.find(name)
    return None if topic is None else topic.id
