"""Schedules of the whole cluster, from any node: finding owners, and calls to all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from goqueue.broker.replication.leaders import CALL_TIMEOUT_MS, Leaders
from goqueue.broker.schedules.calls import Owner, Refused, ScheduleCalls, not_here
from goqueue.broker.schedules.listing import SchedulePage, ScheduleStats
from goqueue.broker.topics.topics import Topics
from goqueue.delivery.schedules import NO_EPOCH, ScheduledMessage, ScheduleIds
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Peers
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    GoQueueError,
    RequestTimedOut,
    ScheduleReleased,
    UnknownSchedule,
)
from goqueue.model.names import SCHEDULED_TOPIC, ProducerIdentity

STORE_MS_MAX = 5_000  # how long to look for an owner that accepts a message
STORE_RETRY_MS = 100
STORE_ATTEMPT_MS = 2_000  # per attempt to store a batch, which the owner deduplicates
NOBODY = -1


class ScheduleCluster:
    """Finds the owners of schedules, and calls them."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        peers: Peers,
        random: Random,
        owner: Owner,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._owner = owner
        self._turn = random.getrandbits(16)
        self.calls = ScheduleCalls(clock, topics, leaders, peers, random, owner)

    # Owners

    def ids(self) -> ScheduleIds:
        topic = self._topics.find(SCHEDULED_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("The cluster is still forming; retry.")
        return ScheduleIds(topic.id)

    def partition_count(self) -> int:
        topic = self._topics.find(SCHEDULED_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("The cluster is still forming; retry.")
        return len(topic.partitions)

    def node_of(self, number: int) -> int:
        """The node that leads a partition of schedules; -1 if there is none."""
        topic = self._topics.find(SCHEDULED_TOPIC)
        if topic is None or not 0 <= number < len(topic.partitions):
            return NOBODY
        return self._leaders.node_of(topic, number)

    def owner_of(self, schedule_id: str) -> int:
        number, _ = self.ids().read(schedule_id)
        if number >= self.partition_count():
            raise UnknownSchedule(schedule_id)
        return self.node_of(number)

    def others(self) -> list[int]:
        """The other nodes that own schedules; raise if some partition has no owner now."""
        nodes = {self.node_of(number) for number in range(self.partition_count())}
        if NOBODY in nodes:
            raise CoordinatorNotAvailable("Some of the schedules have no owner now; retry.")
        return sorted(nodes - {self._leaders.node_id})

    def some_number(self, own: Sequence[int]) -> int:
        """A partition to store in: one led by this node if possible, else any with a leader."""
        self._turn += 1
        if own:
            return own[self._turn % len(own)]
        count = self.partition_count()
        led = [number for number in range(count) if self.node_of(number) != NOBODY]
        return led[self._turn % len(led)] if led else self._turn % count

    def epoch_of(self, topic_id: bytes, number: int) -> int:
        """The newest leader epoch of a topic's partition in this node's metadata."""
        topic = self._topics.find_by_id(topic_id)
        if topic is None or not 0 <= number < len(topic.partitions):
            return NO_EPOCH
        return self._leaders.epoch_of(topic, number)

    # Storing

    async def store_batch(
        self,
        number: int,
        messages: list[ScheduledMessage],
        *,
        leader_epoch: int,
        transaction: ProducerIdentity | None,
        timeout_ms: int,
        check: Callable[[], None],
    ) -> None:
        """Store the delayed records of one producer's batch at the owner of a partition.

        If the producer has an id, the owner recognises a batch that it already has, so a batch with
        an unknown outcome is sent again, to the same or the next owner. `check` is called before
        each attempt, and raises if this node may no longer store the batch.
        """
        is_repeatable = messages[0].origin is not None
        deadline_ms = self._clock.now_ms() + timeout_ms
        left_ms = timeout_ms
        while True:
            check()
            try:
                await self._store_once(
                    number,
                    messages,
                    transaction=transaction,
                    is_one_batch=True,
                    leader_epoch=leader_epoch,
                    timeout_ms=min(left_ms, STORE_ATTEMPT_MS) if is_repeatable else left_ms,
                )
                return
            except FencedLeaderEpoch:
                raise
            except GoQueueError as error:
                is_unknown = isinstance(error, RequestTimedOut) and not is_repeatable
                if is_unknown or not error.retryable:
                    raise
                left_ms = deadline_ms - self._clock.now_ms() - STORE_RETRY_MS
                if left_ms <= 0:
                    raise
            await self.pause()

    async def store(
        self,
        messages: list[ScheduledMessage],
        *,
        number: int | None,
        own: Sequence[int],
        transaction: ProducerIdentity | None = None,
        is_one_batch: bool = False,
    ) -> tuple[int, list[int]]:
        """Store messages in a given partition, or in any; return the partition and their numbers.

        An owner that refuses has stored nothing, so the call is retried. An owner that does not
        respond may have stored them.
        """
        deadline_ms = self._clock.now_ms() + STORE_MS_MAX
        while True:
            wanted = self.some_number(own) if number is None else number
            try:
                return wanted, await self._store_once(
                    wanted,
                    messages,
                    transaction=transaction,
                    is_one_batch=is_one_batch,
                    leader_epoch=NO_EPOCH,
                    timeout_ms=CALL_TIMEOUT_MS,
                )
            except RequestTimedOut:
                raise
            except GoQueueError as error:
                if not error.retryable or self._clock.now_ms() >= deadline_ms:
                    raise
            own = ()
            await self.pause()

    def _store_once(
        self,
        number: int,
        messages: list[ScheduledMessage],
        *,
        transaction: ProducerIdentity | None,
        is_one_batch: bool,
        leader_epoch: int,
        timeout_ms: int,
    ) -> Promise[list[int]]:
        node = self.node_of(number)
        if node == self._leaders.node_id:
            return self._owner.store_here(
                number,
                messages,
                transaction=transaction,
                is_one_batch=is_one_batch,
                leader_epoch=leader_epoch,
            )
        if node == NOBODY:
            raise not_here()
        return self.calls.store(
            node,
            number,
            messages,
            transaction=transaction,
            is_one_batch=is_one_batch,
            leader_epoch=leader_epoch,
            timeout_ms=timeout_ms,
        )

    def pause(self) -> Promise[None]:
        promise: Promise[None] = Promise()
        self._clock.call_later(STORE_RETRY_MS, lambda: promise.resolve(None))
        return promise

    # Calls to all owners

    async def page(
        self, *, topic: str | None, from_ms: int, until_ms: int, limit: int, after: str
    ) -> SchedulePage:
        """The first entries of all owners, by due time, after a cursor."""
        wanted = {"topic": topic, "from_ms": from_ms, "until_ms": until_ms}
        asked = [
            self.calls.page(node, limit=limit, after=after, **wanted)  # type: ignore[arg-type]
            for node in self.others()
        ]
        asked.append(self._owner.list_here(limit=limit, after=after, **wanted))  # type: ignore[arg-type]
        pages = [await one for one in asked]
        ids = self.ids()
        entries = sorted(
            (entry for page in pages for entry in page.entries),
            key=lambda entry: (entry.due_ms, *ids.read(entry.id)),
        )
        has_more = len(entries) > limit or any(page.next_cursor for page in pages)
        entries = entries[:limit]
        cursor = f"{entries[-1].due_ms}~{entries[-1].id}" if has_more and entries else ""
        return SchedulePage(entries, cursor)

    async def count(self, *, topic: str | None, from_ms: int, until_ms: int) -> int:
        asked = [
            self.calls.count(node, topic=topic, from_ms=from_ms, until_ms=until_ms)
            for node in self.others()
        ]
        asked.append(self._owner.count_here(topic=topic, from_ms=from_ms, until_ms=until_ms))
        return sum([await one for one in asked])

    async def stats(self) -> ScheduleStats:
        """The metrics of all owners; each percentile is the worst of any node."""
        asked = [self.calls.stats(node) for node in self.others()]
        found = [await one for one in asked] + [self._owner.stats_here()]
        dues_ms = [one.next_due_ms for one in found if one.next_due_ms is not None]
        return ScheduleStats(
            pending=sum(one.pending for one in found),
            released=sum(one.released for one in found),
            cancelled=sum(one.cancelled for one in found),
            dead_lettered=sum(one.dead_lettered for one in found),
            dropped=sum(one.dropped for one in found),
            late_ms_p50=max(one.late_ms_p50 for one in found),
            late_ms_p99=max(one.late_ms_p99 for one in found),
            late_ms_max=max(one.late_ms_max for one in found),
            next_due_ms=min(dues_ms, default=None),
        )

    async def cancel(self, schedule_ids: Sequence[str]) -> list[GoQueueError | None]:
        """Cancel messages at their owners; return the refusal of each, if any."""
        outcomes: list[GoQueueError | None] = [None] * len(schedule_ids)
        by_node: dict[int, list[int]] = {}
        for place, schedule_id in enumerate(schedule_ids):
            try:
                by_node.setdefault(self.owner_of(schedule_id), []).append(place)
            except GoQueueError as error:
                outcomes[place] = error
        asked = {
            node: self._cancel_at(node, [schedule_ids[place] for place in places])
            for node, places in by_node.items()
            if node != NOBODY
        }
        for node, places in by_node.items():
            try:
                if node == NOBODY:
                    raise not_here()
                found = await asked[node]
            except GoQueueError as error:
                found = [error] * len(places)
            for place, outcome in zip(places, found, strict=True):
                outcomes[place] = outcome
        return outcomes

    def _cancel_at(self, node: int, some: list[str]) -> Promise[list[GoQueueError | None]]:
        if node == self._leaders.node_id:
            return self._owner.cancel_here(some)
        result: Promise[list[GoQueueError | None]] = Promise()

        def done(found: list[Refused] | None, error: Exception | None) -> None:
            if found is None:
                assert error is not None
                result.reject(error)
            else:
                result.resolve(
                    [_read_refused(one, text) for one, text in zip(found, some, strict=True)]
                )

        self.calls.cancel(node, some).then(done)
        return result


def _read_refused(refused: Refused, schedule_id: str) -> GoQueueError | None:
    if refused is None:
        return None
    code, text = refused
    if code == ScheduleReleased.code:
        return ScheduleReleased(schedule_id)
    if code == UnknownSchedule.code:
        return UnknownSchedule(schedule_id)
    return CoordinatorNotAvailable(text)
