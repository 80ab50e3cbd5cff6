"""Connects clients of the gRPC listeners with the server of the gRPC library, in this process.

The library takes 30 MB, so it is loaded when the first client speaks HTTP/2. Its server listens at
a socket that only the user of this process reaches, in a folder that is closed to others (one in
the abstract name space would be open to the whole network namespace); each connection of a client
is carried there and back. So the connections
of clients have the limits, the TLS and the metrics of all other listeners, and the library sees
neither keys nor addresses: it knows its peer by a name, under which the front end finds the client.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from goqueue.loop.clock import Clock
from goqueue.model.errors import MalformedRequest
from goqueue.model.session import ConnectedClient
from goqueue.wire.carrier.problems import NodeStopping
from goqueue.wire.foreign import FIRST_BYTES, explained, protocol_of
from goqueue.wire.grpc.frames import PREFACE, Frames, PartialMessages
from goqueue.wire.grpc.front_end import Connection, FrontEnd
from goqueue.wire.parts import Part

if TYPE_CHECKING:
    from goqueue.wire.grpc.server import GrpcServer

READ_BYTES = 256 << 10  # at a time from the server
UNSENT_BYTES_MAX = 256 << 10  # then the server has to wait for the client
CONNECT_RETRY_SECONDS = 0.02  # while the server has too many connections to accept
FOLDER = "grpc"  # in the data directory
FOLDER_MODE = 0o700
SOCKET = "server"
_SERVER_MODULE = "goqueue.wire.grpc.server"
_BUSY = (errno.EAGAIN, errno.EINPROGRESS)

_log = logging.getLogger(__name__)


class GrpcBridge:
    """The server, once somebody needs it, and the connections to it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, front: FrontEnd, folder: Path
    ) -> None:
        """`folder` is the data directory of the node."""
        self.loop = loop
        self.front = front
        self.name = f"goqueue-{token_hex(16)}"
        self.address = ""  # of the server, when it is up
        self.is_up = False
        self._folder = folder
        self._place: Place | None = None
        self._clock = clock
        self._server: GrpcServer | None = None
        self._is_starting = False
        self._waiting: list[BridgedConnection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._connected: set[BridgedConnection] = set()
        self._bytes_held = 0  # of messages that have been received in part

    def connect(
        self,
        client: ConnectedClient,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> BridgedConnection:
        """The protocol side of a new connection."""
        # Nobody else can guess it, and so take the place of this client.
        name = f"{self.name}-{token_hex(16)}"
        known = self.front.connections[_peer(name)] = Connection(self.front, client)
        made = BridgedConnection(self, name, known, send=send, close=close, unblock=unblock)
        self._connected.add(made)
        return made

    def forget(self, connection: BridgedConnection) -> None:
        """Remove a closed connection."""
        self._connected.discard(connection)
        self._bytes_held -= connection.bytes_held
        known = self.front.connections.pop(_peer(connection.name), None)
        if known is not None:
            known.close()

    def hold(self, change: int) -> None:
        """Count what connections hold of incomplete messages; too much closes one of them."""
        self._bytes_held += change
        if self._bytes_held > self.front.limits.handling_bytes_max:
            largest = max(self._connected, key=lambda one: one.bytes_held)
            _log.warning(
                "closing a connection of %s, which holds %d bytes of incomplete messages: all "
                "together hold too many (listeners.receive_buffer_bytes_total_max)",
                largest.host,
                largest.bytes_held,
            )
            largest.fail()

    def when_up(self, connection: BridgedConnection) -> None:
        """Let a connection reach the server: at once, or when it has been loaded."""
        if self.is_up:
            connection.reach()
            return
        self._waiting.append(connection)
        if not self._is_starting:
            self._is_starting = True
            # In a thread, because it takes some hundred milliseconds.
            self._clock.run_blocking(lambda: importlib.import_module(_SERVER_MODULE), self._loaded)

    async def stop(self) -> None:
        """End streams, and let other calls finish."""
        self.front.refuse_calls()
        self.front.end_calls(NodeStopping())
        if self._server is not None:
            await self._server.stop()
        if self._place is not None:
            self._place.leave()

    def _loaded(self, module: Any, error: Exception | None) -> None:
        if error is not None:
            self._failed(error)
            return
        try:
            if self._place is None:
                self._place = Place(self._folder)
            self.address = self._place.address
            self._server = module.GrpcServer(self.front, f"unix:{self.address}")
        except Exception as failure:
            self._failed(failure)
            return
        task = self.loop.create_task(self._start(self._server))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, server: GrpcServer) -> None:
        try:
            await server.start()
        except Exception as error:
            self._failed(error)
            return
        self.is_up = True
        for one in self._take_waiting():
            one.reach()

    def _failed(self, error: Exception) -> None:
        """Close the connections that wait; the next one tries again."""
        _log.error("the gRPC server cannot be started: %s", error)
        self._is_starting = False
        for one in self._take_waiting():
            one.fail()

    def _take_waiting(self) -> list[BridgedConnection]:
        waiting, self._waiting = self._waiting, []
        return waiting


class BridgedConnection:
    """One connection of a client, and the one to the server that belongs to it."""

    def __init__(
        self,
        bridge: GrpcBridge,
        name: str,
        known: Connection,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> None:
        self._bridge = bridge
        self._loop = bridge.loop
        self.name = name
        self._known = known
        self._held = PartialMessages()
        self._from_client = Frames(self._held, is_client=True)
        self._from_server = Frames(self._held, is_client=False)
        self.bytes_held = 0  # of messages that have been received in part
        self._send: Callable[[list[Part]], None] = send
        self._close = close
        self._unblock = unblock
        self._socket: socket.socket | None = None  # to the server
        self._pending = bytearray()  # received from the client, not yet taken by the server
        self._is_http2 = False
        self._is_reading = self._is_writing = self._is_closed = False
        self._is_last = False  # the server has ended the connection
        self._unsent_bytes = 0

    # Called by the socket of the client

    @property
    def is_blocked(self) -> bool:
        return bool(self._pending)

    @property
    def host(self) -> str:
        return self._known.host

    @property
    def is_busy(self) -> bool:
        return self._known.call_count > 0

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes

    @unsent_bytes.setter
    def unsent_bytes(self, count: int) -> None:
        """The unsent bytes, set by the socket; when they shrink, the server is read again."""
        self._unsent_bytes = count
        if self._is_last and not count:
            self._loop.call_soon(self._close)
        elif not self._is_reading and count <= UNSENT_BYTES_MAX:
            self._loop.call_soon(self._read_on)

    def wanted_bytes(self, data: memoryview) -> int:
        return len(PREFACE)

    def receive(self, data: memoryview) -> int:
        """Hand all bytes to the server, once they are known to be HTTP/2."""
        if not self._is_http2:
            if not self._is_preface(data):
                return 0
            self._is_http2 = True
            self._from_client.feed(data)
            self._pending += data
            self._bridge.when_up(self)
            return len(data)
        self._from_client.feed(data)
        self._count_held()
        if self._is_closed:
            return len(data)
        if self._socket is None or self._pending:
            self._pending += data  # at most what is received at once: this blocks
        else:
            self._pending += data[self._transmit(data) :]
            self._write_later()
        return len(data)

    def closed(self) -> None:
        """The socket of the client was closed."""
        self._is_closed = True
        self._bridge.forget(self)
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None
        self._pending = bytearray()
        # Both sides refer to this connection; dropping them breaks the cycle.
        self._send, self._close, self._unblock = _send_nothing, _do_nothing, _do_nothing

    def _is_preface(self, data: memoryview) -> bool:
        """Whether the preface is complete; raise if this is something else."""
        first = bytes(data[: len(PREFACE)])
        if not PREFACE.startswith(first):
            protocol = protocol_of(first[:FIRST_BYTES])
            if protocol:
                raise MalformedRequest(explained(protocol, spoken="gRPC"))
            raise MalformedRequest("These bytes are not HTTP/2, which carries gRPC.")
        return len(first) == len(PREFACE)

    # The connection to the server

    def reach(self) -> None:
        """Connect to the server, which is up."""
        if self._is_closed:
            return
        reaching = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        reaching.setblocking(False)
        try:
            reaching.bind(_abstract(self.name))
            reaching.connect(self._bridge.address)
        except OSError as error:
            reaching.close()
            if error.errno not in _BUSY:
                _log.error("the gRPC server cannot be reached: %s", error)
                self.fail()
            else:
                self._loop.call_later(CONNECT_RETRY_SECONDS, self.reach)
            return
        self._socket = reaching
        self._read_on()
        self._write()

    def fail(self) -> None:
        """Close the connection: there is no server."""
        self._close()

    def _read_on(self) -> None:
        if self._socket is None or self._is_reading or self._unsent_bytes > UNSENT_BYTES_MAX:
            return
        self._is_reading = True
        self._loop.add_reader(self._socket, self._readable)

    def _readable(self) -> None:
        """Send to the client what the server says."""
        assert self._socket is not None
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        self._from_server.feed(memoryview(data))
        self._count_held()
        self._send([data])
        if self._unsent_bytes > UNSENT_BYTES_MAX and self._socket is not None:
            self._is_reading = False
            self._loop.remove_reader(self._socket)

    def _end(self) -> None:
        """Close the connection when the client has taken what the server has said last."""
        assert self._socket is not None
        self._is_last = True
        self._loop.remove_reader(self._socket)
        if not self._unsent_bytes:
            self._close()

    def _count_held(self) -> None:
        change = self._held.bytes_held - self.bytes_held
        if change:
            self.bytes_held += change
            self._bridge.hold(change)

    def _write(self) -> None:
        """Hand what is pending to the server, and take more from the client when all is gone."""
        if self._socket is None:
            return
        with memoryview(self._pending) as pending:
            sent = self._transmit(pending)
        del self._pending[:sent]
        if self._pending:
            self._write_later()
            return
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)
        self._unblock()

    def _write_later(self) -> None:
        if self._pending and not self._is_writing and self._socket is not None:
            self._is_writing = True
            self._loop.add_writer(self._socket, self._write)

    def _transmit(self, data: memoryview) -> int:
        assert self._socket is not None
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            return len(data)  # The server has closed it, which is noticed by reading.


class Place:
    """A folder for the socket of the server, which other users cannot enter."""

    def __init__(self, folder: Path) -> None:
        """Use a folder in the data directory, or a temporary one if that is not possible."""
        try:
            self._enter(folder / FOLDER)
        except OSError as error:  # The disk may be full, or have no sockets.
            _log.info("the gRPC server does not use the data directory: %s", error)
            self._enter(Path(mkdtemp(prefix="goqueue-")))

    @property
    def address(self) -> str:
        """The address by the descriptor of the folder; its path may be too long for a socket."""
        return f"/proc/self/fd/{self._fd}/{SOCKET}"

    def leave(self) -> None:
        """Remove the folder."""
        with suppress(OSError):
            (self._path / SOCKET).unlink(missing_ok=True)
            self._path.rmdir()
        os.close(self._fd)

    def _enter(self, path: Path) -> None:
        path.mkdir(FOLDER_MODE, exist_ok=True)
        path.chmod(FOLDER_MODE)
        self._path = path
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            (path / SOCKET).unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.bind(self.address)
            (path / SOCKET).unlink()
        except OSError:
            os.close(self._fd)
            raise


def _peer(name: str) -> str:
    """A client's address as the library writes it; in the abstract name space it leaves no file."""
    return f"unix-abstract:{name}"


def _abstract(name: str) -> bytes:
    return b"\0" + name.encode()


def _send_nothing(_: list[Part]) -> None:
    """The socket is gone."""


def _do_nothing() -> None:
    """The socket is gone."""
