"""Topics: the facts about them, their open partitions, and every change to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from goqueue.broker.facts import Facts, LocalLog, done
from goqueue.broker.flusher import Flusher
from goqueue.broker.promise import Promise
from goqueue.broker.scheduler import Scheduler
from goqueue.broker.topic_settings import TopicDefaults, check_settings
from goqueue.cluster.commands import ChangeTopic, CreateTopic, DeleteTopic, Result
from goqueue.cluster.facts import TOPIC_PREFIX, Decision, Forget, TopicFact
from goqueue.model.batch import Record
from goqueue.model.errors import (
    InternalTopic,
    InvalidPartitionCount,
    InvalidTopicName,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from goqueue.model.names import TopicPartition, check_topic_name
from goqueue.partition import Partition, PartitionSettings, PartitionState
from goqueue.storage.commit_journal import CommitJournal
from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.segment import LOG_SUFFIX

OFFSETS_TOPIC = "__consumer_offsets"
SCHEDULED_TOPIC = "__scheduled"
DELIVERY_TOPIC = "__delivery"
TRANSACTION_TOPIC = "__transaction_state"
SCHEMAS_TOPIC = "__schemas"
INTERNAL_TOPICS = frozenset(
    {OFFSETS_TOPIC, SCHEDULED_TOPIC, DELIVERY_TOPIC, TRANSACTION_TOPIC, SCHEMAS_TOPIC}
)
PARTITIONS_MAX = 10_000

_STOP_FILE = "meta/clean-stop"
_STOP_MAGIC = b"GQST"
_VERSION = 1
_DELETED_PREFIX = "deleted~"  # no topic name may contain "~"
_LOST_PREFIX = "lost~"

_log = logging.getLogger(__name__)

ClosedPartitions = dict[str, list[PartitionState]]


class Topic:
    """A topic and its open partitions."""

    __slots__ = ("fact", "partitions", "settings")

    def __init__(
        self, fact: TopicFact, settings: PartitionSettings, partitions: list[Partition]
    ) -> None:
        self.fact = fact
        self.settings = settings
        self.partitions = partitions

    @property
    def name(self) -> str:
        return self.fact.name

    @property
    def id(self) -> bytes:
        return self.fact.id

    @property
    def is_internal(self) -> bool:
        return self.fact.name in INTERNAL_TOPICS

    def partition(self, number: int) -> Partition:
        if 0 <= number < len(self.partitions):
            return self.partitions[number]
        raise UnknownPartition(TopicPartition(self.fact.name, number))


class Topics:
    """Opens, makes, changes and deletes topics. Changes are answered when they are durable."""

    def __init__(
        self,
        disk: Disk,
        scheduler: Scheduler,
        flusher: Flusher,
        commit_journal: CommitJournal,
        defaults: TopicDefaults,
        *,
        waits_for_sync: bool,
        new_id: Callable[[], bytes],
    ) -> None:
        self.defaults = defaults
        self._disk = disk
        self._scheduler = scheduler
        self._flusher = flusher
        self._commit_journal = commit_journal
        self._waits_for_sync = waits_for_sync
        self._new_id = new_id
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._changed: list[Callable[[], None]] = []
        # Raises for a record that does not obey the schemas that its topic asks for; whoever stores
        # records one by one for such a topic calls it, and the broker says how it is done.
        self.check_record: Callable[[Topic, Record], None] = _accept
        self._fact_log = LocalLog(disk, scheduler, flusher, commit_journal)
        self._fact_log.on_applied(self._apply)
        self.facts = Facts(self._fact_log)

    # Looking up

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
        for topic in self:
            yield from topic.partitions
        yield self._fact_log.partition

    def on_change(self, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever topics come, go or grow."""
        self._changed.append(changed)

    # Opening and closing

    def open(self) -> None:
        """Open every partition: at once after a clean stop, by recovery otherwise."""
        is_journal_empty = self._commit_journal.is_redone
        closed = self._take_clean_stop()
        if not is_journal_empty:
            closed = {}  # The journal could not be emptied at the stop, so it was not that clean.
        for fact in self._fact_log.metadata.topics():
            states = closed.get(fact.id.hex(), [])
            self._add(fact, states if len(states) == fact.partition_count else [])
        self._commit_journal.clear()
        self._remove_strays()

    def close(self) -> None:
        """Close every partition, which must be synced, and leave a note for the next start."""
        closed: ClosedPartitions = {}
        for topic in self:
            states = [_close(partition) for partition in topic.partitions]
            known = [state for state in states if state is not None]
            if len(known) == len(states):
                closed[topic.id.hex()] = known
        _close(self._fact_log.partition)
        try:
            write_framed(self._disk, _STOP_FILE, magic=_STOP_MAGIC, version=_VERSION, body=closed)
        except OSError as error:
            _log.warning("the next start will examine all logs: %s", error)

    def _take_clean_stop(self) -> ClosedPartitions:
        closed = read_framed(
            self._disk, _STOP_FILE, magic=_STOP_MAGIC, version=_VERSION, body=ClosedPartitions
        )
        if self._disk.exists(_STOP_FILE):
            self._disk.remove(_STOP_FILE)
            self._disk.sync_folder("meta")
        return closed or {}

    def _add(self, fact: TopicFact, states: list[PartitionState]) -> Topic:
        settings = self.defaults.resolve(fact.settings)
        topic = Topic(fact, settings, [])
        for number in range(fact.partition_count):
            state = states[number] if number < len(states) else None
            topic.partitions.append(self._open_partition(fact, settings, number, state))
        self._topics[fact.name] = topic
        self._by_id[fact.id] = topic
        return topic

    def _open_partition(
        self,
        fact: TopicFact,
        settings: PartitionSettings,
        number: int,
        state: PartitionState | None,
    ) -> Partition:
        name = TopicPartition(fact.name, number)
        folder = f"logs/{fact.name}/{number}"
        key = fact.id + number.to_bytes(4, "big")
        if state is not None:
            return Partition.reopen(
                name,
                self._disk,
                folder,
                settings,
                state,
                key=key,
                leader_epoch=fact.leader_epoch,
                waits_for_sync=self._waits_for_sync,
                mark_dirty=self._flusher.mark,
            )
        redone = self._commit_journal.redo(key, folder)
        partition, reports = Partition.recover(
            name,
            self._disk,
            folder,
            settings,
            key=key,
            leader_epoch=fact.leader_epoch,
            waits_for_sync=self._waits_for_sync,
            mark_dirty=self._flusher.mark,
            now_ms=self._scheduler.now_ms(),
        )
        for report in redone + reports:
            _log.warning("%s", report)
        return partition

    def _remove_strays(self) -> None:
        """Finish deletions that a crash has interrupted, and set aside what nobody deleted."""
        for name in self._disk.list("logs"):
            if name.startswith(_DELETED_PREFIX):
                self._remove_folder(name)
            elif name in self._topics or name.startswith(_LOST_PREFIX):
                continue
            elif name in self._fact_log.metadata.deleted or not self._has_records(name):
                self._bury(name, f"{_DELETED_PREFIX}{self._new_id().hex()}")
            else:
                lost = f"{_LOST_PREFIX}{name}~{self._new_id().hex()}"
                _log.error("no topic is known for the folder logs/%s; kept as logs/%s", name, lost)
                self._disk.rename(f"logs/{name}", f"logs/{lost}")
                self._disk.sync_folder("logs")

    def _has_records(self, topic: str) -> bool:
        return any(
            self._disk.open(f"logs/{topic}/{number}/{name}").size()
            for number in self._disk.list(f"logs/{topic}")
            for name in self._disk.list(f"logs/{topic}/{number}")
            if name.endswith(LOG_SUFFIX)
        )

    # Changing

    def create(
        self, name: str, *, partition_count: int, settings: Mapping[str, str] | None = None
    ) -> Promise[Topic]:
        """Make a topic. It is usable at once, and the promise is kept when it is durable."""
        self.check_new(name, partition_count=partition_count, settings=settings or {})
        command = CreateTopic(self._new_id(), name, partition_count, dict(settings or {}))
        promise: Promise[Topic] = Promise()

        def decided(_: Result, error: Exception | None) -> None:
            promise.settle(None if error else self._by_id[command.id], error)

        self._fact_log.request(command).then(decided)
        return promise

    def check_new(self, name: str, *, partition_count: int, settings: Mapping[str, str]) -> None:
        """Raise when `create` with these would be refused."""
        check_topic_name(name)
        if name in self._topics:
            raise TopicExists(name)
        folded = name.replace(".", "_")
        # Metric names cannot tell "." from "_", so two such topics would share their figures.
        clash = next((one for one in self._topics if one.replace(".", "_") == folded), None)
        if clash is not None:
            raise InvalidTopicName(name, f"it would be mistaken for {clash!r}")
        if not 1 <= partition_count <= PARTITIONS_MAX:
            raise InvalidPartitionCount(
                f"Number of partitions must be from 1 to {PARTITIONS_MAX}, not {partition_count}."
            )
        check_settings(settings)

    def delete(self, name: str) -> Promise[None]:
        topic = self.get(name)
        if topic.is_internal:
            raise InternalTopic(name)
        return done(self._fact_log.request(DeleteTopic(topic.id, name)))

    def grow(self, name: str, partition_count: int) -> Promise[None]:
        """Add partitions to a topic."""
        topic = self.get(name)
        self.check_growth(topic, partition_count)
        return self._change(topic, partition_count, topic.fact.settings)

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

    def configure(self, name: str, settings: Mapping[str, str]) -> Promise[None]:
        """Give a topic these settings of its own, and no others."""
        topic = self.get(name)
        check_settings(settings)
        return self._change(topic, len(topic.partitions), dict(settings))

    def _change(
        self, topic: Topic, partition_count: int, settings: dict[str, str]
    ) -> Promise[None]:
        command = ChangeTopic(topic.id, topic.name, partition_count, settings)
        return done(self._fact_log.request(command))

    # What was decided

    def _apply(self, decision: Decision) -> None:
        changed = False
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
            self._add(fact, [])
            return
        topic.fact = fact
        topic.settings = self.defaults.resolve(fact.settings)
        for partition in topic.partitions:
            partition.settings = topic.settings
            partition.log.settings = topic.settings.log
        for number in range(len(topic.partitions), fact.partition_count):
            topic.partitions.append(self._open_partition(fact, topic.settings, number, None))

    def _drop(self, name: str) -> None:
        topic = self._topics.pop(name)
        del self._by_id[topic.id]
        for partition in topic.partitions:
            partition.retire(UnknownTopic(name))
        # The name may be used again at once, so the folder must not bear it any longer.
        if self._disk.exists(f"logs/{name}"):
            self._bury(name, f"{_DELETED_PREFIX}{topic.id.hex()}")

    def _bury(self, name: str, grave: str) -> None:
        """Take a name away from a folder, for good, and then the folder from the disk."""
        self._disk.rename(f"logs/{name}", f"logs/{grave}")
        # A crash could undo the renaming, and a new topic of that name would find the old records.
        self._disk.sync_folder("logs")
        self._remove_folder(grave)

    def _remove_folder(self, name: str) -> None:
        def removed(_: object, error: Exception | None) -> None:
            if error is not None:
                _log.warning("logs/%s could not be removed: %s", name, error)

        self._scheduler.run_blocking(partial(self._disk.remove_tree, f"logs/{name}"), removed)


def _accept(topic: Topic, record: Record) -> None:
    """There is nobody yet who knows schemas."""


def _close(partition: Partition) -> PartitionState | None:
    """The state of a closed partition, or None where only its files can tell."""
    try:
        state = partition.close()
    except OSError as error:
        _log.warning("%s was not closed properly: %s", partition.name, error)
        return None
    return state if partition.failure is None else None
