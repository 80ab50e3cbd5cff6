"""Connected sockets, on the event loop's readiness events.

Requests are read into one buffer that all connections share and handled in place. An incomplete
request gets a buffer of its own, which grows with the received data, not with the announced length.
If there are many connections, `turns.py` receives for all of them. Responses are sent with as few
system calls as their parts allow; ranges of files are sent by zero-copy from the page cache.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
import os
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

from goqueue.broker.gate.request_metrics import UNKNOWN_API, ListenerMetrics
from goqueue.model.errors import GoQueueError
from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.runtime.budgets import MEMORY_WAIT_SECONDS_MAX, ReceiveBudget, UnsentBudget, memory_of
from goqueue.runtime.disk import LocalFile
from goqueue.runtime.turns import Turns
from goqueue.wire.complaints import Complaints
from goqueue.wire.parts import FileRange, Part

SHARED_BUFFER_BYTES = 256 << 10
BUFFER_BYTES_MIN = 16 << 10
# Memory from the system costs nothing before it is written to, unlike a bytearray of zeros.
MAPPED_BUFFER_BYTES_MIN = 1 << 20
KEPT_BUFFER_BYTES_MAX = 4 << 20  # a larger one is released as soon as its request is handled
# What a client has sent while its quotas delayed it is received in small steps, one per turn, so
# that others do not wait for it.
DELAYED_STEP_BYTES = 64 << 10
MEMORY_RETRY_SECONDS = 0.1
JOINED_BYTES_MAX = 256 << 10
GATHER_MAX = 64  # parts per system call
SEND_PER_TURN_BYTES = 4 << 20  # then other connections get their turn

_AGAIN = (errno.EAGAIN, errno.EINTR)  # nothing can be done now

_log = logging.getLogger(__name__)


class ProtocolSide(Protocol):
    """The protocol side of a connection."""

    unsent_bytes: int

    @property
    def is_blocked(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    def receive(self, data: memoryview) -> int: ...

    def wanted_bytes(self, data: memoryview) -> int: ...

    def closed(self) -> None: ...


class Connect(Protocol):
    """Makes the protocol side of a new connection."""

    def __call__(
        self,
        client: ConnectedClient,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> ProtocolSide: ...


class Owner(Protocol):
    """The creator of a connection, with what its connections share."""

    loop: asyncio.AbstractEventLoop
    connect: Connect
    rules: ListenerRules
    shared_buffer: memoryview
    receiving: ReceiveBudget
    complaints: Complaints
    turns: Turns | None  # None if there are few connections, or they are encrypted
    unsent: UnsentBudget | None  # None for connections between nodes
    measured: ListenerMetrics

    def forget(self, connection: SocketConnection) -> None: ...


class SocketConnection:
    """One connected socket, its receive buffer and its unsent data."""

    __slots__ = (
        "_buffer",
        "_fd",
        "_filled",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_outgoing",
        "_owner",
        "_protocol",
        "_received",
        "_sent",
        "_socket",
        "_step_bytes",
        "_turns",
        "_unsent",
        "failure",
        "host",
        "is_waiting_for_memory",
        "last_active",
        "receiving_since",
    )

    def __init__(self, owner: Owner, connected: socket.socket, host: str) -> None:
        self._owner = owner
        self._loop = owner.loop
        self._turns = owner.turns
        self._unsent = owner.unsent
        self._received = owner.measured.received
        self._sent = owner.measured.sent
        self._socket: socket.socket | None = connected
        self._fd = connected.fileno()
        self._buffer: bytearray | mmap.mmap = bytearray(0)
        self._filled = 0
        self._outgoing: deque[Part] = deque()
        self._is_writing = False
        self._is_reading = True
        self._step_bytes = 0  # the most to receive at once; 0 if as much as fits
        self.is_waiting_for_memory = False
        self.receiving_since = (
            0.0  # when the first bytes of the request in the buffer were received
        )
        self.host = host
        self.failure: Exception | None = None  # why it ended, unless one end closed it
        self.last_active = self._loop.time()
        self._protocol = owner.connect(
            ConnectedClient(host, owner.rules, self.certificate()),
            send=self._send,
            close=self.close,
            unblock=self._unblock,
        )
        self._watch()

    def certificate(self) -> bytes:
        """The verified certificate of the client; empty without TLS."""
        return b""

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for a response, so that the connection is not idle."""
        return self._protocol.is_busy

    @property
    def _is_muted(self) -> bool:
        """Whether the client has to wait as its quotas demand; not all protocols can delay it."""
        return getattr(self._protocol, "is_muted", False)

    @property
    def buffer_bytes(self) -> int:
        """The size of the receive buffer, in use or not."""
        return len(self._buffer)

    @property
    def held_bytes(self) -> int:
        """The memory of a partly received request."""
        return len(self._buffer) if self._filled else 0

    def close(self) -> None:
        if self._socket is None:
            return
        if self._is_reading:
            self._unwatch()
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        self._hang_up(self._socket)
        self._socket = None
        for part in self._outgoing:
            _release(part)
        self._outgoing.clear()
        if self._unsent is not None:
            self._unsent.forget(self)
        self._filled = self._step_bytes = 0
        self.release_buffer()
        self._set_apart()
        self._owner.receiving.waited(self)
        if self._turns is not None:
            self._turns.take_back(self)
        self._owner.forget(self)
        self._protocol.closed()

    def close_if_abandoned(self) -> None:
        """Close a muted connection whose client is gone, which is otherwise noticed by reading."""
        if self._socket is None or self._is_reading or not self._is_muted:
            return
        poll = select.poll()
        poll.register(self._fd, select.POLLRDHUP)
        if poll.poll(0):
            self.close()

    def _note_failure(self, error: Exception) -> None:
        """Store why the connection ends, without the traceback of the error.

        Its local variables hold responses and buffers and refer to this connection, a cycle that
        only the garbage collector would free.
        """
        error.__traceback__ = error.__context__ = error.__cause__ = None
        self.failure = error

    def release_buffer(self) -> None:
        """Release the buffer unless it holds part of a request."""
        if self._buffer and not self._filled:
            self._owner.receiving.release(self)
            self._buffer = bytearray()
            self._set_apart()

    def _set_apart(self) -> None:
        """Receive by itself if it has a buffer of its own, or receives in steps."""
        if self._turns is not None:
            self._turns.set_apart(self._fd, is_apart=bool(self._buffer or self._step_bytes))

    def _change_step(self, step_bytes: int) -> None:
        if step_bytes != self._step_bytes:
            self._step_bytes = step_bytes
            self._set_apart()

    def received(self, buffer: memoryview, length: int, now: float) -> None:
        """Handle received data in the shared buffer, the end of the stream, or an error."""
        if self._socket is None:
            return  # It was closed earlier in the same turn.
        if length > 0:
            self._received.value += length
            self.last_active = now
            self._handle(buffer, length)
        elif -length not in _AGAIN:
            if length:
                self._note_failure(OSError(-length, os.strerror(-length)))
            self.close()

    def sent(self, answer: bytes, length: int) -> None:
        """Send the rest of a response that was only partly sent with the others of its turn."""
        if self._socket is None:
            return
        if -length in _AGAIN:
            length = 0
        if length < 0:
            self._note_failure(OSError(-length, os.strerror(-length)))
            self.close()
        else:
            self._sent.value -= len(answer) - length  # It was counted as a whole in this turn.
            self._queue([memoryview(answer)[length:]])

    def _watch(self) -> None:
        if self._turns is None:
            self._loop.add_reader(self._fd, self.readable)
        else:
            self._turns.watch(self._fd, self)

    def _unwatch(self) -> None:
        if self._turns is None:
            self._loop.remove_reader(self._fd)
        else:
            self._turns.unwatch(self._fd)

    def readable(self) -> None:
        """Receive data, into the buffer of this connection if it has one."""
        if self._socket is None:
            return  # It was closed earlier in the same turn.
        is_shared = not self._buffer
        buffer = self._owner.shared_buffer if is_shared else memoryview(self._buffer)
        free = buffer[self._filled :]
        if self._step_bytes:
            free = free[: self._step_bytes]
        try:
            received = self._receive_into(free)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._note_failure(error)
            received = 0
        if not received:
            self.close()
            return
        self._received.value += received
        self.last_active = self._loop.time()
        if self._step_bytes and received < len(free):
            self._change_step(0)  # No more had arrived.
        self._handle(buffer, self._filled + received)

    def _handle(self, buffer: memoryview, filled: int) -> None:
        """Handle the complete requests in a buffer, and keep the rest in a buffer of its own."""
        try:
            used = self._protocol.receive(buffer[:filled])
        except GoQueueError as error:
            self._note_failure(error)
            self._owner.measured.apis[UNKNOWN_API].failed(error.code)
            self._owner.complaints.tell(self.host, f"closing the connection: {error}")
            self.close()
            return
        if self._socket is None:
            return
        if used or not self._filled:
            self.receiving_since = self.last_active
        if used == filled:
            self._filled = 0
            size = len(self._buffer)
            if size and not SHARED_BUFFER_BYTES <= size <= KEPT_BUFFER_BYTES_MAX:
                # It has the size of one request; the shared buffer takes more of them.
                self.release_buffer()
        elif not self._keep(buffer[used:filled]):
            self._await_memory(buffer[used:filled])
            return
        if self._protocol.is_blocked:
            self._pause_reading()

    def _keep(self, rest: memoryview) -> bool:
        """Move the rest to the start of a buffer with free space; False if there is no memory."""
        filled = len(rest)
        wanted = self._protocol.wanted_bytes(rest)
        # The buffer grows with received data only, whatever length was announced.
        size = max(len(self._buffer), min(wanted, max(2 * filled, BUFFER_BYTES_MIN)), filled)
        if size > len(self._buffer):
            if not self._owner.receiving.reserve(self, size):
                return False
            is_mapped = size >= MAPPED_BUFFER_BYTES_MIN
            self._buffer = mmap.mmap(-1, size) if is_mapped else bytearray(size)
            # Not to a part of the buffer itself, which would copy the rest once more.
            memoryview(self._buffer)[:filled] = rest
            self._set_apart()
        else:
            # The rest may lie in this very buffer: a view can be copied over itself.
            memoryview(self._buffer)[:filled] = rest
        self._filled = filled
        return True

    def _await_memory(self, rest: memoryview) -> None:
        """Wait until there is memory for the rest of a request."""
        if not self._owner.receiving.may_wait(self):
            self.close()
            return
        self.is_waiting_for_memory = True
        self._pause_reading()
        kept: bytes | None = None
        if len(self._buffer) >= len(rest):
            self._filled = len(rest)
            memoryview(self._buffer)[: self._filled] = rest
        else:
            kept = bytes(rest)  # at most as much as the shared buffer holds
        since = self._loop.time()
        self._loop.call_later(MEMORY_RETRY_SECONDS, self._retry_memory, kept, since)

    def _retry_memory(self, kept: bytes | None, since: float) -> None:
        if self._socket is None:
            return
        rest = memoryview(self._buffer)[: self._filled] if kept is None else memoryview(kept)
        if self._keep(rest):
            self.is_waiting_for_memory = False
            self._owner.receiving.waited(self)
            self._resume_reading()
            return
        if self._loop.time() - since >= MEMORY_WAIT_SECONDS_MAX:
            self._owner.receiving.make_room()
        self._loop.call_later(MEMORY_RETRY_SECONDS, self._retry_memory, kept, since)

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._unwatch()
            self._is_reading = False
            if self._is_muted:
                self._change_step(DELAYED_STEP_BYTES)

    def _unblock(self) -> None:
        self._loop.call_soon(self._resume_reading)

    def _resume_reading(self) -> None:
        if self._socket is None or self._is_reading or self._protocol.is_blocked:
            return
        if self.is_waiting_for_memory:
            return  # The next bytes of the stream are not in the buffer yet.
        self._is_reading = True
        self._watch()
        if self._filled:
            # Requests may have arrived while reading was paused.
            self._handle(memoryview(self._buffer), self._filled)

    def _send(self, parts: list[Part]) -> None:
        turns = self._turns
        if turns is not None and turns.is_holding and not self._is_writing:
            if len(parts) == 1 and isinstance(answer := parts[0], bytes):
                self.last_active = turns.now
                self._sent.value += len(answer)
                turns.take(self._fd, self, answer)
                return
            if held := turns.take_back(self):
                self._sent.value -= len(held)
                parts = [held, *parts]  # Earlier data is sent first.
        self.last_active = self._loop.time()
        if self._is_writing:
            self._queue(parts)
            return
        data = _joined(parts)
        if data is None:
            if self._queue(parts):
                self._write()
            return
        try:
            sent = self._transmit(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._note_failure(error)
            self.close()
            return
        self._sent.value += sent
        # The usual case: everything fits into the socket's buffer at once.
        if sent != len(data):
            self._queue([memoryview(data)[sent:]])

    def _queue(self, parts: list[Part]) -> bool:
        """Append parts to the unsent data; if a file is unusable, close and return False."""
        kept_bytes = 0
        try:
            for part in parts:
                if part.__class__ is FileRange:
                    part = _kept(part)
                self._outgoing.append(part)
                self._protocol.unsent_bytes += len(part)
                kept_bytes += memory_of(part)
        except OSError as error:
            self._fail_to_send(error)
            return False
        if self._unsent is not None and kept_bytes:
            self._unsent.add(self, kept_bytes)
        if not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._write)
        return True

    def _fail_to_send(self, error: OSError) -> None:
        if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT):
            _log.warning("sending to %s failed: %s", self.host, error)
        self._note_failure(error)
        self.close()

    def _write(self) -> None:
        """Send as much as the socket accepts now."""
        budget = SEND_PER_TURN_BYTES
        was_blocked = self._protocol.is_blocked
        try:
            while self._outgoing and budget > 0:
                sent = self._write_some()
                budget -= sent
                self._sent.value += sent
                self._protocol.unsent_bytes -= sent
                self.last_active = self._loop.time()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._fail_to_send(error)
            return
        if not self._outgoing:
            self._loop.remove_writer(self._fd)
            self._is_writing = False
        if was_blocked and not self._protocol.is_blocked:
            self._unblock()

    def _write_some(self) -> int:
        outgoing = self._outgoing
        first = outgoing[0]
        if isinstance(first, FileRange):
            sent = self._transmit_file(first)
            if sent == 0:
                raise _ended_early(first)
            first.position += sent
            first.length -= sent
            if not first.length:
                _release(outgoing.popleft())
            return sent
        gathered: list[bytes | bytearray | memoryview] = []
        for part in outgoing:
            if isinstance(part, FileRange) or len(gathered) == GATHER_MAX:
                break
            gathered.append(part)
        sent = self._transmit_parts(gathered, has_more=len(outgoing) > len(gathered))
        left, freed_bytes = sent, 0
        for part in gathered:
            if left < len(part):
                outgoing[0] = memoryview(part)[left:]
                break
            left -= len(part)
            freed_bytes += memory_of(part)
            outgoing.popleft()
        if self._unsent is not None:
            self._unsent.taken(self, freed_bytes)
        return sent

    # System calls; those that transfer data raise BlockingIOError if they would block.

    def _hang_up(self, connected: socket.socket) -> None:
        connected.close()

    def _receive_into(self, free: memoryview) -> int:
        assert self._socket is not None
        return self._socket.recv_into(free)

    def _transmit(self, data: bytes) -> int:
        assert self._socket is not None
        return self._socket.send(data)

    def _transmit_parts(
        self, parts: list[bytes | bytearray | memoryview], *, has_more: bool
    ) -> int:
        assert self._socket is not None
        # Headers and the following file should share packets.
        return self._socket.sendmsg(parts, (), socket.MSG_MORE if has_more else 0)

    def _transmit_file(self, part: FileRange) -> int:
        return os.sendfile(self._fd, part.file.fileno(), part.position, part.length)


def _joined(parts: list[Part]) -> bytes | None:
    """All parts joined; None if they are too many, too large or ranges of files."""
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]  # Most responses are a single small part.
    if len(parts) > GATHER_MAX or any(part.__class__ is FileRange for part in parts):
        return None
    if sum(map(len, parts)) > JOINED_BYTES_MAX:
        return None  # Copying it would cost more than it saves.
    return b"".join(parts)  # type: ignore[arg-type]


def _kept(part: Part) -> Part:
    """A range whose file is pinned until it is sent; its bytes if too many files are pinned."""
    assert isinstance(part, FileRange)
    if not isinstance(part.file, LocalFile) or part.file.try_pin():
        return part
    data = part.file.read(part.position, part.length)
    if len(data) < part.length:
        raise _ended_early(part)
    return data


def _ended_early(part: FileRange) -> OSError:
    return OSError(errno.EIO, f"{part.file.path} ended early")


def _release(part: Part) -> None:
    if isinstance(part, FileRange) and isinstance(part.file, LocalFile):
        part.file.unpin()
