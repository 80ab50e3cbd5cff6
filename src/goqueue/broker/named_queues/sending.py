"""Sending to named queues: messages with the same deduplication id are stored once.

The owner of the queue's group decides that. It has the ids of the last minutes in memory. A new
owner first fences former owners, then reads the ids back from the records of the topic, before it
accepts a message with an id.
Of two concurrent messages with one id, the second waits for the result of the first. If it is
unknown whether a message was stored, the topic is searched for it before another one of its id is
stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from goqueue.broker.named_queues.claims import Claims, Publish
from goqueue.broker.named_queues.deduplication_ids import RecentIds
from goqueue.broker.publishing.publisher import Outgoing, Published
from goqueue.broker.queues.queues import Queues
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import NamedQueueFact
from goqueue.delivery import Deduplication, IdRoom, Kept, Slot
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised
from goqueue.model.attributes import (
    DEDUPLICATED_AT_HEADER,
    DEDUPLICATION_HEADER,
    MESSAGE_ID_HEADER,
    parse_attributes,
)
from goqueue.model.batch import NO_TIMESTAMP, Record
from goqueue.model.errors import (
    DeduplicationFull,
    DuplicateSequence,
    FencedProducer,
    GoQueueError,
    InvalidRequest,
    NotCoordinator,
    OutOfOrderSequence,
    StorageFull,
    UnknownProducer,
)
from goqueue.model.key_hash import partition_of_key
from goqueue.model.session import Session
from goqueue.model.tenants import Text
from goqueue.partition import Partition

# Ids of all queues within the deduplication window, at about 500 bytes each.
IDS_MAX = 1_000_000
# How often a message waits for another of its id that fails, before it fails too.
ROUNDS_MAX = 4

Scope = Literal["queue", "key"]


class Posting(NamedTuple):
    """A message to send. Its ids become headers of the record."""

    record: Record
    message_id: Text
    delay_ms: int = 0
    deduplication_id: Text | None = None
    scope: Scope = "queue"  # where the id is unique: in the whole queue, or within its key

    @property
    def slot(self) -> Slot:
        assert self.deduplication_id is not None
        return self.deduplication_id, self.record.key if self.scope == "key" else None


class Posted(NamedTuple):
    """A message that is stored or scheduled, or was before under the same deduplication id."""

    message_id: Text
    sequence: int | None  # increases with each message of a key; None for a scheduled one
    is_duplicate: bool = False


PostResult = Posted | GoQueueError
_UNKNOWN = Posted("", None)  # placeholder until the outcome is there


class _Window:
    """The ids of one queue, valid while this node owns it and all outcomes are known."""

    def __init__(
        self,
        scope: Scope,
        topic: Topic,
        place: int,
        ids: Deduplication,
        publish: Publish,
        before: _Window | None,
    ) -> None:
        """`place` is the journal partition of the queue; `before` is the previous window."""
        self.scope = scope
        self.place = place
        self.topic_id = topic.id
        self.partition_count = len(topic.partitions)
        self.publish = publish  # replaced by the one that the claim returns
        self.is_over = False
        self.ids = ids
        self.loaded: Promise[None] = Promise()
        self.waiting: dict[Slot, Promise[None]] = {}  # resolves when the first of an id is settled
        # Writes still in progress under previous windows.
        self.before: list[Promise[None]] = []
        if before is not None:
            self.before = [*before.waiting.values(), *before.before]

    def fits(self, scope: Scope, topic: Topic) -> bool:
        """Whether it is valid for a send.

        After partitions were added, their leaders must be fenced first, and keys move to them.
        """
        shape = (self.scope, self.topic_id, self.partition_count)
        return not self.is_over and shape == (scope, topic.id, len(topic.partitions))


class QueueSender:
    """Stores messages sent to named queues."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        queues: Queues,
        publish: Publish,
        recent_ids: RecentIds,
        claims: Claims,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._queues = queues
        self._publish = publish
        self._recent_ids = recent_ids
        self._claims = claims
        self._room = IdRoom(IDS_MAX)
        self._windows: dict[bytes, _Window] = {}  # the last one of each queue, by its id

    def forget(self, partition: Partition) -> None:
        """Invalidate the windows of a journal partition whose ownership has changed.

        The ids of its queues are read again before they are used.
        """
        for window in self._windows.values():
            if window.place == partition.name.partition:
                window.is_over = True

    def forget_ids(self, queue_id: bytes) -> None:
        """Read the ids of a queue again before they are used, as some are no longer valid."""
        window = self._windows.get(queue_id)
        if window is not None:
            window.is_over = True

    def send(
        self, queue: NamedQueueFact, postings: Sequence[Posting], session: Session
    ) -> Promise[list[PostResult]]:
        if any(posting.deduplication_id is not None for posting in postings):
            return promised(self._send_once(queue, postings, session))
        return promised(self._store(queue, self._publish, postings, session))

    async def _store(
        self,
        queue: NamedQueueFact,
        publish: Publish,
        postings: Sequence[Posting],
        session: Session,
    ) -> list[PostResult]:
        """Store messages without deduplication."""
        results: list[PostResult] = []
        outgoing: list[Record | Outgoing] = []
        places: list[int] = []
        now_ms = self._clock.wall_ms()
        for place, posting in enumerate(postings):
            try:
                outgoing.append(_outgoing(posting, now_ms))
            except GoQueueError as error:
                results.append(error)
            else:
                results.append(_UNKNOWN)
                places.append(place)
        published = await publish(queue.topic, outgoing, session=session)
        for place, one in zip(places, published, strict=True):
            if isinstance(one, GoQueueError):
                results[place] = one
            else:
                sequence = one.offset if isinstance(one, Published) else None
                results[place] = Posted(postings[place].message_id, sequence)
        return results

    async def _send_once(
        self, queue: NamedQueueFact, postings: Sequence[Posting], session: Session
    ) -> list[PostResult]:
        results: list[PostResult | None] = [None] * len(postings)
        for _ in range(ROUNDS_MAX):
            left = [place for place, result in enumerate(results) if result is None]
            if not left:
                break
            window = await self._window_of(queue, postings[left[0]].scope)
            fresh, waits = self._admit(queue, window, postings, left, results)
            if fresh:
                await self._store_fresh(queue, window, postings, fresh, results, session)
            for slot in waits:
                waiting = window.waiting.get(slot)
                if waiting is not None:
                    await waiting
        return [NotCoordinator(_UNSETTLED) if one is None else one for one in results]

    def _admit(
        self,
        queue: NamedQueueFact,
        window: _Window,
        postings: Sequence[Posting],
        places: Sequence[int],
        results: list[PostResult | None],
    ) -> tuple[list[int], list[Slot]]:
        """Answer duplicates; return the positions to store, and the ids to wait for."""
        now_ms, ids = self._clock.now_ms(), window.ids
        fresh: list[int] = []
        waits: list[Slot] = []
        for place in places:
            posting = postings[place]
            if posting.deduplication_id is None:
                fresh.append(place)
                continue
            slot = posting.slot
            kept = ids.find(slot, now_ms)
            if kept is not None:
                results[place] = Posted(kept.message_id, kept.sequence, is_duplicate=True)
                self._report_duplicate(queue, posting, kept.sequence)
            elif ids.is_storing(slot):
                waits.append(slot)
            elif ids.is_full(now_ms):
                results[place] = DeduplicationFull(self._room.count_max)
            else:
                ids.begin(slot)
                window.waiting[slot] = Promise()
                fresh.append(place)
        return fresh, waits

    def _report_duplicate(
        self, queue: NamedQueueFact, posting: Posting, offset: int | None
    ) -> None:
        """Report a duplicate to the observer, if it is known in which partition the message is."""
        observer, topic = self._topics.observer, self._topics.find(queue.topic)
        if observer is None or topic is None or offset is None:
            return
        count, key = len(topic.partitions), posting.record.key
        if count == 1 or (posting.scope == "key" and key is not None):
            number = 0 if count == 1 or key is None else partition_of_key(key, count)
            observer.deduplicated(topic.partition(number).name, (offset, offset + 1))

    async def _store_fresh(
        self,
        queue: NamedQueueFact,
        window: _Window,
        postings: Sequence[Posting],
        places: Sequence[int],
        results: list[PostResult | None],
        session: Session,
    ) -> None:
        """Store the first messages of their ids, and notify those that wait for them."""
        chosen = [postings[place] for place in places]
        stored: Sequence[PostResult]
        try:
            stored = await self._store(queue, window.publish, chosen, session)
        except GoQueueError as error:
            stored = [error] * len(chosen)
        now_ms, settled = self._clock.now_ms(), []
        for place, posting, result in zip(places, chosen, stored, strict=True):
            if isinstance(result, Posted):
                results[place] = result
            else:
                results[place] = self._not_stored(queue, window, result)
            if posting.deduplication_id is None:
                continue
            slot = posting.slot
            if isinstance(result, Posted):
                window.ids.stored(slot, Kept(result.message_id, result.sequence), now_ms)
            else:
                window.ids.failed(slot)
            settled.append(window.waiting.pop(slot))
        for waiting in settled:
            waiting.resolve(None)

    def _not_stored(
        self, queue: NamedQueueFact, window: _Window, error: GoQueueError
    ) -> GoQueueError:
        """Return the error for the sender; unless the sender caused it, invalidate the window."""
        is_lost = isinstance(error, _LOST)
        is_sure = isinstance(error, StorageFull) and self._claims.is_alone
        if (error.retryable or is_lost) and not is_sure:
            window.is_over = True
        if not is_lost:
            return error
        return NotCoordinator(f"Queue {queue.name!r} must be claimed anew ({error}); retry.")

    async def _window_of(self, queue: NamedQueueFact, scope: Scope) -> _Window:
        """Return the window of a queue, loading it if necessary; only on the owner."""
        for _ in range(ROUNDS_MAX):
            self._queues.groups.owned(queue.group)
            topic = self._topics.get(queue.topic)
            window = self._windows.get(queue.id)
            if window is None or not window.fits(scope, topic):
                window = self._open(queue, scope, topic, window)
            try:
                await window.loaded
            except GoQueueError:
                window.is_over = True
                raise
            if window.fits(scope, topic):
                self._queues.groups.owned(queue.group)
                return window
        raise NotCoordinator(f"The owner of queue {queue.name!r} is changing; retry.")

    def _open(
        self, queue: NamedQueueFact, scope: Scope, topic: Topic, before: _Window | None
    ) -> _Window:
        known = {one.id for one in self._topics.facts.named_queues().values()}
        for queue_id in [one for one in self._windows if one not in known or one == queue.id]:
            self._windows.pop(queue_id).ids.close()
        place, ids = self._queues.groups.place_of(queue.group), Deduplication(self._room)
        window = _Window(scope, topic, place, ids, self._publish, before)
        self._windows[queue.id] = window
        promised(self._load(queue, topic, window)).then(window.loaded.settle)
        return window

    async def _load(self, queue: NamedQueueFact, topic: Topic, window: _Window) -> None:
        if self._claims.is_alone:
            # In a cluster the claim fences writes in flight; here they have to finish first.
            for storing in window.before:
                await storing
        window.before = []
        window.publish = await self._claims.claim(queue, topic)
        current = self._topics.facts.named_queues().get(queue.name, queue)
        found = await self._recent_ids.read(
            topic, window.ids.window_ms, dict(current.ids_forgotten)
        )
        is_by_key = window.scope == "key"
        window.ids.recall(
            [
                ((one.deduplication_id, one.key if is_by_key else None), one.kept, one.age_ms)
                for one in found
            ],
            self._clock.now_ms(),
        )


