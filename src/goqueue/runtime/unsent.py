"""A bound on the memory of answers that clients have asked for and do not take.

What one connection asks for while it takes nothing is bounded by its protocol. Here is the bound on
all connections together: beyond it the connection that has taken nothing for the longest time is
closed, so that clients that do not read cost those that do nothing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Protocol

from goqueue.wire.parts import FileRange, Part
from goqueue.wire.peers.complaints import Complaints

_log = logging.getLogger(__name__)


class Connection(Protocol):
    """Whoever holds answers that are not sent yet."""

    host: str

    def close(self) -> None: ...


class UnsentBudget:
    """The bytes in memory that wait to be sent, by connection, and how many there may be."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_total = 0
        # The connection that has taken nothing for the longest time comes first.
        self._waiting: OrderedDict[Connection, int] = OrderedDict()
        self._complaints = Complaints(_log)

    def add(self, connection: Connection, count: int) -> None:
        """Count what is to be sent to a connection; others may have to go for it."""
        self._waiting[connection] = self._waiting.get(connection, 0) + count
        self.bytes_total += count
        while self.bytes_total > self.bytes_max:
            slowest = next((one for one in self._waiting if one is not connection), None)
            if slowest is None:
                return  # The bound on a single answer is not ours.
            self._complaints.tell(
                slowest.host,
                "closing a connection whose client does not read its answers: all connections "
                f"together hold {self.bytes_max} unsent bytes (listeners.unsent_bytes_total_max)",
            )
            slowest.close()

    def taken(self, connection: Connection, freed: int) -> None:
        """The client has taken something, and so many bytes of memory with it."""
        if connection not in self._waiting:
            return
        self.bytes_total -= freed
        self._waiting[connection] -= freed
        if self._waiting[connection] > 0:
            self._waiting.move_to_end(connection)
        else:
            del self._waiting[connection]

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        self.bytes_total -= self._waiting.pop(connection, 0)


def memory_of(part: Part) -> int:
    """What a part keeps in memory until all of it is sent: a view keeps all it is a view of."""
    if isinstance(part, FileRange):
        return 0
    return memoryview(part.obj).nbytes if isinstance(part, memoryview) else len(part)
