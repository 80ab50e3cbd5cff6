"""Inspection of a queue: its statistics, and the state of single messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Literal, NamedTuple

import msgspec

from goqueue.delivery.fairness import ASIDE_MS
from goqueue.delivery.lanes import Rates
from goqueue.delivery.partition_queue import PartitionQueue
from goqueue.delivery.queue import Queue
from goqueue.delivery.settings import LANE_COUNT, LANE_NAMES
from goqueue.delivery.settling import Totals
from goqueue.model.tenants import Text

PEEK_MESSAGES_MAX = 1000

State = Literal[
    "ready", "leased", "prepared", "retrying", "parked", "dead_lettering", "done", "not_there"
]


class MessageState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one message in one group."""

    partition: int
    offset: int
    lane: Text
    state: State
    attempts: int = 0  # deliveries, including the current one
    consumer: Text | None = None
    until_ms: int | None = None  # when the lease expires
    due_ms: int | None = None  # when it may be delivered again


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    lane: Text
    ready: int
    in_flight: int
    in_total: int
    out_total: int
    in_per_second: float  # recent rate, mostly the last ten seconds
    out_per_second: float
    oldest_age_ms: int
    longest_wait_ms: int


class PartitionStats(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    ready: int
    in_flight: int
    retrying: int
    parked: int
    dead_lettering: int
    prepared: int  # of those in flight: acknowledged in a transaction that has not ended
    delayed: int  # not yet visible because of the initial delay
    in_total: int
    out_total: int
    in_per_second: float
    out_per_second: float
    done_before: int  # everything below this offset is done
    high_watermark: int
    oldest_age_ms: int
    lanes: Sequence[int]  # ready messages in each lane

    @property
    def open_count(self) -> int:
        """How many messages are not done, in whatever state."""
        return self.ready + self.in_flight + self.retrying + self.parked + self.dead_lettering


class Backlog(NamedTuple):
    """What a group has left to do in a partition."""

    messages: int  # in any state but done
    in_flight: int
    oldest_age_ms: int  # of these messages; 0 if there are none


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    ready: int
    in_flight: int
    retrying: int
    parked: int
    dead_lettering: int
    prepared: int
    delayed: int
    totals: Totals
    lanes: Sequence[LaneStats]
    partitions: Sequence[PartitionStats]


def peek(queue: Queue, number: int, offsets: Sequence[int]) -> list[MessageState]:
    """Return the state of each of these offsets of a partition."""
    partition = queue.partitions[number]
    offsets = offsets[:PEEK_MESSAGES_MAX]
    wanted = set(offsets)
    leased: dict[int, tuple[str, int, int]] = {}
    for lease in queue.leases:
        if lease.partition == number:
            for index in lease.outstanding():
                if lease.offsets[index] in wanted:
                    leased[lease.offsets[index]] = (
                        lease.consumer,
                        lease.until_of(index),
                        lease.attempts[index],
                    )
    parked = wanted.intersection(partition.key_order.parked())
    return [_state(partition, offset, leased, parked) for offset in offsets]


def _state(
    partition: PartitionQueue,
    offset: int,
    leased: dict[int, tuple[str, int, int]],
    parked: set[int],
) -> MessageState:
    lane = LANE_NAMES[partition.index.lane_of(offset)]
    number, attempts = partition.number, partition.attempts_of(offset)
    if not 0 <= offset < partition.high_watermark:
        return MessageState(partition=number, offset=offset, lane=lane, state="not_there")
    if offset in leased:
        consumer, until_ms, attempts = leased[offset]
        return MessageState(
            partition=number,
            offset=offset,
            lane=lane,
            state="leased",
            attempts=attempts,
            consumer=consumer,
            until_ms=until_ms,
        )
    if partition.ledger.is_done(offset):
        return MessageState(partition=number, offset=offset, lane=lane, state="done")
    if offset in partition.prepared:
        attempts = _prepared_attempts(partition, offset)
        return MessageState(
            partition=number, offset=offset, lane=lane, state="prepared", attempts=attempts
        )
    letter = partition.pending_letters.get(offset)
    if letter is not None:
        attempts = letter.attempts
        return MessageState(
            partition=number, offset=offset, lane=lane, state="dead_lettering", attempts=attempts
        )
    if offset in parked:
        return MessageState(
            partition=number, offset=offset, lane=lane, state="parked", attempts=attempts
        )
    due_ms = partition.waiting.get(offset) if attempts else None
    if due_ms == ASIDE_MS:
        due_ms = None  # It is set aside: deliverable as soon as it is its tenant's turn.
    return MessageState(
        partition=number,
        offset=offset,
        lane=lane,
        state="ready" if due_ms is None else "retrying",
        attempts=attempts,
        due_ms=due_ms,
    )


def _prepared_attempts(partition: PartitionQueue, offset: int) -> int:
    owners = partition.ledger.prepared.values()
    return next(retries[offset].attempts for retries in owners if offset in retries)


def stats(queue: Queue, now_ms: int) -> QueueStats:
    """Return the statistics of the queue, its lanes and its partitions."""
    partitions = [partition_stats(one, now_ms) for one in queue.partitions]
    return QueueStats(
        ready=sum(one.ready for one in partitions),
        in_flight=sum(one.in_flight for one in partitions),
        retrying=sum(one.retrying for one in partitions),
        parked=sum(one.parked for one in partitions),
        dead_lettering=sum(one.dead_lettering for one in partitions),
        prepared=sum(one.prepared for one in partitions),
        delayed=sum(one.delayed for one in partitions),
        totals=queue.totals,
        lanes=[_lane_stats(queue, lane, now_ms) for lane in range(LANE_COUNT)],
        partitions=partitions,
    )


def _delayed(partition: PartitionQueue) -> int:
    if partition.initial_delays is None:
        return 0
    first, end = partition.high_watermark, partition.initial_delays.known_end
    return sum(partition.index.counts(first, end)) if end > first else 0


def _lane_stats(queue: Queue, lane: int, now_ms: int) -> LaneStats:
    oldest_ms = queue.chooser.oldest_ms(lane)
    return LaneStats(
        lane=LANE_NAMES[lane],
        ready=sum(one.ready[lane] for one in queue.partitions),
        in_flight=sum(one.in_flight[lane] for one in queue.partitions),
        in_total=sum(one.in_total[lane] for one in queue.partitions),
        out_total=sum(one.out_total[lane] for one in queue.partitions),
        in_per_second=_rate([one.in_rates for one in queue.partitions], (lane,), now_ms),
        out_per_second=_rate([one.out_rates for one in queue.partitions], (lane,), now_ms),
        oldest_age_ms=0 if oldest_ms is None else max(0, now_ms - oldest_ms),
        longest_wait_ms=queue.chooser.longest_wait_ms[lane],
    )


def partition_stats(partition: PartitionQueue, now_ms: int) -> PartitionStats:
    """Return the statistics of one partition."""
    lanes = [lane for lane in range(LANE_COUNT) if partition.ready[lane]]
    held_up = len(partition.waiting) - partition.retrying_count
    due = _due_retries(partition, now_ms)
    arrived = [partition.oldest_ms(lane) for lane in lanes]
    if due:
        arrived.append(partition.arrived_ms(min(due)))
    oldest_ms = min(arrived, default=now_ms)
    return PartitionStats(
        partition=partition.number,
        ready=sum(partition.ready) + held_up + len(due),
        in_flight=sum(partition.in_flight),
        retrying=partition.retrying_count - len(due),
        parked=partition.key_order.parked_count,
        dead_lettering=len(partition.pending_letters),
        prepared=len(partition.prepared),
        delayed=_delayed(partition),
        in_total=sum(partition.in_total),
        out_total=sum(partition.out_total),
        in_per_second=_rate([partition.in_rates], range(LANE_COUNT), now_ms),
        out_per_second=_rate([partition.out_rates], range(LANE_COUNT), now_ms),
        done_before=partition.ledger.floor,
        high_watermark=partition.high_watermark,
        oldest_age_ms=max(0, now_ms - oldest_ms),
        lanes=tuple(partition.ready),
    )


def _due_retries(partition: PartitionQueue, now_ms: int) -> list[int]:
    """Return the messages that were delivered before and can be again, now."""
    if not partition.retrying_count:
        return []
    waiting, retries = partition.waiting, partition.ledger.retries
    due = list(compress(waiting, map(now_ms.__ge__, waiting.values())))
    return (
        due if partition.retrying_count == len(waiting) else [one for one in due if one in retries]
    )


def backlog(partition: PartitionQueue, now_ms: int) -> Backlog:
    """Return what is left of a partition, at less cost than all its statistics."""
    in_flight = sum(partition.in_flight)
    waiting = len(partition.waiting) + partition.key_order.parked_count
    messages = sum(partition.ready) + in_flight + waiting + len(partition.pending_letters)
    # The oldest one, in whatever state, is where everything before is done.
    oldest_ms = partition.arrived_ms(partition.ledger.floor) if messages else now_ms
    return Backlog(messages, in_flight, max(0, now_ms - oldest_ms))


def _rate(rates: Sequence[Rates], lanes: Iterable[int], now_ms: int) -> float:
    return round(sum(one.per_second(lane, now_ms) for lane in lanes for one in rates), 3)
