"""The partitions of a queue: how their logs advance and are trimmed, and their durable events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from random import Random

from goqueue.delivery.arrivals import Arrivals
from goqueue.delivery.choosing import Chooser, Pick
from goqueue.delivery.fairness import ASIDE_MS, Tenants
from goqueue.delivery.grants import LeaseEvent
from goqueue.delivery.initial_delays import InitialDelays
from goqueue.delivery.key_runs import KeyRuns
from goqueue.delivery.lanes import LaneIndex
from goqueue.delivery.late_receipts import LateReceipts
from goqueue.delivery.leases import Leases, Unacked
from goqueue.delivery.ledger import Event, Finish, Ledger, Sealed
from goqueue.delivery.partition_queue import Burden, DeadLetter, PartitionQueue
from goqueue.delivery.receipts import SECRET_BYTES, Receipts
from goqueue.delivery.settings import LaneSettings, QueueSettings
from goqueue.delivery.views import Totals

EXHAUSTED = "deliveries_exhausted"


class QueuePartitions:
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
        """`number` identifies this queue in receipts; a group's queues share `unacked`.

        The secret that authenticates its receipts comes with the ledger of its first partition.
        """
        self.number = number
        self.settings = settings
        self.totals = Totals()
        self.partitions: list[PartitionQueue] = []
        self.unacked = unacked if unacked is not None else Unacked()
        self.receipts = Receipts(number)
        self.leases = Leases(self.receipts, self.unacked)
        self.chooser = Chooser(lanes)
        self.tenants = Tenants()
        self._late = LateReceipts()
        self._calls = 0
        self._wanted = 0  # how many messages the current receive may take
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
        """Add a partition, because the topic grew or because the queue is being opened.

        `arrived` gives arrival times of messages that already exist, where an initial delay
        needs them: pairs of a time and the offset before which all messages had arrived.
        """
        number, delay_ms = len(self.partitions), self.settings.delay_ms
        initial_delays = InitialDelays(arrived) if delay_ms else None
        if initial_delays is not None:
            initial_delays.note(high_watermark, now_ms, delay_ms)
            high_watermark = initial_delays.visible_end(now_ms, delay_ms)
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
        partition.initial_delays = initial_delays
        self.partitions.append(partition)
        if not number:
            self._seal(partition)
        self._resume_leases(partition)
        self._resume_pending(partition)
        if partition.events:
            self._changed[number] = None
        self.chooser.add(partition)
        self._refresh(partition)

    def _seal(self, first: PartitionQueue) -> None:
        """Set the secret of the receipts: the one in the ledger, or a new one, journaled."""
        if not first.ledger.secret:
            first.record(Sealed(self._random.randbytes(SECRET_BYTES)))
        self.receipts.secret = first.ledger.secret

    def _resume_leases(self, partition: PartitionQueue) -> None:
        """Restore the leases of the previous owner until they expire."""
        ledger, number = partition.ledger, partition.number
        self.leases.go_on_from(ledger.grants.last_serial)
        for grant in partition.grants:
            offsets = grant.event.offsets
            firsts_ms = partition.firsts_ms(offsets, grant.event.granted_ms)
            lanes = bytes(partition.index.lane_of(one) for one in offsets)
            self.leases.resume(grant, number, lanes, firsts_ms)
        partition.grants = []
        ledger.live_leases = partial(self._lease_events, partition)

    def _resume_pending(self, partition: PartitionQueue) -> None:
        """Dead-letter the messages that had reached their delivery limit before the restart."""
        retries, most = partition.ledger.retries, self.settings.deliveries_max
        for offset in [one for one in partition.waiting if 0 < most <= retries[one].attempts]:
            partition.take_waiting(offset)
            letter = partition.make_dead_letter(offset, retries[offset].attempts, EXHAUSTED)
            self._dead_letters.append(letter)

    def _lease_events(self, partition: PartitionQueue) -> list[LeaseEvent]:
        return [
            event
            for lease in self.leases
            if lease.partition == partition.number
            for event in lease.events(partition.keys_of(lease.offsets))
        ]

    def advance(self, number: int, high_watermark: int, now_ms: int) -> None:
        """Make messages up to `high_watermark` available; the lane index already covers them."""
        partition = self.partitions[number]
        if partition.initial_delays is not None:
            partition.initial_delays.note(high_watermark, now_ms, self.settings.delay_ms)
            high_watermark = partition.initial_delays.visible_end(now_ms, self.settings.delay_ms)
        partition.advance(high_watermark, now_ms)
        self._refresh(partition)

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

    def start_moved(self, number: int, log_start: int, now_ms: int) -> None:
        """Follow a new log start. Call this before the lane index drops the removed offsets."""
        partition = self.partitions[number]
        self._resume(partition, partition.start_moved(log_start), now_ms)
        self._refresh(partition)

    def configure(self, settings: QueueSettings, lanes: LaneSettings) -> None:
        if (settings, lanes) == (self.settings, self.chooser.settings):
            return
        self.settings = settings
        if not settings.fair_keys:
            self._end_fairness()
        if settings.delay_ms:
            for partition in self.partitions:
                if partition.initial_delays is None:
                    partition.initial_delays = InitialDelays(((0, partition.high_watermark),))
        self.chooser.configure(lanes)
        for partition in self.partitions:
            partition.set_key_batches(settings.key_batches)
            self._refresh(partition)

    def _end_fairness(self) -> None:
        """Make messages that were set aside for fairness choosable again."""
        for number, offset in self.tenants.release():
            partition = self.partitions[number]
            if partition.waiting.get(offset) == ASIDE_MS:
                partition.take_waiting(offset)
                self._resume(partition, (offset,), 0)

    # Finishing and resuming

    def _finish(
        self, partition: PartitionQueue, offsets: Sequence[int], why: Finish, now_ms: int
    ) -> None:
        self._resume(partition, partition.finish(offsets, why), now_ms)
        self._changed[partition.number] = None

    def _resume(self, partition: PartitionQueue, offsets: Sequence[int], now_ms: int) -> None:
        """Make these messages choosable before all others; retries only when they are due."""
        if not offsets:
            return
        retries, turns_ms = partition.ledger.retries, dict.fromkeys(offsets, now_ms)
        for offset in offsets:
            if offset in retries:
                turns_ms[offset] = max(now_ms, retries[offset].due_ms)
        if isinstance(partition.lines, KeyRuns):
            turns_ms = partition.lines.in_turn(turns_ms)
        for offset, due_ms in turns_ms.items():
            if offset in partition.waiting:
                partition.take_waiting(offset)  # Its due time may have changed.
            partition.wait(offset, due_ms)
            self.chooser.queue_one(partition.number, offset, due_ms)

    def _refresh(self, partition: PartitionQueue) -> None:
        self.chooser.refresh(partition, parked_max=self.settings.parked_max)

    # Output for the caller

    def mark_changed(self, number: int) -> None:
        """Note that an event was recorded directly in a partition."""
        self._changed[number] = None

    @property
    def has_events(self) -> bool:
        return bool(self._changed)

    def take_events(self) -> list[tuple[int, list[Event]]]:
        """Return the events of each partition since the last call, in order."""
        changed, self._changed = self._changed, {}
        taken: list[tuple[int, list[Event]]] = []
        for number in changed:
            partition = self.partitions[number]
            events, partition.events = partition.events, []
            if events:
                taken.append((number, events))
        return taken

    def take_dead_letters(self) -> list[DeadLetter]:
        """Return the messages that became dead letters since the last call."""
        letters, self._dead_letters = self._dead_letters, []
        return letters
