"""Small files with magic, version, checksum, and a body in msgpack."""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import msgspec
from crc32c import crc32c

from goqueue.storage.disk import Disk

_HEADER = struct.Struct(">4sHI")

Body = TypeVar("Body")


def write_framed(
    disk: Disk, path: str, *, magic: bytes, version: int, body: Any, is_durable: bool = True
) -> None:
    """Replace the file as a whole: a crash of the process leaves the old one or the new one.

    The same holds for a crash of the machine if `is_durable`; otherwise the file may then be
    damaged, which the checksum detects, and counts as missing.
    """
    data = msgspec.msgpack.encode(body)
    framed = _HEADER.pack(magic, version, crc32c(data)) + data
    disk.replace_whole(path, framed, is_durable=is_durable)


def read_framed(
    disk: Disk, path: str, *, magic: bytes, version: int, body: type[Body]
) -> Body | None:
    """Read the file's body; None if it is missing, damaged or of another version.

    Such files hold only what can be rebuilt from the log, so none of those is an error.
    """
    try:
        data = disk.read_whole(path)
    except FileNotFoundError:
        return None
    if len(data) < _HEADER.size:
        return None
    found_magic, found_version, checksum = _HEADER.unpack_from(data)
    content = data[_HEADER.size :]
    if (found_magic, found_version) != (magic, version) or crc32c(content) != checksum:
        return None
    try:
        return msgspec.msgpack.decode(content, type=body)
    except msgspec.DecodeError:
        return None
