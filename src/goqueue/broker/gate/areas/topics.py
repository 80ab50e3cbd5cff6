"""Operations on topics: create, list, describe, grow, compact, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.gate.operation import (
    Area,
    Arguments,
    everybody,
    named_by_owner,
    operation,
    query,
    topic,
)
from goqueue.broker.gate.views import Bounds, Placement, TopicView
from goqueue.broker.topics.settings import TOPIC_SETTINGS, known_setting
from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    TopicDeletionDisabled,
    UnknownTopicId,
)
from goqueue.model.session import Session
from goqueue.model.tenants import NamePrefix, Text, TopicName

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.topics.topics import Topic

__all__ = [
    "BY_DEFAULT",
    "TOPIC_SETTINGS",
    "Bounds",
    "CreatedTopic",
    "PartitionState",
    "Placement",
    "TopicDescription",
    "TopicSummary",
    "TopicView",
    "TopicsArea",
    "known_setting",
]

BY_DEFAULT = -1

Assignment = Sequence[Sequence[int]]  # the replicas of each partition


class TopicSummary(NamedTuple):
    """A topic without the data that only its leaders have."""

    name: TopicName
    id: bytes
    partition_count: int
    replication_factor: int
    is_internal: bool
    settings: Mapping[Text, Text]  # its own


class TopicDescription(NamedTuple):
    """A topic, the settings in effect, and its size."""

    summary: TopicSummary
    effective_settings: Mapping[Text, Text]
    offsets_in_use: int
    size: int


class PartitionState(NamedTuple):
    """The placement and the bounds of a partition."""

    placement: Placement
    bounds: Bounds


class CreatedTopic(NamedTuple):
    """A topic that was created or, in a dry run, would be."""

    id: bytes | None
    partition_count: int
    replication_factor: int


def _of_this_node(_: Arguments, answers: Sequence[int]) -> int:
    """Every node compacts its own replicas of the same partitions, so the counts are equal."""
    return answers[-1]


def topic_summary(broker: Broker, found: Topic) -> TopicSummary:
    """Return what every node knows of a topic."""
    return TopicSummary(
        found.name,
        found.id,
        found.partition_count,
        len(broker.placement(found, 0).replicas),
        found.is_internal,
        found.own_settings,
    )


class TopicsArea(Area):
    """Topics: create, list, describe, grow, compact, delete."""

    # Lookup

    @query(Action.DESCRIBE, named_by_owner)
    def all(self, session: Session) -> list[TopicView]:
        """Return all topics that the session may describe."""
        if self._authoriser.is_open(session):
            return [*self._broker.topics]
        return [one for one in self._broker.topics if self._may_describe(session, one.name)]

    @query(Action.DESCRIBE, topic())
    def get(self, session: Session, *, topic: TopicName) -> TopicView:
        """Return the topic of a name."""
        return self._broker.topics.get(topic)

    @query(Action.DESCRIBE, topic())
    def find(self, session: Session, *, topic: TopicName) -> TopicView | None:
        """Return the topic of a name, if it exists."""
        return self._broker.topics.find(topic)

    @query(Action.DESCRIBE, named_by_owner)
    def get_by_id(self, session: Session, *, topic_id: bytes) -> TopicView:
        """Return the topic of an id. One that the session may not describe appears unknown."""
        found = self._broker.topics.get_by_id(topic_id)
        if not self._may_describe(session, found.name):
            raise UnknownTopicId(topic_id.hex())
        return found

    @query(Action.DESCRIBE, topic())
    def placements(
        self, session: Session, *, topic: TopicName, first: int = 0, last: int | None = None
    ) -> list[Placement]:
        """Return the placement of a topic's partitions, from number `first` up to `last`."""
        found = self._broker.topics.get(topic)
        numbers = range(found.partition_count)[first:last]
        return [self._broker.placement(found, number) for number in numbers]

    @query(Action.DESCRIBE, named_by_owner)
    def summaries(
        self, session: Session, *, prefix: NamePrefix = "", with_internal: bool = False
    ) -> list[TopicSummary]:
        """Return the topics that the session may describe, sorted by name."""
        found = [
            topic_summary(self._broker, one)
            for one in self._broker.topics
            if one.name.startswith(prefix)
            and (with_internal or not one.is_internal)
            and self._may_describe(session, one.name)
        ]
        return sorted(found)

    @operation(Action.DESCRIBE, topic(), is_reading=True)
    async def describe(self, session: Session, *, topic: TopicName) -> TopicDescription:
        """Return a topic, its effective settings, and its size as far as leaders are available."""
        found = self._broker.topics.get(topic)
        bounds = await self._broker.reads.look(found, range(found.partition_count), may_guess=True)
        return TopicDescription(
            topic_summary(self._broker, found),
            {**self._broker.topics.defaults.values, **found.own_settings},
            sum(one.high_watermark - one.start_offset for one in bounds),
            sum(one.log.size for one in bounds),
        )

    @operation(Action.DESCRIBE, topic(), is_reading=True)
    async def partitions(
        self, session: Session, *, topic: TopicName, first: int = 0, limit: int | None = None
    ) -> list[PartitionState]:
        """Return the placement and bounds of a topic's partitions, or of some from the first on."""
        found = self._broker.topics.get(topic)
        numbers = range(found.partition_count)[first : None if limit is None else first + limit]
        bounds = await self._broker.reads.look(found, numbers, may_guess=True)
        return [
            PartitionState(self._broker.placement(found, number), one)
            for number, one in zip(numbers, bounds, strict=True)
        ]

    def _may_describe(self, session: Session, name: str) -> bool:
        return self._may(session, Action.DESCRIBE, Resource(ResourceKind.TOPIC, name))

    # Creating

    @operation(Action.DESCRIBE, topic())
    async def use(
        self, session: Session, *, topic: TopicName, may_create: bool = True
    ) -> TopicView:
        """Return a topic that is about to be used; create it if missing and settings allow."""
        found = self._broker.topics.find(topic)
        if found is not None:
            return found
        return await self._create_topic(session, topic, may_create=may_create)

    @operation(Action.CREATE, named_by_owner)
    async def create(
        self,
        session: Session,
        *,
        name: TopicName,
        partition_count: int | None = None,
        settings: Mapping[Text, Text] | None = None,
        replication_factor: int = BY_DEFAULT,
        assignment: Assignment = (),
        dry_run: bool = False,
    ) -> CreatedTopic:
        """Create a topic with a replication factor, or with an `assignment` of replicas."""
        self._check_create(session, name)
        self._check_alone(replication_factor, assignment)
        broker, own = self._broker, settings or {}
        count = broker.settings.topics.partitions if partition_count is None else partition_count
        count = len(assignment) or count
        broker.topics.check_new(name, partition_count=count, settings=own)
        if dry_run:
            expected = self._expected_replication_factor(replication_factor, assignment)
            return CreatedTopic(None, count, expected)
        if broker.quotas.is_active:
            broker.quotas.mutate(session, count)
        created = await broker.topics.create(
            name,
            partition_count=count,
            settings=own,
            replication_factor=replication_factor,
            assignment=tuple(tuple(one) for one in assignment),
        )
        return CreatedTopic(created.id, count, len(broker.placement(created, 0).replicas))

    def _check_alone(self, replication_factor: int, assignment: Assignment) -> None:
        """Refuse what a single node cannot do: it has one replica of everything."""
        broker = self._broker
        if broker.cluster is not None:
            return
        if any(list(one) != [broker.node_id] for one in assignment):
            raise InvalidReplicaAssignment(
                f"On a single node every partition has only replica {broker.node_id}; assign that."
            )
        if replication_factor not in (BY_DEFAULT, 1):
            raise InvalidReplicationFactor(
                f"Replication factor {replication_factor} is not possible with 1 node; use 1."
            )

    def _expected_replication_factor(self, wanted: int, assignment: Assignment) -> int:
        if assignment:
            return len(assignment[0])
        cluster = self._broker.cluster
        if wanted != BY_DEFAULT or cluster is None:
            return 1 if wanted == BY_DEFAULT else wanted
        nodes = [one for one in cluster.nodes() if cluster.is_there(one.id)]
        return min(self._broker.settings.cluster.replication_factor, len(nodes))

    # Changing

    @operation(Action.ALTER, topic())
    async def grow(
        self,
        session: Session,
        *,
        topic: TopicName,
        partition_count: int,
        assignment: Assignment | None = None,
        dry_run: bool = False,
    ) -> None:
        """Add partitions to a topic, up to a total of `partition_count`."""
        topics, node_id = self._broker.topics, self._broker.node_id
        found = topics.get(topic)
        topics.check_growth(found, partition_count)
        added = partition_count - found.partition_count
        if assignment is not None and [list(one) for one in assignment] != [[node_id]] * added:
            raise InvalidReplicaAssignment(
                f"Each of the {added} new partitions must have the one replica {node_id}."
            )
        if not dry_run:
            if self._broker.quotas.is_active:
                self._broker.quotas.mutate(session, added)
            await topics.grow(topic, partition_count)

    @operation(Action.ALTER, topic(), merge=_of_this_node)
    async def compact(self, session: Session, *, topic: TopicName) -> int:
        """Schedule the compaction of a topic; return the number of its partitions."""
        return self._broker.administration.compact(topic)

    @query(Action.DESCRIBE, everybody)
    def check_deletion(self, session: Session) -> None:
        """Raise if the deletion of topics is disabled."""
        if not self._broker.settings.topics.delete_enabled:
            raise TopicDeletionDisabled

    @operation(Action.DELETE, topic())
    def delete(self, session: Session, *, topic: TopicName) -> Promise[None]:
        """Delete a topic and all its records."""
        self.check_deletion(session)
        if self._broker.quotas.is_active:
            self._broker.quotas.mutate(session, self._broker.topics.get(topic).partition_count)
        return self._broker.topics.delete(topic)
