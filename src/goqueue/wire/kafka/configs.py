"""Settings of topics and of the node, by the names and in the forms Kafka tools know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from goqueue.broker.topic_settings import ACCEPTED_SETTINGS, TOPIC_SETTINGS
from goqueue.config import Settings

SOURCE_TOPIC = 1
SOURCE_DYNAMIC_BROKER = 2
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5

# What can be changed of a node while it runs.
FEEDING_RATE = "leader.replication.throttled.rate"
CATCHING_UP_RATE = "follower.replication.throttled.rate"
# Tools take it back together with those. A node has one folder: nothing moves between several.
FOLDERS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}


class Config(NamedTuple):
    name: str
    value: str
    config_source: int
    config_type: int
    about: str
    default: str
    is_read_only: bool = False


def core_name(name: str) -> str:
    """`retention.ms` is `retention_ms` inside."""
    return name.replace(".", "_")


def wire_name(name: str) -> str:
    return name.replace("_", ".")


def describe_topic(defaults: Mapping[str, str], own: Mapping[str, str]) -> list[Config]:
    """All settings of a topic: its own, and the node's where it has none."""
    configs = []
    for name, setting in sorted({**TOPIC_SETTINGS, **ACCEPTED_SETTINGS}.items()):
        default = defaults[name]
        configs.append(
            Config(
                wire_name(name),
                own.get(name, default),
                SOURCE_TOPIC if name in own else SOURCE_DEFAULT,
                _TYPES[setting.kind],
                setting.about,
                default,
            )
        )
    return configs


def describe_throttles(rates: Mapping[str, int]) -> list[Config]:
    """The throttles that a node has been given while it runs."""
    about = "Bytes per second to or of copies that are not in sync."
    return [
        Config(name, str(rate), SOURCE_DYNAMIC_BROKER, _TYPES["long"], about, "")
        for name, rate in sorted(rates.items())
        if rate
    ]


def describe_node(settings: Settings, *, advertised: str) -> list[Config]:
    """The node's settings that Kafka tools look for. They are changed in its configuration."""
    listener = f"PLAINTEXT://{settings.listeners.kafka}"
    values: dict[str, tuple[str, str]] = {
        "advertised.listeners": (f"PLAINTEXT://{advertised}", "string"),
        "auto.create.topics.enable": (_boolean(settings.topics.auto_create), "boolean"),
        "broker.id": (str(settings.node.id), "int"),
        "node.id": (str(settings.node.id), "int"),
        "compression.type": (settings.topics.compression, "string"),
        "default.replication.factor": ("1", "int"),
        "delete.topic.enable": (_boolean(settings.topics.delete_enabled), "boolean"),
        "goqueue.http.listener": (str(settings.listeners.http), "string"),
        "group.initial.rebalance.delay.ms": (
            str(settings.groups.initial_rebalance_delay_ms),
            "int",
        ),
        "group.max.session.timeout.ms": (str(settings.groups.session_ms_max), "int"),
        "group.min.session.timeout.ms": (str(settings.groups.session_ms_min), "int"),
        "listeners": (listener, "string"),
        "log.cleanup.policy": (settings.topics.cleanup_policy, "list"),
        "log.dirs": (str(settings.node.data_dir), "string"),
        "log.message.timestamp.type": (settings.topics.timestamp_type, "string"),
        "log.retention.bytes": (str(settings.storage.retention_bytes), "long"),
        "log.retention.ms": (str(settings.storage.retention_ms), "long"),
        "log.segment.bytes": (str(settings.storage.segment_bytes), "int"),
        "message.max.bytes": (str(settings.topics.message_bytes_max), "int"),
        "min.insync.replicas": ("1", "int"),
        "num.partitions": (str(settings.topics.partitions), "int"),
        "offsets.retention.minutes": (
            str(settings.groups.offsets_retention_ms // 60_000),
            "int",
        ),
        "offsets.topic.num.partitions": (str(settings.groups.offsets_partitions), "int"),
    }
    return [
        Config(name, value, SOURCE_STATIC_BROKER, _TYPES[kind], "", value, is_read_only=True)
        for name, (value, kind) in sorted(values.items())
    ]


def _boolean(value: bool) -> str:
    return "true" if value else "false"
