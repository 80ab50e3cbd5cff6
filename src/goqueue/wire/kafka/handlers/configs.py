"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from goqueue.broker.topic_settings import known_setting
from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidTopicSetting
from goqueue.wire.kafka.configs import (
    CATCHING_UP_RATE,
    FEEDING_RATE,
    FOLDERS_RATE,
    Config,
    core_name,
    describe_node,
    describe_throttles,
    describe_topic,
)
from goqueue.wire.kafka.errors import code_of, message_of
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

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_TOPIC = 2
_BROKER = 4
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
INT64_MAX = (1 << 63) - 1


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
        return describe_topic(broker.topics.defaults.values, broker.topics.get(name).fact.settings)
    if kind == _BROKER:
        if name not in ("", str(broker.node_id)):
            raise InvalidRequest(f"This node is {broker.node_id}, not {name!r}.")
        host, port = front.advertised()
        view = broker.administration.find_node(broker.node_id)
        rates = {
            FEEDING_RATE: 0 if view is None else view.feeding_bytes_per_second,
            CATCHING_UP_RATE: 0 if view is None else view.catching_up_bytes_per_second,
        }
        return [
            *describe_node(broker.settings, advertised=f"{host}:{port}"),
            *describe_throttles(rates),
        ]
    raise InvalidRequest(f"Resources of type {kind} have no configuration here.")


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
        result.synonyms.append(
            DescribeConfigsSynonym(
                name=config.name, value=config.value, source=config.config_source
            )
        )
    return result


async def alter_configs(
    front: FrontEnd, call: Call, request: full.AlterConfigsRequest
) -> full.AlterConfigsResponse:
    """Replace all settings of each topic."""
    responses = []
    for resource in request.resources:
        code, message = await _alter(
            front,
            resource.resource_type,
            resource.resource_name,
            partial(_replaced, resource.configs),
            validate_only=request.validate_only,
        )
        responses.append(
            full.AlterConfigsResourceResponse(
                code, message, resource.resource_type, resource.resource_name
            )
        )
    return full.AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    front: FrontEnd, call: Call, request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """Change some settings of each topic, and the throttles of nodes."""
    responses = []
    for resource in request.resources:
        if resource.resource_type == _BROKER:
            code, message = await _throttle(
                front,
                resource.resource_name,
                resource.configs,
                validate_only=request.validate_only,
            )
        else:
            code, message = await _alter(
                front,
                resource.resource_type,
                resource.resource_name,
                partial(_changed, front, resource.configs),
                validate_only=request.validate_only,
            )
        responses.append(
            incremental.AlterConfigsResourceResponse(
                code, message, resource.resource_type, resource.resource_name
            )
        )
    return incremental.IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    front: FrontEnd,
    kind: int,
    name: str,
    change: Callable[[dict[str, str]], dict[str, str]],
    *,
    validate_only: bool,
) -> tuple[int, str | None]:
    """Apply `change` to a topic's settings; the error code and message for the answer."""
    topics = front.broker.topics
    try:
        if kind != _TOPIC:
            raise InvalidRequest(
                "Only topics can be configured while the node runs; set the node's own settings "
                "in its configuration file and restart it."
            )
        settings = change(dict(topics.get(name).fact.settings))
        for one, value in settings.items():
            known_setting(one).check(value)
        if not validate_only:
            await topics.configure(name, settings)
    except GoQueueError as error:
        return code_of(error), message_of(error)
    return 0, None


async def _throttle(
    front: FrontEnd,
    name: str,
    changes: list[incremental.AlterableConfig],
    *,
    validate_only: bool,
) -> tuple[int, str | None]:
    """Throttle what a node sends to copies not in sync, or what its own such copies take."""
    administration = front.broker.administration
    try:
        if not name.isdecimal():
            raise InvalidRequest("Name a node; throttles of all nodes at once are not kept here.")
        node = administration.node(int(name))
        rates = {one.name: _rate(one) for one in changes}
        if not validate_only:
            await administration.throttle_node(
                node.id,
                feeding_bytes_per_second=rates.get(FEEDING_RATE),
                catching_up_bytes_per_second=rates.get(CATCHING_UP_RATE),
            )
    except GoQueueError as error:
        return code_of(error), message_of(error)
    return 0, None


def _rate(change: incremental.AlterableConfig) -> int:
    """The bytes per second that a change asks for; 0 takes a throttle back."""
    if change.name not in (FEEDING_RATE, CATCHING_UP_RATE, FOLDERS_RATE):
        raise InvalidRequest(
            f"Of a node only {FEEDING_RATE} and {CATCHING_UP_RATE} can be changed while it runs; "
            "set its own settings in its configuration file and restart it."
        )
    if change.config_operation == _DELETE:
        return 0
    word = change.value or ""
    is_rate = word.isascii() and word.isdecimal() and 1 <= int(word) <= INT64_MAX
    if change.config_operation != _SET or not is_rate:
        raise InvalidRequest(f"{change.name} is set to bytes per second, from 1 on.")
    if change.name == FOLDERS_RATE:
        raise InvalidRequest("A node has one folder here, so nothing moves between several.")
    return int(word)


def _replaced(configs: list[full.AlterableConfig], own: dict[str, str]) -> dict[str, str]:
    return {core_name(one.name): _value(one.name, one.value) for one in configs}


def _changed(
    front: FrontEnd, changes: list[incremental.AlterableConfig], own: dict[str, str]
) -> dict[str, str]:
    for change in changes:
        name = core_name(change.name)
        setting = known_setting(name)
        if change.config_operation == _DELETE:
            own.pop(name, None)
        elif change.config_operation == _SET:
            own[name] = _value(change.name, change.value)
        elif setting.kind != "list":
            raise InvalidTopicSetting("it is no list; set it as a whole.", setting=name)
        else:
            current = own.get(name, front.broker.topics.defaults.values[name]).split(",")
            words = [word for word in current if word]
            named = _value(change.name, change.value).split(",")
            if change.config_operation == _APPEND:
                words += [word for word in named if word not in words]
            elif change.config_operation == _SUBTRACT:
                words = [word for word in words if word not in named]
            else:
                raise InvalidRequest(f"Operation {change.config_operation} is unknown.")
            own[name] = ",".join(words)
    return own


def _value(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidTopicSetting("it has no value.", setting=core_name(name))
    return value
