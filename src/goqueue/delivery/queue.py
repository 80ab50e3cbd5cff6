"""The queue: one group's delivery state of one topic.

It decides which messages are handed out, remembers who has them, and takes them back. It never
holds a message, only offsets. What must last is collected as events, per partition, and taken by
the caller with `take_events`; messages that must be moved to the dead-letter topic are taken with
`take_dead_letters`, and reported with `buried` when they are there.

A receive call has two steps, because the choice is made by offset and the keys, times and lives
of messages are in the records: `choose`, then, with what was read, `lease`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from random import Random

from goqueue.delivery.arrivals import Arrivals
from goqueue.delivery.backoff import backoff_ms
from goqueue.delivery.choosing import Chooser, Pick
from goqueue.delivery.handing import Draft, Handed, Preparation, Run, Settled
from goqueue.delivery.key_lines import key_number
from goqueue.delivery.key_runs import KeyRuns
from goqueue.delivery.lanes import LANE_COUNT, LaneIndex
from goqueue.delivery.late_receipts import LateReceipts
from goqueue.delivery.leases import ATTEMPTS_MAX, Lease, Leases, Unacked
from goqueue.delivery.ledger import Event, Finish, Ledger, Prepared, Retry
from goqueue.delivery.partition_queue import Burden, DeadLetter, PartitionQueue
from goqueue.delivery.receipts import TAILS, refusal
from goqueue.delivery.ripening import Ripening
from goqueue.delivery.settings import LaneSettings, QueueSettings
from goqueue.delivery.views import Totals
from goqueue.model.errors import GoQueueError, LeaseTooLong

EXHAUSTED = "deliveries_exhausted"


_SETTLED = Settled()


class Queue:
    """All partitions of one topic, for one group."""

    def __init__(
        self,
        number: int,
        settings: QueueSettings,
        lanes: LaneSettings,
        *,
        random: Random,
        unacked: Unacked | None = None,
    ) -> None:
        """`number` is this queue's name in receipts; `unacked` is shared by a group's queues."""
        self.number = number
        self.settings = settings
        self.totals = Totals()
        self.partitions: list[PartitionQueue] = []
        self.unacked = unacked if unacked is not None else Unacked()
        self.leases = Leases(number, self.unacked)
        self.chooser = Chooser(lanes)
        self._late = LateReceipts()
        self._calls = 0
        self._random = random
        self._burden = Burden()
        self._chosen: list[Pick] = []
        self._changed: dict[int, None] = {}
        self._dead_letters: list[DeadLetter] = []

    # The log

    def add_partition(
        self,
        ledger: Ledger,
        index: LaneIndex,
        arrivals: Arrivals,
        *,
        log_start: int,
        log_end: int,
        high_watermark: int,
        now_ms: int,
        arrived: Iterable[tuple[int, int]] = (),
    ) -> None:
        """The topic has one more partition, or the queue is being opened.

        `arrived` tells when messages came that are there already, if that counts: times, each with
        the offset before which all had come.
        """
        number, delay_ms = len(self.partitions), self.settings.delay_ms
        ripening = Ripening(arrived) if delay_ms else None
        if ripening is not None:
            ripening.note(high_watermark, now_ms, delay_ms)
            high_watermark = ripening.ripe_end(now_ms, delay_ms)
        partition = PartitionQueue(
            number,
            ledger,
            index,
            arrivals,
            self._burden,
            self.unacked,
            log_start=log_start,
            log_end=log_end,
            high_watermark=high_watermark,
            now_ms=now_ms,
            has_key_batches=self.settings.key_batches,
        )
        partition.ripening = ripening
        self.partitions.append(partition)
        if partition.events:
            self._changed[number] = None
        self.chooser.add(partition)
        self._refresh(partition)

    def advance(self, number: int, high_watermark: int, now_ms: int) -> None:
        """There are messages up to `high_watermark`, and the lane index knows them."""
        partition = self.partitions[number]
        if partition.ripening is not None:
            partition.ripening.note(high_watermark, now_ms, self.settings.delay_ms)
            high_watermark = partition.ripening.ripe_end(now_ms, self.settings.delay_ms)
        partition.advance(high_watermark, now_ms)
        self._refresh(partition)

    def ripen(self, now_ms: int) -> None:
        """Let messages be chosen that have been held back for long enough."""
        for partition in self._ripening():
            self.advance(partition.number, 0, now_ms)
            if not self.settings.delay_ms:
                partition.ripening = None

    def next_ripe_ms(self) -> int | None:
        """When the next message has been held back for long enough."""
        delay_ms = self.settings.delay_ms
        times = [one.ripening.next_ms(delay_ms) for one in self._ripening() if one.ripening]
        return min((one for one in times if one is not None), default=None)

    def _ripening(self) -> list[PartitionQueue]:
        return [one for one in self.partitions if one.ripening is not None]

    def start_moved(self, number: int, log_start: int, now_ms: int) -> None:
        """The log begins later now. Tell it before the lane index forgets what went."""
        partition = self.partitions[number]
        self._resume(partition, partition.start_moved(log_start), now_ms)
        self._refresh(partition)

    def configure(self, settings: QueueSettings, lanes: LaneSettings) -> None:
        if (settings, lanes) == (self.settings, self.chooser.settings):
            return
        self.settings = settings
        if settings.delay_ms:
            for partition in self.partitions:
                if partition.ripening is None:
                    partition.ripening = Ripening(((0, partition.high_watermark),))
        self.chooser.configure(lanes)
        for partition in self.partitions:
            partition.set_key_batches(settings.key_batches)
            self._refresh(partition)

    # Receiving

    def new_call(self) -> int:
        """A number for a receive call that chooses and leases more than once."""
        self._calls += 1
        return self._calls

    @property
    def has_ready(self) -> bool:
        """Whether messages that were never delivered can be chosen."""
        return self.chooser.has_ready

    def next_wake_ms(self) -> int | None:
        """When something may change by itself: a retry is due, or a lease ends."""
        times = (self.chooser.next_due_ms(), self.leases.next_expiry_ms())
        return min((one for one in times if one is not None), default=None)

    def room_for(self, consumer: str) -> int:
        """How many more messages the consumer may have."""
        settings = self.settings
        group_room = settings.unacked_max - self.unacked.total - self._burden.dying
        return max(0, min(group_room, settings.consumer_unacked_max - self.unacked.of(consumer)))

    def choose(self, now_ms: int, consumer: str, count_max: int) -> list[Pick]:
        """Candidates in the order of delivery. Read them and call `lease` before anything else."""
        assert not self._chosen, "the last choice has not been answered"
        self._chosen = self.chooser.choose(
            now_ms,
            min(count_max, self.room_for(consumer)),
            fresh_max=self.settings.retrying_max - self._burden.retrying,
        )
        return self._chosen

    def lease(
        self,
        now_ms: int,
        consumer: str,
        runs: Sequence[Run],
        *,
        visibility_ms: int,
        gone: Iterable[tuple[int, int]] = (),
        call: int | None = None,
    ) -> list[Handed]:
        """Hand out the chosen messages that were read; those `gone` (partition, offset) are done.

        Whoever leases several times for one receive gives its `call`, so that all of them may have
        messages of the same key.
        A message whose life is over is finished, one whose key is busy is parked, and what is not
        mentioned at all can be chosen again at once.
        """
        if call is None:
            call = self.new_call()
        drafts: dict[int, Draft] = {}
        for pick in self._chosen:
            drafts.setdefault(pick.partition, Draft()).choose(pick.offsets)
        self._chosen = []
        for number, offset in gone:
            drafts[number].finish(offset, Finish.SKIPPED)
        kept: list[tuple[int, Sequence[int], int]] = []
        for run_number, run in enumerate(runs):
            draft = drafts[run.partition]
            places = self._sift(run, draft, now_ms, call)
            if places:
                is_whole = len(places) == len(run.offsets)
                offsets = run.offsets if is_whole else [run.offsets[place] for place in places]
                kept.append((run_number, places, draft.keep(offsets)))
        leases = {
            number: self._grant(number, offsets, consumer, now_ms, now_ms + visibility_ms)
            for number, draft in drafts.items()
            if (offsets := draft.kept())
        }
        for number, draft in drafts.items():
            self._close_draft(self.partitions[number], draft, now_ms)
        return [
            Handed(run_number, places, leases[runs[run_number].partition], first)
            for run_number, places, first in kept
        ]

    def _sift(self, run: Run, draft: Draft, now_ms: int, call: int) -> Sequence[int]:
        """The places of the messages that may go; the others are finished or parked."""
        is_ordered = self.settings.key_order
        keys = run.keys if is_ordered else None
        assert keys is not None or not is_ordered, "the order of keys needs keys"
        if run.expires_ms is None and keys is None:
            return range(len(run.offsets))
        lines, places = self.partitions[run.partition].lines, []
        for place, offset in enumerate(run.offsets):
            expires_ms = None if run.expires_ms is None else run.expires_ms[place]
            if expires_ms is not None and expires_ms <= now_ms:
                draft.finish(offset, Finish.EXPIRED)
            elif keys is None or lines.enter(offset, key_number(keys[place]), call):
                places.append(place)
            else:
                draft.pass_over(offset)
        return places

    def _grant(
        self, number: int, offsets: Sequence[int], consumer: str, now_ms: int, until_ms: int
    ) -> Lease:
        partition = self.partitions[number]
        attempts: Sequence[int] = b"\x01" * len(offsets)
        firsts_ms: Sequence[int] | None = None
        if partition.ledger.retries:
            attempts = [min(partition.attempts_of(one) + 1, ATTEMPTS_MAX) for one in offsets]
            firsts_ms = partition.firsts_ms(offsets, now_ms)
            self.totals.redelivered += sum(1 for one in attempts if one > 1)
        if self._late:
            self._late.drop([(number, offset) for offset in offsets])
        lanes = partition.lanes_of(offsets)
        for lane in range(LANE_COUNT):
            if lane_count := lanes.count(lane):
                partition.in_flight[lane] += lane_count
                partition.out_total[lane] += lane_count
                partition.out_rates.add(lane, lane_count, now_ms)
        self.totals.delivered += len(offsets)
        return self.leases.grant(
            consumer,
            number,
            offsets,
            attempts,
            lanes,
            now_ms=now_ms,
            firsts_ms=firsts_ms,
            until_ms=until_ms,
            nonce=self._random.getrandbits(64),
        )

    def _close_draft(self, partition: PartitionQueue, draft: Draft, now_ms: int) -> None:
        """Finish what is over, and let what was left out be chosen again."""
        left = draft.left()
        for why, offsets in draft.finished.items():
            self._finish(partition, offsets, why, now_ms)
            if why is Finish.EXPIRED:
                self.totals.ttl_expired += len(offsets)
            else:
                self.totals.skipped += len(offsets)
        self._resume(partition, left, now_ms)
        self._refresh(partition)

    # Settling

    def ack(self, now_ms: int, receipts: Sequence[str]) -> list[Settled]:
        """These messages are done."""
        settled = [_SETTLED] * len(receipts)
        taken, refused = self.leases.take_back(receipts, now_ms)
        done: dict[int, list[Sequence[int]]] = {}
        if refused and self.settings.late_acks:
            refused = self._ack_late(now_ms, receipts, refused, done)
        for place in refused:
            settled[place] = Settled(refusal(receipts[place]))
        for lease, indexes in taken.items():
            self.totals.acked += len(indexes)
            done.setdefault(lease.partition, []).append(self._land(lease, indexes))
        for number, parts in done.items():
            partition = self.partitions[number]
            offsets = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
            self._finish(partition, offsets, Finish.ACKED, now_ms)
            self._refresh(partition)
        return settled

    def _ack_late(
        self,
        now_ms: int,
        receipts: Sequence[str],
        refused: Sequence[int],
        done: dict[int, list[Sequence[int]]],
    ) -> list[int]:
        """Take those that only wait to be handed out again; the places of the others."""
        self.expire(now_ms)  # A lease may be over without anybody having looked.
        left: list[int] = []
        for place in refused:
            number, offset = self._late.find(receipts[place]) or (-1, -1)
            if number < 0 or offset not in self.partitions[number].waiting:
                left.append(place)
                continue
            self._late.drop(((number, offset),))
            self.partitions[number].take_waiting(offset)
            self.totals.acked += 1
            done.setdefault(number, []).append((offset,))
        return left

    def _land(self, lease: Lease, indexes: list[int]) -> Sequence[int]:
        """These messages are not in flight any more, often all of a lease; their offsets."""
        self.leases.settle(lease, len(indexes))
        partition, lanes, offsets = self.partitions[lease.partition], lease.lanes, lease.offsets
        if len(indexes) != len(offsets):
            lanes = bytes([lanes[index] for index in indexes])
            offsets = [offsets[index] for index in indexes]
        for lane in range(LANE_COUNT):
            partition.in_flight[lane] -= lanes.count(lane)
        return offsets

    def nack(
        self, now_ms: int, receipts: Sequence[str], *, delay_ms: int | None = None
    ) -> list[Settled]:
        """These messages could not be handled; they come again after a rest, or die."""
        settled: list[Settled] = []
        for receipt in receipts:
            try:
                lease, index = self._find(receipt, now_ms)
            except GoQueueError as error:
                settled.append(Settled(error))
                continue
            self.totals.nacked += 1
            rest_ms = delay_ms
            if rest_ms is None:
                rest_ms = backoff_ms(self.settings, lease.attempts[index], self._random)
            settled.append(Settled(None, self._fail(lease, index, now_ms + rest_ms)))
        return settled

    def reject(self, now_ms: int, receipts: Sequence[str], *, reason: str) -> list[Settled]:
        """These messages can never be handled; they go to the dead-letter topic."""
        settled: list[Settled] = []
        for receipt in receipts:
            try:
                lease, index = self._find(receipt, now_ms)
            except GoQueueError as error:
                settled.append(Settled(error))
                continue
            self.totals.rejected += 1
            self._take_back(lease, index)
            settled.append(Settled(None, self._die(lease, index, reason)))
        return settled

    def extend(
        self,
        now_ms: int,
        receipts: Sequence[str],
        *,
        visibility_ms: int,
        total_ms_max: int | None = None,
    ) -> list[Settled]:
        """Let the consumer keep these messages for so long from now on; receipts stay good.

        None for more than `total_ms_max` since it was handed out, if that is given.
        """
        settled: list[Settled] = []
        chosen: dict[int, tuple[Lease, list[int]]] = {}
        for receipt in receipts:
            try:
                lease, index = self._find(receipt, now_ms)
            except GoQueueError as error:
                settled.append(Settled(error))
                continue
            total_ms = now_ms + visibility_ms - lease.granted_ms
            if total_ms_max is not None and total_ms > total_ms_max:
                settled.append(Settled(LeaseTooLong(total_ms_max)))
                continue
            chosen.setdefault(lease.id, (lease, []))[1].append(index)
            settled.append(_SETTLED)
        for lease, indexes in chosen.values():
            self.leases.extend(lease, indexes, now_ms + visibility_ms)
        return settled

    def expire(self, now_ms: int) -> int:
        """Take back every message whose lease is over; how many there were."""
        count = 0
        for lease, indexes in self.leases.expired(now_ms):
            for index in indexes:
                # Its consumer has had all of the visibility time; there is no rest on top.
                self._fail(lease, index, now_ms)
            count += len(indexes)
        self.totals.leases_expired += count
        return count

    def buried(
        self, letters: Iterable[DeadLetter], now_ms: int, *, topic_id: bytes, end: int
    ) -> None:
        """These, all of one partition, are in a dead-letter topic, durably, before offset `end`."""
        letters = list(letters)
        partition = self.partitions[letters[0].partition]
        self.totals.dead_lettered += len(letters)
        self._resume(partition, partition.bury(letters, topic_id, end), now_ms)
        self._changed[partition.number] = None
        self._refresh(partition)

    def given_up(self, letters: Iterable[DeadLetter], now_ms: int) -> None:
        """These have no record any more that could be written to a dead-letter topic."""
        for letter in letters:
            partition = self.partitions[letter.partition]
            self.totals.skipped += 1
            self._resume(partition, partition.give_up([letter]), now_ms)
            self._changed[partition.number] = None
            self._refresh(partition)

    def _find(self, receipt: str, now_ms: int) -> tuple[Lease, int]:
        found = self.leases.find(receipt, now_ms)
        if found is None:
            raise refusal(receipt)
        return found

    def _take_back(self, lease: Lease, index: int) -> None:
        self.leases.give_back(lease, index)
        self.partitions[lease.partition].in_flight[lease.lanes[index]] -= 1

    def _fail(self, lease: Lease, index: int, due_ms: int) -> DeadLetter | None:
        """The delivery came to nothing: try again at `due_ms`, unless it was the last one."""
        self._take_back(lease, index)
        attempts = lease.attempts[index]
        if self._is_last(attempts):
            return self._die(lease, index, EXHAUSTED)
        partition, offset = self.partitions[lease.partition], lease.offsets[index]
        if partition.ledger.is_done(offset):  # retention has taken it meanwhile
            self._resume(partition, partition.lines.followers((offset,)), due_ms)
            return None
        key = partition.lines.key_of(offset)
        retry = Retry(attempts, due_ms, key, lease.first_of(index))
        self._resume(partition, partition.retry(offset, retry), 0)
        self._changed[partition.number] = None
        if self.settings.late_acks:
            self._late.add(lease.head + TAILS[index], (partition.number, offset))
        return None

    def _is_last(self, attempts: int) -> bool:
        return 0 < self.settings.deliveries_max <= attempts

    def _die(self, lease: Lease, index: int, reason: str) -> DeadLetter:
        partition = self.partitions[lease.partition]
        letter = partition.die(lease.offsets[index], lease.attempts[index], reason)
        self._dead_letters.append(letter)
        return letter

    def _finish(
        self, partition: PartitionQueue, offsets: Sequence[int], why: Finish, now_ms: int
    ) -> None:
        self._resume(partition, partition.finish(offsets, why), now_ms)
        self._changed[partition.number] = None

    def _resume(self, partition: PartitionQueue, offsets: Sequence[int], now_ms: int) -> None:
        """These may be chosen, retries when they are due; they come before all others."""
        if not offsets:
            return
        retries, turns_ms = partition.ledger.retries, dict.fromkeys(offsets, now_ms)
        for offset in offsets:
            if offset in retries:
                turns_ms[offset] = max(now_ms, retries[offset].due_ms)
        if isinstance(partition.lines, KeyRuns):
            turns_ms = partition.lines.in_turn(turns_ms)
        for offset, due_ms in turns_ms.items():
            partition.wait(offset, due_ms)
            self.chooser.queue_one(partition.number, offset, due_ms)

    def _refresh(self, partition: PartitionQueue) -> None:
        self.chooser.refresh(partition, parked_max=self.settings.parked_max)

    # Transactions

    def plan(self, now_ms: int, receipts: Sequence[str], producer_id: int) -> Preparation:
        """See which of these messages a transaction may acknowledge; nothing is changed yet."""
        settled = [_SETTLED] * len(receipts)
        taken: dict[Lease, list[int]] = {}
        retries: dict[int, list[tuple[int, Retry]]] = {}
        seen: set[str] = set()
        for place, receipt in enumerate(receipts):
            found = None if receipt in seen else self.leases.find(receipt, now_ms)
            if found is None:
                settled[place] = Settled(refusal(receipt))
                continue
            lease, index = found
            seen.add(receipt)
            partition, offset = self.partitions[lease.partition], lease.offsets[index]
            key = partition.lines.key_of(offset)
            retry = Retry(lease.attempts[index], now_ms, key, lease.first_of(index))
            taken.setdefault(lease, []).append(index)
            retries.setdefault(partition.number, []).append((offset, retry))
        events = [(number, Prepared(producer_id, sorted(some))) for number, some in retries.items()]
        return Preparation(settled, taken, events)

    def prepare(self, preparation: Preparation) -> None:
        """The plan is written down: the messages are the transaction's until it ends."""
        lanes: dict[tuple[int, int], int] = {}
        for lease, indexes in preparation.taken.items():
            for index in indexes:
                lanes[lease.partition, lease.offsets[index]] = lease.lanes[index]
                self._take_back(lease, index)
        for number, event in preparation.events:
            of_event = bytes(lanes[number, offset] for offset, _ in event.retries)
            self.partitions[number].prepare(event, of_event)

    def end_transaction(self, producer_id: int, now_ms: int, *, is_commit: bool) -> None:
        """What the transaction acknowledged is done, or comes again at once.

        An abort counts as a delivery that came to nothing, like a nack: a message that makes
        every transaction fail reaches the dead-letter topic.
        """
        for partition in self.partitions:
            if producer_id not in partition.ledger.prepared:
                continue
            if is_commit:
                offsets, followers = partition.commit(producer_id)
                self.totals.acked += len(offsets)
                self._resume(partition, followers, now_ms)
            else:
                retries = partition.abort(producer_id)
                self.totals.aborted += len(retries)
                self._retry_all(partition, retries)
            self._refresh(partition)

    def _retry_all(self, partition: PartitionQueue, retries: dict[int, Retry]) -> None:
        for offset, retry in retries.items():
            if self._is_last(retry.attempts):
                self._dead_letters.append(partition.die(offset, retry.attempts, EXHAUSTED))
            elif offset in partition.ledger.retries:
                self._resume(partition, partition.come_again(offset), 0)

    # Moving about

    def rewind(self, number: int, offset: int, now_ms: int) -> None:
        """Go on at `offset`, up to the log's end: what comes from there is delivered again."""
        partition = self.partitions[number]
        offset = max(partition.log_start, offset)
        leased = self._recall(number, offset)
        self._resume(partition, partition.rewind(offset, leased, now_ms), now_ms)
        self._changed[number] = None
        self._refresh(partition)

    def purge(self, ends: Sequence[int]) -> None:
        """Everything before these offsets, one for each partition, is done, also what is out."""
        for partition, end in zip(self.partitions, ends, strict=True):
            self._recall(partition.number, 0)
            partition.purge(end)
            self._changed[partition.number] = None
            self._refresh(partition)

    def _recall(self, number: int, offset: int) -> list[int]:
        """Void the leases of messages from `offset` on; the messages before it that are out."""
        kept: list[int] = []
        for lease in self.leases:
            if lease.partition != number:
                continue
            for index in list(lease.outstanding()):
                if lease.offsets[index] >= offset:
                    self._take_back(lease, index)
                else:
                    kept.append(lease.offsets[index])
        return kept

    # What is to be written

    def mark_changed(self, number: int) -> None:
        """Something was recorded in a partition directly."""
        self._changed[number] = None

    @property
    def has_events(self) -> bool:
        return bool(self._changed)

    def take_events(self) -> list[tuple[int, list[Event]]]:
        """What has changed in each partition since the last call, in order."""
        changed, self._changed = self._changed, {}
        taken: list[tuple[int, list[Event]]] = []
        for number in changed:
            partition = self.partitions[number]
            events, partition.events = partition.events, []
            if events:
                taken.append((number, events))
        return taken

    def take_dead_letters(self) -> list[DeadLetter]:
        """Messages to be moved to the dead-letter topic since the last call."""
        letters, self._dead_letters = self._dead_letters, []
        return letters
