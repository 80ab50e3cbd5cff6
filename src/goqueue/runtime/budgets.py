"""Limits on the memory of connections: partly received requests, and responses that are not read.

The protocol limits what one connection holds. These are the limits on connections together: when
one is reached, the connection that affects the others most is closed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from goqueue.wire.complaints import Complaints
from goqueue.wire.parts import FileRange, Part

SMALL_REQUEST_BYTES_MAX = 2 << 20
ROOM_PAUSE_SECONDS = 0.25
MEMORY_WAIT_SECONDS_MAX = 1.0  # then a connection with a partly received request is closed
WAITING_FOR_MEMORY_MAX = 100  # connections, each with up to a shared buffer of data

_log = logging.getLogger(__name__)


class Connection(Protocol):
    """A connection with unsent responses."""

    host: str

    def close(self) -> None: ...


class ReceivingConnection(Connection, Protocol):
    """A connection with a receive buffer."""

    receiving_since: float  # when the first bytes of the request in the buffer were received

    @property
    def buffer_bytes(self) -> int: ...

    @property
    def held_bytes(self) -> int:
        """The memory of a partly received request."""

    def release_buffer(self) -> None:
        """Release the buffer unless it holds part of a request."""


class ReceiveBudget:
    """The receive buffers of connections, their limit, and the connections that wait for memory."""

    def __init__(self, bytes_max: int, time: Callable[[], float]) -> None:
        """`time` is in seconds, as in `receiving_since`."""
        self.bytes_max = bytes_max
        self.bytes_total = 0
        self._time = time
        self._buffered: set[ReceivingConnection] = set()
        self._waiting: set[ReceivingConnection] = set()
        self._room_made = 0.0
        self._complaints = Complaints(_log, now_ms=lambda: int(time() * 1000))

    def reserve(self, connection: ReceivingConnection, size: int) -> bool:
        """Reserve a receive buffer of `size` bytes for a connection; False if it has to wait."""
        if not self._has_room(connection, size):
            for one in list(self._buffered):
                one.release_buffer()
            if not self._has_room(connection, size):
                return False
        self.bytes_total += size - connection.buffer_bytes
        self._buffered.add(connection)
        return True

    def release(self, connection: ReceivingConnection) -> None:
        """Note that a connection releases its buffer."""
        self.bytes_total -= connection.buffer_bytes
        self._buffered.discard(connection)

    def _has_room(self, connection: ReceivingConnection, size: int) -> bool:
        """Whether a buffer may grow: small ones always, large ones in order of arrival.

        An eighth of the memory is reserved for small requests.
        """
        total = self.bytes_total + size - connection.buffer_bytes
        if total > self.bytes_max:
            return False
        if size <= SMALL_REQUEST_BYTES_MAX:
            return True
        is_alone = self.bytes_total == connection.buffer_bytes
        if not is_alone and total > self.bytes_max * 7 // 8:
            return False
        return not any(one.receiving_since < connection.receiving_since for one in self._waiting)

    def may_wait(self, connection: ReceivingConnection) -> bool:
        """Whether a connection may wait for memory; a waiting one holds some memory itself."""
        is_allowed = len(self._waiting) < WAITING_FOR_MEMORY_MAX
        self._complaints.tell(
            connection.host,
            f"{'has to wait' if is_allowed else 'closing a connection'}: partly received requests "
            f"take {self.bytes_max} bytes, the most that "
            "listeners.receive_buffer_bytes_total_max allows",
        )
        if is_allowed:
            self._waiting.add(connection)
        return is_allowed

    def waited(self, connection: ReceivingConnection) -> None:
        """Note that a connection has received the memory it waited for, or has ended."""
        self._waiting.discard(connection)

    def make_room(self) -> None:
        """Close the connection that blocks others from receiving, if there is one.

        That is the one with the largest request among those that could continue and are stalled. If
        all wait for memory, it is the one that began last, because it has the least to resend.
        """
        now = self._time()
        if now - self._room_made < ROOM_PAUSE_SECONDS:
            return  # Waiting connections retry first.
        holding = [one for one in self._buffered if one.held_bytes]
        moving = [one for one in holding if one not in self._waiting]
        stalled = [one for one in moving if one.receiving_since < now - MEMORY_WAIT_SECONDS_MAX]
        large = [one for one in holding if one.held_bytes > SMALL_REQUEST_BYTES_MAX]
        if stalled:
            chosen = max(stalled, key=lambda one: one.held_bytes)
        elif large and not moving:
            chosen = max(large, key=lambda one: one.receiving_since)
        else:
            return
        self._room_made = now
        self._complaints.tell(
            chosen.host,
            f"closing a connection that holds {chosen.held_bytes} bytes of a request, for which "
            "others wait; listeners.receive_buffer_bytes_total_max bounds them together",
        )
        chosen.close()


class UnsentBudget:
    """The unsent bytes in memory by connection, and their limit.

    Beyond it, the connection that has read nothing for the longest time is closed, so that clients
    that do not read do not affect the others.
    """

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
