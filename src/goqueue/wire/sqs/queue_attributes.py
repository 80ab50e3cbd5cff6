"""The attributes of queues: validation, and the settings they are mapped to.

All attributes are stored with the queue as text, with defaults filled in, so that clients read what
is in effect. Visibility, redrive and order become settings of the queue's group, and retention a
setting of its topic; the others are applied by each call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from goqueue.wire.sqs.errors import (
    InvalidAttributeName,
    InvalidAttributeValue,
    PolicyNotSupported,
)
from goqueue.wire.sqs.front_end import SqsRules
from goqueue.wire.sqs.policies import RedrivePolicy, normal_allow_policy

TOPIC = "GoQueueTopic"
FIFO = "FifoQueue"
ALL = "All"
SECOND_MS = 1000
# No message is withheld because of others in flight: what SQS limits is limited by memory here.
OUT_MAX = 1_000_000
PARKED_MAX = 120_000  # messages of a partition that wait behind others of their message group
RECORD_OVERHEAD_BYTES = 64 << 10  # what names, types and our own headers add to a message
DELIVERIES_UNLIMITED = 0


class Whole(NamedTuple):
    """An integer within a range."""

    least: int
    most: int

    def accepts(self, text: str) -> bool:
        is_number = bool(re.fullmatch(r"[0-9]{1,12}", text))
        return is_number and self.least <= int(text) <= self.most


class Word(NamedTuple):
    """One of several words."""

    words: tuple[str, ...]

    def accepts(self, text: str) -> bool:
        return text in self.words


_TRUTH = Word(("true", "false"))
_SETTABLE: dict[str, Whole | Word] = {
    "DelaySeconds": Whole(0, 900),
    "MaximumMessageSize": Whole(1024, 1 << 20),
    "MessageRetentionPeriod": Whole(60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": Whole(0, 20),
    "VisibilityTimeout": Whole(0, 43_200),
    "KmsDataKeyReusePeriodSeconds": Whole(60, 86_400),
    "SqsManagedSseEnabled": _TRUTH,
}
_SETTABLE_FIFO: dict[str, Whole | Word] = {
    "ContentBasedDeduplication": _TRUTH,
    "DeduplicationScope": Word(("queue", "messageGroup")),
    "FifoThroughputLimit": Word(("perQueue", "perMessageGroupId")),
}
# Attributes that may be set to the empty text, which removes them.
_CLEARABLE = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId")
_DEFAULTS = {
    "DelaySeconds": "0",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "VisibilityTimeout": "30",
    "SqsManagedSseEnabled": "true",
}
_DEFAULTS_FIFO = {
    FIFO: "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_TOLD_ONLY = (*COUNTS, "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn")
READABLE = frozenset({ALL, TOPIC, FIFO, *_SETTABLE, *_SETTABLE_FIFO, *_CLEARABLE, *_TOLD_ONLY})


def is_fifo(attributes: Mapping[str, str]) -> bool:
    return attributes.get(FIFO, "").lower() == "true"


def check_attributes(
    given: Mapping[str, str], rules: SqsRules, *, is_of_fifo: bool, is_new: bool
) -> dict[str, str]:
    """Validate the attributes that a client sets; return them as they are stored.

    Removed ones are empty.
    """
    checked = {}
    for name, text in given.items():
        if name == FIFO:
            _check_kind(text.lower(), is_of_fifo=is_of_fifo)
            checked[name] = "true"
        elif name == TOPIC and is_new:
            checked[name] = text
        elif name in _CLEARABLE:
            checked[name] = _normal_policy(name, text)
        else:
            checked[name] = _check_one(name, text, rules, is_of_fifo=is_of_fifo)
    _check_encryption(checked)
    return checked


def _check_encryption(checked: dict[str, str]) -> None:
    """Let one kind of encryption replace the other."""
    is_managed = checked.get("SqsManagedSseEnabled") == "true"
    if checked.get("KmsMasterKeyId"):
        if is_managed:
            raise InvalidAttributeName(
                "SqsManagedSseEnabled",
                "You can use one type of server-side encryption (SSE) at one time. You can either "
                "enable KMS SSE or SQS SSE.",
            )
        checked.setdefault("SqsManagedSseEnabled", "false")
    elif is_managed:
        checked.setdefault("KmsMasterKeyId", "")


def _check_kind(text: str, *, is_of_fifo: bool) -> None:
    """Refuse to change whether a queue is FIFO; standard queues do not have the attribute."""
    if not is_of_fifo:
        raise InvalidAttributeName(FIFO)
    if text != "true":
        raise InvalidAttributeValue(FIFO, "Modifying queue type is not supported.")


def with_defaults(checked: Mapping[str, str], rules: SqsRules) -> dict[str, str]:
    """All attributes of a new queue."""
    defaults = dict(_DEFAULTS, MaximumMessageSize=str(rules.message_bytes_max))
    if is_fifo(checked):
        defaults.update(_DEFAULTS_FIFO)
    every = {**defaults, **checked}
    return {name: text for name, text in every.items() if text and name != TOPIC}


def check_together(attributes: Mapping[str, str]) -> None:
    """Raise if attributes that are valid by themselves contradict each other."""
    limit = attributes.get("FifoThroughputLimit")
    if limit == "perMessageGroupId" and attributes.get("DeduplicationScope") != "messageGroup":
        raise InvalidAttributeValue(
            "FifoThroughputLimit", "perMessageGroupId needs DeduplicationScope messageGroup."
        )


def queue_settings(attributes: Mapping[str, str], dead_letter_topic: str) -> dict[str, Any]:
    """The settings of the queue's group. `dead_letter_topic` is that of the redrive policy."""
    policy = RedrivePolicy.read(attributes.get("RedrivePolicy", ""))
    return {
        "visibility_ms": visibility_ms(int(attributes["VisibilityTimeout"])),
        "deliveries_max": DELIVERIES_UNLIMITED if policy is None else policy.receive_count_max,
        "dead_letter_topic": dead_letter_topic,
        # A message whose visibility timeout has passed is available again at once.
        "backoff_ms": 0,
        "backoff_ms_max": 0,
        "backoff_jitter": 0.0,
        "unacked_max": OUT_MAX,
        "consumer_unacked_max": OUT_MAX,
        "retrying_max": OUT_MAX,
        "parked_max": PARKED_MAX,
        "key_order": is_fifo(attributes),
        "key_batches": is_fifo(attributes),
        "fair_keys": not is_fifo(attributes),
        # Delays of single messages would break their order.
        "delay_ms": int(attributes["DelaySeconds"]) * SECOND_MS if is_fifo(attributes) else 0,
        "late_acks": not is_fifo(attributes),
    }


