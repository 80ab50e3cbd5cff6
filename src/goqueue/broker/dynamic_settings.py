"""Settings changed at run time: of one node, of all nodes, and of groups.

For nodes these are the defaults of topics, by their topic names; a single node also stores
throttles, which take effect once there are replicas. For groups they are the time-outs of members
whose assignment the broker computes. All of it is in the metadata log, so every node has it after a
restart as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from goqueue.broker.controller.metadata import FactLog, done
from goqueue.broker.topics.settings import DYNAMIC_DEFAULTS, known_setting
from goqueue.cluster.commands import ChangeConfig
from goqueue.cluster.facts import (
    BROKER_CONFIG,
    GROUP_CONFIG,
    ConfigFact,
    Decision,
    Forget,
    WholeState,
    config_key,
)
from goqueue.config import GroupSettings
from goqueue.groups import GroupTimes
from goqueue.loop.promise import Promise
from goqueue.model.errors import InvalidGroupId, InvalidRequest, InvalidTopicSetting

ALL_NODES = ""
SESSION_MS = "consumer_session_timeout_ms"
HEARTBEAT_MS = "consumer_heartbeat_interval_ms"
GROUP_SETTINGS = (SESSION_MS, HEARTBEAT_MS)
THROTTLES = ("feeding_bytes_per_second", "catching_up_bytes_per_second")
GROUP_NAME_LENGTH_MAX = 249
_HEARTBEAT_MS_MIN = 100
_GROUP_KEYS = config_key(GROUP_CONFIG, "")
_INT64_MAX = (1 << 63) - 1
_NOTHING: Mapping[str, str] = MappingProxyType({})

Changes = Mapping[str, str | None]  # None removes a setting


class DynamicSettings:
    """Validates, records and applies run-time settings."""

    def __init__(self, log: FactLog, groups: GroupSettings) -> None:
        self._log = log
        self._groups = groups
        # By group; read by coordinators.
        self.group_times: dict[str, GroupTimes] = {}
        log.on_applied(self._apply)

    def open(self) -> None:
        """Apply what is stored."""
        self._apply(tuple(self._log.metadata.configs.values()))

    # Queries

    def of_node(self, node: int) -> Mapping[str, str]:
        return self._find(BROKER_CONFIG, str(node))

    def of_all_nodes(self) -> Mapping[str, str]:
        return self._find(BROKER_CONFIG, ALL_NODES)

    def of_group(self, group: str) -> Mapping[str, str]:
        return self._find(GROUP_CONFIG, group)

    def groups(self) -> list[str]:
        """Return the groups that have their own settings."""
        known = self._log.metadata.configs.values()
        return [one.name for one in known if one.kind == GROUP_CONFIG]

    def _find(self, kind: str, name: str) -> Mapping[str, str]:
        fact = self._log.metadata.configs.get(config_key(kind, name))
        return _NOTHING if fact is None else fact.settings

    # Changes

    def change_nodes(
        self, node: int | None, changes: Changes, *, is_whole: bool = False, dry_run: bool = False
    ) -> Promise[None]:
        """Change the defaults of topics on one node, or on all nodes without their own."""
        for name, value in changes.items():
            if name in THROTTLES:
                _check_rate(name, value)
            elif name not in DYNAMIC_DEFAULTS:
                raise InvalidTopicSetting("it cannot be changed while nodes run.", setting=name)
            elif value is not None:
                known_setting(name).check(value)
        owner = ALL_NODES if node is None else str(node)
        return self._change(BROKER_CONFIG, owner, changes, is_whole=is_whole, dry_run=dry_run)

    def change_group(
        self, group: str, changes: Changes, *, is_whole: bool = False, dry_run: bool = False
    ) -> Promise[None]:
        """Change the time-outs of a group, whether or not it has members now."""
        if not group or len(group) > GROUP_NAME_LENGTH_MAX:
            raise InvalidGroupId(
                f"The name of a group with its own settings has 1 to {GROUP_NAME_LENGTH_MAX} "
                "characters."
            )
        own = {} if is_whole else dict(self.of_group(group))
        merged = {**own, **changes}
        self._check_times({name: value for name, value in merged.items() if value is not None})
        return self._change(GROUP_CONFIG, group, changes, is_whole=is_whole, dry_run=dry_run)

    def _check_times(self, settings: Mapping[str, str]) -> None:
        limits = {
            SESSION_MS: (self._groups.session_ms_min, self._groups.session_ms_max),
            HEARTBEAT_MS: (_HEARTBEAT_MS_MIN, self._groups.session_ms_max),
        }
        for name, value in settings.items():
            if name not in limits:
                raise InvalidTopicSetting("groups have no such setting.", setting=name[:100])
            least, most = limits[name]
            if not (value.isascii() and value.isdecimal() and least <= int(value) <= most):
                raise InvalidTopicSetting(
                    f"{value[:100]!r} is not a number from {least} to {most}.", setting=name
                )
        session_ms = int(settings.get(SESSION_MS, self._groups.consumer_session_ms))
        heartbeat_ms = int(settings.get(HEARTBEAT_MS, self._groups.consumer_heartbeat_ms))
        if heartbeat_ms >= session_ms:
            raise InvalidTopicSetting(
                f"the heartbeat interval of {heartbeat_ms} ms must be shorter than the session of "
                f"{session_ms} ms.",
                setting=HEARTBEAT_MS,
            )

    def _change(
        self, kind: str, name: str, changes: Changes, *, is_whole: bool, dry_run: bool
    ) -> Promise[None]:
        if dry_run:
            nothing: Promise[None] = Promise()
            nothing.resolve(None)
            return nothing
        return done(self._log.request(ChangeConfig(kind, name, dict(changes), is_whole)))

    # Applying

    def _apply(self, decision: Decision) -> None:
        if isinstance(decision, WholeState):
            self.group_times.clear()
        for change in decision:
            if isinstance(change, ConfigFact) and change.kind == GROUP_CONFIG:
                self.group_times[change.name] = _times(change.settings)
            elif isinstance(change, Forget) and change.key.startswith(_GROUP_KEYS):
                self.group_times.pop(change.key.removeprefix(_GROUP_KEYS).decode(), None)


def _times(settings: Mapping[str, str]) -> GroupTimes:
    session, heartbeat = settings.get(SESSION_MS), settings.get(HEARTBEAT_MS)
    return GroupTimes(
        None if session is None else int(session), None if heartbeat is None else int(heartbeat)
    )


def _check_rate(name: str, value: str | None) -> None:
    is_rate = value is None or (
        value.isascii() and value.isdecimal() and 1 <= int(value) <= _INT64_MAX
    )
    if not is_rate:
        raise InvalidRequest(f"{name} must be a number of bytes per second, at least 1.")
