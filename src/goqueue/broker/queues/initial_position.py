"""How queues start: the first receive of a group, or of a topic that is new to the group.

In a cluster, the group must first be committed, and the end of a topic is obtained from its
leaders, because the replicas on this node may be behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from goqueue.broker.queues.host import HostedQueue, Receiver
from goqueue.broker.queues.hosting import HostedGroup, QueueHosts
from goqueue.broker.queues.records import Received
from goqueue.broker.queues.rewind import Look
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.promise import Promise, promised
from goqueue.model.errors import GoQueueError, UnknownGroup, UnknownTopic


class QueueBeginnings:
    """Starts the queues of groups for topics that are new to them."""

    def __init__(self, topics: Topics, hosts: QueueHosts, look: Look, *, is_alone: bool) -> None:
        self._topics = topics
        self._hosts = hosts
        self._look = look
        self._is_alone = is_alone

    def begun(self, group: HostedGroup, topic: Topic) -> Promise[HostedQueue]:
        """Return the queue of a group for a topic, started if necessary; resolves when journaled.

        A new queue must survive a crash, because its initial position must not change.
        """
        hosted = group.queues.get(topic.id)
        if hosted is not None:
            known: Promise[HostedQueue] = Promise()
            known.resolve(hosted)
            return known
        if self._is_alone or group.settings.start != "latest":
            ends = [one.last_stable_offset for one in topic.partitions]
            hosted = self._hosts.start_queue(group, topic, ends)
        return promised(self._begin(hosted, group, topic))

    async def _begin(
        self, hosted: HostedQueue | None, group: HostedGroup, topic: Topic
    ) -> HostedQueue:
        while hosted is None:
            bounds = await self._look(topic, range(len(topic.partitions)))
            self._check_still(group, topic)
            hosted = group.queues.get(topic.id)
            if hosted is None and len(bounds) == len(topic.partitions):
                ends = [one.last_stable_offset for one in bounds]
                hosted = self._hosts.start_queue(group, topic, ends)
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


def receive_when_begun(begun: Promise[HostedQueue], receiver: Receiver, wait_ms: int) -> None:
    """Receive from a queue as soon as it has started."""

    def started(hosted: HostedQueue | None, error: Exception | None) -> None:
        if receiver.promise.is_done:
            return
        if hosted is None:
            assert error is not None
            receiver.promise.reject(error)
        else:
            hosted.receive(receiver, wait_ms)

    begun.then(started)


def receive_when_made(
    made: Promise[None], receiver: Receiver, again: Callable[[], Receiver]
) -> None:
    """Receive `again` once the group is committed, because its id determines its owner."""
    is_left = False

    def agreed(_: None, error: Exception | None) -> None:
        if receiver.promise.is_done:
            return
        try:
            if error is not None:
                raise error
            other = again()
        except GoQueueError as refused:
            receiver.refuse(refused)
            return
        receiver.leave = partial(leave, other)
        other.promise.then(answered)

    def leave(other: Receiver) -> None:
        nonlocal is_left
        is_left = True
        other.cancel()

    def answered(messages: Received | None, error: Exception | None) -> None:
        if not is_left:
            receiver.promise.settle(messages, error)

    made.then(agreed)
