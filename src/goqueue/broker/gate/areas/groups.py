"""Operations on groups of both kinds, and on stream groups as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from goqueue.broker.gate.forwarding import (
    Coordinators,
    coordinator,
    find_coordinators,
    owner_of_group,
)
from goqueue.broker.gate.operation import (
    OPERATIONS,
    Area,
    Arguments,
    group,
    named_by_owner,
    operation,
    topics,
)
from goqueue.broker.queues.groups import QueueGroup
from goqueue.broker.streams.progress import PartitionLag, Start
from goqueue.delivery import QueueSettings, change_queue_settings
from goqueue.groups import (
    GroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
    Partition,
    Partitions,
    Rebalance,
    RebalanceReport,
    flatten,
    nest,
)
from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    GroupKindMismatch,
    UnknownGroup,
)
from goqueue.model.session import Session
from goqueue.model.tenants import GroupName, NameKind, NamePrefix, Text, TopicName

__all__ = [
    "GroupDescription",
    "GroupKind",
    "GroupLag",
    "GroupState",
    "GroupType",
    "GroupsArea",
    "ListedGroup",
    "MemberDescription",
    "Partition",
    "PartitionLag",
    "Partitions",
    "QueueGroup",
    "QueueSettings",
    "Rebalance",
    "RebalanceReport",
    "flatten",
    "nest",
]

GroupKind = Literal["stream", "queue"]
SettingChanges = Annotated[dict[str, str | bool | int | float | None], NameKind.QUEUE_SETTINGS]

_QUEUE_STATE = "Stable"  # a queue group has no membership that could change


class ListedGroup(NamedTuple):
    """A group in a list; type and protocol type are set for stream groups only."""

    name: GroupName
    kind: GroupKind
    state: Text
    type: Text = ""
    protocol_type: Text = ""


class GroupLag(NamedTuple):
    """The lag of a group, by partition."""

    kind: GroupKind
    partitions: list[PartitionLag]


# Inside the area, `list` is an operation.
ListedGroups = list[ListedGroup]
TopicNames = list[TopicName]
Lags = list[PartitionLag]


def _merged(_: Arguments, answers: Sequence[ListedGroups]) -> ListedGroups:
    """Merge the groups: every node has all queue groups, and the stream groups it coordinates."""
    found = {(one.name, one.kind): one for answer in answers for one in answer}
    return [found[key] for key in sorted(found)]


class GroupsArea(Area):
    """Groups of both kinds: list, describe, create, change, delete, and their lag."""

    @operation(Action.DESCRIBE, named_by_owner, merge=_merged, is_reading=True)
    async def list(
        self,
        session: Session,
        *,
        kind: GroupKind | None = None,
        prefix: NamePrefix = "",
        states: frozenset[GroupState] = frozenset(),
        types: frozenset[GroupType] = frozenset(),
    ) -> ListedGroups:
        """Return groups by name; `states` and `types` filter stream groups."""
        found: ListedGroups = []
        if kind != "queue":
            found += [
                ListedGroup(one.group_id, "stream", one.state, one.type, one.protocol_type)
                for one in self._broker.groups.all(states, types)
            ]
        if kind != "stream":
            known = self._broker.queues.groups.all()
            found += [ListedGroup(one.name, "queue", _QUEUE_STATE) for one in known]
        sees_all = self._may(session, Action.DESCRIBE, CLUSTER)
        return sorted(
            one
            for one in found
            if one.name.startswith(prefix) and (sees_all or self._sees(session, one.name))
        )

    @operation(Action.DESCRIBE, group(), owner=owner_of_group, is_reading=True)
    async def describe(
        self, session: Session, *, group: GroupName
    ) -> GroupDescription | QueueGroup:
        """Describe a group of either kind, with the topics that the session may describe."""
        if self._broker.queues.groups.is_known(group):
            found = self._broker.queues.groups.describe(group)
            seen = [one for one in found.topics if self._sees_topic(session, one)]
            return found._replace(topics=seen)
        return self._visible(session, self._describe_stream(group))

    @operation(Action.DESCRIBE, group(), owner=coordinator, is_reading=True)
    async def describe_stream(self, session: Session, *, group: GroupName) -> GroupDescription:
        """Describe a stream group, with the topics that the session may describe."""
        return self._visible(session, self._describe_stream(group))

    @operation(Action.DESCRIBE, group(), owner=coordinator, is_reading=True)
    async def rebalances(self, session: Session, *, group: GroupName) -> RebalanceReport:
        """Return how often, why and for how long a stream group was rebalanced."""
        self._describe_stream(group)
        return self._broker.groups.rebalances(group).report()

    @operation(Action.ALTER_CONFIGS, group(), owner=coordinator)
    async def put_queue(
        self, session: Session, *, group: GroupName, settings: QueueSettings | None
    ) -> QueueGroup:
        """Create a queue group, or replace its settings; without settings, keep existing ones.

        The name must not be that of a stream group, which its coordinator can check.
        """
        if settings is not None:
            self._check_dead_letters(session, settings.dead_letter_topic)
        values = None if settings is None else msgspec.to_builtins(settings)
        await self._broker.queues.groups.create(group, values)
        return await self._describe_made(session, group)

    @operation(Action.READ, group(), topics(), owner=coordinator, is_change=True)
    async def put_stream(
        self, session: Session, *, group: GroupName, topics: TopicNames, start: Start
    ) -> GroupDescription:
        """Set the initial offsets of a stream group in topics where it has committed none."""
        await self._broker.stream_progress.begin(group, topics, start=start)
        return self._describe_stream(group)

    @operation(Action.ALTER_CONFIGS, group(), owner=coordinator)
    async def change_queue(
        self, session: Session, *, group: GroupName, changes: SettingChanges
    ) -> QueueGroup:
        """Change some settings of a queue group; None reverts one to its default."""
        if not self._broker.queues.groups.is_known(group):
            self._describe_stream(group)
            raise GroupKindMismatch(group, is_queue=False)

        self._check_dead_letters(session, str(changes.get("dead_letter_topic") or ""))

        def changed(known: dict[str, Any]) -> Mapping[str, Any]:
            values: Mapping[str, Any] = msgspec.to_builtins(change_queue_settings(known, changes))
            return values

        await self._broker.queues.groups.change(group, changed)
        return await self._describe_made(session, group)

    @operation(Action.DELETE, group(), owner=owner_of_group)
    async def delete(self, session: Session, *, group: GroupName) -> None:
        """Delete a group of either kind and its state."""
        if self._broker.queues.groups.is_known(group):
            await self._broker.queues.groups.delete(group)
            return
        self._describe_stream(group)
        await self._broker.groups.delete(group)

    @operation(Action.DELETE, group(), owner=coordinator)
    async def delete_stream(self, session: Session, *, group: GroupName) -> None:
        """Delete a stream group and its offsets."""
        await self._broker.groups.delete(group)

    @operation(Action.DESCRIBE, group(), owner=owner_of_group, is_reading=True)
    async def lag(self, session: Session, *, group: GroupName) -> GroupLag:
        """Return the lag of a group in every partition of the topics it reads."""
        kind: GroupKind = "queue" if self._broker.queues.groups.is_known(group) else "stream"
        if kind == "queue":
            lags = self._queue_lag(group)
        else:
            lags = await self._broker.stream_progress.lag(group)
        ages_ms = await self._broker.measuring.history.figures.ages_ms(group)
        return GroupLag(
            kind,
            [
                one._replace(age_ms=ages_ms.get((one.topic, one.partition)) if one.lag else 0)
                for one in lags
                if self._may(session, Action.DESCRIBE, Resource(ResourceKind.TOPIC, one.topic))
            ],
        )

    @operation(Action.DESCRIBE, named_by_owner, is_reading=True)
    async def find_coordinators(
        self, session: Session, *, groups: Sequence[GroupName]
    ) -> dict[GroupName, int | GoQueueError]:
        """Return the coordinator of each of these stream groups, -1 if there is none."""
        found: Coordinators = {}
        for name in groups:
            resource = Resource(ResourceKind.GROUP, name)
            if not self._may(session, Action.DESCRIBE, resource):
                found[name] = self._denial(session, Action.DESCRIBE, resource)
        streams = self._broker.groups
        topic = await streams.ensure_topic()
        names = [name for name in groups if name not in found]
        nodes = await find_coordinators(
            self._broker, session.listener, topic, streams.partition_of, names
        )
        return {**found, **nodes}

    def _visible(self, session: Session, found: GroupDescription) -> GroupDescription:
        """Leave out the topics of members that the session may not see."""
        if self._authoriser.is_open(session):
            return found

        def sees(topic: str) -> bool:
            return self._sees_topic(session, topic)

        members = tuple(
            msgspec.structs.replace(
                one,
                subscribed_topics=tuple(topic for topic in one.subscribed_topics if sees(topic)),
                assigned=frozenset(each for each in one.assigned if sees(each[0])),
                target=frozenset(each for each in one.target if sees(each[0])),
            )
            for one in found.members
        )
        return msgspec.structs.replace(found, members=members)

    def _check_dead_letters(self, session: Session, topic: str) -> None:
        """Raise unless the session may write to the topic that gets the dead letters of a group."""
        if topic:
            self._check(session, Action.WRITE, Resource(ResourceKind.TOPIC, topic))

    def _sees(self, session: Session, name: str) -> bool:
        return self._may(session, Action.DESCRIBE, Resource(ResourceKind.GROUP, name))

    def _describe_stream(self, group: str) -> GroupDescription:
        try:
            return self._broker.groups.describe(group)
        except CoordinatorNotAvailable:
            # The cluster has never had a stream group, so this one does not exist either.
            raise UnknownGroup(group) from None

    async def _describe_made(self, session: Session, group: str) -> QueueGroup:
        """Describe a queue group that was just created or changed, with topics from its owner."""
        [made] = [one for one in self._broker.queues.groups.all() if one.name == group]
        if self._broker.queues.groups.owner_of(group) == self._broker.node_id:
            seen = [one for one in made.topics if self._sees_topic(session, one)]
            return made._replace(topics=seen)
        describe = OPERATIONS["groups.describe"]
        try:
            found = await self._dispatcher.answer(session, describe, self, {"group": group})
        except UnknownGroup:
            return made._replace(topics=[])  # The owner does not have its metadata yet.
        return made._replace(topics=found.topics)

    def _queue_lag(self, group: str) -> Lags:
        """Return the lag of a queue group: all messages that are not done, in any state."""
        return [
            PartitionLag(
                topic,
                one.partition,
                one.done_before,
                one.high_watermark,
                one.open_count,
            )
            for topic in self._broker.queues.groups.describe(group).topics
            for one in self._broker.queues.inspection.stats(group, topic).partitions
        ]
