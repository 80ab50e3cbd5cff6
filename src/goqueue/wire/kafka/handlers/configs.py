"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.gate.areas.configs import DYNAMIC_DEFAULTS, Change, ChangeKind
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.wire.kafka.config_names import (
    FOLDERS_RATE,
    OF_NODE,
    RATES,
    TOPIC_DEFAULT,
    core_name,
)
from goqueue.wire.kafka.configs import (
    HTTP_LISTENER,
    Config,
    describe_all_nodes,
    describe_group,
    describe_http,
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
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_TOPIC = 2
_BROKER = 4
_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_GROUP = 32
_RESOURCES = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_KINDS = {
    _SET: ChangeKind.SET,
    _DELETE: ChangeKind.DELETE,
    _APPEND: ChangeKind.APPEND,
    _SUBTRACT: ChangeKind.SUBTRACT,
}
_FIRST_LIST_VERSION_WITH_TYPES = 1


class _Change(NamedTuple):
    name: str
    operation: int
    value: str | None


class _Resource(NamedTuple):
    """The changes of one resource; `is_whole` resets all settings that are not named."""

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
        results=[_describe(front, call, request, resource) for resource in request.resources]
    )


def _describe(
    front: FrontEnd,
    call: Call,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        configs = _configs_of(front, call, resource)
    except GoQueueError as error:
        result.error_code, result.error_message = code_of(error), message_of(error)
        return result
    for config in configs:
        if resource.configuration_keys is None or config.name in resource.configuration_keys:
            result.configs.append(_config_result(config, request))
    return result


def _configs_of(front: FrontEnd, call: Call, resource: DescribeConfigsResource) -> list[Config]:
    configs, session = front.gate.configs, call.session
    kind, name = resource.resource_type, resource.resource_name
    if kind == _TOPIC:
        own = configs.of_topic(session, topic=name)
        return describe_topic(configs.topic_defaults(session), own)
    if kind == _GROUP:
        return describe_group(
            configs.group_defaults(session), configs.of_group(session, group=name)
        )
    if kind == _BROKER:
        if not name:
            return describe_all_nodes(configs.node_defaults(session))
        if name != str(front.node_id):
            raise InvalidRequest(f"This node is {front.node_id}, not {name!r}.")
        # Where the HTTP API is may be asked by everybody, as where the brokers are.
        if resource.configuration_keys == [HTTP_LISTENER]:
            return [_http_config(front, call)]
        return _node_configs(front, call)
    raise InvalidRequest(f"Resources of type {kind} have no configuration here.")


def _http_config(front: FrontEnd, call: Call) -> Config:
    session = call.session
    return describe_http(
        front.gate.configs.listeners(session),
        addresses=front.gate.node.addresses(session),
        listener=session.listener,
    )


def _node_configs(front: FrontEnd, call: Call) -> list[Config]:
    configs, session = front.gate.configs, call.session
    settings = configs.of_node(session)
    return describe_node(
        settings,
        configs.node_defaults(session),
        configs.throttles(session),
        addresses=front.gate.node.addresses(session),
        listener=session.listener,
    )


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
    """List resources with settings; metrics subscriptions do not exist here."""
    if call.version < _FIRST_LIST_VERSION_WITH_TYPES:
        return ListConfigResourcesResponse(config_resources=[])
    wanted = set(request.resource_types) or set(_RESOURCES)
    if not wanted <= set(_RESOURCES):
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    try:
        groups = front.gate.configs.groups(call.session)
    except GoQueueError as error:
        return ListConfigResourcesResponse(error_code=code_of(error), config_resources=[])
    names: Mapping[int, Sequence[str]] = {
        _TOPIC: [topic.name for topic in front.gate.topics.all(call.session)],
        _BROKER: [str(node) for node in front.brokers(call.session)],
        _GROUP: groups,
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
        code, message = await _alter(front, call, resource)
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
        code, message = await _alter(front, call, resource)
        responses.append(
            incremental.AlterConfigsResourceResponse(code, message, resource.kind, resource.name)
        )
    return incremental.IncrementalAlterConfigsResponse(responses=responses)


async def _alter(front: FrontEnd, call: Call, resource: _Resource) -> tuple[int, str | None]:
    """Change one resource; return the error code and message of the response."""
    try:
        names = [one.name for one in resource.changes]
        if len(set(names)) < len(names):
            raise InvalidRequest("A setting is named twice.")
        if any(one.operation not in _KINDS for one in resource.changes):
            raise InvalidRequest("A change is neither set, delete, append nor subtract.")
        if resource.kind == _TOPIC:
            await _alter_topic(front, call, resource)
        elif resource.kind == _BROKER:
            await _alter_node(front, call, resource)
        elif resource.kind == _GROUP:
            await _alter_group(front, call, resource)
        else:
            raise InvalidRequest(f"Resources of type {resource.kind} cannot be configured here.")
    except GoQueueError as error:
        return code_of(error), message_of(error)
    return 0, None


async def _alter_topic(front: FrontEnd, call: Call, resource: _Resource) -> None:
    if not resource.name:
        raise InvalidRequest(
            "Name a topic; the defaults of all topics are settings of brokers, log.retention.ms "
            "for example."
        )
    await front.gate.configs.change_topic(
        call.session,
        topic=resource.name,
        changes=[_core_change(core_name(one.name), one) for one in resource.changes],
        is_whole=resource.is_whole,
        dry_run=resource.dry_run,
        may_be_internal=True,
    )


async def _alter_group(front: FrontEnd, call: Call, resource: _Resource) -> None:
    await front.gate.configs.change_group(
        call.session,
        group=resource.name,
        changes=[_core_change(core_name(one.name), one) for one in resource.changes],
        is_whole=resource.is_whole,
        dry_run=resource.dry_run,
    )


async def _alter_node(front: FrontEnd, call: Call, resource: _Resource) -> None:
    """Change topic defaults and throttles of one node, or of all nodes."""
    rates = {one.name: _rate(one) for one in resource.changes if one.name in (*RATES, FOLDERS_RATE)}
    await front.gate.configs.change_nodes(
        call.session,
        node=_node_named(resource.name),
        changes=[
            _core_change(_default_named(one.name), one)
            for one in resource.changes
            if one.name not in rates
        ],
        throttles={RATES[name]: rate for name, rate in rates.items() if name in RATES},
        is_whole=resource.is_whole,
        dry_run=resource.dry_run,
    )


def _node_named(name: str) -> int | None:
    """The node that a resource names; None for all nodes."""
    if not name:
        return None
    if not (name.isascii() and name.isdecimal()):
        raise InvalidRequest(f"The id of a node is a number, not {name[:100]!r}.")
    return int(name)


def _default_named(name: str) -> str:
    """The topic setting whose default is the given node setting."""
    setting = TOPIC_DEFAULT.get(name)
    if setting is None or setting not in DYNAMIC_DEFAULTS:
        allowed = sorted(OF_NODE[one] for one in OF_NODE.keys() & DYNAMIC_DEFAULTS)
        raise InvalidRequest(
            f"{name[:100]} cannot be changed while nodes run; set it in the settings of "
            f"the node and restart it. What can be changed: {', '.join([*allowed, *RATES])}."
        )
    return setting


def _rate(change: _Change) -> int:
    """The bytes per second that a change sets; 0 removes a throttle."""
    if change.operation == _DELETE:
        return 0
    word = change.value or ""
    is_rate = word.isascii() and word.isdecimal() and 1 <= int(word) < 1 << 63
    if change.operation != _SET or not is_rate:
        raise InvalidRequest(f"{change.name} is set to bytes per second, from 1 on.")
    if change.name == FOLDERS_RATE:
        raise InvalidRequest("A node has one folder here, so nothing moves between several.")
    return int(word)


def _core_change(name: str, change: _Change) -> Change:
    """A change under our name of its setting."""
    if change.operation != _DELETE and change.value is None:
        raise InvalidRequest(f"{change.name[:100]} has no value.")
    return Change(name, _KINDS[change.operation], change.value)
