"""What can be set for topics and for queue groups, with the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
from msgspec import UNSET

from goqueue.broker.gate.areas.queues import QueueSettings
from goqueue.broker.gate.areas.topics import TOPIC_SETTINGS
from goqueue.wire.http.handlers.topics import typed
from goqueue.wire.http.overviews.inspection_bodies import Setting, Settings

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

_OF_GROUPS = {
    "visibility_ms": "How long a message is leased to a consumer.",
    "deliveries_max": "Deliveries before a message becomes a dead letter; 0 is unlimited.",
    "backoff_ms": "How long a message waits before its first retry.",
    "backoff_factor": "By how much the wait grows with each retry.",
    "backoff_ms_max": "The longest wait before a retry.",
    "backoff_jitter": "The part of a wait that is random.",
    "unacked_max": "Messages in flight in the group.",
    "consumer_unacked_max": "Messages in flight at one consumer.",
    "retrying_max": "Messages of a topic that wait for a retry.",
    "parked_max": "Messages of a partition that wait for an earlier one of their key.",
    "key_order": "Deliver the messages of a key in order, one at a time.",
    "key_batches": "With key_order: deliver several messages of a key to one consumer.",
    "fair_keys": "Keys name tenants: those with fewer messages in flight come first.",
    "late_acks": "Accept an ack after the lease has expired.",
    "delay_ms": "How long messages stay invisible after they were stored.",
    "start": "Where the group begins in a topic: earliest, latest, or by_duration:PT1H.",
    "dead_letter_topic": "Where dead letters go; by default the topic with the suffix .dlq.",
    "partition_unacked_max": "Records of a partition that share consumers may hold.",
    "release_backoff": "A record that a share consumer releases waits for the backoff.",
    "lease_renewal": "Share consumers may renew their locks.",
    "error_headers": "Dead letters also have Kafka's headers __dlq.errors.*.",
    "member_session_ms": "A share consumer without heartbeats leaves the group after this time.",
    "member_heartbeat_ms": "How often share consumers send heartbeats.",
}
_KINDS: dict[Any, str] = {int: "int", float: "double", bool: "boolean", str: "string"}


def of_topics(front: FrontEnd, call: Call, _: object) -> Settings:
    layers = front.gate.configs.topic_defaults(call.session)
    defaults = typed({name: layers.value(name) for name in TOPIC_SETTINGS})
    return Settings(
        settings=[
            Setting(
                name=one.name,
                kind=one.kind,
                default=defaults.get(one.name),
                description=one.about,
                choices=list(one.choices) or UNSET,
                least=one.least if one.kind in ("int", "long", "double") else UNSET,
                most=one.most if one.kind in ("int", "long", "double") else UNSET,
            )
            for one in TOPIC_SETTINGS.values()
        ]
    )


def of_groups(front: FrontEnd, call: Call, _: object) -> Settings:
    hints = get_type_hints(QueueSettings, include_extras=True)
    return Settings(
        settings=[
            _of_group(one.name, hints[one.name], one.default)
            for one in msgspec.structs.fields(QueueSettings)
        ]
    )


def _of_group(name: str, hint: Any, default: Any) -> Setting:
    schema = msgspec.json.schema(hint)
    plain = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    return Setting(
        name=name,
        kind=_KINDS.get(plain, "string"),
        default=default,
        description=_OF_GROUPS[name],
        choices=list(schema["enum"]) if "enum" in schema else UNSET,
        least=schema.get("minimum", UNSET),
        most=schema.get("maximum", UNSET),
    )