def topic_settings(attributes: Mapping[str, str], rules: SqsRules) -> dict[str, str]:
    """The settings of a topic that belongs to the queue."""
    return {
        "retention_ms": str(int(attributes["MessageRetentionPeriod"]) * SECOND_MS),
        "max_message_bytes": str(rules.message_bytes_max + RECORD_OVERHEAD_BYTES),
    }


def visibility_ms(seconds: int) -> int:
    """Convert to a lease duration; 0 seconds becomes the shortest one."""
    return max(1, seconds * SECOND_MS)


def _check_one(name: str, text: str, rules: SqsRules, *, is_of_fifo: bool) -> str:
    rule = _SETTABLE.get(name)
    if rule is None and is_of_fifo:
        rule = _SETTABLE_FIFO.get(name)
    if rule is None and name in ("DeduplicationScope", "FifoThroughputLimit"):
        raise InvalidAttributeName(
            name, f"You can specify the {name} only when FifoQueue is set to true."
        )
    if rule is None:
        raise InvalidAttributeName(name)
    if rule is _TRUTH:
        text = text.lower()
    if name == "DelaySeconds" and not is_of_fifo:
        rule = Whole(0, rules.delay_seconds_max)
    elif name == "MaximumMessageSize":
        rule = Whole(1024, max(1 << 20, rules.message_bytes_max))
    if not rule.accepts(text):
        raise InvalidAttributeValue(name)
    return str(int(text)) if isinstance(rule, Whole) else text


def _normal_policy(name: str, text: str) -> str:
    if not text:
        return ""
    if name == "RedrivePolicy":
        return RedrivePolicy.parse(text).text
    if name == "RedriveAllowPolicy":
        return normal_allow_policy(text)
    if name == "Policy":
        raise PolicyNotSupported
    return text
