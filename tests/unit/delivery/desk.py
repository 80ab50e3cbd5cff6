"""A topic and the queues on it, with a journal that can be read again after a crash."""

from __future__ import annotations

import random
from collections.abc import Sequence

from goqueue.delivery import (
    Arrivals,
    Delivery,
    Ended,
    LaneIndex,
    LaneSettings,
    Ledger,
    LedgerKey,
    PartitionLog,
    Pick,
    Queue,
    QueueSettings,
    Run,
    Settled,
    decode_events,
    decode_key,
    encode_events,
    encode_key,
)
from goqueue.delivery.lanes import NORMAL

TOPIC_ID = bytes(range(16))
GRAVE_ID = bytes(range(16, 32))
START_MS = 1_000_000
ROUNDS_MAX = 8


class Topic:
    """Partitions with their lanes, arrivals and the keys of their messages."""

    def __init__(self, partition_count: int = 1) -> None:
        self.now_ms = START_MS
        self.keys: list[list[bytes | None]] = []
        self.expiries: dict[tuple[int, int], int] = {}
        self.gone: set[tuple[int, int]] = set()
        self.indexes: list[LaneIndex] = []
        self.arrivals: list[Arrivals] = []
        self.starts: list[int] = []
        self.queues: list[Desk] = []
        for _ in range(partition_count):
            self.grow()

    def grow(self) -> None:
        self.keys.append([])
        self.indexes.append(LaneIndex())
        self.arrivals.append(Arrivals(0, self.now_ms))
        self.starts.append(0)
        for desk in self.queues:
            desk.add_partition(len(self.keys) - 1)

    def produce(
        self,
        count: int = 1,
        *,
        partition: int = 0,
        lane: int = NORMAL,
        key: bytes | None = None,
        ttl_ms: int | None = None,
    ) -> list[int]:
        first = len(self.keys[partition])
        self.keys[partition] += [key] * count
        last = first + count - 1
        self.indexes[partition].note(first, last, lane)
        self.arrivals[partition].note(first, self.now_ms)
        if ttl_ms is not None:
            for offset in range(first, last + 1):
                self.expiries[partition, offset] = self.now_ms + ttl_ms
        for desk in self.queues:
            desk.queue.advance(partition, last + 1, self.now_ms)
        return list(range(first, last + 1))

    def end(self, partition: int) -> int:
        return len(self.keys[partition])


