"""The settings of a queue group, and of the lanes of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from goqueue.delivery.durations import DURATION, duration_ms
from goqueue.model.errors import InvalidGroupSettings, UnsupportedVersion, UpgradeInProgress
from goqueue.model.support import LEVEL_MIN
from goqueue.model.tenants import NameKind, TopicName

LANE_NAMES = ("critical", "high", "normal", "low", "background")
LANE_COUNT = len(LANE_NAMES)
RECEIVE_MESSAGES_MAX = 1000
LEASE_MESSAGES_MAX = 10_000  # members that name records by offset are given whole batches
SIZES_CACHED = 500  # of leases, which share what only depends on their size
VISIBILITY_MS_MAX = 12 * 3600 * 1000
DELAY_MS_MAX = 12 * 3600 * 1000
DEAD_LETTER_SUFFIX = ".dlq"
DEFAULT_WEIGHTS = (50, 25, 15, 7, 3)

_BY_DURATION = "by_duration:"
_START = rf"^(earliest|latest|{_BY_DURATION}{DURATION})$"
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
    # Where a group begins in a topic: also "by_duration:" and an ISO 8601 duration before now.
    start: Annotated[str, NameKind.NONE, msgspec.Meta(pattern=_START)] = "earliest"
    dead_letter_topic: Annotated[TopicName, msgspec.Meta(max_length=249)] = ""  # empty: <topic>.dlq
    # For members of a share group only.
    partition_unacked_max: Annotated[int, msgspec.Meta(ge=100, le=LEASE_MESSAGES_MAX)] = 2000
    release_backoff: bool = False  # a released record waits for the backoff of a retry
    lease_renewal: bool = True  # members may extend their leases
    error_headers: bool = False  # dead letters also have the headers `__dlq.errors.*`
    member_session_ms: _Time = 45_000
    member_heartbeat_ms: _Time = 5_000

    def __post_init__(self) -> None:
        if self.fair_keys and self.key_order:
            raise ValueError(
                "fair_keys lets messages overtake each other, and key_order keeps them in "
                "order; choose one of the two"
            )
        if self.member_heartbeat_ms >= self.member_session_ms:
            raise ValueError("member_heartbeat_ms must be below member_session_ms")

    def at_level(self, level: int) -> dict[str, Any]:
        """Return the settings as a node of this feature level expects them, and as it stores them.

        Later settings are left out at their defaults, and the others never are: a group keeps what
        was the default when it was created. Raise UpgradeInProgress if the level is too low.
        """
        if self.level > level:
            raise UpgradeInProgress(
                f"These settings of a queue group need feature level {self.level}; retry when the "
                "upgrade of the cluster is finalized (goqueue cluster upgrade)."
            )
        return {
            name: value
            for name, value in msgspec.structs.asdict(self).items()
            if name not in _SINCE_LEVEL_3 or value != _DEFAULTS[name]
        }

    @property
    def level(self) -> int:
        """The feature level that a cluster needs to have a group with these settings."""
        is_later = any(getattr(self, name) != _DEFAULTS[name] for name in _SINCE_LEVEL_3)
        return 3 if is_later or self.start_before_ms is not None else LEVEL_MIN

    @property
    def start_before_ms(self) -> int | None:
        """How long before now a group begins in a topic; None if it begins at an edge."""
        _, _, duration = self.start.partition(":")
        return duration_ms(duration) if duration else None

    def dead_letter_topic_of(self, topic: str) -> str:
        return self.dead_letter_topic or topic + DEAD_LETTER_SUFFIX


# Older nodes refuse a group with settings that they do not know.
_SINCE_LEVEL_3 = frozenset(
    {
        "partition_unacked_max",
        "release_backoff",
        "lease_renewal",
        "error_headers",
        "member_session_ms",
        "member_heartbeat_ms",
    }
)
_DEFAULTS = msgspec.structs.asdict(QueueSettings())


def level_of_changes(changes: Mapping[str, Any]) -> int:
    """Return the feature level that a node must support to be asked for these changes."""
    start = changes.get("start")
    is_later = isinstance(start, str) and start.startswith(_BY_DURATION)
    return 3 if is_later or _SINCE_LEVEL_3 & changes.keys() else LEVEL_MIN


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
        problem = str(error)
        if "matching regex" in problem:  # which only `start` has
            where = problem[problem.rindex(" - at ") :]
            problem = f"Expected one of earliest, latest, by_duration:PT1H{where}"
        refused = InvalidGroupSettings(f"The group settings are not valid: {problem}.")
        refused.problem = problem
        raise refused from error


def stored_queue_settings(group: str, values: Mapping[str, Any]) -> QueueSettings:
    """Convert the settings of a group as another node, or another release, has stored them.

    A group whose settings were ignored in part could break an order or lose a delivery limit, so a
    node that does not know all of them cannot follow its cluster.
    """
    try:
        return check_queue_settings(dict(values))
    except InvalidGroupSettings as error:
        raise UnsupportedVersion(
            f"The stored settings of the queue group {group!r} cannot be used by this node: "
            f"{error.problem}. A later release has written them; upgrade this node."
        ) from error


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
