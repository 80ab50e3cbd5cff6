"""Reads and writes the big-endian fields of Kafka's older layouts."""

from __future__ import annotations

import struct

from goqueue.model.errors import MalformedRequest

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


def pack_string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def pack_bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


class FieldReader:
    """Consumes fields from the front of `data`; an invalid one raises MalformedRequest."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def bytes_left(self) -> int:
        return len(self._data) - self._position

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def string(self) -> str:
        text = self.optional_string()
        if text is None:
            raise MalformedRequest("A string is missing where one is required.")
        return text

    def optional_string(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedRequest("A string is not valid UTF-8.") from error

    def count(self, item_bytes_min: int) -> int:
        """The length of an array, checked against the remaining bytes."""
        count = self.int32()
        if count > self.bytes_left // item_bytes_min:
            raise MalformedRequest(f"An array announces {count} items, more than its bytes hold.")
        return max(count, 0)

    def optional_bytes(self) -> bytes:
        return self._take(max(self.int32(), 0))

    def rest(self) -> bytes:
        """The remaining bytes, which need no length."""
        return self._take(self.bytes_left)

    def _number(self, layout: struct.Struct) -> int:
        number: int = layout.unpack(self._take(layout.size))[0]
        return number

    def _take(self, length: int) -> bytes:
        if length > self.bytes_left:
            raise MalformedRequest(f"{length} bytes announced, {self.bytes_left} left.")
        taken = self._data[self._position : self._position + length]
        self._position += length
        return taken
