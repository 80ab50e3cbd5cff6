"""A queue in operation: reads chosen records, keeps calls waiting, and runs its timers.

A queue group has one queue for each topic that it receives from.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from goqueue.broker.queues.journal import DeliveryJournal, DeliveryShard
from goqueue.broker.queues.records import Part, RecordReader, Source, expiry_of
from goqueue.broker.topics.topics import Topic
from goqueue.cluster.facts import QueueGroupFact
from goqueue.delivery import (
    MIXED,
    SETTLED,
    DeadLetter,
    DeadLetterIntent,
    Event,
    Lease,
    Pick,
    Queue,
    Run,
    Settled,
    Unacked,
    stored_queue_settings,
)
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import Promise
from goqueue.model.columns import Columns, at_places
from goqueue.model.errors import (
    GoQueueError,
    InvalidReceipt,
    RequestTimedOut,
)
from goqueue.model.names import TopicPartition

# How long a receive without a wait time waits for records that another node has to send.
AWAIT_MS = 2_000
# How often one receive chooses again because its chosen messages could not be delivered.
ROUNDS_MAX = 8
# How long a receive waits for its leases to be committed before its messages are returned.
GRANT_MS_MAX = 5_000
# A lease shorter than this is delivered even if it expired while it was committed: a consumer that
# requests so short a time does not rely on exclusive delivery.
LEASE_MS_MIN = 100

_log = logging.getLogger(__name__)


# Calls that lease messages, now or when some arrive


@dataclass(slots=True)
class ReceiveLimits:
    """Limits of receive calls: how many wait, over all queues of the node, and their size."""

    waiting_max: int
    bytes_max: int  # of one response
    waiting: int = 0


class Delivered(Protocol):
    """What a call has leased; it is false if that is nothing."""

    def __len__(self) -> int: ...

    @property
    def leases(self) -> Collection[Lease]: ...


D = TypeVar("D", bound=Delivered)


def stay() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class ReceiveCall(ABC, Generic[D]):
    """A call that waits for messages of one queue."""

    consumer: str
    count_max: int
    visibility_ms: int
    promise: Promise[D] = field(default_factory=Promise)
    timer: Handle | None = None
    leave: Callable[[], None] = stay
    give_back: Callable[[], None] = stay  # returns leased messages whose response is not sent yet

    @property
    @abstractmethod
    def is_selective(self) -> bool:
        """Whether it takes messages of some partitions only, so that others may still find some."""

    @abstractmethod
    def collect(self, hosted: HostedQueue) -> D:
        """Lease messages, if there are any."""

    @abstractmethod
    def nothing(self) -> D:
        """Return the answer without messages."""

    def cancel(self) -> None:
        """Cancel the call, because its client is gone."""
        if not self.promise.is_done:
            self.answer_nothing()
            give_back, self.give_back = self.give_back, stay
            give_back()

    def answer_nothing(self) -> None:
        self.answer(self.nothing())

    def answer(self, messages: D) -> None:
        self.stop_waiting()
        self.promise.resolve(messages)

    def refuse(self, error: Exception) -> None:
        self.stop_waiting()
        self.promise.reject(error)

    def stop_waiting(self) -> None:
        """Leave the queue and break reference cycles, which would need the garbage collector."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
        leave, self.leave = self.leave, stay
        leave()


# Queues


@dataclass(slots=True)
class Reading:
    """The records that a receive call has read, and the bytes left; run `n` is of part `n`."""

    room: int
    parts: list[Part] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    gone: list[tuple[int, int]] = field(default_factory=list)
    error: GoQueueError | None = None
    is_awaiting: bool = False  # a chosen record has to be fetched from another node


def _is_invalid(error: GoQueueError | None) -> bool:
    return isinstance(error, InvalidReceipt)


