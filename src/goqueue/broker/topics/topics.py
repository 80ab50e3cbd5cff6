"""Topics: their metadata, their open partitions, and every change to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from goqueue.broker.controller.metadata import FactLog, Facts, done
from goqueue.broker.topics.partition_files import OPENED_PER_TURN_MAX, PartitionFiles
from goqueue.broker.topics.settings import TopicDefaults, check_settings
from goqueue.cluster.commands import ChangeTopic, CreateTopic, DeleteTopic, Result
from goqueue.cluster.facts import (
    BROKER_CONFIG,
    TOPIC_PREFIX,
    ConfigFact,
    Decision,
    Forget,
    PartitionFact,
    TopicFact,
    config_key,
)
from goqueue.cluster.tenant_commands import check_new_topic_name
from goqueue.loop.promise import Promise, promised
from goqueue.model.batch import Record
from goqueue.model.errors import (
    InternalTopic,
    InvalidPartitionCount,
    InvalidTopicName,
    LimitReached,
    NotLeader,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from goqueue.model.names import INTERNAL_TOPICS, TopicPartition, folded_topic_name
from goqueue.model.observer import Observer
from goqueue.partition import Partition, PartitionSettings

if TYPE_CHECKING:
    from goqueue.broker.topics.internal_topics import InternalTopics

PARTITIONS_MAX = 10_000


class Topic:
    """A topic and its open partitions."""

    __slots__ = ("fact", "id", "is_internal", "name", "partitions", "settings")

    def __init__(
        self, fact: TopicFact, settings: PartitionSettings, partitions: list[Partition]
    ) -> None:
        self.fact = fact
        self.settings = settings
        self.partitions = partitions
        # Read for every batch, and the same in all facts of a topic.
        self.name = fact.name
        self.id = fact.id
        self.is_internal = fact.name in INTERNAL_TOPICS

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def own_settings(self) -> Mapping[str, str]:
        """Settings that differ from the defaults, by name."""
        return self.fact.settings

    def partition(self, number: int) -> Partition:
        if 0 <= number < len(self.partitions):
            return self.partitions[number]
        raise UnknownPartition(TopicPartition(self.fact.name, number))


class Topics:
    """Opens, creates, changes and deletes topics. Changes resolve when they are durable."""

    def __init__(
        self,
        files: PartitionFiles,
        log: FactLog,
        defaults: TopicDefaults,
        *,
        keeps_all: bool,
        node_id: int,
        new_id: Callable[[], bytes],
    ) -> None:
        """Unless it `keeps_all`, a node stores only the partitions assigned with `keep`."""
        self.defaults = defaults
        self._config_keys = [config_key(BROKER_CONFIG, name) for name in ("", str(node_id))]
        self._configs: list[ConfigFact | None] = [None, None]
        self.facts = Facts(log)
        self._files = files
        self._fact_log = log
        self._keeps_all = keeps_all
        self._new_id = new_id
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._folded: dict[str, str] = {}  # names by their form in metrics
        self._partition_count = 0  # of topics that are not internal
        # Topics whose partitions are being opened, by the form of their names in metrics.
        self._being_made: dict[str, CreateTopic] = {}
        # Partitions by number, opened ahead for the topic that is being committed at this moment.
        self._opened_ahead: dict[int, Partition] = {}
        self._kept: set[Partition] = set()
        self._changed: list[Callable[[], None]] = []
        # Raises for a record that does not conform to the schemas its topic requires. Code that
        # stores single records for such a topic calls it; the broker supplies the implementation.
        self.check_record: Callable[[Topic, Record], None] = _accept
        self.internal: InternalTopics  # set by the broker
        self._observer: Observer | None = None
        log.on_applied(self._apply)

    # Look-up

    @property
    def observer(self) -> Observer | None:
        """The observer of messages, shared by all users of these topics."""
        return self._observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        """Set it before any partition is opened."""
        self._observer = self._files.observer = observer

    def get(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(topic_id.hex())
        return topic

    def find_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._topics.values()))

    def __len__(self) -> int:
        return len(self._topics)

    def partitions(self) -> Iterator[Partition]:
        """The partitions that this node stores."""
        for topic in self:
            yield from (one for one in topic.partitions if one in self._kept)
        yield from self._fact_log.partitions

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever topics are created, deleted or extended."""
        self._changed.append(changed)

    # Open and close

    def open(self) -> None:
        """Load the topics in the metadata, and open the partitions stored here."""
        if self._keeps_all:
            self._files.check_journal()
        self._files.begin()
        self._redefault()
        if not self._keeps_all:
            self._files.redo_all()
        for fact in self._fact_log.metadata.topics():
            self._add(fact)
        if self._keeps_all:
            self._files.finish_redo()
            self.remove_strays()

    def close(self) -> None:
        """Close every partition; all must be synced before."""
        self._files.close(list(self.partitions()))

    def remove_strays(self, node_id: int | None = None) -> None:
        """Delete files that belong to no topic, or to replicas no longer assigned to `node_id`.

        The metadata of all topics and their placement must be loaded. A replica assigned to this
        node stays even if it could not be opened yet, for example on a full disk: it may have
        records that no other has.
        """
        metadata = self._fact_log.metadata
        self._files.remove_strays(self._topics, metadata.deleted)
        if self._keeps_all:
            return
        for topic in self:
            for number, partition in enumerate(topic.partitions):
                placed = metadata.partitions.get(topic.id, number)
                is_elsewhere = placed is not None and node_id not in placed.members
                if is_elsewhere and partition not in self._kept:
                    self._files.discard_partition(partition)

    def _add(self, fact: TopicFact) -> None:
        topic = Topic(fact, self.defaults.resolve(fact.settings), [])
        self._topics[fact.name] = topic
        self._by_id[fact.id] = topic
        self._folded[folded_topic_name(fact.name)] = fact.name
        self._grow(topic)

    def _grow(self, topic: Topic) -> None:
        for number in range(len(topic.partitions), topic.fact.partition_count):
            if self._keeps_all:
                partition = self._open(topic, number)
                self._kept.add(partition)
            else:
                partition = self._files.absent(topic.fact, topic.settings, number)
            topic.partitions.append(partition)
            self._partition_count += not topic.is_internal

    def _open(self, topic: Topic, number: int) -> Partition:
        partition = self._opened_ahead.pop(number, None)
        if partition is None:
            return self._files.open(topic.fact, topic.settings, number)
        _configure(partition, topic.settings)  # defaults may have changed meanwhile
        return partition

    def keeps(self, partition: Partition) -> bool:
        """Whether this node has a replica."""
        return partition in self._kept

    def clear_suspects(self) -> None:
        """Clear the note of suspect replicas, which the cluster has recorded."""
        self._files.clear_suspects()

    def may_keep(self, topic: Topic, number: int) -> bool:
        """Return whether `keep` may be called: no trace is left of a replica removed before."""
        return not self._files.is_removed(topic.fact, number)

    def keep(self, topic: Topic, number: int, *, is_sole: bool = False) -> Partition:
        """Store a replica of a partition on this node, as a follower until it becomes leader.

        `is_sole` means that no other node has one.
        """
        partition = topic.partition(number)
        if partition in self._kept:
            return partition
        self._files.claim(topic.fact)
        opened = self._files.open(
            topic.fact, topic.settings, number, is_replica=True, is_sole=is_sole
        )
        topic.partitions[number] = opened
        self._kept.add(opened)
        return opened

    def release(self, topic: Topic, fact: PartitionFact) -> None:
        """Remove this node's replica, if any, of a partition that other nodes store."""
        partition = topic.partition(fact.number)
        if partition in self._kept:
            self._kept.discard(partition)
            partition.retire(NotLeader(partition.name, fact.leader))
            self._files.discard_partition(partition)
            partition = self._files.absent(topic.fact, topic.settings, fact.number)
            topic.partitions[fact.number] = partition
        if fact.leader_epoch >= partition.leader_epoch:
            partition.replica.become_follower(fact.leader_epoch, leader=fact.leader)

    # Changes

    def create(
        self,
        name: str,
        *,
        partition_count: int,
        settings: Mapping[str, str] | None = None,
        replication_factor: int = -1,
        assignment: tuple[tuple[int, ...], ...] = (),
    ) -> Promise[Topic]:
        """Create a topic; the promise resolves when it is durable.

        A single node can use it at once, unless it has more partitions than one event-loop turn
        opens: then the topic appears when all of them are open, and its name is reserved until
        then. In a cluster, `replication_factor` is the number of replicas, or `assignment` their
        placement.
        """
        self.check_new(name, partition_count=partition_count, settings=settings or {})
        command = CreateTopic(
            self._new_id(),
            name,
            partition_count,
            dict(settings or {}),
            replication_factor,
            assignment,
        )
        if self._is_opened_in_slices(name, partition_count):
            return promised(self._make_in_slices(command))
        return self._make(command)

    def _is_opened_in_slices(self, name: str, count: int) -> bool:
        """Whether there are too many partitions for one turn.

        Internal topics are exempt: their coordinators start in the turn that creates them.
        """
        return self._keeps_all and count > OPENED_PER_TURN_MAX and name not in INTERNAL_TOPICS

    async def _make_in_slices(self, command: CreateTopic) -> Topic:
        fact = TopicFact(command.id, command.name, command.partition_count, command.settings)
        folded = folded_topic_name(command.name)
        self._being_made[folded] = command
        try:
            opened = await self._open_in_slices(fact, range(command.partition_count))
        finally:
            del self._being_made[folded]
        with self._using(opened):
            made = self._make(command)
        return await made

    async def _open_in_slices(self, fact: TopicFact, numbers: range) -> dict[int, Partition]:
        settings = self.defaults.resolve(fact.settings)
        opened = await self._files.open_in_slices(fact, settings, numbers)
        return dict(zip(numbers, opened, strict=True))

    @contextmanager
    def _using(self, opened: dict[int, Partition]) -> Iterator[None]:
        """Use these partitions while a single node applies its decision, which it does at once."""
        self._opened_ahead = opened
        try:
            yield
        finally:
            self._opened_ahead = {}

    def _make(self, command: CreateTopic) -> Promise[Topic]:
        promise: Promise[Topic] = Promise()

        def decided(_: Result, error: Exception | None) -> None:
            topic = self._by_id.get(command.id)
            if error is None and topic is None:
                error = UnknownTopic(command.name)  # It was deleted again meanwhile.
            promise.settle(topic, error)

        self._fact_log.request(command).then(decided)
        return promise

    def check_name(self, name: str) -> None:
        """Raise if no new topic can have this name."""
        check_new_topic_name(self._fact_log.metadata, name)

    def check_new(self, name: str, *, partition_count: int, settings: Mapping[str, str]) -> None:
        """Raise if `create` with these arguments would be refused."""
        self.check_name(name)
        if name in self._topics:
            raise TopicExists(name)
        folded = folded_topic_name(name)
        being_made = self._being_made.get(folded)
        if being_made is not None and being_made.name == name:
            raise TopicExists(name)
        # Metric names do not distinguish "." from "_", so two such topics would share their
        # metrics.
        clash = self._folded.get(folded) if being_made is None else being_made.name
        if clash is not None:
            raise InvalidTopicName(name, f"it would be mistaken for {clash!r}")
        if not 1 <= partition_count <= PARTITIONS_MAX:
            raise InvalidPartitionCount(
                f"Number of partitions must be from 1 to {PARTITIONS_MAX}, not {partition_count}."
            )
        check_settings(settings)
        if name not in INTERNAL_TOPICS:
            self._check_room(topics=1, partitions=partition_count)

    def _check_room(self, *, topics: int, partitions: int) -> None:
        """Refuse more topics or partitions than the settings allow."""
        limits = self.defaults.limits
        # A cluster has all internal topics from its beginning, a single node those that it uses.
        internal = sum(name in self._topics for name in INTERNAL_TOPICS)
        count = len(self._topics) - internal + len(self._being_made) + topics
        if topics and 0 <= limits.topics_max < count:
            raise LimitReached(
                f"There are {limits.topics_max} topics, as many as the setting topics.topics_max "
                "allows; delete some or raise it."
            )
        being_made = sum(one.partition_count for one in self._being_made.values())
        total = self._partition_count + being_made + partitions
        if 0 <= limits.partitions_total_max < total:
            raise LimitReached(
                f"{total} partitions would be more than the setting topics.partitions_total_max "
                f"allows ({limits.partitions_total_max}); delete topics or raise it."
            )

    def delete(self, name: str) -> Promise[None]:
        topic = self.get(name)
        if topic.is_internal:
            raise InternalTopic(name)
        return done(self._fact_log.request(DeleteTopic(topic.id, name)))

    def grow(self, name: str, partition_count: int) -> Promise[None]:
        """Add partitions to a topic."""
        topic = self.get(name)
        self.check_growth(topic, partition_count)
        if self._is_opened_in_slices(name, partition_count - len(topic.partitions)):
            return promised(self._grow_in_slices(topic, partition_count))
        return self._change(topic, partition_count, topic.fact.settings)

    async def _grow_in_slices(self, topic: Topic, partition_count: int) -> None:
        numbers = range(len(topic.partitions), partition_count)
        opened = await self._open_in_slices(topic.fact, numbers)
        # Meanwhile it may have been deleted, changed or extended.
        if self.find_by_id(topic.id) is None:
            raise UnknownTopic(topic.name)
        self.check_growth(topic, partition_count)
        with self._using(opened):
            changed = self._change(topic, partition_count, topic.fact.settings)
        await changed

    def check_growth(self, topic: Topic, partition_count: int) -> None:
        if topic.is_internal:
            raise InternalTopic(topic.name)
        if partition_count <= len(topic.partitions):
            raise InvalidPartitionCount(
                f"The topic {topic.name} currently has {len(topic.partitions)} partition(s); "
                f"{partition_count} would not be an increase."
            )
        if partition_count > PARTITIONS_MAX:
            raise InvalidPartitionCount(f"A topic has at most {PARTITIONS_MAX} partitions.")
        for queue in self.facts.named_queues().values():
            # Keys would move to other partitions, where nothing waits for their earlier messages.
            if queue.is_ordered and queue.topic == topic.name:
                raise InvalidPartitionCount(
                    f"The queue {queue.name} keeps the messages of a key in order, which it could "
                    "not if partitions were added; create another queue for more of them."
                )
        self._check_room(topics=0, partitions=partition_count - len(topic.partitions))

    def configure(self, name: str, settings: Mapping[str, str]) -> Promise[None]:
        """Replace the topic's own settings by these."""
        topic = self.get(name)
        check_settings(settings)
        return self._change(topic, len(topic.partitions), dict(settings))

    def _change(
        self, topic: Topic, partition_count: int, settings: dict[str, str]
    ) -> Promise[None]:
        command = ChangeTopic(topic.id, topic.name, partition_count, settings)
        return done(self._fact_log.request(command))

    # Committed changes

    def _apply(self, decision: Decision) -> None:
        changed = self._redefault()
        if changed:
            for topic in self._topics.values():
                self._resolve(topic)
        for change in decision:
            if isinstance(change, TopicFact):
                self._put(change)
                changed = True
            elif isinstance(change, Forget) and change.key.startswith(TOPIC_PREFIX):
                self._drop(change.key.removeprefix(TOPIC_PREFIX).decode())
                changed = True
        if changed:
            for tell in self._changed:
                tell()

    def _put(self, fact: TopicFact) -> None:
        topic = self._by_id.get(fact.id)
        if topic is None:
            self._add(fact)
            return
        topic.fact = fact
        self._resolve(topic)
        self._grow(topic)

    def _resolve(self, topic: Topic) -> None:
        """Apply the settings in effect to the partitions of a topic."""
        topic.settings = self.defaults.resolve(topic.fact.settings)
        for partition in topic.partitions:
            _configure(partition, topic.settings)

    def _redefault(self) -> bool:
        """Apply defaults that were changed at runtime; return whether they differ now."""
        known = self._fact_log.metadata.configs
        configs = [known.get(key) for key in self._config_keys]
        if configs == self._configs:
            return False
        self._configs = configs
        self.defaults.overlay(*(one.settings for one in configs if one is not None))
        return True

    def _drop(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is None:
            return
        del self._by_id[topic.id]
        if self._folded.get(folded_topic_name(name)) == name:
            del self._folded[folded_topic_name(name)]
        self._partition_count -= 0 if topic.is_internal else len(topic.partitions)
        for partition in topic.partitions:
            self._kept.discard(partition)
            partition.retention.report_deleted()
            partition.retire(UnknownTopic(name))
        # The name may be reused at once, so the folder must be renamed. It may have been reused
        # already, if this was committed in an earlier run of the node and is only replayed.
        if not self._files.is_taken_over(topic.fact):
            self._files.discard(name, topic.id)


def _configure(partition: Partition, settings: PartitionSettings) -> None:
    partition.settings = settings
    partition.log.settings = settings.log


def _accept(topic: Topic, record: Record) -> None:
    """Accept everything until the broker sets the check of schemas."""
