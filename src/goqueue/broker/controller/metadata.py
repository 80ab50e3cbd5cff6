"""The metadata log as a broker uses it: requests for changes, and their application."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from goqueue.broker.durability.flusher import Flusher
from goqueue.cluster.commands import (
    Command,
    ForgetKey,
    PutJob,
    PutNamedQueue,
    PutQueueGroup,
    ReserveProducerIds,
    Result,
    TakeOverProducer,
)
from goqueue.cluster.facts import (
    NAMED_PRODUCER_PREFIX,
    TOPIC_PREFIX,
    Decision,
    Forget,
    JobFact,
    NamedProducer,
    NamedQueueFact,
    QueueGroupFact,
    WholeState,
    decode_decision,
)
from goqueue.cluster.metadata import Metadata, change_record, check_supported
from goqueue.cluster.raft.messages import Entry, EntryKind
from goqueue.cluster.raft.ready import Snapshot
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import decode_batch, encode_batch
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.model.support import SUPPORT, Support, check_level
from goqueue.partition import Partition, PartitionSettings, recover_partition
from goqueue.storage.commit_journal import LOG_KEY_BYTES, CommitJournal
from goqueue.storage.disk import Disk
from goqueue.storage.log import LogSettings

PRODUCER_ID_BLOCK = 1000

_METADATA = TopicPartition("__metadata", 0)
_METADATA_KEY = bytes(LOG_KEY_BYTES)
METADATA_FOLDER = "meta/log"

_log = logging.getLogger(__name__)

Applied = Callable[[Decision], None]


class FactLog(Protocol):
    """Agrees on decisions. Every node applies the same ones in the same order."""

    metadata: Metadata
    partitions: list[Partition]  # the partitions in which it is stored, if any

    def request(self, command: Command) -> Promise[Result]:
        """Request a decision; resolves when it is durable and in effect on this node."""

    def on_applied(self, applied: Applied) -> None:
        """Register a callback for every decision, called right after it took effect."""


class LocalLog:
    """The log of a single node: a decision takes effect at once, and resolves when durable."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        flusher: Flusher,
        commit_journal: CommitJournal,
    ) -> None:
        self.metadata = Metadata()
        self._clock = clock
        self._applied: list[Applied] = []
        self._partition = self._open(disk, flusher, commit_journal)
        self.partitions = [self._partition]

    def _open(self, disk: Disk, flusher: Flusher, commit_journal: CommitJournal) -> Partition:
        settings = PartitionSettings(
            log=LogSettings(segment_bytes=16 << 20, is_deleting=False, is_compacting=True),
            message_bytes_max=64 << 20,
        )
        redone = commit_journal.redo(_METADATA_KEY, METADATA_FOLDER)
        partition, reports = recover_partition(
            _METADATA,
            disk,
            METADATA_FOLDER,
            settings,
            key=_METADATA_KEY,
            leader_epoch=0,
            waits_for_sync=True,
            mark_dirty=flusher.mark,
            now_ms=self._clock.wall_ms(),
        )
        for report in redone + reports:
            _log.warning("%s", report)
        batches = partition.log.batches(partition.start_offset, until_offset=partition.end_offset)
        for _, batch in batches:
            for record in decode_batch(batch):
                self.metadata.replay(record)
        if self.metadata.cluster is not None:
            check_level(self.metadata.cluster.feature_level, SUPPORT)
        return partition

    def on_applied(self, applied: Applied) -> None:
        self._applied.append(applied)

    def request(self, command: Command) -> Promise[Result]:
        decision, result = command.decide(self.metadata)
        last_offset = self._partition.end_offset - 1  # if nothing changes: what it is based on
        if decision:
            last_offset = self._append(decision)
        promise: Promise[Result] = Promise()

        def committed(error: GoQueueError | None) -> None:
            promise.settle(None if error else result, error)

        self._partition.when_committed(last_offset, committed)
        return promise

    def _append(self, decision: Decision) -> int:
        """Write and apply a decision; return the offset of its last change."""
        now_ms = self._clock.wall_ms()
        records = [change_record(change, now_ms=now_ms) for change in decision]
        appended = self._partition.append(memoryview(encode_batch(records)), now_ms=now_ms)
        self.metadata.apply_all(decision)
        for applied in self._applied:
            applied(decision)
        return appended.last_offset