# Another node stores for the queue, or the leader has lost this producer's sequence state.
_LOST = (FencedProducer, UnknownProducer, OutOfOrderSequence, DuplicateSequence)
_UNSETTLED = "Messages with this deduplication id could not be stored one after the other; retry."


def _outgoing(posting: Posting, now_ms: int) -> Record | Outgoing:
    """Return the record with its ids; a delayed one with its delay as an attribute."""
    key, value, headers, timestamp_ms, _ = posting.record
    headers = (*headers, (MESSAGE_ID_HEADER, posting.message_id.encode()))
    if posting.deduplication_id is not None:
        headers += (
            (DEDUPLICATION_HEADER, posting.deduplication_id.encode()),
            (DEDUPLICATED_AT_HEADER, b"%d" % now_ms),
        )
    if not posting.delay_ms:
        return Record(key, value, headers, now_ms if timestamp_ms == NO_TIMESTAMP else timestamp_ms)
    record = posting.record._replace(headers=headers)
    if posting.deduplication_id is not None:
        # It would wait in the schedule log, where a restart does not look for ids.
        raise InvalidRequest(
            "A message with a deduplication id cannot have a delay of its own; delay the queue."
        )
    attributes = parse_attributes(record.headers)
    return Outgoing(record, attributes._replace(delay_ms=posting.delay_ms, deliver_at_ms=None))


__all__ = ["PostResult", "Posted", "Posting", "QueueSender"]
