"""Statistics of a queue, and the state of single messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

State = Literal[
    "ready", "leased", "prepared", "retrying", "parked", "dead_lettering", "done", "not_there"
]


class MessageState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one message in one group."""

    partition: int
    offset: int
    lane: str
    state: State
    attempts: int = 0  # deliveries, including the current one
    consumer: str | None = None
    until_ms: int | None = None  # when the lease expires
    due_ms: int | None = None  # when it may be delivered again


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    lane: str
    ready: int
    in_flight: int
    in_total: int
    out_total: int
    in_per_second: float  # recent rate, mostly the last ten seconds
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
    prepared: int  # of those in flight: acknowledged in a transaction that has not ended
    delayed: int  # not yet visible because of the initial delay
    in_total: int
    out_total: int
    in_per_second: float
    out_per_second: float
    done_before: int  # everything below this offset is done
    high_watermark: int
    oldest_age_ms: int
    lanes: Sequence[int]  # ready messages in each lane


class Totals(msgspec.Struct):
    """Message counts since the queue was opened."""

    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    aborted: int = 0  # acknowledged in a transaction that was then aborted
    nacked: int = 0
    rejected: int = 0
    leases_expired: int = 0
    dead_lettered: int = 0
    ttl_expired: int = 0
    skipped: int = 0


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    ready: int
    in_flight: int
    retrying: int
    parked: int
    dead_lettering: int
    prepared: int
    delayed: int
    totals: Totals
    lanes: Sequence[LaneStats]
    partitions: Sequence[PartitionStats]
