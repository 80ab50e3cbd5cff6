"""Group coordinators and their partitions of the offsets topic.

A group is mapped to one partition of the internal topic. The coordinator of that partition decides,
and persists every decision that must last as a record there. This module loads coordinators, writes
the records they emit, resolves the promises of waiting callers, and runs their timers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.shards.shards import MachineShard, Shards
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
    Progress,
    Rebalance,
    RebalanceLog,
    Reply,
    Sync,
    SyncResult,
)
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, start
from goqueue.model.batch import BatchHeader, Record, decode_batch, decode_marker, encode_batch
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    GroupKindMismatch,
    InvalidGroupId,
    NotCoordinator,
    UnknownGroup,
)
from goqueue.model.names import OFFSETS_TOPIC, ProducerIdentity, TopicPartition
from goqueue.model.observer import Observer, interested
from goqueue.model.tenants import TopicName
from goqueue.partition import Partition

TOPICS_PER_MS = 100  # of delay before coordinators are notified of topic changes


class GroupShard(MachineShard[Coordinator]):
    """One group coordinator with its partition of the offsets topic."""

    def __init__(
        self,
        clock: Clock,
        partition: Partition,
        coordinator: Coordinator,
        written: Callable[[str], None],
        observer: Observer | None,
    ) -> None:
        """`written` is called with the id of every group for which a record was written."""
        super().__init__(clock, partition, coordinator)
        self._written = written
        self._observer = observer
        coordinator.reports_progress = observer is not None
        self._read_until = 0

    def load(self, topics: Mapping[str, int]) -> None:
        """Replay the partition, and start."""
        now_ms = self._clock.now_ms()
        self.perform(self.machine.topics_changed(now_ms, topics))
        self.replay()
        self._read_until = self._partition.end_offset
        self.perform(self.machine.loaded(now_ms))

    def _replay(self, header: BatchHeader, batch: bytes) -> None:
        if header.is_control:
            is_commit = decode_marker(batch).is_commit
            self.machine.replay_end(header.producer_id, is_commit=is_commit)
            return
        producer_id = header.producer_id if header.is_transactional else None
        for record in decode_batch(batch):
            self.machine.replay(record.key or b"", record.value, producer_id=producer_id)

    def check_committed(self) -> None:
        """Raise while records replayed at load may still be lost.

        A previous leader may have written the end of the log and failed before it was replicated.
        """
        if self._partition.high_watermark < self._read_until:
            raise CoordinatorNotAvailable("The groups of this node are being loaded; retry.")

    def when_committed(self) -> Promise[None]:
        """Resolves when `check_committed` no longer raises."""
        promise: Promise[None] = Promise()
        self._partition.when_committed(
            self._read_until - 1, lambda error: promise.settle(None, error)
        )
        return promise

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            self._reply(effect.token, effect.result)
        elif isinstance(effect, Persist):
            self._persist(effect)

    def transaction_ended(self, producer_id: int, *, is_commit: bool, offset: int) -> None:
        """Apply a transaction marker that is committed."""
        now_ms = self._clock.now_ms()
        effects = self.machine.ended(producer_id, is_commit=is_commit, now_ms=now_ms)
        self._perform_committed(effects, offset + 1)

    def _perform_committed(self, effects: list[Effect], end: int) -> None:
        """Carry out what follows from the log up to an offset: first the reports of progress.

        Callers may do anything once they have their reply, and report something else.
        """
        if self._observer is not None:
            for one in effects:
                if isinstance(one, Progress):
                    name = TopicPartition(TopicName(one.topic), one.partition)
                    offsets = one.first, one.end
                    self._observer.consumed(one.group_id, name, offsets, consumer=one.member_id)
            self._observer.reported(self._partition.name, end)
        self.perform(effects)

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
                effects = self.machine.persisted(effect.write_id, now_ms)
                self._perform_committed(effects, appended.last_offset + 1)
                self._written(effect.group_id)
            else:
                answer = CoordinatorNotAvailable(f"Group state could not be stored: {error}")
                self.perform(self.machine.persist_failed(effect.write_id, answer, now_ms))

        try:
            appended = self._partition.write(memoryview(batch), now_ms=now_ms)
        except GoQueueError as error:
            failure = error
            # Not immediately: earlier writes are still pending, and outcomes must be in order.
            self._partition.when_committed(
                self._partition.end_offset - 1, lambda later: committed(later or failure)
            )
        else:
            self._partition.when_committed(appended.last_offset, committed)


class Groups:
    """All stream groups that this node coordinates."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        settings: GroupSettings,
        times: Mapping[str, GroupTimes] | None = None,
    ) -> None:
        """`times` holds the timeouts of groups that override the defaults; it may change."""
        self._times = {} if times is None else times
        self._clock = clock
        self._topics = topics
        self._settings = settings
        self.shards: Shards[GroupShard] = Shards(
            topics,
            leaders,
            OFFSETS_TOPIC,
            partition_count=settings.offsets_partitions,
            noun="group",
            start=self._start,
        )
        # In a cluster: resolves when this node has applied all metadata committed before the call.
        self.catch_up: Callable[[], Promise[None]] | None = None
        # A name belongs to one kind of group; the broker supplies the check for queue groups.
        self.is_queue_group: Callable[[str], bool] = lambda _: False
        # Raises if the tenant of a new group may have no more.
        self.check_quota: Callable[[str], None] | None = None
        # Called with the group of every rebalance that ends.
        self.rebalanced: Callable[[str, Rebalance], None] | None = None
        self.rebalance_watch = RebalanceWatch(self._begun)
        self._is_telling_topics = False
        topics.on_change(self._topics_changed)

    def _start(self, partition: Partition) -> GroupShard:
        coordinator = Coordinator(self._settings, self._times)
        if self.rebalanced is not None:
            coordinator.on_rebalanced(self.rebalanced)
        shard = GroupShard(
            self._clock,
            partition,
            coordinator,
            self.rebalance_watch.look,
            interested(self._topics.observer, ("consumed",)),
        )
        shard.load(self._topic_counts())
        return shard

    async def ensure_topic(self) -> Topic:
        """Return the internal topic, creating it if missing."""
        return await self.shards.ready()

    def partition_of(self, group_id: str) -> int:
        return self.shards.number_of(group_id)

    def coordinator_of(self, group_id: str) -> int:
        """Return the node that coordinates groups of this name; -1 if none does."""
        return self.shards.owner_of(group_id)

    # Members

    def join(self, call: Join) -> Promise[JoinResult]:
        return self._call(call.group_id, lambda one, **at: one.join(call, **at), may_create=True)

    def sync(self, call: Sync) -> Promise[SyncResult]:
        return self._call(call.group_id, lambda one, **at: one.sync(call, **at))

    def heartbeat(self, call: Heartbeat) -> Promise[Done]:
        return self._call(call.group_id, lambda one, **at: one.heartbeat(call, **at))

    def leave(self, call: Leave) -> Promise[LeaveResult]:
        return self._call(call.group_id, lambda one, **at: one.leave(call, **at))

    def consumer_heartbeat(self, call: ConsumerHeartbeat) -> Promise[ConsumerHeartbeatResult]:
        return self._call(
            call.group_id, lambda one, **at: one.consumer_heartbeat(call, **at), may_create=True
        )

    # Offsets

    def confirm(self, group_id: str) -> Promise[None]:
        """Resolves when this node's state of a group is at least as recent as this call.

        A coordinator that was replaced, and has not been notified yet, would return offsets older
        than those committed at its successor. So wait until it would have been notified, and until
        everything it returns is committed.
        """
        promise: Promise[None] = Promise()
        start(self._confirm(group_id), promise.settle)
        return promise

    async def _confirm(self, group_id: str) -> None:
        try:
            if self.catch_up is not None:
                await self.catch_up()
            shard = self._find(group_id)
            if shard is not None:
                await shard.when_committed()
        except (NotCoordinator, InvalidGroupId):
            raise
        except GoQueueError as error:
            raise CoordinatorNotAvailable(
                f"This node cannot confirm that it coordinates the group; retry. {error}"
            ) from error
        if shard is not self._find(group_id):
            raise self.shards.elsewhere()

    async def know(self, topics: Iterable[str]) -> None:
        """Wait until this node knows these topics, if they exist.

        Offsets are stored with the id of their topic, and a node of a cluster may learn of a topic
        later than its clients.
        """
        is_unknown = any(self._topics.find(one) is None for one in topics)
        if is_unknown and self.catch_up is not None:
            await self.catch_up()

    def commit_offsets(
        self, call: CommitOffsets, *, identity: ProducerIdentity | None = None
    ) -> Promise[OffsetErrors]:
        """Commit now, or, given the identity of a producer whose transaction includes this
        partition of the offsets topic, when that transaction commits.
        """
        names = {one.topic for one in call.offsets}

        def commit(coordinator: Coordinator, **at: Any) -> list[Effect]:
            found = map(self._topics.find, names)
            ids = {topic.name: topic.id for topic in found if topic is not None}
            return coordinator.offsets.commit(call, identity=identity, topic_ids=ids, **at)

        return self._call(call.group_id, commit, may_create=True)

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Mapping[str, Collection[int]] | None = None,
        *,
        member_id: str = "",
        member_epoch: int = -1,
        require_stable: bool = False,
    ) -> dict[str, dict[int, CommittedOffset]]:
        """Return the offsets in this node's state; call `confirm` first, or they may be stale.

        Offsets of a deleted topic are left out, although another one may have its name now.
        """
        shard = self._find(group_id)
        if shard is None:
            return {}
        shard.check_committed()
        offsets = shard.machine.offsets.fetch(
            group_id,
            partitions,
            member_id=member_id,
            member_epoch=member_epoch,
            require_stable=require_stable,
        )
        return {topic: self._current(topic, found) for topic, found in offsets.items()}

    def _current(
        self, name: str, offsets: dict[int, CommittedOffset]
    ) -> dict[int, CommittedOffset]:
        """Return the offsets of the topic that has a name now.

        Coordinators delete those of a deleted topic, but they may learn of it too late: a new topic
        may have the name by then, or the deletion may be lost with the node.
        """
        topic = self._topics.find(name)
        if topic is None:
            return offsets
        return {number: one for number, one in offsets.items() if one.is_of(topic.id)}

    def unstable_offsets(
        self, group_id: str, partitions: Mapping[str, Collection[int]] | None = None
    ) -> Partitions:
        """Return which of these partitions, or of all, have offsets pending in an open
        transaction.
        """
        shard = self._find(group_id)
        if shard is None:
            return frozenset()
        return shard.machine.offsets.unstable(group_id, partitions)

    def transaction_ended(
        self, partition: Partition, producer_id: int, is_commit: bool, offset: int
    ) -> None:
        """Apply a transaction marker that was committed in an offsets partition."""
        shard = self.shards.owned.get(partition.name.partition)
        if shard is not None:
            shard.transaction_ended(producer_id, is_commit=is_commit, offset=offset)

    def delete_offsets(
        self, group_id: str, partitions: Mapping[str, Collection[int]]
    ) -> Promise[OffsetErrors]:
        return self._call(
            group_id, lambda one, **at: one.offsets.delete(group_id, partitions, **at)
        )

    # Administration

    def all(
        self, states: Collection[GroupState] = (), types: Collection[GroupType] = ()
    ) -> list[GroupSummary]:
        return [
            summary for shard in self.shards for summary in shard.machine.list_groups(states, types)
        ]

    def describe(self, group_id: str) -> GroupDescription:
        return self._get(group_id).machine.describe_group(group_id)

    def topics_read(self, group_id: str) -> Collection[str]:
        """Return the topics that members of a group subscribe to."""
        return self._get(group_id).machine.topics_read(group_id)

    def rebalances(self, group_id: str) -> RebalanceLog:
        return self._get(group_id).machine.rebalances(group_id)

    def _begun(self, group_id: str) -> int:
        """The number of rebalances a group has begun; 0 if the group is not coordinated here."""
        try:
            return self.rebalances(group_id).begun
        except GoQueueError:
            return 0

    def is_known(self, group_id: str) -> bool:
        """Whether a stream group of that name exists, according to this node's state.

        Raise while this node should know and does not yet.
        """
        shard = self.shards.owned.get(self.partition_of(group_id))
        if shard is None:
            if self.shards.is_opening(group_id):
                raise CoordinatorNotAvailable("The groups of this node are being loaded; retry.")
            return False
        try:
            shard.machine.describe_group(group_id)
        except UnknownGroup:
            return False
        return True

    def delete(self, group_id: str) -> Promise[Done]:
        return self._call(group_id, lambda one, **at: one.delete_group(group_id, **at))

    def _call(
        self, group_id: str, call: Callable[..., list[Effect]], *, may_create: bool = False
    ) -> Promise[Any]:
        if not group_id:
            refused: Promise[Any] = Promise()
            refused.reject(_unnamed())
            return refused

        def use(shard: GroupShard) -> Promise[Any]:
            if self.is_queue_group(group_id):
                raise GroupKindMismatch(group_id, is_queue=True)
            if may_create and self.check_quota is not None and not self.is_known(group_id):
                self.check_quota(group_id)
            return shard.ask(call)

        return self.shards.call(group_id, use)

    def _get(self, group_id: str) -> GroupShard:
        shard = self._find(group_id)
        if shard is None:
            raise UnknownGroup(group_id)
        return shard

    def _find(self, group_id: str) -> GroupShard | None:
        """Return the shard of a group; None on a single node that has never had a group."""
        if not group_id:
            raise _unnamed()
        return self.shards.find(group_id)

    def _topics_changed(self) -> None:
        """Notify coordinators. That compares all topics, so with many topics changes are
        batched.
        """
        if not self.shards.owned or self._is_telling_topics:
            return
        delay_ms = len(self._topics) // TOPICS_PER_MS
        if delay_ms:
            self._is_telling_topics = True
            self._clock.call_later(delay_ms, self._tell_topics)
        else:
            self._tell_topics()

    def _tell_topics(self) -> None:
        self._is_telling_topics = False
        if self.shards.owned:
            now_ms, counts = self._clock.now_ms(), self._topic_counts()
            for shard in self.shards:
                shard.perform(shard.machine.topics_changed(now_ms, counts))

    def _topic_counts(self) -> dict[str, int]:
        return {topic.name: len(topic.partitions) for topic in self._topics}


def _unnamed() -> InvalidGroupId:
    return InvalidGroupId("A group needs a name.")
