"""The settings a topic may override: names, kinds, ranges and effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from goqueue.config import CompactionSettings, StorageSettings, TopicSettings
from goqueue.delivery.settings import DEFAULT_WEIGHTS, LANE_NAMES, LaneSettings
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidTopicSetting
from goqueue.partition import KeyFiltering, PartitionSettings
from goqueue.storage.log import LogSettings

Kind = Literal["int", "long", "double", "boolean", "string", "list"]

_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One setting: its kind, its range or choices, and its description."""

    name: str
    kind: Kind
    about: str
    least: float = 0
    most: float = _LONG_MAX
    choices: tuple[str, ...] = ()

    def check(self, text: str) -> None:
        """Raise, with the allowed values, if `text` is not one of them."""
        if self.kind in ("int", "long", "double"):
            self._check_number(text)
        elif self.kind == "list" and self.choices:
            words = [word.strip() for word in text.split(",")] if text.strip() else []
            if any(word not in self.choices for word in words):
                raise self._refusal(text)
        elif self.choices and text not in self.choices:
            raise self._refusal(text)

    def _check_number(self, text: str) -> None:
        try:
            value = float(text) if self.kind == "double" else int(text)
        except ValueError:
            raise self._refusal(text) from None
        if not self.least <= value <= self.most:
            raise self._refusal(text)

    def _refusal(self, text: str) -> InvalidTopicSetting:
        if self.choices:
            allowed = f"one of {', '.join(self.choices)}"
        else:
            allowed = f"a number from {self.least} to {self.most}"
        return InvalidTopicSetting(f"{text[:100]!r} is not {allowed}.", setting=self.name)


_BOOLEANS = ("true", "false")
_STRATEGIES = ("topic", "record", "topic-record")

TOPIC_SETTINGS: Mapping[str, TopicSetting] = {
    one.name: one
    for one in (
        TopicSetting(
            "cleanup_policy",
            "list",
            "Forget by age and size (delete), keep the last record of each key (compact), both, or "
            "neither.",
            choices=("delete", "compact"),
        ),
        TopicSetting(
            "compression_type",
            "string",
            "How batches are compressed on disk; producer keeps them as they were sent.",
            choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        ),
        TopicSetting("delete_retention_ms", "long", "How long a tombstone stays readable."),
        TopicSetting(
            "goqueue_attributes_enable",
            "boolean",
            "Look for headers such as goqueue-delay-ms in what producers send, and obey them.",
            choices=_BOOLEANS,
        ),
        TopicSetting(
            "goqueue_journeys_enable",
            "boolean",
            "Record what happens to the messages of the topic in __journeys.",
            choices=_BOOLEANS,
        ),
        TopicSetting(
            "goqueue_key_filters",
            "string",
            "Build filters of keys and trace ids, which make searches fast: never, by the first "
            "search, or always, in the background.",
            choices=tuple(KeyFiltering),
        ),
        TopicSetting(
            "index_interval_bytes", "int", "How far index entries are apart.", 1, _INT_MAX
        ),
        TopicSetting(
            "lane_mode",
            "string",
            "How lanes share the consumers: by their weights, or the first one always first.",
            choices=("weighted", "strict"),
        ),
        TopicSetting(
            "lane_starvation_ms",
            "long",
            "A lane whose oldest message has waited longer gets every second delivery.",
            1,
        ),
        *(
            TopicSetting(f"lane_weight_{name}", "int", f"The share of the {name} lane.", 1, 1000)
            for name in LANE_NAMES
        ),
        TopicSetting(
            "max_compaction_lag_ms", "long", "Compact records at the latest after this.", 1
        ),
        TopicSetting(
            "message_ttl_ms", "long", "How long queue groups offer a message; -1: always.", -1
        ),
        TopicSetting("max_message_bytes", "int", "The largest batch accepted.", 0, _INT_MAX),
        TopicSetting(
            "message_timestamp_after_max_ms", "long", "How far ahead a timestamp may lie."
        ),
        TopicSetting(
            "message_timestamp_before_max_ms", "long", "How far back a timestamp may lie."
        ),
        TopicSetting(
            "message_timestamp_type",
            "string",
            "Whose clock stamps the records.",
            choices=("CreateTime", "LogAppendTime"),
        ),
        TopicSetting(
            "min_cleanable_dirty_ratio",
            "double",
            "The uncompacted share that starts compaction.",
            0,
            1,
        ),
        TopicSetting("min_compaction_lag_ms", "long", "Leave records alone for this long."),
        TopicSetting(
            "min_insync_replicas", "int", "Replicas that acks=all needs at least.", 1, _INT_MAX
        ),
        TopicSetting("retention_bytes", "long", "The most a partition keeps; -1 is no limit.", -1),
        TopicSetting("retention_ms", "long", "How long records are kept; -1 is for ever.", -1),
        TopicSetting(
            "schema_key_subject_strategy",
            "string",
            "Which subject the schema of a key must be registered under: TOPIC-key, or RECORD, or "
            "TOPIC-RECORD.",
            choices=_STRATEGIES,
        ),
        TopicSetting(
            "schema_validation",
            "string",
            "Refuse records whose keys or values do not obey a schema of the registry.",
            choices=("none", "key", "value", "both"),
        ),
        TopicSetting(
            "schema_value_subject_strategy",
            "string",
            "The same for values: TOPIC-value, or RECORD, or TOPIC-RECORD.",
            choices=_STRATEGIES,
        ),
        TopicSetting("segment_bytes", "int", "The size of a segment file.", 1024, _INT_MAX),
        TopicSetting("segment_ms", "long", "The age at which a segment is closed.", 1),
        TopicSetting(
            "unclean_leader_election_enable",
            "boolean",
            "Prefer availability to acknowledged records when every in-sync replica is lost.",
            choices=_BOOLEANS,
        ),
    )
}

