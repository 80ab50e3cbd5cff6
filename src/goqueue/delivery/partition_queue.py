"""One partition as one group sees it: where it stands in each lane, and what is under way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from goqueue.delivery.arrivals import Arrivals
from goqueue.delivery.grants import LeaseEvent
from goqueue.delivery.initial_delays import InitialDelays
from goqueue.delivery.key_lines import KeyLines
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

# Whoever has handed an ack over to a transaction does not hold the message any more.
NOBODY = ""


@dataclass(frozen=True, slots=True, eq=False)
class DeadLetter:
    """A message to be written to the dead-letter topic, and then reported as dead-lettered."""

    partition: int
    offset: int
    attempts: int
    reason: str


@lru_cache(maxsize=RECEIVE_MESSAGES_MAX)
def _all_normal(count: int) -> bytes:
    """So many messages in the normal lane; leases of the same size share it."""
    return bytes((NORMAL,)) * count


@dataclass(slots=True)
class Burden:
    """What a queue carries besides leases, over all its partitions."""

    retrying: int = 0
    pending_letters: int = 0


class PartitionQueue:
    """Every offset below a lane's cursor is done, under way, or waiting somewhere here.

    Under way are the leased messages, which the queue's leases know, and those chosen for the
    receive call that is being served. `waiting` are messages with the time at which they may be
    chosen again: retries, and messages that were chosen and not handed out. `prepared` are
    messages, with their lanes, that a transaction has acknowledged and that wait for its end.
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
        """With `has_key_batches` a receive may take several messages of a key."""
        self.number = number
        self.ledger = ledger
        self.index = index
        self.arrivals = arrivals
        self.log_start = log_start
        self.high_watermark = high_watermark
        self.lines: KeyLines | KeyRuns = KeyRuns() if has_key_batches else KeyLines()
        self.waiting: dict[int, int] = {}
        self.retrying_count = 0  # of those, the ones that were delivered before
        self.prepared: dict[int, int] = {}
        # Messages that were out when the queue was opened, whatever has become of them since.
        self.resumed: set[int] = set()
        self.initial_delays: InitialDelays | None = None  # where the group holds messages back
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
        """Put every lane's cursor at one offset and count what is ready from there on."""
        self.since_ms = now_ms
        self.cursors = [offset] * LANE_COUNT
        self.ready = self.index.counts(offset, self.high_watermark)
        for first, end in self.ledger.done.within(offset, self.high_watermark):
            self._count_off(first, end)
        self._apart_until = 0
        self.resumed.clear()
        self._pass_at_floor()

    def _resume_leases(self) -> None:
        """What is with a consumer since an earlier life is not to be handed out, nor its key."""
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
        """What transactions acknowledged in an earlier life is still theirs."""
        for retries in self.ledger.prepared.values():
            for offset, retry in retries.items():
                self._set_apart(offset)
                self._hold((offset,), bytes((self.index.lane_of(offset),)))
                if not self.lines.enter(offset, retry.key):
                    self.lines.drop({offset})  # It is not to be handed out with its key.

    def _resume_retries(self) -> None:
        """Retries of an earlier life wait again; the cursors, which begin anew, pass them over."""
        for offset in sorted(self.ledger.retries):
            if offset in self.resumed:
                continue
            retry = self.ledger.retries[offset]
            self._set_apart(offset)
            if self.lines.resume(offset, retry.key):
                self.wait(offset, retry.due_ms)

    def set_key_batches(self, has_key_batches: bool) -> None:
        """Let a receive take several messages of a key, or one; not while any is under way."""
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
        """Let the floor rise through offsets that hold no message."""
        ledger, index = self.ledger, self.index
        while index.has_gaps:
            end = index.message_from(ledger.floor, self.high_watermark)
            if end == ledger.floor:
                return
            ledger.pass_over(ledger.floor, end)

    def record(self, event: Event) -> None:
        """Change the ledger, and have the change written down."""
        self.ledger.apply(event)
        self._pass_at_floor()
        last = self.events[-1] if self.events else None
        if isinstance(event, Done) and isinstance(last, Done) and last.why == event.why:
            last.ranges.extend(event.ranges)
        elif isinstance(event, Retried) and isinstance(last, Retried):
            last.retries.extend(event.retries)
        else:
            self.events.append(event)

    # The log moves

    def advance(self, high_watermark: int, now_ms: int) -> None:
        """There are more messages, and the index knows their lanes."""
        if high_watermark <= self.high_watermark:
            return
        first = self.high_watermark
        for lane, count in enumerate(self.index.counts(first, high_watermark)):
            if count:
                self.in_total[lane] += count
                self.in_rates.add(lane, count, now_ms)
        # Seldom, a part is done already: in an earlier life, before the lanes were known again.
        for start, end in self.ledger.done.gaps(max(first, self.ledger.floor), high_watermark):
            for lane, count in enumerate(self.index.counts(start, end)):
                self.ready[lane] += count
        for offset in self._apart(first, high_watermark):
            self._count_off(offset, offset + 1)
        self.high_watermark = high_watermark
        self._pass_at_floor()

    def start_moved(self, log_start: int) -> list[int]:
        """What lies before `log_start` cannot be read any more; messages that may go on by it."""
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
        """Retries and the like that no cursor has passed: they come from an earlier life."""
        if first >= self._apart_until:
            return []
        ledger = self.ledger
        apart = {*ledger.retries, *self.prepared}
        apart.update(one for one in self.resumed if not ledger.is_done(one))
        return [offset for offset in apart if first <= offset < end]

    # Choosing

    def take(self, lane: int, count: int) -> Sequence[int]:
        """Choose up to `count` messages of a lane, in the order of the log."""
        taken: Sequence[int] = ()
        several: list[int] = []  # is `taken` when that is not a single stretch
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
            # What lies between the messages must not keep them apart once they are done.
            for first, end in self.index.without_messages(self._cursor(lane), cursor):
                self.ledger.pass_over(first, end)
        self.cursors[lane] = cursor
        self.ready[lane] -= len(taken)
        return taken

    def _cursor(self, lane: int) -> int:
        # What was done in an earlier life is passed over by the floor, which may be ahead.
        return max(self.cursors[lane], self.ledger.floor)

    def oldest_ms(self, lane: int) -> int:
        """When the lane's next message became ready; the caller knows that there is one."""
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
        """Whether a message that is not done has never been chosen, as far as is known here."""
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
        """How often the message has been handed out and come back."""
        retry = self.ledger.retries.get(offset)
        return 0 if retry is None else retry.attempts

    def firsts_ms(self, offsets: Sequence[int], now_ms: int) -> list[int]:
        """When messages that are handed out now were so for the first time."""
        retries = self.ledger.retries
        return [
            retry.first_ms if (retry := retries.get(one)) is not None and retry.first_ms else now_ms
            for one in offsets
        ]

    def note_lease(self, event: LeaseEvent) -> None:
        """Have it written what happens to a lease; the ledger needs to know only what remains."""
        self.events.append(event)

    def keys_of(self, offsets: Sequence[int]) -> list[int] | None:
        """The keys of messages that are out, where their order counts."""
        lines = self.lines
        return [lines.key_of(one) for one in offsets] if lines.is_used else None

    # Settling

    def pass_fresh(self, offset: int) -> None:
        """A message that is about to be done was never chosen, so nobody is to choose it."""
        if offset < self.high_watermark:
            self._count_off(offset, offset + 1)

    def finish(self, offsets: Sequence[int], why: Finish) -> list[int]:
        """These messages are done; return the offsets that may go on because of it."""
        if not isinstance(offsets, range):
            offsets = sorted(offsets)
        self.record(Done(why, ranges_of(offsets)))
        return self._followers(offsets)

    def _followers(self, offsets: Sequence[int]) -> list[int]:
        return self.lines.followers(offsets) if self.lines.is_used else []

    def retry(self, offset: int, retry: Retry) -> list[int]:
        """The message comes again; return the offsets that may be chosen from their times on."""
        self.record(Retried([*self._before_in_key(offset), (offset, retry)], (offset,)))
        return self.come_again(offset)

    def come_again(self, offset: int) -> list[int]:
        """A message that was noted as a retry is not out any more; the same answer."""
        lines = self.lines
        return lines.fail(offset) if isinstance(lines, KeyRuns) else [offset]

    def _before_in_key(self, offset: int) -> list[tuple[int, Retry]]:
        """Lower messages of its key that are out and were never noted, to be noted with it.

        A restart finds the keys of retries in the ledger, and those of others when it reads them.
        It must not deliver this one first because of that.
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
        """The message is to go to the dead-letter topic; it is done when it is there."""
        letter = DeadLetter(self.number, offset, attempts, reason)
        self.pending_letters[offset] = letter
        self._burden.pending_letters += 1
        return letter

    def discard(self, letters: Iterable[DeadLetter], topic_id: bytes, end: int) -> list[int]:
        """These are in a dead-letter topic, before its offset `end`; return who may go on."""
        offsets = sorted(self._leave_pending(letters))
        self.record(DeadLettered(ranges_of(offsets), topic_id, end))
        return self._followers(offsets)

    def give_up(self, letters: Iterable[DeadLetter]) -> list[int]:
        """There is no record to write any more; return who may go on."""
        offsets = self._leave_pending(letters)
        return self.finish(offsets, Finish.SKIPPED) if offsets else []

    def _leave_pending(self, letters: Iterable[DeadLetter]) -> list[int]:
        """The offsets that still wait to be dead-lettered: a rewind may have called some back."""
        offsets = [one.offset for one in letters if self.pending_letters.get(one.offset) is one]
        for offset in offsets:
            del self.pending_letters[offset]
        self._burden.pending_letters -= len(offsets)
        return offsets

    # Transactions

    def prepare(self, event: Prepared, lanes: bytes) -> None:
        """A transaction takes messages over that are not with their consumers any more."""
        self.ledger.apply(event)
        self._hold([offset for offset, _ in event.retries], lanes)

    def commit(self, producer_id: int) -> tuple[list[int], list[int]]:
        """A transaction was committed: the messages that are done, and those that may go on."""
        offsets = sorted(self.ledger.prepared.get(producer_id, ()))
        self.ledger.apply(Ended(producer_id, is_commit=True))
        self._pass_at_floor()
        self._let_go(offsets)
        return offsets, self._followers(offsets)

    def abort(self, producer_id: int) -> dict[int, Retry]:
        """A transaction was aborted: the messages that come again, if they may."""
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

    # Moving about

    def rewind(self, offset: int, leased: Iterable[int], now_ms: int) -> list[int]:
        """Go on at `offset`; what is under way before it stays so. Return who may go on.

        What a transaction has acknowledged from there on is delivered again like everything that
        was acknowledged, and is no longer the transaction's.
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
        """Everything before `end`, which is not below the high watermark, is done.

        That goes also for what a transaction has acknowledged, however it ends.
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
