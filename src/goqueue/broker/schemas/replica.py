"""The registry of a node, replicated from the log of schemas.

The leader of that log's only partition accepts changes; a single node always leads. Every other
node applies what is committed: a node with a replica reads it as it grows, a node without one
requests it from the leader. So all nodes can answer and validate, with a short lag at most. A
registration is acknowledged when the other nodes have applied it too, if they respond in time; and
a node that is asked for a schema it does not have checks with the leader whether there is more to
apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.schemas.loading import Loading
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, Answered, PeerKind
from goqueue.loop.promise import Promise, start
from goqueue.model.batch import read_header
from goqueue.model.bounds import Offset
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    NotCoordinator,
    OffsetOutOfRange,
    RequestTimedOut,
    UnsupportedVersion,
    UpgradeInProgress,
)
from goqueue.model.names import SCHEMAS_TOPIC
from goqueue.partition import NO_LEADER, Partition
from goqueue.schemas.registry import Registry

if TYPE_CHECKING:
    from goqueue.cluster.facts import Decision

TELL_MS_MAX = 1_000  # how long a change waits for the other nodes to apply it
CATCH_UP_MS_MAX = 5_000
ASK_MS_MAX = 1_000  # for one response of the leader; the caller retries
READ_BYTES_MAX = 1 << 20
QUESTIONS_MAX = 1_000  # requests that wait for the leader's state

Unreadable = Callable[[Partition, UnsupportedVersion], None]

_encode = msgspec.msgpack.Encoder().encode


class Read(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """Get committed records from an offset on, up to a size limit."""

    offset: Offset


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """Get the offset up to which the leader's log is committed."""


class Tell(msgspec.Struct, frozen=True, array_like=True, tag="tell"):
    """The log is committed up to an offset; respond when the registry has applied it."""

    offset: Offset


_call_decoder = msgspec.msgpack.Decoder(Read | End | Tell)
_offset_decoder = msgspec.msgpack.Decoder(int)


