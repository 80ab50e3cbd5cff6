"""Leases of records that their holder reads itself, from the leader of their partition.

Members of share groups name records by partition and offset, so the owner of the group need not
read them, unless keys or times to live decide what may be delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """

    aligned_ends: Mapping[int, int] = field(default_factory=dict)
    session_id: int = 0  # in which the records are leased
    on_lease: Callable[[Acquirer], None] | None = None  # called as soon as anything is leased
    leased_count: int = 0

    @property
    def is_selective(self) -> bool:
        return True

    def nothing(self) -> Acquired:
        return Acquired()

    def collect(self, hosted: HostedQueue) -> Acquired:
        acquired, room = Acquired(), self.count_max
        call = hosted.queue.new_call()
        hosted.expect_nothing()
        for number, aligned_end in self.aligned_ends.items():
            if room <= 0 or number >= len(hosted.sources):
                continue
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
        if acquired.leases:
            self.leased_count = self.count_max - room
            if self.on_lease is not None:
                self.on_lease(self)
        return acquired

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


def _in_log_order(picks: Sequence[Pick]) -> Sequence[int]:
    """Return the offsets of all picks in ascending order, as a range if they are contiguous."""
    parts = [pick.offsets for pick in picks]
    if all(isinstance(one, range) for one in parts) and all(
        one[-1] + 1 == two[0] for one, two in pairwise(parts)
    ):
        return range(parts[0][0], parts[-1][-1] + 1)
    return sorted(chain.from_iterable(parts))
