"""A limit on the memory of responses that clients have requested and do not read.

The protocol limits the unread responses of one connection. This is the limit on all connections
together: beyond it, the connection that has read nothing for the longest time is closed, so that
clients that do not read do not affect the others.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Protocol

from goqueue.wire.complaints import Complaints
from goqueue.wire.parts import FileRange, Part

_log = logging.getLogger(__name__)


class Connection(Protocol):
    """A connection with unsent responses."""

    host: str

    def close(self) -> None: ...


class UnsentBudget:
    """The unsent bytes in memory by connection, and their limit."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_total = 0
        # The connection that has read nothing for the longest time comes first.
        self._waiting: OrderedDict[Connection, int] = OrderedDict()
        self._complaints = Complaints(_log)

    def add(self, connection: Connection, count: int) -> None:
        """Count unsent bytes of a connection; others may be closed to stay within the limit."""
        self._waiting[connection] = self._waiting.get(connection, 0) + count
        self.bytes_total += count
        while self.bytes_total > self.bytes_max:
            slowest = next((one for one in self._waiting if one is not connection), None)
            if slowest is None:
                return  # A single response is limited elsewhere.
            self._complaints.tell(
                slowest.host,
                "closing a connection whose client does not read its responses: all connections "
                f"together hold {self.bytes_max} unsent bytes (listeners.unsent_bytes_total_max)",
            )
            slowest.close()

    def taken(self, connection: Connection, freed: int) -> None:
        """Note that the client has read something, which freed this many bytes."""
        if connection not in self._waiting:
            return
        self.bytes_total -= freed
        self._waiting[connection] -= freed
        if self._waiting[connection] > 0:
            self._waiting.move_to_end(connection)
        else:
            del self._waiting[connection]

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.bytes_total -= self._waiting.pop(connection, 0)


def memory_of(part: Part) -> int:
    """The memory that a part occupies until it is sent; a view occupies its whole buffer."""
    if isinstance(part, FileRange):
        return 0
    return memoryview(part.obj).nbytes if isinstance(part, memoryview) else len(part)
