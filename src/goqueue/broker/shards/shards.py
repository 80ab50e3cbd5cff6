"""State machines that live with the partitions of an internal topic.

Each kind of state (stream groups, transactions, …) has an internal topic. A key is mapped to one of
its partitions, and the leader of that partition owns the state: it replays the partition when it
becomes the leader, and closes the state machine when it no longer is. A single node leads all of
them.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.shards.own_records import readable_batches
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.alarm import Alarm
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised
from goqueue.model.batch import BatchHeader
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, NotCoordinator
from goqueue.partition import Partition


class Closable(Protocol):
    """The state of one partition."""

    def close(self, error: GoQueueError) -> object:
        """Stop, and reject waiting calls with `error`."""


S = TypeVar("S", bound=Closable)
T = TypeVar("T")


class Shards(Generic[S]):
    """The shards of one kind of state that this node owns, and where the others are."""

    def __init__(
        self,
        topics: Topics,
        leaders: Leaders,
        topic: str,
        *,
        partition_count: int,
        noun: str,
        start: Callable[[Partition], S],
    ) -> None:
        """`start` opens the state of a partition that this node leads.

        `noun` names in errors what a key stands for. `partition_count` counts until the internal
        topic `topic` exists.
        """
        self.topic_name = topic
        self.owned: dict[int, S] = {}
        self._topics = topics
        self._leaders = leaders
        self.partition_count = partition_count
        self._noun = noun
        self._start = start

    def __iter__(self) -> Iterator[S]:
        return iter(self.owned.values())

    # Leadership

    def lead(self, partition: Partition) -> None:
        """Open the state of a partition that this node now leads."""
        self.owned[partition.name.partition] = self._start(partition)

    def resign(self, partition: Partition) -> None:
        """Close the state of a partition that this node no longer leads."""
        shard = self.owned.pop(partition.name.partition, None)
        if shard is not None:
            shard.close(self.elsewhere())

    # Location

    @property
    def topic(self) -> Topic | None:
        """The internal topic; None before a single node has used it, or a cluster has formed."""
        return self._topics.find(self.topic_name)

    def number_of(self, key: str) -> int:
        """Return the partition of a key."""
        topic = self.topic
        count = self.partition_count if topic is None else len(topic.partitions)
        # Not hash(), which differs between processes; this mapping must be stable.
        return zlib.crc32(key.encode()) % count

    def owner_of(self, key: str) -> int:
        """Return the node that owns the state of a key; -1 if none does."""
        if self._leaders.is_alone:
            return self._leaders.node_id
        topic = self.topic
        return -1 if topic is None else self._leaders.node_of(topic, self.number_of(key))

    def any_owner(self) -> int:
        """Return a node that owns a shard, preferably this one; -1 if there is none."""
        topic = self.topic
        if self.owned or self._leaders.is_alone:
            return self._leaders.node_id
        if topic is None:
            return -1
        owners = [self._leaders.node_of(topic, one) for one in range(len(topic.partitions))]
        return next((one for one in owners if one >= 0), -1)

    def is_here(self, key: str) -> bool:
        """Return whether this node owns the state of a key, according to its metadata."""
        return self.number_of(key) in self.owned

    def is_opening(self, key: str) -> bool:
        """Return whether this node leads the partition of a key, and does not own its state yet."""
        if self.topic is None or self.is_here(key):
            return False
        return self.owner_of(key) == self._leaders.node_id

    def find(self, key: str) -> S | None:
        """Return the shard of a key; None on a single node that has never used this topic.

        Raise if another node owns it, or none yet.
        """
        shard = self.owned.get(self.number_of(key))
        if shard is not None:
            return shard
        if self.topic is not None:
            raise self.elsewhere()
        if not self._leaders.is_alone:
            raise CoordinatorNotAvailable("The cluster is still forming; retry.")
        return None

    def elsewhere(self) -> NotCoordinator:
        """Return the error for a caller that should find the owner again."""
        return NotCoordinator(f"Another node coordinates this {self._noun} now; find it again.")

    # Calls

    async def ready(self) -> Topic:
        """Return the internal topic: a single node creates it, a cluster has it once formed."""
        return await self._topics.internal.ready(self.topic_name)

    def call(self, key: str, use: Callable[[S], Promise[T]]) -> Promise[T]:
        """Use the shard of a key; wait for a bounded time while this node is still opening it."""
        internal, number = self._topics.internal, self.number_of(key)
        if number not in self.owned and internal.is_awaited(self.topic_name, number):
            return promised(self._call_when_owned(key, use))
        return self._call_now(key, use)

    async def _call_when_owned(self, key: str, use: Callable[[S], Promise[T]]) -> T:
        await self._topics.internal.until(lambda: self.is_here(key))
        return await self._call_now(key, use)

    def _call_now(self, key: str, use: Callable[[S], Promise[T]]) -> Promise[T]:
        try:
            if self.topic is None:
                self._topics.internal.make(self.topic_name)
            shard = self.find(key)
            assert shard is not None, "a topic that was made has its shards"
            return use(shard)
        except GoQueueError as error:
            refused: Promise[T] = Promise()
            refused.reject(error)
            return refused


class Machine(Protocol):
    """A coordinator's state machine: input and time in, effects out."""

    def next_deadline_ms(self) -> int | None: ...

    def tick(self, now_ms: int) -> list[Any]: ...


M = TypeVar("M", bound=Machine)


class MachineShard(ABC, Generic[M]):
    """One state machine with its partition: replay, effects, replies and timer.

    A subclass replays batches of records and carries out effects.
    """

    def __init__(self, clock: Clock, partition: Partition, machine: M) -> None:
        self.machine = machine
        self.is_closed = False
        self._clock = clock
        self._partition = partition
        self._waiting: dict[Promise[Any], None] = {}
        self._alarm = Alarm(
            clock,
            name=str(partition.name),
            next_deadline_ms=machine.next_deadline_ms,
            ring=lambda now_ms: self.perform(machine.tick(now_ms)),
        )

    def replay(self) -> None:
        """Apply the partition, which is compacted, so its size is close to that of the state."""
        for header, batch in readable_batches(self._partition, name=str(self._partition.name)):
            self._replay(header, batch)

    @abstractmethod
    def _replay(self, header: BatchHeader, batch: bytes) -> None: ...

    def ask(self, call: Callable[..., list[Any]]) -> Promise[Any]:
        """Pass a call to the state machine; it resolves with the machine's reply."""
        reply: Promise[Any] = Promise()
        effects = call(self.machine, token=reply, now_ms=self._clock.now_ms())
        self._waiting[reply] = None
        self.perform(effects)
        return reply

    def perform(self, effects: list[Any]) -> None:
        """Carry out the machine's effects, then set the timer for its next deadline."""
        if self.is_closed:
            return
        for effect in effects:
            self._carry_out(effect)
        self._alarm.set()

    @abstractmethod
    def _carry_out(self, effect: Any) -> None: ...

    def _reply(self, token: object, result: object) -> None:
        """Settle a waiting call."""
        assert isinstance(token, Promise)
        self._waiting.pop(token, None)
        if isinstance(result, GoQueueError):
            token.reject(result)
        else:
            token.resolve(result)

    def close(self, error: GoQueueError) -> None:
        """Stop, because another node owns the state now; reject waiting calls with `error`."""
        self.is_closed = True
        self._alarm.stop()
        waiting, self._waiting = self._waiting, {}
        for reply in waiting:
            reply.reject(error)
