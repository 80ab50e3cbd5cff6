"""Describes the settings of topics, nodes and groups as Kafka tools expect them.

A value comes from the first of several layers that has one; the layers below it are its synonyms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from goqueue.broker.gate.areas.configs import (
    ACCEPTED_SETTINGS,
    DYNAMIC_DEFAULTS,
    HEARTBEAT_MS,
    SESSION_MS,
    TOPIC_SETTINGS,
    DefaultLayers,
    GroupSettings,
    ListenerSettings,
    Settings,
    built_in_settings,
    share_defaults,
)
from goqueue.wire.kafka.config_names import (
    OF_GROUP,
    OF_NODE,
    OF_SHARE_GROUP,
    RATES,
    wire_name,
)

SOURCE_TOPIC = 1
SOURCE_DYNAMIC_BROKER = 2
SOURCE_DYNAMIC_DEFAULT = 3
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5
SOURCE_GROUP = 8

_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
_SETTINGS = dict(sorted({**TOPIC_SETTINGS, **ACCEPTED_SETTINGS}.items()))


class Synonym(NamedTuple):
    """A layer that has a value for a setting."""

    name: str
    value: str | None
    source: int


class Config(NamedTuple):
    name: str
    value: str | None
    config_source: int
    config_type: int
    about: str = ""
    is_read_only: bool = False
    synonyms: tuple[Synonym, ...] = ()


def describe_topic(defaults: DefaultLayers, own: Mapping[str, str]) -> list[Config]:
    """All settings of a topic: its own, and the node's where it has none."""
    configs = []
    for name, setting in _SETTINGS.items():
        layers = _default_layers(defaults, name)
        if name in own:
            layers = (Synonym(wire_name(name), own[name], SOURCE_TOPIC), *layers)
        value = layers[0].value if layers else defaults.value(name)
        source = layers[0].source if layers else SOURCE_DEFAULT
        kind = _TYPES[setting.kind]
        configs.append(Config(wire_name(name), value, source, kind, setting.about, synonyms=layers))
    return configs


def _default_layers(defaults: DefaultLayers, name: str) -> tuple[Synonym, ...]:
    """The default layers of a topic setting, highest precedence first."""
    node_name = OF_NODE.get(name)
    if node_name is None:
        return ()
    layers = []
    if name in defaults.node:
        layers.append(Synonym(node_name, defaults.node[name], SOURCE_DYNAMIC_BROKER))
    if name in defaults.all_nodes:
        layers.append(Synonym(node_name, defaults.all_nodes[name], SOURCE_DYNAMIC_DEFAULT))
    static, built_in = defaults.static[name], defaults.built_in[name]
    if static != built_in:
        layers.append(Synonym(node_name, static, SOURCE_STATIC_BROKER))
    return (*layers, Synonym(node_name, built_in, SOURCE_DEFAULT))


def describe_group(settings: GroupSettings, own: Mapping[str, str]) -> list[Config]:
    """The settings of a group, of the consumer protocol and as a share group."""
    node, plain = _group_times(settings), _group_times(built_in_settings().groups)
    configs = []
    for name, node_name in OF_GROUP.items():
        layers = [Synonym(node_name, plain[name], SOURCE_DEFAULT)]
        if node[name] != plain[name]:
            layers.insert(0, Synonym(node_name, node[name], SOURCE_STATIC_BROKER))
        if name in own:
            layers.insert(0, Synonym(wire_name(name), own[name], SOURCE_GROUP))
        first = layers[0]
        configs.append(
            Config(
                wire_name(name), first.value, first.source, _TYPES["int"], synonyms=tuple(layers)
            )
        )
    return configs + _describe_share_group(own)


def _describe_share_group(own: Mapping[str, str]) -> list[Config]:
    configs = []
    for core, default in share_defaults().items():
        name = wire_name(core)
        layers = [Synonym(OF_SHARE_GROUP.get(core, name), default, SOURCE_DEFAULT)]
        if core in own:
            layers.insert(0, Synonym(name, own[core], SOURCE_GROUP))
        kind = _TYPES[_kind_of(default)]
        configs.append(
            Config(name, layers[0].value, layers[0].source, kind, synonyms=tuple(layers))
        )
    return configs


def _kind_of(value: str) -> str:
    if value.isdecimal():
        return "int"
    return "boolean" if value in ("true", "false") else "string"


def _group_times(groups: GroupSettings) -> dict[str, str]:
    return {
        SESSION_MS: str(groups.consumer_session_ms),
        HEARTBEAT_MS: str(groups.consumer_heartbeat_ms),
    }


def describe_all_nodes(defaults: DefaultLayers) -> list[Config]:
    """The settings that were changed for all nodes."""
    configs = []
    for name in sorted(defaults.all_nodes.keys() & OF_NODE.keys()):
        layer = Synonym(OF_NODE[name], defaults.all_nodes[name], SOURCE_DYNAMIC_DEFAULT)
        kind = _TYPES[_SETTINGS[name].kind]
        configs.append(Config(layer.name, layer.value, layer.source, kind, synonyms=(layer,)))
    return configs


HTTP_LISTENER = "goqueue.http.listener"


