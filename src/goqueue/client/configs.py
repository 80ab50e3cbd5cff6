"""Settings of topics and brokers."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.client.cluster import Cluster
from goqueue.client.errors import ErrorContext, check
from goqueue.wire.kafka.messages import describe_configs, incremental_alter_configs

_SET, _DELETE = 0, 1


class ConfigOwner(enum.IntEnum):
    """The kind of resource that a setting belongs to."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(enum.StrEnum):
    """The source of the value in effect."""

    UNKNOWN = "unknown"
    TOPIC = "topic"
    BROKER = "broker"
    BROKER_DEFAULT = "broker default"
    FILE = "settings file"
    DEFAULT = "default"
    LOGGER = "logger"
    CLIENT = "client metrics"
    GROUP = "group"


_SOURCES = dict(enumerate(ConfigSource))


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting with its value in effect; the value of a secret is not returned."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    about: str


class Configs:
    """Reads and changes settings.

    >>> client.configs.change(ConfigOwner.TOPIC, "orders", {"retention.ms": "60000"})
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(
        self, owner: ConfigOwner, name: str, *, has_documentation: bool = False
    ) -> list[ConfigEntry]:
        """Every setting of a topic, or of a broker by its id."""
        resource = describe_configs.DescribeConfigsResource(owner, name, None)
        request = describe_configs.DescribeConfigsRequest(
            [resource], include_documentation=has_documentation
        )

        def attempt() -> list[ConfigEntry]:
            result = self._cluster.call_controller(describe_configs, request).results[0]
            check(result.error_code, result.error_message, ErrorContext(name))
            return sorted(map(_entry, result.configs), key=lambda entry: entry.name)

        return self._cluster.retrying(attempt)

    def change(
        self,
        owner: ConfigOwner,
        name: str,
        values: Mapping[str, str | None],
        *,
        is_only_checked: bool = False,
    ) -> None:
        """Set values; None resets a setting to its default."""
        changes = [
            incremental_alter_configs.AlterableConfig(
                setting, _DELETE if value is None else _SET, value
            )
            for setting, value in values.items()
        ]
        resource = incremental_alter_configs.AlterConfigsResource(owner, name, changes)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            [resource], is_only_checked
        )

        def attempt() -> None:
            response = self._cluster.call_controller(incremental_alter_configs, request)
            for each in response.responses:
                check(each.error_code, each.error_message, ErrorContext(name))

        self._cluster.retrying(attempt)


def _entry(found: describe_configs.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=found.name,
        value=found.value,
        source=_SOURCES.get(found.config_source, ConfigSource.UNKNOWN),
        is_read_only=found.read_only,
        is_sensitive=found.is_sensitive,
        about=found.documentation or "",
    )
