"""Messages scheduled in open transactions: ranges of the log, until the transactions end."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.model.errors import TransactionAbortable

STRETCHES_MAX = 100_000  # per transaction; interleaved writes of others split its ranges

Stretch = tuple[int, int]  # the first number, and the last

PendingState = list[tuple[int, list[Stretch]]]


class Pending:
    """For each producer, where its transaction has stored messages.

    Only their positions: the messages are read again when the transaction commits, so that a
    transaction of any size costs little memory.
    """

    __slots__ = ("_stretches",)

    def __init__(self, state: PendingState | None = None) -> None:
        self._stretches: dict[int, list[Stretch]] = {
            producer_id: [(first, last) for first, last in stretches]
            for producer_id, stretches in state or ()
        }

    def __iter__(self) -> Iterator[int]:
        """Iterate over the producer ids."""
        return iter(list(self._stretches))

    def check_room(self, producer_id: int) -> None:
        """Refuse a transaction that is spread over too many ranges of the log."""
        if len(self._stretches.get(producer_id, ())) >= STRETCHES_MAX:
            raise TransactionAbortable(
                f"A transaction may store delayed messages in {STRETCHES_MAX} ranges of the log; "
                "abort it, and publish larger batches or use more transactions."
            )

    def add(self, producer_id: int, first: int, last: int) -> None:
        """Add the messages from number `first` to `last` to a transaction."""
        stretches = self._stretches.setdefault(producer_id, [])
        if stretches and stretches[-1][1] + 1 == first:
            stretches[-1] = (stretches[-1][0], last)
        else:
            stretches.append((first, last))

    def end(self, producer_id: int) -> list[Stretch]:
        """Remove an ended transaction; return the ranges that it had stored."""
        return self._stretches.pop(producer_id, [])

    def state(self) -> PendingState:
        return [(one, list(stretches)) for one, stretches in self._stretches.items()]