# Settings that clients of other brokers send routinely. Their values are validated, stored and
# returned, and have no effect here.
ACCEPTED_SETTINGS: Mapping[str, TopicSetting] = {
    one.name: one
    for one in (
        TopicSetting(
            "errors_deadletterqueue_group_enable",
            "boolean",
            "Kept for clients that set it; every topic may have dead letters.",
            choices=("true",),
        ),
        TopicSetting(
            "file_delete_delay_ms",
            "long",
            "Kept for clients that set it; files are deleted at once, readers keep them open.",
        ),
        TopicSetting("flush_messages", "long", "Kept for clients that set it; see fsync.", 1),
        TopicSetting("flush_ms", "long", "Kept for clients that set it; see fsync."),
        TopicSetting(
            "preallocate", "boolean", "Kept for clients that set it; no effect.", choices=_BOOLEANS
        ),
        TopicSetting(
            "segment_index_bytes", "int", "Kept for clients that set it; no effect.", 4, _INT_MAX
        ),
        TopicSetting("segment_jitter_ms", "long", "Kept for clients that set it; no effect."),
        *(
            TopicSetting(
                f"{side}_replication_throttled_replicas",
                "list",
                "Kept for clients that set it; all replicas not in sync are throttled.",
            )
            for side in ("leader", "follower")
        ),
    )
}

_ALL = {**TOPIC_SETTINGS, **ACCEPTED_SETTINGS}


def known_setting(name: str) -> TopicSetting:
    try:
        return _ALL[name]
    except KeyError:
        raise InvalidTopicSetting("there is no such setting.", setting=name[:100]) from None


