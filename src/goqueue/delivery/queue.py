"""The queue: one group's delivery state of one topic.

It decides which messages are delivered, tracks the leases of its consumers, and takes messages
back. It holds offsets only, never a message. What must be written, events for the journal and dead
letters, is collected in its `outbox`, which the caller empties.

A message goes through three steps. `choose` selects it by its offset; as its key and expiry time
are in the record, the caller reads that and then calls `lease`; the consumer's answer, or the
expiry of the lease, ends the delivery in `settling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, pairwise
from random import Random
from typing import NamedTuple

from goqueue.delivery.by_offset import SettlingByOffset
from goqueue.delivery.fairness import ASIDE_MS, FairShares, Tenant
from goqueue.delivery.grants import LeaseEvent, Voided
from goqueue.delivery.initial_delays import InitialDelays
from goqueue.delivery.journal import Outbox
from goqueue.delivery.key_order import key_number
from goqueue.delivery.lanes import Chooser, Pick, Run, lane_counts
from goqueue.delivery.leases import (
    SECRET_BYTES,
    Delivery,
    Lease,
    Leases,
    Limits,
    Receipts,
    Unacked,
)
from goqueue.delivery.ledger import ATTEMPTS_MAX, Finish, Ledger, Sealed
from goqueue.delivery.partition_queue import PartitionLog, PartitionQueue
from goqueue.delivery.settings import LEASE_MESSAGES_MAX, SIZES_CACHED, LaneSettings, QueueSettings
from goqueue.delivery.settling import EXHAUSTED, SETTLED, Settled, Settling, Totals
from goqueue.delivery.transactions import PreparedAcks
from goqueue.model.errors import GoQueueError

# To find messages of one key: how many messages are examined per requested message, and at most.
KEY_AHEAD, KEY_AHEAD_MAX = 10, 100


class LeasedRun(NamedTuple):
    """The messages of one run that were leased, contiguous in the lease."""

    run: int  # the index of the run
    positions: Sequence[int]  # in that run, of the leased messages
    lease: Lease
    first: int  # the index of the first of them in the lease

    def deliveries(self) -> list[Delivery]:
        end = self.first + len(self.positions)
        return [self.lease.delivery(index) for index in range(self.first, end)]


class Queue:
    """A queue: what can be delivered, what is in flight, and how deliveries end."""

    def __init__(
        self,
        number: int,
        settings: QueueSettings,
        lanes: LaneSettings,
        *,
        random: Random,
        unacked: Unacked | None = None,
    ) -> None:
        """`number` identifies this queue in receipts; a group's queues share `unacked`.

        The secret that authenticates its receipts comes with the ledger of its first partition.
        """
        self.number = number
        self.settings = settings
        self.totals = Totals()
        self.partitions: list[PartitionQueue] = []
        unacked = unacked if unacked is not None else Unacked()
        self.limits = Limits(settings, unacked)
        self.outbox = Outbox()
        self.chooser = Chooser(lanes)
        self.fairness = FairShares(self.partitions, self.chooser)
        self.leases = Leases(Receipts(number), unacked)
        self.settling = Settling(
            self.partitions,
            self.leases,
            self.fairness.tenants,
            self.limits,
            settings=settings,
            totals=self.totals,
            random=random,
        )
        self.by_offset = SettlingByOffset(self.partitions, self.leases, self.settling)
        self.transactions = PreparedAcks(self.partitions, self.leases, self.settling, self.totals)
        self._random = random
        self._calls = 0
        self._wanted = 0  # how many messages the current receive may take
        self._chosen: list[Pick] = []

    def configure(self, settings: QueueSettings, lanes: LaneSettings) -> None:
        if (settings, lanes) == (self.settings, self.chooser.settings):
            return
        self.settings = self.limits.settings = self.settling.settings = settings
        if not settings.fair_keys:
            self._end_fairness()
        if settings.delay_ms:
            for partition in self.partitions:
                if partition.initial_delays is None:
                    partition.initial_delays = InitialDelays(((0, partition.high_watermark),))
        self.chooser.configure(lanes)
        for partition in self.partitions:
            partition.configure()

    def _end_fairness(self) -> None:
        """Make messages that were set aside for fairness choosable again."""
        for number, offset in self.fairness.tenants.release():
            partition = self.partitions[number]
            if partition.waiting.get(offset) == ASIDE_MS:
                partition.take_waiting(offset)
                partition.make_available((offset,), 0)

    # Partitions

    def add_partition(
        self,
        ledger: Ledger,
        log: PartitionLog,
        *,
        now_ms: int,
        arrived: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Add a partition, because the topic grew or because the queue is being opened.

        `arrived` gives arrival times of messages that already exist, where an initial delay
        needs them: pairs of a time and the offset before which all messages had arrived.
        """
        number, delay_ms = len(self.partitions), self.settings.delay_ms
        initial_delays = InitialDelays(arrived) if delay_ms else None
        if initial_delays is not None:
            initial_delays.note(log.high_watermark, now_ms, delay_ms)
            log = replace(log, high_watermark=initial_delays.visible_end(now_ms, delay_ms))
        partition = PartitionQueue(
            number, ledger, log, self.chooser, self.limits, self.outbox, now_ms=now_ms
        )
        partition.initial_delays = initial_delays
        self.partitions.append(partition)
        if not number:
            self._seal(partition)
        self._resume_leases(partition)
        self._resume_pending(partition)
        self.chooser.add(partition)
        partition.refresh()

    def _seal(self, first: PartitionQueue) -> None:
        """Set the secret of the receipts: the one in the ledger, or a new one, journaled."""
        if not first.ledger.secret:
            first.record(Sealed(self._random.randbytes(SECRET_BYTES)))
        self.leases.receipts.secret = first.ledger.secret

    def _resume_leases(self, partition: PartitionQueue) -> None:
        """Restore the leases of the previous owner until they expire."""
        ledger, number = partition.ledger, partition.number
        self.leases.skip_serials_to(ledger.grants.last_serial)
        for grant in partition.grants:
            offsets = grant.event.offsets
            firsts_ms = partition.firsts_ms(offsets, grant.event.granted_ms)
            self.leases.resume(grant, number, partition.index.lanes_of(offsets), firsts_ms)
        partition.grants = []
        ledger.live_leases = partial(self._lease_events, partition)

    def _lease_events(self, partition: PartitionQueue) -> list[LeaseEvent]:
        return [
            event
            for lease in self.leases
            if lease.partition == partition.number
            for event in lease.events(partition.keys_of(lease.offsets))
        ]

    def _resume_pending(self, partition: PartitionQueue) -> None:
        """Dead-letter the messages that had reached their delivery limit before the restart."""
        retries, is_last = partition.ledger.retries, self.settling.is_last
        for offset in [one for one in partition.waiting if is_last(retries[one].attempts)]:
            partition.take_waiting(offset)
            partition.dead_letter(offset, retries[offset].attempts, EXHAUSTED)

    def advance(self, number: int, high_watermark: int, now_ms: int) -> None:
        """Make messages up to `high_watermark` available; the lane index already covers them."""
        partition = self.partitions[number]
        if partition.initial_delays is not None:
            partition.initial_delays.note(high_watermark, now_ms, self.settings.delay_ms)
            high_watermark = partition.initial_delays.visible_end(now_ms, self.settings.delay_ms)
        partition.advance(high_watermark, now_ms)
        partition.refresh()

    def end_initial_delays(self, now_ms: int) -> None:
        """Make messages visible whose initial delay has elapsed."""
        for partition in self._delayed():
            self.advance(partition.number, 0, now_ms)
            if not self.settings.delay_ms:
                partition.initial_delays = None

    def next_visible_ms(self) -> int | None:
        """When the next initial delay elapses."""
        delay_ms = self.settings.delay_ms
        times = [
            one.initial_delays.next_ms(delay_ms) for one in self._delayed() if one.initial_delays
        ]
        return min((one for one in times if one is not None), default=None)

    def _delayed(self) -> list[PartitionQueue]:
        return [one for one in self.partitions if one.initial_delays is not None]

    # Receiving

    def new_call(self) -> int:
        """Return a number for a receive call that chooses and leases more than once."""
        self._calls += 1
        self.fairness.scans = 0
        return self._calls

    @property
    def takes_whole_keys(self) -> bool:
        """Whether a receive takes all it can of one key before it goes on to the next key."""
        return self.settings.key_order and self.settings.key_batches

    def expire(self, now_ms: int) -> int:
        """Take back every message whose lease has expired; return their number."""
        expired = self.leases.expired(now_ms)
        return self.settling.take_expired(expired, now_ms) if expired else 0

    def choose(self, now_ms: int, consumer: str, count_max: int) -> list[Pick]:
        """Return candidates in delivery order. Read them and call `lease` before anything else.

        With fair shares between tenants (`fairness.is_scanning`), there may be more candidates
        than are delivered.
        """
        assert not self._chosen, "the last choice has not been answered"
        settings, limits = self.settings, self.limits
        room = min(count_max, limits.room_for(consumer))
        fresh_max = settings.retrying_max - limits.retrying
        self._wanted = room
        if settings.fair_keys:
            self._chosen = self.fairness.choose(now_ms, room, fresh_max=fresh_max)
        elif self.takes_whole_keys:
            ahead = min(room * KEY_AHEAD, max(room, KEY_AHEAD_MAX))
            self._chosen = self.chooser.choose(now_ms, ahead, fresh_max=fresh_max)
        else:
            self._chosen = self.chooser.choose(now_ms, room, fresh_max=fresh_max)
        return self._chosen

    def may_choose(self, now_ms: int) -> bool:
        """Whether any message may be chosen now, whatever the limits."""
        due_ms = self.chooser.next_due_ms()
        is_due = due_ms is not None and due_ms <= now_ms
        return is_due or self.chooser.has_ready or self.settings.fair_keys

    def choose_from(
        self, number: int, now_ms: int, consumer: str, count_max: int, *, aligned_end: int = 0
    ) -> list[Pick]:
        """Return candidates of one partition, like `choose`; tenants have no shares here.

        A message in its last delivery is chosen alone, so that it cannot fail those around it.
        With `aligned_end`, they go up to there if there is any room, as the rest of a batch would
        be sent again with each of its parts.
        """
        assert not self._chosen, "the last choice has not been answered"
        partition, limits = self.partitions[number], self.limits
        consumer_room = limits.room_for(consumer)
        partition_room = self.settings.partition_unacked_max - sum(partition.in_flight)
        room = self._wanted = min(count_max, consumer_room, partition_room)
        most = min(consumer_room, LEASE_MESSAGES_MAX)
        if room <= 0:
            return []
        if self.settings.fair_keys and (
            self.fairness.tenants.is_turn_due or not self.chooser.has_from(number, now_ms)
        ):
            self._end_fairness()

        def fresh_max(left: int) -> int:
            if left == room and aligned_end:
                left = partition.distance_to(aligned_end, at_most=most) or left
            return min(left, self.settings.retrying_max - limits.retrying)

        self._chosen = self.chooser.choose_from(
            number,
            now_ms,
            room,
            fresh_max=fresh_max,
            is_alone=lambda offset: self.settling.is_last(partition.attempts_of(offset) + 1),
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
        has_receipts: bool = True,
    ) -> list[LeasedRun]:
        """Lease the chosen messages that were read; those in `gone` (partition, offset) are done.

        A receive that leases several times passes the same `call` each time, so that all of its
        leases may contain messages of the same key.
        Without receipts, the consumer settles `by_offset`, and tenants have no shares.
        An expired message is finished, one whose key is busy is parked, one whose tenant has to
        wait is set aside, and a chosen message that is not mentioned can be chosen again at once.
        """
        if call is None:
            call = self.new_call()
        drafts: dict[int, _Draft] = {}
        for pick in self._chosen:
            drafts.setdefault(pick.partition, _Draft()).choose(pick.offsets)
        self._chosen = []
        for number, offset in gone:
            drafts[number].finish(offset, Finish.SKIPPED)
        kept: list[tuple[int, Sequence[int], int]] = []
        is_fair = self.settings.fair_keys and has_receipts
        by_key = self._sift_by_key(runs, drafts, now_ms, call) if self.takes_whole_keys else None
        for run_number, run in enumerate(runs):
            draft = drafts[run.partition]
            if by_key is not None:
                positions: Sequence[int] = by_key[run_number]
            elif is_fair:
                positions = self._sift_fairly(run, draft, now_ms)
            else:
                positions = self._sift(run, draft, now_ms, call)
            if positions:
                is_whole = len(positions) == len(run.offsets)
                offsets = run.offsets if is_whole else [run.offsets[one] for one in positions]
                kept.append((run_number, positions, draft.keep(offsets)))
        until_ms = now_ms + visibility_ms
        leases = {
            number: self._grant(
                number, offsets, consumer, now_ms, until_ms, has_receipts=has_receipts
            )
            for number, draft in drafts.items()
            if (offsets := draft.kept())
        }
        if self.settings.fair_keys and not is_fair:
            self.fairness.tenants.pass_by(sum(len(positions) for _, positions, _ in kept))
        for number, draft in drafts.items():
            if any(draft.tenants):
                leases[number].tenants = draft.tenants
            self._close(self.partitions[number], draft, now_ms)
        return [
            LeasedRun(run_number, positions, leases[runs[run_number].partition], first)
            for run_number, positions, first in kept
        ]

    def _sift(self, run: Run, draft: _Draft, now_ms: int, call: int) -> Sequence[int]:
        """Return the positions of the deliverable messages; finish or park the others."""
        is_ordered = self.settings.key_order
        keys = run.keys if is_ordered else None
        assert keys is not None or not is_ordered, "key order needs keys"
        if run.expires_ms is None and keys is None:
            return range(len(run.offsets))
        key_order, positions = self.partitions[run.partition].key_order, []
        for position, offset in enumerate(run.offsets):
            expires_ms = None if run.expires_ms is None else run.expires_ms[position]
            if expires_ms is not None and expires_ms <= now_ms:
                draft.finish(offset, Finish.EXPIRED)
            elif keys is None or key_order.enter(offset, key_number(keys[position]), call):
                positions.append(position)
            else:
                draft.pass_over(offset)
        return positions

    def _sift_fairly(self, run: Run, draft: _Draft, now_ms: int) -> Sequence[int]:
        sifted = self.fairness.sift(run, now_ms, in_flight=self.leases.count)
        draft.tenants += sifted.tenants
        for offset in sifted.expired:
            draft.finish(offset, Finish.EXPIRED)
        for offset in sifted.aside:
            draft.pass_over(offset)
        return sifted.positions

    def _sift_by_key(
        self, runs: Sequence[Run], drafts: dict[int, _Draft], now_ms: int, call: int
    ) -> list[list[int]]:
        """Return, for each run, the positions of the deliverable messages, taken key by key."""
        by_key: dict[bytes | int, list[tuple[int, int]]] = {}
        for run_number, run in enumerate(runs):
            assert run.keys is not None, "key order needs keys"
            for position, key in enumerate(run.keys):
                # A message without a key is a group of its own, and stays in log order.
                name = len(by_key) if key is None else key
                by_key.setdefault(name, []).append((run_number, position))
        kept: list[list[int]] = [[] for _ in runs]
        left = self._wanted
        for messages in by_key.values():
            for run_number, position in messages:
                run = runs[run_number]
                offset, draft = run.offsets[position], drafts[run.partition]
                expires_ms = None if run.expires_ms is None else run.expires_ms[position]
                if expires_ms is not None and expires_ms <= now_ms:
                    draft.finish(offset, Finish.EXPIRED)
                elif left <= 0:
                    continue  # It can be chosen again at once.
                elif self._enter(run, position, call):
                    kept[run_number].append(position)
                    left -= 1
                else:
                    draft.pass_over(offset)
        return [sorted(positions) for positions in kept]

    def _enter(self, run: Run, position: int, call: int) -> bool:
        assert run.keys is not None
        key_order = self.partitions[run.partition].key_order
        return key_order.enter(run.offsets[position], key_number(run.keys[position]), call)

    def _grant(
        self,
        number: int,
        offsets: Sequence[int],
        consumer: str,
        now_ms: int,
        until_ms: int,
        *,
        has_receipts: bool,
    ) -> Lease:
        partition = self.partitions[number]
        attempts: Sequence[int] = _first_attempts(len(offsets))
        firsts_ms: Sequence[int] | None = None
        if partition.ledger.retries:
            attempts = [min(partition.attempts_of(one) + 1, ATTEMPTS_MAX) for one in offsets]
            firsts_ms = partition.firsts_ms(offsets, now_ms)
            self.totals.redelivered += sum(1 for one in attempts if one > 1)
        if self.settling.late.by_message:
            self.settling.late.drop([(number, offset) for offset in offsets])
        lanes = partition.index.lanes_of(offsets)
        for lane, lane_count in lane_counts(lanes):
            partition.in_flight[lane] += lane_count
            partition.out_total[lane] += lane_count
            partition.out_rates.add(lane, lane_count, now_ms)
        self.totals.delivered += len(offsets)
        lease, granted = self.leases.grant(
            consumer,
            number,
            offsets,
            attempts,
            lanes,
            now_ms=now_ms,
            until_ms=until_ms,
            firsts_ms=firsts_ms,
            keys=partition.keys_of(offsets),
            has_receipts=has_receipts,
        )
        partition.note_lease(granted)
        return lease

    def _close(self, partition: PartitionQueue, draft: _Draft, now_ms: int) -> None:
        """Finish expired and missing messages, and make the undelivered ones choosable again."""
        left = draft.left()
        if not left and not draft.finished and not partition.key_order.keys:
            return  # Everything was delivered, and `choose` has already refreshed the lanes.
        for why, offsets in draft.finished.items():
            partition.finish(offsets, why, now_ms)
            if why is Finish.EXPIRED:
                self.totals.ttl_expired += len(offsets)
            else:
                self.totals.skipped += len(offsets)
        partition.make_available(left, now_ms)
        partition.refresh()

    def release(self, leases: Iterable[Lease], now_ms: int) -> None:
        """Void leases whose messages no consumer received: deliverable again, and not counted."""
        for lease in leases:
            self.void(lease, list(lease.outstanding()), now_ms)

    def void(self, lease: Lease, indexes: Sequence[int], now_ms: int) -> None:
        """Void some messages of a lease like `release`."""
        if not indexes:
            return
        partition = self.partitions[lease.partition]
        for index in indexes:
            self.settling.take_back(lease, index)
        offsets = tuple(lease.offsets[index] for index in indexes)
        partition.note_lease(Voided(lease.id, [(one, one + 1) for one in indexes], offsets))
        for offset in offsets:
            partition.redeliver(offset, now_ms)
        partition.refresh()

    def give_back(self, now_ms: int, receipts: Sequence[str]) -> list[Settled]:
        """Void the leases of messages that never reached their consumer; no delivery is counted.

        What is not leased under its receipt any more needs nothing; a receipt must be genuine.
        """
        settled: list[Settled] = []
        held: dict[Lease, dict[int, None]] = {}
        for receipt in receipts:
            found = self.leases.find(receipt, now_ms)
            if found is not None:
                held.setdefault(found[0], {})[found[1]] = None
                settled.append(SETTLED)
                continue
            try:
                self.settling.find_message(receipt)
                settled.append(SETTLED)
            except GoQueueError as error:
                settled.append(Settled(error))
        for lease, indexes in held.items():
            self.void(lease, list(indexes), now_ms)
        return settled

    # Rewinding and purging

    def rewind(self, number: int, offset: int, now_ms: int) -> None:
        """Continue at `offset`: everything from there to the end of the log is delivered again."""
        partition = self.partitions[number]
        offset = max(partition.log_start, offset)
        leased = self._recall(number, offset)
        partition.rewind(offset, leased, now_ms)

    def purge(self, ends: Sequence[int]) -> None:
        """Finish everything before these offsets, one per partition, including what is leased."""
        for partition, end in zip(self.partitions, ends, strict=True):
            self._recall(partition.number, 0)
            partition.purge(end)

    def _recall(self, number: int, offset: int) -> list[int]:
        """Void the leases of messages from `offset` on; return the leased offsets before it."""
        self.settling.late.clear()
        kept: list[int] = []
        for lease in self.leases:
            if lease.partition != number:
                continue
            for index in list(lease.outstanding()):
                if lease.offsets[index] >= offset:
                    self.settling.take_back(lease, index)
                else:
                    kept.append(lease.offsets[index])
        return kept


