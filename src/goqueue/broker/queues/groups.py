"""The definitions of queue groups: creating, changing and deleting them, and who owns them.

In a cluster every node has the definitions of all groups. The delivery state of a group is on one
node, its owner, and calls to other nodes are refused with `NotCoordinator`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from goqueue.broker.queues.host import HostedGroup, HostedQueue
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import QueueGroupFact
from goqueue.delivery import QueueSettings, check_queue_settings
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    GroupKindMismatch,
    InternalTopic,
    InvalidGroupId,
    InvalidGroupSettings,
    InvalidRequest,
    UnknownGroup,
    UpgradeInProgress,
)
from goqueue.model.names import DELIVERY_TOPIC, INTERNAL_TOPICS
from goqueue.model.tenants import GroupName, TopicName

GROUP_NAME_LENGTH_MAX = 249
NO_OWNER = -1


class QueueGroup(NamedTuple):
    """The description of a queue group."""

    name: GroupName
    settings: QueueSettings
    topics: list[TopicName]


class QueueGroups:
    """All queue groups."""

    def __init__(
        self,
        topics: Topics,
        hosts: QueueHosts,
        *,
        new_id: Callable[[], bytes],
        is_stream_group: Callable[[str], bool],
    ) -> None:
        """`is_stream_group` returns whether one has a name, by the metadata on this node."""
        self.is_stream_group = is_stream_group
        # Raises if the tenant of a new group may have no more.
        self.check_quota: Callable[[str], None] | None = None
        self._topics = topics
        self._hosts = hosts
        self._new_id = new_id
        # Changes of settings in progress, by group; the next one of a group waits for them.
        self._changing: dict[str, Promise[None]] = {}

    # Definitions

    def is_known(self, name: str) -> bool:
        return name in self._hosts.groups

    def all(self) -> list[QueueGroup]:
        """Return all groups; with topics only for those that this node owns."""
        return [_describe(group) for group in self._hosts.groups.values()]

    def describe(self, name: str) -> QueueGroup:
        return _describe(self.owned(name))

    def known(self) -> list[HostedGroup]:
        """Return all groups as this node has them."""
        return list(self._hosts.groups.values())

    def create(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        *,
        keeps_known: bool = False,
    ) -> Promise[None]:
        """Create a group, or change the settings of an existing one; resolves when durable.

        With `keeps_known`, or without settings, a group that another node has created in the
        meantime is not changed.
        """
        known = self._hosts.groups.get(name)
        checked = self.check_settings(name, settings or {})
        group_id = self._new_id() if known is None else known.fact.id
        level = self._topics.facts.log.metadata.level
        fact = QueueGroupFact(group_id, name, checked.at_level(level))
        return self._topics.facts.record_queue_group(
            fact, keeps_known=keeps_known or settings is None
        )

    async def change(
        self, name: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]
    ) -> None:
        """Replace the settings of a group by what `change` returns for the current ones."""
        while (other := self._changing.get(name)) is not None:
            await other
        done = self._changing[name] = Promise()
        try:
            await self.create(name, change(dict(self.get(name).fact.settings)))
        finally:
            del self._changing[name]
            done.resolve(None)

    def check_level(self, needed: int, what: str) -> None:
        """Raise UpgradeInProgress if the cluster may still have nodes of an older release."""
        level = self._topics.facts.log.metadata.level
        if level < needed:
            raise UpgradeInProgress(
                f"{what} cannot be used before the upgrade of the cluster is finalized: the "
                f"feature level is {level}, and {needed} is needed. Run `goqueue cluster upgrade`."
            )

    def check_settings(self, name: str, settings: Mapping[str, Any]) -> QueueSettings:
        """Raise if `create` would refuse these settings."""
        if name not in self._hosts.groups:
            self._check_new(name)
        checked = check_queue_settings(dict(settings))
        if checked.dead_letter_topic:
            self._topics.check_name(checked.dead_letter_topic)
            if checked.dead_letter_topic in INTERNAL_TOPICS:
                raise InvalidGroupSettings("dead_letter_topic must not be an internal topic.")
        return checked

    def _check_new(self, name: str) -> None:
        if not name or len(name) > GROUP_NAME_LENGTH_MAX:
            raise InvalidGroupId(
                f"A group's name has 1 to {GROUP_NAME_LENGTH_MAX} characters, not {len(name)}."
            )
        if self.is_stream_group(name):
            raise GroupKindMismatch(name, is_queue=False)
        if self.check_quota is not None:
            self.check_quota(name)

    def delete(self, name: str) -> Promise[None]:
        """Delete a group and all its delivery state."""
        self.get(name)
        return self._topics.facts.forget_queue_group(name)

    def leased_here(self) -> dict[str, int]:
        """Return how many messages of each group that this node owns are leased."""
        return {
            name: sum(one.queue.leases.count for one in group.queues.values())
            for name, group in self._hosts.groups.items()
            if group.queues
        }

    def hosted_here(self) -> list[HostedQueue]:
        """Return the queues of the groups that this node owns, as far as they are started."""
        groups = self._hosts.groups.values()
        return [one for group in groups for one in group.queues.values()]

    # Ownership

    def owner_of(self, name: str) -> int:
        """Return the node that owns a group; -1 if there is none, or no such group."""
        group = self._hosts.groups.get(name)
        return NO_OWNER if group is None else self.owner_of_state(group.id)

    def owner_of_state(self, group_id: str) -> int:
        """Return the owner of a group id, or of a state name of the broker itself."""
        topic, leaders = self._topics.find(DELIVERY_TOPIC), self._hosts.leaders
        if topic is None:
            return leaders.node_id if leaders.is_alone else NO_OWNER
        return leaders.node_of(topic, self._hosts.journal.number_of(group_id))

    def place_of(self, name: str) -> int:
        """Return the journal partition that holds a group's delivery state."""
        return self._hosts.journal.number_of(self.get(name).id)

    # Lookup

    def get(self, name: str) -> HostedGroup:
        group = self._hosts.groups.get(name)
        if group is None:
            raise UnknownGroup(name)
        return group

    def owned(self, name: str) -> HostedGroup:
        """Return a group; raise unless this node owns it."""
        group = self.get(name)
        group.check_owned()
        return group

    def served(self, name: str, topic_name: str) -> tuple[HostedGroup, Topic]:
        """Return a group and a topic, if this node can serve them."""
        group, topic = self.get(name), self._topics.get(topic_name)
        if topic.is_internal:
            raise InternalTopic(topic_name)
        self._hosts.check_served(group, topic)
        return group, topic

    def queue_of(self, name: str, topic_name: str) -> HostedQueue:
        """Return the queue of a group for a topic, without starting it: inspection must not."""
        group, topic = self.served(name, topic_name)
        hosted = group.queues.get(topic.name)
        if hosted is None:
            raise InvalidRequest(
                f"Group {name!r} has not received from topic {topic_name!r} yet; receive first."
            )
        return hosted


def _describe(group: HostedGroup) -> QueueGroup:
    return QueueGroup(group.fact.name, group.settings, sorted(group.queues))