def describe_node(
    settings: Settings,
    defaults: DefaultLayers,
    throttles: Mapping[str, int],
    *,
    addresses: Mapping[str, str],
    listener: str,
) -> list[Config]:
    """The settings of a node that Kafka tools look for.

    `addresses` are those of the running node, which knows the ports that the system has chosen;
    `listener` is the one that the client came by.
    """
    configs = [*_topic_defaults(defaults), *_throttles(throttles)]
    plain = _node_values(built_in_settings())
    for name, (value, kind) in _node_values(settings).items():
        layers = [Synonym(name, plain[name][0], SOURCE_DEFAULT)]
        if value != plain[name][0]:
            layers.insert(0, Synonym(name, value, SOURCE_STATIC_BROKER))
        layers = [] if value is None else layers
        source = layers[0].source if layers else SOURCE_DEFAULT
        configs.append(
            Config(name, value, source, _TYPES[kind], is_read_only=True, synonyms=tuple(layers))
        )
    for name, value in (
        ("advertised.listeners", _listeners(settings.listeners, addresses)),
        ("listeners", _listeners(settings.listeners, {})),
        ("log.dirs", str(settings.node.data_dir)),
    ):
        configs.append(_static_list(name, value))
    configs.append(describe_http(settings.listeners, addresses=addresses, listener=listener))
    return sorted(configs)


def describe_http(
    settings: ListenerSettings, *, addresses: Mapping[str, str], listener: str
) -> Config:
    """The address of the HTTP API for clients of a Kafka listener."""
    return _static_list(HTTP_LISTENER, _http_for(settings, addresses, listener))


def _static_list(name: str, value: str) -> Config:
    layer = Synonym(name, value, SOURCE_STATIC_BROKER)
    return Config(name, value, layer.source, _TYPES["list"], is_read_only=True, synonyms=(layer,))


def _listeners(settings: ListenerSettings, addresses: Mapping[str, str]) -> str:
    """The listeners as Kafka writes them, at `addresses` or where they are bound."""
    return ",".join(
        f"{one.security.upper()}://{_bare(addresses.get(one.name, str(one.address)))}"
        for one in settings.kafka
    )


def _http_for(settings: ListenerSettings, addresses: Mapping[str, str], listener: str) -> str:
    """The address of the HTTP listener that is most like the Kafka listener of a client."""
    own = next((one for one in settings.kafka if one.name == listener), settings.kafka[0])
    best = max(
        settings.http,
        key=lambda one: (one.is_encrypted == own.is_encrypted, one.has_sasl == own.has_sasl),
    )
    address = _bare(addresses.get(best.name, str(best.address)))
    return f"https://{address}" if best.is_encrypted else address


def _bare(address: str) -> str:
    return address.rpartition("://")[2]


def _topic_defaults(defaults: DefaultLayers) -> list[Config]:
    configs = []
    for name, node_name in OF_NODE.items():
        layers = _default_layers(defaults, name)
        configs.append(
            Config(
                node_name,
                layers[0].value,
                layers[0].source,
                _TYPES[_SETTINGS[name].kind],
                _SETTINGS[name].about,
                is_read_only=name not in DYNAMIC_DEFAULTS,
                synonyms=layers,
            )
        )
    return configs


def _throttles(throttles: Mapping[str, int]) -> list[Config]:
    """The replication throttles set on a node at run time."""
    about = "Bytes per second to or of copies that are not in sync."
    return [
        Config(
            name,
            str(rate),
            SOURCE_DYNAMIC_BROKER,
            _TYPES["long"],
            about,
            synonyms=(Synonym(name, str(rate), SOURCE_DYNAMIC_BROKER),),
        )
        for name, throttle in RATES.items()
        if (rate := throttles.get(throttle))
    ]


def _node_values(settings: Settings) -> dict[str, tuple[str | None, str]]:
    """Values and types of the settings that only the node's configuration file has."""
    groups, transactions = settings.groups, settings.transactions
    return {
        "auto.create.topics.enable": (_boolean(settings.topics.auto_create), "boolean"),
        "broker.id": (str(settings.node.id), "int"),
        "broker.rack": (settings.cluster.rack or None, "string"),
        "default.replication.factor": (str(settings.cluster.replication_factor), "int"),
        "delete.topic.enable": (_boolean(settings.topics.delete_enabled), "boolean"),
        "group.consumer.heartbeat.interval.ms": (str(groups.consumer_heartbeat_ms), "int"),
        "group.consumer.max.session.timeout.ms": (str(groups.session_ms_max), "int"),
        "group.consumer.min.session.timeout.ms": (str(groups.session_ms_min), "int"),
        "group.consumer.session.timeout.ms": (str(groups.consumer_session_ms), "int"),
        "group.initial.rebalance.delay.ms": (str(groups.initial_rebalance_delay_ms), "int"),
        "group.max.session.timeout.ms": (str(groups.session_ms_max), "int"),
        "group.min.session.timeout.ms": (str(groups.session_ms_min), "int"),
        "log.cleaner.backoff.ms": (str(settings.compaction.check_ms), "long"),
        "log.retention.check.interval.ms": (str(settings.storage.retention_check_ms), "long"),
        "node.id": (str(settings.node.id), "int"),
        "num.partitions": (str(settings.topics.partitions), "int"),
        "offset.metadata.max.bytes": (str(groups.offset_metadata_bytes_max), "int"),
        "offsets.retention.minutes": (str(groups.offsets_retention_ms // 60_000), "int"),
        "offsets.topic.num.partitions": (str(groups.offsets_partitions), "int"),
        "replica.lag.time.max.ms": (str(settings.replication.lag_ms), "long"),
        "transaction.max.timeout.ms": (str(transactions.timeout_ms_max), "int"),
        "transaction.state.log.num.partitions": (str(transactions.state_partitions), "int"),
        "transactional.id.expiration.ms": (str(transactions.id_expiration_ms), "int"),
    }


def _boolean(value: bool) -> str:
    return "true" if value else "false"
