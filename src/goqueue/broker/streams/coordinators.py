"""Group coordinators and their partitions of the offsets topic.

A group belongs to one partition of the internal topic; that partition's coordinator decides, and
everything it decides that must last is a record there. This file loads coordinators, writes what
they want written, hands answers to those who wait, and wakes them when their time has come.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from goqueue.broker.shards.own_records import readable_batches
from goqueue.broker.streams.rebalance_watch import RebalanceWatch
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.config import GroupSettings
from goqueue.groups import (
    CommitOffsets,
    CommittedOffset,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Coordinator,
    Done,
    Effect,
    GroupDescription,
    GroupState,
    GroupSummary,
    GroupTimes,
    GroupType,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    OffsetErrors,
    Partitions,
    Persist,
    RebalanceLog,
    Reply,
    Sync,
    SyncResult,
)
from goqueue.loop.alarm import Alarm
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised, start
from goqueue.model.batch import BatchHeader, Record, decode_batch, decode_marker, encode_batch
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    GroupKindMismatch,
    InvalidGroupId,
    NotCoordinator,
    UnknownGroup,
)
from goqueue.model.names import OFFSETS_TOPIC, ProducerIdentity
from goqueue.partition import Partition

TOPICS_PER_MS = 100  # of a delay before coordinators hear of new topics


class _Hosted:
    """One coordinator with its partition and its alarm clock."""

    def __init__(
        self,
        clock: Clock,
        partition: Partition,
        coordinator: Coordinator,
        written: Callable[[str], None],
    ) -> None:
        """`written` hears of every group of which something has been written."""
        self.coordinator = coordinator
        self._written = written
        self.waiting: dict[Promise[Any], None] = {}
        self._read_until = 0
        self._clock = clock
        self._partition = partition
        self._is_closed = False
        self._alarm = Alarm(
            clock,
            name=str(partition.name),
            next_deadline_ms=coordinator.next_deadline_ms,
            ring=lambda now_ms: self.perform(coordinator.tick(now_ms)),
        )

    def load(self, topics: Mapping[str, int]) -> None:
        """Replay the partition. It is compacted, so it is about as large as the state it holds."""
        now_ms = self._clock.now_ms()
        self.perform(self.coordinator.topics_changed(now_ms, topics))
        for header, batch in readable_batches(self._partition, name="group state"):
            self._replay(header, batch)
        self._read_until = self._partition.end_offset
        self.perform(self.coordinator.loaded(now_ms))

    def _replay(self, header: BatchHeader, batch: bytes) -> None:
        if header.is_control:
            is_commit = decode_marker(batch).is_commit
            self.coordinator.replay_end(header.producer_id, is_commit=is_commit)
            return
        producer_id = header.producer_id if header.is_transactional else None
        for record in decode_batch(batch):
            self.coordinator.replay(record.key or b"", record.value, producer_id=producer_id)

    def check_committed(self) -> None:
        """Raise while something of what was read at the beginning may still be lost.

        Another leader may have written the end of the log and died before all had it.
        """
        if self._partition.high_watermark < self._read_until:
            raise CoordinatorNotAvailable("The groups of this node are being read; retry.")

    def when_committed(self) -> Promise[None]:
        """Resolves when `check_committed` raises no more."""
        promise: Promise[None] = Promise()
        self._partition.when_committed(
            self._read_until - 1, lambda error: promise.settle(None, error)
        )
        return promise

    def close(self, error: GoQueueError) -> None:
        """Another node coordinates these groups: whoever waits here has to ask there."""
        self._is_closed = True
        self._alarm.stop()
        waiting, self.waiting = self.waiting, {}
        for promise in waiting:
            promise.reject(error)

    def perform(self, effects: list[Effect]) -> None:
        """Carry out what the coordinator wants done, then set the alarm for its next deadline."""
        if self._is_closed:
            return
        for effect in effects:
            if isinstance(effect, Reply):
                token, result = effect.token, effect.result
                assert isinstance(token, Promise)
                self.waiting.pop(token, None)
                if isinstance(result, GoQueueError):
                    token.reject(result)
                else:
                    token.resolve(result)
            else:
                self._persist(effect)
        self._alarm.set()

    def _persist(self, effect: Persist) -> None:
        now_ms = self._clock.wall_ms()
        records = [Record(key, value, timestamp_ms=now_ms) for key, value in effect.records]
        if effect.identity is None:
            batch = encode_batch(records)
        else:
            batch = encode_batch(
                records,
                producer_id=effect.identity.producer_id,
                producer_epoch=effect.identity.epoch,
                is_transactional=True,
            )

        def committed(error: GoQueueError | None) -> None:
            now_ms = self._clock.now_ms()
            if error is None:
                self.perform(self.coordinator.persisted(effect.write_id, now_ms))
                self._written(effect.group_id)
            else:
                answer = CoordinatorNotAvailable(f"Group state could not be stored: {error}")
                self.perform(self.coordinator.persist_failed(effect.write_id, answer, now_ms))

        try:
            appended = self._partition.write(memoryview(batch), now_ms=now_ms)
        except GoQueueError as error:
            failure = error
            # Not at once: earlier writes are still on their way, and outcomes come in order.
            self._partition.when_committed(
                self._partition.end_offset - 1, lambda later: committed(later or failure)
            )
        else:
            self._partition.when_committed(appended.last_offset, committed)


class Groups:
    """All stream groups of the node."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        settings: GroupSettings,
        times: Mapping[str, GroupTimes] | None = None,
    ) -> None:
        """`times` are those of groups that have their own, and may change."""
        self._times = {} if times is None else times
        self._clock = clock
        self._topics = topics
        self._settings = settings
        self._partition_count = settings.offsets_partitions
        self._hosted: dict[int, _Hosted] = {}
        # In a cluster: resolves when this node knows all that was decided before it was asked.
        self.catch_up: Callable[[], Promise[None]] | None = None
        # A name belongs to one kind of group; the broker says which are taken by the other.
        self.is_queue_group: Callable[[str], bool] = lambda _: False
        self.rebalance_watch = RebalanceWatch(self._begun)
        self._is_telling_topics = False
        topics.on_change(self._topics_changed)
        topics.internal.on_made(OFFSETS_TOPIC, self._host)

    def open(self) -> None:
        """Load the groups there are; the topic is made when the first group comes."""
        topic = self._topics.find(OFFSETS_TOPIC)
        if topic is not None:
            self._host(topic)

    async def ensure_topic(self) -> Topic:
        """The internal topic, made when it is missing."""
        return await self._topics.internal.ready(OFFSETS_TOPIC)

    # Leading, in a cluster

    def lead(self, partition: Partition) -> None:
        """Coordinate the groups of a partition of the offsets, which this node leads now."""
        coordinator = Coordinator(self._settings, self._times)
        written = self.rebalance_watch.look
        hosted = _Hosted(self._clock, partition, coordinator, written)
        hosted.load(self._topic_counts())
        self._hosted[partition.name.partition] = hosted

    def resign(self, partition: Partition) -> None:
        """Another node leads a partition of the offsets, or nobody."""
        hosted = self._hosted.pop(partition.name.partition, None)
        if hosted is not None:
            hosted.close(_not_here())

    def partition_of(self, group_id: str) -> int:
        # The process's own hash() changes from start to start; this must not.
        return zlib.crc32(group_id.encode()) % self._partition_count_now()

    # Members

    def join(self, call: Join) -> Promise[JoinResult]:
        return self._call(call.group_id, lambda one, **at: one.join(call, **at))

    def sync(self, call: Sync) -> Promise[SyncResult]:
        return self._call(call.group_id, lambda one, **at: one.sync(call, **at))

    def heartbeat(self, call: Heartbeat) -> Promise[Done]:
        return self._call(call.group_id, lambda one, **at: one.heartbeat(call, **at))

    def leave(self, call: Leave) -> Promise[LeaveResult]:
        return self._call(call.group_id, lambda one, **at: one.leave(call, **at))

    def consumer_heartbeat(self, call: ConsumerHeartbeat) -> Promise[ConsumerHeartbeatResult]:
        return self._call(call.group_id, lambda one, **at: one.consumer_heartbeat(call, **at))

    # Offsets

    def confirm(self, group_id: str) -> Promise[None]:
        """Resolves when what this node tells of a group is not older than this call.

        A coordinator that was replaced, and has not heard of it, would tell offsets from before
        others were committed elsewhere. So wait until it would have heard, and until all that it
        tells is there to stay.
        """
        promise: Promise[None] = Promise()
        start(self._confirm(group_id), promise.settle)
        return promise

    async def _confirm(self, group_id: str) -> None:
        try:
            if self.catch_up is not None:
                await self.catch_up()
            hosted = self._find(group_id)
            if hosted is not None:
                await hosted.when_committed()
        except (NotCoordinator, InvalidGroupId):
            raise
        except GoQueueError as error:
            raise CoordinatorNotAvailable(
                f"This node cannot make sure that it coordinates the group; retry. {error}"
            ) from error
        if hosted is not self._find(group_id):
            raise _not_here()

    def commit_offsets(
        self, call: CommitOffsets, *, identity: ProducerIdentity | None = None
    ) -> Promise[OffsetErrors]:
        """Commit now; or, with the identity of a producer whose transaction this partition of the
        offsets takes part in, when that does.
        """
        return self._call(
            call.group_id, lambda one, **at: one.commit_offsets(call, identity=identity, **at)
        )

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Mapping[str, Collection[int]] | None = None,
        *,
        member_id: str = "",
        member_epoch: int = -1,
        require_stable: bool = False,
    ) -> dict[str, dict[int, CommittedOffset]]:
        """What this node knows; `confirm` first, or it may be old."""
        hosted = self._find(group_id)
        if hosted is None:
            return {}
        hosted.check_committed()
        return hosted.coordinator.fetch_offsets(
            group_id,
            partitions,
            member_id=member_id,
            member_epoch=member_epoch,
            require_stable=require_stable,
        )

    def unstable_offsets(
        self, group_id: str, partitions: Mapping[str, Collection[int]] | None = None
    ) -> Partitions:
        """Which of these, or of all, a transaction that has not ended commits offsets of."""
        hosted = self._find(group_id)
        if hosted is None:
            return frozenset()
        return hosted.coordinator.unstable_offsets(group_id, partitions)

    def transaction_ended(self, partition: Partition, producer_id: int, is_commit: bool) -> None:
        """A marker is committed in a partition of the offsets."""
        hosted = self._hosted.get(partition.name.partition)
        if hosted is not None:
            now_ms = self._clock.now_ms()
            hosted.perform(
                hosted.coordinator.ended(producer_id, is_commit=is_commit, now_ms=now_ms)
            )

    def delete_offsets(
        self, group_id: str, partitions: Mapping[str, Collection[int]]
    ) -> Promise[OffsetErrors]:
        return self._call(
            group_id, lambda one, **at: one.delete_offsets(group_id, partitions, **at)
        )

    # Administration

    def all(
        self, states: Collection[GroupState] = (), types: Collection[GroupType] = ()
    ) -> list[GroupSummary]:
        return [
            summary
            for hosted in self._hosted.values()
            for summary in hosted.coordinator.list_groups(states, types)
        ]

    def describe(self, group_id: str) -> GroupDescription:
        return self._get(group_id).coordinator.describe_group(group_id)

    def rebalances(self, group_id: str) -> RebalanceLog:
        return self._get(group_id).coordinator.rebalances(group_id)

    def _begun(self, group_id: str) -> int:
        """How many rebalances a group has begun; none if there is no such group here."""
        try:
            return self.rebalances(group_id).begun
        except GoQueueError:
            return 0

    def is_known(self, group_id: str) -> bool:
        """Whether there is a stream group of that name, as far as this node can tell."""
        hosted = self._hosted.get(self.partition_of(group_id))
        if hosted is None:
            return False
        try:
            hosted.coordinator.describe_group(group_id)
        except UnknownGroup:
            return False
        return True

    def delete(self, group_id: str) -> Promise[Done]:
        return self._call(group_id, lambda one, **at: one.delete_group(group_id, **at))

    def _call(self, group_id: str, call: Callable[..., list[Effect]]) -> Promise[Any]:
        number = self.partition_of(group_id)
        if number not in self._hosted and self._topics.internal.is_awaited(OFFSETS_TOPIC, number):
            return promised(self._call_when_hosted(group_id, call))
        return self._call_now(group_id, call)

    async def _call_when_hosted(self, group_id: str, call: Callable[..., list[Effect]]) -> Any:
        await self._topics.internal.until(lambda: self.partition_of(group_id) in self._hosted)
        return await self._call_now(group_id, call)

    def _call_now(self, group_id: str, call: Callable[..., list[Effect]]) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        try:
            if group_id and self._topics.find(OFFSETS_TOPIC) is None:
                self._topics.internal.make(OFFSETS_TOPIC)
            hosted = self._get(group_id)
            if self.is_queue_group(group_id):
                raise GroupKindMismatch(group_id, is_queue=True)
            effects = call(hosted.coordinator, token=promise, now_ms=self._clock.now_ms())
        except GoQueueError as error:
            promise.reject(error)
        else:
            hosted.waiting[promise] = None
            hosted.perform(effects)
        return promise

    def _get(self, group_id: str) -> _Hosted:
        hosted = self._find(group_id)
        if hosted is None:
            raise UnknownGroup(group_id)
        return hosted

    def _find(self, group_id: str) -> _Hosted | None:
        """Who coordinates a group; None on a single node that has never had a group."""
        if not group_id:
            raise InvalidGroupId("A group needs a name.")
        hosted = self._hosted.get(self.partition_of(group_id))
        if hosted is not None:
            return hosted
        if self._topics.find(OFFSETS_TOPIC) is not None:
            raise _not_here()
        if not self._topics.internal.is_alone:
            raise CoordinatorNotAvailable("The cluster is being set up; retry.")
        return None

    def _host(self, topic: Topic) -> None:
        for partition in topic.partitions:
            self.lead(partition)

    def _topics_changed(self) -> None:
        """All topics are compared, so where there are many, several changes share that."""
        if not self._hosted or self._is_telling_topics:
            return
        delay_ms = len(self._topics) // TOPICS_PER_MS
        if delay_ms:
            self._is_telling_topics = True
            self._clock.call_later(delay_ms, self._tell_topics)
        else:
            self._tell_topics()

    def _tell_topics(self) -> None:
        self._is_telling_topics = False
        if self._hosted:
            now_ms, counts = self._clock.now_ms(), self._topic_counts()
            for hosted in self._hosted.values():
                hosted.perform(hosted.coordinator.topics_changed(now_ms, counts))

    def _topic_counts(self) -> dict[str, int]:
        return {topic.name: len(topic.partitions) for topic in self._topics}

    def _partition_count_now(self) -> int:
        topic = self._topics.find(OFFSETS_TOPIC)
        return self._partition_count if topic is None else len(topic.partitions)


def _not_here() -> NotCoordinator:
    return NotCoordinator("Another node coordinates this group now; look for it again.")
