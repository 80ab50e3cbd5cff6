"""What open transactions have scheduled: stretches of the log, until the transactions end."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.model.errors import TransactionAbortable

STRETCHES_MAX = 100_000  # of one transaction; others that write in between make more of them

Stretch = tuple[int, int]  # the first number, and the last

PendingState = list[tuple[int, list[Stretch]]]


class Pending:
    """For each producer, where its transaction has stored messages.

    Only where they are: what they are is read again when the transaction is committed, so that a
    transaction of any size costs little here.
    """

    __slots__ = ("_stretches",)

    def __init__(self, state: PendingState | None = None) -> None:
        self._stretches: dict[int, list[Stretch]] = {
            producer_id: [(first, last) for first, last in stretches]
            for producer_id, stretches in state or ()
        }

    def __iter__(self) -> Iterator[int]:
        """The producers."""
        return iter(list(self._stretches))

    def check_room(self, producer_id: int) -> None:
        """Refuse to let one transaction be scattered over too many places."""
        if len(self._stretches.get(producer_id, ())) >= STRETCHES_MAX:
            raise TransactionAbortable(
                f"A transaction may store delayed messages in {STRETCHES_MAX} places of the log; "
                "abort it, and publish more messages at once or use more transactions."
            )

    def add(self, producer_id: int, first: int, last: int) -> None:
        """The messages from one number to another wait for the end of a transaction."""
        stretches = self._stretches.setdefault(producer_id, [])
        if stretches and stretches[-1][1] + 1 == first:
            stretches[-1] = (stretches[-1][0], last)
        else:
            stretches.append((first, last))

    def end(self, producer_id: int) -> list[Stretch]:
        """The transaction is over; what it had stored."""
        return self._stretches.pop(producer_id, [])

    def state(self) -> PendingState:
        return [(one, list(stretches)) for one, stretches in self._stretches.items()]
