"""One partition as one group sees it: the cursor of each lane, and the messages in flight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from goqueue.delivery.arrivals import Arrivals
from goqueue.delivery.grants import LeaseEvent
from goqueue.delivery.initial_delays import InitialDelays
from goqueue.delivery.key_order import KeyLines
from goqueue.delivery.key_runs import KeyRuns
from goqueue.delivery.lanes import LANE_COUNT, NORMAL, LaneIndex
from goqueue.delivery.leases import Unacked
from goqueue.delivery.ledger import (
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
    Rewound,
)
from goqueue.delivery.ranges import ranges_of
from goqueue.delivery.rates import Rates
from goqueue.delivery.settings import RECEIVE_MESSAGES_MAX

# Consumer of messages whose ack belongs to an open transaction: no consumer holds them any more.
NOBODY = ""


@dataclass(frozen=True, slots=True, eq=False)
class DeadLetter:
    """A message to be written to the dead-letter topic and then reported as dead-lettered."""

    partition: int
    offset: int
    attempts: int
    reason: str


@lru_cache(maxsize=RECEIVE_MESSAGES_MAX)
def _all_normal(count: int) -> bytes:
    """Return the lanes of `count` messages in the normal lane; leases of the same size share it."""
    return bytes((NORMAL,)) * count


@dataclass(slots=True)
class Burden:
    """Retries and pending dead letters of a queue, over all its partitions."""

    retrying: int = 0
    pending_letters: int = 0


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
        index: LaneIndex,
        arrivals: Arrivals,
        burden: Burden,
        unacked: Unacked,
        *,
        log_start: int,
        log_end: int,
        high_watermark: int,
        now_ms: int,
        has_key_batches: bool = False,
    ) -> None:
        """With `has_key_batches`, one receive may take several messages of a key."""
        self.number = number
        self.ledger = ledger
        self.index = index
        self.arrivals = arrivals
        self.log_start = log_start
        self.high_watermark = high_watermark
        self.lines: KeyLines | KeyRuns = KeyRuns() if has_key_batches else KeyLines()
        self.waiting: dict[int, int] = {}
        self.retrying_count = 0  # how many of the waiting messages were delivered before
        self.prepared: dict[int, int] = {}
        # Messages that were in flight when the queue was opened, whatever their state now.
        self.resumed: set[int] = set()
        self.initial_delays: InitialDelays | None = None  # only with an initial delay
        self._burden = burden
        self._unacked = unacked
        self.pending_letters: dict[int, DeadLetter] = {}
        self.events: list[Event] = []
        self.cursors = [0] * LANE_COUNT
        self.ready = [0] * LANE_COUNT
        self.in_flight = [0] * LANE_COUNT
        self.in_total = [0] * LANE_COUNT
        self.out_total = [0] * LANE_COUNT
        self.in_rates = Rates(LANE_COUNT)
        self.out_rates = Rates(LANE_COUNT)
        self._open(log_end, now_ms)

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
        self._stand_at(ledger.floor, now_ms)
        self.grants = ledger.grants.take(ledger.is_out)
        self._resume_leases()
        self._resume_prepared()
        self._resume_retries()

    def _stand_at(self, offset: int, now_ms: int) -> None:
        """Set every lane's cursor to one offset and count the ready messages from there on."""
        self.since_ms = now_ms
        self.cursors = [offset] * LANE_COUNT
        self.ready = self.index.counts(offset, self.high_watermark)
        for first, end in self.ledger.done.within(offset, self.high_watermark):
            self._count_off(first, end)
        self._apart_until = 0
        self.resumed.clear()
        self._pass_at_floor()

    def _resume_leases(self) -> None:
        """Keep messages leased before a restart, and their keys, from being delivered again."""
        for grant in self.grants:
            keys, at = grant.event.keys, grant.out.find(1)
            while at >= 0:
                offset = grant.event.offsets[at]
                self._set_apart(offset)
                self.resumed.add(offset)
                self.in_flight[self.index.lane_of(offset)] += 1
                if keys is not None and not self.lines.enter(offset, keys[at]):
                    self.lines.drop({offset})
                at = grant.out.find(1, at + 1)

    def _resume_prepared(self) -> None:
        """Restore the messages that open transactions acknowledged before a restart."""
        for retries in self.ledger.prepared.values():
            for offset, retry in retries.items():
                self._set_apart(offset)
                self._hold((offset,), bytes((self.index.lane_of(offset),)))
                if not self.lines.enter(offset, retry.key):
                    self.lines.drop({offset})  # It must not become deliverable with its key.

    def _resume_retries(self) -> None:
        """Queue the retries from before a restart; the cursors, which start over, skip them."""
        for offset in sorted(self.ledger.retries):
            if offset in self.resumed:
                continue
            retry = self.ledger.retries[offset]
            self._set_apart(offset)
            if self.lines.resume(offset, retry.key):
                self.wait(offset, retry.due_ms)

    def set_key_batches(self, has_key_batches: bool) -> None:
        """Let a receive take several messages of a key, or one; ignored while keys are in use."""
        if self.lines.has_batches != has_key_batches and not self.lines.is_used:
            self.lines = KeyRuns() if has_key_batches else KeyLines()

    def _set_apart(self, offset: int) -> None:
        self._apart_until = max(self._apart_until, offset + 1)
        if offset < self.high_watermark:
            self._count_off(offset, offset + 1)

    def _count_off(self, first: int, end: int) -> None:
        for lane, count in enumerate(self.index.counts(first, end)):
            self.ready[lane] -= count

    def _pass_at_floor(self) -> None:
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
        self._pass_at_floor()
        last = self.events[-1] if self.events else None
        if isinstance(event, Done) and isinstance(last, Done) and last.why == event.why:
            last.ranges.extend(event.ranges)
        elif isinstance(event, Retried) and isinstance(last, Retried):
            last.retries.extend(event.retries)
        else:
            self.events.append(event)

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
        self._pass_at_floor()

    def start_moved(self, log_start: int) -> list[int]:
        """Drop what lies before `log_start`; return the offsets that this makes choosable."""
        self.log_start = max(self.log_start, log_start)
        if log_start <= self.ledger.floor:
            return []
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
        gone.update(offset for offset in self.lines.parked() if offset < log_start)
        gone.update(self._let_go([offset for offset in self.prepared if offset < log_start]))
        return self._drop(gone)

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
            first, end = done.gap_from(run[0], until=run[1])
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

    def is_fresh(self, offset: int) -> bool:
        """Whether a message that is not done has, by the state here, never been chosen."""
        return offset >= self._cursor(self.index.lane_of(offset)) and not self._is_apart(offset)

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
        self._burden.retrying += count - self.retrying_count
        self.retrying_count = count

    def lanes_of(self, offsets: Sequence[int]) -> bytes:
        index = self.index
        if index.is_plain:
            return _all_normal(len(offsets))
        return bytes(index.lane_of(offset) for offset in offsets)

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

    def note_lease(self, event: LeaseEvent) -> None:
        """Queue a lease event for the journal; the ledger itself only tracks what remains."""
        self.events.append(event)

    def keys_of(self, offsets: Sequence[int]) -> list[int] | None:
        """Return the keys of leased messages if key order is in use."""
        lines = self.lines
        return [lines.key_of(one) for one in offsets] if lines.is_used else None

    # Settling

    def pass_fresh(self, offset: int) -> None:
        """Uncount a message that is about to be done without ever having been chosen."""
        if offset < self.high_watermark:
            self._count_off(offset, offset + 1)

    def finish(self, offsets: Sequence[int], why: Finish) -> list[int]:
        """Mark these messages as done; return the offsets that this makes choosable."""
        if not isinstance(offsets, range):
            offsets = sorted(offsets)
        self.record(Done(why, ranges_of(offsets)))
        return self._followers(offsets)

    def _followers(self, offsets: Sequence[int]) -> list[int]:
        return self.lines.followers(offsets) if self.lines.is_used else []

    def retry(self, offset: int, retry: Retry) -> list[int]:
        """Record a retry; return the offsets that may be chosen from their due times on."""
        self.record(Retried([*self._before_in_key(offset), (offset, retry)], (offset,)))
        return self.come_again(offset)

    def come_again(self, offset: int) -> list[int]:
        """Take back a message already recorded as a retry; return what `retry` returns."""
        lines = self.lines
        return lines.fail(offset) if isinstance(lines, KeyRuns) else [offset]

    def _before_in_key(self, offset: int) -> list[tuple[int, Retry]]:
        """Return lower leased messages of its key that have no retry, to be recorded with it.

        After a restart the keys of retries are in the ledger, but those of other messages are only
        found when their records are read. Without this the later message could be delivered first.
        """
        lines, ledger = self.lines, self.ledger
        if not isinstance(lines, KeyRuns):
            return []
        key = lines.key_of(offset)
        return [
            (one, Retry(0, 0, key))
            for one in lines.out_before(offset)
            if one not in ledger.retries and one not in self.prepared and not ledger.is_done(one)
        ]

    def make_dead_letter(self, offset: int, attempts: int, reason: str) -> DeadLetter:
        """Queue the message for the dead-letter topic; it is done once it is written there."""
        letter = DeadLetter(self.number, offset, attempts, reason)
        self.pending_letters[offset] = letter
        self._burden.pending_letters += 1
        return letter

    def discard(self, letters: Iterable[DeadLetter], topic_id: bytes, end: int) -> list[int]:
        """Mark letters in a dead-letter topic before `end` as done; return whom this frees."""
        offsets = sorted(self._leave_pending(letters))
        self.record(DeadLettered(ranges_of(offsets), topic_id, end))
        return self._followers(offsets)

    def give_up(self, letters: Iterable[DeadLetter]) -> list[int]:
        """Finish letters whose records no longer exist; return the offsets that this frees."""
        offsets = self._leave_pending(letters)
        return self.finish(offsets, Finish.SKIPPED) if offsets else []

    def _leave_pending(self, letters: Iterable[DeadLetter]) -> list[int]:
        """Remove pending letters; return their offsets, without those that a rewind recalled."""
        offsets = [one.offset for one in letters if self.pending_letters.get(one.offset) is one]
        for offset in offsets:
            del self.pending_letters[offset]
        self._burden.pending_letters -= len(offsets)
        return offsets

    # Transactions

    def prepare(self, event: Prepared, lanes: bytes) -> None:
        """Hand messages that were taken back from their consumers over to a transaction."""
        self.ledger.apply(event)
        self._hold([offset for offset, _ in event.retries], lanes)

    def commit(self, producer_id: int) -> tuple[list[int], list[int]]:
        """Commit a transaction; return the messages now done, and those now choosable."""
        offsets = sorted(self.ledger.prepared.get(producer_id, ()))
        self.ledger.apply(Ended(producer_id, is_commit=True))
        self._pass_at_floor()
        self._let_go(offsets)
        return offsets, self._followers(offsets)

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
        self._unacked.add(NOBODY, len(offsets))

    def _let_go(self, offsets: list[int]) -> list[int]:
        for offset in offsets:
            self.in_flight[self.prepared.pop(offset)] -= 1
        self._unacked.add(NOBODY, -len(offsets))
        return offsets

    # Rewinding and purging

    def rewind(self, offset: int, leased: Iterable[int], now_ms: int) -> list[int]:
        """Continue at `offset`, keeping what is in flight before it; return whom this frees.

        Messages from there on that a transaction has acknowledged are delivered again like any
        acknowledged message, and no longer belong to the transaction.
        """
        under_way = [
            *self.waiting,
            *self.lines.parked(),
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
        gone.update(one for one in self.lines.held() if one >= offset)
        self._let_go([one for one in self.prepared if one >= offset])
        followers = self._drop(gone)
        self._stand_at(offset, now_ms)
        return followers

    def purge(self, end: int) -> None:
        """Finish everything before `end`, which is not below the high watermark.

        This includes what a transaction has acknowledged, whether it commits or aborts.
        """
        self.record(Moved(end))
        self._let_go(list(self.prepared))
        self.waiting.clear()
        self._count_retrying(0)
        self._leave_pending(list(self.pending_letters.values()))
        self.lines = KeyRuns() if self.lines.has_batches else KeyLines()
        self.cursors = [end] * LANE_COUNT
        self.ready = [0] * LANE_COUNT

    def _drop(self, gone: set[int]) -> list[int]:
        for offset in gone & self.waiting.keys():
            del self.waiting[offset]
        retries = self.ledger.retries
        self._count_retrying(sum(1 for offset in self.waiting if offset in retries))
        return self.lines.drop(gone)