class DeadLetterWriter(Protocol):
    """Moves messages to dead-letter topics."""

    def send(self, source_queue: HostedQueue, letters: list[DeadLetter]) -> list[Promise[None]]:
        """Dead-letter these messages of a queue; each promise resolves when its message is done."""


class HostedGroup:
    """A group, and its queues by the names of their topics."""

    def __init__(self, fact: QueueGroupFact, journal: DeliveryJournal) -> None:
        self.fact = fact
        self.id = fact.id.hex()
        self.settings = stored_queue_settings(fact.name, fact.settings)
        self.unacked = Unacked()
        self.queues: dict[str, HostedQueue] = {}
        self.shard: DeliveryShard | None = None  # as of the last `check_owned`
        self._journal = journal

    def check_owned(self) -> None:
        """Raise unless this node owns the group's delivery state."""
        if self.shard is None or self.shard.is_closed:
            self.shard = self._journal.shard_of(self.id)


class HostedQueue:
    """A queue with its journal, its log and its waiting receivers."""

    def __init__(
        self,
        group: HostedGroup,
        topic: Topic,
        queue: Queue,
        shard: DeliveryShard,
        letter_writer: DeadLetterWriter,
        *,
        clock: Clock,
        reader: RecordReader,
        limits: ReceiveLimits,
    ) -> None:
        self.group = group.fact.name
        self.group_id = group.id
        self.topic = topic
        self.topic_id = topic.id
        self.queue = queue
        self.shard = shard
        self.sources: list[Source] = []  # by partition number
        self._unknown: set[Source] = set()  # sources about which no leader has reported yet
        self.ttl_ms = -1
        self._clock = clock
        self._reader = reader
        self._letter_writer = letter_writer
        self.limits = limits
        # Otherwise another node may become the owner before this one notices.
        self._is_alone = shard.is_alone
        self._receivers: dict[ReceiveCall[Any], None] = {}
        self._general_count = 0  # of those, the ones that take messages of any partition
        # Receivers that wait longer than requested, with the end of their requested wait.
        self._hasty: dict[ReceiveCall[Any], int] = {}
        self._is_serving_due = False
        self.is_awaiting = False  # records chosen by the last receive are being fetched
        self.is_searching = False  # the last receive found nothing, but has not seen everything
        self._timer: Handle | None = None
        self._timer_at: int | None = None
        self._is_closed = False
        self._closed_by: GoQueueError | None = None

    @property
    def dead_letter_topic(self) -> str:
        return self.queue.settings.dead_letter_topic_of(self.topic.name)

    @property
    def has_leases(self) -> bool:
        return not self._is_closed and self.queue.leases.count > 0

    def name_of(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic.name, number)

    def take_events(self) -> list[tuple[int, list[Event]]]:
        return self.queue.outbox.take_events()

    def saved(self) -> Promise[None]:
        return self.shard.saved(self)

    def close(self, error: GoQueueError | None) -> None:
        """Stop; receivers get no messages, or the error."""
        self._is_closed, self._closed_by = True, error
        if self._timer is not None:
            self._timer.cancel()
        for receiver in list(self._receivers):
            if error is None:
                receiver.answer_nothing()
            else:
                receiver.refuse(error)

    def read_from(self, source: Source, *, is_known: bool) -> None:
        """Add a partition, whose records are read from `source`."""
        self.sources.append(source)
        if not is_known:
            self._unknown.add(source)

    def arrived(self, source: Source) -> None:
        """Note that data from another node has arrived."""
        self._unknown.discard(source)
        self.wake()

    def check_open(self) -> None:
        """Refuse to change a queue that is not owned any more, or cannot be journaled."""
        if self._closed_by is not None:
            raise self._closed_by
        self.shard.check_writable()

    # Receiving

    def receive(self, receiver: ReceiveCall[Any], wait_ms: int) -> None:
        """Respond with available messages, or when some arrive, or with none at the timeout."""
        if self._closed_by is not None:
            receiver.refuse(self._closed_by)
            return
        if not self._general_count:
            # Waiting receivers come first, so serve at once only if there are none.
            self.see_time_pass()
            if self._try(receiver):
                self.settle()
                return
        if (self.is_awaiting or self.is_searching) and wait_ms < AWAIT_MS:
            self._hasty[receiver] = self._clock.now_ms() + wait_ms
            wait_ms = AWAIT_MS
        if wait_ms <= 0 or self.limits.waiting >= self.limits.waiting_max:
            self._hasty.pop(receiver, None)
            receiver.answer_nothing()
        else:
            self._receivers[receiver] = None
            self._general_count += not receiver.is_selective
            self.limits.waiting += 1
            receiver.leave = partial(self._leave, receiver)
            receiver.timer = self._clock.call_later(wait_ms, receiver.cancel)
            if not self.is_awaiting:
                self.wake()
        self.settle()

    def _leave(self, receiver: ReceiveCall[Any]) -> None:
        self._hasty.pop(receiver, None)
        if self._receivers.pop(receiver, self) is None:
            self._general_count -= not receiver.is_selective
            self.limits.waiting -= 1

    def wake(self) -> None:
        """Serve waiting receivers soon, because messages may be available."""
        if self._receivers and not self._is_serving_due:
            self._is_serving_due = True
            self._clock.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_serving_due = self.is_searching = False
        if self._is_closed:
            return
        for receiver in list(self._receivers):
            # A consumer at its limit must not block those behind it.
            if not self.queue.limits.room_for(receiver.consumer) or self._try(receiver):
                continue
            if not receiver.is_selective or not self.queue.may_choose(self.now_ms):
                break
        if self._hasty and not (self.is_awaiting or self.is_searching):
            self._dismiss()
        if self.is_searching:
            self.wake()
        self.settle()

    def _dismiss(self) -> None:
        """Respond to receivers whose requested wait is over, as no more data is expected."""
        now_ms = self._clock.now_ms()
        for receiver in [one for one, until_ms in self._hasty.items() if until_ms <= now_ms]:
            receiver.answer_nothing()

    def _try(self, receiver: ReceiveCall[Any]) -> bool:
        """Respond to the receiver if there are messages for it, or an error."""
        try:
            messages = receiver.collect(self)
        except GoQueueError as error:
            receiver.refuse(error)
            return True
        if messages:
            self._hand_over(receiver, messages)
        return bool(messages)

    def return_held(
        self, consumer: str, number: int, is_over: Callable[[Lease], bool], *, is_counted: bool
    ) -> bool:
        """Return leases of a consumer in a partition, as failed or as never delivered."""
        now_ms, by_offset = self.see_time_pass(), self.queue.by_offset
        held = [one for one in by_offset.held(consumer, number) if is_over(one)]
        if is_counted:
            for lease in held:
                by_offset.fail(lease, now_ms)
        else:
            self.queue.release(held, now_ms)
        self.settle()
        self.wake()
        return bool(held)

    def void_held(self, consumer: str, number: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Return ranges (first, last) that never reached the consumer, and that it may hold."""
        now_ms, queue = self.see_time_pass(), self.queue
        for first, last in ranges:
            for lease, positions in list(queue.by_offset.find(consumer, number, first, last)):
                queue.void(lease, positions, now_ms)
        self.settle()
        self.wake()

    def take_back(self, consumer: str) -> None:
        """Return all messages of a consumer as if they had not been delivered."""
        self._release([lease for lease in self.queue.leases if lease.consumer == consumer])

    def _release(self, leases: Iterable[Lease]) -> None:
        self.queue.release(leases, self._clock.now_ms())
        self.settle()
        self.wake()

    def _hand_over(self, receiver: ReceiveCall[D], messages: D) -> None:
        """Respond once the leases are journaled, so that a restart or a new owner has them.

        In a cluster, and with key order, this means that they are committed. An owner that was
        replaced without noticing cannot commit, so it delivers nothing. On a single node they are
        written, which survives a crash of the process, and not yet synced.
        """
        receiver.stop_waiting()
        leases = messages.leases
        until_ms = min(lease.until_ms for lease in leases)

        def give_back() -> None:
            if not self._is_closed:
                self._release(leases)

        def noted(_: None, error: Exception | None) -> None:
            if receiver.promise.is_done:
                return
            receiver.give_back = stay
            is_over = receiver.visibility_ms >= LEASE_MS_MIN and (until_ms <= self._clock.now_ms())
            if error is None and is_over:
                error = RequestTimedOut("Leases expired before they were committed; retry.")
            if error is None:
                receiver.answer(messages)
                return
            receiver.refuse(error)
            give_back()

        def give_up() -> None:
            noted(None, RequestTimedOut("The leases of messages cannot be committed now; retry."))

        receiver.give_back = give_back
        if self._is_alone and not self.queue.settings.key_order:
            self.shard.written(self).then(noted)
        else:
            receiver.timer = self._clock.call_later(GRANT_MS_MAX, give_up)
            self.shard.saved(self).then(noted)

    def expect_nothing(self) -> None:
        """Begin to collect messages: none of them is being fetched yet."""
        self.is_awaiting, self.is_searching = bool(self._unknown), False

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    def must_read(self, number: int) -> bool:
        """Whether records of a partition decide themselves whether they may be delivered."""
        queue = self.queue
        return (
            queue.settings.key_order
            or self.ttl_ms >= 0
            or queue.partitions[number].index.may_expire
        )

    def read(self, picks: Sequence[Pick], *, is_first: bool, room: int | None = None) -> Reading:
        """Read the records of the chosen messages, as far as they fit into one response."""
        reading = Reading(self.limits.bytes_max if room is None else room)
        cut_off: set[int] = set()  # Partitions with unread messages, which none may overtake.
        for number, lane, offsets in picks:
            if reading.room <= 0 and (reading.runs or not is_first):
                break
            if number in cut_off:
                continue
            source = self.sources[number]
            found = self._reader.read(source, offsets)
            is_awaiting = found.awaited is not None or (found.error is not None and source.is_gone)
            if is_awaiting or found.error is not None:
                cut_off.add(number)
            if is_awaiting:
                reading.is_awaiting = True
            else:
                reading.error = reading.error or found.error
            reading.gone += [(number, offset) for offset in found.gone]
            for columns, places in found.in_order(offsets) if lane == MIXED else found.parts:
                fitting = columns.fitting(places, reading.room)
                if not fitting and is_first and not reading.runs:
                    fitting = places[:1]  # A message larger than the limit is returned by itself.
                reading.room -= columns.weight_of(fitting)
                if fitting:
                    reading.parts.append(Part(columns, fitting))
                    reading.runs.append(self._run(number, columns, fitting))
                if len(fitting) < len(places):
                    reading.room = min(0, reading.room)
                    return reading
            if found.unread is not None:
                reading.room = min(0, reading.room)
                return reading
        return reading

    def _run(self, number: int, columns: Columns, places: Sequence[int]) -> Run:
        """Return what the queue needs of these records: offsets, keys and expiry times."""
        settings = self.queue.settings
        keys = columns.keys(places) if settings.key_order or settings.fair_keys else None
        expires_ms = None
        if columns.may_have_attributes or self.ttl_ms >= 0:
            # Expiry is in wall-clock time, but the queue uses the monotonic clock.
            ahead_ms = self._clock.now_ms() - self._clock.wall_ms()
            ttl_ms = None if self.ttl_ms < 0 else self.ttl_ms
            walls_ms = [expiry_of(columns, place, ttl_ms) for place in places]
            if walls_ms.count(None) < len(walls_ms):
                expires_ms = [None if one is None else one + ahead_ms for one in walls_ms]
        return Run(number, at_places(columns.offsets, places), keys, expires_ms)

    # Settling

    def settle(self) -> list[Promise[None]]:
        """Journal the queue's events, send its dead letters, and set the timer."""
        if self.queue.outbox.events:
            self.shard.changed(self)
        return self._carry_out()

    def _carry_out(self) -> list[Promise[None]]:
        """Do the same where the journal is already notified."""
        letters = self.queue.outbox.take_dead_letters()
        self._set_alarm()
        return self._letter_writer.send(self, letters) if letters else []

    def answer(self, settled: list[Settled]) -> Promise[list[GoQueueError | None]]:
        """Return the result of each receipt once it is durable."""
        promise: Promise[list[GoQueueError | None]] = Promise()
        # Nearly always all succeed, and counting is faster than examining each.
        results: list[GoQueueError | None] = [None] * len(settled)
        if settled.count(SETTLED) < len(settled):
            results = [one.error for one in settled]
        is_refused = all(error is not None for error in results)
        if is_refused and (self._is_alone or all(_is_invalid(one) for one in results)):
            self.settle()
            promise.resolve(results)
            return promise
        # A result without a change must not come from an owner that was replaced unnoticed.
        is_proof_needed = not self._is_alone and not self.queue.outbox.events
        waits = [self.shard.prove()] if is_proof_needed else []
        waits += [self.shard.saved(self), *self._carry_out()]
        self.wake()
        left = len(waits)
        failures: list[Exception] = []

        def done(_: object, error: Exception | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failures.append(error)
            if not left:
                promise.settle(None if failures else results, failures[0] if failures else None)

        for wait in waits:
            wait.then(done)
        return promise

    def intend_dead_letters(self, number: int, event: DeadLetterIntent) -> None:
        """Note messages that are about to be dead letters; durable when `saved` resolves."""
        self.queue.partitions[number].record(event)

    def note_dead_lettered(
        self, letters: list[DeadLetter], intent: DeadLetterIntent, end: int
    ) -> None:
        """Note letters that their topic has before offset `end`; durable when `saved` resolves."""
        self.queue.settling.note_dead_lettered(
            letters,
            self._clock.now_ms(),
            topic_id=intent.topic_id,
            partition=intent.partition,
            end=end,
        )
        self.wake()
        self._set_alarm()

    def given_up(self, letters: list[DeadLetter]) -> None:
        self.queue.settling.given_up(letters, self._clock.now_ms())
        self.settle()
        self.wake()

    # Time

    def see_time_pass(self) -> int:
        """Take back expired leases, show messages whose delay has ended, and return the time."""
        now_ms = self._clock.now_ms()
        self.queue.expire(now_ms)
        if self.queue.settings.delay_ms:
            self.queue.end_initial_delays(now_ms)
        return now_ms

    def _set_alarm(self) -> None:
        """Set the timer to the next lease expiry and, for waiting receivers, the next retry.

        A retry that is already due was not delivered because of a limit, which time does not
        change. A timer that fires early finds nothing and is set again. Leases change constantly,
        so an earlier timer is left as it is.
        """
        wake_ms = self.queue.leases.next_expiry_ms()
        due_ms = None
        if self._receivers:
            due_ms = self.queue.chooser.next_due_after_ms(self._clock.now_ms())
        if due_ms is not None:
            wake_ms = due_ms if wake_ms is None else min(wake_ms, due_ms)
        if self._receivers and self.queue.settings.delay_ms:
            visible_ms = self.queue.next_visible_ms()
            if visible_ms is not None:
                wake_ms = visible_ms if wake_ms is None else min(wake_ms, visible_ms)
        if wake_ms is None or self._is_closed:
            return
        if self._timer_at is not None and self._timer_at <= wake_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = wake_ms
        delay_ms = max(0, wake_ms - self._clock.now_ms())
        self._timer = self._clock.call_later(delay_ms, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, None
        self.see_time_pass()
        if self._receivers:
            self._serve()
        else:
            self.settle()
