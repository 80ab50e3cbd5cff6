"""Responses about groups: settings, statistics, and the state of single messages.

The broker builds them from structs of its core, which a client cannot import; a test compares the
two sides.
"""

from __future__ import annotations

import msgspec

from goqueue.client.http.messages import Message
from goqueue.wire.http.bodies.groups import GroupMember


class StreamGroup(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="stream"):
    """A stream group: its members share the partitions and commit offsets."""

    name: str
    state: str
    epoch: int
    assignor: str
    members: tuple[GroupMember, ...]
    member_count: int = 0


class QueueGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue group: leases, retries, dead-lettering."""

    visibility_ms: int
    deliveries_max: int
    backoff_ms: int
    backoff_factor: float
    backoff_ms_max: int
    backoff_jitter: float
    unacked_max: int
    consumer_unacked_max: int
    retrying_max: int
    parked_max: int
    key_order: bool
    key_batches: bool
    fair_keys: bool
    late_acks: bool
    delay_ms: int
    start: str
    dead_letter_topic: str
    # Of share groups; earlier servers have none of them.
    partition_unacked_max: int = 2000
    release_backoff: bool = False
    lease_renewal: bool = True
    error_headers: bool = False
    member_session_ms: int = 45_000
    member_heartbeat_ms: int = 5_000


class QueueGroup(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="queue"):
    """A queue group: each message is leased to one consumer until it is acknowledged."""

    name: str
    settings: QueueGroupSettings
    topics: tuple[str, ...]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of messages since the node started."""

    delivered: int
    redelivered: int
    acked: int
    aborted: int
    nacked: int
    rejected: int
    leases_expired: int
    dead_lettered: int
    ttl_expired: int
    skipped: int


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    lane: str
    ready: int
    in_flight: int
    in_total: int
    out_total: int
    in_per_second: float
    out_per_second: float
    oldest_age_ms: int
    longest_wait_ms: int


class PartitionStats(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    ready: int
    in_flight: int
    retrying: int
    parked: int
    dead_lettering: int
    prepared: int
    delayed: int
    in_total: int
    out_total: int
    in_per_second: float
    out_per_second: float
    done_before: int
    high_watermark: int
    oldest_age_ms: int
    lanes: tuple[int, ...]


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """The backlog of a group in a topic."""

    group: str
    topic: str
    ready: int
    in_flight: int
    retrying: int
    parked: int
    dead_lettering: int
    prepared: int
    delayed: int
    totals: Totals
    lanes: tuple[LaneStats, ...]
    partitions: tuple[PartitionStats, ...]


class LaneOfTopic(msgspec.Struct, frozen=True, kw_only=True):
    lane: str
    weight: int
    stored: int
    stored_by_partition: tuple[int, ...]


class LanesOfGroup(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    lanes: tuple[LaneStats, ...]


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes of a topic: their rules, their contents, and the state of each group."""

    topic: str
    strict: bool
    starvation_ms: int
    lanes: tuple[LaneOfTopic, ...]
    groups: tuple[LanesOfGroup, ...]


class PeekedMessage(Message, frozen=True, kw_only=True):
    """A message and its state in a group."""

    priority: str
    state: str
    attempts: int
    consumer: str | None
    lease_until_ms: int | None
    due_at_ms: int | None
