"""Operations on settings that change while nodes run: those of topics, nodes and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from goqueue.broker.dynamic_settings import (
    GROUP_SETTINGS,
    HEARTBEAT_MS,
    SESSION_MS,
    THROTTLES,
)
from goqueue.broker.gate.operation import Area, cluster, everybody, group, operation, query, topic
from goqueue.broker.topics.settings import (
    ACCEPTED_SETTINGS,
    DYNAMIC_DEFAULTS,
    TOPIC_SETTINGS,
    TopicDefaults,
    TopicSetting,
    known_setting,
)
from goqueue.config import GroupSettings, Settings
from goqueue.loop.promise import Promise
from goqueue.model.access import Action
from goqueue.model.errors import InternalTopic, InvalidRequest, InvalidTopicSetting
from goqueue.model.session import Session

__all__ = [
    "ACCEPTED_SETTINGS",
    "CATCHING_UP",
    "DYNAMIC_DEFAULTS",
    "FEEDING",
    "GROUP_SETTINGS",
    "HEARTBEAT_MS",
    "SESSION_MS",
    "TOPIC_SETTINGS",
    "Change",
    "ChangeKind",
    "ConfigsArea",
    "DefaultLayers",
    "GroupSettings",
    "Settings",
    "TopicSetting",
    "built_in_defaults",
    "built_in_settings",
    "known_setting",
]

FEEDING, CATCHING_UP = THROTTLES


class ChangeKind(StrEnum):
    """What a change does to a setting. Only lists are appended to and subtracted from."""

    SET = "set"
    DELETE = "delete"  # back to the default
    APPEND = "append"
    SUBTRACT = "subtract"


class Change(NamedTuple):
    """A change of one setting."""

    name: str
    kind: ChangeKind
    value: str | None = None


class DefaultLayers(NamedTuple):
    """Where the defaults of topics come from, by the names that topics have for them.

    The first that has a setting counts.
    """

    node: Mapping[str, str]  # changed while this node runs, for it alone
    all_nodes: Mapping[str, str]  # the same for all nodes
    static: Mapping[str, str]  # what this node was started with
    built_in: Mapping[str, str]  # without any configuration

    def value(self, name: str) -> str:
        """The default that is in effect."""
        layers = (self.node, self.all_nodes, self.static)
        return next(one[name] for one in layers if name in one)


class ConfigsArea(Area):
    """Settings of topics, nodes and groups: read and change."""

    # Reading

    @query(Action.DESCRIBE_CONFIGS, topic())
    def of_topic(self, session: Session, *, topic: str) -> Mapping[str, str]:
        """The settings that a topic has of its own."""
        return self._broker.topics.get(topic).own_settings

    @query(Action.DESCRIBE_CONFIGS, group())
    def of_group(self, session: Session, *, group: str) -> Mapping[str, str]:
        """The settings that a group has of its own."""
        if not group:
            raise InvalidRequest("Name a group; groups have no settings in common.")
        return self._broker.dynamic_settings.of_group(group)

    @query(Action.DESCRIBE_CONFIGS, cluster)
    def of_node(self, session: Session) -> Settings:
        """What this node was started with."""
        return self._broker.settings

    @query(Action.DESCRIBE, everybody)
    def group_defaults(self, session: Session) -> GroupSettings:
        """What groups have by default on this node."""
        return self._broker.settings.groups

    @query(Action.DESCRIBE, everybody)
    def topic_defaults(self, session: Session) -> DefaultLayers:
        """What topics have by default on this node."""
        broker = self._broker
        return DefaultLayers(
            broker.dynamic_settings.of_node(broker.node_id),
            broker.dynamic_settings.of_all_nodes(),
            broker.topics.defaults.static,
            built_in_defaults(),
        )

    @query(Action.DESCRIBE_CONFIGS, cluster)
    def node_defaults(self, session: Session) -> DefaultLayers:
        """What topics have by default on this node, for whoever may read settings of nodes."""
        return self.topic_defaults(session)

    @query(Action.DESCRIBE_CONFIGS, cluster)
    def throttles(self, session: Session) -> Mapping[str, int]:
        """The bytes per second that replication from and to this node is limited to; 0 is none."""
        broker = self._broker
        if broker.cluster is None:
            own = broker.dynamic_settings.of_node(broker.node_id)
            return {name: int(own.get(name, "0")) for name in THROTTLES}
        view = broker.administration.find_node(broker.node_id)
        return {
            FEEDING: 0 if view is None else view.feeding_bytes_per_second,
            CATCHING_UP: 0 if view is None else view.catching_up_bytes_per_second,
        }

    @query(Action.DESCRIBE_CONFIGS, cluster)
    def groups(self, session: Session) -> Sequence[str]:
        """The groups that have settings of their own."""
        return self._broker.dynamic_settings.groups()

    # Changing

    @operation(Action.ALTER_CONFIGS, topic())
    async def change_topic(
        self,
        session: Session,
        *,
        topic: str,
        changes: Sequence[Change],
        is_whole: bool = False,
        dry_run: bool = False,
        may_be_internal: bool = False,
    ) -> None:
        """Change settings of a topic; `is_whole` takes back those that are not named."""
        topics = self._broker.topics
        found = topics.get(topic)
        if found.is_internal and not may_be_internal:
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
    def change_group(
        self,
        session: Session,
        *,
        group: str,
        changes: Sequence[Change],
        is_whole: bool = False,
        dry_run: bool = False,
    ) -> Promise[None]:
        """Change settings of a group, whether or not it has members now."""
        if not group:
            raise InvalidRequest("Name a group; groups have no settings in common.")
        values: dict[str, str | None] = {}
        for change in changes:
            if change.name not in GROUP_SETTINGS:
                raise InvalidTopicSetting("groups have no such setting.", setting=change.name[:100])
            if change.kind in (ChangeKind.APPEND, ChangeKind.SUBTRACT):
                raise InvalidTopicSetting("it is no list; set it as a whole.", setting=change.name)
            values[change.name] = None if change.kind is ChangeKind.DELETE else _value(change)
        return self._broker.dynamic_settings.change_group(
            group, values, is_whole=is_whole, dry_run=dry_run
        )

    @operation(Action.ALTER_CONFIGS, cluster)
    async def change_nodes(
        self,
        session: Session,
        *,
        node: int | None,
        changes: Sequence[Change],
        throttles: Mapping[str, int],
        is_whole: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Change the defaults of topics and the throttles of one node, or the defaults of all.

        A throttle of 0 takes it back.
        """
        broker = self._broker
        if node is not None and broker.administration.find_node(node) is None:
            raise InvalidRequest(f"There is no node {node}.")
        if node is None and any(throttles.values()):
            raise InvalidRequest("Name a node; throttles of all nodes at once are not kept here.")
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
        """The values that changes of defaults lead to."""
        known = self._broker.dynamic_settings
        own = known.of_all_nodes() if node is None else known.of_node(node)
        in_effect = self._broker.topics.defaults.values
        return {
            one.name: _changed(one, own.get(one.name, in_effect.get(one.name, "")))
            for one in changes
        }


@cache
def built_in_settings() -> Settings:
    """The settings of a node that nobody has configured."""
    return Settings()


@cache
def built_in_defaults() -> Mapping[str, str]:
    """The defaults of topics on such a node."""
    plain = built_in_settings()
    return TopicDefaults(plain.storage, plain.compaction, plain.topics).static


def _changed(change: Change, current: str) -> str | None:
    """The value of a setting after a change; None where it goes back to its default."""
    setting = known_setting(change.name)
    if change.kind is ChangeKind.DELETE:
        return None
    value = _value(change)
    if change.kind is ChangeKind.SET:
        return value
    if setting.kind != "list":
        raise InvalidTopicSetting("it is no list; set it as a whole.", setting=change.name)
    words = [word for word in current.split(",") if word]
    named = value.split(",")
    if change.kind is ChangeKind.APPEND:
        words += [word for word in named if word not in words]
    else:
        words = [word for word in words if word not in named]
    return ",".join(words)


def _value(change: Change) -> str:
    if change.value is None:
        raise InvalidRequest(f"{change.name[:100]} has no value.")
    return change.value
