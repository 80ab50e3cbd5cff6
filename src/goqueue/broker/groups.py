"""Group coordinators and their partitions of the offsets topic.

A group belongs to one partition of the internal topic; that partition's coordinator decides, and
everything it decides that must last is a record there. This file loads coordinators, writes what
they want written, hands answers to those who wait, and wakes them when their time has come.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from goqueue.broker.promise import Promise
from goqueue.broker.scheduler import Handle, Scheduler
from goqueue.broker.topics import OFFSETS_TOPIC, Topic, Topics
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
    GroupType,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    OffsetErrors,
    Persist,
    RebalanceLog,
    Reply,
    Sync,
    SyncResult,
)
from goqueue.model.batch import Record, decode_batch, encode_batch
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    CorruptBatch,
    GoQueueError,
    GroupKindMismatch,
    InvalidGroupId,
    UnknownGroup,
)
from goqueue.partition import Partition

_OFFSETS_SETTINGS = {
    "cleanup_policy": "compact",
    "compression_type": "producer",
    "segment_bytes": str(100 << 20),
    "max_message_bytes": str(64 << 20),
}

RETRY_MS = 1000

_log = logging.getLogger(__name__)


class _Hosted:
    """One coordinator with its partition and its alarm clock."""

    def __init__(
        self, scheduler: Scheduler, partition: Partition, coordinator: Coordinator
    ) -> None:
        self.coordinator = coordinator
        self._scheduler = scheduler
        self._partition = partition
        self._timer: Handle | None = None
        self._timer_at: int | None = None

    def load(self, topics: Mapping[str, int]) -> None:
        """Replay the partition. It is compacted, so it is about as large as the state it holds."""
        now_ms = self._scheduler.now_ms()
        self.perform(self.coordinator.topics_changed(now_ms, topics))
        partition = self._partition
        offset = partition.start_offset
        while offset < partition.end_offset:
            try:
                for header, batch in partition.log.batches(
                    offset, until_offset=partition.end_offset
                ):
                    for record in decode_batch(batch):
                        self.coordinator.replay(record.key or b"", record.value)
                    offset = header.next_offset
                break
            except CorruptBatch as error:
                _log.error("group state is damaged: %s", error)
                if error.next_offset is None:
                    break
                offset = error.next_offset
        self.perform(self.coordinator.loaded(now_ms))

    def perform(self, effects: list[Effect]) -> None:
        """Carry out what the coordinator wants done, then set the alarm for its next deadline."""
        for effect in effects:
            if isinstance(effect, Reply):
                token, result = effect.token, effect.result
                assert isinstance(token, Promise)
                if isinstance(result, GoQueueError):
                    token.reject(result)
                else:
                    token.resolve(result)
            else:
                self._persist(effect)
        self._set_alarm()

    def _persist(self, effect: Persist) -> None:
        now_ms = self._scheduler.now_ms()
        batch = encode_batch(
            [Record(key, value, timestamp_ms=now_ms) for key, value in effect.records]
        )

        def committed(error: GoQueueError | None) -> None:
            now_ms = self._scheduler.now_ms()
            if error is None:
                self.perform(self.coordinator.persisted(effect.write_id, now_ms))
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

    def _set_alarm(self) -> None:
        deadline = self.coordinator.next_deadline_ms()
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline is not None:
            delay = max(0, deadline - self._scheduler.now_ms())
            self._timer = self._scheduler.call_later(delay, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, None
        try:
            effects = self.coordinator.tick(self._scheduler.now_ms())
        except Exception:
            # One group's fault must not stop the clock of the others.
            _log.exception("a deadline of the groups in %s failed", self._partition.name)
            self._timer_at = self._scheduler.now_ms() + RETRY_MS
            self._timer = self._scheduler.call_later(RETRY_MS, self._ring)
            return
        self.perform(effects)


class Groups:
    """All stream groups of the node."""

    def __init__(
        self,
        scheduler: Scheduler,
        topics: Topics,
        settings: GroupSettings,
    ) -> None:
        self._scheduler = scheduler
        self._topics = topics
        self._settings = settings
        self._partition_count = settings.offsets_partitions
        self._hosted: dict[int, _Hosted] = {}
        # A name belongs to one kind of group; the broker says which are taken by the other.
        self.is_queue_group: Callable[[str], bool] = lambda _: False
        topics.on_change(self._topics_changed)

    def open(self) -> None:
        """Load the groups there are; the topic is made when the first group comes."""
        topic = self._topics.find(OFFSETS_TOPIC)
        if topic is not None:
            self._host(topic)

    async def ensure_topic(self) -> Topic:
        """The internal topic, made when it is missing."""
        topic = self._topics.find(OFFSETS_TOPIC)
        if topic is None:
            topic = await self._topics.create(
                OFFSETS_TOPIC, partition_count=self._partition_count, settings=_OFFSETS_SETTINGS
            )
            self._host(topic)
        return topic

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

    def commit_offsets(self, call: CommitOffsets) -> Promise[OffsetErrors]:
        return self._call(call.group_id, lambda one, **at: one.commit_offsets(call, **at))

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Mapping[str, Collection[int]] | None = None,
        *,
        member_id: str = "",
        member_epoch: int = -1,
    ) -> dict[str, dict[int, CommittedOffset]]:
        hosted = self._find(group_id)
        if hosted is None:
            return {}
        return hosted.coordinator.fetch_offsets(
            group_id, partitions, member_id=member_id, member_epoch=member_epoch
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

    def is_known(self, group_id: str) -> bool:
        """Whether there is a stream group of that name."""
        hosted = self._find(group_id)
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
        promise: Promise[Any] = Promise()
        try:
            hosted = self._get(group_id)
            if self.is_queue_group(group_id):
                raise GroupKindMismatch(group_id, is_queue=True)
            effects = call(hosted.coordinator, token=promise, now_ms=self._scheduler.now_ms())
        except GoQueueError as error:
            promise.reject(error)
        else:
            hosted.perform(effects)
        return promise

    def _get(self, group_id: str) -> _Hosted:
        hosted = self._find(group_id)
        if hosted is None:
            raise CoordinatorNotAvailable("The groups of this node are being set up; retry.")
        return hosted

    def _find(self, group_id: str) -> _Hosted | None:
        if not group_id:
            raise InvalidGroupId("A group needs a name.")
        return self._hosted.get(self.partition_of(group_id)) if self._hosted else None

    def _host(self, topic: Topic) -> None:
        counts = self._topic_counts()
        for number, partition in enumerate(topic.partitions):
            hosted = _Hosted(self._scheduler, partition, Coordinator(self._settings))
            hosted.load(counts)
            self._hosted[number] = hosted

    def _topics_changed(self) -> None:
        if self._hosted:
            now_ms, counts = self._scheduler.now_ms(), self._topic_counts()
            for hosted in self._hosted.values():
                hosted.perform(hosted.coordinator.topics_changed(now_ms, counts))

    def _topic_counts(self) -> dict[str, int]:
        return {topic.name: len(topic.partitions) for topic in self._topics}

    def _partition_count_now(self) -> int:
        return len(self._hosted) or self._partition_count
