"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.dynamic_settings import GROUP_SETTINGS
from goqueue.broker.topics.settings import DYNAMIC_DEFAULTS, known_setting
from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidTopicSetting
from goqueue.wire.kafka.config_names import (
    CATCHING_UP_RATE,
    FEEDING_RATE,
    FOLDERS_RATE,
    OF_NODE,
    RATES,
    TOPIC_DEFAULT,
    core_name,
)
from goqueue.wire.kafka.configs import (
    Config,
    Dynamic,
    describe_all_nodes,
    describe_group,
    describe_node,
    describe_topic,
)
from goqueue.wire.kafka.errors import ErrorCode, code_of, message_of
from goqueue.wire.kafka.messages import alter_configs as full
from goqueue.wire.kafka.messages import incremental_alter_configs as incremental
from goqueue.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from goqueue.wire.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from goqueue.broker.administration import NodeView
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_TOPIC = 2
_BROKER = 4
_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_GROUP = 32
_RESOURCES = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OPERATIONS = (_SET, _DELETE, _APPEND, _SUBTRACT)
_FIRST_LIST_VERSION_WITH_TYPES = 1


class _Change(NamedTuple):
    name: str
    operation: int
    value: str | None


class _Resource(NamedTuple):
    """What a request changes; `is_whole` takes back whatever it does not name."""

    kind: int
    name: str
    changes: Sequence[_Change]
    is_whole: bool
    dry_run: bool


# Describing


def describe_configs(
    front: FrontEnd, call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(front, request, resource) for resource in request.resources]
    )