def check_settings(settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        known_setting(name).check(value)


# Defaults of topics that can be changed at runtime. Whether a partition may continue without
# committed records is decided by the controller, from the topic's own setting alone.
DYNAMIC_DEFAULTS = TOPIC_SETTINGS.keys() - {"unclean_leader_election_enable"}


class TopicDefaults:
    """The node's settings as the defaults of topics.

    `static` are those that the node was started with, `values` those in effect.
    """

    def __init__(
        self, storage: StorageSettings, compaction: CompactionSettings, topics: TopicSettings
    ) -> None:
        self.limits = topics  # how many topics and partitions there may be
        lag_max = compaction.lag_max_ms
        self.static: Mapping[str, str] = {
            "cleanup_policy": topics.cleanup_policy,
            "compression_type": topics.compression,
            "delete_retention_ms": str(compaction.tombstone_retention_ms),
            "goqueue_attributes_enable": "true",
            "goqueue_journeys_enable": "true",
            "goqueue_key_filters": KeyFiltering.SEARCH,
            "index_interval_bytes": str(storage.index_interval_bytes),
            "lane_mode": "weighted",
            "lane_starvation_ms": "30000",
            **{
                f"lane_weight_{name}": str(weight)
                for name, weight in zip(LANE_NAMES, DEFAULT_WEIGHTS, strict=True)
            },
            "max_compaction_lag_ms": str(lag_max if lag_max > 0 else _LONG_MAX),
            "max_message_bytes": str(topics.message_bytes_max),
            "message_ttl_ms": "-1",
            "message_timestamp_after_max_ms": "3600000",
            "message_timestamp_before_max_ms": str(_LONG_MAX),
            "message_timestamp_type": topics.timestamp_type,
            "min_cleanable_dirty_ratio": str(compaction.dirty_ratio_min),
            "min_compaction_lag_ms": str(compaction.lag_min_ms),
            "min_insync_replicas": "1",
            "retention_bytes": str(storage.retention_bytes),
            "retention_ms": str(storage.retention_ms),
            "schema_key_subject_strategy": "topic",
            "schema_validation": "none",
            "schema_value_subject_strategy": "topic",
            "segment_bytes": str(storage.segment_bytes),
            "segment_ms": str(storage.segment_ms),
            "unclean_leader_election_enable": "false",
            "errors_deadletterqueue_group_enable": "true",
            "file_delete_delay_ms": "60000",
            "flush_messages": str(_LONG_MAX),
            "flush_ms": str(_LONG_MAX),
            "preallocate": "false",
            "segment_index_bytes": "10485760",
            "segment_jitter_ms": "0",
            "leader_replication_throttled_replicas": "",
            "follower_replication_throttled_replicas": "",
        }

        self.values: dict[str, str] = dict(self.static)

    def overlay(self, *changes: Mapping[str, str]) -> None:
        """Apply runtime changes; later ones override earlier ones."""
        # Others hold a reference to the mapping, so update it in place.
        self.values.update(self.static)
        for one in changes:
            self.values.update((name, one[name]) for name in one.keys() & DYNAMIC_DEFAULTS)

    def in_sync_min(self, own: Mapping[str, str]) -> int:
        """How many replicas must have a record before it is committed."""
        return int(own.get("min_insync_replicas", self.values["min_insync_replicas"]))

    def resolve(self, own: Mapping[str, str]) -> PartitionSettings:
        """Convert the settings of a topic to those of its partitions."""
        values = {**self.values, **own}
        policy = [word.strip() for word in values["cleanup_policy"].split(",")]
        codec = values["compression_type"]
        return PartitionSettings(
            log=LogSettings(
                segment_bytes=int(values["segment_bytes"]),
                segment_ms=int(values["segment_ms"]),
                index_interval_bytes=int(values["index_interval_bytes"]),
                retention_ms=int(values["retention_ms"]),
                retention_bytes=int(values["retention_bytes"]),
                is_deleting="delete" in policy,
                is_compacting="compact" in policy,
                dirty_ratio_min=float(values["min_cleanable_dirty_ratio"]),
                tombstone_retention_ms=int(values["delete_retention_ms"]),
                compaction_lag_ms_min=int(values["min_compaction_lag_ms"]),
                compaction_lag_ms_max=int(values["max_compaction_lag_ms"]),
            ),
            message_bytes_max=int(values["max_message_bytes"]),
            is_append_time=values["message_timestamp_type"] == "LogAppendTime",
            compression=None if codec == "producer" else _codec(codec),
            timestamp_before_ms_max=int(values["message_timestamp_before_max_ms"]),
            timestamp_after_ms_max=int(values["message_timestamp_after_max_ms"]),
            has_attributes=values["goqueue_attributes_enable"] == "true",
            has_schemas=values["schema_validation"] != "none",
            key_filters=KeyFiltering(values["goqueue_key_filters"]),
        )


def lane_settings(values: Mapping[str, str]) -> LaneSettings:
    """Convert the settings of a topic, defaults included, to those of its lanes."""
    return LaneSettings(
        weights=tuple(int(values[f"lane_weight_{name}"]) for name in LANE_NAMES),
        is_strict=values["lane_mode"] == "strict",
        starvation_ms=int(values["lane_starvation_ms"]),
    )


def _codec(name: str) -> Compression:
    return Compression.NONE if name == "uncompressed" else Compression[name.upper()]