class RegistryReplica:
    """Follows the log of schemas, or leads it."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when the registry has changed."""
        # A single node accepts the first change before the topic exists.
        self.is_leading = leaders.is_alone
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._changed = changed
        self._loading: Loading | None = None
        self._registry: Registry | None = None
        self._watched: Partition | None = None
        self._is_catching_up = False
        self._waiting: list[tuple[int, Promise[None]]] = []
        self._pulling: Promise[None] | None = None
        self._questions: dict[bytes, Promise[None]] = {}
        # Called with the partition if it is led here and a later release has written in it.
        self.on_unreadable: Unreadable = lambda partition, error: None
        leaders.serve(PeerKind.SCHEMAS, self._serve)
        topics.facts.log.on_applied(self._look_again)

    # Roles

    def lead(self) -> None:
        """Apply the whole log up to its end, and accept changes from now on."""
        self.is_leading = True
        self._catch_up_soon()

    def resign(self) -> None:
        """Apply only what is committed: this node's last writes may be lost."""
        self.is_leading = False
        self.forget()

    def forget(self) -> None:
        """Replay the log from the start."""
        self._loading = self._registry = None
        self._catch_up_soon()

    def check_leading(self) -> None:
        if not self.is_leading:
            raise NotCoordinator("Another node accepts changes of schemas now; find it again.")

    def leader(self) -> int:
        """The node that accepts changes; -1 if there is none."""
        topic = self._topics.find(SCHEMAS_TOPIC)
        if topic is not None:
            return self._leaders.node_of(topic, 0)
        return self._leaders.node_id if self._leaders.is_alone else NO_LEADER

    def _look_again(self, _: Decision) -> None:
        self.look()

    def look(self) -> None:
        """Check whether this node has gained or lost a replica."""
        topic = self._topics.find(SCHEMAS_TOPIC)
        has_replica = topic is not None and self._leaders.has_replica(topic, 0)
        partition = topic.partition(0) if topic is not None and has_replica else None
        if partition is self._watched:
            return
        if self._watched is not None:
            self._watched.watchers.pop(self, None)
        self._watched = partition
        if partition is not None:
            partition.watchers[self] = None
        self._catch_up_soon()

    # Reading

    @property
    def registry(self) -> Registry:
        """The registry as applied so far."""
        if self._registry is None:
            self._registry = Registry() if self._loading is None else self._loading.registry
        return self._registry

    @property
    def next_offset(self) -> int:
        """The log is applied up to this offset, exclusive."""
        return 0 if self._loading is None else self._loading.next_offset

    def wrote(self, last_offset: int) -> None:
        """Note that the leader has appended records and applied them to the registry."""
        assert self._loading is not None
        self._loading.next_offset = last_offset + 1

    def load_some(self) -> bool:
        """Replay a piece of this node's replica, if any; return True when all of it is applied.

        Raise `UpgradeInProgress` if a later release has written something that comes next.
        """
        partition = self._watched
        if partition is None:
            return True
        loading = self._loading
        if loading is None or not _goes_on(loading, partition):
            loading = self._loading = Loading(partition)
        is_new = loading.registry is not self._registry
        # Writes of this node are applied at once, except those that its disk has failed to store.
        is_ahead = self.is_leading and partition.failure is None
        until = partition.end_offset if is_ahead else partition.high_watermark
        if not is_new and loading.next_offset >= until:
            return True
        loading.until_offset = max(until, loading.next_offset)
        is_done = loading.step()
        if is_done or not is_new:
            # A registry replayed from the start replaces the old one when it is complete.
            self._registry = loading.registry
            self._changed()
        self._answer_waiting()
        return is_done

    def partition_advanced(self, _: Partition) -> None:
        self._catch_up_soon()

    def _catch_up_soon(self) -> None:
        if not self._is_catching_up:
            self._is_catching_up = True
            self._clock.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        self._is_catching_up = False
        try:
            if not self.load_some():
                self._catch_up_soon()
        except UpgradeInProgress as error:
            self._refuse(error)

    def _applied(self, offset: int) -> Promise[None]:
        """Resolves when the log is applied up to an offset, exclusive."""
        promise: Promise[None] = Promise()
        if self._is_applied(offset):
            promise.resolve(None)
            return promise
        if self._loading is not None and self._loading.unreadable is not None:
            self._catch_up_soon()  # It rejects those that wait.
        self._waiting.append((offset, promise))

        def give_up() -> None:
            if not promise.is_done:
                self._waiting.remove((offset, promise))
                promise.reject(RequestTimedOut("The schemas are not loaded here yet; retry."))

        self._clock.call_later(CATCH_UP_MS_MAX, give_up)
        return promise

    def _is_applied(self, offset: int) -> bool:
        loading = self._loading
        is_current = loading is not None and loading.registry is self._registry
        return offset <= 0 or (is_current and self.next_offset >= offset)

    def _answer_waiting(self) -> None:
        if not self._waiting:
            return
        done = [one for one in self._waiting if self._is_applied(one[0])]
        self._waiting = [one for one in self._waiting if not self._is_applied(one[0])]
        for _, promise in done:
            promise.resolve(None)

    def _refuse(self, error: UpgradeInProgress) -> None:
        """Give up what waits for records that a later release has written; lead no more."""
        waiting, self._waiting = self._waiting, []
        for _, promise in waiting:
            promise.reject(error)
        loading = self._loading
        if self.is_leading and loading is not None and loading.unreadable is not None:
            self.on_unreadable(loading.partition, loading.unreadable)

    # Calls to the leader

    def check_sure(self, question: bytes) -> None:
        """Raise unless this node has caught up with the leader since the first such request.

        The error starts the catch-up, so that a retry succeeds.
        """
        if self.is_leading:
            return
        asked = self._questions.get(question)
        if asked is not None and asked.is_done:
            del self._questions[question]
            if _is_kept(asked):
                return
            asked = None
        if asked is None:
            if len(self._questions) >= QUESTIONS_MAX:
                self._questions.clear()
            asked = self._questions[question] = Promise()
            start(self.catch_up(), asked.settle)
        raise RequestTimedOut("This node cannot tell yet whether the schema exists; retry.")

    async def catch_up(self) -> None:
        """Apply everything that the leader had when this was called."""
        if self.is_leading:
            return
        topic = self._topics.find(SCHEMAS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("The cluster is still forming; retry.")
        answer = await self._call(topic, End())
        await self._reach(topic, _offset_decoder.decode(answer.head))

    async def _reach(self, topic: Topic, offset: int) -> None:
        if self._watched is not None:
            await self._applied(offset)
            return
        while self._watched is None and self.next_offset < offset:
            pulling = self._pulling
            if pulling is None:
                pulling = self._pulling = Promise()
                start(self._pull(topic), self._pulled)
            await pulling

    def _pulled(self, _: None, error: Exception | None) -> None:
        pulling, self._pulling = self._pulling, None
        assert pulling is not None
        pulling.settle(None, error)

    async def _pull(self, topic: Topic) -> None:
        """Get the next records from the leader, if this node has no replica."""
        if self._loading is None or self._loading.partition is not topic.partition(0):
            self._loading = Loading(topic.partition(0))
            self._registry = None
        loading = self._loading
        try:
            answer = await self._call(topic, Read(loading.next_offset))
        except OffsetOutOfRange:
            self._loading = None  # The log is another one; start again.
            raise RequestTimedOut("The schemas are being loaded again; retry.") from None
        data = answer.body
        batches = bytes(data)
        at = 0
        while at < len(batches):
            header = read_header(batches, at)
            loading.take(header, batches[at : at + header.size])
            at += header.size
        if not batches:  # Compaction has left nothing before the end.
            loading.next_offset = max(loading.next_offset, _offset_decoder.decode(answer.head))
        self._registry = loading.registry
        self._changed()

    def _call(self, topic: Topic, call: Read | End) -> Promise[Answered]:
        node = self._leaders.node_of(topic, 0)
        if node in (NO_LEADER, self._leaders.node_id):
            raise CoordinatorNotAvailable("No other node leads the schemas now; retry.")
        return self._leaders.ask(node, PeerKind.SCHEMAS, _encode(call), timeout_ms=ASK_MS_MAX)

    # Notifying the others

    def tell(self, offset: int) -> Promise[None]:
        """Notify the other nodes of the committed offset; resolves when they have applied it.

        Slow nodes are not waited for.
        """
        told: Promise[None] = Promise()
        nodes = self._leaders.other_nodes()
        left = len(nodes)

        def one_told(_: Answered | None, error: Exception | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                told.resolve(None)

        if not nodes:
            told.resolve(None)
        for node in nodes:
            call = _encode(Tell(offset))
            told_one = self._leaders.ask(node, PeerKind.SCHEMAS, call, timeout_ms=TELL_MS_MAX)
            told_one.then(one_told)
        return told

    # Serving

    def _serve(self, _: int, head: bytes, body: memoryview) -> Promise[Answer]:
        call = _call_decoder.decode(head)
        answer: Promise[Answer] = Promise()
        topic = self._topics.find(SCHEMAS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("This node has no metadata of the schemas yet; retry.")
        if isinstance(call, Tell):
            start(
                self._reach(topic, call.offset),
                lambda _, error: answer.settle(None if error else Answer(), error),
            )
            return answer
        partition = topic.partition(0)
        partition.check_leading()
        if isinstance(call, End):
            answer.resolve(Answer(_encode(partition.high_watermark)))
            return answer
        part = partition.read(max(call.offset, partition.start_offset), bytes_max=READ_BYTES_MAX)
        batches = [] if part is None else [part.read_checked()]
        answer.resolve(Answer(_encode(partition.high_watermark), batches))
        return answer


def _goes_on(loading: Loading, partition: Partition) -> bool:
    """Whether what was replayed of a log is still a prefix of it."""
    if loading.partition is not partition:
        return False
    return partition.start_offset <= loading.next_offset <= partition.end_offset


def _is_kept(promise: Promise[None]) -> bool:
    failures: list[Exception | None] = []
    promise.then(lambda _, error: failures.append(error))
    error = failures[0]
    if error is not None and not isinstance(error, GoQueueError):
        raise error
    return error is None
