"""The queue: one group's delivery state of one topic.

It decides which messages are delivered, tracks the leases of its consumers, and takes messages
back. It holds offsets only, never a message. Changes that must be durable are collected as events
per partition, which the caller takes with `take_events`. Messages that must move to the
dead-letter topic are taken with `take_dead_letters`, and reported with `note_dead_lettered` once
they are written there.

A receive call has two steps, because messages are chosen by offset but their keys and expiry
times are in the records: `choose`, then, with the records that were read, `lease`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from goqueue.delivery.choosing import Pick
from goqueue.delivery.grants import Voided
from goqueue.delivery.key_order import key_number
from goqueue.delivery.lanes import lane_counts
from goqueue.delivery.leased_runs import SETTLED, Draft, LeasedRun, Preparation, Run, Settled
from goqueue.delivery.leases import Lease
from goqueue.delivery.ledger import ATTEMPTS_MAX, Finish, Prepared, Retry
from goqueue.delivery.partition_queue import PartitionQueue
from goqueue.delivery.queue_fairness import QueueFairness
from goqueue.delivery.queue_partitions import EXHAUSTED
from goqueue.delivery.settings import RECEIVE_MESSAGES_MAX
from goqueue.model.errors import GoQueueError, StaleReceipt

# To find messages of one key: how many messages are examined per requested message, and at most.
KEY_AHEAD, KEY_AHEAD_MAX = 10, 100


@lru_cache(maxsize=RECEIVE_MESSAGES_MAX)
def _first_attempts(count: int) -> bytes:
    """Return the attempts of `count` first deliveries; leases of the same size share the value."""
    return b"\x01" * count


class Queue(QueueFairness):
    """A queue: receives, settlements, transactions, rewinds and purges."""

    # Receiving

    def new_call(self) -> int:
        """Return a number for a receive call that chooses and leases more than once."""
        self._calls += 1
        self._looks = 0
        return self._calls

    @property
    def has_ready(self) -> bool:
        """Whether messages that were never delivered can be chosen."""
        return self.chooser.has_ready

    def next_wake_ms(self) -> int | None:
        """When the state may next change without a call: a retry is due, or a lease expires."""
        times = (self.chooser.next_due_ms(), self.leases.next_expiry_ms())
        return min((one for one in times if one is not None), default=None)

    def choose(self, now_ms: int, consumer: str, count_max: int) -> list[Pick]:
        """Return candidates in delivery order. Read them and call `lease` before anything else.

        With fair shares between tenants (`is_scanning`), there may be more candidates than are
        delivered.
        """
        assert not self._chosen, "the last choice has not been answered"
        room = min(count_max, self.room_for(consumer))
        fresh_max = self.settings.retrying_max - self._burden.retrying
        self._wanted = room
        if self.settings.fair_keys:
            self._chosen = self._choose_fairly(now_ms, room, fresh_max)
        elif self.takes_whole_keys:
            ahead = min(room * KEY_AHEAD, max(room, KEY_AHEAD_MAX))
            self._chosen = self.chooser.choose(now_ms, ahead, fresh_max=fresh_max)
        else:
            self._chosen = self.chooser.choose(now_ms, room, fresh_max=fresh_max)
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
    ) -> list[LeasedRun]:
        """Lease the chosen messages that were read; those in `gone` (partition, offset) are done.

        A receive that leases several times passes the same `call` each time, so that all of its
        leases may contain messages of the same key.
        An expired message is finished, one whose key is busy is parked, one whose tenant has to
        wait is set aside, and a chosen message that is not mentioned can be chosen again at once.
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
        by_key = self._sift_by_key(runs, drafts, now_ms, call) if self.takes_whole_keys else None
        for run_number, run in enumerate(runs):
            draft = drafts[run.partition]
            places = self._sift(run, draft, now_ms, call) if by_key is None else by_key[run_number]
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
            if any(draft.tenants):
                leases[number].tenants = draft.tenants
            self._close_draft(self.partitions[number], draft, now_ms)
        return [
            LeasedRun(run_number, places, leases[runs[run_number].partition], first)
            for run_number, places, first in kept
        ]

    def _sift(self, run: Run, draft: Draft, now_ms: int, call: int) -> Sequence[int]:
        """Return the positions of the deliverable messages; finish or park the others."""
        if self.settings.fair_keys:
            return self._sift_fairly(run, draft, now_ms)
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

    @property
    def takes_whole_keys(self) -> bool:
        """Whether a receive takes all it can of one key before it goes on to the next key."""
        return self.settings.key_order and self.settings.key_batches

    def _sift_by_key(
        self, runs: Sequence[Run], drafts: dict[int, Draft], now_ms: int, call: int
    ) -> list[list[int]]:
        """Return, for each run, the positions of the deliverable messages, taken key by key."""
        by_key: dict[bytes | int, list[tuple[int, int]]] = {}
        for run_number, run in enumerate(runs):
            assert run.keys is not None, "the order of keys needs keys"
            for place, key in enumerate(run.keys):
                # A message without a key is a group of its own, and stays in log order.
                name = len(by_key) if key is None else key
                by_key.setdefault(name, []).append((run_number, place))
        kept: list[list[int]] = [[] for _ in runs]
        left = self._wanted
        for messages in by_key.values():
            for run_number, place in messages:
                run = runs[run_number]
                offset, draft = run.offsets[place], drafts[run.partition]
                expires_ms = None if run.expires_ms is None else run.expires_ms[place]
                if expires_ms is not None and expires_ms <= now_ms:
                    draft.finish(offset, Finish.EXPIRED)
                elif left <= 0:
                    continue  # It can be chosen again at once.
                elif self._enter(run, place, call):
                    kept[run_number].append(place)
                    left -= 1
                else:
                    draft.pass_over(offset)
        return [sorted(places) for places in kept]

    def _enter(self, run: Run, place: int, call: int) -> bool:
        assert run.keys is not None
        lines = self.partitions[run.partition].lines
        return lines.enter(run.offsets[place], key_number(run.keys[place]), call)

    def _grant(
        self, number: int, offsets: Sequence[int], consumer: str, now_ms: int, until_ms: int
    ) -> Lease:
        partition = self.partitions[number]
        attempts: Sequence[int] = _first_attempts(len(offsets))
        firsts_ms: Sequence[int] | None = None
        if partition.ledger.retries:
            attempts = [min(partition.attempts_of(one) + 1, ATTEMPTS_MAX) for one in offsets]
            firsts_ms = partition.firsts_ms(offsets, now_ms)
            self.totals.redelivered += sum(1 for one in attempts if one > 1)
        if self._late:
            self._late.drop([(number, offset) for offset in offsets])
        lanes = partition.lanes_of(offsets)
        for lane, lane_count in lane_counts(lanes):
            partition.in_flight[lane] += lane_count
            partition.out_total[lane] += lane_count
            partition.out_rates.add(lane, lane_count, now_ms)
        self.totals.delivered += len(offsets)
        lease = self.leases.grant(
            consumer,
            number,
            offsets,
            attempts,
            lanes,
            now_ms=now_ms,
            firsts_ms=firsts_ms,
            until_ms=until_ms,
        )
        partition.note_lease(lease.granted(partition.keys_of(lease.offsets)))
        self._changed[number] = None
        return lease

    def release(self, leases: Iterable[Lease], now_ms: int) -> None:
        """Void leases whose messages no consumer received: deliverable again, and not counted."""
        for lease in leases:
            places = list(lease.outstanding())
            if not places:
                continue
            partition = self.partitions[lease.partition]
            for index in places:
                self._take_back(lease, index)
            offsets = tuple(lease.offsets[one] for one in places)
            partition.note_lease(Voided(lease.id, [(one, one + 1) for one in places], offsets))
            self._changed[partition.number] = None
            for index in places:
                offset = lease.offsets[index]
                if partition.ledger.is_done(offset):
                    self._resume(partition, partition.lines.followers((offset,)), now_ms)
                else:
                    self._resume(partition, partition.come_again(offset), now_ms)
            self._refresh(partition)

    def _close_draft(self, partition: PartitionQueue, draft: Draft, now_ms: int) -> None:
        """Finish expired and missing messages, and make the undelivered ones choosable again."""
        left = draft.left()
        if not left and not draft.finished and not partition.lines.is_used:
            return  # Everything was delivered, and `choose` has already refreshed the lanes.
        for why, offsets in draft.finished.items():
            self._finish(partition, offsets, why, now_ms)
            if why is Finish.EXPIRED:
                self.totals.ttl_expired += len(offsets)
            else:
                self.totals.skipped += len(offsets)
        self._resume(partition, left, now_ms)
        self._refresh(partition)

    # Transactions

    def plan(self, now_ms: int, receipts: Sequence[str], producer_id: int) -> Preparation:
        """Determine which messages a transaction may acknowledge, without changing anything."""
        settled = [SETTLED] * len(receipts)
        taken: dict[Lease, list[int]] = {}
        retries: dict[int, list[tuple[int, Retry]]] = {}
        seen: set[str] = set()
        for place, receipt in enumerate(receipts):
            if receipt in seen:
                continue
            found = self.leases.find(receipt, now_ms)
            if found is None:
                settled[place] = self._prepare_again(receipt, producer_id)
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

    def _prepare_again(self, receipt: str, producer_id: int) -> Settled:
        """Check whether the transaction has already acknowledged this, so that a retry succeeds."""
        try:
            partition, offset, _ = self._find_message(receipt)
        except GoQueueError as error:
            return Settled(error)
        is_ours = offset in partition.ledger.prepared.get(producer_id, ())
        return SETTLED if is_ours else Settled(StaleReceipt())

    def prepare(self, preparation: Preparation) -> None:
        """Apply a plan that is journaled: the messages belong to the transaction until it ends."""
        lanes: dict[tuple[int, int], int] = {}
        for lease, indexes in preparation.taken.items():
            for index in indexes:
                lanes[lease.partition, lease.offsets[index]] = lease.lanes[index]
                self._take_back(lease, index)
        for number, event in preparation.events:
            of_event = bytes(lanes[number, offset] for offset, _ in event.retries)
            self.partitions[number].prepare(event, of_event)

    def end_transaction(self, producer_id: int, now_ms: int, *, is_commit: bool) -> None:
        """Finish what the transaction acknowledged, or make it deliverable again at once.

        An abort counts as a failed delivery, like a nack, so that a message that makes every
        transaction fail reaches the dead-letter topic.
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
                self._dead_letters.append(
                    partition.make_dead_letter(offset, retry.attempts, EXHAUSTED)
                )
            elif offset in partition.ledger.retries:
                self._resume(partition, partition.come_again(offset), 0)

    # Rewinding and purging

    def rewind(self, number: int, offset: int, now_ms: int) -> None:
        """Continue at `offset`: everything from there to the end of the log is delivered again."""
        partition = self.partitions[number]
        offset = max(partition.log_start, offset)
        leased = self._recall(number, offset)
        self._resume(partition, partition.rewind(offset, leased, now_ms), now_ms)
        self._changed[number] = None
        self._refresh(partition)

    def purge(self, ends: Sequence[int]) -> None:
        """Finish everything before these offsets, one per partition, including what is leased."""
        for partition, end in zip(self.partitions, ends, strict=True):
            self._recall(partition.number, 0)
            partition.purge(end)
            self._changed[partition.number] = None
            self._refresh(partition)

    def _recall(self, number: int, offset: int) -> list[int]:
        """Void the leases of messages from `offset` on; return the leased offsets before it."""
        self._late.clear()
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