@lru_cache(maxsize=SIZES_CACHED)
def _first_attempts(count: int) -> bytes:
    """Return the attempts of `count` first deliveries; leases of the same size share the value."""
    return b"\x01" * count


class _Draft:
    """The decisions of a receive call about the chosen messages of one partition."""

    __slots__ = ("_chosen", "_kept", "_kept_count", "_passed", "finished", "tenants")

    def __init__(self) -> None:
        self.finished: dict[Finish, list[int]] = {}
        self.tenants: list[Tenant | None] = []  # of the leased messages, with fair shares
        self._chosen: list[Sequence[int]] = []
        self._kept: list[Sequence[int]] = []
        self._kept_count = 0
        self._passed: list[int] = []

    def choose(self, offsets: Sequence[int]) -> None:
        self._chosen.append(offsets)

    def keep(self, offsets: Sequence[int]) -> int:
        """Lease these; return the index of the first in the lease."""
        first = self._kept_count
        self._kept.append(offsets)
        self._kept_count += len(offsets)
        return first

    def finish(self, offset: int, why: Finish) -> None:
        self.finished.setdefault(why, []).append(offset)

    def pass_over(self, offset: int) -> None:
        """Leave out a message that is now parked or set aside elsewhere in the queue."""
        self._passed.append(offset)

    def kept(self) -> Sequence[int]:
        """Return the leased offsets, as a range where they are contiguous."""
        if len(self._kept) == 1:
            return self._kept[0]
        are_stretches = bool(self._kept) and all(isinstance(one, range) for one in self._kept)
        if are_stretches and all(one[-1] + 1 == two[0] for one, two in pairwise(self._kept)):
            return range(self._kept[0][0], self._kept[-1][-1] + 1)
        return list(chain.from_iterable(self._kept))

    def left(self) -> list[int]:
        """Return the chosen offsets that no decision mentions, sorted."""
        chosen_count = sum(map(len, self._chosen))
        handled = self._kept_count + len(self._passed) + sum(map(len, self.finished.values()))
        assert handled <= chosen_count, "a message was read that was not chosen"
        if handled == chosen_count:
            return []
        left = set(chain.from_iterable(self._chosen))
        left.difference_update(self._passed, *self._kept, *self.finished.values())
        return sorted(left)