class Desk:
    """One group at the topic."""

    def __init__(
        self,
        topic: Topic | None = None,
        settings: QueueSettings | None = None,
        lanes: LaneSettings | None = None,
        *,
        group: str = "shop",
        seed: int = 0,
        number: int = 7,
    ) -> None:
        self.topic = topic or Topic()
        self.settings = settings or QueueSettings(backoff_jitter=0.0)
        self.lanes = lanes or LaneSettings()
        self.group = group
        self.number = number
        self.random = random.Random(seed)
        self.journal: list[tuple[bytes, bytes] | Ended] = []
        self.note_dead_lettered: list[tuple[int, int, str, int]] = []
        self.topic.queues.append(self)
        self.open()

    def open(self) -> None:
        """Begin with what the journal says, as after a crash."""
        self.ledgers = self.replayed()
        self.queue = Queue(self.number, self.settings, self.lanes, random=self.random)
        for number in range(len(self.topic.keys)):
            self.add_partition(number)
        self.save()

    def add_partition(self, number: int) -> None:
        self.queue.add_partition(
            self.ledgers.setdefault(number, Ledger()),
            PartitionLog(
                self.topic.indexes[number],
                self.topic.arrivals[number],
                start=self.topic.starts[number],
                end=self.topic.end(number),
                high_watermark=self.topic.end(number),
            ),
            now_ms=self.topic.now_ms,
        )

    def replayed(self) -> dict[int, Ledger]:
        ledgers: dict[int, Ledger] = {}
        for entry in self.journal:
            if isinstance(entry, Ended):
                for ledger in ledgers.values():
                    ledger.apply(entry)
                continue
            key, value = entry
            name = decode_key(key)
            assert (name.group, name.topic_id) == (self.group, TOPIC_ID)
            for event in decode_events(value):
                ledgers.setdefault(name.partition, Ledger()).apply(event)
        return ledgers

    def save(self) -> None:
        """Write down what the queue wants written."""
        for number, events in self.queue.outbox.take_events():
            key = encode_key(LedgerKey(self.group, TOPIC_ID, number))
            self.journal.append((key, encode_events(events)))

    def write_out(self) -> None:
        """Want the whole state written, as the broker does to keep its journal short."""
        for number, partition in enumerate(self.queue.partitions):
            written = partition.ledger.written_out()
            self.queue.outbox.events.setdefault(number, []).extend(written)

    def discard(self) -> None:
        """Move the dead letters, as the broker does."""
        for one in self.queue.outbox.take_dead_letters():
            self.note_dead_lettered.append((one.partition, one.offset, one.reason, one.attempts))
            end = len(self.note_dead_lettered)
            self.queue.settling.note_dead_lettered(
                [one], self.topic.now_ms, topic_id=GRAVE_ID, partition=0, end=end
            )
        self.save()

    def receive(
        self, count: int = 10, *, consumer: str = "anna", visibility_ms: int | None = None
    ) -> list[Delivery]:
        """Choose and lease; where tenants have fair shares, as often as the broker does."""
        deliveries: list[Delivery] = []
        call = self.queue.new_call()
        for _ in range(ROUNDS_MAX if self.settings.fair_keys else 1):
            picks = self.queue.choose(self.topic.now_ms, consumer, count - len(deliveries))
            deliveries += self._lease(picks, consumer, visibility_ms, call)
            if not picks:
                break
        self.save()
        return deliveries

    def _lease(
        self, picks: Sequence[Pick], consumer: str, visibility_ms: int | None, call: int
    ) -> list[Delivery]:
        topic, runs, gone = self.topic, [], []
        for pick in picks:
            places = [(pick.partition, offset) for offset in pick.offsets]
            start = topic.starts[pick.partition]
            lost = [one for one in places if one in topic.gone or one[1] < start]
            gone += lost
            offsets = [offset for number, offset in places if (number, offset) not in lost]
            runs.append(
                Run(
                    pick.partition,
                    offsets,
                    [topic.keys[pick.partition][offset] for offset in offsets],
                    [topic.expiries.get((pick.partition, offset)) for offset in offsets],
                )
            )
        handed = self.queue.lease(
            topic.now_ms,
            consumer,
            runs,
            visibility_ms=self.settings.visibility_ms if visibility_ms is None else visibility_ms,
            gone=gone,
            call=call,
        )
        for part in handed:
            told = [runs[part.run].offsets[place] for place in part.positions]
            assert told == [one.offset for one in part.deliveries()]
        return [one for part in handed for one in part.deliveries()]

    def offsets(self, count: int = 10, **options: object) -> list[int]:
        """Receive, and tell the offsets alone."""
        return [one.offset for one in self.receive(count, **options)]  # type: ignore[arg-type]

    def ack(self, deliveries: Sequence[Delivery]) -> list[Settled]:
        return self._saved(self.queue.settling.ack(self.topic.now_ms, receipts(deliveries)))

    def nack(self, deliveries: Sequence[Delivery], delay_ms: int | None = None) -> list[Settled]:
        settled = self.queue.settling.nack(
            self.topic.now_ms, receipts(deliveries), delay_ms=delay_ms
        )
        return self._saved(settled)

    def reject(self, deliveries: Sequence[Delivery], reason: str = "broken") -> list[Settled]:
        settled = self.queue.settling.reject(self.topic.now_ms, receipts(deliveries), reason=reason)
        return self._saved(settled)

    def extend(self, deliveries: Sequence[Delivery], visibility_ms: int) -> list[Settled]:
        now_ms = self.topic.now_ms
        settled = self.queue.settling.extend(
            now_ms, receipts(deliveries), visibility_ms=visibility_ms
        )
        return self._saved(settled)

    def prepare(self, deliveries: Sequence[Delivery], producer_id: int = 1) -> list[Settled]:
        """Acknowledge in a transaction: write the plan, and carry it out."""
        plan = self.queue.transactions.plan(self.topic.now_ms, receipts(deliveries), producer_id)
        self.save()
        for number, event in plan.events:
            key = encode_key(LedgerKey(self.group, TOPIC_ID, number))
            self.journal.append((key, encode_events([event])))
        self.queue.transactions.prepare(plan)
        return plan.settled

    def end(self, producer_id: int = 1, *, is_commit: bool) -> None:
        """The marker is written, and then the queue is told."""
        self.journal.append(Ended(producer_id, is_commit))
        self.queue.transactions.end(producer_id, self.topic.now_ms, is_commit=is_commit)

    def next_wake_ms(self) -> int | None:
        """When the state may change by itself: a retry is due, or a lease expires."""
        times = (self.queue.chooser.next_due_ms(), self.queue.leases.next_expiry_ms())
        return min((one for one in times if one is not None), default=None)

    def pass_time(self, ms: int) -> None:
        self.topic.now_ms += ms
        self.queue.expire(self.topic.now_ms)
        self.save()

    def _saved(self, settled: list[Settled]) -> list[Settled]:
        self.save()
        return settled


def receipts(deliveries: Sequence[Delivery]) -> list[str]:
    return [one.receipt for one in deliveries]


def errors(settled: Sequence[Settled]) -> list[str | None]:
    return [None if one.error is None else one.error.code for one in settled]
