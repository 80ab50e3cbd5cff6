"""The settings of a queue group, and of the lanes of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from goqueue.model.errors import InvalidGroupSettings
from goqueue.model.tenants import TopicName

LANE_NAMES = ("critical", "high", "normal", "low", "background")
LANE_COUNT = len(LANE_NAMES)
RECEIVE_MESSAGES_MAX = 1000
VISIBILITY_MS_MAX = 12 * 3600 * 1000
DELAY_MS_MAX = 12 * 3600 * 1000
DEAD_LETTER_SUFFIX = ".dlq"
DEFAULT_WEIGHTS = (50, 25, 15, 7, 3)

_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Time = Annotated[int, msgspec.Meta(ge=1, le=VISIBILITY_MS_MAX)]


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a group leases, retries and dead-letters messages."""

    visibility_ms: _Time = 30_000  # long enough for a slow handler, short enough to see a crash
    deliveries_max: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3  # 0: without limit
    backoff_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)] = 1000
    backoff_factor: Annotated[float, msgspec.Meta(ge=1.0, le=10.0)] = 2.0
    backoff_ms_max: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)] = 60_000
    backoff_jitter: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.2
    unacked_max: _Count = 100_000  # messages in flight in the group
    consumer_unacked_max: _Count = 10_000
    retrying_max: _Count = 100_000  # messages waiting for a retry, per topic
    parked_max: _Count = 1000  # messages waiting for an earlier one of their key, per partition
    key_order: bool = False
    # With `key_order`: one receive may take several messages of a key, in order. The key is then
    # busy until all of them are settled.
    key_batches: bool = False
    # Without `key_order`: keys name tenants, and while one has much in flight the messages of
    # others go first, whatever their lanes.
    fair_keys: bool = False
    # An ack after the lease has expired counts, unless the message was delivered again. Until
    # then the lease can also be extended.
    late_acks: bool = False
    # How long messages stay invisible after they were stored.
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)] = 0
    start: Literal["earliest", "latest"] = "earliest"
    dead_letter_topic: Annotated[TopicName, msgspec.Meta(max_length=249)] = ""  # empty: <topic>.dlq

    def __post_init__(self) -> None:
        if self.fair_keys and self.key_order:
            raise ValueError(
                "fair_keys lets messages overtake each other, and key_order keeps them in "
                "order; choose one of the two"
            )

    def dead_letter_topic_of(self, topic: str) -> str:
        return self.dead_letter_topic or topic + DEAD_LETTER_SUFFIX


class LaneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the lanes of a topic share its consumers."""

    weights: tuple[int, ...] = DEFAULT_WEIGHTS
    is_strict: bool = False
    starvation_ms: int = 30_000

    def __post_init__(self) -> None:
        if len(self.weights) != LANE_COUNT or not all(1 <= one <= 1000 for one in self.weights):
            raise InvalidGroupSettings(
                f"Lanes need {LANE_COUNT} weights from 1 to 1000: {', '.join(LANE_NAMES)}."
            )
        if self.starvation_ms < 1:
            raise InvalidGroupSettings("The starvation bound of lanes is at least 1 ms.")


def check_queue_settings(values: dict[str, Any]) -> QueueSettings:
    """Convert and check settings; raise an error with the wrong one and its allowed values."""
    try:
        return msgspec.convert(values, QueueSettings)
    except msgspec.ValidationError as error:
        refused = InvalidGroupSettings(f"The group settings are not valid: {error}.")
        refused.problem = str(error)
        raise refused from error


def change_queue_settings(known: Mapping[str, Any], changes: Mapping[str, Any]) -> QueueSettings:
    """Apply changes to settings; a setting changed to None gets its default again."""
    fields = QueueSettings.__struct_fields__
    values = {
        name: value
        for name, value in {**known, **changes}.items()
        # Keep unknown names, whatever their values, so that the check reports them.
        if value is not None or name not in fields
    }
    return check_queue_settings(values)
