"""Messages scheduled in open transactions: ranges of the log, until the transactions end."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.delivery.schedules.records import NumberRange
from goqueue.model.errors import TransactionAbortable

RANGES_MAX = 100_000  # per transaction; interleaved writes of others split its ranges

PendingState = list[tuple[int, list[NumberRange]]]


class Pending:
    """For each producer, where its transaction has stored messages.

    Only their positions: the messages are read again when the transaction commits, so that a
    transaction of any size costs little memory.
    """

    __slots__ = ("_ranges",)

    def __init__(self, state: PendingState | None = None) -> None:
        self._ranges: dict[int, list[NumberRange]] = {
            producer_id: [(first, last) for first, last in ranges]
            for producer_id, ranges in state or ()
        }

    def __iter__(self) -> Iterator[int]:
        """Iterate over the producer ids."""
        return iter(list(self._ranges))

    def check_room(self, producer_id: int) -> None:
        """Refuse a transaction that is spread over too many ranges of the log."""
        if len(self._ranges.get(producer_id, ())) >= RANGES_MAX:
            raise TransactionAbortable(
                f"A transaction may store delayed messages in {RANGES_MAX} ranges of the log; "
                "abort it, and publish larger batches or use more transactions."
            )

    def add(self, producer_id: int, first: int, last: int) -> None:
        """Add the messages from number `first` to `last` to a transaction."""
        ranges = self._ranges.setdefault(producer_id, [])
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))

    def end(self, producer_id: int) -> list[NumberRange]:
        """Remove an ended transaction; return the ranges that it had stored."""
        return self._ranges.pop(producer_id, [])

    def state(self) -> PendingState:
        return [(one, list(ranges)) for one, ranges in self._ranges.items()]
