"""The nouns that every room shares: offsets, topics, partitions."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

import msgspec

from goqueue.model.errors import InvalidTopicName
from goqueue.model.tenants import TopicName

Offset = NewType("Offset", int)

# Internal topics.
OFFSETS_TOPIC = "__consumer_offsets"
SCHEDULED_TOPIC = "__scheduled"
DELIVERY_TOPIC = "__delivery"
TRANSACTION_TOPIC = "__transaction_state"
SCHEMAS_TOPIC = "__schemas"
AUDIT_TOPIC = "__audit"
JOURNEYS_TOPIC = "__journeys"
INTERNAL_TOPICS = frozenset(
    {
        OFFSETS_TOPIC,
        SCHEDULED_TOPIC,
        DELIVERY_TOPIC,
        TRANSACTION_TOPIC,
        SCHEMAS_TOPIC,
        AUDIT_TOPIC,
        JOURNEYS_TOPIC,
    }
)

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(msgspec.Struct, frozen=True, order=True, gc=False):
    """One partition. It is the key of many tables, so its hash is that of compiled code."""

    topic: TopicName
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class ProducerIdentity(NamedTuple):
    """A producer id and epoch; a higher epoch of the same id fences lower ones."""

    producer_id: int
    epoch: int


def check_topic_name(name: str) -> None:
    """Refuse a name that is not valid as a folder on every disk and in every protocol."""
    if not name or name in (".", ".."):
        raise InvalidTopicName(name, "it must not be empty, '.' or '..'")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicName(name, f"it must have at most {TOPIC_NAME_LENGTH_MAX} characters")
    if not _TOPIC_NAME.fullmatch(name):
        raise InvalidTopicName(name, "use only letters, digits, '.', '_' and '-'")


def folded_topic_name(name: str) -> str:
    """The form of a topic name in metrics, which do not distinguish "." from "_"."""
    return name.replace(".", "_")
