"""Partitions of schedules in a cluster: a node releases the messages in those that it leads.

A new leader replays the partition to its end, a piece at a time: the leader's log is authoritative.
Then it becomes the producer of that partition in a new epoch, finishes the releases its predecessor
began, and releases what is due. A leader that loses leadership stops at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from goqueue.broker.schedules.intents import IntentReleaser, Send
from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.release import RETRY_MS
from goqueue.broker.topics.topics import Topics
from goqueue.cluster.facts import NamedProducer
from goqueue.delivery.schedules import Lateness, ScheduleIds
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import CoordinatorLoading
from goqueue.model.names import SCHEDULED_TOPIC
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

_log = logging.getLogger(__name__)


class Tools(NamedTuple):
    """The dependencies of every hosted partition."""

    clock: Clock
    disk: Disk
    topics: Topics
    send: Send
    is_full: Callable[[], bool]
    lateness: Lateness
    is_unfit: Callable[[bytes, int], bool]  # whether a replica has a hole that others may not have


class HostedLog:
    """One partition that this node leads, from the start of its leadership to the end."""

    def __init__(self, tools: Tools, partition: Partition, topic_id: bytes) -> None:
        self._tools = tools
        self._partition = partition
        self._topic_id = topic_id
        self.number = partition.name.partition
        self.is_ready = False  # the whole log has been replayed
        self.is_closed = False
        self._is_taking_over = False
        self._begin_log()

    def _begin_log(self) -> None:
        tools = self._tools
        self.log = ScheduleLog(
            tools.clock, tools.disk, self._partition, topic_id=self._topic_id, is_replica=True
        )
        self.log.observer = tools.topics.observer
        self.releaser = IntentReleaser(
            tools.clock,
            tools.topics,
            self.log,
            ScheduleIds(self._topic_id),
            is_full=tools.is_full,
            send=tools.send,
            renew=self._take_over,
        )
        self.releaser.lateness = tools.lateness

    def load(self) -> None:
        """Replay the log, then release what is due."""
        if not self.is_closed:
            self._load_some(self.log.loading())

    def _load_some(self, steps: Iterator[None]) -> None:
        if self.is_closed:
            return
        try:
            next(steps)
        except StopIteration:
            self._loaded()
        except OSError as error:
            _log.error("%s cannot be read: %s", self._partition.name, error)
            self._tools.clock.call_later(RETRY_MS, self._load_again)
        else:
            self._tools.clock.call_soon(lambda: self._load_some(steps))

    def _loaded(self) -> None:
        if self.is_closed:
            return
        if self._tools.is_unfit(self._topic_id, self.number):
            # Messages in the hole would be lost, and messages cancelled in it would be released.
            _log.error("%s has a hole here; another node must release", self._partition.name)
            self._tools.clock.call_later(RETRY_MS, self._loaded)
            return
        self.is_ready = True
        self.releaser.find_left_over()
        self._take_over()

    def _load_again(self) -> None:
        if not self.is_closed:
            self.log.close().then(lambda _, error: self._begin_log())
            self.load()

    def _take_over(self) -> None:
        if self.is_closed or self._is_taking_over:
            return
        self._is_taking_over = True
        name = f"schedules/{self.number}"
        self._tools.topics.facts.take_over_producer(name).then(self._taken_over)

    def _taken_over(self, producer: NamedProducer | None, error: Exception | None) -> None:
        self._is_taking_over = False
        if self.is_closed:
            return
        if producer is None:
            _log.warning("%s: releases have not started: %s", self._partition.name, error)
            self._tools.clock.call_later(RETRY_MS, self._take_over)
        else:
            self.releaser.start(producer)

    def close(self) -> Promise[None]:
        """Stop; resolves when no file of the log is in use."""
        self.is_closed, self.is_ready = True, False
        self.releaser.close()
        return self.log.close()


class ScheduleHosting:
    """The partitions of schedules that this node leads."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._hosted: dict[int, HostedLog] = {}
        self._closed: dict[int, Promise[None]] = {}
        self.dead_lettered = 0  # by partitions that were led earlier
        self.dropped = 0

    def __iter__(self) -> Iterator[HostedLog]:
        """Those that are fully loaded."""
        return iter([one for one in self._hosted.values() if one.is_ready])

    def find(self, number: int) -> HostedLog | None:
        hosted = self._hosted.get(number)
        return hosted if hosted is not None and hosted.is_ready else None

    def check_loaded(self) -> None:
        """Refuse calls about all partitions led here while some are still loading."""
        if not all(one.is_ready for one in self._hosted.values()):
            raise CoordinatorLoading("Schedules are being loaded; retry.")

    def lead(self, partition: Partition) -> None:
        topic = self._tools.topics.get(SCHEDULED_TOPIC)
        hosted = HostedLog(self._tools, partition, topic.id)
        self._hosted[hosted.number] = hosted
        closed = self._closed.get(hosted.number)
        if closed is None:
            hosted.load()
        else:
            closed.then(lambda _, error: hosted.load())

    def resign(self, partition: Partition) -> None:
        hosted = self._hosted.pop(partition.name.partition, None)
        if hosted is not None:
            self.dead_lettered += hosted.releaser.dead_lettered
            self.dropped += hosted.releaser.dropped
            self._closed[hosted.number] = _both(self._closed.get(hosted.number), hosted.close())

    def stop(self, done: Callable[[], None]) -> None:
        """Close all partitions, then call `done`."""
        for hosted in list(self._hosted.values()):
            self._closed[hosted.number] = hosted.close()
        left = [one for one in self._closed.values() if not one.is_done]
        count = len(left)

        def one_closed(_: None, error: Exception | None) -> None:
            nonlocal count
            count -= 1
            if not count:
                done()

        if not left:
            done()
        for one in left:
            one.then(one_closed)


def _both(earlier: Promise[None] | None, later: Promise[None]) -> Promise[None]:
    """Resolves when both are: leadership may be lost twice before the first close completes."""
    if earlier is None or earlier.is_done:
        return later
    result: Promise[None] = Promise()
    earlier.then(lambda _, error: later.then(lambda _, error: result.resolve(None)))
    return result
