"""The settings of a queue group under the names that share groups have for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from goqueue.broker.share_groups.members import NEW_GROUP
from goqueue.delivery import QueueSettings, check_queue_settings
from goqueue.model.errors import InvalidTopicSetting

ISOLATION = "share_isolation_level"
COMMITTED_ONLY = "read_committed"


class _Fixed(NamedTuple):
    """A setting of Kafka that has one value here."""

    value: str
    reason: str


_FIXED = {
    # The lanes of a topic, which its groups share, have committed records only.
    ISOLATION: _Fixed(
        COMMITTED_ONLY,
        "a record of a transaction is delivered when that is committed, and never if it is aborted",
    ),
    "share_assignment_interval_ms": _Fixed("0", "partitions are assigned with the next heartbeat"),
    "errors_deadletterqueue_copy_record_enable": _Fixed(
        "true", "a dead letter always has the whole record"
    ),
}

_FIELDS = {
    "share_record_lock_duration_ms": "visibility_ms",
    "share_delivery_count_limit": "deliveries_max",
    "share_partition_max_record_locks": "partition_unacked_max",
    "share_renew_acknowledge_enable": "lease_renewal",
    "share_auto_offset_reset": "start",
    "share_session_timeout_ms": "member_session_ms",
    "share_heartbeat_interval_ms": "member_heartbeat_ms",
    "share_release_backoff": "release_backoff",
    "errors_deadletterqueue_topic_name": "dead_letter_topic",
}
SHARE_SETTINGS = (*_FIELDS, *_FIXED)
_BOOLEANS = {"true": True, "false": False}


def share_defaults() -> dict[str, str]:
    """Return the settings of a group that its first member creates."""
    return share_values(check_queue_settings(dict(NEW_GROUP)))


def share_values(settings: QueueSettings) -> dict[str, str]:
    """Return the settings of a queue group by the names of share groups."""
    values = {name: _text(getattr(settings, field)) for name, field in _FIELDS.items()}
    return {**values, ISOLATION: COMMITTED_ONLY}


def share_overrides(settings: QueueSettings) -> dict[str, str]:
    """Return the settings in which a group differs from a new share group."""
    defaults = share_defaults()
    return {
        name: value for name, value in share_values(settings).items() if value != defaults[name]
    }


def queue_changes(changes: Mapping[str, str | None]) -> dict[str, Any]:
    """Return changes as those of a queue group; None reverts to what a new share group has."""
    for name, fixed in _FIXED.items():
        if (changes.get(name) or fixed.value) != fixed.value:
            raise InvalidTopicSetting(f"{fixed.reason}; set {fixed.value}.", setting=name)
    new = msgspec.to_builtins(check_queue_settings(dict(NEW_GROUP)))
    fields = {name: field for name, field in _FIELDS.items() if name in changes}
    return {
        field: new[field] if (value := changes[name]) is None else _parsed(name, value, new[field])
        for name, field in fields.items()
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(name: str, value: str, like: object) -> str | bool | int:
    if isinstance(like, bool):
        if value not in _BOOLEANS:
            raise InvalidTopicSetting(f"{value[:100]!r} is not true or false.", setting=name)
        return _BOOLEANS[value]
    if isinstance(like, int):
        if not (value.isascii() and value.isdecimal() and len(value) < 20):
            raise InvalidTopicSetting(f"{value[:100]!r} is not a number.", setting=name)
        return int(value)
    return value
