"""A connection encrypted by TLS."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl

from goqueue.runtime.sockets import SocketConnection
from goqueue.wire.parts import FileRange

PIECE_BYTES = 256 << 10  # joined, or read from a file, to be encrypted together

_WAITING = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsConnection(SocketConnection):
    """One connected socket after its handshake.

    OpenSSL writes and reads one record of at most 16 KiB at a time. A write that would block must
    be repeated with the same bytes and at least the same length; the queue of unsent data, which
    only grows at its end, ensures that.
    """

    __slots__ = ()

    def certificate(self) -> bytes:
        """The certificate of the other end, which OpenSSL has verified; empty if it sent none."""
        if self._socket is None:
            return b""  # It is closed.
        assert isinstance(self._socket, ssl.SSLSocket)
        return self._socket.getpeercert(binary_form=True) or b""

    def _hang_up(self, connected: socket.socket) -> None:
        """Tell the client that the stream ends here and is not cut off, if that is possible."""
        assert isinstance(connected, ssl.SSLSocket)
        if not self._is_writing and self.failure is None:
            with contextlib.suppress(OSError):
                connected.unwrap()
        connected.close()

    def _receive_into(self, free: memoryview) -> int:
        assert isinstance(self._socket, ssl.SSLSocket)
        filled = 0
        try:
            while filled < len(free):
                received = self._socket.recv_into(free[filled:])
                if not received:
                    break
                filled += received
        except _WAITING:
            if not filled:
                raise BlockingIOError from None
        except OSError:
            if not filled:  # Otherwise it is raised again at the next call.
                raise
        if filled == len(free):
            # The rest is buffered by OpenSSL, so the socket does not become readable for it.
            self._loop.call_soon(self._read_on)
        return filled

    def _read_on(self) -> None:
        if self._socket is None or not self._is_reading:
            return
        assert isinstance(self._socket, ssl.SSLSocket)
        if self._socket.pending():
            self.readable()

    def _resume_reading(self) -> None:
        super()._resume_reading()
        self._loop.call_soon(self._read_on)

    def _transmit(self, data: bytes | bytearray | memoryview) -> int:
        assert isinstance(self._socket, ssl.SSLSocket)
        view = memoryview(data)
        sent = 0
        try:
            while sent < len(view):
                sent += self._socket.send(view[sent:])
        except _WAITING:
            if not sent:
                raise BlockingIOError from None
        return sent

    def _transmit_parts(
        self, parts: list[bytes | bytearray | memoryview], *, has_more: bool
    ) -> int:
        if len(parts) == 1:
            return self._transmit(parts[0])
        joined: list[bytes | bytearray | memoryview] = []
        size = 0
        for part in parts:
            joined.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                break
        return self._transmit(b"".join(joined))

    def _transmit_file(self, part: FileRange) -> int:
        piece = os.pread(part.file.fileno(), min(part.length, PIECE_BYTES), part.position)
        return self._transmit(piece)