class AppliedMetadata:
    """The metadata of a cluster on this node: the committed log, applied up to `index`."""

    def __init__(self, snapshot: Snapshot, support: Support = SUPPORT) -> None:
        """Start from a snapshot; raise if a node with this support cannot use it."""
        self.metadata = Metadata()
        self.index = snapshot.last.index
        self._support = support
        if snapshot.data:
            self.metadata.restore(snapshot.data, support=support)
        self._applied: list[Applied] = []
        self._waiting: dict[int, list[Promise[None]]] = {}  # by index

    def on_applied(self, applied: Applied) -> None:
        self._applied.append(applied)

    def apply(self, entry: Entry) -> Decision:
        """Apply an entry of the log, and return the decision it has."""
        decision: Decision = ()
        if entry.kind is EntryKind.PAYLOAD:
            decision = decode_decision(entry.payload)
            check_supported(decision, self._support)
        self.index = entry.index
        if entry.kind is not EntryKind.PAYLOAD:
            return ()
        self.metadata.apply_all(decision)
        for applied in self._applied:
            applied(decision)
        return decision

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole state by a snapshot, because this node was too far behind."""
        before = {topic.id: topic for topic in self.metadata.topics()}
        identities_before = self.metadata.identity_keys()
        self.metadata.restore(snapshot.data, support=self._support)
        self.index = snapshot.last.index
        after = {topic.id for topic in self.metadata.topics()}
        gone = [
            Forget(TOPIC_PREFIX + one.name.encode())
            for one in before.values()
            if one.id not in after
        ]
        gone += [Forget(key) for key in identities_before - self.metadata.identity_keys()]
        changes = WholeState((*gone, *self.metadata.facts()))
        for applied in self._applied:
            applied(changes)

    def when_applied(self, index: int) -> Promise[None]:
        """Return a promise that resolves when this node has applied the entry at `index`."""
        promise: Promise[None] = Promise()
        if index <= self.index:
            promise.resolve(None)
        else:
            self._waiting.setdefault(index, []).append(promise)
        return promise

    def settle(self) -> None:
        """Resolve what waits for the entries applied so far."""
        for index in sorted(one for one in self._waiting if one <= self.index):
            for promise in self._waiting.pop(index):
                promise.resolve(None)

    def stop(self, error: GoQueueError) -> None:
        """Reject what waits for later entries."""
        waiting, self._waiting = self._waiting, {}
        for promises in waiting.values():
            for promise in promises:
                promise.reject(error)


class Facts:
    """Cluster-wide state of parts of the broker, besides topics."""

    def __init__(self, log: FactLog) -> None:
        self.log = log
        self._free_ids = range(0)
        self._wanting_ids: deque[Promise[int]] = deque()
        self._is_reserving = False

    # Producers

    def reserve_producer_id(self) -> Promise[int]:
        """Reserve a producer id that was never used."""
        promise: Promise[int] = Promise()
        self._wanting_ids.append(promise)
        self._hand_out_ids()
        return promise

    def _hand_out_ids(self) -> None:
        while self._wanting_ids and self._free_ids:
            first, self._free_ids = self._free_ids[0], self._free_ids[1:]
            self._wanting_ids.popleft().resolve(first)
        if self._wanting_ids and not self._is_reserving:
            self._is_reserving = True
            try:
                reserved = self.log.request(ReserveProducerIds(PRODUCER_ID_BLOCK))
            except GoQueueError as error:
                self._ids_reserved(None, error)
            else:
                reserved.then(self._ids_reserved)

    def _ids_reserved(self, first: Result, error: Exception | None) -> None:
        self._is_reserving = False
        if error is None:
            start = cast(int, first)
            self._free_ids = range(start, start + PRODUCER_ID_BLOCK)
            self._hand_out_ids()
            return
        wanting, self._wanting_ids = self._wanting_ids, deque()
        for promise in wanting:
            promise.reject(error)

    def producer_named(self, name: str) -> NamedProducer | None:
        """Return the producer identity last taken over under this name."""
        return self.log.metadata.producers.get(name)

    def take_over_producer(self, name: str) -> Promise[NamedProducer]:
        """Take over a named producer; its previous holder is fenced."""
        promise: Promise[NamedProducer] = Promise()

        def taken(fact: Result, error: Exception | None) -> None:
            promise.settle(cast(NamedProducer, fact), error)

        try:
            self.log.request(TakeOverProducer(name)).then(taken)
        except GoQueueError as error:
            promise.reject(error)
        return promise

    def forget_producer(self, name: str) -> Promise[None]:
        """Delete a named producer."""
        return done(self.log.request(ForgetKey(NAMED_PRODUCER_PREFIX + name.encode())))

    # Queue groups

    def queue_groups(self) -> dict[str, QueueGroupFact]:
        """Return all queue groups by name."""
        return self.log.metadata.queue_groups

    def record_queue_group(
        self, fact: QueueGroupFact, *, keeps_known: bool = False
    ) -> Promise[None]:
        """Create a queue group, or replace its settings unless it `keeps_known` ones."""
        return done(self.log.request(PutQueueGroup(fact, keeps_known)))

    def forget_queue_group(self, name: str) -> Promise[None]:
        gone = self.log.metadata.queue_groups[name]
        return done(self.log.request(ForgetKey(gone.key, gone.id)))

    # Named queues

    def named_queues(self) -> dict[str, NamedQueueFact]:
        """Return all named queues by name."""
        return self.log.metadata.named_queues

    def record_named_queue(self, fact: NamedQueueFact) -> Promise[None]:
        """Create or change a named queue; resolves when durable."""
        return done(self.log.request(PutNamedQueue(fact)))

    def forget_named_queue(self, fact: NamedQueueFact) -> Promise[None]:
        return done(self.log.request(ForgetKey(fact.key, fact.id)))

    # Jobs

    def jobs(self, kind: str) -> list[JobFact]:
        """Return the recorded jobs of a kind."""
        return [fact for fact in self.log.metadata.jobs.values() if fact.kind == kind]

    def record_job(self, fact: JobFact) -> Promise[None]:
        """Save the state of a job; resolves when durable."""
        return done(self.log.request(PutJob(fact)))

    def forget_job(self, fact: JobFact) -> Promise[None]:
        return done(self.log.request(ForgetKey(fact.key)))


def done(promise: Promise[Result]) -> Promise[None]:
    """Return the same promise without its result."""
    result: Promise[None] = Promise()
    promise.then(lambda _, error: result.settle(None, error))
    return result