def _describe(
    front: FrontEnd, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        configs = _configs_of(front, resource.resource_type, resource.resource_name)
    except GoQueueError as error:
        result.error_code, result.error_message = code_of(error), message_of(error)
        return result
    for config in configs:
        if resource.configuration_keys is None or config.name in resource.configuration_keys:
            result.configs.append(_config_result(config, request))
    return result


def _configs_of(front: FrontEnd, kind: int, name: str) -> list[Config]:
    broker = front.broker
    if kind == _TOPIC:
        own = broker.topics.get(name).fact.settings
        return describe_topic(broker.topics.defaults, own, dynamic(front))
    if kind == _GROUP:
        if not name:
            raise InvalidRequest("Name a group; groups have no settings in common.")
        return describe_group(broker.settings, broker.dynamic_settings.of_group(name))
    if kind == _BROKER:
        if not name:
            return describe_all_nodes(dynamic(front))
        if name != str(broker.node_id):
            raise InvalidRequest(f"This node is {broker.node_id}, not {name!r}.")
        host, port = front.advertised()
        return describe_node(
            broker.settings,
            broker.topics.defaults,
            dynamic(front),
            _rates(front),
            advertised=f"{host}:{port}",
            http=_http_address(front, broker.administration.find_node(broker.node_id)),
        )
    raise InvalidRequest(f"Resources of type {kind} have no configuration here.")


def _http_address(front: FrontEnd, node: NodeView | None) -> str:
    """Where clients of this node find its HTTP API; with port 0 only the running node knows."""
    known = {} if node is None else node.addresses
    return known.get("http") or str(front.broker.settings.listeners.http)


def dynamic(front: FrontEnd) -> Dynamic:
    """The defaults of topics that were changed while this node runs."""
    known = front.broker.dynamic_settings
    return Dynamic(known.of_node(front.broker.node_id), known.of_all_nodes())


def _rates(front: FrontEnd) -> dict[str, int]:
    broker = front.broker
    if broker.cluster is None:
        own = broker.dynamic_settings.of_node(broker.node_id)
        return {name: int(own.get(setting, "0")) for name, setting in RATES.items()}
    view = broker.administration.find_node(broker.node_id)
    return {
        FEEDING_RATE: 0 if view is None else view.feeding_bytes_per_second,
        CATCHING_UP_RATE: 0 if view is None else view.catching_up_bytes_per_second,
    }


def _config_result(
    config: Config, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=config.config_source,
        config_type=config.config_type,
        documentation=config.about if request.include_documentation else None,
        synonyms=[],
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in config.synonyms
        ]
    return result


def list_config_resources(
    front: FrontEnd, call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """What has a configuration; older clients ask for metrics subscriptions, of which are none."""
    if call.version < _FIRST_LIST_VERSION_WITH_TYPES:
        return ListConfigResourcesResponse(config_resources=[])
    wanted = set(request.resource_types) or set(_RESOURCES)
    if not wanted <= set(_RESOURCES):
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    broker = front.broker
    names: Mapping[int, Sequence[str]] = {
        _TOPIC: [topic.name for topic in broker.topics],
        _BROKER: [str(node) for node in front.brokers()],
        _GROUP: broker.dynamic_settings.groups(),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(wanted & names.keys())
            for name in names[kind]
        ]
    )


# Changing


async def alter_configs(
    front: FrontEnd, call: Call, request: full.AlterConfigsRequest
) -> full.AlterConfigsResponse:
    """Replace all settings of each resource."""
    responses = []
    for one in request.resources:
        changes = [_Change(config.name, _SET, config.value) for config in one.configs]
        resource = _Resource(
            one.resource_type, one.resource_name, changes, True, request.validate_only
        )
        code, message = await _alter(front, resource)
        responses.append(
            full.AlterConfigsResourceResponse(code, message, resource.kind, resource.name)
        )
    return full.AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    front: FrontEnd, call: Call, request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """Change some settings of each resource."""
    responses = []
    for one in request.resources:
        changes = [
            _Change(config.name, config.config_operation, config.value) for config in one.configs
        ]
        resource = _Resource(
            one.resource_type, one.resource_name, changes, False, request.validate_only
        )
        code, message = await _alter(front, resource)
        responses.append(
            incremental.AlterConfigsResourceResponse(code, message, resource.kind, resource.name)
        )
    return incremental.IncrementalAlterConfigsResponse(responses=responses)


async def _alter(front: FrontEnd, resource: _Resource) -> tuple[int, str | None]:
    """Change one resource; the error code and message for the answer."""
    try:
        names = [one.name for one in resource.changes]
        if len(set(names)) < len(names):
            raise InvalidRequest("A setting is named twice.")
        if any(one.operation not in _OPERATIONS for one in resource.changes):
            raise InvalidRequest("A change is neither set, delete, append nor subtract.")
        if resource.kind == _TOPIC:
            await _alter_topic(front, resource)
        elif resource.kind == _BROKER:
            await _alter_node(front, resource)
        elif resource.kind == _GROUP:
            await _alter_group(front, resource)
        else:
            raise InvalidRequest(f"Resources of type {resource.kind} cannot be configured here.")
    except GoQueueError as error:
        return code_of(error), message_of(error)
    return 0, None


async def _alter_topic(front: FrontEnd, resource: _Resource) -> None:
    topics = front.broker.topics
    if not resource.name:
        raise InvalidRequest(
            "Name a topic; the defaults of all topics are settings of brokers, log.retention.ms "
            "for example."
        )
    own = dict(topics.get(resource.name).fact.settings)
    settings = {} if resource.is_whole else own
    for change in resource.changes:
        name = core_name(change.name)
        if change.operation == _DELETE:
            known_setting(name)
            settings.pop(name, None)
        else:
            current = settings.get(name, topics.defaults.values.get(name, ""))
            settings[name] = _changed(name, change, current)
    for one, value in settings.items():
        known_setting(one).check(value)
    if not resource.dry_run:
        await topics.configure(resource.name, settings)


async def _alter_group(front: FrontEnd, resource: _Resource) -> None:
    if not resource.name:
        raise InvalidRequest("Name a group; groups have no settings in common.")
    changes: dict[str, str | None] = {}
    for change in resource.changes:
        name = core_name(change.name)
        if name not in GROUP_SETTINGS:
            raise InvalidTopicSetting("groups have no such setting.", setting=name[:100])
        if change.operation in (_APPEND, _SUBTRACT):
            raise InvalidTopicSetting("it is no list; set it as a whole.", setting=name)
        changes[name] = None if change.operation == _DELETE else _value(change)
    await front.broker.dynamic_settings.change_group(
        resource.name, changes, is_whole=resource.is_whole, dry_run=resource.dry_run
    )


async def _alter_node(front: FrontEnd, resource: _Resource) -> None:
    """Change the defaults of topics and the throttles of one node, or the defaults of all."""
    node = _node_named(front, resource.name)
    rates = {one.name: _rate(one) for one in resource.changes if one.name in (*RATES, FOLDERS_RATE)}
    if node is None and any(rates.values()):
        raise InvalidRequest("Name a node; throttles of all nodes at once are not kept here.")
    changes = {
        TOPIC_DEFAULT[one.name]: value
        for one, value in _default_changes(front, node, resource.changes)
    }
    known = front.broker.dynamic_settings
    if front.broker.cluster is None or node is None:
        changes |= {
            setting: str(rates[name]) if rates[name] else None
            for name, setting in RATES.items()
            if name in rates
        }
    elif not resource.dry_run and (rates.keys() & RATES.keys() or resource.is_whole):
        missing = 0 if resource.is_whole else None
        await front.broker.administration.throttle_node(
            node,
            feeding_bytes_per_second=rates.get(FEEDING_RATE, missing),
            catching_up_bytes_per_second=rates.get(CATCHING_UP_RATE, missing),
        )
    if changes or resource.is_whole:
        await known.change_nodes(
            node, changes, is_whole=resource.is_whole, dry_run=resource.dry_run
        )


def _node_named(front: FrontEnd, name: str) -> int | None:
    """The node that a resource names; None for all nodes."""
    if not name:
        return None
    if not (name.isascii() and name.isdecimal()):
        raise InvalidRequest(f"The id of a node is a number, not {name[:100]!r}.")
    node = front.broker.administration.find_node(int(name))
    if node is None:
        raise InvalidRequest(f"There is no node {name[:100]}.")
    return node.id


def _default_changes(
    front: FrontEnd, node: int | None, changes: Sequence[_Change]
) -> list[tuple[_Change, str | None]]:
    """Changes of the defaults of topics, with the values that they lead to."""
    broker = front.broker
    found: list[tuple[_Change, str | None]] = []
    for change in changes:
        if change.name in RATES or change.name == FOLDERS_RATE:
            continue
        setting = TOPIC_DEFAULT.get(change.name)
        if setting is None or setting not in DYNAMIC_DEFAULTS:
            allowed = sorted(OF_NODE[one] for one in OF_NODE.keys() & DYNAMIC_DEFAULTS)
            raise InvalidRequest(
                f"{change.name[:100]} cannot be changed while nodes run; set it in the settings of "
                f"the node and restart it. What can be changed: {', '.join([*allowed, *RATES])}."
            )
        if change.operation == _DELETE:
            found.append((change, None))
            continue
        known = broker.dynamic_settings
        own = known.of_all_nodes() if node is None else known.of_node(node)
        current = own.get(setting, broker.topics.defaults.values[setting])
        found.append((change, _changed(setting, change, current)))
    return found


def _rate(change: _Change) -> int:
    """The bytes per second that a change asks for; 0 takes a throttle back."""
    if change.operation == _DELETE:
        return 0
    word = change.value or ""
    is_rate = word.isascii() and word.isdecimal() and 1 <= int(word) < 1 << 63
    if change.operation != _SET or not is_rate:
        raise InvalidRequest(f"{change.name} is set to bytes per second, from 1 on.")
    if change.name == FOLDERS_RATE:
        raise InvalidRequest("A node has one folder here, so nothing moves between several.")
    return int(word)


def _changed(name: str, change: _Change, current: str) -> str:
    """The value of a setting after a change that does not delete it."""
    setting = known_setting(name)
    value = _value(change)
    if change.operation == _SET:
        return value
    if setting.kind != "list":
        raise InvalidTopicSetting("it is no list; set it as a whole.", setting=name)
    words = [word for word in current.split(",") if word]
    named = value.split(",")
    if change.operation == _APPEND:
        words += [word for word in named if word not in words]
    else:
        words = [word for word in words if word not in named]
    return ",".join(words)


def _value(change: _Change) -> str:
    if change.value is None:
        raise InvalidRequest(f"{change.name[:100]} has no value.")
    return change.value
