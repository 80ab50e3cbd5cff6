"""Counts what a connection holds of messages that are not complete, from its HTTP/2 frames.

The gRPC library keeps a message until all of it has been received, and tells nobody how much that
is. Clients that begin large messages and never end them would fill the memory. So the frames are
read on their way to the library: nine bytes of each, and the five bytes before each message.
"""

from __future__ import annotations

from struct import Struct

from goqueue.model.errors import MalformedRequest

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # what every HTTP/2 client sends first
STREAMS_MAX = 10_000  # of one connection with messages in part; the library allows far fewer

_FRAME = Struct(">HBBBI")  # length in 16 and 8 bits, type, flags, stream
_DATA, _HEADERS, _RESET = 0, 1, 3
_END_STREAM, _PADDED = 0x1, 0x8
_STREAM_MASK = 0x7FFFFFFF
_PREFIX_BYTES = 5  # a flag, and the length in four bytes


class PartialMessages:
    """The messages of a connection that have been received in part, by stream."""

    __slots__ = ("_streams", "bytes_held")

    def __init__(self) -> None:
        self.bytes_held = 0
        self._streams: dict[int, _Message] = {}

    def received(self, stream: int, data: memoryview) -> None:
        """Count a piece of a stream: a part of a message, or several messages."""
        message = self._streams.get(stream)
        if message is None:
            if len(self._streams) >= STREAMS_MAX:
                raise MalformedRequest("This connection has too many streams.")
            message = self._streams[stream] = _Message()
        self.bytes_held -= message.held
        message.add(data)
        self.bytes_held += message.held

    def ended(self, stream: int) -> None:
        """Note that a stream has ended; the library drops what it has of it."""
        message = self._streams.pop(stream, None)
        if message is not None:
            self.bytes_held -= message.held


class Frames:
    """Reads the frames that one side sends."""

    __slots__ = (
        "_body",
        "_flags",
        "_has_padding",
        "_head",
        "_held",
        "_is_client",
        "_kind",
        "_left",
        "_skipped",
        "_stream",
    )

    def __init__(self, held: PartialMessages, *, is_client: bool) -> None:
        """Messages of the client are counted; those of the server end streams."""
        self._held = held
        self._is_client = is_client
        self._skipped = len(PREFACE) if is_client else 0
        self._head = b""
        self._left = 0  # of the payload of the current frame
        self._body = 0  # as much of it carries messages
        self._has_padding = False  # whose length is the next byte
        self._kind = self._flags = self._stream = 0

    def feed(self, data: memoryview) -> None:
        """Read a piece; raise if no library sends that."""
        at, end = min(self._skipped, len(data)), len(data)
        self._skipped -= at
        while at < end:
            if self._left:
                at += self._continue(data[at : at + self._left])
            else:
                wanted = _FRAME.size - len(self._head)
                self._head += bytes(data[at : at + wanted])
                at += wanted
                if len(self._head) < _FRAME.size:
                    return
                self._begin()
            if not self._left and self._ends:
                self._held.ended(self._stream)

    @property
    def _ends(self) -> bool:
        """Whether the current frame is the last of its stream."""
        if self._kind == _RESET:
            return True
        return self._kind in (_DATA, _HEADERS) and bool(self._flags & _END_STREAM)

    def _begin(self) -> None:
        high, low, self._kind, self._flags, stream = _FRAME.unpack(self._head)
        self._head = b""
        self._left = self._body = high << 8 | low
        self._stream = stream & _STREAM_MASK
        if self._kind != _DATA or not self._is_client:
            self._body = 0
        self._has_padding = bool(self._body and self._flags & _PADDED)

    def _continue(self, payload: memoryview) -> int:
        """Read a piece of a payload; return its size."""
        if self._has_padding:
            self._has_padding = False
            self._body = max(0, self._body - 1 - payload[0])
            payload = payload[:1]
        elif self._body:
            body = payload[: self._body]
            self._held.received(self._stream, body)
            self._body -= len(body)
        self._left -= len(payload)
        return len(payload)


class _Message:
    """Where a stream is in its current message."""

    __slots__ = ("_left", "_prefix", "held")

    def __init__(self) -> None:
        self.held = 0
        self._prefix = b""
        self._left = 0

    def add(self, data: memoryview) -> None:
        at, end = 0, len(data)
        while at < end:
            if self._left:
                count = min(self._left, end - at)
                self._left -= count
            else:
                count = min(_PREFIX_BYTES - len(self._prefix), end - at)
                self._prefix += bytes(data[at : at + count])
                if len(self._prefix) == _PREFIX_BYTES:
                    self._left = int.from_bytes(self._prefix[1:], "big")
                    self._prefix = b""
            at += count
            self.held += count
            if not self._left and not self._prefix:
                self.held = 0
