"""Operations on settings that can change at run time: those of topics, nodes and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, NamedTuple

import msgspec

from goqueue.broker.dynamic_settings import (
    GROUP_SETTINGS,
    HEARTBEAT_MS,
    SESSION_MS,
    THROTTLES,
)
from goqueue.broker.gate.operation import (
    Area,
    cluster,
    everybody,
    group,
    operation,
    own_cluster,
    query,
    topic,
)
from goqueue.broker.share_groups.members import NEW_GROUP
from goqueue.broker.share_groups.settings import (
    SHARE_SETTINGS,
    queue_changes,
    share_defaults,
    share_overrides,
)
from goqueue.broker.topics.settings import (
    ACCEPTED_SETTINGS,
    DYNAMIC_DEFAULTS,
    TOPIC_SETTINGS,
    TopicDefaults,
    TopicSetting,
    known_setting,
)
from goqueue.config import GroupSettings, ListenerSettings, Settings
from goqueue.delivery import change_queue_settings
from goqueue.model.access import Action
from goqueue.model.errors import InternalTopic, InvalidRequest, InvalidTopicSetting
from goqueue.model.names import AUDIT_TOPIC, JOURNEYS_TOPIC
from goqueue.model.session import Session
from goqueue.model.tenants import GroupName, NameKind, Text, TopicName

__all__ = [
    "ACCEPTED_SETTINGS",
    "CATCHING_UP",
    "DYNAMIC_DEFAULTS",
    "FEEDING",
    "GROUP_SETTINGS",
    "HEARTBEAT_MS",
    "SESSION_MS",
    "SHARE_SETTINGS",
    "TOPIC_SETTINGS",
    "Change",
    "ChangeKind",
    "ConfigsArea",
    "DefaultLayers",
    "GroupSettings",
    "ListenerSettings",
    "Settings",
    "TopicSetting",
    "built_in_defaults",
    "built_in_settings",
    "known_setting",
    "share_defaults",
]

FEEDING, CATCHING_UP = THROTTLES


class ChangeKind(StrEnum):
    """What a change does to a setting. Append and subtract apply to lists only."""

    SET = "set"
    DELETE = "delete"  # back to the default
    APPEND = "append"
    SUBTRACT = "subtract"


class Change(NamedTuple):
    """A change of one setting."""

    name: Text
    kind: ChangeKind
    value: Text | None = None


class DefaultLayers(NamedTuple):
    """The layers of topic defaults, by the names of the topic settings.

    The first layer that has a setting takes precedence.
    """

    node: Mapping[Text, Text]  # dynamic, for this node only
    all_nodes: Mapping[Text, Text]  # dynamic, for all nodes
    static: Mapping[Text, Text]  # from the configuration of this node
    built_in: Mapping[Text, Text]  # without any configuration

    def value(self, name: str) -> str:
        """Return the default in effect."""
        layers = (self.node, self.all_nodes, self.static)
        return next(one[name] for one in layers if name in one)


class ConfigsArea(Area):
    """Settings of topics, nodes and groups: read and change."""

    # Reading

    @query(Action.DESCRIBE_CONFIGS, topic())
    def of_topic(self, session: Session, *, topic: TopicName) -> Mapping[Text, Text]:
        """Return the settings that a topic overrides."""
        return self._broker.topics.get(topic).own_settings

    @query(Action.DESCRIBE_CONFIGS, group())
    def of_group(self, session: Session, *, group: GroupName) -> Mapping[Text, Text]:
        """Return the settings that a group overrides."""
        if not group:
            raise InvalidRequest("Name a group; there are no settings common to all groups.")
        of_members = self._broker.dynamic_settings.of_group(group)
        return {**of_members, **self._share_overrides(group)}

    def _share_overrides(self, group: str) -> Mapping[str, str]:
        groups = self._broker.queues.groups
        return share_overrides(groups.get(group).settings) if groups.is_known(group) else {}

    @query(Action.DESCRIBE_CONFIGS, cluster)
    def of_node(self, session: Session) -> Annotated[Settings, NameKind.NONE]:
        """Return the configuration that this node was started with."""
        return self._broker.settings

    @query(Action.DESCRIBE, everybody)
    def listeners(self, session: Session) -> Annotated[ListenerSettings, NameKind.NONE]:
        """Return the listeners of this node; clients are told those that fit them."""
        return self._broker.settings.listeners

    @query(Action.DESCRIBE, everybody)
    def group_defaults(self, session: Session) -> GroupSettings:
        """Return the default settings of groups on this node."""
        return self._broker.settings.groups

    @query(Action.DESCRIBE, everybody)
    def topic_defaults(self, session: Session) -> DefaultLayers:
        """Return the default settings of topics on this node."""
        broker = self._broker
        return DefaultLayers(
            broker.dynamic_settings.of_node(broker.node_id),
            broker.dynamic_settings.of_all_nodes(),
            broker.topics.defaults.static,
            built_in_defaults(),
        )

    @query(Action.DESCRIBE_CONFIGS, cluster)
    def node_defaults(self, session: Session) -> DefaultLayers:
        """Return the topic defaults on this node, for sessions that may read node settings."""
        return self.topic_defaults(session)

    @query(Action.DESCRIBE_CONFIGS, cluster)
    def throttles(self, session: Session) -> Mapping[Text, int]:
        """Return the replication throttles of this node in bytes per second; 0 is unlimited."""
        broker = self._broker
        if broker.cluster is None:
            own = broker.dynamic_settings.of_node(broker.node_id)
            return {name: int(own.get(name, "0")) for name in THROTTLES}
        view = broker.administration.find_node(broker.node_id)
        return {
            FEEDING: 0 if view is None else view.feeding_bytes_per_second,
            CATCHING_UP: 0 if view is None else view.catching_up_bytes_per_second,
        }

    @query(Action.DESCRIBE_CONFIGS, own_cluster)
    def groups(self, session: Session) -> Sequence[GroupName]:
        """Return the groups that override settings."""
        of_members = self._broker.dynamic_settings.groups()
        queue_groups = [one.fact.name for one in self._broker.queues.groups.known()]
        shared = [one for one in queue_groups if self._share_overrides(one)]
        return sorted({*of_members, *shared})

    # Changing

    @operation(Action.ALTER_CONFIGS, topic())
    async def change_topic(
        self,
        session: Session,
        *,
        topic: TopicName,
        changes: Sequence[Change],
        is_whole: bool = False,
        dry_run: bool = False,
        may_be_internal: bool = False,
    ) -> None:
        """Change settings of a topic; with `is_whole`, all others revert to their defaults."""
        topics = self._broker.topics
        found = topics.get(topic)
        # These have the settings of their nodes: who may alter topics may not shorten them.
        has_own_settings = topic in (AUDIT_TOPIC, JOURNEYS_TOPIC)
        if (found.is_internal and not may_be_internal) or has_own_settings:
            raise InternalTopic(topic)
        settings = {} if is_whole else dict(found.own_settings)
        for change in changes:
            current = settings.get(change.name, topics.defaults.values.get(change.name, ""))
            value = _changed(change, current)
            if value is None:
                settings.pop(change.name, None)
            else:
                settings[change.name] = value
        for name, value in settings.items():
            known_setting(name).check(value)
        if not dry_run:
            await topics.configure(topic, settings)

    @operation(Action.ALTER_CONFIGS, group())
    async def change_group(
        self,
        session: Session,
        *,
        group: GroupName,
        changes: Sequence[Change],
        is_whole: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Change settings of a group, whether or not it has members.

        Those of share groups are settings of the queue group, which is created if it is missing.
        """
        if not group:
            raise InvalidRequest("Name a group; there are no settings common to all groups.")
        values: dict[str, str | None] = {}
        for change in changes:
            if change.name not in (*GROUP_SETTINGS, *SHARE_SETTINGS):
                raise InvalidTopicSetting("groups have no such setting.", setting=change.name[:100])
            if change.kind in (ChangeKind.APPEND, ChangeKind.SUBTRACT):
                raise InvalidTopicSetting("it is not a list; use set.", setting=change.name)
            values[change.name] = None if change.kind is ChangeKind.DELETE else _value(change)
        shared = {name: values.pop(name) for name in SHARE_SETTINGS if name in values}
        if is_whole and self._share_overrides(group):
            shared = {**dict.fromkeys(SHARE_SETTINGS), **shared}
        if shared:
            await self._change_queue_group(session, group, queue_changes(shared), dry_run=dry_run)
        if values or not shared:
            await self._broker.dynamic_settings.change_group(
                group, values, is_whole=is_whole, dry_run=dry_run
            )

    async def _change_queue_group(
        self, session: Session, group: str, changes: Mapping[str, Any], *, dry_run: bool
    ) -> None:
        """Change the settings of a queue group where they are changed, or create it there."""
        queue_groups, groups = self._broker.queues.groups, self._broker.gate.groups
        is_known = queue_groups.is_known(group)
        known = queue_groups.get(group).fact.settings if is_known else NEW_GROUP
        settings = change_queue_settings(known, changes)
        queue_groups.check_settings(group, msgspec.to_builtins(settings))
        if dry_run:
            return
        if is_known:
            await groups.change_queue(session, group=group, changes=dict(changes))
        else:
            await groups.put_queue(session, group=group, settings=settings)

    @operation(Action.ALTER_CONFIGS, cluster)
    async def change_nodes(
        self,
        session: Session,
        *,
        node: int | None,
        changes: Sequence[Change],
        throttles: Mapping[Text, int],
        is_whole: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Change the topic defaults and throttles of one node, or the topic defaults of all.

        A throttle of 0 removes it.
        """
        broker = self._broker
        if node is not None and broker.administration.find_node(node) is None:
            raise InvalidRequest(f"Node {node} does not exist.")
        if node is None and any(throttles.values()):
            raise InvalidRequest("Name a node; throttles can only be set per node.")
        values = self._changed_defaults(node, changes)
        if broker.cluster is None or node is None:
            values |= {name: str(rate) if rate else None for name, rate in throttles.items()}
        elif not dry_run and (throttles or is_whole):
            missing = 0 if is_whole else None
            await broker.administration.throttle_node(
                node,
                feeding_bytes_per_second=throttles.get(FEEDING, missing),
                catching_up_bytes_per_second=throttles.get(CATCHING_UP, missing),
            )
        if values or is_whole:
            await broker.dynamic_settings.change_nodes(
                node, values, is_whole=is_whole, dry_run=dry_run
            )

    def _changed_defaults(
        self, node: int | None, changes: Sequence[Change]
    ) -> dict[str, str | None]:
        """Return the values that result from changes of defaults."""
        known = self._broker.dynamic_settings
        own = known.of_all_nodes() if node is None else known.of_node(node)
        in_effect = self._broker.topics.defaults.values
        return {
            one.name: _changed(one, own.get(one.name, in_effect.get(one.name, "")))
            for one in changes
        }


@cache
def built_in_settings() -> Settings:
    """Return the settings of a node without any configuration."""
    return Settings()


@cache
def built_in_defaults() -> Mapping[str, str]:
    """Return the topic defaults of such a node."""
    plain = built_in_settings()
    return TopicDefaults(plain.storage, plain.compaction, plain.topics).static


def _changed(change: Change, current: str) -> str | None:
    """Return the value of a setting after a change; None if it reverts to its default."""
    setting = known_setting(change.name)
    if change.kind is ChangeKind.DELETE:
        return None
    value = _value(change)
    if change.kind is ChangeKind.SET:
        return value
    if setting.kind != "list":
        raise InvalidTopicSetting("it is not a list; use set.", setting=change.name)
    words = [word for word in current.split(",") if word]
    named = value.split(",")
    if change.kind is ChangeKind.APPEND:
        words += [word for word in named if word not in words]
    else:
        words = [word for word in words if word not in named]
    return ",".join(words)


def _value(change: Change) -> str:
    if change.value is None:
        raise InvalidRequest(f"{change.name[:100]} has no value; give one.")
    return change.value
