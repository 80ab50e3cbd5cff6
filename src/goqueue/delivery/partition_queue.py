"""One partition as one group sees it: the cursor of each lane, and the messages in flight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from goqueue.delivery.grants import LeaseEvent
from goqueue.delivery.initial_delays import InitialDelays
from goqueue.delivery.journal import Outbox
from goqueue.delivery.key_order import KeyBatches, KeyOrder
from goqueue.delivery.lanes import NORMAL, Arrivals, Chooser, LaneIndex, Rates
from goqueue.delivery.leases import Limits
from goqueue.delivery.ledger import (
    DeadLetter,
    DeadLettered,
    Done,
    Ended,
    Event,
    Finish,
    Ledger,
    Moved,
    Prepared,
    Retried,
    Retry,
    Return,
    Rewound,
    stored_letters,
)
from goqueue.delivery.ranges import ranges_of
from goqueue.delivery.settings import LANE_COUNT

# Consumer of messages whose ack belongs to an open transaction: no consumer holds them any more.
NOBODY = ""


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The log of a partition, as a queue finds it when it is opened."""

    index: LaneIndex
    arrivals: Arrivals
    start: int
    end: int
    high_watermark: int


class PartitionQueue:
    """The delivery state of one partition: an offset below its lane's cursor is done or tracked.

    Tracked are the leased messages (in the queue's leases) and those chosen for the receive call
    that is being served. `waiting` maps messages to the time from which they may be chosen again:
    retries, and messages that were chosen and not delivered. `prepared` maps messages that an
    open transaction has acknowledged to their lanes.
    """

    def __init__(
        self,
        number: int,
        ledger: Ledger,
        log: PartitionLog,
        chooser: Chooser,
        limits: Limits,
        outbox: Outbox,
        *,
        now_ms: int,
    ) -> None:
        """All partitions of a queue share its chooser, limits and outbox."""
        self.number = number
        self.ledger = ledger
        self.index = log.index
        self.arrivals = log.arrivals
        self.log_start = log.start
        self.high_watermark = log.high_watermark
        self._chooser = chooser
        self._limits = limits
        self._outbox = outbox
        self.key_order = self._new_key_order()
        self.waiting: dict[int, int] = {}
        self.retrying_count = 0  # how many of the waiting messages were delivered before
        self.prepared: dict[int, int] = {}
        # Messages that were in flight when the queue was opened, whatever their state now.
        self.resumed: set[int] = set()
        self.initial_delays: InitialDelays | None = None  # only with an initial delay
        self.pending_letters: dict[int, DeadLetter] = {}
        self.cursors = [0] * LANE_COUNT
        self.ready = [0] * LANE_COUNT
        self.in_flight = [0] * LANE_COUNT
        self.in_total = [0] * LANE_COUNT
        self.out_total = [0] * LANE_COUNT
        self.in_rates = Rates(LANE_COUNT)
        self.out_rates = Rates(LANE_COUNT)
        self._open(log.end, now_ms)

    # Opening

    def _open(self, log_end: int, now_ms: int) -> None:
        ledger = self.ledger
        ledger.apply(Moved(self.log_start))
        beyond = max((end for _, end in ledger.done), default=ledger.floor)
        beyond = max(beyond, ledger.floor, *(one + 1 for one in ledger.retries), 0)
        prepared = [one for some in ledger.prepared.values() for one in some]
        beyond = max(beyond, *(one + 1 for one in prepared), 0)
        beyond = max(beyond, *(one + 1 for one in ledger.grants.offsets()), 0)
        if beyond > log_end:
            # The log lost its tail in a crash, and new messages will have those offsets.
            still_open = list(ledger.done.gaps(min(ledger.floor, log_end), log_end))
            self.record(Rewound(log_end, still_open))
        self._start_at(ledger.floor, now_ms)
        self.grants = ledger.grants.take(ledger.is_out)
        self._resume_leases()
        self._resume_prepared()
        self._resume_retries()

    def _start_at(self, offset: int, now_ms: int) -> None:
        """Set every lane's cursor to one offset and count the ready messages from there on."""
        self.since_ms = now_ms
        self.cursors = [offset] * LANE_COUNT
        self.ready = self.index.counts(offset, self.high_watermark)
        for first, end in self.ledger.done.within(offset, self.high_watermark):
            self._count_off(first, end)
        self._apart_until = 0
        self.resumed.clear()
        self._skip_gaps_at_floor()

    def _resume_leases(self) -> None:
        """Keep messages leased before a restart, and their keys, from being delivered again."""
        for grant in self.grants:
            keys, at = grant.event.keys, grant.out.find(1)
            while at >= 0:
                offset = grant.event.offsets[at]
                self._set_apart(offset)
                self.resumed.add(offset)
                self.in_flight[self.index.lane_of(offset)] += 1
                if keys is not None and not self.key_order.enter(offset, keys[at]):
                    self.key_order.drop({offset})
                at = grant.out.find(1, at + 1)

    def _resume_prepared(self) -> None:
        """Restore the messages that open transactions acknowledged before a restart."""
        for retries in self.ledger.prepared.values():
            for offset, retry in retries.items():
                self._set_apart(offset)
                self._hold((offset,), bytes((self.index.lane_of(offset),)))
                if not self.key_order.enter(offset, retry.key):
                    self.key_order.drop({offset})  # It must not become deliverable with its key.

    def _resume_retries(self) -> None:
        """Queue the retries from before a restart; the cursors, which start over, skip them."""
        for offset in sorted(self.ledger.retries):
            if offset in self.resumed:
                continue
            retry = self.ledger.retries[offset]
            self._set_apart(offset)
            if self.key_order.resume(offset, retry.key):
                self.wait(offset, retry.due_ms)

    def _set_apart(self, offset: int) -> None:
        self._apart_until = max(self._apart_until, offset + 1)
        if offset < self.high_watermark:
            self._count_off(offset, offset + 1)

    def _count_off(self, first: int, end: int) -> None:
        for lane, count in enumerate(self.index.counts(first, end)):
            self.ready[lane] -= count

    def _skip_gaps_at_floor(self) -> None:
        """Advance the floor past offsets that hold no message."""
        ledger, index = self.ledger, self.index
        while index.has_gaps:
            end = index.message_from(ledger.floor, self.high_watermark)
            if end == ledger.floor:
                return
            ledger.pass_over(ledger.floor, end)

    def record(self, event: Event) -> None:
        """Apply an event to the ledger and queue it for the journal."""
        self.ledger.apply(event)
        self._skip_gaps_at_floor()
        events = self._outbox.events.setdefault(self.number, [])
        last = events[-1] if events else None
        if isinstance(event, Done) and isinstance(last, Done) and last.why == event.why:
            last.ranges.extend(event.ranges)
        elif isinstance(event, Retried) and isinstance(last, Retried):
            last.retries.extend(event.retries)
            last.returned.extend(event.returned)
        else:
            events.append(event)

    def note_lease(self, event: LeaseEvent) -> None:
        """Queue a lease event for the journal; the ledger itself only tracks what remains."""
        self._outbox.events.setdefault(self.number, []).append(event)

    def configure(self) -> None:
        """Follow changed settings; the kind of key order only changes while no key is in use."""
        has_batches = self._limits.settings.key_batches
        if self.key_order.has_batches != has_batches and not self.key_order.keys:
            self.key_order = self._new_key_order()
        self.refresh()

    def _new_key_order(self) -> KeyOrder | KeyBatches:
        return KeyBatches() if self._limits.settings.key_batches else KeyOrder()

    # Following the log

    def advance(self, high_watermark: int, now_ms: int) -> None:
        """Make more messages available; the index already has their lanes."""
        if high_watermark <= self.high_watermark:
            return
        first = self.high_watermark
        for lane, count in enumerate(self.index.counts(first, high_watermark)):
            if count:
                self.in_total[lane] += count
                self.in_rates.add(lane, count, now_ms)
        # After a restart a part may already be done, because lanes are indexed again only now.
        for start, end in self.ledger.done.gaps(max(first, self.ledger.floor), high_watermark):
            for lane, count in enumerate(self.index.counts(start, end)):
                self.ready[lane] += count
        for offset in self._apart(first, high_watermark):
            self._count_off(offset, offset + 1)
        self.high_watermark = high_watermark
        self._skip_gaps_at_floor()

    def start_moved(self, log_start: int, now_ms: int) -> None:
        """Follow a new log start. Call this before the lane index drops the removed offsets."""
        self.log_start = max(self.log_start, log_start)
        if log_start > self.ledger.floor:
            self._drop_before(log_start, now_ms)
        self.refresh()

    def _drop_before(self, log_start: int, now_ms: int) -> None:
        for lane in range(LANE_COUNT):
            cursor = self._cursor(lane)
            if cursor < log_start:
                passed = self.index.counts(cursor, log_start)[lane]
                for first, end in self.ledger.done.within(cursor, log_start):
                    passed -= self.index.counts(first, end)[lane]
                for offset in self._apart(cursor, log_start):
                    passed -= self.index.lane_of(offset) == lane
                self.ready[lane] -= passed
                self.cursors[lane] = log_start
        self.ledger.apply(Moved(log_start))
        gone = {offset for offset in self.waiting if offset < log_start}
        gone.update(offset for offset in self.key_order.parked() if offset < log_start)
        gone.update(self._let_go([offset for offset in self.prepared if offset < log_start]))
        self.make_available(self._drop(gone), now_ms)

    def _apart(self, first: int, end: int) -> list[int]:
        """Return retries and the like from before a restart that no cursor has passed yet."""
        if first >= self._apart_until:
            return []
        ledger = self.ledger
        apart = {*ledger.retries, *self.prepared}
        apart.update(one for one in self.resumed if not ledger.is_done(one))
        return [offset for offset in apart if first <= offset < end]

    # Choosing

    def take(self, lane: int, count: int) -> Sequence[int]:
        """Choose up to `count` messages of a lane, in log order."""
        taken: Sequence[int] = ()
        several: list[int] = []  # `taken` itself, when that is not one contiguous range
        cursor, done = self._cursor(lane), self.ledger.done
        while len(taken) < count:
            run = self.index.next_in_lane(lane, cursor, self.high_watermark)
            if run is None:
                cursor = self.high_watermark
                break
            first, end = run
            if done.ends and first < done.ends[-1]:  # seldom true of what was never chosen
                first, end = done.gap_from(first, until=end)
                if first >= run[1]:
                    cursor = first
                    continue
            end = min(end, first + count - len(taken))
            fresh: Sequence[int] = range(first, end)
            if first < self._apart_until:
                fresh = [one for one in fresh if not self._is_apart(one)]
            if not taken:
                taken = fresh
            else:
                if taken is not several:
                    several += taken
                    taken = several
                several += fresh
            cursor = end
        if self.index.has_gaps:
            # Offsets without messages must not split the ranges of done messages around them.
            for first, end in self.index.without_messages(self._cursor(lane), cursor):
                self.ledger.pass_over(first, end)
        self.cursors[lane] = cursor
        self.ready[lane] -= len(taken)
        return taken

    def _cursor(self, lane: int) -> int:
        # The floor may be ahead of the cursor: it also covers what was done before a restart.
        return max(self.cursors[lane], self.ledger.floor)

    @property
    def next_offset(self) -> int:
        """Where the normal lane continues with messages that were never chosen."""
        return self._cursor(NORMAL)

    def distance_to(self, offset: int, *, at_most: int) -> int:
        """Return how far an offset is ahead of the normal lane; 0 if not, or too far."""
        distance = offset - self.next_offset
        return distance if 0 < distance <= at_most else 0

    def oldest_ms(self, lane: int) -> int:
        """When the lane's next message became ready; the lane must have one."""
        cursor = self._cursor(lane)
        while (run := self.index.next_in_lane(lane, cursor, self.high_watermark)) is not None:
            first = self.ledger.done.first_missing_from(run[0])
            while first < self._apart_until and self._is_apart(first):
                first = self.ledger.done.first_missing_from(first + 1)
            if first < run[1]:
                cursor = first
                break
            cursor = first
        self.cursors[lane] = cursor
        return self.arrived_ms(cursor)

    def _is_apart(self, offset: int) -> bool:
        return offset in self.ledger.retries or offset in self.prepared or offset in self.resumed

    def arrived_ms(self, offset: int) -> int:
        return max(self.since_ms, self.arrivals.arrived_ms(offset))

    def wait(self, offset: int, due_ms: int) -> None:
        self.waiting[offset] = due_ms
        if offset in self.ledger.retries:
            self._count_retrying(self.retrying_count + 1)

    def take_waiting(self, offset: int) -> None:
        del self.waiting[offset]
        if offset in self.ledger.retries:
            self._count_retrying(self.retrying_count - 1)

    def _count_retrying(self, count: int) -> None:
        self._limits.retrying += count - self.retrying_count
        self.retrying_count = count

    def attempts_of(self, offset: int) -> int:
        """How many deliveries of the message have failed."""
        retry = self.ledger.retries.get(offset)
        return 0 if retry is None else retry.attempts

    def firsts_ms(self, offsets: Sequence[int], now_ms: int) -> list[int]:
        """When each of these messages, delivered now, was delivered for the first time."""
        retries = self.ledger.retries
        return [
            retry.first_ms if (retry := retries.get(one)) is not None and retry.first_ms else now_ms
            for one in offsets
        ]

    def keys_of(self, offsets: Sequence[int]) -> list[int] | None:
        """Return the keys of leased messages if key order is in use."""
        order = self.key_order
        return [order.key_of(one) for one in offsets] if order.keys else None

    # Availability

    def make_available(self, offsets: Sequence[int], now_ms: int) -> None:
        """Let these messages be chosen before all others; retries only when they are due."""
        if not offsets:
            return
        retries, turns_ms = self.ledger.retries, dict.fromkeys(offsets, now_ms)
        for offset in offsets:
            if offset in retries:
                turns_ms[offset] = max(now_ms, retries[offset].due_ms)
        for offset, due_ms in self.key_order.in_turn(turns_ms).items():
            if offset in self.waiting:
                self.take_waiting(offset)  # Its due time may have changed.
            self.wait(offset, due_ms)
            self._chooser.queue_one(self.number, offset, due_ms)

    def refresh(self) -> None:
        """Update what the chooser knows of ready messages, after a change."""
        is_blocked = self.key_order.parked_count >= self._limits.settings.parked_max
        self._chooser.refresh(self, is_blocked=is_blocked)

    # Settling

    def withdraw(self, offset: int) -> None:
        """Stop offering a message that is about to be done, unless it is in flight."""
        if offset in self.waiting:
            self.take_waiting(offset)
        elif self._is_fresh(offset):
            self._count_off(offset, offset + 1)

    def _is_fresh(self, offset: int) -> bool:
        """Whether a message that is not done has, by the state here, never been chosen."""
        cursor = self._cursor(self.index.lane_of(offset))
        return cursor <= offset < self.high_watermark and not self._is_apart(offset)

    def finish(self, offsets: Sequence[int], why: Finish, now_ms: int) -> None:
        """Mark these messages as done."""
        if not isinstance(offsets, range):
            offsets = sorted(offsets)
        self.record(Done(why, ranges_of(offsets)))
        if self.key_order.keys:  # else no message waits for these to be done
            self._release_keys(offsets, now_ms)
            self.refresh()

    def _release_keys(self, offsets: Sequence[int], now_ms: int) -> None:
        self.make_available(self.key_order.followers(offsets), now_ms)

    def retry(self, offset: int, retry: Retry, why: Return) -> None:
        """Take back a message that was not acknowledged, for redelivery from its due time on."""
        self.record(Retried([*self._before_in_key(offset), (offset, retry)], [(offset, why)]))
        self.redeliver(offset, 0)

    def redeliver(self, offset: int, now_ms: int) -> None:
        """Make a message that was in flight available again; a retry when it is due."""
        if self.ledger.is_done(offset):  # by retention, or by a late ack
            self._release_keys((offset,), now_ms)
        else:
            self.make_available(self.key_order.fail(offset), now_ms)

    def _before_in_key(self, offset: int) -> list[tuple[int, Retry]]:
        """Return lower leased messages of its key that have no retry, to be recorded with it.

        After a restart the keys of retries are in the ledger, but those of other messages are only
        found when their records are read. Without this the later message could be delivered first.
        """
        order, ledger = self.key_order, self.ledger
        return [
            (one, Retry(0, 0, order.key_of(offset)))
            for one in order.out_before(offset)
            if one not in ledger.retries and one not in self.prepared and not ledger.is_done(one)
        ]

    def dead_letter(self, offset: int, attempts: int, reason: str) -> DeadLetter:
        """Queue the message for the dead-letter topic; it is done once it is written there."""
        letter = DeadLetter(self.number, offset, attempts, reason)
        self.pending_letters[offset] = letter
        self._limits.pending_letters += 1
        self._outbox.dead_letters.append(letter)
        return letter

    def note_dead_lettered(
        self,
        letters: Sequence[DeadLetter],
        now_ms: int,
        *,
        topic_id: bytes,
        partition: int,
        end: int,
    ) -> None:
        """Mark these letters as done, which are the last ones before `end` in a partition of a
        dead-letter topic.
        """
        stored = stored_letters(letters, partition, end)
        offsets = sorted(self._leave_pending(letters))
        done = set(offsets)
        stored = [one for one in stored if one.offset in done]
        self.record(DeadLettered(ranges_of(offsets), topic_id, end, stored))
        self._release_keys(offsets, now_ms)
        self.refresh()

    def give_up(self, letter: DeadLetter, now_ms: int) -> None:
        """Finish a letter whose record no longer exists, so that nothing can be written."""
        offsets = self._leave_pending((letter,))
        if offsets:
            self.finish(offsets, Finish.SKIPPED, now_ms)
        self.refresh()

    def _leave_pending(self, letters: Iterable[DeadLetter]) -> list[int]:
        """Remove pending letters; return their offsets, without those that a rewind recalled."""
        offsets = [one.offset for one in letters if self.pending_letters.get(one.offset) is one]
        for offset in offsets:
            del self.pending_letters[offset]
        self._limits.pending_letters -= len(offsets)
        return offsets

    # Transactions

    def prepare(self, event: Prepared, lanes: bytes) -> None:
        """Hand messages that were taken back from their consumers over to a transaction."""
        self.ledger.apply(event)
        self._hold([offset for offset, _ in event.retries], lanes)

    def commit(self, producer_id: int, now_ms: int) -> int:
        """Finish what a transaction has acknowledged; return the number of messages."""
        offsets = sorted(self.ledger.prepared.get(producer_id, ()))
        self.ledger.apply(Ended(producer_id, is_commit=True))
        self._skip_gaps_at_floor()
        self._let_go(offsets)
        self._release_keys(offsets, now_ms)
        return len(offsets)

    def abort(self, producer_id: int) -> dict[int, Retry]:
        """Abort a transaction; return the retries of its messages."""
        retries = self.ledger.prepared.get(producer_id, {})
        self.ledger.apply(Ended(producer_id, is_commit=False))
        self._let_go(list(retries))
        return retries

    def _hold(self, offsets: Sequence[int], lanes: bytes) -> None:
        self.prepared.update(zip(offsets, lanes, strict=True))
        for lane in lanes:
            self.in_flight[lane] += 1
        self._limits.unacked.add(NOBODY, len(offsets))

    def _let_go(self, offsets: list[int]) -> list[int]:
        for offset in offsets:
            self.in_flight[self.prepared.pop(offset)] -= 1
        self._limits.unacked.add(NOBODY, -len(offsets))
        return offsets

    # Rewinding and purging

    def rewind(self, offset: int, leased: Iterable[int], now_ms: int) -> None:
        """Continue at `offset`, keeping what is in flight before it.

        Messages from there on that a transaction has acknowledged are delivered again like any
        acknowledged message, and no longer belong to the transaction.
        """
        under_way = [
            *self.waiting,
            *self.key_order.parked(),
            *self.pending_letters,
            *self.prepared,
            *leased,
        ]
        gone = {one for one in under_way if one >= offset}
        before = sorted({one for one in under_way if one < offset})
        self.record(Rewound(offset, ranges_of(before)))
        self._leave_pending(
            [letter for one, letter in self.pending_letters.items() if one >= offset]
        )
        gone.update(one for one in self.key_order.held() if one >= offset)
        self._let_go([one for one in self.prepared if one >= offset])
        followers = self._drop(gone)
        self._start_at(offset, now_ms)
        self.make_available(followers, now_ms)
        self.refresh()

    def purge(self, end: int) -> None:
        """Finish everything before `end`, which is not below the high watermark.

        This includes what a transaction has acknowledged, whether it commits or aborts.
        """
        self.record(Moved(end))
        self._let_go(list(self.prepared))
        self.waiting.clear()
        self._count_retrying(0)
        self._leave_pending(list(self.pending_letters.values()))
        self.key_order = self._new_key_order()
        self.cursors = [end] * LANE_COUNT
        self.ready = [0] * LANE_COUNT
        self.refresh()

    def _drop(self, gone: set[int]) -> list[int]:
        for offset in gone & self.waiting.keys():
            del self.waiting[offset]
        retries = self.ledger.retries
        self._count_retrying(sum(1 for offset in self.waiting if offset in retries))
        return self.key_order.drop(gone)
