"""How a message stands; apart from `timeline`, because queries name it before one is built."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a message stands, in a group or by itself."""

    SCHEDULED = "scheduled"  # not yet due
    CANCELLED = "cancelled"
    RELEASED = "released"  # a scheduled message is in its topic
    STORED = "stored"  # no group has done anything with it
    WAITING = "waiting"  # to be delivered again
    IN_FLIGHT = "in_flight"
    ACKED = "acked"
    DEAD = "dead"  # a dead letter, or about to be one
    REDRIVEN = "redriven"  # a dead letter that is back in its topic
    EXPIRED = "expired"
    SKIPPED = "skipped"
    CONSUMED = "consumed"  # by a stream group
    RETIRED = "retired"  # removed from its log
