"""Where queues are: their initial position, and moving them to offsets, to a time, or to the end.

The queue of a group for a topic starts with the first receive. The start and end of a topic come
from its leaders, because replicas on this node may be behind.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.queues.host import HostedGroup, HostedQueue
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.reading.remote import Bounds
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.promise import Promise, promised
from goqueue.model.errors import InvalidRequest, UnknownGroup, UnknownTopic


class Look(Protocol):
    """Requests the start and end of partitions from their leaders."""

    def __call__(
        self, topic: Topic, numbers: Sequence[int], *, times_ms: Sequence[int] = ()
    ) -> Coroutine[Promise[Any], None, Sequence[Bounds]]: ...


class QueuePositions:
    """Starts queues, and moves them."""

    def __init__(self, topics: Topics, hosts: QueueHosts, groups: QueueGroups, look: Look) -> None:
        self._topics = topics
        self._hosts = hosts
        self._groups = groups
        self._look = look

    # Starting

    def begin(self, name: str, topic_name: str) -> Promise[None]:
        """Start the queue of a group for a topic, as the first receive would."""
        begun: Promise[None] = Promise()
        queue = self.begun(*self._groups.served(name, topic_name))
        queue.then(lambda _, error: begun.settle(None, error))
        return begun

    def begun(self, group: HostedGroup, topic: Topic) -> Promise[HostedQueue]:
        """Return the queue of a group for a topic, started if necessary; resolves when journaled.

        A new queue must survive a crash, because its initial position must not change.
        """
        hosted = group.queues.get(topic.name)
        if hosted is not None:
            known: Promise[HostedQueue] = Promise()
            known.resolve(hosted)
            return known
        if self._hosts.is_opening(group, topic):
            return promised(self._opened(group, topic))
        if group.settings.start == "earliest":
            hosted = self._hosts.start_queue(group, topic, ())
        return promised(self._begin(hosted, group, topic))

    async def _opened(self, group: HostedGroup, topic: Topic) -> HostedQueue:
        """Return a queue as soon as the dead letters of an earlier owner are written."""
        await self._topics.internal.until(lambda: not self._hosts.is_opening(group, topic))
        self._check_still(group, topic)
        return await self.begun(group, topic)

    async def _begin(
        self, hosted: HostedQueue | None, group: HostedGroup, topic: Topic
    ) -> HostedQueue:
        while hosted is None:
            before_ms = group.settings.start_before_ms
            times_ms = [] if before_ms is None else [self._hosts.clock.wall_ms() - before_ms]
            bounds = await self._look(topic, range(len(topic.partitions)), times_ms=times_ms)
            self._check_still(group, topic)
            hosted = group.queues.get(topic.name)
            if hosted is None and len(bounds) == len(topic.partitions):
                starts = [_start(one, times_ms) for one in bounds]
                hosted = self._hosts.start_queue(group, topic, starts)
        await hosted.saved()
        return hosted

    def _check_still(self, group: HostedGroup, topic: Topic) -> None:
        """Check that group and topic still exist here after the leaders have responded."""
        name = group.fact.name
        if self._hosts.groups.get(name) is not group:
            raise UnknownGroup(name)
        if self._topics.find_by_id(topic.id) is None:
            raise UnknownTopic(topic.name)
        self._hosts.check_served(group, topic)

    # Moving

    def rewind(
        self,
        name: str,
        topic_name: str,
        *,
        offsets: Mapping[int, int] | None = None,
        time_ms: int | None = None,
        is_dry_run: bool = False,
    ) -> Promise[dict[int, int]]:
        """Deliver again from offsets, or from a time on; return where each partition continues.

        A dry run only returns it, for a queue that the group has.
        """
        if (offsets is None) == (time_ms is None):
            raise InvalidRequest("Rewind to offsets or to a time, not to both.")
        group, topic = self._groups.served(name, topic_name)
        for number in offsets or ():
            topic.partition(number)  # Raises if it does not exist.
        if is_dry_run:
            hosted = self._groups.queue_of(name, topic_name)
            return promised(self._targets(hosted, offsets, time_ms))
        return promised(self._rewind(self.begun(group, topic), offsets, time_ms))

    async def _targets(
        self, hosted: HostedQueue, offsets: Mapping[int, int] | None, time_ms: int | None
    ) -> dict[int, int]:
        """Return where each partition would continue."""
        if offsets is not None:
            return await self._nearest(hosted, offsets)
        assert time_ms is not None
        return await self._at_time(hosted, time_ms)

    async def _rewind(
        self,
        begun: Promise[HostedQueue],
        offsets: Mapping[int, int] | None,
        time_ms: int | None,
    ) -> dict[int, int]:
        hosted = await begun
        targets = await self._targets(hosted, offsets, time_ms)
        hosted.check_open()
        now_ms = self._hosts.clock.now_ms()
        for number, offset in targets.items():
            hosted.queue.rewind(number, offset, now_ms)
        return await _saved(hosted, targets)

    async def _nearest(self, hosted: HostedQueue, offsets: Mapping[int, int]) -> dict[int, int]:
        """Return these offsets, or the nearest ones that exist."""
        bounds = await self._look(hosted.topic, list(offsets))
        return {
            number: max(one.start_offset, min(offsets[number], one.last_stable_offset))
            for number, one in zip(offsets, bounds, strict=True)
        }

    async def _at_time(self, hosted: HostedQueue, time_ms: int) -> dict[int, int]:
        """Return the first message at or after a time, in all partitions."""
        numbers = range(len(hosted.topic.partitions))
        targets: dict[int, int] = {}
        for number, one in enumerate(await self._look(hosted.topic, numbers, times_ms=[time_ms])):
            found = one.find_timestamp(time_ms, is_committed_only=True)
            end = one.last_stable_offset
            offset = end if found is None else found.offset
            targets[number] = max(one.start_offset, min(offset, end))
        return targets

    def purge(self, name: str, topic_name: str) -> Promise[dict[int, int]]:
        """Finish everything stored so far; return where each partition continues."""
        return promised(self._purge(self._groups.queue_of(name, topic_name)))

    async def _purge(self, hosted: HostedQueue) -> dict[int, int]:
        bounds = await self._look(hosted.topic, range(len(hosted.queue.partitions)))
        hosted.check_open()
        known = hosted.queue.partitions
        ends = [
            max(one.last_stable_offset, mine.high_watermark)
            for one, mine in zip(bounds, known, strict=False)
        ]
        # Partitions added in the meantime keep their messages.
        ends += [mine.ledger.floor for mine in known[len(ends) :]]
        hosted.queue.purge(ends)
        return await _saved(hosted, dict(enumerate(ends)))


def _start(bounds: Bounds, times_ms: Sequence[int]) -> int:
    """Return the first committed record at or after the time, if there is one, or the end."""
    for time_ms in times_ms:
        found = bounds.find_timestamp(time_ms, is_committed_only=True)
        if found is not None:
            return max(bounds.start_offset, min(found.offset, bounds.last_stable_offset))
    return bounds.last_stable_offset


async def _saved(hosted: HostedQueue, targets: dict[int, int]) -> dict[int, int]:
    saved = hosted.saved()
    hosted.settle()
    hosted.wake()
    await saved
    return targets
