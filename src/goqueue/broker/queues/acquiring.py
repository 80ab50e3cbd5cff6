"""Leases of records that their holder reads itself, from the leader of their partition.

Members of share groups name records by partition and offset, so the owner of the group need not
read them, unless keys or times to live decide what may be delivered. They also return them by the
name of the member, when its session ends or a response has no room for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise

from goqueue.broker.queues.host import ROUNDS_MAX, HostedQueue, ReceiveCall
from goqueue.delivery import NORMAL, Lease, Pick, Run


@dataclass(slots=True, eq=False)
class Acquired:
    """Leases of records, at most one for each partition."""

    leases: list[Lease] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.leases)


@dataclass(slots=True, eq=False)
class Acquirer(ReceiveCall[Acquired]):
    """A call that leases records of some partitions, in their order.

    `aligned_ends` has for each partition an offset up to which to lease new records where that is
    near the wanted number, so that leases end with batches; 0 if the number is all that counts.
    Where others have taken those records since, `look_ahead` returns such an offset by partition
    and next offset.
    """

    aligned_ends: Mapping[int, int] = field(default_factory=dict)
    look_ahead: Callable[[int, int], int] | None = None
    session_id: int = 0  # in which the records are leased
    on_lease: Callable[[Acquirer], None] | None = None  # called as soon as anything is leased
    leased_count: int = 0

    @property
    def partitions(self) -> Collection[int]:
        return self.aligned_ends.keys()

    def nothing(self) -> Acquired:
        return Acquired()

    def collect(self, hosted: HostedQueue) -> Acquired:
        acquired, room = Acquired(), self.count_max
        call = hosted.queue.new_call()
        hosted.expect_nothing()
        for number in self.aligned_ends:
            if room <= 0 or number >= len(hosted.sources):
                continue
            aligned_end = partial(self._aligned_end, number)
            for _ in range(ROUNDS_MAX):
                picks = hosted.queue.choose_from(
                    number, hosted.now_ms, self.consumer, room, aligned_end=aligned_end
                )
                lease = self._lease(hosted, number, picks, call) if picks else None
                if lease is not None:
                    acquired.leases.append(lease)
                    room -= len(lease.offsets)
                if lease is not None or not picks or hosted.is_awaiting:
                    break
            else:
                hosted.is_searching = True
        if acquired.leases:
            hosted.is_searching = False
            self.leased_count = self.count_max - room
            if self.on_lease is not None:
                self.on_lease(self)
        return acquired

    def _aligned_end(self, number: int, next_offset: int) -> int:
        aligned_end = self.aligned_ends[number]
        if aligned_end > next_offset or self.look_ahead is None:
            return aligned_end
        return self.look_ahead(number, next_offset)

    def _lease(
        self, hosted: HostedQueue, number: int, picks: Sequence[Pick], call: int
    ) -> Lease | None:
        """Lease the chosen records that may be delivered."""
        offsets = _in_log_order(picks)
        runs, gone = [Run(number, offsets)], []
        if hosted.must_read(number):
            reading = hosted.read([Pick(number, NORMAL, offsets)], is_first=True)
            runs, gone = reading.runs, reading.gone
            hosted.is_awaiting = hosted.is_awaiting or reading.is_awaiting
            if reading.error is not None and not runs:
                raise reading.error
        leased = hosted.queue.lease(
            hosted.now_ms,
            self.consumer,
            runs,
            visibility_ms=self.visibility_ms,
            gone=gone,
            call=call,
            has_receipts=False,
        )
        if not leased:
            return None
        leased[0].lease.session_id = self.session_id
        return leased[0].lease


def return_held(
    hosted: HostedQueue,
    consumer: str,
    number: int,
    is_over: Callable[[Lease], bool],
    *,
    is_counted: bool,
    at_most: int,
) -> int:
    """Return messages of a consumer's leases in a partition; return how many.

    They count as failed, or as never delivered.
    """
    now_ms, queue = hosted.see_time_pass(), hosted.queue
    room = at_most
    for lease in queue.by_offset.held(consumer, number):
        positions = lease.outstanding(at_most=room) if is_over(lease) else ()
        if positions and is_counted:
            queue.by_offset.fail(lease, positions, now_ms)
        elif positions:
            queue.void(lease, positions, now_ms)
        room -= len(positions)
    hosted.settle()
    hosted.wake()
    return at_most - room


def void_held(
    hosted: HostedQueue, consumer: str, number: int, ranges: Sequence[tuple[int, int]]
) -> None:
    """Return ranges (first, last) that never reached the consumer, and that it may hold."""
    now_ms, queue = hosted.see_time_pass(), hosted.queue
    for first, last in ranges:
        for lease, positions in list(queue.by_offset.find(consumer, number, first, last)):
            queue.void(lease, positions, now_ms)
    hosted.settle()
    hosted.wake()


def _in_log_order(picks: Sequence[Pick]) -> Sequence[int]:
    """Return the offsets of all picks in ascending order, as a range if they are contiguous."""
    parts = [pick.offsets for pick in picks]
    if all(isinstance(one, range) for one in parts) and all(
        one[-1] + 1 == two[0] for one, two in pairwise(parts)
    ):
        return range(parts[0][0], parts[-1][-1] + 1)
    return sorted(chain.from_iterable(parts))
